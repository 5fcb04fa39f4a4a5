/**
 * @file Packs the tiles of an operand: once per call, ahead of time if the operand is constant, or in each step of a loop outside.
 *
 *     w tiled            prepare: for k, c, n_inner, k_inner: b_tiles[...] <- w[...]
 *     b tiled within n   in the loop over n: b_tiles[...] <- e[n, ...]      each thread for itself; lines of the next step are fetched meanwhile
 */

import type { Schedule } from "../../abstraction/candidate.ts";
import { type Computation, inputsOf } from "../../abstraction/computation.ts";
import type { Truth } from "../../abstraction/condition.ts";
import type { DType } from "../../abstraction/dtype.ts";
import {
  access,
  axis,
  type Expr,
  number,
  over,
  plus,
  printExpr,
  remainder,
  substitute,
  times,
} from "../../abstraction/expression.ts";
import type { Operand } from "../../abstraction/intrinsic.ts";
import type { Dimension } from "../../abstraction/layout.ts";
import { loop, loops, type Scratch, type Statement } from "../../abstraction/loop-nest.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { tileElements, tileOffset, tileRowElements } from "../../abstraction/memory-tile.ts";
import { substituteAxis } from "../../abstraction/rewrite-statement.ts";
import type { Conditions } from "../match/conditions.ts";
import { defineProblem } from "../match/problem.ts";
import { blockOf } from "../schedule/block.ts";
import type { NestedLoop } from "../schedule/cache-tiles.ts";
import type { LoopDimension } from "../schedule/dimensions.ts";
import { dependsOn, packedForm } from "../schedule/operands.ts";
import { tilesWithin } from "../schedule/within.ts";
import { fetchingAhead, isFew, type Region, regionsOf } from "./ahead.ts";
import { assign } from "./assign.ts";
import { type Chosen, chosenIn, type Steps, tileAxes, tileWalk } from "./chosen.ts";
import { edgeLoops } from "./edges.ts";
import type { FreshNames } from "./names.ts";
import { type Held, OperandTiles, type Position } from "./operand-tiles.ts";

/** The memory from which an operand's tiles are loaded. */
export interface Placed {
  readonly operand: Operand;
  readonly buffer: string;
  readonly stride: number;
  /** The first element of the tile at a position. */
  readonly base: (at: Position) => Expr;
  /**
   * The packed blocks on the edge of a condition, with zeros where the condition fails; undefined if no condition
   * applies to the operand, or if all of it is packed.
   */
  readonly edges?: Placed;
}

/**
 * The part of a dimension that the code being generated covers: blocks numbered by a loop, an edge block, the last
 * smaller block, or a single step.
 */
export interface Part {
  readonly outer: Expr;
  /** The number of its tile, and of the block within the tile, if the dimension is tiled. */
  readonly tile?: { readonly number: Expr; readonly block: Expr };
  /** The step within the block, if the part is a single step. */
  readonly inner?: number;
  readonly count: number;
  /** Whether a step of the part crosses a border; if `outer` is a loop, whether one of its blocks does. */
  readonly edge?: boolean;
  /** The number of a block whose steps cross the border in the same way. */
  readonly like?: number;
  /** Whether the last step is incomplete. */
  readonly partial: boolean;
}

/** By the names of dimensions. */
export type Parts = ReadonlyMap<string, Part>;

/** Consecutive blocks of a dimension that form one tile. */
export interface BlockRange {
  readonly tile: Expr;
  readonly first: Expr;
  readonly whole: number;
  /** Steps in the smaller block after the whole ones. */
  readonly left: number;
}

/** What the enclosing loops over tiles have fixed. */
export interface Tiles {
  readonly ranges: ReadonlyMap<string, BlockRange>;
  /** Whether sums begin in these tiles, and whether they end in them. */
  readonly first: Truth;
  readonly last: Truth;
}

