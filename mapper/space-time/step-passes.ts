/**
 * @file The passes of a stencil in time over its planes: the number of steps of each, and the planes it reads and
 * writes.
 *
 *     pass u_0 -> u                        4 steps: what 100 leave over of passes of 8
 *     for pair in 0..6
 *       pass u -> between, between -> u    8 steps each: the last writes the output
 *
 * The memory of the rows of time steps: planes, or a ring that holds the newest rows of all steps of a pass but
 * the last.
 *
 *     rows[(row - step + 14) % 7 * pitch + column]          3 steps, of a star that reaches one row: each overwrites what it alone still needs
 *     rows[(row - 2 * step + 18) % 9 * pitch + column]      of another stencil
 */

import type { StepSchedule } from "../../abstraction/candidate.ts";
import { memoryElements, outputOf } from "../../abstraction/computation.ts";
import { bytesOf, type DType } from "../../abstraction/dtype.ts";
import {
  type Access,
  access,
  axis,
  border,
  type Expr,
  minus,
  number,
  plus,
  remainder,
  rewrite,
  substitute,
  times,
} from "../../abstraction/expression.ts";
import { assign, FreshNames, type LoopNest, loop, type Scratch, type Statement } from "../../abstraction/loop-nest.ts";
import type { PlaneAxis, Steps } from "./plane.ts";
import { keptRows, overwrites, shiftsOf } from "./step-lines.ts";

/** The memory that holds the values of a step. */
export type Source =
  /** A whole plane: a tensor, or memory of the kernel in the same order. */
  | { readonly kind: "plane"; readonly name: string }
  /** The newest rows of a step, counted from 0 within its pass. Each thread has its own ring. */
  | { readonly kind: "ring"; readonly name: string; readonly step: Expr };

/** One step of a pass, at a row. */
export interface Level {
  readonly depth: number;
  readonly from: Source;
  readonly to: Source;
  readonly isLast: boolean;
  /** The row's position along the swept axis, and along the tiled one. */
  readonly places: readonly Expr[];
  /** The origin of the tile. */
  readonly tile: Expr;
  /** The first row of the pass's input plane that the next turn of the sweep needs. The last step prefetches it. */
  readonly ahead?: { readonly plane: Source; readonly places: readonly Expr[] };
}

/** Bytes of a cache line. Row pitches are odd multiples of it, since rows at a power of two would share cache sets. */
const LINE_BYTES = 64;

/** The part of a schedule that says where rows are held. */
type Held = Pick<StepSchedule, "lanes" | "rows" | "depth"> & Partial<StepSchedule>;

export abstract class StepPasses<S extends Held> {
  protected readonly steps: Steps;
  protected readonly schedule: S;
  protected readonly dtype: DType;
  protected readonly names: FreshNames;
  protected readonly lane: PlaneAxis;
  /** Axes of the rows: the first is swept, the second is tiled. */
  protected readonly rows: readonly PlaneAxis[];
  /** The share of the rows that a thread sweeps. */
  protected readonly chunk: Expr;

  constructor(steps: Steps, schedule: S) {
    this.steps = steps;
    this.schedule = schedule;
    this.dtype = outputOf(steps.computation).dtype;
    this.names = new FreshNames(steps.computation);
    const lane = steps.axes.at(-1);
    if (!lane) throw new Error("internal: a plane without axes");
    this.lane = lane;
    this.rows = steps.axes.slice(0, -1);
    this.chunk = (schedule.threads ?? 1) > 1 ? axis(this.names.fresh("chunk")) : number(0);
  }

  /** Rows of a tile. */
  protected tileOf(): number {
    const [, tiled] = this.rows;
    if (!tiled) return 1;
    const { strip = 0 } = this.schedule;
    return strip > 0 ? Math.min(strip, tiled.extent) : tiled.extent;
  }

  protected element(of: Source, level: Level, at: readonly Expr[]): Access {
    const extents = this.steps.axes.map((a) => a.extent);
    if (of.kind === "plane") {
      const inside = at.map((e, d) =>
        d < at.length - 1 && e.kind !== "border" ? border("clamp", e, extents[d] ?? 1) : e,
      );
      if (Object.hasOwn(this.steps.computation.tensors, of.name)) return access(of.name, inside);
      return access(of.name, [
        inside.reduce((flat, e, d) => (d === 0 ? e : plus(times(flat, extents[d] ?? 1), e)), number(0)),
      ]);
    }
    const [row = number(0), middle] = at;
    const column = at.at(-1) ?? number(0);
    const [swept, tiled] = this.rows;
    const slots = this.slots();
    const reach = swept?.reach ?? 0;
    const later = keptRows(this.steps) - reach;
    // Positions above the plane are negative. An offset keeps the dividend positive.
    const before = slots * Math.ceil(((2 * reach + later) * level.depth) / slots);
    const place = minus(plus(row, before), times(of.step, later));
    const slot = remainder(place, slots);
    const pitch = this.pitch();
    const ring = times(this.chunk, this.ringElements());
    if (!tiled || middle === undefined) return access(of.name, [plus(plus(ring, times(slot, pitch)), column)]);
    const halo = (level.depth - 1) * tiled.reach;
    const high = this.tileOf() + 2 * halo;
    const inTile = plus(minus(middle, level.tile), halo);
    const line = plus(times(slot, high), inTile);
    return access(of.name, [plus(plus(ring, times(line, pitch)), column)]);
  }

