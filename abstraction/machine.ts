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
import { memoisedPair, withName } from "./collections.ts";
import { extentsOf } from "./computation.ts";
import type { DType } from "./dtype.ts";
import { internal } from "./error.ts";
import type { Cost, Intrinsic } from "./intrinsic.ts";

export interface Figure {
  readonly value: number;
  /** Origin of the figure: a measurement with its machine, a manual, or the word "assumed". */
  readonly source: string;
}

/** Names of levels, outermost to innermost: of a program on a GPU, or of the hardware of a CPU. */
export type LevelName = GpuLevel | CpuLevel;
type GpuLevel = "grid" | "cluster" | "block" | "warpgroup" | "warp" | "lane";
type CpuLevel = "socket" | "core" | "thread" | "vector";

/** One level of a machine: a grid, a block, a warp; a socket, a core, a vector. */
export interface Level {
  /** As `Target.levels` and schedules name it. */
  readonly name: LevelName;
  /** Hardware units of this level inside one unit of the next outer level; 1 for a level that only groups. */
  readonly units: number;
  /** Most units of this level that a program may ask for inside one unit of the next outer level. */
  readonly most?: number;
  /** Most units of this level that one hardware unit holds at once, if registers and memory suffice. */
  readonly resident?: number;
  /** Whether everything inside one unit can synchronise. */
  readonly synchronises?: true;
  /** Cost of a barrier: its cycles where a source gives them, and the cycles that each waiting unit adds. */
  readonly barrier?: { readonly cycles: Figure; readonly cyclesPerUnit?: number };
  /** Feature that a program needs to use this level. */
  readonly feature?: string;
}

/** One memory of a machine: main memory, a cache, the shared memory of a block. */
export interface Memory {
  /** Name in the model and in `automap calibrate`. */
  readonly name: string;
  /** `addressed`: programs name its elements. `cache`: it holds what was used last. */
  readonly kind: "addressed" | "cache";
  /** Each hardware unit of this level has one. */
  readonly at: LevelName;
  /** How many the machine has, when several units share one or Linux reports the number. */
  readonly count?: number;
  /** Left out for the memory that holds everything. */
  readonly bytes?: Figure;
  /** The most that one unit of a level may take, and what it gets without asking. */
  readonly limits?: readonly {
    readonly of: LevelName;
    readonly bytes: number;
    readonly unasked?: number;
    /** Bytes that the system takes from each unit's share. */
    readonly reserved?: number;
    /** Allocations are multiples of this. */
    readonly granule?: number;
  }[];
  /** Banks, each of which serves one word at a time. */
  readonly banks?: { readonly count: number; readonly bytes: number };
  /** Bytes of a cache line, and the number of sets to which consecutive lines belong in turn. */
  readonly lines?: { readonly bytes: number; readonly sets: number; readonly source: string };
  /** Pages that its prefetcher follows at once. */
  readonly streams?: Figure;
  /** Page size of address translation. */
  readonly pageBytes?: Figure;
  /** Cycles until a dependent instruction may use a loaded value. */
  readonly latencyCycles?: Figure;
  /** By direction, and by what shares it. */
  readonly bandwidth: readonly Bandwidth[];
  /** How data may be copied in from other memories. */
  readonly copies?: readonly CopyForm[];
}

/** Bytes per second or per cycle. */
export interface Bandwidth extends Figure {
  readonly per: "second" | "cycle";
  readonly direction: "read" | "write" | "both";
  /** The bandwidth is that of one unit of this level; `grid` or `socket` mean the whole machine. */
  readonly of: LevelName;
}

/** A way to copy from one memory into another. */
export interface CopyForm {
  readonly into: string;
  readonly name: "plain" | "cp.async" | "tma";
  /** Sizes in bytes that one thread moves at once, each aligned to itself; for a copy engine, the multiple that a row's size must be. */
  readonly bytes: readonly number[];
  /** Alignment of the destination in bytes, where it is larger. */
  readonly alignment?: number;
  /** How a copy completes: with its statement, with a group, or with a barrier that counts bytes. */
  readonly completes: "at once" | "group" | "barrier";
  readonly feature?: string;
  readonly latencyCycles?: Figure;
}

