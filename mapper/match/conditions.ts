/**
 * @file Conditions between loops: which input or output excludes the points where a condition fails, and which work a
 * schedule can skip.
 *
 *     c[i,j] += a[i,k] * b[k,j] where j <= i          block i 6, j 2 of 16
 *       for i_outer, j_outer
 *         when 32*j_outer <= 6*i_outer + 5            some point of the block takes part
 *           clear c
 *           for k ...                              and in its steps the zeros of another block, where no point of that takes part
 *           when 32*j_outer + 31 <= 6*i_outer or ...  all of them: stored as they are
 *           otherwise
 *             c[i,j] = select(j <= i, sum, 0)         tiles across the edge are masked where they are stored
 *         otherwise
 *           clear c, stored, unless that was done in the steps of another block (mapper/lower/companions.ts)
 *
 *     c[i,j] += a[i,k] * b[k,j] where k <= i          k is summed: a is packed with zeros beyond, and the loop over k ends where i does
 *
 * Where tiles of a can be loaded directly, only those across the edge are packed (mapper/lower/operands.ts); the others
 * are loaded in place.
 */

import type { AffineForm } from "../../abstraction/affine.ts";
import { bitAt } from "../../abstraction/binary-matrix.ts";
import type { Schedule } from "../../abstraction/candidate.ts";
import { hasName, namesOf } from "../../abstraction/collections.ts";
import { type Computation, identityIn, keptIn, tensorOf } from "../../abstraction/computation.ts";
import {
  type AtLeast,
  allOf,
  type Condition,
  conditionOf,
  conjunctsOf,
  everywhere,
  extreme,
  joined,
  not,
  type Span,
  selected,
  somewhere,
  type Truth,
} from "../../abstraction/condition.ts";
import { kept } from "../../abstraction/epilogue.ts";
import {
  and,
  axesIn,
  axis,
  compare,
  type Expr,
  minus,
  number,
  over,
  printExpr,
  remainder,
  substituteEach,
  testsElements,
} from "../../abstraction/expression.ts";
import type { Statement, StepRange } from "../../abstraction/loop-nest.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import type { LoopDimension } from "../schedule/dimensions.ts";
import { defineProblem, leavesAlone, type Problem } from "./problem.ts";

/** A part of the condition, and what excludes the points where it fails. */
interface ConditionPart {
  readonly part: Expr;
  /**
   * `store` when the part relates only kept loops, so that whole elements stay at the identity. Otherwise the input
   * whose packed tiles hold a neutral value at those points; undefined when no input is indexed by all the loops
   * concerned.
   */
  readonly keptOutBy: "store" | { readonly operand: string } | undefined;
}

/**
 * The parts of a computation's condition.
 * @param loops the loops concerned: those that packed tiles run over. The others are fixed while an operand is packed
 */
export function conditionParts(problem: Problem, loops: readonly string[]): ConditionPart[] {
  const { where } = problem.computation.equation;
  const droppers = pointDroppers(problem);
  const kept = new Set(namesOf(keptIn(problem.loops)));
  return conjunctsOf(where).map((part): ConditionPart => {
    const tied = axesIn(part);
    if (tied.every((l) => kept.has(l))) return { part, keptOutBy: "store" };
    // What is packed may be packed ahead of time, when elements are not known.
    if (testsElements(part)) return { part, keptOutBy: undefined };
    const needed = tied.filter((l) => loops.includes(l));
    const operand = droppers.find((row) => needed.every((l) => bitAt(problem.x, row, l) === 1));
    return { part, keptOutBy: operand === undefined ? undefined : { operand } };
  });
}

/** Input operands for which padding alone excludes a point. */
function pointDroppers(problem: Problem): string[] {
  return problem.x.rows.slice(0, -1).filter((operand) => leavesAlone(problem, [operand]));
}

/** The same when operands are packed outside every loop, as schedules do. */
export function scheduledParts(problem: Problem): ConditionPart[] {
  return conditionParts(problem, namesOf(problem.loops));
}

/** Parts of a condition that an operand's packed tiles enforce. */
export function partsPackedIn(parts: readonly ConditionPart[], operand: string): Expr[] {
  return parts.flatMap(({ part, keptOutBy }) =>
    keptOutBy !== undefined && keptOutBy !== "store" && keptOutBy.operand === operand ? [part] : [],
  );
}

