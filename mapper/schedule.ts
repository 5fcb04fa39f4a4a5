/**
 * @file Lowers a mapping under a schedule: operands placed, a register block around the instruction, loops in the order asked for.
 *
 *     for parallel p in 0..56                       order n p q k, then r s c
 *       for q_outer in 0..4                         block q 12, k 2: 24 accumulators
 *         clear c{0..23}
 *         for r, s, c_outer                         each step: 2 loads of w, 12 of in, 24 issues
 *           b{0..1} <- w_tiled[...]
 *           for unrolled q_block in 0..12
 *             a{0} <- in_padded[...]
 *             c{...} <- avx512.vpdpbusd(a{0}, b{...})
 *         out[...] <- c{...}
 *
 * What does not divide is peeled: a loop of whole blocks, then one smaller block; nothing is tested inside. Padding lies in the
 * copies of operands, written once, so the inner loops know nothing of it.
 */

import type { Placement, Schedule } from "../abstraction/candidate.ts";
import { type Computation, inputsOf, type Tensor, targetOf, tensorOf } from "../abstraction/computation.ts";
import { identityOf } from "../abstraction/equation.ts";
import {
  access,
  and,
  axesIn,
  axis,
  binary,
  compare,
  type Expr,
  number,
  printExpr,
  substitute,
} from "../abstraction/expression.ts";
import { type Operand, operandOf, tileElements, tileOffset, tileRowElements } from "../abstraction/intrinsic.ts";
import {
  type LoopNest,
  loop,
  loops,
  type RegisterFile,
  type Scratch,
  type Statement,
} from "../abstraction/loop-nest.ts";
import type { Mapping } from "../abstraction/mapping.ts";
import { digitsOf, dimensionsOf, type LoopDimension } from "./dimensions.ts";
import { FreshNames } from "./names.ts";
import { defineProblem, type Problem } from "./problem.ts";
import { type PaddedCopy, type Reach, reachExpr, reachInPlace, reachPadded } from "./reach.ts";
import { calculatedWide, storeElements } from "./store.ts";
import { conditionCarriers } from "./validate.ts";

/** Registers an instruction set has of each file; none is known for the others. Source: Intel SDM vol. 1, sections 14 and 18. */
const REGISTERS: Readonly<Record<string, number>> = { zmm: 32, ymm: 16, tile: 8, v: 32 };

/** The placements open to each input of a mapping, and why the others are closed. */
export interface PlacementChoice {
  readonly operand: string;
  readonly open: readonly Placement[];
  readonly closed: Readonly<Partial<Record<Placement, string>>>;
  /** In a padded copy the last step reads elements that are not its own. */
  readonly runsPast: boolean;
}

const knownPlacements = new WeakMap<Mapping, readonly PlacementChoice[]>();

/** Which placements each input operand may have; worked out once a mapping. */
export function placementsOf(mapping: Mapping): readonly PlacementChoice[] {
  const known = knownPlacements.get(mapping) ?? findPlacements(mapping);
  knownPlacements.set(mapping, known);
  return known;
}

function findPlacements(mapping: Mapping): PlacementChoice[] {
  const { computation, intrinsic, binding } = mapping;
  const dimensions = dimensionsOf(mapping);
  const problem = defineProblem(computation, intrinsic, binding);
  const carriers = carriersOf(problem);
  const zeroPads =
    problem.padding?.kind === "number" &&
    problem.padding.value === 0 &&
    identityOf(computation.equation.op, targetOf(computation).dtype) === 0;
  return inputOperands(mapping).map((operand): PlacementChoice => {
    const bound = binding[operand.name];
    const condition = carriers.some((c) => c.operand === operand.name);
    if (bound?.kind !== "access" || condition) {
      const because = condition ? "it carries the condition" : "it is computed while it is packed";
      return {
        operand: operand.name,
        open: ["tiled"],
        closed: { "in-place": because, padded: because },
        runsPast: false,
      };
    }
    const closed: Partial<Record<Placement, string>> = {};
    const inPlace = reachInPlace(computation, intrinsic, operand, bound, dimensions);
    if (typeof inPlace === "string") closed["in-place"] = inPlace;
    const padded = reachPadded(computation, intrinsic, operand, bound, dimensions);
    if (typeof padded === "string") closed.padded = padded;
    else if (!zeroPads) closed.padded = "what lies outside a tensor is no zero here";
    const all: readonly Placement[] = ["in-place", "padded", "tiled"];
    const runsPast = typeof padded !== "string" && padded.runsPast;
    return { operand: operand.name, open: all.filter((p) => closed[p] === undefined), closed, runsPast };
  });
}

