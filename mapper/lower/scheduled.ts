/**
 * @file Lowers a mapping under a schedule: operands in their places, a register block around the instruction, and loops
 * in the given order.
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
 * Remainders are peeled: a loop of whole blocks, then one smaller block, without tests inside. Tiles
 * (../schedule/cache-tiles.ts) are loops around these, each over a range of blocks. Where tiles of a sum enclose kept
 * loops, accumulators are loaded and stored. Padding is in the copies of operands and written once, so the inner loops
 * do not deal with it.
 *
 * Overlaps the stores of one block of results with the products of the next. Tiles are multiplied by one unit; the vector unit, idle meanwhile,
 * turns spilled tiles into rows of results.
 *
 *     for q in 0..7                      compute 0; spill 0
 *       compute q                        for q in 0..6
 *       spill q                  ->        compute q+1                 long, few instructions
 *       rows q                             rows q                      short, many: they run beside it
 *                                          spill q+1
 *                                        rows 6
 *
 * Only the order changes: rows read the spilled block and the loop position of that block, and are done before the next
 * spill. The innermost loop around a block is split, and the statements after it are merged in; a loop divided among
 * threads stays whole.
 */

import type { Schedule } from "../../abstraction/candidate.ts";
import { upTo } from "../../abstraction/collections.ts";
import { joined, type Truth } from "../../abstraction/condition.ts";
import { accessesIn, axis, compare, type Expr, number, plus, times } from "../../abstraction/expression.ts";
import {
  type Loop,
  type LoopNest,
  loop,
  type RegisterFile,
  type Statement,
  type StepRange,
} from "../../abstraction/loop-nest.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { substituteAxis } from "../../abstraction/rewrite-statement.ts";
import { registerClass } from "../../targets/index.ts";
import { when } from "../match/conditions.ts";
import { blockOf, registersOf } from "../schedule/block.ts";
import { type NestedLoop, printLoop } from "../schedule/cache-tiles.ts";
import type { LoopDimension } from "../schedule/dimensions.ts";
import { scheduleProblem } from "../schedule/mapped.ts";
import { storedBeside } from "./beside.ts";
import type { BlockRange, Part, Parts, Tiles } from "./operands.ts";
import { ScheduledBlock } from "./scheduled-block.ts";

/** The loop nest of a mapping under a schedule. @throws Error if {@link scheduleProblem} refuses the schedule */
export function lowerSchedule(mapping: Mapping, schedule: Schedule): LoopNest {
  const problem = scheduleProblem(mapping, schedule);
  if (problem !== undefined) throw new Error(`internal: the schedule cannot be lowered: ${problem}`);
  return new Lowering(mapping, schedule).lower();
}

const WHOLE: Tiles = { ranges: new Map(), first: true, last: true };

class Lowering extends ScheduledBlock {
  lower(): LoopNest {
    const placed = this.inputs.map((operand) => this.operands.place(operand));
    const { accumulators, held } = registersOf(this.mapping, this.schedule);
    // The input with fewer tiles in the block is held in registers; the other is streamed.
    const [first, second] = placed.slice(0, 2).sort((a, b) => this.blockTiles(a.operand) - this.blockTiles(b.operand));
    if (!first) throw new Error("internal: an instruction without inputs");
    const streaming = second ?? first;
    this.further = placed.slice(2);
    const registers: RegisterFile[] = [
      this.registerFile(this.target, accumulators),
      ...(second ? [this.registerFile(first.operand, held)] : []),
      this.registerFile(streaming.operand, 1),
      ...this.further.map(({ operand }) => this.registerFile(operand, 1)),
    ];

    const inBlock = this.loops.findLastIndex((l) => l.dimension.kind === "spatial") + 1;
    const partial = this.loops.some((l) => l.pass) ? this.operands.placePartialSums(this.target) : undefined;
    const compute = this.nest(
      this.loops.slice(0, inBlock),
      new Map(),
      WHOLE,
      (parts, tiles) =>
        this.block(parts, tiles, this.loops.slice(inBlock), second ? first : undefined, streaming, partial),
      true,
    );
    if (this.zeros !== undefined)
      registers.push({ name: this.zeros, intrinsic: this.mapping.intrinsic, operand: this.target.name, count: 1 });
    const { scratch, prepare, zeros } = this.operands;
    const { computation, names } = this;
    const pack = [...storedBeside(computation, names), ...this.operands.pack];
    const packed = pack.length > 0 ? [...pack, { kind: "barrier" as const }] : [];
    return { scratch, registers, prepare, body: [...packed, ...zeros, ...this.overlapped(compute)] };
  }

