/**
 * @file One point of the search space: a mapping and the schedule it runs under. Plain data that survives JSON.
 *
 *     avx512.vpdpbusd   n <- k   k <- c   order p q_k n ...   block q 12, k 2   in padded, w tiled
 */

import { memoised } from "./collections.ts";
import type { Rewriting } from "./computation.ts";
import type { Matching } from "./mapping.ts";
import type { Outputs } from "./winograd.ts";

/**
 * How an input reaches the instruction.
 *
 * - `in-place`: loaded from the user's tensor; blocks at the border skip what lies outside
 * - `padded`: the tensor is copied once per call, with the instruction's axes innermost and a border of zeros
 * - `windowed`: copied once per call, with the fused loops of the instruction's axes laid out one by one and zeros after them
 * - `tiled`: every tile is packed in the order in which the loops read it; ahead of time when the tensor is constant, else once per call
 */
export const PLACEMENTS = ["in-place", "padded", "windowed", "tiled"] as const;
/** Where an operand of an instruction is loaded from: its own tensor, or a copy and its form. */
export type Placement = (typeof PLACEMENTS)[number];

/**
 * The decisions that a mapping leaves open. A dimension is an outer loop by name, or the fused loops of an instruction
 * axis, `p_q`.
 */
export interface Schedule {
  /**
   * Loops around the instruction, outermost first. Every dimension `k` stands once, kept dimensions before summed ones. Before it there may
   * be one loop over its tiles, written `k/8` for tiles of 8 blocks. A tile loop of a summed dimension may stand outside kept loops; see
   * mapper/schedule/cache-tiles.ts.
   */
  readonly order: readonly string[];
  /** Steps of each dimension unrolled around the instruction: the register block. 1 when left out. */
  readonly block: Readonly<Record<string, number>>;
  /** Where each tensor is loaded from. */
  readonly placement: Readonly<Record<string, Placement>>;
  /** Fused kept dimensions that also run over the gaps between the rows of a padded copy; none when left out. */
  readonly spread?: readonly string[] | undefined;
  /**
   * By operand, the kept dimension at each step of which its padded or windowed copy is made anew. An input not named
   * is copied once per call.
   */
  readonly within?: Readonly<Record<string, string>> | undefined;
  /** Threads that run the kernel. */
  readonly threads: number;
}

/** A mapping onto an instruction, and its schedule. */
interface Scheduled<S> {
  /** Name of the instruction. */
  readonly intrinsic: string;
  /** Which loops feed which axis of the instruction. */
  readonly matching: Matching;
  /** The tensor that each instruction operand stands for, as text. */
  readonly operands: Readonly<Record<string, string>>;
  /**
   * How the equation's loops were rewritten before they were mapped; see mapper/match/phases.ts. Left out when they
   * were not.
   */
  readonly rewriting?: Rewriting["kind"] | undefined;
  /** How the loops run. */
  readonly schedule: S;
}

/** A mapping onto an instruction, and the loops around it on a processor's cores. */
export interface MappedCandidate extends Scheduled<Schedule> {
  readonly kind: "mapping";
}

/** How data, weights and sums move over lanes; see mapper/space-time/window.ts. */
export const LANE_DATAFLOWS = ["SBM", "FBS-shift", "FBS-load"] as const;
export type LaneDataflow = (typeof LANE_DATAFLOWS)[number];

/** The block of a window on lanes: `rows` by `vectors` of outputs. */
export interface WindowBlock {
  readonly dataflow: LaneDataflow;
  /** Elements of a vector: 16 f32 on AVX-512, 32 on a warp. */
  readonly lanes: number;
  /** P: output rows of a block, which share the data rows. 1 when there is no row axis. */
  readonly rows: number;
  /** Vectors of a block along the lane axis. */
  readonly vectors: number;
  /** Summed axes that stay loops inside a block. */
  readonly rolled: readonly string[];
}

/**
 * Schedule of a window on the vectors of a CPU. Interior blocks, whose neighbours are all inside, run without tests,
 * and the border apart.
 */
