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
 * What does not divide is peeled: a loop of whole blocks, then one smaller block; nothing is tested inside. Tiles (tiles.ts) are loops
 * around these, each over a range of blocks; where tiles of a sum stand outside kept loops, accumulators are loaded and stored. Padding lies in the
 * copies of operands, written once, so the inner loops know nothing of it.
 */

import type { Schedule } from "../abstraction/candidate.ts";
import { type Computation, inputsOf, type Tensor, tensorOf } from "../abstraction/computation.ts";
import {
  type Access,
  access,
  and,
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
import { type Border, type BorderBlocks, borderBlocks, isInside } from "./borders.ts";
import { copyParts } from "./copies.ts";
import { digitsOf, type LoopDimension } from "./dimensions.ts";
import { FreshNames } from "./names.ts";
import { overlapStores } from "./overlap.ts";
import { defineProblem, type Problem } from "./problem.ts";
import { type PaddedCopy, type Reach, reachExpr, reachInPlace, reachPadded, reachWindowed } from "./reach.ts";
import {
  blockedDimensions,
  blockOf,
  carriersOf,
  dependsOn,
  inputOperands,
  partialReach,
  placementsOf,
  product,
  registersOf,
  scheduleProblem,
  targetOperand,
} from "./schedule.ts";
import { dimensionsUnder } from "./spread.ts";
import { storeElements } from "./store.ts";
import { blocksOf, type NestedLoop, nestedLoops, printLoop } from "./tiles.ts";
import { type Around, copyWithin, type Moved, movedBy, STILL } from "./within.ts";

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

/** Where the loops stand: for each dimension the number of its block and the step within the block; the block's tile and place in it. */
type Position = (dimension: LoopDimension) => {
  readonly outer: Expr;
  readonly inner: Expr;
  readonly tile: Expr;
  readonly inTile: Expr;
};

/** The part of a dimension the code being written covers: blocks numbered by a loop, an edge, the last smaller one, or one step. */
interface Part {
  readonly outer: Expr;
  /** The tile it belongs to and its number in there, where the dimension has tiles. */
  readonly tile?: { readonly number: Expr; readonly block: Expr };
  /** Number of the step within the block, where the part is that step alone. */
  readonly inner?: number;
  readonly count: number;
  /** Some of its steps cross a border: `outer` is a number. */
  readonly edge?: boolean;
  /** The last step is not whole. */
  readonly partial: boolean;
}

/** Consecutive blocks of a dimension: those of one tile. */
interface BlockRange {
  readonly tile: Expr;
  readonly first: Expr;
  readonly whole: number;
  /** Steps of the smaller block behind them. */
  readonly left: number;
}

/** What tile loops around the code being written have fixed. */
interface Tiles {
  readonly ranges: ReadonlyMap<string, BlockRange>;
  /** Whether sums begin here, and whether they end here. */
  readonly first: boolean;
  readonly last: boolean;
}

/** Steps of unrolled loops, by the names of the loops. */
type Known = ReadonlyMap<string, number>;

const WHOLE: Tiles = { ranges: new Map(), first: true, last: true };

class Lowering {
  private readonly mapping: Mapping;
  private readonly schedule: Schedule;
  private readonly computation: Computation;
  private readonly problem: Problem;
  private readonly names: FreshNames;
  private readonly dimensions: readonly LoopDimension[];
  private readonly loops: readonly NestedLoop[];
  private readonly target: Operand;
  private readonly inputs: readonly Operand[];
  private readonly borders: ReadonlyMap<string, readonly Border[]>;
  private readonly scratch: Scratch[] = [];
  private readonly prepare: Statement[] = [];
  private readonly pack: Statement[] = [];
  /** Copies made inside a loop, by the loop; and the zeros around what they hold. */
  private readonly within = new Map<
    string,
    ((parts: ReadonlyMap<string, Part>, tiles: Tiles) => readonly Statement[])[]
  >();
  private readonly zeros: Statement[] = [];

  constructor(mapping: Mapping, schedule: Schedule) {
    this.mapping = mapping;
    this.schedule = schedule;
    this.computation = mapping.computation;
    this.problem = defineProblem(mapping.computation, mapping.intrinsic, mapping.binding);
    this.names = new FreshNames(mapping.computation);
    const all = dimensionsUnder(mapping, schedule);
    this.loops = nestedLoops(schedule.order, all);
    this.dimensions = this.loops.flatMap((l) => (l.tile === undefined ? [l.dimension] : []));
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
    const inBlock = this.loops.findLastIndex((l) => l.dimension.kind === "spatial") + 1;
    const partial = this.loops.some((l) => l.pass) ? this.placePartialSums() : undefined;
    const compute = this.nest(this.loops.slice(0, inBlock), new Map(), WHOLE, true, (parts, tiles) =>
      this.block(parts, tiles, this.loops.slice(inBlock), second ? first : undefined, streaming, partial),
    );
    const packed = this.pack.length > 0 ? [...this.pack, { kind: "barrier" as const }] : [];
    const body = [...packed, ...this.zeros, ...this.overlapped(compute)];
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
    if (this.schedule.within?.[operand.name] !== undefined) return this.placeWithin(operand, bound);
    const reachCopy = placement === "padded" ? reachPadded : reachWindowed;
    const padded = reachCopy(computation, mapping.intrinsic, operand, bound, this.dimensions);
    if (typeof padded === "string") throw new Error(`internal: ${padded}`);
    const tensor = tensorOf(computation, bound.tensor);
    const buffer = this.allocate(`${tensor.name}_${placement}`, operand, padded.copy.elements);
    const walks = this.copyPadded(tensor, bound, padded.copy, buffer);
    this.packing(tensor.constant).push(...walks.flatMap(({ walk, body }) => this.dealt(walk, body)));
    return this.reached(operand, buffer, padded.reach);
  }

  /** A copy made anew inside a loop: of what the loops around it have moved to, borders included, which are not the same each time. */
  private placeWithin(operand: Operand, bound: Access): Placed {
    const found = copyWithin(this.mapping, this.schedule, operand.name, this.dimensions);
    if (typeof found === "string") throw new Error(`internal: ${found}`);
    const { copy, reach, around } = found;
    const tensor = tensorOf(this.computation, bound.tensor);
    const buffer = this.names.fresh(`${tensor.name}_${this.schedule.placement[operand.name]}`);
    this.scratch.push({ name: buffer, dtype: operand.dtype, elements: copy.elements, scope: "local" });
    const every = this.names.fresh(`${buffer}_zero`);
    const zero: Statement = {
      kind: "scalar",
      equation: { target: access(buffer, [axis(every)]), op: "=", value: number(0) },
    };
    this.zeros.push(loop(every, copy.elements, [zero]));
    const name = this.schedule.within?.[operand.name] ?? "";
    const make = (parts: ReadonlyMap<string, Part>, tiles: Tiles): readonly Statement[] => {
      const first = ({ dimension: d, of }: Around): Expr => {
        const block = of === "block" ? parts.get(d.name)?.outer : tiles.ranges.get(d.name)?.first;
        return binary("*", block ?? number(0), number(blockOf(this.schedule, d)));
      };
      return this.copyPadded(tensor, bound, copy, buffer, movedBy(around, first)).flatMap(({ walk, body }) => {
        const { moving, fixed } = movingLoops(walk, body);
        return walk.some((w) => w.extent === 0) ? [] : loops(moving, fixed);
      });
    };
    this.within.set(name, [...(this.within.get(name) ?? []), make]);
    return this.reached(operand, buffer, reach, around);
  }

  /** @param around what has been moved to already */
  private reached(operand: Operand, buffer: string, reach: Reach, around: readonly Around[] = []): Placed {
    const base = (at: Position): Expr =>
      reachExpr(reach, (name) => {
        const d = this.dimension(name);
        const { outer, inner, inTile } = at(d);
        const of = around.find((a) => a.dimension === d)?.of;
        if (of === "block") return inner;
        return binary("+", binary("*", of === "tile" ? inTile : outer, number(blockOf(this.schedule, d))), inner);
      });
    return { operand, buffer, stride: reach.stride, base };
  }

  /**
   * Only what lies inside the tensor is copied; the border was zeroed once and stays. What loops around the copy move is copied
   * whole, zeros for what is outside this time.
   */
  private copyPadded(
    tensor: Tensor,
    bound: Access,
    copy: PaddedCopy,
    buffer: string,
    moved: Moved = STILL,
  ): readonly { readonly walk: readonly { name: string; extent: number }[]; readonly body: readonly Statement[] }[] {
    const counter = (name: string): string => this.names.fresh(`${name}_copy`);
    const at = ({ name, from }: { name: string; from: number }): Expr => binary("+", axis(counter(name)), number(from));
    return copyParts(tensor, bound, copy, moved).map(({ held, apart }) => {
      const values = new Map(apart.map((l) => [l.name, at(l)]));
      const place = [
        ...held.map((h) => ({ at: at({ name: h.name, from: h.from - h.low }), stride: h.stride })),
        ...apart.map((l) => ({ at: at(l), stride: l.stride })),
      ].reduce<Expr>((sum, { at, stride }) => binary("+", sum, binary("*", at, number(stride))), number(0));
      const index = tensor.dims.map((d, i) => {
        const h = held.find((x) => x.name === d.name);
        const e = bound.index[i] ?? number(0);
        return moved.from(e, h ? at(h) : substitute(e, values, "index"));
      });
      const walk = [...held, ...apart].sort((a, b) => b.stride - a.stride);
      return {
        walk: walk.map(({ name, extent }) => ({ name: counter(name), extent })),
        body: [
          { kind: "scalar", equation: { target: access(buffer, [place]), op: "=", value: access(tensor.name, index) } },
        ],
      };
    });
  }

  /** Every tile an operand has, in the order the loops ask for them: outer blocks, then the steps of a block, then the tile. */
  private placeTiled(operand: Operand, bound: Expr): Placed {
    const own = this.dimensions.filter((d) => dependsOn(this.mapping, operand.name, d));
    const size = tileElements(operand);
    const { elements, base } = this.tileLayout(own, size);
    const buffer = this.allocate(`${operand.name}_tiles`, operand, elements);

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
      const outer = binary("/", axis(stepName(d)), block);
      const tile = number(this.tileOf(d) ?? 1);
      const inTile = this.tileOf(d) === undefined ? outer : binary("%", outer, tile);
      return { outer, inner: binary("%", axis(stepName(d)), block), tile: binary("/", outer, tile), inTile };
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

  /** Tiles of the instruction one behind the other in the order of the loops: outer ones first, then the steps of a block. */
  private tileLayout(
    own: readonly LoopDimension[],
    size: number,
  ): { readonly elements: number; readonly base: (at: Position) => Expr } {
    let elements = size;
    const parts: { d: LoopDimension; at: "tile" | "inTile" | "outer" | "inner"; stride: number }[] = [];
    for (const d of [...own].reverse()) {
      parts.push({ d, at: "inner", stride: elements });
      elements *= blockOf(this.schedule, d);
    }
    for (const { dimension: d, tile } of this.loops.filter((l) => own.includes(l.dimension)).reverse()) {
      const blocks = blocksOf(d, blockOf(this.schedule, d));
      const tiled = this.tileOf(d);
      parts.push({ d, at: tile !== undefined ? "tile" : tiled === undefined ? "outer" : "inTile", stride: elements });
      elements *= tile !== undefined ? Math.ceil(blocks / tile) : (tiled ?? blocks);
    }
    const base = (at: Position): Expr =>
      own.reduce<Expr>(
        (sum, d) =>
          parts
            .filter((p) => p.d === d)
            .reverse()
            .reduce((all, p) => binary("+", all, binary("*", at(d)[p.at], number(p.stride))), sum),
        number(0),
      );
    return { elements, base };
  }

  /** Blocks of a tile of a dimension; undefined when it has no loop over tiles. */
  private tileOf(d: LoopDimension): number | undefined {
    return this.loops.find((l) => l.dimension === d && l.tile !== undefined)?.tile;
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
    const { moving, fixed } = movingLoops(walk, body);
    const [first, ...rest] = moving;
    if (walk.some((w) => w.extent === 0)) return [];
    if (!first) return [loop(this.names.fresh("once"), 1, fixed, "parallel")];
    return [loop(first.name, first.extent, loops(rest, fixed), "parallel")];
  }

  // ---- loops ----------------------------------------------------------------------------------------------------------------

  /**
   * Loops over whole blocks of each dimension, then the smaller block that is left; the outermost loop over blocks or tiles of a kept
   * dimension is dealt to the threads. In every pass over partial sums a thread comes to the same blocks.
   */
  private nest(
    loops: readonly NestedLoop[],
    parts: ReadonlyMap<string, Part>,
    tiles: Tiles,
    parallel: boolean,
    inside: (parts: ReadonlyMap<string, Part>, tiles: Tiles) => readonly Statement[],
  ): readonly Statement[] {
    const [outermost, ...rest] = loops;
    if (!outermost) {
      const body = inside(parts, tiles);
      return parallel ? [loop(this.names.fresh("once"), 1, body, "parallel")] : body;
    }
    const { dimension: d } = outermost;
    if (outermost.tile !== undefined)
      return this.tileLoop(outermost, outermost.tile, tiles, parallel, (within, still) => [
        ...this.copiesWithin(printLoop({ name: d.name, tile: outermost.tile }), parts, within),
        ...this.nest(rest, parts, within, still, inside),
      ]);
    const block = blockOf(this.schedule, d);
    const within = (part: Part): readonly Statement[] => {
      const known = new Map(parts).set(d.name, part);
      return [...this.copiesWithin(d.name, known, tiles), ...this.nest(rest, known, tiles, false, inside)];
    };
    if (this.bordersOf(d).some((b) => b.reduce === d.name && parts.get(b.spatial)?.edge))
      return Array.from({ length: d.steps }, (_, step) =>
        within({ outer: number(Math.floor(step / block)), inner: step % block, count: 1, partial: false }),
      ).flat();
    const range = tiles.ranges.get(d.name);
    const { first, whole, left } = range ?? this.allBlocks(d);
    const outerAt = (local: Expr): Pick<Part, "outer" | "tile"> => ({
      outer: binary("+", first, local),
      ...(range && { tile: { number: range.tile, block: local } }),
    });
    const { from, to } = this.insideOfBorder(d, first, whole);
    const leftIsEdge = this.borderOf(d)?.leftIsEdge ?? false;
    if (whole === 1 && left === 0) {
      const part = { ...outerAt(number(0)), count: block, partial: false, edge: from === to };
      const known = new Map(parts).set(d.name, part);
      return [...this.copiesWithin(d.name, known, tiles), ...this.nest(rest, known, tiles, parallel, inside)];
    }
    const alone = (name: string, body: readonly Statement[]): readonly Statement[] => this.alone(name, parallel, body);
    const edge = (number_: number): readonly Statement[] =>
      alone(`${d.name}_edge`, within({ ...outerAt(number(number_)), count: block, partial: false, edge: true }));
    const statements: Statement[] = [];
    for (let b = 0; b < from; b++) statements.push(...edge(b));
    if (to - from === 1) {
      statements.push(...alone(`${d.name}_outer`, within({ ...outerAt(number(from)), count: block, partial: false })));
    } else if (to > from) {
      const name = this.names.fresh(`${d.name}_outer`);
      const body = within({ ...outerAt(binary("+", axis(name), number(from))), count: block, partial: false });
      if (body.length > 0) statements.push(loop(name, to - from, body, parallel ? "parallel" : "serial"));
    }
    for (let b = to; b < whole; b++) statements.push(...edge(b));
    if (left > 0) {
      const partial = d.steps !== d.wholeSteps;
      statements.push(
        ...alone(`${d.name}_rest`, within({ ...outerAt(number(whole)), count: left, partial, edge: leftIsEdge })),
      );
    }
    return statements;
  }

  /** The copies made anew at each step of a loop. */
  private copiesWithin(loop: string, parts: ReadonlyMap<string, Part>, tiles: Tiles): readonly Statement[] {
    return (this.within.get(loop) ?? []).flatMap((make) => make(parts, tiles));
  }

  /**
   * A loop over tiles: those that are alike in a loop, the others written out: the last, where it is smaller; those with blocks at a
   * border; and of passes the first and the last, as far as sums begin and end here.
   */
  private tileLoop(
    { dimension: d, pass }: NestedLoop,
    blocks: number,
    tiles: Tiles,
    parallel: boolean,
    inside: (tiles: Tiles, parallel: boolean) => readonly Statement[],
  ): readonly Statement[] {
    const { whole, left } = this.allBlocks(d);
    const full = Math.floor(whole / blocks);
    const count = full + (full * blocks < whole || left > 0 ? 1 : 0);
    const dealt = parallel && d.kind === "spatial";
    const tile = (index: Expr, isLast: boolean, first: boolean, last: boolean): readonly Statement[] => {
      const range: BlockRange = {
        tile: index,
        first: binary("*", index, number(blocks)),
        whole: isLast ? whole - (count - 1) * blocks : blocks,
        left: isLast ? left : 0,
      };
      return inside({ ranges: new Map(tiles.ranges).set(d.name, range), first, last }, parallel && !dealt);
    };
    const isFirst = (index: number): boolean => tiles.first && (!pass || index === 0);
    const isLast = (index: number): boolean => tiles.last && (!pass || index === count - 1);
    const single = (index: number): readonly Statement[] => {
      const body = tile(number(index), index === count - 1, isFirst(index), isLast(index));
      return this.alone(`${d.name}_tile`, dealt, body);
    };
    const { from, to } = this.insideOfBorder(d, number(0), whole);
    const begin = Math.max(pass && tiles.first ? 1 : 0, Math.ceil(from / blocks));
    const end = Math.max(begin, Math.min(pass && tiles.last ? count - 1 : full, Math.floor(to / blocks), full));
    const statements: Statement[] = [];
    for (let i = 0; i < begin; i++) statements.push(...single(i));
    if (end - begin === 1) statements.push(...single(begin));
    else if (end > begin) {
      const name = this.names.fresh(`${d.name}_tile`);
      const body = tile(binary("+", axis(name), number(begin)), false, isFirst(begin), isLast(begin));
      statements.push(loop(name, end - begin, body, dealt ? "parallel" : "serial"));
    }
    for (let i = end; i < count; i++) statements.push(...single(i));
    return statements;
  }

  /** What is written out beside a loop that is dealt to threads is dealt too: to one of them. */
  private alone(name: string, parallel: boolean, body: readonly Statement[]): readonly Statement[] {
    return parallel ? [loop(this.names.fresh(name), 1, body, "parallel")] : body;
  }

  private allBlocks(d: LoopDimension): Omit<BlockRange, "tile"> {
    const block = blockOf(this.schedule, d);
    const whole = Math.floor((d.kind === "spatial" ? d.wholeSteps : d.steps) / block);
    return { first: number(0), whole, left: d.steps - whole * block };
  }

  private borderOf(d: LoopDimension): BorderBlocks | undefined {
    const border = this.bordersOf(d).find((b) => b.spatial === d.name);
    return border && borderBlocks(border, blockOf(this.schedule, d));
  }

  /** Blocks `from` up to `to` of the `whole` ones behind `first` cross no border. Tiles with others have a number for their first. */
  private insideOfBorder(d: LoopDimension, first: Expr, whole: number): { readonly from: number; readonly to: number } {
    const border = this.borderOf(d);
    if (!border || first.kind !== "number") return { from: 0, to: whole };
    const from = Math.min(whole, Math.max(0, border.from - first.value));
    return { from, to: Math.max(from, Math.min(whole, border.to - first.value)) };
  }

  /** Borders at which a dimension takes part, of inputs loaded in place. */
  private bordersOf(d: LoopDimension): readonly Border[] {
    return [...this.borders.values()].flat().filter((b) => b.spatial === d.name || b.reduce === d.name);
  }

  /** One register block: accumulators cleared, the summed loops, results stored; or sums of the pass before loaded, and kept for the next. */
  private block(
    parts: ReadonlyMap<string, Part>,
    tiles: Tiles,
    summed: readonly NestedLoop[],
    held: Placed | undefined,
    streaming: Placed,
    partial: Placed | undefined,
  ): readonly Statement[] {
    const blocked = this.blocked(parts);
    const counter = this.accumulatorIndex(blocked);
    const unrolled = (dimensions: readonly LoopDimension[], body: readonly Statement[]): readonly Statement[] =>
      dimensions.reduceRight<readonly Statement[]>(
        (inner, d) => [loop(this.blockName(d), countOf(parts, d), inner, "unrolled")],
        body,
      );
    const accumulator = { file: this.fileName(this.target), index: counter };
    const move = (kind: "load" | "store"): readonly Statement[] => {
      if (!partial) throw new Error("internal: there is no place for partial sums");
      const memory = { buffer: partial.buffer, base: partial.base(this.positionIn(parts)), stride: partial.stride };
      return unrolled(blocked, [{ kind, register: accumulator, memory }]);
    };
    const begin = tiles.first ? unrolled(blocked, [{ kind: "clear", register: accumulator }]) : move("load");
    const work = this.nest(summed, parts, tiles, false, (all) => this.core(all, blocked, held, streaming, accumulator));
    return [...begin, ...work, ...(tiles.last ? this.storeBlock(parts, blocked, counter) : move("store"))];
  }

  /** Where sums lie between passes: in the output, where it holds them as the instruction stores them; else tile by tile, as inputs are packed. */
  private placePartialSums(): Placed {
    const { computation, mapping, target } = this;
    const spatial = this.dimensions.filter((d) => d.kind === "spatial");
    const reach = partialReach(mapping, this.schedule);
    if (reach !== undefined) return this.reached(target, computation.equation.target.tensor, reach);
    const { elements, base } = this.tileLayout(spatial, tileElements(target));
    const buffer = this.allocate(`${target.name}_partial`, target, elements);
    return { operand: target, buffer, stride: tileRowElements(target), base };
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
      const memory = { buffer: bound.tensor, base: base(this.positionIn(parts)), stride: reach.stride };
      return unrolled([{ kind: "store", register, memory }]);
    }
    // Tiles side by side in a scratch block, then scalar loops over it.
    const size = tileElements(this.target);
    const buffer = this.names.fresh(`${this.target.name}_results`);
    const { accumulators } = registersOf(this.mapping, this.schedule);
    if (!this.scratch.some((s) => s.name === buffer)) {
      this.scratch.push({ name: buffer, dtype: this.target.dtype, elements: accumulators * size, scope: "local" });
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

  /** A unit with tiles of its own computes while results are made of the block before. */
  private overlapped(compute: readonly Statement[]): readonly Statement[] {
    if (this.target.file !== "tile" || !this.computation.epilogue) return compute;
    const spilled = new Set([this.names.fresh(`${this.target.name}_results`)]);
    return overlapStores(compute, spilled, this.schedule.threads === 1 ? this.names.fresh("once") : undefined);
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
    return (d) => {
      const part = parts.get(d.name);
      const outer = part?.outer ?? number(0);
      return {
        outer,
        inner: countOf(parts, d) > 1 ? axis(this.blockName(d)) : number(part?.inner ?? 0),
        tile: part?.tile?.number ?? number(0),
        inTile: part?.tile?.block ?? outer,
      };
    };
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

/** Loops of one step taken out of a walk and of what it walks over. */
function movingLoops(
  walk: readonly { readonly name: string; readonly extent: number }[],
  body: readonly Statement[],
): {
  readonly moving: readonly { readonly name: string; readonly extent: number }[];
  readonly fixed: readonly Statement[];
} {
  const still = new Map(walk.filter((w) => w.extent === 1).map((w) => [w.name, number(0)]));
  const fixed = body.map(
    (s): Statement => (s.kind === "scalar" ? { kind: "scalar", equation: substituteScalar(s.equation, still) } : s),
  );
  return { moving: walk.filter((w) => w.extent > 1), fixed };
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
