/**
 * @file The position of a block, a warp and a fragment in the loops of a computation: names, tiles, and counters of the
 * fused loops.
 *
 *     m <- n,p,q   tile m 128, warps m 2        fused m = 128*m_tile + (64*m_warp + 16*m_fragment + m_in),   q = fused % 56, p = fused/56 % 56, ...
 */

import { type Dimension, type Extents, extentOf, splitRowMajor } from "../../abstraction/affine.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { volumeOf } from "../../abstraction/collections.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { allOf, conditionOf, joined, type Span, somewhere, type Truth } from "../../abstraction/condition.ts";
import {
  type Access,
  access,
  axis,
  compare,
  type Equation,
  type Expr,
  number,
  operandsOf,
  over,
  plus,
  remainder,
  times,
} from "../../abstraction/expression.ts";
import { FreshNames, loop, type RegisterAt, type Statement } from "../../abstraction/loop-nest.ts";
import { type Stretch, spanOf } from "../match/conditions.ts";
import { digitsOf, type LoopDimension } from "../schedule/dimensions.ts";
import { boxOf, type GatherBox } from "../schedule/gather.ts";
import type { GridAxis, GridContext } from "../schedule/grid-context.ts";
import { neighboursAlong } from "../schedule/multicast.ts";
import { turnsOf } from "../schedule/persistent.ts";
import { partsOfSum, stepsOfPart, tilesOf } from "../schedule/split.ts";
import { keptTiles, type TapWindow, windowOf } from "../schedule/taps.ts";
import { fragmentsAlong, tilesAlong } from "../schedule/tile.ts";
import { windowPlace } from "./window-places.ts";

export const unrolled = (name: string, extent: number, body: readonly Statement[]): readonly Statement[] => [
  loop(name, extent, body, "unrolled"),
];

/** The barrier between two kernels of a call. */
export const callBarrier = ({ schedule }: GridPlaces): Statement => ({
  kind: "barrier",
  ...(schedule.launch && { early: true }),
});

type Drain = Extract<Statement, { kind: "drain" }>;

export class GridPlaces {
  readonly context: GridContext;
  readonly schedule: GridSchedule;
  readonly computation: Computation;
  readonly size: Extents;
  /**
   * Steps of the sum in one block: tiles along the sum at every point of the outer summed loops, or a share of these.
   */
  readonly steps: number;
  /** Tiles that one block computes one after another, and which of them this is. */
  readonly turns: number;
  readonly turn: Expr;
  /** Which part of a split sum this block computes. */
  readonly part: Expr;
  /** The window that is staged once for all taps. */
  readonly window: TapWindow | undefined;
  /** The box that is staged once in the tensor's layout, from which lanes gather fragments. */
  readonly box: GatherBox | undefined;
  /** The point of the outer loops, counted in row-major order, of persistent blocks. */
  private readonly outerPoint: Expr | undefined;
  /** The number of the cluster's first tile along each axis, in clusters; a cluster of one block is a tile. */
  private readonly row: Expr;
  private readonly column: Expr;
  /** The number of the block's tile along each axis. */
  private readonly rowTile: Expr;
  private readonly columnTile: Expr;
  private readonly names: FreshNames;

  constructor(context: GridContext, schedule: GridSchedule, turn: Expr = number(0)) {
    this.context = context;
    this.schedule = schedule;
    this.computation = context.mapping.computation;
    this.names = new FreshNames(this.computation, (context.repacked?.plain ?? context).mapping.computation);
    this.size = schedule.tile;
    this.steps = stepsOfPart(context, schedule);
    this.turns = turnsOf(context, schedule);
    this.turn = turn;
    this.part = axis(this.fresh("split"));
    this.window = windowOf(context, schedule);
    this.box = boxOf(context, schedule);
    const { rows, columns } = context;
    const { persistent } = schedule;
    const deep = neighboursAlong(context, schedule, rows);
    const wide = neighboursAlong(context, schedule, columns);
    const order = this.order;
    let row: Expr;
    let column: Expr;
    if (persistent === undefined) {
      const tile = this.counter(rows, "tile");
      row = order === 1 ? tile : plus(times(order, this.counter(rows, "group")), tile);
      column = this.counter(columns, "tile");
    } else {
      // Tiles are numbered in the order in which separate blocks would take them. Numbers past the last tile fall below
      // the last row, or behind the last point of the outer loops.
      const number = plus(times(persistent / (deep * wide), turn), axis(this.fresh("block")));
      const across = keptTiles(context, columns, schedule) / wide;
      const perOuter = (across * keptTiles(context, rows, schedule)) / deep;
      const isOne = context.outer.length === 0;
      this.outerPoint = isOne ? undefined : over(number, perOuter);
      const tile = isOne ? number : remainder(number, perOuter);
      column = remainder(over(tile, order), across);
      const group = over(tile, order * across);
      row = order === 1 ? group : plus(times(order, group), remainder(tile, order));
    }
    this.row = row;
    this.column = column;
    this.rowTile = deep === 1 ? row : plus(times(deep, row), this.member);
    this.columnTile = wide === 1 ? column : plus(times(wide, column), this.member);
  }