/** Why a schedule cannot be lowered; undefined when it can. */
export function scheduleProblem(mapping: Mapping, schedule: Schedule): string | undefined {
  const dimensions = dimensionsOf(mapping);
  const names = dimensions.map((d) => d.name);
  const missing = names.filter((n) => schedule.order.filter((o) => o === n).length !== 1);
  if (missing.length > 0 || schedule.order.length !== names.length)
    return `order must name each of ${names.join(", ")} once`;
  const kinds = schedule.order.map((n) => dimensions.find((d) => d.name === n)?.kind);
  if (kinds.lastIndexOf("spatial") > kinds.indexOf("reduce") && kinds.includes("reduce"))
    return "kept dimensions must stand before summed ones";
  const { where } = mapping.computation.equation;
  if (where !== undefined) {
    const lost = carriersOf(defineProblem(mapping.computation, mapping.intrinsic, mapping.binding)).find(
      (c) => c.operand === undefined,
    );
    if (lost) return `no operand is indexed by all of ${axesIn(lost.part).join(", ")}, which a condition ties together`;
  }
  for (const choice of placementsOf(mapping)) {
    const placement = schedule.placement[choice.operand];
    if (placement === undefined) return `operand ${choice.operand} has no placement`;
    if (!choice.open.includes(placement)) return `${choice.operand} ${placement}: ${choice.closed[placement]}`;
  }
  const past = placementsOf(mapping).filter((c) => c.runsPast && schedule.placement[c.operand] === "padded");
  if (past.length > 1)
    return `${past.map((c) => c.operand).join(" and ")} would both read past their end; one must be tiled`;
  for (const [name, block] of Object.entries(schedule.block)) {
    const dimension = dimensions.find((d) => d.name === name);
    if (!dimension) return `block of ${name}: there is no such dimension`;
    if (!Number.isSafeInteger(block) || block < 1 || block > dimension.steps)
      return `block of ${name} must be 1 to ${dimension.steps}, got ${block}`;
  }
  const { accumulators, held } = registersOf(mapping, schedule);
  const target = targetOperand(mapping);
  const available = REGISTERS[target.file];
  const needed = accumulators + held + 1;
  if (available !== undefined && needed > available)
    return `${needed} registers of ${available}: ${accumulators} accumulators, ${held} held, 1 streaming`;
  return undefined;
}

/** Registers the block takes: accumulators, and tiles of the input that is held while the other streams by. */
export function registersOf(mapping: Mapping, schedule: Schedule): { accumulators: number; held: number } {
  const blocked = blockedDimensions(mapping, schedule);
  const counts = inputOperands(mapping).map((o) =>
    product(blocked.filter((d) => dependsOn(mapping, o.name, d)).map((d) => blockOf(schedule, d))),
  );
  return { accumulators: product(blocked.map((d) => blockOf(schedule, d))), held: Math.min(...counts) };
}

/** The loop nest of a mapping under a schedule. @throws Error when {@link scheduleProblem} has something to say */
export function lowerSchedule(mapping: Mapping, schedule: Schedule): LoopNest {
  const problem = scheduleProblem(mapping, schedule);
  if (problem !== undefined) throw new Error(`internal: the schedule cannot be lowered: ${problem}`);
  return new Lowering(mapping, schedule).lower();
}

/** Where an operand's tiles are loaded from. */
interface Placed {
  readonly operand: Operand;
  readonly buffer: string;
  readonly stride: number;
  /** First element of the tile at the given steps. */
  readonly base: (at: Position) => Expr;
}

/** Where the loops stand: for each dimension the number of its block and the step within the block. */
type Position = (dimension: LoopDimension) => { readonly outer: Expr; readonly inner: Expr };

/** The part of a dimension the code being written covers: blocks numbered by a loop, or the last smaller one. */
interface Part {
  readonly outer: Expr;
  readonly count: number;
  /** The last step is not whole. */
  readonly partial: boolean;
}

