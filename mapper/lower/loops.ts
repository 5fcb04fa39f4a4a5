/**
 * @file Lowers a computation that no instruction maps to plain loops, with rows of neighbouring elements that a
 * compiler can vectorise.
 *
 *     y[n,c,p,q] max= x[n,c,p*2+r-1,q*2+s-1]       ->     for parallel rest in 0..64*56                  n, c and p are its digits
 *                                                           for row in 0..56: sums[row] = -inf
 *                                                           for r in 0..3, s in 0..3
 *                                                             when p*2+r-1 >= 0
 *                                                               for row from (2-s)/2: sums[row] = max(sums[row], x[n,c,p*2+r-1,row*2+s-1])
 *                                                           for row in 0..56: y[n,c,p,row] = sums[row]
 *
 * When the row is a summed loop, as in a softmax, there are as many partial sums as a row has elements; they are
 * combined at the end.
 *
 * Plain loops of a recurrence: elements are computed one after another, in the order of the axes.
 *
 *     y[b,i] = 0.75*y[b,i-1] + x[b,i]      ->    for parallel rest in 0..8                        the rows of b do not depend on one another
 *                                                  for i in 0..1000
 *                                                    y[rest,i] = 0.75*y[rest,i-1] + x[rest,i]
 *
 * Loops that no dependence crosses are dealt to threads; the others stay in order.
 */

import { affineForm, boundsOf, splitRowMajor } from "../../abstraction/affine.ts";
import { volumeOf } from "../../abstraction/collections.ts";
import {
  type Computation,
  extentsOf,
  identityIn,
  summedIn,
  targetOf,
  tensorOf,
} from "../../abstraction/computation.ts";
import { allOf, selected } from "../../abstraction/condition.ts";
import { dependencesOf, isRecurrent } from "../../abstraction/dependence.ts";
import { isInteger } from "../../abstraction/dtype.ts";
import { writesApart } from "../../abstraction/elements.ts";
import { storingAt } from "../../abstraction/epilogue.ts";
import { internal } from "../../abstraction/error.ts";
import {
  type Access,
  access,
  accessesIn,
  accessesOf,
  axesIn,
  axis,
  type Equation,
  type Expr,
  isSame,
  minus,
  number,
  printEquation,
  rewrite,
  substitute,
  substituteAxes,
  testsElements,
} from "../../abstraction/expression.ts";
import {
  assign,
  assignment,
  FreshNames,
  type LoopNest,
  loop,
  loops,
  type Scratch,
  type Statement,
  scalar,
} from "../../abstraction/loop-nest.ts";
import { when } from "../match/conditions.ts";
import { storedBefore } from "./beside.ts";
import { type Cut, type Row, RowLoops } from "./loop-rows.ts";
import { combine, halvings } from "./partial-sums.ts";

/** Limits that a row is cut at, one within the other: each doubles the text where choices of one row differ. */
const MOST_CUTS = 8;

/**
 * The nest of plain loops, and the reads in it that are inside their tensors although their indices alone do not show
 * it.
 */
export interface PlainLoops {
  readonly nest: LoopNest;
  readonly inside: ReadonlySet<Access>;
}

/** The reason why a computation cannot be lowered to plain loops; undefined if it can. */
export function loopsRefused(computation: Computation): string | undefined {
  const { equation, epilogue, time, axes } = computation;
  if (time) return "it steps through time";
  if (isRecurrent(equation)) return epilogue ? "an epilogue follows a result that refers to itself" : undefined;
  if (equation.op === "sat+=") return "a sum of it saturates once, after all points";
  if (!writesApart(computation)) return "several points of kept loops join one element";
  if (equation.op === "=" && axes.some((a) => a.kind === "reduce")) return "it assigns an element more than once";
  return undefined;
}

/** Lowers a computation to plain loops. @throws Error if `loopsRefused` gives a reason */
export function lowerLoops(computation: Computation): PlainLoops {
  const because = loopsRefused(computation);
  if (because !== undefined) internal(`no loops of ${printEquation(computation.equation)}: ${because}`);
  if (isRecurrent(computation.equation)) return { nest: lowerInOrder(computation), inside: new Set() };
  return new Lowering(computation).lower();
}

/** Whether several points contribute to one element. */
const makesSums = ({ axes, equation }: Computation): boolean => summedIn(axes).length > 0 || equation.op !== "=";