export interface WindowSchedule extends WindowBlock {
  /**
   * `registers`: weights are broadcast once before the blocks and kept in vectors. `memory`: they are read at each use.
   */
  readonly weights: "registers" | "memory";
  /** Results are stored with non-temporal stores, past the caches. */
  readonly streaming: boolean;
  /** Prefetch distance in bytes; 0 leaves prefetching to the hardware. */
  readonly prefetchBytes: number;
  /** Row blocks swept before the next step of the outer axes, so that planes stay in cache; 0 sweeps all rows. */
  readonly strip: number;
  /**
   * How rows of data come into registers as whole lines, from which lanes take their columns by shifts. `loaded`: those
   * of each block are loaded. `mixed`: so, but every second column is loaded by itself. `carried`: lines that the next
   * block along the row reads again stay in registers. When left out, every column is loaded by itself.
   */
  readonly lines?: LineUse | undefined;
  /** Planes of a block: outputs along the outermost axis that has neighbours, if it is not that of the rows; 1 when left out. */
  readonly planes?: number | undefined;
  readonly threads: number;
}

/** See {@link WindowSchedule.lines}. */
export const LINE_USES = ["loaded", "mixed", "carried"] as const;
type LineUse = (typeof LINE_USES)[number];

/** Schedule of a window on the lanes of warps. Every access is tested: thousands of warps hide the cost. */
export interface WarpWindowSchedule extends WindowBlock {
  /**
   * Neighbouring outputs that one lane moves to and from memory at once. 1 when left out: neighbours lie on
   * neighbouring lanes.
   */
  readonly each?: number | undefined;
  /**
   * Outputs along the outermost axis of data movement that the same lanes compute one after another. Data are loaded
   * once and added to every sum that needs them. When left out, each output belongs to a block of its own.
   */
  readonly sweep?: number | undefined;
  /** Steps of a sweep that are unrolled, with all their loads before the first arithmetic; 1 when left out. */
  readonly ahead?: number | undefined;
  /**
   * Steps of a sweep by which the rows that it will read are fetched into the last cache ahead of their loads. When left
   * out, nothing is fetched ahead.
   */
  readonly prefetchSteps?: number | undefined;
  /** Warps of a block; 4 when left out. */
  readonly warps?: number | undefined;
}

/** Schedule of a stencil's time steps on the vectors of a CPU. */
export interface StepSchedule {
  readonly lanes: number;
  /** Planes of a grid of three dimensions that a turn computes together. */
  readonly rows: number;
  /** Vectors side by side along a row. */
  readonly vectors: number;
  /** Results are stored with non-temporal stores, past the caches. */
  readonly streaming: boolean;
  /** Rows of a plane of a grid of three dimensions that are computed together; 0 takes all. */
  readonly strip: number;
  /** Time steps per pass over memory. */
  readonly depth: number;
  readonly threads: number;
}

/** Schedule of a stencil's time steps on the lanes of warps. */
export interface WarpStepSchedule {
  readonly lanes: number;
  /** Outputs along the middle axis of a grid of three dimensions. */
  readonly rows: number;
  /** Time steps per pass over memory. */
  readonly depth: number;
  /** Neighbouring columns of a lane; 1 when left out. */
  readonly each?: number | undefined;
  /** Rows that a warp writes one after another; all when left out. */
  readonly sweep?: number | undefined;
  /** Rows that are loaded ahead; 1 when left out. */
  readonly ahead?: number | undefined;
}

/** A space-time transform: the point z runs on lane `P z` at step `s z`. The first row of time is the slowest. */
export interface LaneTransform {
  /** Loops of the array; each is a column of P and s. The other loops stand around the array. */
  readonly loops: readonly string[];
  /** P. */
  readonly allocation: readonly number[];
  /** s: rows of time, compared lexicographically. */
  readonly schedule: readonly (readonly number[])[];
}

/** How the inputs of a design on lanes reach them. */
export const ARRAY_INPUTS = ["passed", "loaded", "dots"] as const;

/** The decisions that determine a design on lanes. */
export interface ArrayPlan {
  readonly transform: LaneTransform;
  /** Elements of a vector, and so the largest number of PEs. On a GPU a warp, or an equal part of it that runs an array of its own. */
  readonly lanes: number;
  /** Steps per pass of the array, for each loop that is longer than one pass. */
  readonly tile: Readonly<Record<string, number>>;
  /** Steps of an outer loop that run side by side, each in its own registers; of a tiled loop, tiles. */
  readonly beside: Readonly<Record<string, number>>;
  /**
   * `passed`: a lane gets moving data from its neighbour. `loaded`: every lane loads them again. `dots`: neighbours are
   * loaded together for a dot product.
   */
  readonly inputs: (typeof ARRAY_INPUTS)[number];
}