  // ---- loops ----------------------------------------------------------------------------------------------------------------

  /**
   * Loops over the whole blocks of each dimension, then the smaller remainder block. The outermost loop over blocks or
   * tiles of a kept dimension is divided among threads, and a thread gets the same blocks in every pass over partial
   * sums.
   */
  protected override nest(
    loops: readonly NestedLoop[],
    parts: Parts,
    tiles: Tiles,
    inside: (parts: Parts, tiles: Tiles) => readonly Statement[],
    parallel = false,
  ): readonly Statement[] {
    const [outermost, ...rest] = loops;
    if (!outermost) {
      const body = inside(parts, tiles);
      return parallel ? [loop(this.names.fresh("once"), 1, body, "parallel")] : body;
    }
    const { dimension: d } = outermost;
    if (outermost.tile !== undefined)
      return this.tileLoop(outermost, outermost.tile, tiles, parallel, (within, still) => [
        ...this.operands.copiesWithin(printLoop({ name: d.name, tile: outermost.tile }), parts, within),
        ...this.nest(rest, parts, within, inside, still),
      ]);
    const block = blockOf(this.schedule, d);
    const within = (part: Part): readonly Statement[] => {
      const known = new Map(parts).set(d.name, part);
      return [...this.operands.copiesWithin(d.name, known, tiles), ...this.nest(rest, known, tiles, inside)];
    };
    const crossed = this.crossedBy(d, parts);
    if (crossed.borders.length > 0)
      return upTo(d.steps).flatMap((step) =>
        within({ outer: number(Math.floor(step / block)), inner: step % block, count: 1, partial: false }),
      );
    const range = tiles.ranges.get(d.name);
    const { first, whole, left } = range ?? this.allBlocks(d);
    const outerAt = (local: Expr): Pick<Part, "outer" | "tile"> => ({
      outer: plus(first, local),
      ...(range && { tile: { number: range.tile, block: local } }),
    });
    const main = (local: Expr): Part => {
      const at = outerAt(local);
      const { from, to } = this.interiorOf(d);
      const [low, high] =
        at.outer.kind === "number" ? [at.outer.value, at.outer.value] : [0, this.allBlocks(d).whole - 1];
      return { ...at, count: block, partial: false, edge: low < from || high >= to };
    };
    if (whole === 1 && left === 0) {
      const part = main(number(0));
      const known = new Map(parts).set(d.name, part);
      const body = [
        ...this.operands.copiesWithin(d.name, known, tiles),
        ...this.nest(rest, known, tiles, inside, parallel),
      ];
      return range ? this.tested(d, known, body) : body;
    }
    const single = (part: Part): readonly Statement[] => this.tested(d, new Map(parts).set(d.name, part), within(part));
    const alone = (name: string, body: readonly Statement[]): readonly Statement[] => this.alone(name, parallel, body);
    const statements: Statement[] = [];
    if (whole === 1) {
      statements.push(...alone(`${d.name}_outer`, single(main(number(0)))));
    } else if (whole > 1) {
      const name = this.names.fresh(`${d.name}_outer`);
      const body = within(main(axis(name)));
      const steps = crossed.range ?? this.conditions.blocks(d, this.stretchIn(parts), first, whole);
      if (body.length > 0) statements.push(this.dealtLoop(d, loop(name, whole, body), parallel, steps));
    }
    if (left > 0) {
      const partial = d.steps !== d.wholeSteps;
      statements.push(
        ...alone(
          `${d.name}_rest`,
          single({ ...outerAt(number(whole)), count: left, partial, edge: this.leftIsEdge(d) }),
        ),
      );
    }
    return statements;
  }

