/**
 * @file The memory from which a schedule loads operands (the tensor, a copy, or packed tiles), and the loops that fill the copies.
 *
 *     in padded          pack      for n, h, w, c: in_padded[...] <- in[...]             once a call; zeros around it stay
 *     w tiled            prepare   for k, c, n_inner, k_inner: b_tiles[...] <- w[...]    ahead of time: w is constant
 *     in within p/4      in the loop over p/4: in_padded[...] <- what its step reads     a copy a step, a thread
 *
 * Each gives the address of a tile for the current position of the loops.
 *
 * Packs the tiles of an operand: once per call, ahead of time if the operand is constant, or in each step of a loop outside.
 *
 *     w tiled            prepare: for k, c, n_inner, k_inner: b_tiles[...] <- w[...]
 *     b tiled within n   in the loop over n: b_tiles[...] <- e[n, ...]      each thread for itself; lines of the next step are fetched meanwhile
 *
 * Packs the blocks of an input that a condition cuts, with zeros where the condition fails. All other blocks are
 * loaded in place.
 *
 *     c[i,j] += a[i,k] * b[k,j] where k <= i          block i 2 of 16, k 1 of 64, a in place
 *
 *       for i_edge in 0..11
 *         for k_edge in 0..min(6, (32*i_edge + 95)/64)         blocks with at least one point inside
 *           when 32*i_edge < 64*k_edge + 63                    and at least one outside
 *             for i_step in 0..2, m_inner in 0..16, k_inner in 0..64
 *               a_edges[...] = select(64*k_edge + k_inner <= 32*i_edge + 16*i_step + m_inner, a[...], 0)
 *
 * Edge blocks have the addresses that they would have if all tiles were packed. The memory between them is never
 * touched.
 *
 * Packs a value that differs at one step of a loop: everything is packed with the one value first, then that step
 * is overwritten with the other. When several inputs are concatenated along a loop, each is thus copied directly,
 * without tests inside the loops.
 *
 *     select(j == 0, d[b,k], e[b,j-1,k])      ->      e[b,j-1,k] at every j, of which j = 0 lies outside;  then d[b,k] at j = 0
 */

import type { Dimension } from "../../abstraction/affine.ts";
import type { Placement, Schedule } from "../../abstraction/candidate.ts";
import { hasName, mapValues, sortedBy, withName } from "../../abstraction/collections.ts";
import { type Computation, inputsOf, keptIn, type Tensor, tensorOf } from "../../abstraction/computation.ts";
import type { Truth } from "../../abstraction/condition.ts";
import { bytesOf, type DType } from "../../abstraction/dtype.ts";
import { internal } from "../../abstraction/error.ts";
import {
  type Access,
  access,
  axesIn,
  axis,
  compare,
  type Expr,
  minus,
  number,
  over,
  plus,
  printExpr,
  remainder,
  rewriteReads,
  select,
  substitute,
  times,
} from "../../abstraction/expression.ts";
import type { Operand } from "../../abstraction/intrinsic.ts";
import {
  assign,
  type FreshNames,
  loop,
  loops,
  type MadeElements,
  type Scratch,
  type Statement,
} from "../../abstraction/loop-nest.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { tileElements, tileOffset, tileRowElements } from "../../abstraction/memory-tile.ts";
import { substituteAxis } from "../../abstraction/rewrite-statement.ts";
import { halfPlaces, numbersTaken, takenBy } from "../../targets/registers.ts";
import {
  type Conditions,
  partsPackedIn,
  type Stretch,
  scheduledParts,
  when,
  wholeStretch,
} from "../match/conditions.ts";
import { defineProblem } from "../match/problem.ts";
import { blockOf } from "../schedule/block.ts";
import { blocksOf, type NestedLoop, partialReach } from "../schedule/cache-tiles.ts";
import { dependsOn, digitsOf, type LoopDimension } from "../schedule/dimensions.ts";
import { ELEMENT, type MadeForm, type PackedForm, packedForm, partOperand } from "../schedule/packed-form.ts";
import { type PaddedCopy, type Reach, reachExpr, reachInPlace, reachPadded, reachWindowed } from "../schedule/reach.ts";
import { type Around, copyWithin, type Moved, movedBy, STILL, tilesWithin } from "../schedule/within.ts";
import { FETCHED_BYTES, fetchingAhead, isFew, type Region, regionsOf } from "./ahead.ts";
import { copyParts } from "./copies.ts";
import { type Held, OperandTiles, type Position } from "./operand-tiles.ts";

