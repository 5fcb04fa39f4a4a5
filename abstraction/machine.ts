/**
 * @file A machine as a value: everything that is true of it and that a schedule, a printer or a model asks for, each once.
 *
 *     H100    grid -> cluster -> block (132 multiprocessors) -> warpgroup -> warp -> lane
 *             dram -> l2 -> shared -> registers
 *             unit tensor: f16 4096 operations a cycle and block, of which mma.sync reaches 63 %
 *
 * `targets/` holds them, one file a family. A figure that no source gives is left out, never guessed.
 */

import type { DType } from "./dtype.ts";
import type { Intrinsic } from "./intrinsic.ts";

export interface Figure {
  readonly value: number;
  /** Where it comes from: a measurement with its machine, a manual, or the word "assumed". */
  readonly source: string;
}

/** What runs inside what: of a program on a GPU, or of the hardware of a CPU. */
export type LevelName = GpuLevel | CpuLevel;
export type GpuLevel = "grid" | "cluster" | "block" | "warpgroup" | "warp" | "lane";
export type CpuLevel = "socket" | "core" | "thread" | "vector";

export interface Level {
  readonly name: LevelName;
  /** What the hardware has for units of this level, inside one unit of the level outside; 1 for what is only a grouping. */
  readonly units: number;
  /** Units of this level inside one unit of the level outside that a program may ask for. */
  readonly most?: number;
  /** Units of this level that one unit of the hardware keeps at once, its registers and memory permitting. */
  readonly resident?: number;
  /** Whether all that runs inside one unit can wait for one another; the cycles it takes, and more for each unit that waits. */
  readonly barrier?: { readonly cycles: Figure; readonly cyclesPerUnit?: number };
  /** Feature that a program needs to speak of this level. */
  readonly feature?: string;
}

export interface Memory {
  readonly name: string;
  /** Programs name the elements of what is addressed; a cache holds what was used last. */
  readonly kind: "addressed" | "cache";
  /** A unit of the hardware of this level has one. */
  readonly at: LevelName;
  readonly bytes: Figure;
  /** What one unit of a level may take of it at most, and what it gets without asking. */
  readonly limits?: readonly {
    readonly of: LevelName;
    readonly bytes: number;
    readonly unasked?: number;
    /** Taken by the system from every such unit. */
    readonly reserved?: number;
    /** Taken in multiples of this. */
    readonly granule?: number;
  }[];
  readonly banks?: { readonly count: number; readonly bytes: number };
  /** Until a dependent instruction may use what was read. */
  readonly latencyCycles?: Figure;
  readonly bandwidth: readonly Bandwidth[];
  readonly copies?: readonly CopyForm[];
}

/** Bytes a second, or a cycle. */
export interface Bandwidth extends Figure {
  readonly per: "second" | "cycle";
  readonly direction: "read" | "write" | "both";
  /** A unit of this level gets so much; `grid` or `socket` stand for all together. */
  readonly of: LevelName;
}

/** A way from one memory into another. */
export interface CopyForm {
  readonly into: string;
  readonly name: "plain" | "cp.async" | "tma";
  /** Sizes one thread moves at once; for a copy engine, the multiple a row must be. */
  readonly bytes: readonly number[];
  /** What says that it has arrived: nothing (it is there when the statement is over), a group, or a barrier with a byte count. */
  readonly completes: "at once" | "group" | "barrier";
  readonly feature?: string;
  readonly latencyCycles?: Figure;
}

/** A feature instructions ask for. */
export interface Feature {
  readonly name: string;
  readonly summary: string;
  /** Compute capability it comes with, 80 for 8.0; `only` when later ones do not have it. */
  readonly capability: number;
  readonly only?: true;
  readonly source: string;
}

/** Part of the hardware that instructions run on: what it does in a cycle, or what a vector or warp instruction takes of it. */
export interface Unit {
  readonly name: string;
  /** One unit of the hardware of this level has it. */
  readonly at: LevelName;
  /** By type of the factors, a multiply and an add counted as two. */
  readonly operationsPerCycle?: Readonly<Partial<Record<DType, number>>>;
  /** Between two independent instructions. */
  readonly issueCycles?: number;
  /** Until a dependent instruction may start. */
  readonly latencyCycles?: number;
  readonly source: string;
}