class Lowering extends RowLoops {
  private readonly sums: Scratch;
  private readonly inside = new Set<Access>();
  /** What holds at the piece of a row that is being lowered. */
  private readonly known: Known[] = [];

  constructor(computation: Computation) {
    super(computation, makesSums(computation));
    const { dtype } = targetOf(computation);
    this.sums = { name: this.names.fresh("sums"), dtype, elements: this.row?.steps ?? 1, scope: "local" };
  }

  lower(): PlainLoops {
    const { computation, row } = this;
    const isSum = makesSums(computation);
    const body = !isSum
      ? this.rowsStored(this.counted)
      : row?.run.kind === "reduce"
        ? this.partialSums(row)
        : this.rowsOfSums();
    const nest: LoopNest = {
      scratch: isSum ? [this.sums] : [],
      registers: [],
      prepare: [],
      body: [...storedBefore(computation, this.names), this.overKept(body)],
    };
    return { nest, inside: this.inside };
  }

  // ---- statements -----------------------------------------------------------------------------------------------------------

  /**
   * Stores elements that are not sums. A read outside its tensor gives the identity, for a whole row or at its ends.
   */
  private rowsStored(value: Expr, piece: Piece = { from: [], to: [] }): Statement[] {
    if (value.kind === "select" && !testsElements(value.condition) && !this.growsAlongRow(value.condition)) {
      const condition = substitute(value.condition, this.places, "index");
      const body = this.rowsStored(value.whenTrue, piece);
      const otherwise = this.rowsStored(value.whenFalse, piece);
      return [{ kind: "when", condition, body, otherwise }];
    }
    const pieces = this.rowsOfPieces(value, piece);
    if (pieces) return pieces;
    const outside = accessesIn(value).filter((read) => !this.isInside(read));
    const [read, another] = outside;
    const cut = read && !another ? this.cutAt(read) : undefined;
    if (!read || !cut) return this.overRow([this.stored(value)], piece);
    const filled = rewrite(value, (e) => (isSame(e, read) ? number(this.identity) : e), "value");
    const stored = this.stored(value, read);
    const rows = this.overRow([stored], { from: [...piece.from, ...cut.from], to: [...piece.to, ...cut.to] });
    const fill = this.overRow([this.stored(filled)], piece);
    const isWhole = cut.from.length + cut.to.length === 0;
    return [...(isWhole ? [] : fill), ...when(allOf(cut.conditions), rows, isWhole ? fill : [])];
  }

  /**
   * A row in two pieces, before and from where an index reaches a limit: select(i < 24, x0[i], x1[i-24]) reads x0 and then x1. Undefined where
   * no choice of the value ends like that.
   */
  private rowsOfPieces(value: Expr, { from, to }: Piece): Statement[] | undefined {
    if (this.known.length >= MOST_CUTS) return undefined;
    const splits: (Limit & { readonly condition: Expr; readonly step: Expr })[] = [];
    rewrite(
      value,
      (e) => {
        const split = e.kind === "select" ? limitOf(e.condition) : undefined;
        const step = split && this.growsAlongRow(split.index) && this.stepReaching(split.index, split.limit);
        if (e.kind === "select" && step) splits.push({ ...split, condition: e.condition, step });
        return e;
      },
      "value",
    );
    const split = splits.at(-1);
    if (!split) return undefined;
    const { index, limit, condition, step } = split;
    const lowered = (branch: "whenTrue" | "whenFalse", known: Known, piece: Piece): Statement[] => {
      this.known.push(known);
      const decided = (e: Expr): Expr => (e.kind === "select" && isSame(e.condition, condition) ? e[branch] : e);
      const rows = this.rowsStored(rewrite(value, decided, "value"), piece);
      this.known.pop();
      return rows;
    };
    return [
      ...lowered("whenTrue", { index, most: limit - 1 }, { from, to: [...to, step] }),
      ...lowered("whenFalse", { index, least: limit }, { from: [...from, step], to }),
    ];
  }

  /** Sums of neighbouring elements. */
  private rowsOfSums(): Statement[] {
    const sum = access(this.sums.name, [this.row ? axis(this.row.counter) : number(0)]);
    return [
      ...this.overRow([this.cleared(sum)]),
      ...this.overSummed(this.insideAlone(sum)),
      ...this.overRow([this.stored(sum)]),
    ];
  }