/** The memory from which an operand's tiles are loaded. */
export interface Placed {
  readonly operand: Operand;
  readonly buffer: string;
  readonly stride: number;
  /** The first element of the tile at a position. */
  readonly base: (at: Position) => Expr;
  /** Bytes of an element of a large constant that is packed once, ahead of all calls; undefined for others. */
  readonly elementBytes?: number;
  /**
   * The packed blocks on the edge of a condition, with zeros where the condition fails; undefined if no condition
   * applies to the operand, or if all of it is packed.
   */
  readonly edges?: Placed;
  /** What a load at a position makes of the elements of its tile, if anything. */
  readonly made?: (at: Position) => MadeElements;
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
  protected placeTiled(operand: Operand, edges = false): Placed {
    const form = packedForm(this.mapping, operand.name);
    if (form.made) return this.placeMade(operand, form, form.made);
    const { dtype, value: bound } = form;
    const own = this.dimensions.filter((d) => dependsOn(this.mapping, operand.name, d));
    const loop = edges ? undefined : this.schedule.within?.[operand.name];
    const within =
      loop === undefined ? undefined : tilesWithin(this.mapping, this.schedule, operand.name, this.dimensions);
    if (typeof within === "string") internal(`${within}`);
    const { around = [] } = within ?? {};
    const held: Held = new Map(around.map((a) => [a.dimension, a.of]));
    const { elements, base } = this.layout(own, tileElements(operand), held);
    const constant = inputsOf(this.computation).every((t) => t.constant || !printExpr(bound).includes(`${t.name}[`));
    const scope = loop !== undefined ? "local" : constant ? "workspace" : "scratch";
    const buffer = this.allocate(`${operand.name}_${edges ? "edges" : "tiles"}`, dtype, elements, scope);
    const { inTile, inner } = tileAxes(operand, this.names);
    /** Assigns the element at a position in a tile, or the padding value. */
    const packed = (stepOf: (d: LoopDimension) => Expr, at: Position, value = bound, within = inTile): Statement => {
      const offset = substitute(tileOffset(operand), within, "index");
      const target = access(buffer, [plus(base(at), offset)]);
      const filled = this.element(operand, value, own, stepOf, within);
      return assign(target, filled);
    };
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
        const at: Position = (d) =>
          this.placeHeld(d, stepsOf?.(d) === undefined ? step(d) : this.stepOf(d), held.get(d));
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
    const once = constant && loop === undefined && !edges && elements * bytesOf(dtype) >= FETCHED_BYTES;
    return { operand, buffer, stride: tileRowElements(operand), base, ...(once && { elementBytes: bytesOf(dtype) }) };
  }

  /** Packs what each load makes an operand's elements of, all ahead of time. Parts that differ from lane to lane have tiles of their own. */
  private placeMade(operand: Operand, form: PackedForm, { value, parts }: MadeForm): Placed {
    const used = (e: Expr): ReadonlySet<string> => new Set(axesIn(e));
    const dimensionsOf = (axes: ReadonlySet<string>): LoopDimension[] =>
      this.dimensions.filter((d) => d.loops.some((l) => axes.has(l.name)));
    const own = this.dimensions.filter((d) => dependsOn(this.mapping, operand.name, d));
    const stored = this.packAhead(operand, `${operand.name}_tiles`, form, own);
    const packed = mapValues(parts, (part, name) => {
      const whole = { dtype: operand.dtype, bytes: bytesOf(operand.dtype), value: part };
      return this.packAhead(partOperand(operand), `${operand.name}_${name}`, whole, dimensionsOf(used(part)));
    });
    const lane = this.names.fresh(`${operand.name}_lane`);
    const element = this.names.fresh("element");
    const made = (at: Position): MadeElements => {
      const first = new Map(own.flatMap((d) => digitsOf(d, times(this.stepAt(d, at), d.step))));
      const read = (a: Access): Expr => {
        const part = packed[a.tensor];
        if (part) return access(part.buffer, [plus(part.base(at), takenBy(operand, axis(lane)))]);
        return a.tensor === ELEMENT.tensor ? access(element, []) : a;
      };
      const halves = form.bytes < 1 ? { halves: numbersTaken(operand) } : {};
      return { lane, element, value: rewriteReads(substitute(value, first), read), ...halves };
    };
    const placed: Placed = { operand, ...stored, stride: tileRowElements(operand), made };
    const loop = this.schedule.within?.[operand.name];
    return loop === undefined ? placed : this.makeTiles(placed, own, loop);
  }