/** Schedule of a design given by its transform on the vectors of a CPU. */
export interface DesignSchedule extends ArrayPlan {
  readonly streaming: boolean;
  readonly threads: number;
}

/** Schedule of a design given by its transform on the lanes of warps. */
export interface WarpDesignSchedule extends ArrayPlan {
  /** Warps of a block; 4 when left out. */
  readonly warps?: number | undefined;
}

/** Schedule of a result that refers to itself on the vectors of a CPU. */
export interface RecurrenceSchedule {
  /** Which form the program has: a wavefront, planes one after another, or prefix sums. */
  readonly transform: LaneTransform;
  readonly lanes: number;
  /** Vectors of a plane side by side. */
  readonly beside: Readonly<Record<string, number>>;
  readonly threads: number;
}

/** A computation that is mapped onto no instruction: on lanes, which share its axes by a space-time transform, or in plain loops. */
interface Unmapped<K extends string, S> {
  readonly kind: K;
  /**
   * Name of the multiply-add that lanes run; of loops, the row that says which vectors the compiler may use, or that
   * threads compute it.
   */
  readonly intrinsic: string;
  readonly schedule: S;
}

/** A window under one of the named transforms, on the vectors of a CPU. */
export type WindowCandidate = Unmapped<"window", WindowSchedule>;
/** A window under one of the named transforms, on the lanes of warps. */
export type WarpWindowCandidate = Unmapped<"warp-window", WarpWindowSchedule>;
/** A stencil's time steps on the vectors of a CPU. */
export type StepCandidate = Unmapped<"steps", StepSchedule>;
/** A stencil's time steps on the lanes of warps. */
export type WarpStepCandidate = Unmapped<"warp-steps", WarpStepSchedule>;
/** A design given by its transform, on the vectors of a CPU. */
export type DesignCandidate = Unmapped<"design", DesignSchedule>;
/** A design given by its transform, on the lanes of warps. */
export type WarpDesignCandidate = Unmapped<"warp-design", WarpDesignSchedule>;
/** A result that refers to itself, on the vectors of a CPU. */
export type RecurrenceCandidate = Unmapped<"recurrence", RecurrenceSchedule>;
/** A candidate on lanes. */
export type LaneCandidate =
  | WindowCandidate
  | WarpWindowCandidate
  | StepCandidate
  | WarpStepCandidate
  | DesignCandidate
  | WarpDesignCandidate
  | RecurrenceCandidate;

/**
 * Schedule of a matrix product on the blocks and warps of a GPU. Each field is a decision with a file of its own in
 * mapper/schedule/, which says what the values mean.
 */
export interface GridSchedule {
  /** Elements of a block's tile along each axis of the instruction. */
  readonly tile: Readonly<Record<string, number>>;
  /** Warps of a block along each kept axis; warpgroups when those issue the instruction. */
  readonly warps: Readonly<Record<string, number>>;
  /** Stages of the ring in shared memory. */
  readonly stage: number;
  /** How rows lie in shared memory. */
  readonly swizzle: "swizzled" | "padded" | "plain" | "spans";
  readonly transfer: "async" | "plain" | "engine";
  /** `warp`: an extra warp issues the copies of tiles. When left out, a thread of a multiplying warp does. */
  readonly producer?: "warp" | undefined;
  /**
   * Blocks of a cluster that are neighbours along one axis and fetch the tile that they share together. When left out,
   * each block fetches its own tiles.
   */
  readonly multicast?: { readonly blocks: number; readonly along: "rows" | "columns" } | undefined;
  /** Row tiles that consecutive blocks take before the next column tile. */
  readonly order: number;
  /** When fragments are fetched from shared memory. */
  readonly fragments: "inline" | "ahead" | "across" | "rolled";
  readonly store: "direct" | "staged" | "quads" | "bulk";
  /** Number of blocks that take all tiles in turn. When left out, each tile has its own block. */
  readonly persistent?: number | undefined;
  /**
   * Blocks that share the sum of a tile, and where their partial sums meet. When left out, each block sums its own
   * tile.
   */
  readonly split?: { readonly parts: number; readonly through: "cluster" | "memory" } | undefined;
  /** Operands that are first copied with the summed axis innermost; none when left out. */
  readonly repack?: readonly string[] | undefined;
  /**
   * `shifted`: an input is staged once and the filter taps read shifted windows of it. When left out, each tap is
   * staged by itself.
   */
  readonly taps?: "shifted" | undefined;
  /** Operand whose input is staged once per tile, in its own layout. When left out, each step stages its part. */
  readonly gather?: string | undefined;
  /**
   * `early`: a kernel that awaits another is launched while that one runs. When left out, it is launched after that one
   * has ended.
   */
  readonly launch?: "early" | undefined;
}