  /** One element at a time, from a row of partial sums. */
  private partialSums({ run, counter, block, steps, blocks }: Row): Statement[] {
    const at = (e: Expr): Access => access(this.sums.name, [e]);
    const whole = Math.floor(run.extent / steps);
    const piece = (extent: number): Statement => loop(counter, extent, [this.joined(at(axis(counter)))]);
    const tail = run.extent - whole * steps;
    const all = blocks === 1 ? [piece(steps)] : [loop(block, whole, [piece(steps)])];
    const last = { ...loop(block, blocks, [piece(tail)]), range: { from: [number(whole)], to: [number(blocks)] } };
    return [
      loop(counter, steps, [this.cleared(at(axis(counter)))]),
      ...this.overSummed(tail > 0 ? [...all, last] : all),
      ...halvings(this.computation.equation.op, { sums: this.sums.name, counter, steps }),
      this.stored(at(number(0))),
    ];
  }

  private cleared(sum: Access): Statement {
    return assign(sum, number(this.identity));
  }

  private get identity(): number {
    return identityIn(this.computation);
  }

  /** The value of a point, or the identity where the condition excludes it. */
  private get counted(): Expr {
    const { value, where } = this.computation.equation;
    return selected(where ?? true, value, number(this.identity));
  }

  private joined(sum: Access): Statement {
    const { op } = this.computation.equation;
    return scalar(this.placed(combine(op, sum, this.counted)));
  }

  /**
   * Stores an element, made from its sum or value.
   * @param inside a read that is inside its tensor wherever this statement runs
   */
  private stored(value: Expr, inside?: Access): Statement {
    const stored = storingAt(this.computation, this.computation.equation.target.index, value);
    return scalar(this.placed(stored, inside));
  }

  /**
   * An equation over the loops of the nest. An access that is inside its tensor for all points of the computation is
   * also inside here.
   */
  private placed(equation: Equation, inside?: Access): Equation {
    const placed = substituteAxes(equation, this.places);
    const after = accessesOf(placed);
    for (const [i, read] of accessesOf(equation).entries())
      if (after[i] && read.tensor !== this.sums.name && (read === inside || this.isInside(read)))
        this.inside.add(after[i]);
    return placed;
  }

  private isInside({ tensor, index }: Access): boolean {
    const { dims } = tensorOf(this.computation, tensor);
    const extents = extentsOf(this.computation);
    return index.every((e, d) => {
      let [min, max] = boundsOf(e, extents);
      for (const { index: bounded, least, most } of this.known) {
        const apart = distanceBetween(e, bounded);
        if (apart === undefined) continue;
        if (least !== undefined) min = Math.max(min, least + apart);
        if (most !== undefined) max = Math.min(max, most + apart);
      }
      return min >= 0 && max < (dims[d]?.extent ?? 0);
    });
  }

  /**
   * Excludes points that read outside a tensor, by whole rows or at the ends of a row, where such points contribute the
   * identity.
   */
  private insideAlone(sum: Access): readonly Statement[] {
    const chosen = this.chosenRows(sum);
    if (chosen) return chosen;
    const added = this.joined(sum);
    const { equation } = this.computation;
    const placed = added.kind === "scalar" ? accessesIn(added.equation.value) : [];
    const cuts = this.isIdleOutside() ? accessesIn(equation.value).map((read) => this.cutAt(read)) : [];
    const cut: Cut = {
      from: cuts.flatMap((c) => c?.from ?? []),
      to: cuts.flatMap((c) => c?.to ?? []),
      conditions: cuts.flatMap((c) => c?.conditions ?? []),
    };
    // The first access of the joined statement is the sum itself.
    for (const [i, own] of cuts.entries()) {
      const read = placed[i + 1];
      if (own && read) this.inside.add(read);
    }
    return when(allOf(cut.conditions), this.overRow([added], cut));
  }

