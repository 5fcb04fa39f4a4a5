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

import { boundsOf } from "../abstraction/affine.ts";
import type { Schedule } from "../abstraction/candidate.ts";
import { type Computation, inputsOf, type Tensor, tensorOf } from "../abstraction/computation.ts";
import {
  type Access,
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
import { type Operand, tileElements, tileOffset, tileRowElements } from "../abstraction/intrinsic.ts";
import {
  type LoopNest,
  loop,
  loops,
  type RegisterAt,
  type RegisterFile,
  type Scratch,
  type Statement,
} from "../abstraction/loop-nest.ts";
import type { Mapping } from "../abstraction/mapping.ts";
import { type Border, borderBlocks, isInside } from "./borders.ts";
import { digitsOf, type LoopDimension } from "./dimensions.ts";
import { FreshNames } from "./names.ts";
import { defineProblem, type Problem } from "./problem.ts";
import { type PaddedCopy, type Reach, reachExpr, reachInPlace, reachPadded, reachWindowed } from "./reach.ts";
import {
  blockedDimensions,
  blockOf,
  carriersOf,
  dependsOn,
  inputOperands,
  placementsOf,
  product,
  registersOf,
  scheduleProblem,
  targetOperand,
} from "./schedule.ts";
import { dimensionsUnder } from "./spread.ts";
import { calculatedWide, storeElements } from "./store.ts";

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

/** The part of a dimension the code being written covers: blocks numbered by a loop, an edge, the last smaller one, or one step. */
interface Part {
  readonly outer: Expr;
  /** Number of the step within the block, where the part is that step alone. */
  readonly inner?: number;
  readonly count: number;
  /** Some of its steps cross a border: `outer` is a number. */
  readonly edge?: boolean;
  /** The last step is not whole. */
  readonly partial: boolean;
}

/** Steps of unrolled loops, by the names of the loops. */
type Known = ReadonlyMap<string, number>;

class Lowering {
  private readonly mapping: Mapping;
  private readonly schedule: Schedule;
  private readonly computation: Computation;
  private readonly problem: Problem;
  private readonly names: FreshNames;
  private readonly dimensions: readonly LoopDimension[];
  private readonly target: Operand;
  private readonly inputs: readonly Operand[];
  private readonly borders: ReadonlyMap<string, readonly Border[]>;
  private readonly scratch: Scratch[] = [];
  private readonly prepare: Statement[] = [];
  private readonly pack: Statement[] = [];

  constructor(mapping: Mapping, schedule: Schedule) {
    this.mapping = mapping;
    this.schedule = schedule;
    this.computation = mapping.computation;
    this.problem = defineProblem(mapping.computation, mapping.intrinsic, mapping.binding);
    this.names = new FreshNames(mapping.computation);
    const all = dimensionsUnder(mapping, schedule);
    this.dimensions = schedule.order.flatMap((name) => all.filter((d) => d.name === name));
    this.target = targetOperand(mapping);
    this.inputs = inputOperands(mapping);
    this.borders = new Map(
      placementsOf(mapping, schedule).map((c) => [
        c.operand,
        schedule.placement[c.operand] === "in-place" ? c.borders : [],
      ]),
    );
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
    const reachCopy = placement === "padded" ? reachPadded : reachWindowed;
    const padded = reachCopy(computation, mapping.intrinsic, operand, bound, this.dimensions);
    if (typeof padded === "string") throw new Error(`internal: ${padded}`);
    const tensor = tensorOf(computation, bound.tensor);
    const buffer = this.allocate(`${tensor.name}_${placement}`, operand, padded.copy.elements);
    this.packing(tensor.constant).push(...this.copyPadded(tensor, bound, padded.copy, buffer));
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
  private copyPadded(tensor: Tensor, bound: Access, copy: PaddedCopy, buffer: string): readonly Statement[] {
    const counter = (name: string): string => this.names.fresh(`${name}_copy`);
    const held = copy.dims.map((c) => {
      const extent = tensor.dims.find((d) => d.name === c.name)?.extent ?? 0;
      const from = Math.max(0, c.low);
      const to = Math.min(extent, c.low + c.extent);
      return { ...c, from, extent: Math.max(0, to - from) };
    });
    return interiors(tensor, bound, copy).flatMap((starts) => {
      const loopAt = (l: { readonly name: string }): Expr =>
        binary("+", axis(counter(l.name)), number(starts.get(l.name)?.from ?? 0));
      const values = new Map(copy.apart.map((l) => [l.name, loopAt(l)]));
      const place = [
        ...held.map((h) => ({ at: binary("+", axis(counter(h.name)), number(h.from - h.low)), stride: h.stride })),
        ...copy.apart.map((l) => ({ at: loopAt(l), stride: l.stride })),
      ].reduce<Expr>((sum, { at, stride }) => binary("+", sum, binary("*", at, number(stride))), number(0));
      const index = tensor.dims.map((d, i) => {
        const h = held.find((x) => x.name === d.name);
        if (h) return binary("+", axis(counter(d.name)), number(h.from));
        return substitute(bound.index[i] ?? number(0), values, "index");
      });
      const walk = [
        ...held.map(({ name, extent, stride }) => ({ name, extent, stride })),
        ...copy.apart.map(({ name, extent, stride }) => ({ name, extent: starts.get(name)?.count ?? extent, stride })),
      ];
      return this.dealt(
        walk.sort((a, b) => b.stride - a.stride).map(({ name, extent }) => ({ name: counter(name), extent })),
        [{ kind: "scalar", equation: { target: access(buffer, [place]), op: "=", value: access(tensor.name, index) } }],
      );
    });
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
    if (!d) {
      const body = inside(parts);
      return parallel ? [loop(this.names.fresh("once"), 1, body, "parallel")] : body;
    }
    const block = blockOf(this.schedule, d);
    const within = (part: Part): readonly Statement[] =>
      this.nest(rest, new Map(parts).set(d.name, part), false, inside);
    if (this.bordersOf(d).some((b) => b.reduce === d.name && parts.get(b.spatial)?.edge))
      return Array.from({ length: d.steps }, (_, step) =>
        within({ outer: number(Math.floor(step / block)), inner: step % block, count: 1, partial: false }),
      ).flat();
    const usable = d.kind === "spatial" ? d.wholeSteps : d.steps;
    const whole = Math.floor(usable / block);
    const left = d.steps - whole * block;
    const [border] = this.bordersOf(d).filter((b) => b.spatial === d.name);
    const { from, to, leftIsEdge } = border ? borderBlocks(border, block) : { from: 0, to: whole, leftIsEdge: false };
    if (whole === 1 && left === 0)
      return this.nest(
        rest,
        new Map(parts).set(d.name, { outer: number(0), count: block, partial: false, edge: from === to }),
        parallel,
        inside,
      );
    const alone = (name: string, body: readonly Statement[]): readonly Statement[] =>
      parallel ? [loop(this.names.fresh(name), 1, body, "parallel")] : body;
    const edge = (number_: number): readonly Statement[] =>
      alone(`${d.name}_edge`, within({ outer: number(number_), count: block, partial: false, edge: true }));
    const statements: Statement[] = [];
    for (let b = 0; b < from; b++) statements.push(...edge(b));
    if (to - from === 1) {
      statements.push(...alone(`${d.name}_outer`, within({ outer: number(from), count: block, partial: false })));
    } else if (to > from) {
      const name = this.names.fresh(`${d.name}_outer`);
      const body = within({ outer: binary("+", axis(name), number(from)), count: block, partial: false });
      if (body.length > 0) statements.push(loop(name, to - from, body, parallel ? "parallel" : "serial"));
    }
    for (let b = to; b < whole; b++) statements.push(...edge(b));
    if (left > 0) {
      const partial = d.steps !== d.wholeSteps;
      statements.push(
        ...alone(`${d.name}_rest`, within({ outer: number(whole), count: left, partial, edge: leftIsEdge })),
      );
    }
    return statements;
  }

  /** Borders at which a dimension takes part, of inputs loaded in place. */
  private bordersOf(d: LoopDimension): readonly Border[] {
    return [...this.borders.values()].flat().filter((b) => b.spatial === d.name || b.reduce === d.name);
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
      memory: { buffer: p.buffer, base: p.base(this.positionIn(parts)), stride: p.stride },
    });
    const unrolledSummed = this.dimensions.filter((d) => d.kind === "reduce" && countOf(parts, d) > 1);
    if (!blocked.some((d) => parts.get(d.name)?.edge) && !this.isOutside(parts)) {
      const step = [
        ...(held ? unroll(heldDimensions, [load(held, heldIndex)]) : []),
        ...unroll(streamed, [load(streaming, number(0)), ...unroll(others, [issue])]),
      ];
      return unroll(unrolledSummed, step);
    }
    // At an edge every step of the block is a part of its own, and what reads outside is left out.
    const steps = (dimensions: readonly LoopDimension[], known: ReadonlyMap<string, number>): Known[] =>
      dimensions.reduce<Known[]>(
        (all, d) =>
          all.flatMap((one) =>
            Array.from({ length: countOf(parts, d) }, (_, i) => new Map(one).set(this.blockName(d), i)),
          ),
        [known],
      );
    const none: Known = new Map();
    const isInside = (known: Known): boolean => !this.isOutside(parts, known);
    const streams = steps(streamed, none).flatMap((known) => {
      const issues = steps(others, known).filter(isInside);
      return issues.length === 0
        ? []
        : [load(streaming, number(0)), ...issues.map((k) => at(issue, k))].map((s) => at(s, known));
    });
    if (streams.length === 0) return [];
    const loaded = held
      ? steps(heldDimensions, none)
          .filter((known) =>
            steps(
              blocked.filter((d) => !heldDimensions.includes(d)),
              known,
            ).some(isInside),
          )
          .map((known) => at(load(held, heldIndex), known))
      : [];
    return unroll(unrolledSummed, [...loaded, ...streams]);
  }

  /** Whether an input loaded in place lies outside its tensor in a part, at the steps of the block given by the names of their loops. */
  private isOutside(parts: ReadonlyMap<string, Part>, known: Known = new Map()): boolean {
    const stepOf = (name: string): number => {
      const d = this.dimension(name);
      const part = parts.get(name);
      const inner = known.get(this.blockName(d)) ?? part?.inner ?? 0;
      return (part?.outer.kind === "number" ? part.outer.value : 0) * blockOf(this.schedule, d) + inner;
    };
    return [...this.borders.values()].some((borders) =>
      borders.some((b) => parts.get(b.spatial)?.edge && !isInside(b, stepOf(b.spatial), stepOf(b.reduce))),
    );
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
    const dtype = calculatedWide(computation);
    const wide = dtype === undefined ? undefined : { buffer: this.names.fresh(`${this.target.name}_wide`), dtype };
    if (wide !== undefined && !this.scratch.some((s) => s.name === wide.buffer)) {
      this.scratch.push({ name: wide.buffer, dtype: wide.dtype, elements: accumulators * size, scope: "local" });
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
      inner: countOf(parts, d) > 1 ? axis(this.blockName(d)) : number(parts.get(d.name)?.inner ?? 0),
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

function countOf(parts: ReadonlyMap<string, Part>, d: LoopDimension): number {
  return parts.get(d.name)?.count ?? 1;
}

/** A part of the values of some loops. */
type Ranges = ReadonlyMap<string, { readonly from: number; readonly count: number }>;

/**
 * Ranges of the loops a copy lays apart, together all of them: of an index that leaves the tensor the first loop is split, so that
 * in one of the ranges nothing is outside and nothing is tested.
 */
function interiors(tensor: Tensor, bound: Access, copy: PaddedCopy): readonly Ranges[] {
  const extents = Object.fromEntries(copy.apart.map((l) => [l.name, l.extent]));
  let all: Ranges[] = [new Map()];
  for (const [i, index] of bound.index.entries()) {
    const loops = axesIn(index);
    const first = copy.apart.find((l) => loops.includes(l.name));
    if (!first) continue;
    const extent = tensor.dims[i]?.extent ?? 0;
    const isInside = (value: number): boolean => {
      const [min, max] = boundsOf(substitute(index, new Map([[first.name, number(value)]]), "index"), extents);
      return min >= 0 && max < extent;
    };
    let from = 0;
    while (from < first.extent && !isInside(from)) from++;
    let to = from;
    while (to < first.extent && isInside(to)) to++;
    const ranges = [
      { from: 0, count: from },
      { from, count: to - from },
      { from: to, count: first.extent - to },
    ].filter((r) => r.count > 0);
    all = all.flatMap((one) => ranges.map((r) => new Map(one).set(first.name, r)));
  }
  return all;
}

/** A load or an issue at known steps of the loops around it. */
function at(s: Statement, known: Known): Statement {
  const values = new Map([...known].map(([name, value]) => [name, number(value)]));
  const change = (e: Expr): Expr => substitute(e, values, "index");
  const register = (r: RegisterAt): RegisterAt => ({ ...r, index: change(r.index) });
  if (s.kind === "load")
    return { ...s, register: register(s.register), memory: { ...s.memory, base: change(s.memory.base) } };
  if (s.kind !== "register-issue") return s;
  return {
    ...s,
    registers: Object.fromEntries(Object.entries(s.registers).map(([o, r]) => [o, register(r)])),
  };
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