class Lowering {
  private readonly mapping: Mapping;
  private readonly schedule: Schedule;
  private readonly computation: Computation;
  private readonly problem: Problem;
  private readonly names: FreshNames;
  private readonly dimensions: readonly LoopDimension[];
  private readonly target: Operand;
  private readonly inputs: readonly Operand[];
  private readonly scratch: Scratch[] = [];
  private readonly prepare: Statement[] = [];
  private readonly pack: Statement[] = [];

  constructor(mapping: Mapping, schedule: Schedule) {
    this.mapping = mapping;
    this.schedule = schedule;
    this.computation = mapping.computation;
    this.problem = defineProblem(mapping.computation, mapping.intrinsic, mapping.binding);
    this.names = new FreshNames(mapping.computation);
    const all = dimensionsOf(mapping);
    this.dimensions = schedule.order.flatMap((name) => all.filter((d) => d.name === name));
    this.target = targetOperand(mapping);
    this.inputs = inputOperands(mapping);
  }

  lower(): LoopNest {
    const placed = this.inputs.map((operand) => this.place(operand));
    const { accumulators, held } = registersOf(this.mapping, this.schedule);
    // The input with fewer tiles in the block is held in registers, the other streams by.
    const [first, second] = [...placed].sort((a, b) => this.blockTiles(a.operand) - this.blockTiles(b.operand));
    if (!first) throw new Error("internal: an instruction without inputs");
    const streaming = second ?? first;
    const registers: RegisterFile[] = [
      this.registerFile(this.target, accumulators),
      ...(second ? [this.registerFile(first.operand, held)] : []),
      this.registerFile(streaming.operand, 1),
    ];
    const spatial = this.dimensions.filter((d) => d.kind === "spatial");
    const compute = this.nest(spatial, new Map(), true, (parts) =>
      this.block(parts, second ? first : undefined, streaming),
    );
    const body = this.pack.length > 0 ? [...this.pack, { kind: "barrier" as const }, ...compute] : compute;
    return { scratch: this.scratch, registers, prepare: this.prepare, body };
  }

  // ---- operands -------------------------------------------------------------------------------------------------------------

  private place(operand: Operand): Placed {
    const { computation, mapping } = this;
    const bound = mapping.binding[operand.name];
    const placement = this.schedule.placement[operand.name];
    if (bound === undefined || placement === undefined) throw new Error(`internal: ${operand.name} is not placed`);
    if (placement === "tiled" || bound.kind !== "access") return this.placeTiled(operand, bound);
    if (placement === "in-place") {
      const reach = reachInPlace(computation, mapping.intrinsic, operand, bound, this.dimensions);
      if (typeof reach === "string") throw new Error(`internal: ${reach}`);
      return this.reached(operand, bound.tensor, reach);
    }
    const padded = reachPadded(computation, mapping.intrinsic, operand, bound, this.dimensions);
    if (typeof padded === "string") throw new Error(`internal: ${padded}`);
    const tensor = tensorOf(computation, bound.tensor);
    const buffer = this.allocate(`${tensor.name}_padded`, operand, padded.copy.elements);
    this.packing(tensor.constant).push(...this.copyPadded(tensor, padded.copy, buffer));
    return this.reached(operand, buffer, padded.reach);
  }

  private reached(operand: Operand, buffer: string, reach: Reach): Placed {
    const base = (at: Position): Expr =>
      reachExpr(reach, (name) => {
        const d = this.dimension(name);
        const { outer, inner } = at(d);
        return binary("+", binary("*", outer, number(blockOf(this.schedule, d))), inner);
      });
    return { operand, buffer, stride: reach.stride, base };
  }