/** A feature that instructions require, and how its presence is detected. */
export interface Feature {
  /** As instructions name it: `avx512_vnni`, `sm_80`. */
  readonly name: string;
  readonly summary: string;
  /** Words of /proc/cpuinfo that must all be present; `sve256` means that vectors of the scalable extension have at least 256 bits. */
  readonly cpuinfo?: readonly string[];
  /** The compute capability that introduced it, 80 for 8.0; `only` when later ones lack it. */
  readonly capability?: number;
  readonly only?: true;
  /** Parts of the instruction set that the compiler must be allowed to use, as its flags name them: `avx512vnni`. */
  readonly extensions?: readonly string[];
  /** Compiler flags: `-mavx512vnni`. */
  readonly flags?: readonly string[];
  /** Size of the sub-groups that issue its instructions. */
  readonly subgroup?: number;
  /** Whether these are the work-items of a work-group, which meet at its barriers: the language's sub-groups are not needed. */
  readonly lanesAreGroups?: true;
  /** Most bytes of local memory of a work-group. */
  readonly localBytes?: number;
  readonly source: string;
}

/** A class of registers, which operands name as their file: `zmm[4*n + k]`. */
export interface RegisterClass {
  readonly name: string;
  /** Registers per thread; left out when the compiler divides a larger register file among threads. */
  readonly count?: number;
  /** Machine registers that one variable takes when it takes several: a tuple that is loaded at once. */
  readonly takes?: number;
  /** Bytes of a register, and of a row when a load takes rows that lie apart. */
  readonly bytes?: number;
  readonly rowBytes?: number;
  /** Feature that provides it. */
  readonly feature?: string;
  /** A number within the instruction, rather than a variable of the language. */
  readonly numbered?: true;
  /** Type of a variable by element type; `otherwise` is the type for all that `types` does not list. */
  readonly types?: Readonly<Partial<Record<DType, string>>>;
  readonly otherwise?: string;
  /**
   * Declaration of a variable; `{type} {reg};` when left out. `{elements}` is the number of elements of the register and `{width}` the same when it
   * is more than one; `{sizes}` are the extents of the operand, `{words}` the 32-bit registers of a lane, `{shape}` the extents m, n, k of the
   * instruction.
   */
  readonly declared?: string;
  /** Code that clears `{reg}`; `{reg} = 0;` when left out. */
  readonly cleared?: string;
  /**
   * A vector of one element a lane from `{ptr}`, where elements of a narrower type lie side by side: by the type of the register, then by the type
   * in memory. Every value of the narrower type is one of the wider.
   */
  readonly widened?: Readonly<Partial<Record<DType, Readonly<Partial<Record<DType, string>>>>>>;
  /** How numbers of half a byte fill a register, by its type. */
  readonly halfBytes?: Readonly<Partial<Record<DType, HalfBytes>>>;
  /** Arithmetic on the lanes of vectors, by their type. */
  readonly arithmetic?: Readonly<Partial<Record<DType, LaneArithmetic>>>;
  /** Each lane of a warp holds its share of the elements. */
  readonly perLane?: true;
  /** The language knows no size of its variables, or they are addresses, so nothing may inspect their bytes. */
  readonly sizeless?: true;
  /** Its instructions run on their own unit, in parallel with vector and scalar units. */
  readonly apart?: true;
  /** Its constraint letter in inline assembly. */
  readonly constraint?: "v" | "w" | "x";
  readonly source: string;
}

/** Numbers from 0 to 15, two a byte, the first in its low half. */
export interface HalfBytes {
  /** The byte that holds the number of a lane, and its half, 0 for the low one: formulas of `lane`. Of a byte's lanes the first takes the low half. */
  readonly place: { readonly byte: string; readonly half: string };
  /** The elements of `{table}`, a vector of sixteen, that the numbers at `{ptr}` name; or the numbers. */
  readonly loaded: string;
  /** The table of the numbers themselves, where there is a table. */
  readonly table?: string;
}