  /** The places of a block during one of its turns. */
  inTurn(turn: Expr): GridPlaces {
    return this.turns === 1 ? this : new GridPlaces(this.context, this.schedule, turn);
  }

  /** The axis that counts the tiles summed before, where elements decide which of a block's tiles are; undefined where all are. */
  get summedTiles(): Dimension | undefined {
    return this.turns > 1 && this.context.decided.length > 0
      ? { name: this.fresh("summed"), extent: this.turns }
      : undefined;
  }

  /** Clusters of row tiles that are taken before the next column tile. */
  get order(): number {
    return Math.max(1, this.schedule.order / neighboursAlong(this.context, this.schedule, this.context.rows));
  }

  /** The number of the block among the neighbours with which it shares a tile. */
  get member(): Expr {
    return axis(this.fresh("member"));
  }

  /** Splits a step that is counted through all turns of a block into the turn's places and the step within its tile. */
  ofStep(step: Expr): { readonly there: GridPlaces; readonly inTile: Expr } {
    if (this.turns === 1) return { there: this, inTile: step };
    const { steps } = this;
    const there = this.summedTiles ? this : this.inTurn(over(step, steps));
    return { there, inTile: remainder(step, steps) };
  }

  /** Counts a step of the current tile through all tiles that the block sums. */
  counted(inTile: Expr): Expr {
    const before = this.summedTiles?.name ?? this.fresh("turn");
    return this.turns === 1 ? inTile : plus(times(this.steps, axis(before)), inTile);
  }

  fresh(wish: string): string {
    return this.names.fresh(wish);
  }

  /** `m_tile`, `m_warp`, `m_fragment`, `m_in` for an axis of the instruction. */
  name({ axis: of }: GridAxis, what: "tile" | "group" | "warp" | "warpgroup" | "fragment" | "in" | "part"): string {
    return this.names.fresh(`${of}_${what}`);
  }

  /** The counter of that name. */
  counter(a: GridAxis, what: Parameters<GridPlaces["name"]>[1]): Expr {
    return axis(this.name(a, what));
  }

  /** The number of the block's tile along a kept axis, and the extent of a tile along any. */
  tileAt(a: GridAxis): Expr {
    return a === this.context.columns ? this.columnTile : this.rowTile;
  }

  extent({ axis: of }: GridAxis): number {
    return extentOf(of, this.size);
  }

  /** Counters of the kept loops that do not feed the instruction. */
  outerCounters(): Map<string, Expr> {
    const { outer } = this.context;
    const places: (readonly [LoopDimension, Expr])[] = this.outerPoint
      ? splitRowMajor(this.outerPoint, outer)
      : outer.map((d) => [d, axis(this.names.fresh(`${d.name}_block`))]);
    return new Map(places.flatMap(([d, at]) => digitsOf(d, at)));
  }

  /** Conditions for the block's tile to be one of those that there are; empty if each has a block or blocks divide them. */
  inOuter(): Expr[] {
    return this.outerPoint && this.isBehind ? [compare("<", this.outerPoint, volumeOf(this.context.outer))] : [];
  }

  /** Whether the last turn of some blocks is past the last tile. */
  private get isBehind(): boolean {
    return tilesOf(this.context, this.schedule) % (this.schedule.persistent ?? 1) !== 0;
  }

  /** The values of loops in a block, of which those of rows and columns are on a stretch. */
  spansOf(stretchOf: (along: GridAxis) => Stretch): (loop: string) => Span {
    const { rows, columns } = this.context;
    const outer = this.outerCounters();
    return (name) => {
      const along = [rows, columns].find((a) => a.dimension?.loops.some((l) => l.name === name));
      if (!along?.dimension) return { low: outer.get(name) ?? axis(name), span: 1 };
      return spanOf(along.dimension, name, stretchOf(along));
    };
  }

  /** Whether a block has something to sum, where elements decide it. The blocks of a cluster decide it for all their tiles. */
  get taken(): Truth {
    const { decided } = this.context;
    const ofTiles = this.spansOf((along) => {
      const elements = this.extent(along) * neighboursAlong(this.context, this.schedule, along);
      return {
        low: times(elements, along === this.context.columns ? this.column : this.row),
        elements,
        grain: elements,
      };
    });
    return decided
      .map((part) => somewhere(conditionOf(part), ofTiles))
      .reduce<Truth>((a, b) => joined("and", a, b), allOf(decided.length > 0 ? this.inOuter() : []));
  }

  isSummed(loop: string): boolean {
    return this.computation.axes.some((a) => a.name === loop && a.kind === "reduce");
  }

