/**
 * @file A machine as a value: each fact about it that a schedule, a printer or a model needs, stated once.
 *
 *     H100    grid -> cluster -> block (132 multiprocessors) -> warpgroup -> warp -> lane
 *             dram -> l2 -> shared -> registers
 *             unit tensor: f16 4096 operations a cycle and block, of which mma.sync reaches 63 %
 *
 * `targets/` holds them, one file a family. A figure that no source gives is left out, never guessed.
 */

import type { Extents } from "./affine.ts";
import type { DType } from "./dtype.ts";
import type { Cost, Intrinsic } from "./intrinsic.ts";
import { memoisedPair } from "./memoised.ts";

export interface Figure {
  readonly value: number;
  /** Where it comes from: a measurement with its machine, a manual, or the word "assumed". */
  readonly source: string;
}

/** What runs inside what: of a program on a GPU, or of the hardware of a CPU. */
export type LevelName = GpuLevel | CpuLevel;
export type GpuLevel = "grid" | "cluster" | "block" | "warpgroup" | "warp" | "lane";
export type CpuLevel = "socket" | "core" | "thread" | "vector";

/** One level of a machine: a grid, a block, a warp; a socket, a core, a vector. */
export interface Level {
  /** As `Target.levels` and schedules name it. */
  readonly name: LevelName;
  /** What the hardware has for units of this level, inside one unit of the level outside; 1 for what is only a grouping. */
  readonly units: number;
  /** Units of this level inside one unit of the level outside that a program may ask for. */
  readonly most?: number;
  /** Units of this level that one unit of the hardware keeps at once, its registers and memory permitting. */
  readonly resident?: number;
  /** Whether all that runs inside one unit can wait for one another. */
  readonly synchronises?: true;
  /** The cycles it takes where a source says so, and more for each unit that waits. */
  readonly barrier?: { readonly cycles: Figure; readonly cyclesPerUnit?: number };
  /** Feature that a program needs to speak of this level. */
  readonly feature?: string;
}

/** One memory of a machine: main memory, a cache, the shared memory of a block. */
export interface Memory {
  /** As the model and `automap calibrate` name it. */
  readonly name: string;
  /** Programs name the elements of what is addressed; a cache holds what was used last. */
  readonly kind: "addressed" | "cache";
  /** A unit of the hardware of this level has one. */
  readonly at: LevelName;
  /** How many the machine has, where several units share one or Linux tells. */
  readonly count?: number;
  /** Left out for what holds everything. */
  readonly bytes?: Figure;
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
  /** Banks that serve one word each at a time. */
  readonly banks?: { readonly count: number; readonly bytes: number };
  /** Bytes that move together, and how many sets they fall into in turn. */
  readonly lines?: { readonly bytes: number; readonly sets: number; readonly source: string };
  /** Pages that its prefetcher follows at a time. */
  readonly streams?: Figure;
  /** Of address translation. */
  readonly pageBytes?: Figure;
  /** Until a dependent instruction may use what was read. */
  readonly latencyCycles?: Figure;
  /** By direction, and by what shares it. */
  readonly bandwidth: readonly Bandwidth[];
  /** How data may come in from elsewhere. */
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
  /** Sizes one thread moves at once, each aligned to itself; for a copy engine, the multiple a row must be. */
  readonly bytes: readonly number[];
  /** Of the destination, where that is more. */
  readonly alignment?: number;
  /** What says that it has arrived: nothing (it is there when the statement is over), a group, or a barrier with a byte count. */
  readonly completes: "at once" | "group" | "barrier";
  readonly feature?: string;
  readonly latencyCycles?: Figure;
}