/**
 * The parts that do more than keep an input's reads inside its tensor: a read outside yields zero, which already
 * excludes the point.
 */
export function beyondReads(problem: Problem, parts: readonly Expr[]): readonly Expr[] {
  const { computation, binding, padding } = problem;
  if (parts.length === 0 || computation.equation.op !== "+=" || padding?.kind !== "number" || padding.value !== 0)
    return parts;
  const inside = pointDroppers(problem).flatMap((operand) => {
    const bound = binding[operand];
    const dims = bound?.kind === "access" ? tensorOf(computation, bound.tensor).dims : [];
    return dims.flatMap(({ extent }, i) => {
      const e = (bound?.kind === "access" && bound.index[i]) || number(0);
      return [compare(">=", e, 0), compare("<", e, extent)];
    });
  });
  const known = new Set(inside.map(conditionText));
  return parts.filter((part) => !known.has(conditionText(part)));
}

/** A text that is the same for comparisons of equal affine forms. */
function conditionText(e: Expr): string {
  const c = conditionOf(e);
  if (c.kind !== "at-least") return printExpr(e);
  const terms = [...c.form.terms].sort(([a], [b]) => (a < b ? -1 : 1));
  return `${terms.map(([loop, factor]) => `${factor}*${loop}`).join("+")}+${c.form.constant} >= 0`;
}

/** The condition that each input enforces, by the name of its operand. */
export function carriedConditions(parts: readonly ConditionPart[]): ReadonlyMap<string, Condition> {
  const carried = new Map<string, Expr>();
  for (const { part, keptOutBy } of parts) {
    if (keptOutBy === undefined || keptOutBy === "store") continue;
    const before = carried.get(keptOutBy.operand);
    carried.set(keptOutBy.operand, before === undefined ? part : and(before, part));
  }
  return new Map([...carried].map(([operand, part]) => [operand, conditionOf(part)]));
}

/** The condition under which an element holds more than the identity; undefined when it always does. */
export function storedCondition(parts: readonly ConditionPart[]): Expr | undefined {
  const stored = parts.flatMap(({ part, keptOutBy }) => (keptOutBy === "store" ? [part] : []));
  return stored.length === 0 ? undefined : stored.reduce(and);
}

/**
 * The sum as it is stored: the identity of the combine where the condition on kept loops fails, except for elements
 * that an epilogue leaves out.
 * @param counters current values of the loops
 */
export function storedSum(
  computation: Computation,
  condition: Expr | undefined,
  counters: ReadonlyMap<string, Expr>,
  sum: Expr,
): Expr {
  const { equation, epilogue } = computation;
  const unstored = new Set(epilogue && kept(equation, epilogue.equation).map((e) => printExpr(e)));
  const left = conjunctsOf(condition).filter((e) => !unstored.has(printExpr(e)));
  const placed = substituteEach(left, counters);
  return selected(allOf(placed), sum, number(identityIn(computation)));
}

/** Why nothing excludes the points where the condition fails; undefined when every part is enforced. */
export function conditionProblem(problem: Problem, parts: readonly ConditionPart[]): string | undefined {
  const lost = parts.find(({ keptOutBy }) => keptOutBy === undefined);
  if (!lost) return undefined;
  if (testsElements(lost.part)) return `elements decide which points of a sum are left out: ${printExpr(lost.part)}`;
  if (pointDroppers(problem).length === 0)
    return `${problem.intrinsic.name} cannot leave out the points where the condition fails`;
  return `the condition ties ${listed(axesIn(lost.part))} together, and no operand is indexed by all of them`;
}

function listed(names: readonly string[]): string {
  return names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}

/** A range of a dimension: `elements` of its index from `low` on, where `low` is a multiple of `grain`. */
export interface Stretch {
  readonly low: Expr;
  readonly elements: number;
  readonly grain: number;
}

/** The whole range of a dimension. */
export const wholeStretch = (d: LoopDimension): Stretch => {
  const elements = d.steps * d.step;
  return { low: number(0), elements, grain: elements };
};

/**
 * The values that a loop of a dimension takes on a stretch; a superset when the stretch does not end on a step of the
 * fused loops.
 */