  /** Only what lies inside the tensor is copied; the border was zeroed once and stays. */
  private copyPadded(tensor: Tensor, copy: PaddedCopy, buffer: string): readonly Statement[] {
    const counter = (name: string): string => this.names.fresh(`${name}_copy`);
    let place: Expr = number(0);
    const held = copy.dims.map((c) => {
      const extent = tensor.dims.find((d) => d.name === c.name)?.extent ?? 0;
      const from = Math.max(0, c.low);
      const to = Math.min(extent, c.low + c.extent);
      const at = binary("+", axis(counter(c.name)), number(from - c.low));
      place = binary("+", place, binary("*", at, number(c.stride)));
      return { name: c.name, from, extent: Math.max(0, to - from) };
    });
    const index = tensor.dims.map((d) => {
      const h = held.find((x) => x.name === d.name);
      return binary("+", axis(counter(d.name)), number(h?.from ?? 0));
    });
    const move: Statement = {
      kind: "scalar",
      equation: { target: access(buffer, [place]), op: "=", value: access(tensor.name, index) },
    };
    return this.dealt(
      held.map((h) => ({ name: counter(h.name), extent: h.extent })),
      [move],
    );
  }

  /** Every tile an operand has, in the order the loops ask for them: outer blocks, then the steps of a block, then the tile. */
  private placeTiled(operand: Operand, bound: Expr): Placed {
    const own = this.dimensions.filter((d) => dependsOn(this.mapping, operand.name, d));
    const size = tileElements(operand);
    const strides = new Map<string, { outer: number; inner: number }>();
    let elements = size;
    for (const d of [...own].reverse()) {
      strides.set(d.name, { outer: 0, inner: elements });
      elements *= blockOf(this.schedule, d);
    }
    for (const d of [...own].reverse()) {
      const inner = strides.get(d.name)?.inner ?? 0;
      strides.set(d.name, { outer: elements, inner });
      elements *= Math.ceil(d.steps / blockOf(this.schedule, d));
    }
    const buffer = this.allocate(`${operand.name}_tiles`, operand, elements);
    const base = (at: Position): Expr =>
      own.reduce<Expr>((sum, d) => {
        const { outer, inner } = at(d);
        const s = strides.get(d.name) ?? { outer: 0, inner: 0 };
        return binary("+", binary("+", sum, binary("*", outer, number(s.outer))), binary("*", inner, number(s.inner)));
      }, number(0));

    // Packing: for every step of every dimension and every element of the tile, the element or what changes nothing.
    const stepName = (d: LoopDimension): string => this.names.fresh(`${d.name}_step`);
    const innerName = (name: string): string => this.names.fresh(`${name}_inner`);
    const counters = new Map<string, Expr>();
    const guards: Expr[] = [];
    for (const d of own) {
      const element = binary(
        "+",
        binary("*", axis(stepName(d)), number(d.step)),
        d.axis === undefined ? number(0) : axis(innerName(d.axis)),
      );
      if (d.steps !== d.wholeSteps) guards.push(compare("<", element, number(d.extent)));
      for (const [name, digit] of digitsOf(d, element)) counters.set(name, digit);
    }
    for (const o of operand.dims)
      if (!own.some((d) => d.axis === o.name) && o.extent > 1)
        guards.push(compare("<", axis(innerName(o.name)), number(1)));
    for (const c of carriersOf(this.problem))
      if (c.operand === operand.name) guards.push(substitute(c.part, counters, "index"));
    const value = substitute(bound, counters);
    const guarded: Expr =
      guards.length === 0
        ? value
        : {
            kind: "select",
            condition: guards.reduce(and),
            whenTrue: value,
            whenFalse: this.problem.padding ?? number(0),
          };
    const at: Position = (d) => {
      const block = number(blockOf(this.schedule, d));
      return { outer: binary("/", axis(stepName(d)), block), inner: binary("%", axis(stepName(d)), block) };
    };
    const offset = substitute(
      tileOffset(operand),
      new Map(operand.dims.map((o) => [o.name, axis(innerName(o.name))])),
      "index",
    );
    const place = binary("+", base(at), offset);
    const constant = inputsOf(this.computation).every((t) => t.constant || !printExpr(bound).includes(`${t.name}[`));
    const walk = [
      ...own.map((d) => ({ name: stepName(d), extent: d.steps })),
      ...operand.dims.map((o) => ({ name: innerName(o.name), extent: o.extent })),
    ];
    this.packing(constant).push(
      ...this.dealt(walk, [{ kind: "scalar", equation: { target: access(buffer, [place]), op: "=", value: guarded } }]),
    );
    return { operand, buffer, stride: tileRowElements(operand), base };
  }

  private packing(constant: boolean): Statement[] {
    return constant ? this.prepare : this.pack;
  }