export abstract class PackedTiles extends OperandTiles {
  readonly scratch: Scratch[] = [];
  readonly prepare: Statement[] = [];
  readonly pack: Statement[] = [];
  /** Statements that zero the copies made inside loops. */
  readonly zeros: Statement[] = [];
  /** What tiles packed inside a loop read in one step of it, but for a few lines. */
  readonly regions: Region[] = [];
  protected readonly mapping: Mapping;
  protected readonly computation: Computation;
  protected readonly names: FreshNames;
  protected readonly dimensions: readonly LoopDimension[];
  protected readonly conditions: Conditions;
  /** For each loop, the copies that are made inside it. */
  protected readonly within = new Map<string, ((parts: Parts, tiles: Tiles) => readonly Statement[])[]>();

  /** @param names shared with the code that writes the loops, so that names stay unique */
  constructor(
    mapping: Mapping,
    schedule: Schedule,
    loops: readonly NestedLoop[],
    names: FreshNames,
    conditions: Conditions,
  ) {
    super(defineProblem(mapping.computation, mapping.intrinsic, mapping.binding), schedule, loops);
    this.mapping = mapping;
    this.computation = mapping.computation;
    this.names = names;
    this.conditions = conditions;
    this.dimensions = loops.flatMap((l) => (l.tile === undefined ? [l.dimension] : []));
  }

  /**
   * Packs every tile of an operand in the order of the loops: outer blocks, then the steps of a block, then the tile.
   * @param edges writes only the blocks on the edge of the condition; the others are loaded from elsewhere
   */
  protected placeTiled(operand: Operand, element: Expr, edges = false): Placed {
    const { dtype, value: bound } = packedForm(operand, element, this.computation);
    const own = this.dimensions.filter((d) => dependsOn(this.mapping, operand.name, d));
    const loop = edges ? undefined : this.schedule.within?.[operand.name];
    const within =
      loop === undefined ? undefined : tilesWithin(this.mapping, this.schedule, operand.name, this.dimensions);
    if (typeof within === "string") throw new Error(`internal: ${within}`);
    const { around = [] } = within ?? {};
    const held: Held = new Map(around.map((a) => [a.dimension, a.of]));
    const { elements, base } = this.layout(own, tileElements(operand), held);
    const scope = loop === undefined ? "workspace" : "local";
    const buffer = this.allocate(`${operand.name}_${edges ? "edges" : "tiles"}`, dtype, elements, scope);
    const { inTile, inner } = tileAxes(operand, this.names);
    /** Assigns the element at a position in a tile, or the padding value. */
    const packed = (stepOf: (d: LoopDimension) => Expr, at: Position, value = bound, within = inTile): Statement => {
      const offset = substitute(tileOffset(operand), within, "index");
      const target = access(buffer, [plus(base(at), offset)]);
      const filled = this.element(operand, value, own, stepOf, within);
      return assign(target, filled);
    };
    const constant = inputsOf(this.computation).every((t) => t.constant || !printExpr(bound).includes(`${t.name}[`));
    if (edges) {
      const edge = {
        operand,
        own,
        conditions: this.conditions,
        inner,
        blockOf: (d: LoopDimension) => blockOf(this.schedule, d),
      };
      this.packing(constant).push(
        ...edgeLoops(edge, this.names, (stepOf, outer, within) =>
          packed(stepOf, (d) => this.placeIn(d, outer(d), within(d))),
        ),
      );
    } else {
      const found = constant ? undefined : chosenIn(bound, own);
      const chosen = found && held.has(found.dimension) ? undefined : found;
      type Walk = Parameters<PackedTiles["dealt"]>[0];
      type Dealt = (walk: Walk, body: readonly Statement[]) => readonly Statement[];
      const all = (dealt: Dealt, value: Expr, only?: Chosen, stepsOf?: (d: LoopDimension) => Steps | undefined) => {
        const { step, within, walk } = tileWalk(operand, own, this.names, only, stepsOf);
        const at: Position = (d) => {
          const block = number(blockOf(this.schedule, d));
          const local = stepsOf?.(d) === undefined ? step(d) : axis(this.names.fresh(`${d.name}_step`));
          if (held.get(d) === "block") return this.placeIn(d, number(0), local);
          return this.placeIn(d, over(local, block), remainder(local, block));
        };
        return dealt(walk, [packed(step, at, value, within)]);
      };
      if (loop !== undefined) {
        const regions = within === undefined ? [] : regionsOf(this.mapping, operand.name, within);
        this.regions.push(...regions.filter((r) => !isFew(r)));
        const few = regions.filter(isFew);
        this.makeWithin(loop, (parts, tiles) => {
          const stepsOf = (d: LoopDimension): Steps | undefined => this.stepsHeld(d, held.get(d), parts, tiles);
          const alone: Dealt = (walk, body) => this.alone(walk, body);
          const outer = (name: string): Expr => parts.get(name)?.outer ?? number(0);
          const first = all(alone, chosen?.otherwise ?? bound, undefined, stepsOf);
          const fetching = fetchingAhead(first, few, outer, { at: number(0), of: 1 });
          return chosen ? [...fetching, ...all(alone, chosen.value, chosen, stepsOf)] : fetching;
        });
      } else {
        const dealt: Dealt = (walk, body) => this.dealt(walk, body);
        const barrier = { kind: "barrier" } as const;
        const apart = chosen && [...all(dealt, chosen.otherwise), barrier, ...all(dealt, chosen.value, chosen)];
        this.packing(constant).push(...(apart ?? all(dealt, bound)));
      }
    }
    return { operand, buffer, stride: tileRowElements(operand), base };
  }