  /**
   * A loop over tiles. A smaller last tile is peeled, and so is the last pass if its rows are stored during the next
   * block. Inside the loop, a test tells whether sums begin or end in a pass.
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
    const tile = (index: Expr, isLast: boolean): readonly Statement[] => {
      const range: BlockRange = {
        tile: index,
        first: times(index, blocks),
        whole: isLast ? whole - (count - 1) * blocks : blocks,
        left: isLast ? left : 0,
      };
      const isAt = (at: number): Truth =>
        !pass || (index.kind === "number" ? index.value === at : at < end && compare("==", index, at));
      const first = joined("and", tiles.first, isAt(0));
      const last = joined("and", tiles.last, isAt(count - 1));
      return inside({ ranges: new Map(tiles.ranges).set(d.name, range), first, last }, parallel && !dealt);
    };
    const single = (index: number): readonly Statement[] =>
      this.alone(`${d.name}_tile`, dealt, tile(number(index), index === count - 1));
    const alike = pass && this.storesBeside ? count - 1 : count;
    const end = Math.min(full, alike);
    const statements: Statement[] = [];
    if (end === 1) statements.push(...single(0));
    else if (end > 1) {
      const name = this.names.fresh(`${d.name}_tile`);
      const body = tile(axis(name), false);
      statements.push(this.dealtLoop(d, loop(name, end, body), dealt));
    }
    for (let i = end; i < count; i++) statements.push(...single(i));
    return statements;
  }

  /** A loop over blocks or tiles. If its steps do unequal work, threads take them one by one. */
  private dealtLoop(d: LoopDimension, all: Loop, parallel: boolean, range?: StepRange): Statement {
    if (range) return { ...all, range };
    if (!parallel) return all;
    return { ...all, mode: "parallel", ...(this.conditions.ties(d) && { inTurn: true }) };
  }

  /** One block of a summed dimension, skipped if a condition excludes all of it. */
  private tested(d: LoopDimension, parts: Parts, body: readonly Statement[]): readonly Statement[] {
    return when(this.conditions.mayAdd(d, this.stretchIn(parts)), body);
  }

  /** Statements peeled from a parallel loop are given to one thread, by a parallel loop of one step. */
  private alone(name: string, parallel: boolean, body: readonly Statement[]): readonly Statement[] {
    return parallel ? [loop(this.names.fresh(name), 1, body, "parallel")] : body;
  }

  private allBlocks(d: LoopDimension): Omit<BlockRange, "tile"> {
    const block = blockOf(this.schedule, d);
    const whole = Math.floor((d.kind === "spatial" ? d.wholeSteps : d.steps) / block);
    return { first: number(0), whole, left: d.steps - whole * block };
  }

  /**
   * Whether results are stored during the products of the next block: for a unit with its own tile registers, if there
   * is an epilogue.
   */
  private get storesBeside(): boolean {
    return registerClass(this.target.file)?.apart === true && this.computation.epilogue !== undefined;
  }

  private overlapped(compute: readonly Statement[]): readonly Statement[] {
    if (!this.storesBeside) return compute;
    const spilled = new Set([this.names.fresh(`${this.target.name}_results`)]);
    return overlapStores(compute, spilled, this.schedule.threads === 1 ? this.names.fresh("once") : undefined);
  }
}

// ---- overlapped stores --------------------------------------------------------------------------------------------------------------------

/**
 * Overlaps stores in a nest where possible.
 * @param spilled the scratch buffers that blocks of results are spilled to
 * @param alone the name of the one-step loop around everything, if there is one thread; undefined if there are several
 */