/** What an instruction may ask of a machine, and how a machine is asked for it. */
export interface Feature {
  /** As instructions name it: `avx512_vnni`, `sm_80`. */
  readonly name: string;
  readonly summary: string;
  /** Words of /proc/cpuinfo that must all be there; `sve256` where vectors of the scalable extension have 256 bits at least. */
  readonly cpuinfo?: readonly string[];
  /** Compute capability it comes with, 80 for 8.0; `only` when later ones do not have it. */
  readonly capability?: number;
  readonly only?: true;
  /** Parts of the instruction set that a compiler must be allowed, as its flags name them: `avx512vnni`. */
  readonly extensions?: readonly string[];
  /** What the compiler is told: `-mavx512vnni`. */
  readonly flags?: readonly string[];
  /** Lanes of the sub-groups that issue its instructions together. */
  readonly subgroup?: number;
  /** Bytes of local memory that a work-group has at most. */
  readonly localBytes?: number;
  readonly source: string;
}

/** Registers that an operand names as its file: `zmm[4*n + k]`. */
export interface RegisterClass {
  readonly name: string;
  /** Registers one thread has; left out where the compiler divides a larger store among threads. */
  readonly count?: number;
  /** Registers of the machine that one takes, where that is several: a tuple that is loaded at once. */
  readonly takes?: number;
  /** Of a register, and of a row of it where a load takes rows that lie apart. */
  readonly bytes?: number;
  readonly rowBytes?: number;
  /** Feature it comes with. */
  readonly feature?: string;
  /** A variable of the language, or a number that is part of the instruction. */
  readonly named: "variable" | "number";
  /** Type of a variable by element type; `types` and `otherwise` for those that share one. */
  readonly types?: Readonly<Partial<Record<DType, string>>>;
  readonly otherwise?: string;
  /**
   * How a variable is declared: `{type} {reg};` where left out. `{elements}` are those of the register and `{width}` the same where there
   * is more than one, `{sizes}` the extents of the operand, `{words}` the 32-bit registers of a lane, `{shape}` the extents m, n, k of the instruction.
   */
  readonly declared?: string;
  /** Code that fills `{reg}` with zeros. */
  readonly cleared: string;
  /** Each lane of a warp holds its share of the elements. */
  readonly perLane?: true;
  /** Its variables have no size that the language knows: no bytes of theirs are looked at. */
  readonly sizeless?: true;
  /** Its instructions run on a unit of their own, beside vectors and scalars. */
  readonly apart?: true;
  /** Letter that stands for it in inline assembly. */
  readonly constraint?: "v" | "w" | "x";
  readonly source: string;
}

/** Machines that share features, registers and an emulation. */
export interface Family {
  readonly name: "x86" | "arm" | "nvidia" | "intel" | "mali" | "opencl" | "portable" | "virtual";
  readonly features: readonly Feature[];
  readonly registers: readonly RegisterClass[];
  /** What declares its instructions in the language they are reached from. */
  readonly header?: string;
  /** Header in runtime/emulation/ that stands for its instructions on any CPU. */
  readonly emulation?: string;
  /** Whether kernels are written with its instructions, and not mappings and proofs only. */
  readonly kernels: boolean;
}

/** Part of the hardware that instructions run on: what it does in a cycle, or what a vector or warp instruction takes of it. */
export interface Unit {
  readonly name: string;
  /** One unit of the hardware of this level has it. */
  readonly at: LevelName;
  /** By type of the factors, a multiply and an add counted as two. */
  readonly operationsPerCycle?: Readonly<Partial<Record<DType, number>>>;
  /** Between two independent instructions; of a vector of f32 it also follows from the operations a cycle. */
  readonly issueCycles?: number;
  /** Until a dependent instruction may start; left out where nothing depends on it. */
  readonly latencyCycles?: number;
  readonly source: string;
}

/** Vectors that a systolic array lies on, and the level of whose units each issues for one array. */
export interface LaneVector {
  readonly name: string;
  readonly summary: string;
  readonly level: LevelName;
  /** Of f32; wider elements leave fewer of them where the register has so many bytes. */
  readonly lanes: number;
  readonly lanesByBytes: boolean;
  /** An instruction on fewer lanes takes as much of the cycles of all as these are of them; all when left out: it takes as long as on every lane. */
  readonly granule?: number;
}