/** Values of vectors: of two vectors by a sign, with one number in all lanes, and of the elements at an address. */
export interface LaneArithmetic extends Readonly<Partial<Record<"+" | "-" | "*", string>>> {
  /** `{value}` in all lanes. */
  readonly shared: string;
  /** The elements from `{ptr}` on. */
  readonly loaded: string;
  /** Which of them a lane takes, as a formula of `lane`; its own when left out. */
  readonly place?: { readonly element: string };
}

/** Machines that share features, registers and emulation. */
export interface Family {
  readonly name: "x86" | "arm" | "nvidia" | "intel" | "mali" | "opencl" | "portable" | "virtual";
  readonly features: readonly Feature[];
  readonly registers: readonly RegisterClass[];
  /** Header that declares its instructions. */
  readonly header?: string;
  /** Header in runtime/emulation/ that emulates its instructions on any CPU. */
  readonly emulation?: string;
  /** Whether kernels can be generated for it; otherwise only mappings and proofs. */
  readonly kernels: boolean;
}

/** An execution unit: its operations per cycle, or the cycles that a vector or warp instruction takes on it. */
export interface Unit {
  readonly name: string;
  /** Each hardware unit of this level has one. */
  readonly at: LevelName;
  /** Operations per cycle by type of the factors; a multiply and an add count as two. */
  readonly operationsPerCycle?: Readonly<Partial<Record<DType, number>>>;
  /** Cycles between two independent instructions. For vectors of f32 it also follows from the operations per cycle. */
  readonly issueCycles?: number;
  /** Cycles until a dependent instruction may start; left out when nothing depends on it. */
  readonly latencyCycles?: number;
  readonly source: string;
}

/** The vectors on which a systolic array lies, and the level whose units each issue for one array. */
export interface LaneVector {
  readonly name: string;
  readonly summary: string;
  readonly level: LevelName;
  /** Lanes of f32. Wider elements have fewer lanes when the register has a fixed number of bytes. */
  readonly lanes: number;
  readonly lanesByBytes: boolean;
  /** Granularity of cost: an instruction on fewer lanes takes a proportional share of cycles. When left out, it takes as long as on all lanes. */
  readonly granule?: number;
}

/** Front end and window of a CPU core. */
export interface Pipeline {
  /** Instructions that the front end delivers per cycle. */
  readonly instructionsPerCycle: Figure;
  /** Instructions that a loop adds to its body: counter, comparison, branch and addresses. */
  readonly loopInstructions: Figure;
  /** Instructions in flight, which limits how far ahead independent blocks may start. */
  readonly window: Figure;
}

/** Cycles per element of the scalar loops around an instruction. */
export interface ScalarCycles {
  /** For copying a contiguous run: cycles per byte, and per run. */
  readonly copyByte: Figure;
  readonly copyRun: Figure;
  /** Copying with a stride on one side. */
  readonly strided: Figure;
  /** Packing into tiles, without digits and guards. */
  readonly indexed: Figure;
  /** Moving from the scratch block to the output, without digits. */
  readonly scattered: Figure;
  /** The same for contiguous elements, which the compiler vectorises. */
  readonly sideBySide: Figure;
  /** One operation of an epilogue on one element. */
  readonly operation: Figure;
  /** The same on a vector of sixteen, per element. */
  readonly vectorOperation: Figure;
  /** A quotient or remainder that splits a fused index. */
  readonly digit: Figure;
  /** A comparison that guards against padding. */
  readonly guard: Figure;
  /** One element of a vector that is gathered from memory, or scattered to it. */
  readonly gatheredLane: Figure;
  readonly scatteredLane: Figure;
}