/** A mapping onto an instruction of a warp, and how blocks and warps share the work. */
export interface GridCandidate extends Scheduled<GridSchedule> {
  readonly kind: "grid";
}

/**
 * Schedule of a kernel whose threads each compute elements with an instruction of one thread: how loops are dealt to
 * lanes, warps and blocks. A loop that is not named counts 1 at that level. Parts of a sum are added by shuffles
 * between lanes, through shared memory between warps, and through the workspace between blocks.
 */
export interface ThreadSchedule {
  /** Lanes of a warp along each loop: powers of two that make a whole warp. */
  readonly lanes: Readonly<Record<string, number>>;
  /** Warps of a block along each loop. */
  readonly warps: Readonly<Record<string, number>>;
  /**
   * Neighbours along each loop that one thread computes per step: sums side by side in registers, or terms of one sum.
   */
  readonly each: Readonly<Record<string, number>>;
  /** Blocks that share the sum of an element. */
  readonly split: number;
  /**
   * `early`: the kernel that adds partial sums is launched while the previous one runs. When left out, after that one
   * has ended.
   */
  readonly launch?: "early" | undefined;
}

/** A computation by an instruction of one thread, which has no axes to match, and how threads share the work. */
export interface ThreadCandidate extends Scheduled<ThreadSchedule> {
  readonly kind: "threads";
}

/** Schedule of the equation in plain loops. */
export interface LoopSchedule {
  /** Threads that share the kept loops. */
  readonly threads: number;
}

/** Schedule of a convolution by Winograd's transforms, on the cores of a processor. */
export interface WinogradSchedule {
  /** Outputs of a window along each dimension: F(2x2,3x3) or F(4x4,3x3). */
  readonly outputs: Outputs;
  /** Images of a block, whose windows are transformed, multiplied and transformed back before the next block. */
  readonly images: number;
  /** Rows of windows of a block. */
  readonly rows: number;
  /** Windows of a register tile. */
  readonly windows: number;
  /** Vectors of filters of a register tile. */
  readonly vectors: number;
  /** Threads that share the blocks, or each step of a single block. */
  readonly threads: number;
}

/** Schedule of a program whose equations share their rows, on the cores of a processor. */
export interface ChainSchedule {
  /** Columns of a row that all equations of a pass compute before the next columns. */
  readonly columns: number;
  /** Threads that share the rows. */
  readonly threads: number;
}

/** Schedule of a program whose equations share their rows, on the threads of a GPU. */
export interface WarpChainSchedule {
  /** Neighbouring columns that a thread moves at once. */
  readonly together: number;
  /** Lanes that share a row. */
  readonly lanes: number;
  /** Warps that share a row. */
  readonly columnWarps: number;
  /** Rows of warps in a block. */
  readonly rowWarps: number;
}

/** The equation in plain loops. */
export type LoopCandidate = Unmapped<"loops", LoopSchedule>;
/** A convolution by Winograd's transforms, with the products on an instruction. */
export type WinogradCandidate = Unmapped<"winograd", WinogradSchedule>;
/** The equation on the threads of a GPU. */
export type WarpLoopCandidate = Unmapped<"warp-loops", ThreadSchedule>;
/** A program of equations that share their rows, row by row in plain loops. */
export type ChainCandidate = Unmapped<"chain", ChainSchedule>;
/** A program of equations that share their rows, of which each thread of a GPU holds some columns. */
export type WarpChainCandidate = Unmapped<"warp-chain", WarpChainSchedule>;

/** What a search proposes: a mapping, a design on lanes or plain loops, with the schedule it runs under. */
export type Candidate =
  | MappedCandidate
  | GridCandidate
  | ThreadCandidate
  | LaneCandidate
  | LoopCandidate
  | WinogradCandidate
  | WarpLoopCandidate
  | ChainCandidate
  | WarpChainCandidate;