  /** Counters, at a step, of every summed loop and of the kept loops that do not feed the instruction. */
  countersOf(step: Expr, inside: Expr): { readonly counters: Map<string, Expr>; readonly fusedSum: Expr } {
    const { sum, outerSums } = this.context;
    const counters = this.outerCounters();
    const parts = partsOfSum(this.schedule);
    const { window } = this;
    const whole = parts === 1 ? step : plus(times(this.steps, this.part), step);
    // With a window, the taps are the innermost steps; otherwise the tiles of the sum are.
    const outside = window ? remainder(step, window.taps) : whole;
    let weight = window ? window.taps : this.steps * parts;
    for (const d of outerSums) {
      weight /= d.extent;
      const quotient = over(outside, weight);
      const at = d === outerSums[0] ? quotient : remainder(quotient, d.extent);
      for (const [name, digit] of digitsOf(d, at)) counters.set(name, digit);
    }
    const inner = outerSums.length === 0 ? whole : remainder(whole, tilesAlong(sum, this.size));
    const tile = window ? this.sliceAt(window, over(step, window.taps)) : inner;
    return { counters, fusedSum: this.fuse(sum, tile, inside, counters) };
  }

  /** The number of a slice of this block's window among the tiles of the whole sum. */
  sliceAt({ slices }: TapWindow, slice: Expr): Expr {
    return partsOfSum(this.schedule) === 1 ? slice : plus(times(slices, this.part), slice);
  }

  /**
   * Enters the counters of a kept axis at a position in a tile. Returns the conditions for the position to be inside;
   * empty if tiles fit exactly.
   */
  place(a: GridAxis, inside: Expr, counters: Map<string, Expr>): Expr[] {
    const tile = this.tileAt(a);
    if (this.window?.input.kept.axis === a.axis)
      return windowPlace(this.window, this.extent(a), tile, inside, counters);
    return this.beyond(a, this.fuse(a, tile, inside, counters));
  }

  /** The fused index of an axis at a position in a tile. Enters the counters of its loops. */
  private fuse(a: GridAxis, tile: Expr, inside: Expr, counters: Map<string, Expr>): Expr {
    const fused = plus(times(this.extent(a), tile), inside);
    if (a.dimension) for (const [name, digit] of digitsOf(a.dimension, fused)) counters.set(name, digit);
    return fused;
  }

  /** Conditions for a fused index to be inside its extent; empty if tiles fit exactly. */
  beyond(a: GridAxis, fused: Expr): Expr[] {
    const behind = a === this.context.rows && this.isBehind && this.outerPoint === undefined;
    const whole = a.elements % this.extent(a) === 0 && !behind;
    return whole ? [] : [compare("<", fused, a.elements)];
  }

  /** The first element of a warp's fragment within the block's tile. */
  fragmentAt(a: GridAxis): Expr {
    return plus(this.warpAt(a), times(a.extent, this.counter(a, "fragment")));
  }

  /** An element of that fragment within the block's tile. */
  elementAt(a: GridAxis): Expr {
    return plus(this.fragmentAt(a), this.counter(a, "in"));
  }

  warpAt(a: GridAxis): Expr {
    return times(fragmentsAlong(a, this.schedule) * a.extent, this.counter(a, this.context.team));
  }

  /** The accumulator at the current row and column fragment. */
  sum(): RegisterAt {
    const { rows, columns, target } = this.context;
    const across = fragmentsAlong(columns, this.schedule);
    const index = plus(times(across, this.counter(rows, "fragment")), this.counter(columns, "fragment"));
    return { file: target.name, index };
  }

  /** What the instruction adds to: the accumulator, or the sum of a step that is scaled before it is added there. */
  issued(): RegisterAt {
    return this.context.scale ? { ...this.sum(), file: this.stepSums } : this.sum();
  }

  /** The name of the sums of a step. */
  get stepSums(): string {
    return this.fresh(`${this.context.target.name}_step`);
  }

  /** What the sum of a step is multiplied by, a register for each factor. */
  scales(): readonly { readonly register: RegisterAt; readonly factor: Expr }[] {
    const { scale, rows, columns } = this.context;
    const sums = fragmentsAlong(rows, this.schedule) * fragmentsAlong(columns, this.schedule);
    const index = this.sum().index;
    return (scale ? operandsOf(scale, "*") : []).map((factor, i) => ({
      register: { file: this.scaleName, index: plus(index, i * sums) },
      factor,
    }));
  }

  get scaleName(): string {
    return this.fresh(`${this.context.target.name}_scale`);
  }

  /** Drains the accumulator, one element after another. */
  drained(equationOf: (element: Access) => Equation, by?: Drain["by"]): Drain {
    const { rows, columns } = this.context;
    const element = this.fresh("sum");
    return {
      kind: "drain",
      register: this.sum(),
      axes: [rows, columns].map((a) => this.name(a, "in")),
      element,
      equation: equationOf(access(element, [])),
      ...(by && { by }),
    };
  }

  eachSum(body: readonly Statement[]): readonly Statement[] {
    const { rows, columns } = this.context;
    const across = unrolled(this.name(columns, "fragment"), fragmentsAlong(columns, this.schedule), body);
    return unrolled(this.name(rows, "fragment"), fragmentsAlong(rows, this.schedule), across);
  }
}