/** The share of a unit's peak that instructions of a family reach. */
export interface Rate {
  /** {@link Intrinsic.family}: `mma`, `wmma`, `wgmma`. */
  readonly family: string;
  /** Types of the factors that it is of, where not of all. */
  readonly types?: readonly DType[];
  readonly unit: string;
  /** Share of the unit's operations; by extent of an axis of the instruction, ascending, where it depends on it. */
  readonly share: Figure | ShareByExtent;
  /** Latency of one awaited issue; may depend on the extent too. */
  readonly latencyCycles?: Figure | ShareByExtent;
  readonly feature: string;
}

/** Shares or cycles at ascending extents of an axis, interpolated linearly. */
interface ShareByExtent {
  readonly axis: string;
  readonly points: readonly (readonly [extent: number, value: number])[];
  readonly source: string;
}

/** Time that does not depend on the size. */
export interface FixedCost extends Figure {
  readonly per: "second" | "cycle";
}

/** A machine: its levels, memories, units and rates, each with its source. */
export interface Target {
  /** Name for users and records. */
  readonly name: string;
  /** One line. */
  readonly summary: string;
  /** Features instructions ask for: `sm_80`, `cp_async`, `avx512_vnni`. */
  readonly isa: readonly string[];
  /** Compiler flags: `-mavx2`, `-gencode=arch=compute_90a,code=sm_90a`. */
  readonly compilerFlags: readonly string[];
  /** Cycles per second. */
  readonly clockHz?: Figure;
  /** The clock under the power limit while the matrix units are busy. */
  readonly loadedClockHz?: Figure;
  /** Outermost first. */
  readonly levels: readonly Level[];
  /** Outermost first. */
  readonly memories: readonly Memory[];
  /** Units that execute instructions, by name. */
  readonly units: readonly Unit[];
  /** Rates of families of instructions. */
  readonly rates: readonly Rate[];
  /** Costs measured on this very machine, by name of the instruction. They replace rates. */
  readonly issued?: Readonly<Record<string, Cost>>;
  /** `launch`, `fill`, `drain` of a GPU; `barrier` and `block` of a CPU. */
  readonly fixed: Readonly<Record<string, FixedCost>>;
  readonly lanes?: LaneVector;
  readonly pipeline?: Pipeline;
  readonly scalar?: ScalarCycles;
  /** Number of clusters of a given size that run at once. */
  readonly clusters?: readonly (Figure & { readonly blocks: number })[];
}

/** @throws Error when the target has no such level */
export function levelOf({ name: target, levels }: Target, name: LevelName): Level {
  return withName(levels, name) ?? internal(`${target} has no level "${name}"`);
}

/** @throws Error when the target has no such memory */
export function memoryOf({ name: target, memories }: Target, name: string): Memory {
  return withName(memories, name) ?? internal(`${target} has no memory "${name}"`);
}

/** @throws Error when the target has no such unit */
export function unitOf({ name: target, units }: Target, name: string): Unit {
  return withName(units, name) ?? internal(`${target} has no unit "${name}"`);
}

/**
 * The cost of a vector of lanes on a unit, in cycles of one unit of `level`, when all units that share it are as busy. A quarter of a multiprocessor
 * waits four cycles for each turn at a shuffle unit that serves one per cycle.
 */
export function unitCost(target: Target, name: string, level?: LevelName): Cost {
  const { at, issueCycles, latencyCycles = 0, operationsPerCycle, source } = unitOf(target, name);
  const perVector =
    issueCycles ?? (2 * (target.lanes?.lanes ?? 1)) / (operationsPerCycle?.f32 ?? Number.POSITIVE_INFINITY);
  return { issueCycles: perVector * sharers(target, at, level ?? at), latencyCycles, source };
}

/** Units of an inner level inside one unit of an outer level. */
function sharers({ levels }: Target, outer: LevelName, inner: LevelName): number {
  const from = levels.findIndex((l) => l.name === outer);
  const to = levels.findIndex((l) => l.name === inner);
  return levels.slice(from + 1, to + 1).reduce((product, l) => product * l.units, 1);
}