  private allocate(wish: string, operand: Operand, elements: number): string {
    const name = this.names.fresh(wish);
    this.scratch.push({ name, dtype: operand.dtype, elements, scope: "workspace" });
    return name;
  }

  /** Loops around a body, the first that has enough steps dealt to the threads. */
  private dealt(
    walk: readonly { readonly name: string; readonly extent: number }[],
    body: readonly Statement[],
  ): readonly Statement[] {
    const moving = walk.filter((w) => w.extent > 1);
    const still = new Map(walk.filter((w) => w.extent === 1).map((w) => [w.name, number(0)]));
    const fixed = body.map(
      (s): Statement => (s.kind === "scalar" ? { kind: "scalar", equation: substituteScalar(s.equation, still) } : s),
    );
    const [first, ...rest] = moving;
    if (walk.some((w) => w.extent === 0)) return [];
    if (!first) return [loop(this.names.fresh("once"), 1, fixed, "parallel")];
    return [loop(first.name, first.extent, loops(rest, fixed), "parallel")];
  }

  // ---- loops ----------------------------------------------------------------------------------------------------------------

  /** Loops over whole blocks of each dimension, then the smaller block that is left; the outermost loop is dealt to the threads. */
  private nest(
    dimensions: readonly LoopDimension[],
    parts: ReadonlyMap<string, Part>,
    parallel: boolean,
    inside: (parts: ReadonlyMap<string, Part>) => readonly Statement[],
  ): readonly Statement[] {
    const [d, ...rest] = dimensions;
    if (!d) return parallel ? [loop(this.names.fresh("once"), 1, inside(parts), "parallel")] : inside(parts);
    const block = blockOf(this.schedule, d);
    const usable = d.kind === "spatial" ? d.wholeSteps : d.steps;
    const whole = Math.floor(usable / block);
    const left = d.steps - whole * block;
    const name = this.names.fresh(`${d.name}_outer`);
    const statements: Statement[] = [];
    if (whole === 1 && left === 0)
      return this.nest(
        rest,
        new Map(parts).set(d.name, { outer: number(0), count: block, partial: false }),
        parallel,
        inside,
      );
    if (whole > 0) {
      const outer = whole === 1 ? number(0) : axis(name);
      const body = this.nest(rest, new Map(parts).set(d.name, { outer, count: block, partial: false }), false, inside);
      if (whole > 1 || parallel) statements.push(loop(name, whole, body, parallel ? "parallel" : "serial"));
      else statements.push(...body);
    }
    if (left > 0) {
      const body = this.nest(
        rest,
        new Map(parts).set(d.name, { outer: number(whole), count: left, partial: d.steps !== d.wholeSteps }),
        false,
        inside,
      );
      if (parallel) statements.push(loop(this.names.fresh(`${d.name}_rest`), 1, body, "parallel"));
      else statements.push(...body);
    }
    return statements;
  }

  /** One register block: accumulators cleared, the summed loops, results stored. */
  private block(parts: ReadonlyMap<string, Part>, held: Placed | undefined, streaming: Placed): readonly Statement[] {
    const blocked = this.blocked(parts);
    const counter = this.accumulatorIndex(blocked);
    const unrolled = (dimensions: readonly LoopDimension[], body: readonly Statement[]): readonly Statement[] =>
      dimensions.reduceRight<readonly Statement[]>(
        (inner, d) => [loop(this.blockName(d), countOf(parts, d), inner, "unrolled")],
        body,
      );
    const accumulator = { file: this.fileName(this.target), index: counter };
    const clear = unrolled(blocked, [{ kind: "clear", register: accumulator }]);
    const summed = this.dimensions.filter((d) => d.kind === "reduce");
    const work = this.nest(summed, parts, false, (all) => this.core(all, blocked, held, streaming, accumulator));
    return [...clear, ...work, ...this.storeBlock(parts, blocked, counter)];
  }