export function spanOf(d: LoopDimension, loop: string, { low, elements, grain }: Stretch): Span {
  const position = d.loops.findIndex((l) => l.name === loop);
  const extent = d.loops[position]?.extent ?? 1;
  const weight = d.weights[position] ?? 1;
  const above = d.weights[position - 1];
  // The digit turns over within the stretch.
  if (above !== undefined && (above % grain !== 0 || elements > grain)) return { low: number(0), span: extent };
  const first = over(above === undefined ? low : remainder(low, above), weight);
  if (weight % grain === 0 && elements <= grain) return { low: first, span: 1 };
  const carried = grain % weight === 0 ? Math.floor((elements - 1) / weight) : Math.ceil((elements - 1) / weight);
  return { low: first, span: Math.min(1 + carried, extent) };
}

/** What is known of the condition of a computation, if it has one, in the blocks of a schedule. */
export class Conditions {
  /** The condition under which an element holds more than the identity. */
  readonly stored: Expr | undefined;
  private readonly whole: Condition | undefined;
  private readonly kept: Condition | undefined;
  /** The condition under which an epilogue stores an element; undefined when it stores all. */
  private readonly leftOut: Condition | undefined;
  /** For each input that enforces part of the condition, that part. */
  private readonly carried: ReadonlyMap<string, Condition>;
  private readonly dimensions: readonly LoopDimension[];
  private readonly schedule: Schedule;

  constructor({ computation, intrinsic, binding }: Mapping, schedule: Schedule, dimensions: readonly LoopDimension[]) {
    const { equation, epilogue } = computation;
    const parts = scheduledParts(defineProblem(computation, intrinsic, binding));
    this.whole = equation.where && conditionOf(equation.where);
    this.stored = storedCondition(parts);
    this.kept = this.stored && conditionOf(this.stored);
    const asked = epilogue ? kept(equation, epilogue.equation) : [];
    this.leftOut = asked.length === 0 ? undefined : conditionOf(asked.reduce(and));
    this.carried = carriedConditions(parts);
    this.schedule = schedule;
    this.dimensions = dimensions;
  }

  /** Whether inputs enforce a part of the condition. */
  get keepsOut(): boolean {
    return this.carried.size > 0;
  }

  /** Whether some point of a register block may take part. */
  takesPart(of: StretchOf): Truth {
    return this.mayHold(this.whole, of);
  }

  /** Whether all elements of a block take part, or none does, so that it is stored as it is. */
  isUniform(of: StretchOf): Truth {
    return joined("or", this.holds(this.kept, of), not(this.mayHold(this.kept, of)));
  }

  /** Whether all points of a block of an input take part, as far as that input enforces the condition. */
  isInside(operand: string, of: StretchOf): Truth {
    return this.holds(this.carried.get(operand), of);
  }

  /** Whether some of these points take part and some do not. */
  isAcross(operand: string, of: StretchOf): Truth {
    return joined("and", this.mayHold(this.carried.get(operand), of), not(this.isInside(operand, of)));
  }

  /**
   * The blocks of a summed dimension in which an input excludes some points and keeps others: {@link blocks} from block
   * 0 on.
   */
  blocksOfInput(operand: string, d: LoopDimension, of: StretchOf, count: number): StepRange | undefined {
    return this.range(this.tiedTo(d, this.carried.get(operand)), d, of, number(0), count);
  }

  /** Whether an epilogue stores at least one element of a block. A sum without points is stored as the identity. */
  storesAny(of: StretchOf): Truth {
    return this.mayHold(this.leftOut, of);
  }

  /** Whether it stores all of them, and each holds a sum. */
  storesAll(of: StretchOf): Truth {
    return this.kept !== undefined && this.holds(this.kept, of);
  }

  /** Whether some points of one block of a summed dimension may take part. */
  mayAdd(d: LoopDimension, of: StretchOf): Truth {
    const parts = this.tiedTo(d, this.whole);
    return parts.length === 0 || this.mayHold({ kind: "and", parts }, of);
  }