function overlapStores(
  body: readonly Statement[],
  spilled: ReadonlySet<string>,
  alone: string | undefined,
): readonly Statement[] {
  const leaves = body.flatMap(leavesOf);
  const loaded = new Set(leaves.flatMap((leaf) => (leaf.kind === "load" ? [leaf.memory.buffer] : [])));
  // Partial sums must be stored before they are loaded again.
  if (leaves.some((leaf) => leaf.kind === "scalar" && isRow(leaf, spilled) && loaded.has(leaf.equation.target.tensor)))
    return body;
  if (alone === undefined) return overlapAll(body, spilled);
  const inOrder = body.map(
    (s): Statement => (s.kind === "loop" && s.mode === "parallel" ? { ...s, mode: "serial" } : s),
  );
  return [loop(alone, 1, overlapAll(inOrder, spilled), "parallel")];
}

function overlapAll(body: readonly Statement[], spilled: ReadonlySet<string>): readonly Statement[] {
  const { statements, pending } = overlap(body, [], spilled);
  return [...statements, ...pending];
}

/** Statements, and the rows still to be stored after them. */
interface Overlapped {
  readonly statements: readonly Statement[];
  readonly pending: readonly Statement[];
}

function overlap(body: readonly Statement[], before: readonly Statement[], spilled: ReadonlySet<string>): Overlapped {
  const statements: Statement[] = [];
  let pending = before;
  for (const s of body) {
    switch (roleOf(s, spilled)) {
      case "compute":
        statements.push(s);
        break;
      case "spill":
        statements.push(...pending, s);
        pending = [];
        break;
      case "rows":
        pending = [...pending, s];
        break;
      case "blocks": {
        if (s.kind === "when") {
          // Conditional statements are not overlapped.
          statements.push(...pending, s);
          pending = [];
          break;
        }
        const inner = overlapLoop(s, pending, spilled);
        statements.push(...inner.statements);
        pending = inner.pending;
        break;
      }
    }
  }
  return { statements, pending };
}

/** Peels the innermost loop around whole blocks. */
function overlapLoop(s: Statement, before: readonly Statement[], spilled: ReadonlySet<string>): Overlapped {
  if (s.kind !== "loop") throw new Error(`internal: a ${s.kind} holds no blocks`);
  const at = (value: Expr, list: readonly Statement[]): Statement[] =>
    list.map((inner) => substituteAxis(inner, s.axis, value));
  if (s.mode === "serial" && s.extent === 1) return overlap(at(number(0), s.body), before, spilled);
  const innermost = s.body.every((inner) => roleOf(inner, spilled) !== "blocks");
  if (!innermost || s.mode !== "serial")
    return { statements: [...before, { ...s, body: overlapAll(s.body, spilled) }], pending: [] };
  const { pending } = overlap(s.body, [], spilled);
  const first = overlap(at(number(0), s.body), before, spilled);
  const steady = overlap(at(plus(axis(s.axis), 1), s.body), pending, spilled);
  return {
    statements: [...first.statements, loop(s.axis, s.extent - 1, steady.statements)],
    pending: at(number(s.extent - 1), pending),
  };
}

type Role = "compute" | "spill" | "rows" | "blocks";

function roleOf(s: Statement, spilled: ReadonlySet<string>): Role {
  const spills = leavesOf(s).some((leaf) => leaf.kind === "store" && spilled.has(leaf.memory.buffer));
  if (spills) return leavesOf(s).every((leaf) => leaf.kind === "store") ? "spill" : "blocks";
  return leavesOf(s).some((leaf) => isRow(leaf, spilled)) ? "rows" : "compute";
}

function isRow(leaf: Statement, spilled: ReadonlySet<string>): boolean {
  return leaf.kind === "scalar" && accessesIn(leaf.equation.value).some((a) => spilled.has(a.tensor));
}

function leavesOf(s: Statement): Statement[] {
  if (s.kind === "when") return [...s.body, ...s.otherwise].flatMap(leavesOf);
  return s.kind === "loop" ? s.body.flatMap(leavesOf) : [s];
}