  /** One step of the summed loops, unrolled: held tiles loaded, then each streaming tile and the issues it takes part in. */
  private core(
    parts: ReadonlyMap<string, Part>,
    blocked: readonly LoopDimension[],
    held: Placed | undefined,
    streaming: Placed,
    accumulator: { file: string; index: Expr },
  ): readonly Statement[] {
    const at = this.positionIn(parts);
    const unroll = (dimensions: readonly LoopDimension[], body: readonly Statement[]): readonly Statement[] =>
      dimensions.reduceRight<readonly Statement[]>(
        (inner, d) => [loop(this.blockName(d), countOf(parts, d), inner, "unrolled")],
        body,
      );
    const heldDimensions = held ? blocked.filter((d) => dependsOn(this.mapping, held.operand.name, d)) : [];
    const streamed = blocked.filter((d) => dependsOn(this.mapping, streaming.operand.name, d));
    const others = blocked.filter((d) => !streamed.includes(d));
    const heldIndex = this.accumulatorIndex(heldDimensions);
    const issue: Statement = {
      kind: "register-issue",
      intrinsic: this.mapping.intrinsic,
      registers: {
        [this.target.name]: accumulator,
        ...(held ? { [held.operand.name]: { file: this.fileName(held.operand), index: heldIndex } } : {}),
        [streaming.operand.name]: { file: this.fileName(streaming.operand), index: number(0) },
      },
    };
    const load = (p: Placed, index: Expr): Statement => ({
      kind: "load",
      register: { file: this.fileName(p.operand), index },
      memory: { buffer: p.buffer, base: p.base(at), stride: p.stride },
    });
    const step = [
      ...(held ? unroll(heldDimensions, [load(held, heldIndex)]) : []),
      ...unroll(streamed, [load(streaming, number(0)), ...unroll(others, [issue])]),
    ];
    const unrolledSummed = this.dimensions.filter((d) => d.kind === "reduce" && countOf(parts, d) > 1);
    return unroll(unrolledSummed, step);
  }

  /** Straight into the output where its tiles lie as the instruction stores them; else by way of a scratch block (store.ts). */
  private storeBlock(
    parts: ReadonlyMap<string, Part>,
    blocked: readonly LoopDimension[],
    counter: Expr,
  ): readonly Statement[] {
    const { computation, mapping } = this;
    const bound = access(computation.equation.target.tensor, computation.equation.target.index);
    const spatial = this.dimensions.filter((d) => d.kind === "spatial");
    const partial = spatial.some((d) => parts.get(d.name)?.partial);
    const unrolled = (body: readonly Statement[]): readonly Statement[] =>
      blocked.reduceRight<readonly Statement[]>(
        (inner, d) => [loop(this.blockName(d), countOf(parts, d), inner, "unrolled")],
        body,
      );
    const register = { file: this.fileName(this.target), index: counter };
    const whole = this.dimensions.map((d) =>
      d.kind === "spatial" ? { ...d, steps: d.wholeSteps, extent: d.wholeSteps * d.step } : d,
    );
    const closed = computation.epilogue
      ? "an epilogue comes first"
      : partial
        ? "the last tile is not whole"
        : undefined;
    const reach = closed ?? reachInPlace(computation, mapping.intrinsic, this.target, bound, whole);
    if (typeof reach !== "string") {
      const { base } = this.reached(this.target, bound.tensor, reach);
      return unrolled([
        {
          kind: "store",
          register,
          memory: { buffer: bound.tensor, base: base(this.positionIn(parts)), stride: reach.stride },
        },
      ]);
    }
    // Tiles side by side in a scratch block, then scalar loops over it.
    const size = tileElements(this.target);
    const buffer = this.names.fresh(`${this.target.name}_results`);
    const { accumulators } = registersOf(this.mapping, this.schedule);
    if (!this.scratch.some((s) => s.name === buffer)) {
      this.scratch.push({ name: buffer, dtype: this.target.dtype, elements: accumulators * size, scope: "local" });
    }
    const wide = calculatedWide(computation) ? this.names.fresh(`${this.target.name}_wide`) : undefined;
    if (wide !== undefined && !this.scratch.some((s) => s.name === wide)) {
      this.scratch.push({ name: wide, dtype: "s32", elements: accumulators * size, scope: "local" });
    }
    const spill = unrolled([
      {
        kind: "store",
        register,
        memory: { buffer, base: binary("*", counter, number(size)), stride: tileRowElements(this.target) },
      },
    ]);
    const stored = storeElements({
      computation,
      target: this.target,
      buffer,
      wide,
      tile: counter,
      dimensions: spatial.map((d) => ({
        dimension: d,
        first: binary("*", parts.get(d.name)?.outer ?? number(0), number(blockOf(this.schedule, d))),
        count: countOf(parts, d),
        step: this.blockName(d),
        partial: parts.get(d.name)?.partial ?? false,
      })),
      innerName: (name) => this.names.fresh(`${name}_inner`),
    });
    return [...spill, ...stored];
  }