  /** The steps of a dimension that a buffer holds where the loops around it stand; undefined for one that it holds whole. */
  protected stepsHeld(
    d: LoopDimension,
    of: "block" | "tile" | undefined,
    parts: Parts,
    tiles: Tiles,
  ): Steps | undefined {
    const block = blockOf(this.schedule, d);
    const part = parts.get(d.name);
    const range = tiles.ranges.get(d.name);
    if (of === "block" && part) return { from: times(part.outer, block), count: part.count };
    if (of === "tile" && range) return { from: times(range.first, block), count: range.whole * block + range.left };
    if (of !== undefined) throw new Error(`internal: tiles of ${d.name} are packed outside of its loop`);
    return undefined;
  }

  protected makeWithin(loop: string, make: (parts: Parts, tiles: Tiles) => readonly Statement[]): void {
    this.within.set(loop, [...(this.within.get(loop) ?? []), make]);
  }

  protected packing(constant: boolean): Statement[] {
    return constant ? this.prepare : this.pack;
  }

  protected allocate(wish: string, dtype: DType, elements: number, scope: Scratch["scope"] = "workspace"): string {
    const name = this.names.fresh(wish);
    this.scratch.push({ name, dtype, elements, scope });
    return name;
  }

  /** Loops around a body that one thread runs by itself. */
  protected alone(walk: readonly Dimension[], body: readonly Statement[]): readonly Statement[] {
    const { moving, fixed } = movingLoops(walk, body);
    return walk.some((w) => w.extent === 0) ? [] : loops(moving, fixed);
  }

  /** Loops around a body. The first with more than one step is divided among threads. */
  protected dealt(walk: readonly Dimension[], body: readonly Statement[]): readonly Statement[] {
    const { moving, fixed } = movingLoops(walk, body);
    const [first, ...rest] = moving;
    if (walk.some((w) => w.extent === 0)) return [];
    if (!first) return [loop(this.names.fresh("once"), 1, fixed, "parallel")];
    return [loop(first.name, first.extent, loops(rest, fixed), "parallel")];
  }
}

/** The loops of a walk with more than one step, and the body with the counters of the others replaced by 0. */
function movingLoops(
  walk: readonly Dimension[],
  body: readonly Statement[],
): {
  readonly moving: readonly Dimension[];
  readonly fixed: readonly Statement[];
} {
  const still = walk.filter((w) => w.extent === 1);
  const fixed = body.map((s) => still.reduce((all, w) => substituteAxis(all, w.name, number(0)), s));
  return { moving: walk.filter((w) => w.extent > 1), fixed };
}