/** The kinds of candidates; mapper/schedule/kinds.ts says which decisions each has. */
export type Kind = Candidate["kind"];

/** Whether a candidate maps loops onto an instruction of a GPU. */
export function isMappedOnGpu(candidate: Candidate): candidate is GridCandidate | ThreadCandidate {
  return candidate.kind === "grid" || candidate.kind === "threads";
}

/** Whether a candidate is made for a GPU. */
export const isOnGpu = (candidate: Candidate): boolean =>
  isMappedOnGpu(candidate) || candidate.kind.startsWith("warp-");

/** Whether a candidate maps loops onto an instruction; designs on lanes and plain loops do not. */
export function isMapped(candidate: Candidate): candidate is MappedCandidate | GridCandidate | ThreadCandidate {
  return "matching" in candidate;
}

/** Whether a candidate on lanes is given by its transform. */
export function isDesign(
  candidate: Candidate,
): candidate is DesignCandidate | WarpDesignCandidate | RecurrenceCandidate {
  return "transform" in candidate.schedule;
}

/** Host threads that call the kernel; a grid is launched by one. */
export function callingThreads({ schedule }: Candidate): number {
  return "threads" in schedule ? schedule.threads : 1;
}

/** The canonical text of a candidate: its identity within a workload. Fields that hold their default are left out. */
export const candidateKey = memoised((candidate: Candidate): string =>
  canonicalJson({ ...candidate, schedule: scheduleSaid(candidate) }),
);

/**
 * Fields whose default is 1, by kind of candidate: numbers, or numbers by loop. `warps` of a grid names every axis, so
 * it is not listed.
 */
const ONE_WHEN_LEFT_OUT: Readonly<Partial<Record<Kind, readonly string[]>>> = {
  mapping: ["block"],
  threads: ["lanes", "warps", "each"],
  "warp-window": ["each", "ahead"],
  "warp-steps": ["each", "ahead"],
  design: ["beside"],
  "warp-design": ["beside"],
  recurrence: ["beside"],
};
const NONE_WHEN_LEFT_OUT: readonly string[] = ["spread", "within", "repack"];

/** The schedule without fields that hold their default. */
function scheduleSaid({ kind, schedule }: Candidate): object {
  const counts = ONE_WHEN_LEFT_OUT[kind] ?? [];
  const isOne = (name: string, value: unknown): boolean => counts.includes(name) && value === 1;
  const said = Object.entries(schedule).flatMap(([name, value]: [string, unknown]) => {
    if (typeof value !== "object" || value === null) return isOne(name, value) ? [] : [[name, value]];
    if (NONE_WHEN_LEFT_OUT.includes(name) && Object.keys(value).length === 0) return [];
    if (Array.isArray(value)) return [[name, value]];
    return [[name, Object.fromEntries(Object.entries(value).filter(([, count]) => !isOne(name, count)))]];
  });
  return Object.fromEntries(said);
}

/** JSON of plain data with the keys of every object in order, so that equal data has equal text. */
export function canonicalJson(value: unknown): string {
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map((v) => canonicalJson(v ?? null)).join(",")}]`;
  const fields = inKeyOrder(value).flatMap(([name, v]) =>
    v === undefined ? [] : [`${JSON.stringify(name)}:${canonicalJson(v)}`],
  );
  return `{${fields.join(",")}}`;
}

/** Keys that are whole numbers come first, by their value: so the engine orders them whatever order they are given in. */
function inKeyOrder(value: object): [string, unknown][] {
  const fields = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  const numbered = fields.some(([name]) => name >= "0" && name < ":");
  return numbered ? Object.entries(Object.fromEntries(fields)) : fields;
}

/** Which kinds of candidates a search may choose from. */
export const CANDIDATE_KINDS = ["all", "exact", "instructions", "mappings", "lanes"] as const;
/** What a search chooses from. */
export type CandidateKinds = (typeof CANDIDATE_KINDS)[number];
/** Mappings onto instructions, designs on lanes, and forms of the equation with fewer products, which round otherwise (Winograd). */
export const SORTS_OF = {
  all: ["mappings", "lanes", "forms"],
  exact: ["mappings", "lanes"],
  instructions: ["mappings", "forms"],
  mappings: ["mappings"],
  lanes: ["lanes"],
} as const satisfies Readonly<Record<CandidateKinds, readonly string[]>>;