/** How a CPU's core takes instructions in. */
export interface Pipeline {
  /** What the front end hands on. */
  readonly instructionsPerCycle: Figure;
  /** Instructions a loop adds to its body: counter, comparison, branch, addresses. */
  readonly loopInstructions: Figure;
  /** Instructions in flight: how far ahead independent blocks begin. */
  readonly window: Figure;
}

/** Cycles an element of the scalar loops around an instruction takes. */
export interface ScalarCycles {
  /** Of a run of bytes copied side by side, a byte; and a run. */
  readonly copyByte: Figure;
  readonly copyRun: Figure;
  /** Copied with a stride on one side. */
  readonly strided: Figure;
  /** Packed into tiles, without digits and guards. */
  readonly indexed: Figure;
  /** Moved from the scratch block to the output, without digits. */
  readonly scattered: Figure;
  /** The same where elements lie side by side, which the compiler turns into vectors. */
  readonly sideBySide: Figure;
  /** An operation of an epilogue on one element alone. */
  readonly operation: Figure;
  /** The same on a vector of sixteen, an element. */
  readonly vectorOperation: Figure;
  /** A quotient or remainder that takes a fused index apart. */
  readonly digit: Figure;
  /** A comparison that keeps padding out. */
  readonly guard: Figure;
}

/** What instructions of a family reach of a unit. */
export interface Rate {
  /** {@link Intrinsic.family}: `mma`, `wmma`, `wgmma`. */
  readonly family: string;
  readonly unit: string;
  /** Of the unit's operations; by extent of an axis of the instruction where it depends on it, ascending. */
  readonly share: Figure | ShareByExtent;
  /** Of one issue that is awaited; by extent too. */
  readonly latencyCycles?: Figure | ShareByExtent;
  readonly feature: string;
}

/** A share, or cycles, at some extents of an axis, ascending; between them on straight lines. */
export interface ShareByExtent {
  readonly axis: string;
  readonly points: readonly (readonly [extent: number, value: number])[];
  readonly source: string;
}

/** Time that is spent whatever the size. */
export interface FixedCost extends Figure {
  readonly per: "second" | "cycle";
}