  /**
   * The blocks of a summed dimension in which some point may take part, of those numbered by a loop.
   * @param from number of the block at step 0
   */
  blocks(d: LoopDimension, of: StretchOf, from: Expr, count: number): StepRange | undefined {
    return this.range(this.tiedTo(d, this.whole), d, of, from, count);
  }

  private range(
    tied: readonly AtLeast[],
    d: LoopDimension,
    stretchOf: StretchOf,
    from: Expr,
    count: number,
  ): StepRange | undefined {
    const elements = (this.schedule.block[d.name] ?? 1) * d.step;
    const spans = this.spans(stretchOf);
    const range = { from: [] as Expr[], to: [] as Expr[] };
    for (const { form } of tied) {
      const coefficient = form.terms.get(d.loops[0]?.name ?? "") ?? 0;
      const size = Math.abs(coefficient) * elements;
      const others = (sign: 1 | -1, more: number): AffineForm => ({
        constant: sign * form.constant + more,
        terms: new Map([...form.terms].flatMap(([l, c]) => (d.loops[0]?.name === l ? [] : [[l, sign * c]]))),
      });
      // c*x + most >= 0 for some x of the block: from block (c-1-most)/(c*elements) on, or up to most/(-c*elements),
      // rounded down.
      const block = (e: Expr): Expr => minus(over(e, size), from);
      if (coefficient > 0) range.from.push(block(extreme(others(-1, coefficient - 1), spans, "least")));
      else range.to.push(block(extreme(others(1, size), spans, "most")));
    }
    const atStart = (e: Expr): boolean => e.kind === "number" && e.value <= 0;
    const atEnd = (e: Expr): boolean => e.kind === "number" && e.value >= count;
    const moving = { from: range.from.filter((e) => !atStart(e)), to: range.to.filter((e) => !atEnd(e)) };
    return moving.from.length + moving.to.length === 0 ? undefined : moving;
  }

  /** Whether some steps of a dimension have less work than others. */
  ties(d: LoopDimension): boolean {
    const tied = this.whole ? loopsIn(this.whole) : [];
    return d.loops.some((l) => tied.includes(l.name));
  }

  /** The comparisons, among those that must all hold, that restrict a summed dimension consisting of one loop. */
  private tiedTo(d: LoopDimension, condition: Condition | undefined): readonly AtLeast[] {
    const [loop, ...fused] = d.loops;
    if (condition === undefined || d.kind !== "reduce" || loop === undefined || fused.length > 0) return [];
    return comparisons(condition).filter(({ form }) => form.terms.has(loop.name));
  }

  private mayHold(condition: Condition | undefined, of: StretchOf): Truth {
    return condition === undefined || somewhere(condition, this.spans(of));
  }

  private holds(condition: Condition | undefined, of: StretchOf): Truth {
    return condition === undefined || everywhere(condition, this.spans(of));
  }

  private spans(stretchOf: StretchOf): (loop: string) => Span {
    return (loop) => {
      const d = this.dimensions.find((x) => hasName(x.loops, loop));
      return d === undefined ? { low: axis(loop), span: 1 } : spanOf(d, loop, stretchOf(d));
    };
  }
}

/** The position of the generated code in each dimension: the whole range while nothing is fixed. */
export type StretchOf = (d: LoopDimension) => Stretch;

/** The loops a condition mentions. */
export function loopsIn(c: Condition): readonly string[] {
  if (c.kind === "at-least")
    return [...c.form.terms.keys()].flatMap((name) => {
      const element = c.elements.get(name);
      return element ? axesIn(element) : [name];
    });
  return c.kind === "other" ? c.loops : c.parts.flatMap(loopsIn);
}

/** The comparisons of loops alone that must all hold. */
export function comparisons(c: Condition): readonly AtLeast[] {
  if (c.kind === "at-least") return c.elements.size > 0 ? [] : [c];
  return c.kind === "and" ? c.parts.flatMap(comparisons) : [];
}

/** Chooses between two bodies, by whether a condition is known to hold, known to fail, or decided at run time. */
export function when(
  truth: Truth,
  body: readonly Statement[],
  otherwise: readonly Statement[] = [],
): readonly Statement[] {
  if (typeof truth === "boolean") return truth ? body : otherwise;
  return body.length + otherwise.length === 0 ? [] : [{ kind: "when", condition: truth, body, otherwise }];
}