  /** The value of a step at some coordinates. @param read an element of the step before, so far from the one that is computed */
  protected valueAt(coordinates: readonly Expr[], read: (shifts: readonly number[]) => Expr): Expr {
    const { time, axes } = this.steps;
    // Plane reads are substituted first, while their indices are still the plain positions.
    const reads: Expr[] = [];
    const held = this.names.fresh("held");
    const apart = rewrite(
      time.step.equation.value,
      (e) => {
        if (e.kind !== "access" || e.tensor !== time.first) return e;
        reads.push(read(shiftsOf(e)));
        return access(held, [number(reads.length - 1)]);
      },
      "value",
    );
    const put = (e: Expr): Expr =>
      e.kind === "access" && e.tensor === held && e.index[0]?.kind === "number" ? (reads[e.index[0].value] ?? e) : e;
    const places = new Map(axes.map(({ name }, d) => [name, coordinates[d] ?? number(0)]));
    return rewrite(substitute(apart, places, "value"), put, "value");
  }

  /** A row of zeros. */
  protected zeros(level: Level): readonly Statement[] {
    const column = this.names.fresh(`${this.lane.name}_column`);
    const target = this.element(level.to, level, [...level.places, axis(column)]);
    return [loop(column, this.lane.extent, [assign(target, number(0))])];
  }

  /** The elements of the rings of all steps but the last, for passes of any depth. */
  protected ringElements(): number {
    const [, tiled] = this.rows;
    const high = tiled ? this.tileOf() + 2 * (this.schedule.depth - 1) * tiled.reach : 1;
    return this.slots() * high * this.pitch();
  }

  private slots(): number {
    const kept = keptRows(this.steps);
    // A turn writes the newest planes of a step before the next step has read the oldest.
    const newest = this.schedule.rows - (overwrites(this.steps) ? 0 : 1);
    return kept * (this.schedule.depth - 1) + newest;
  }

  /** Elements from one row to the next: an odd number of whole cache lines. */
  protected pitch(): number {
    const line = LINE_BYTES / bytesOf(this.dtype);
    const lines = Math.ceil(this.lane.extent / line);
    return line * (lines % 2 === 0 ? lines + 1 : lines);
  }
  /** A pass of `depth` steps from one plane to another. */
  protected abstract pass(from: Source, to: Source, depth: number): readonly Statement[];

  /** Statements between passes; none for a single thread. */
  protected readonly between: readonly Statement[] = [];

  /** Memory and registers in addition to the planes. */
  protected abstract held(): Pick<LoopNest, "scratch" | "vectors" | "deal">;

  nest(): LoopNest {
    const { time, computation } = this.steps;
    const output = outputOf(computation);
    const { depth } = this.schedule;
    const plane = (name: string): Source => ({ kind: "plane", name });
    const [first, last, between] = [time.first, output.name, this.names.fresh("between")].map(plane);
    if (!first || !last || !between) throw new Error("internal: planes have names");
    const follow = (...passes: readonly (readonly Statement[])[]): Statement[] =>
      passes.flatMap((pass, i) => (i === 0 ? pass : [...this.between, ...pass]));

    // The first pass takes the steps that full passes leave over. The last pass writes the output.
    const rest = time.steps % depth || depth;
    const more = (time.steps - rest) / depth;
    const passes = [this.pass(first, more % 2 === 0 ? last : between, rest)];
    const pairs = Math.floor(more / 2);
    if (more % 2 === 1) passes.push(this.pass(between, last, depth));
    if (pairs > 0) {
      const pair = [...follow(this.pass(last, between, depth), this.pass(between, last, depth)), ...this.between];
      passes.push([loop(this.names.fresh("pair"), pairs, pair)]);
    }
    const body = follow(...passes);
    const { scratch, ...held } = this.held();
    const spare: Scratch = {
      name: between.name,
      elements: memoryElements(output),
      dtype: this.dtype,
      scope: "workspace",
      holds: "result",
      ...this.shaped,
    };
    return {
      scratch: more > 0 ? [spare, ...scratch] : scratch,
      registers: [],
      prepare: [],
      body,
      ...held,
    };
  }

  /** Dimensions of the second plane. By default it has a flat index. */
  protected readonly shaped: Pick<Scratch, "dims" | "outside"> = {};
}