  /**
   * Skips rows that a comparison with an element excludes, as in a table lookup: `y[i,h] += select(ids[i] == v,
   * table[v,h], 0)`.
   */
  private chosenRows(sum: Access): readonly Statement[] | undefined {
    const { op, value, where } = this.computation.equation;
    if (op !== "+=" || where !== undefined || value.kind !== "select" || !testsElements(value.condition))
      return undefined;
    const isZero = value.whenFalse.kind === "number" && value.whenFalse.value === 0;
    if (!isZero || this.growsAlongRow(value.condition)) return undefined;
    const tested = this.placed(assignment(sum, { ...value, whenTrue: sum, whenFalse: sum })).value;
    const added = this.placed(combine(op, sum, value.whenTrue));
    if (tested.kind !== "select") return undefined;
    return when(tested.condition, this.overRow([scalar(added)]));
  }

  /** Whether a point leaves its sum unchanged if one of its reads is outside. */
  private isIdleOutside(): boolean {
    const { op, value, where } = this.computation.equation;
    const { dtype } = targetOf(this.computation);
    if (where !== undefined) return false;
    if (op === "+=") return isIdle(value, isInteger(dtype));
    // The identity of a narrower type differs from that of the sum.
    return value.kind === "access" && tensorOf(this.computation, value.tensor).dtype === dtype;
  }
}

/** The steps of a row between the largest of the first and the least of the last. */
type Piece = Pick<Cut, "from" | "to">;

/** Bounds of an index. */
interface Known {
  readonly index: Expr;
  readonly least?: number;
  readonly most?: number;
}

/** `index < limit` */
interface Limit {
  readonly index: Expr;
  readonly limit: number;
}

function limitOf(condition: Expr): Limit | undefined {
  if (condition.kind !== "compare" || condition.op !== "<" || condition.right.kind !== "number") return undefined;
  return { index: condition.left, limit: condition.right.value };
}

/** What must be added to the second of two indices to give the first; undefined unless that is one number. */
function distanceBetween(a: Expr, b: Expr): number | undefined {
  const form = affineForm(minus(a, b));
  return form && [...form.terms.values()].every((c) => c === 0) ? form.constant : undefined;
}

/** Whether a value is zero if one of its reads is zero. */
function isIdle(value: Expr, integers: boolean): boolean {
  switch (value.kind) {
    case "access":
      return true;
    case "cast":
    case "negate":
      return isIdle(value.value, integers);
    case "call":
      return value.fn === "square" && value.args.every((x) => isIdle(x, integers));
    // In floats, zero times infinity is not zero.
    case "binary":
      return value.op === "*" && integers && isIdle(value.left, integers) && isIdle(value.right, integers);
    default:
      return false;
  }
}

// ---- a result that refers to itself ----------------------------------------------------------------------------------------------

/** The nest of a result that refers to itself. It may hold no epilogue. */
function lowerInOrder(computation: Computation): LoopNest {
  const { equation, axes } = computation;
  const names = new FreshNames(computation);
  const { dtype } = targetOf(computation);
  const identity = number(identityIn(computation));
  const value = selected(equation.where ?? true, equation.value, identity);
  const summed = summedIn(axes);
  const sums: Scratch = { name: names.fresh("sums"), dtype, elements: 1, scope: "local" };
  const isSum = summed.length > 0 || equation.op !== "=";
  const sum = access(sums.name, [number(0)]);

  // 1. The loops that no dependence crosses are digits of one counter.
  const kept = equation.target.index.flatMap((index) => axes.filter((a) => axesIn(index).includes(a.name)));
  const dependences = dependencesOf(equation).map((d) => d.distance);
  // An index of the target is one axis and a constant, so its dimensions are those of dependences.
  const isFree = (d: number): boolean => dependences.every((distance) => distance[d] === 0);
  const free = kept.filter((_, d) => isFree(d));
  const inOrder = kept.filter((_, d) => !isFree(d));
  const rest = names.fresh("rest");
  const places = new Map(splitRowMajor(axis(rest), free).map(([a, digit]) => [a.name, digit]));

  // 2. One element.
  const placed = (one: Equation): Statement => scalar(substituteAxes(one, places));
  const stored = placed(assignment(equation.target, isSum ? sum : value));
  const element: readonly Statement[] = isSum
    ? [placed(assignment(sum, identity)), ...loops(summed, [placed(combine(equation.op, sum, value))]), stored]
    : [stored];
  const all = loop(rest, volumeOf(free), loops(inOrder, element), "parallel");
  return {
    scratch: isSum ? [sums] : [],
    registers: [],
    prepare: [],
    body: [...storedBefore(computation, names), all],
  };
}