/** A machine: its levels, memories, units and rates, each with its source. */
export interface Target {
  /** As users and records name it. */
  readonly name: string;
  /** One line. */
  readonly summary: string;
  /** Features instructions ask for: `sm_80`, `cp_async`, `avx512_vnni`. */
  readonly isa: readonly string[];
  /** What a compiler is told: `-mavx2`, `-gencode=arch=compute_90a,code=sm_90a`. */
  readonly compilerFlags: readonly string[];
  /** Cycles a second. */
  readonly clockHz?: Figure;
  /** What the power limit leaves of the clock while the matrix units are busy. */
  readonly loadedClockHz?: Figure;
  /** Outermost first. */
  readonly levels: readonly Level[];
  /** Outermost first. */
  readonly memories: readonly Memory[];
  /** Units that execute instructions, by name. */
  readonly units: readonly Unit[];
  /** Rates beside those of units. */
  readonly rates: readonly Rate[];
  /** By name of the instruction, what was measured on this very machine: it takes the place of rates. */
  readonly issued?: Readonly<Record<string, Cost>>;
  /** `launch`, `fill`, `drain` of a GPU; `barrier` and `block` of a CPU. */
  readonly fixed: Readonly<Record<string, FixedCost>>;
  readonly lanes?: LaneVector;
  readonly pipeline?: Pipeline;
  readonly scalar?: ScalarCycles;
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

/** @throws Error where the target has no such unit */
export function unitOf({ name: target, units }: Target, name: string): Unit {
  const found = units.find((u) => u.name === name);
  if (!found) throw new Error(`internal: ${target} has no unit "${name}"`);
  return found;
}

/**
 * What a vector of lanes takes of a unit: cycles of one unit of a level while all units of the level beside it are as busy. A quarter of
 * a multiprocessor waits four cycles for each of its turns at a shuffle unit that takes one a cycle.
 */
export function unitCost(target: Target, name: string, level?: LevelName): Cost {
  const { at, issueCycles, latencyCycles = 0, operationsPerCycle, source } = unitOf(target, name);
  const perVector =
    issueCycles ?? (2 * (target.lanes?.lanes ?? 1)) / (operationsPerCycle?.f32 ?? Number.POSITIVE_INFINITY);
  return { issueCycles: perVector * sharers(target, at, level ?? at), latencyCycles, source };
}

/** Units of a level inside one unit of a level outside of it. */
function sharers({ levels }: Target, outer: LevelName, inner: LevelName): number {
  const from = levels.findIndex((l) => l.name === outer);
  const to = levels.findIndex((l) => l.name === inner);
  return levels.slice(from + 1, to + 1).reduce((product, l) => product * l.units, 1);
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

/** Cycles until an issue may use what the one before it made: as measured, else as declared. */
export function latencyCyclesOn({ issued }: Target, { name, cost }: Intrinsic): number | undefined {
  return (issued?.[name] ?? cost)?.latencyCycles;
}

/**
 * Cycles between two independent issues of an instruction on one unit of the hardware: its operations over what its family reaches of its
 * unit's. Undefined where the target gives no rate for the family or the type.
 */
export const issueCyclesOn = memoisedPair((target: Target, intrinsic: Intrinsic): Figure | undefined => {
  const { name, family, operands, computation } = intrinsic;
  const measured = target.issued?.[name];
  if (measured) return { value: measured.issueCycles, source: measured.source };
  const factors = operands.at(-1)?.dtype;
  const extents = Object.fromEntries(computation.axes.map((a) => [a.name, a.extent]));
  return factors && issueCyclesOf(target, family, factors, extents);
});

/** What an instruction costs by the rates of a target; undefined where it has none for its family. */
export function ratedCost(target: Target, { family, operands, computation }: Intrinsic): Cost | undefined {
  const extents = Object.fromEntries(computation.axes.map((a) => [a.name, a.extent]));
  const factors = operands.at(-1)?.dtype;
  return factors && matrixCost(target, family, factors, extents);
}

/** The same of a matrix product that is yet to be declared, with its latency. Undefined where the target does not give both. */
export function matrixCost(target: Target, family: string, factors: DType, extents: Extents): Cost | undefined {
  const issue = issueCyclesOf(target, family, factors, extents);
  const latency = target.rates.find((r) => r.family === family)?.latencyCycles;
  if (!issue || !latency) return undefined;
  const source = `${issue.source}; latency: ${latency.source}`;
  return { issueCycles: issue.value, latencyCycles: valueAt(latency, extents), source };
}

function issueCyclesOf(target: Target, family: string, factors: DType, extents: Extents): Figure | undefined {
  const rate = target.rates.find((r) => r.family === family);
  const peak = target.units.find((u) => u.name === rate?.unit)?.operationsPerCycle?.[factors];
  if (!rate || !peak) return undefined;
  const operations = Object.values(extents).reduce((product, extent) => product * extent, 2);
  return { value: operations / (peak * valueAt(rate.share, extents)), source: rate.share.source };
}

const valueAt = (figure: Figure | ShareByExtent, extents: Extents): number =>
  "value" in figure ? figure.value : interpolate(figure.points, extents[figure.axis] ?? 1);

/** Straight lines between the points; the first and last value beyond them. */
function interpolate(points: ShareByExtent["points"], at: number): number {
  const above = points.findIndex(([extent]) => extent >= at);
  const [x1, y1] = points[above < 0 ? points.length - 1 : above] ?? [at, 1];
  const [x0, y0] = points[above <= 0 ? 0 : above - 1] ?? [x1, y1];
  return above <= 0 || x1 === x0 ? y1 : y0 + ((y1 - y0) * (at - x0)) / (x1 - x0);
}