/** Most bytes of a memory that one unit of a level may take: `shared` of a block, opt-in included. */
export function mostBytes(target: Target, memory: string, of: LevelName): number {
  const limit = memoryOf(target, memory).limits?.find((l) => l.of === of);
  return limit?.bytes ?? internal(`${target.name} sets no limit on ${memory} of a ${of}`);
}

/** Bytes per second or cycle that one unit of a level reads from a memory; undefined when no source gives it. */
export function readRate(target: Target, memory: string, of: LevelName): Bandwidth | undefined {
  return memoryOf(target, memory).bandwidth.find((b) => b.of === of && b.direction !== "write");
}

/** The same, of what one unit of a level writes. */
export function writeRate(target: Target, memory: string, of: LevelName): Bandwidth | undefined {
  return memoryOf(target, memory).bandwidth.find((b) => b.of === of && b.direction !== "read");
}

/** Cycles until a dependent issue may start: measured on this machine, else as declared. */
export function latencyCyclesOn({ issued }: Target, { name, cost }: Intrinsic): number | undefined {
  return (issued?.[name] ?? cost)?.latencyCycles;
}

/**
 * Cycles between two independent issues of an instruction on one hardware unit: its operations divided by the rate that its family reaches. Undefined
 * when the target gives no rate for the family or the type.
 */
export const issueCyclesOn = memoisedPair((target: Target, intrinsic: Intrinsic): Figure | undefined => {
  const { name, family, operands, computation } = intrinsic;
  const measured = target.issued?.[name];
  if (measured) return { value: measured.issueCycles, source: measured.source };
  const factors = operands.at(-1)?.dtype;
  return factors && issueCyclesOf(target, family, factors, extentsOf(computation));
});

/** The cost of an instruction by the target's rates; undefined when it has none for the family. */
export function ratedCost(target: Target, { family, operands, computation }: Intrinsic): Cost | undefined {
  const factors = operands.at(-1)?.dtype;
  return factors && matrixCost(target, family, factors, extentsOf(computation));
}

/** The same for a matrix product that has no declaration yet. Undefined unless the target gives both issue and latency. */
export function matrixCost(target: Target, family: string, factors: DType, extents: Extents): Cost | undefined {
  const issue = issueCyclesOf(target, family, factors, extents);
  const latency = rateOf(target, family, factors)?.latencyCycles;
  if (!issue || !latency) return undefined;
  const source = `${issue.source}; latency: ${latency.source}`;
  return { issueCycles: issue.value, latencyCycles: valueAt(latency, extents), source };
}

function issueCyclesOf(target: Target, family: string, factors: DType, extents: Extents): Figure | undefined {
  const rate = rateOf(target, family, factors);
  const peak = withName(target.units, rate?.unit)?.operationsPerCycle?.[factors];
  if (!rate || !peak) return undefined;
  const operations = Object.values(extents).reduce((product, extent) => product * extent, 2);
  return { value: operations / (peak * valueAt(rate.share, extents)), source: rate.share.source };
}

/** The rate of a family: that of these factors, if they have one of their own. */
const rateOf = ({ rates }: Target, family: string, factors: DType): Rate | undefined =>
  rates.find((r) => r.family === family && r.types?.includes(factors)) ??
  rates.find((r) => r.family === family && r.types === undefined);

const valueAt = (figure: Figure | ShareByExtent, extents: Extents): number =>
  "value" in figure ? figure.value : interpolate(figure.points, extents[figure.axis] ?? 1);

/** Linear interpolation between the points, constant beyond the first and last. */
function interpolate(points: ShareByExtent["points"], at: number): number {
  const above = points.findIndex(([extent]) => extent >= at);
  const [x1, y1] = points[above < 0 ? points.length - 1 : above] ?? [at, 1];
  const [x0, y0] = points[above <= 0 ? 0 : above - 1] ?? [x1, y1];
  return above <= 0 || x1 === x0 ? y1 : y0 + ((y1 - y0) * (at - x0)) / (x1 - x0);
}