  /** Tiles of what loads make of others, made in each step of a loop. Products load them as they are. */
  private makeTiles(from: Placed, own: readonly LoopDimension[], loop: string): Placed {
    const { operand, stride } = from;
    const within = tilesWithin(this.mapping, this.schedule, operand.name, this.dimensions);
    if (typeof within === "string") internal(`${within}`);
    const held: Held = new Map(within.around.map((a) => [a.dimension, a.of]));
    const { elements, base } = this.layout(own, tileElements(operand), held);
    const buffer = this.allocate(`${operand.name}_made`, operand.dtype, elements, "local");
    const register = { file: this.names.fresh(`${operand.name}_register`), index: number(0) };
    this.makeWithin(loop, (parts, tiles) => {
      const local: Position = (d) => this.placeHeld(d, this.stepOf(d), held.get(d));
      const source: Position = (d) => {
        const { outer, inner } = local(d);
        const of = held.get(d);
        const first = of === "block" ? parts.get(d.name)?.outer : of && tiles.ranges.get(d.name)?.first;
        return this.placeIn(d, plus(first ?? 0, outer), inner);
      };
      const counts = own.map((d) => ({
        name: this.names.fresh(`${d.name}_step`),
        extent: this.stepsHeld(d, held.get(d), parts, tiles)?.count ?? d.steps,
      }));
      const made = from.made && { made: from.made(source) };
      return this.alone(counts, [
        { kind: "load", register, memory: { buffer: from.buffer, base: from.base(source), stride }, ...made },
        { kind: "store", register, memory: { buffer, base: base(local), stride } },
      ]);
    });
    return { operand, buffer, stride, base };
  }

  private stepOf(d: LoopDimension): Expr {
    return axis(this.names.fresh(`${d.name}_step`));
  }

  /** The position of a step among those that a buffer holds. */
  private placeHeld(d: LoopDimension, step: Expr, of: "block" | "tile" | undefined): ReturnType<Position> {
    const block = number(blockOf(this.schedule, d));
    return of === "block"
      ? this.placeIn(d, number(0), step)
      : this.placeIn(d, over(step, block), remainder(step, block));
  }

  /** Tiles of values, packed ahead of time. */
  private packAhead(
    operand: Operand,
    wish: string,
    { dtype, bytes, value }: PackedForm,
    own: readonly LoopDimension[],
  ): { readonly buffer: string; readonly base: (at: Position) => Expr } {
    const isHalved = bytes < 1;
    const { elements, base } = this.layout(own, tileElements(operand) / (isHalved ? 2 : 1));
    const buffer = this.allocate(wish, dtype, elements);
    const { step, within, walk } = tileWalk(operand, own, this.names);
    const at: Position = (d) => {
      const block = number(blockOf(this.schedule, d));
      return this.placeIn(d, over(step(d), block), remainder(step(d), block));
    };
    const filled = this.element(operand, value, own, step, within);
    const lane = substitute(tileOffset(operand), within, "index");
    if (!isHalved) {
      this.prepare.push(...this.dealt(walk, [assign(access(buffer, [plus(base(at), lane)]), filled)]));
      return { buffer, base };
    }
    // One thread packs a tile: it writes the low half of a byte, then adds the high one.
    const { byte, half } = halfPlaces(operand, lane);
    const place = access(buffer, [plus(base(at), byte)]);
    const both = select(compare("==", half, 0), filled, plus(place, times(16, filled)));
    const tile = this.alone(walk.slice(own.length), [assign(place, both)]);
    this.prepare.push(...this.dealt(walk.slice(0, own.length), tile));
    return { buffer, base };
  }