/** What instructions of a family reach of a unit. */
export interface Rate {
  /** {@link Intrinsic.family}: `mma`, `wmma`, `wgmma`. */
  readonly family: string;
  readonly unit: string;
  /** Of the unit's operations; by extent of an axis of the instruction where it depends on it, ascending. */
  readonly share: Figure | ShareByExtent;
  readonly latencyCycles?: Figure;
  readonly feature: string;
}

export interface ShareByExtent {
  readonly axis: string;
  readonly points: readonly (readonly [extent: number, share: number])[];
  readonly source: string;
}

/** Time that is spent whatever the size. */
export interface FixedCost extends Figure {
  readonly per: "second" | "cycle";
}

export interface Target {
  readonly name: string;
  readonly summary: string;
  /** Features instructions ask for: `sm_80`, `cp_async`. */
  readonly isa: readonly string[];
  /** What a compiler is told: `-arch=sm_90a`. */
  readonly compilerFlags: readonly string[];
  readonly clockHz: Figure;
  /** What the power limit leaves of the clock while the matrix units are busy. */
  readonly loadedClockHz?: Figure;
  /** Outermost first. */
  readonly levels: readonly Level[];
  /** Outermost first. */
  readonly memories: readonly Memory[];
  readonly units: readonly Unit[];
  readonly rates: readonly Rate[];
  /** `launch`, `fill`, `drain` ... */
  readonly fixed: Readonly<Record<string, FixedCost>>;
  /** Clusters of so many blocks that run at once. */
  readonly clusters?: readonly (Figure & { readonly blocks: number })[];
}

/** @throws Error where the target has no such level */
export function levelOf({ name: target, levels }: Target, name: LevelName): Level {
  const found = levels.find((l) => l.name === name);
  if (!found) throw new Error(`internal: ${target} has no level "${name}"`);
  return found;
}

/** @throws Error where the target has no such memory */
export function memoryOf({ name: target, memories }: Target, name: string): Memory {
  const found = memories.find((m) => m.name === name);
  if (!found) throw new Error(`internal: ${target} has no memory "${name}"`);
  return found;
}

/** Bytes of a memory that one unit of a level may take at most: `shared` of a block, opt-in included. */
export function mostBytes(target: Target, memory: string, of: LevelName): number {
  const found = memoryOf(target, memory);
  const limit = found.limits?.find((l) => l.of === of);
  if (!limit) throw new Error(`internal: ${target.name} sets no limit on ${memory} of a ${of}`);
  return limit.bytes;
}

/** Bytes a second, or a cycle, that one unit of a level reads from a memory; undefined where no source says. */
export function readRate(target: Target, memory: string, of: LevelName): Bandwidth | undefined {
  return memoryOf(target, memory).bandwidth.find((b) => b.of === of && b.direction !== "write");
}

/**
 * Cycles between two independent issues of an instruction on one unit of the hardware: its operations over what its family reaches of its
 * unit's. Undefined where the target gives no rate for the family or the type.
 */
export function issueCyclesOn(target: Target, intrinsic: Intrinsic): Figure | undefined {
  const rate = target.rates.find((r) => r.family === intrinsic.family);
  const unit = rate && target.units.find((u) => u.name === rate.unit);
  const factors = intrinsic.operands.at(-1)?.dtype;
  const peak = factors && unit?.operationsPerCycle?.[factors];
  if (!rate || !peak) return undefined;
  const axes = intrinsic.computation.axes;
  const extent = (name: string): number => axes.find((a) => a.name === name)?.extent ?? 1;
  const operations = axes.reduce((product, a) => product * a.extent, 2);
  const { share } = rate;
  const reached = "value" in share ? share.value : interpolate(share.points, extent(share.axis));
  return { value: operations / (peak * reached), source: share.source };
}

/** Straight lines between the points; the first and last value beyond them. */
function interpolate(points: ShareByExtent["points"], at: number): number {
  const above = points.findIndex(([extent]) => extent >= at);
  const [x1, y1] = points[above < 0 ? points.length - 1 : above] ?? [at, 1];
  const [x0, y0] = points[above <= 0 ? 0 : above - 1] ?? [x1, y1];
  return above <= 0 || x1 === x0 ? y1 : y0 + ((y1 - y0) * (at - x0)) / (x1 - x0);
}