  // ---- names and numbers ----------------------------------------------------------------------------------------------------

  /** Kept dimensions with more than one step in the block. */
  private blocked(parts: ReadonlyMap<string, Part>): LoopDimension[] {
    return this.dimensions.filter((d) => d.kind === "spatial" && countOf(parts, d) > 1);
  }

  /** Number of a tile within the block, row-major over full blocks so that smaller blocks use the same registers. */
  private accumulatorIndex(dimensions: readonly LoopDimension[]): Expr {
    return dimensions.reduce<Expr>(
      (sum, d) => binary("+", binary("*", sum, number(blockOf(this.schedule, d))), axis(this.blockName(d))),
      number(0),
    );
  }

  private positionIn(parts: ReadonlyMap<string, Part>): Position {
    return (d) => ({
      outer: parts.get(d.name)?.outer ?? number(0),
      inner: countOf(parts, d) > 1 ? axis(this.blockName(d)) : number(0),
    });
  }

  private blockTiles(operand: Operand): number {
    return product(
      blockedDimensions(this.mapping, this.schedule)
        .filter((d) => dependsOn(this.mapping, operand.name, d))
        .map((d) => blockOf(this.schedule, d)),
    );
  }

  private registerFile(operand: Operand, count: number): RegisterFile {
    return { name: this.fileName(operand), intrinsic: this.mapping.intrinsic, operand: operand.name, count };
  }

  private fileName(operand: Operand): string {
    return this.names.fresh(`${operand.name}_register`);
  }

  private blockName(d: LoopDimension): string {
    return this.names.fresh(`${d.name}_block`);
  }

  private dimension(name: string): LoopDimension {
    const found = this.dimensions.find((d) => d.name === name);
    if (!found) throw new Error(`internal: no dimension ${name}`);
    return found;
  }
}

/** Operands are packed outside every loop, so a condition lies with an operand that has all the loops it mentions. */
function carriersOf(problem: Problem): ReturnType<typeof conditionCarriers> {
  return conditionCarriers(
    problem,
    problem.loops.map((l) => l.name),
  );
}

function targetOperand({ intrinsic }: Mapping): Operand {
  return operandOf(intrinsic, intrinsic.computation.equation.target.tensor);
}

function inputOperands(mapping: Mapping): Operand[] {
  const target = targetOperand(mapping);
  return mapping.intrinsic.operands.filter((o) => o !== target);
}

function blockOf(schedule: Schedule, d: LoopDimension): number {
  return schedule.block[d.name] ?? 1;
}

function countOf(parts: ReadonlyMap<string, Part>, d: LoopDimension): number {
  return parts.get(d.name)?.count ?? 1;
}

function blockedDimensions(mapping: Mapping, schedule: Schedule): LoopDimension[] {
  return dimensionsOf(mapping).filter((d) => d.kind === "spatial" && blockOf(schedule, d) > 1);
}

/** Whether an operand's element changes with a dimension. */
export function dependsOn({ binding }: Mapping, operand: string, d: LoopDimension): boolean {
  const bound = binding[operand];
  if (bound === undefined) return false;
  const used = axesIn(bound);
  return d.loops.some((l) => used.includes(l.name));
}

function substituteScalar(
  equation: Extract<Statement, { kind: "scalar" }>["equation"],
  values: ReadonlyMap<string, Expr>,
): Extract<Statement, { kind: "scalar" }>["equation"] {
  const { target, op, value, where } = equation;
  const changed = {
    target: { ...target, index: target.index.map((e) => substitute(e, values, "index")) },
    op,
    value: substitute(value, values),
  };
  return where === undefined ? changed : { ...changed, where: substitute(where, values, "index") };
}

function product(numbers: readonly number[]): number {
  return numbers.reduce((p, n) => p * n, 1);
}