  /** The number of a dimension's step at a position. */
  private stepAt(d: LoopDimension, at: Position): Expr {
    const { outer, inner } = at(d);
    return plus(times(outer, blockOf(this.schedule, d)), inner);
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
    if (of !== undefined) internal(`tiles of ${d.name} are packed outside of its loop`);
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

export class OperandPlacement extends PackedTiles {
  place(operand: Operand): Placed {
    const bound = this.mapping.binding[operand.name];
    const placement = this.schedule.placement[operand.name];
    if (bound === undefined || placement === undefined) internal(`${operand.name} is not placed`);
    if (placement === "tiled" || bound.kind !== "access") return this.placeTiled(operand);
    const plain = this.placePlain(operand, bound, placement);
    const keepsOut = partsPackedIn(scheduledParts(this.problem), operand.name).length > 0;
    return keepsOut ? { ...plain, edges: this.placeTiled(operand, true) } : plain;
  }

  /** Places an operand in the tensor itself, or in a copy made once a call. */
  private placePlain(operand: Operand, bound: Access, placement: Exclude<Placement, "tiled">): Placed {
    const { computation, mapping, dimensions } = this;
    const loaded = { mapping, operand, access: bound, dimensions };
    if (placement === "in-place") {
      const reach = reachInPlace(loaded);
      if (typeof reach === "string") internal(`${reach}`);
      return this.reached(operand, bound.tensor, reach);
    }
    if (this.schedule.within?.[operand.name] !== undefined) return this.placeWithin(operand, bound);
    const reachCopy = placement === "padded" ? reachPadded : reachWindowed;
    const padded = reachCopy(loaded);
    if (typeof padded === "string") internal(`${padded}`);
    const tensor = tensorOf(computation, bound.tensor);
    const buffer = this.allocate(this.copyName(tensor, operand), operand.dtype, padded.copy.elements);
    const walks = this.copyPadded(tensor, bound, padded.copy, buffer);
    this.packing(tensor.constant).push(...walks.flatMap(({ walk, body }) => this.dealt(walk, body)));
    return this.reached(operand, buffer, padded.reach);
  }

  /**
   * Places an operand in a copy that each step of a loop makes anew. Its borders differ from step to step, so they are
   * written too.
   */
  private placeWithin(operand: Operand, bound: Access): Placed {
    const found = copyWithin(this.mapping, this.schedule, operand.name, this.dimensions);
    if (typeof found === "string") internal(`${found}`);
    const { copy, reach, around } = found;
    const tensor = tensorOf(this.computation, bound.tensor);
    const buffer = this.names.fresh(this.copyName(tensor, operand));
    this.scratch.push({ name: buffer, dtype: operand.dtype, elements: copy.elements, scope: "local" });
    const every = this.names.fresh(`${buffer}_zero`);
    this.zeros.push(loop(every, copy.elements, [assign(access(buffer, [axis(every)]), number(0))]));
    const name = this.schedule.within?.[operand.name] ?? "";
    const make = (parts: Parts, tiles: Tiles): readonly Statement[] => {
      const first = ({ dimension: d, of }: Around): Expr => {
        const block = of === "block" ? parts.get(d.name)?.outer : tiles.ranges.get(d.name)?.first;
        return times(block ?? 0, blockOf(this.schedule, d));
      };
      const written = this.copyPadded(tensor, bound, copy, buffer, movedBy(around, first));
      return written.flatMap(({ walk, body }) => this.alone(walk, body));
    };
    this.makeWithin(name, make);
    return this.reached(operand, buffer, reach, around);
  }

  /**
   * An operand at the affine position `reach` of a buffer.
   * @param around loops whose positions the buffer already accounts for
   */
  reached(operand: Operand, buffer: string, reach: Reach, around: readonly Around[] = []): Placed {
    const base = (at: Position): Expr =>
      reachExpr(reach, (name) => {
        const d = this.dimension(name);
        const { outer, inner, inTile } = at(d);
        const of = around.find((a) => a.dimension === d)?.of;
        if (of === "block") return inner;
        return plus(times(of === "tile" ? inTile : outer, blockOf(this.schedule, d)), inner);
      });
    return { operand, buffer, stride: reach.stride, base };
  }

  /**
   * Copies only what is inside the tensor; the border was zeroed once and stays. Dimensions that enclosing loops shift
   * are copied whole, with zeros for what is outside at this step.
   */
  private copyPadded(
    tensor: Tensor,
    bound: Access,
    copy: PaddedCopy,
    buffer: string,
    moved: Moved = STILL,
  ): readonly { readonly walk: readonly Dimension[]; readonly body: readonly Statement[] }[] {
    const counter = (name: string): string => this.names.fresh(`${name}_copy`);
    const at = ({ name, from }: { name: string; from: number }): Expr => plus(axis(counter(name)), from);
    return copyParts(tensor, bound, copy, moved).map(({ held, apart }) => {
      const values = new Map(apart.map((l) => [l.name, at(l)]));
      const place = [
        ...held.map((h) => ({ at: at({ name: h.name, from: h.from - h.low }), stride: h.stride })),
        ...apart.map((l) => ({ at: at(l), stride: l.stride })),
      ].reduce<Expr>((sum, { at, stride }) => plus(sum, times(at, stride)), number(0));
      const index = tensor.dims.map((d, i) => {
        const h = withName(held, d.name);
        const e = bound.index[i] ?? number(0);
        return moved.from(e, h ? at(h) : substitute(e, values, "index"));
      });
      const walk = sortedBy([...held, ...apart], (a) => -a.stride);
      return {
        walk: walk.map(({ name, extent }) => ({ name: counter(name), extent })),
        body: [assign(access(buffer, [place]), access(tensor.name, index))],
      };
    });
  }

  /** `x_padded`. If both inputs read the same tensor, each has its own copy, and the second is `x_padded_b`. */
  private copyName({ name: tensor }: Tensor, { name: operand }: Operand): string {
    const name = `${tensor}_${this.schedule.placement[operand]}`;
    return hasName(this.scratch, this.names.fresh(name)) ? `${name}_${operand}` : name;
  }

  /**
   * Places sums between passes: in the output, if it has the layout that the instruction stores; otherwise in packed
   * tiles.
   */
  placePartialSums(target: Operand): Placed {
    const { computation, mapping } = this;
    const spatial = keptIn(this.dimensions);
    const reach = partialReach(mapping, this.schedule);
    if (reach !== undefined) return this.reached(target, computation.equation.target.tensor, reach);
    const { elements, base } = this.layout(spatial, tileElements(target));
    const buffer = this.allocate(`${target.name}_partial`, target.dtype, elements, "scratch");
    return { operand: target, buffer, stride: tileRowElements(target), base };
  }

  /** The copies that each step of a loop makes. */
  copiesWithin(loop: string, parts: Parts, tiles: Tiles): readonly Statement[] {
    return (this.within.get(loop) ?? []).flatMap((make) => make(parts, tiles));
  }

  dimension(name: string): LoopDimension {
    const found = withName(this.dimensions, name) ?? internal(`no dimension ${name}`);
    return found;
  }
}

interface PackedEdge {
  readonly operand: Operand;
  /** The dimensions that index the operand, kept ones first. */
  readonly own: readonly LoopDimension[];
  readonly conditions: Conditions;
  /** Loops over the elements of a tile. */
  readonly inner: readonly Dimension[];
  /** Steps in a block. */
  readonly blockOf: (d: LoopDimension) => number;
}

type ByDimension = (d: LoopDimension) => Expr;

/**
 * Loops over the edge blocks of an input, the outermost divided among threads.
 * @param packed assigns one element, given the step, the block, and the step within the block of each dimension
 */
function edgeLoops(
  { operand, own, conditions, inner, blockOf }: PackedEdge,
  names: FreshNames,
  packed: (stepOf: ByDimension, outer: ByDimension, within: ByDimension) => Statement,
): readonly Statement[] {
  const count = (d: LoopDimension): number => blocksOf(d, blockOf(d));
  const counter = (d: LoopDimension, kind: string, extent: number): Expr =>
    extent === 1 ? number(0) : axis(names.fresh(`${d.name}_${kind}`));
  const outer = (d: LoopDimension): Expr => counter(d, "edge", count(d));
  const within = (d: LoopDimension): Expr => counter(d, "step", blockOf(d));
  const first = (d: LoopDimension): Expr => times(outer(d), blockOf(d));
  const stepOf = (d: LoopDimension): Expr => plus(first(d), within(d));

  // 1. One block: its steps (fewer in the last block), then the elements of a tile.
  const moving = own.filter((d) => blockOf(d) > 1);
  const steps = moving.reduceRight<readonly Statement[]>(
    (body, d) => {
      const all = loop(names.fresh(`${d.name}_step`), blockOf(d), body);
      const isEven = d.steps % blockOf(d) === 0;
      return [isEven ? all : { ...all, range: { from: [], to: [minus(d.steps, first(d))] } }];
    },
    loops(
      inner.filter((l) => l.extent > 1),
      [packed(stepOf, outer, within)],
    ),
  );

  // 2. The blocks. The range of each dimension depends on the dimensions before it.
  const stretchAfter =
    (known: number) =>
    (d: LoopDimension): Stretch => {
      const elements = blockOf(d) * d.step;
      if (own.indexOf(d) >= known || !own.includes(d)) return wholeStretch(d);
      return { low: times(outer(d), elements), elements, grain: elements };
    };
  const outermost = own.findIndex((d) => count(d) > 1);
  const blocks = own.reduceRight<readonly Statement[]>(
    (body, d, i) => {
      if (count(d) === 1) return body;
      const all = loop(names.fresh(`${d.name}_edge`), count(d), body, i === outermost ? "parallel" : "serial");
      const range = i > outermost && conditions.blocksOfInput(operand.name, d, stretchAfter(i), count(d));
      return [range ? { ...all, range } : all];
    },
    when(conditions.isAcross(operand.name, stretchAfter(own.length)), steps),
  );
  return outermost >= 0 || blocks.length === 0 ? blocks : [loop(names.fresh("once"), 1, blocks, "parallel")];
}

/** A `select` on one loop counter: the value at step `at` of that loop, and the value at all other steps. */
interface Chosen {
  readonly dimension: LoopDimension;
  readonly at: number;
  readonly value: Expr;
  readonly otherwise: Expr;
}

/** The parts of such a `select`; undefined for any other value. The loop must be a dimension of its own. */
function chosenIn(value: Expr, dimensions: readonly LoopDimension[]): Chosen | undefined {
  if (value.kind !== "select" || value.condition.kind !== "compare" || value.condition.op !== "==") return undefined;
  const { left, right } = value.condition;
  if (left.kind !== "axis" || right.kind !== "number") return undefined;
  const dimension = dimensions.find((d) => d.loops.length === 1 && d.loops[0]?.name === left.name);
  if (dimension === undefined || right.value < 0 || right.value >= dimension.extent) return undefined;
  return { dimension, at: right.value, value: value.whenTrue, otherwise: value.whenFalse };
}

/** The position of an element in its tile along each axis of the operand, and the loops over these positions. */
function tileAxes(
  { dims }: Operand,
  names: FreshNames,
): { readonly inTile: ReadonlyMap<string, Expr>; readonly inner: readonly Dimension[] } {
  const innerName = (name: string): string => names.fresh(`${name}_inner`);
  return {
    inTile: new Map(dims.map((o) => [o.name, o.extent > 1 ? axis(innerName(o.name)) : number(0)])),
    inner: dims.map((o) => ({ name: innerName(o.name), extent: o.extent })),
  };
}

/** Some consecutive steps of a dimension. */
interface Steps {
  readonly from: Expr;
  readonly count: number;
}

/**
 * Loops over the steps of dimensions and the elements of a tile, and the position they stand for.
 * @param only restricts one dimension to this step
 * @param stepsOf the steps to loop over, where they are not all
 */
function tileWalk(
  operand: Operand,
  own: readonly LoopDimension[],
  names: FreshNames,
  only?: Pick<Chosen, "at" | "dimension">,
  stepsOf: (d: LoopDimension) => Steps | undefined = () => undefined,
): {
  readonly step: (d: LoopDimension) => Expr;
  readonly within: ReadonlyMap<string, Expr>;
  readonly walk: readonly Dimension[];
} {
  const { inTile, inner } = tileAxes(operand, names);
  const stepName = (d: LoopDimension): string => names.fresh(`${d.name}_step`);
  const step = (d: LoopDimension): Expr =>
    d === only?.dimension ? number(Math.floor(only.at / d.step)) : plus(stepsOf(d)?.from ?? 0, axis(stepName(d)));
  const fixed = only?.dimension.axis;
  const within = new Map(inTile);
  if (only && fixed !== undefined) within.set(fixed, number(only.at % only.dimension.step));
  const steps = own
    .filter((d) => d !== only?.dimension)
    .map((d) => ({ name: stepName(d), extent: stepsOf(d)?.count ?? d.steps }));
  return { step, within, walk: [...steps, ...inner.filter((_, i) => operand.dims[i]?.name !== fixed)] };
}
