/**
 * @file One point of the search space: a mapping and the schedule it runs under. Plain data that survives JSON.
 *
 *     avx512.vpdpbusd   n <- k   k <- c   order p q_k n ...   block q 12, k 2   in padded, w tiled
 */

import type { Rewriting } from "./computation.ts";
import type { Matching } from "./mapping.ts";

/**
 * How an input reaches the instruction.
 *
 * - `in-place`: loaded from the user's tensor where it lies; blocks at its border leave out what is outside
 * - `padded`: the tensor is copied once a call, re-laid so that the instruction's axes lie innermost, with a border of zeros
 * - `windowed`: copied once a call, with the fused loops of the instruction's axes laid out one by one and zeros behind them
 * - `tiled`: every tile is packed in the order the loops ask for it; ahead of time when the tensor is constant, else once a call
 */
export const PLACEMENTS = ["in-place", "padded", "windowed", "tiled"] as const;
/** Where an operand of an instruction is loaded from: its own tensor, or a copy and its form. */
export type Placement = (typeof PLACEMENTS)[number];

/** What a mapping leaves open. Dimensions are the outer loops by name, and each fed axis of the instruction by its loops joined, `p_q`. */
export interface Schedule {
  /**
   * Loops around the instruction, outermost first: every dimension once, `k`, kept ones before summed ones; and before it at most one
   * loop over its tiles, `k/8`: of 8 blocks each. Tiles of a summed dimension may stand outside kept loops; see mapper/schedule/cache-tiles.ts.
   */
  readonly order: readonly string[];
  /** Steps of a dimension unrolled around the instruction: the register block. 1 when left out. */
  readonly block: Readonly<Record<string, number>>;
  /** Where each tensor is loaded from. */
  readonly placement: Readonly<Record<string, Placement>>;
  /** Kept dimensions of fused loops that run over the gaps between the rows of a padded copy; none when left out. */
  readonly spread?: readonly string[] | undefined;
  /** Inputs whose padded or windowed copy is made anew at each step of the loop over a kept dimension, by operand; else once a call. */
  readonly within?: Readonly<Record<string, string>> | undefined;
  /** Threads that share the kernel. */
  readonly threads: number;
}

/** A mapping onto an instruction, and its schedule. */
interface Scheduled<S> {
  /** Name of the instruction. */
  readonly intrinsic: string;
  /** Which loops feed which axis of the instruction. */
  readonly matching: Matching;
  /** Instruction operand to tensor, as text: the binding the matching was found under. */
  readonly operands: Readonly<Record<string, string>>;
  /** The loops that were mapped, where they are not those of the equation; see mapper/match/phases.ts. */
  readonly rewriting?: Rewriting["kind"] | undefined;
  /** How the loops run. */
  readonly schedule: S;
}

/** A mapping onto an instruction, and its schedule. */
export interface MappedCandidate extends Scheduled<Schedule> {
  /** Left out: this is the kind that the first records were of. */
  readonly kind?: undefined;
}

/** How data, weights and sums move over lanes; see mapper/space-time/window.ts. */
export const LANE_DATAFLOWS = ["SBM", "FBS-shift", "FBS-load"] as const;
export type LaneDataflow = (typeof LANE_DATAFLOWS)[number];

/** What a kernel of lanes leaves open. */
export interface LaneSchedule {
  readonly dataflow: LaneDataflow;
  /** Elements of a vector: 16 f32 on AVX-512, 32 on a warp. */
  readonly lanes: number;
  /** P: output rows of a block; data rows are shared by them. 1 where there is no row axis. */
  readonly rows: number;
  /** Vectors of a block along the lane axis. */
  readonly vectors: number;
  /** Summed axes kept as loops inside a block. */
  readonly rolled: readonly string[];
  /** Broadcast ahead of the lane blocks and kept in vectors, or read where they are used. */
  readonly weights: "registers" | "memory";
  /** Results go around the caches. */
  readonly streaming: boolean;
  /** How far ahead of its use new data are asked for; 0 leaves that to the hardware. */
  readonly prefetchBytes: number;
  /**
   * `peeled`: whole blocks where every neighbour is inside, and the rest apart, for a CPU; `guarded`: one kind of block with every access
   * tested, all blocks dealt out, for thousands of warps.
   */
  readonly borders: "peeled" | "guarded";
  /** Row blocks swept before the next step of the outer axes, so that planes stay in cache; 0 sweeps all. */
  readonly strip: number;
  /** Steps in time of one pass over memory, of a stencil in time; 1 when left out. */
  readonly depth?: number | undefined;
  /** Neighbouring outputs of one lane, moved to and from memory at once; one, a vector's lanes side by side, when left out. */
  readonly each?: number | undefined;
  /**
   * Outputs along the outermost axis that data move along, made one after another by the same lanes: data are loaded once and added to every
   * sum they belong to. When left out, each is a block's own.
   */
  readonly sweep?: number | undefined;
  /** Steps of a sweep that are written out, the loads of all before the arithmetic of the first; 1 when left out. */
  readonly ahead?: number | undefined;
  readonly threads: number;
}

/** Where the points of some loops run: on lane `P z` at step `s z`, the slowest row of time first. */
export interface LaneTransform {
  /** Loops of the array, a column of the rows each; the others stand around it. */
  readonly loops: readonly string[];
  /** P. */
  readonly allocation: readonly number[];
  /** s: rows of time, compared lexicographically. */
  readonly schedule: readonly (readonly number[])[];
}

/** How the inputs of a design on lanes reach them. */
export const ARRAY_INPUTS = ["passed", "loaded", "dots"] as const;

/** What a kernel of lanes leaves open whose design is any transform. */
export interface ArraySchedule {
  readonly transform: LaneTransform;
  /** Elements of a vector: as many PEs at most. */
  readonly lanes: number;
  /** Steps that one pass of the array takes of a loop that is longer. */
  readonly tile: Readonly<Record<string, number>>;
  /** Steps of loops around the array that run side by side in registers of their own; of a loop in tiles, so many tiles. */
  readonly beside: Readonly<Record<string, number>>;
  /** What moves over lanes is passed on by its neighbour, or loaded again by every lane; or neighbours are loaded at once, for a dot product. */
  readonly inputs: (typeof ARRAY_INPUTS)[number];
  readonly streaming: boolean;
  readonly threads: number;
}

/** A window on the lanes of vectors under one of the transforms that have names, and its schedule. */
export interface LaneCandidate {
  readonly kind: "lanes";
  /** Name of the multiply-add the lanes run. */
  readonly intrinsic: string;
  readonly schedule: LaneSchedule;
}

/** A design on the lanes of vectors by its transform, and its schedule. */
export interface ArrayCandidate {
  readonly kind: "lanes";
  /** Name of the multiply-add the lanes run. */
  readonly intrinsic: string;
  readonly schedule: ArraySchedule;
}

/** Whether a design on lanes is given by its transform. */
export function isArray(candidate: Candidate): candidate is ArrayCandidate {
  return candidate.kind === "lanes" && "transform" in candidate.schedule;
}

/**
 * What a mapping of a matrix product leaves open on a machine of blocks and warps. Each entry is a decision with a file of its own in
 * mapper/schedule/, which says what the values mean.
 */
export interface GridSchedule {
  /** Elements of a block's tile along each axis of the instruction. */
  readonly tile: Readonly<Record<string, number>>;
  /** Warps, or warpgroups where those issue the instruction, of a block along each kept axis. */
  readonly warps: Readonly<Record<string, number>>;
  /** Stages of the ring in shared memory. */
  readonly stage: number;
  /** How rows lie in shared memory. */
  readonly swizzle: "swizzled" | "padded" | "plain" | "spans";
  readonly transfer: "async" | "plain" | "engine";
  /** What sends for tiles besides the warps that multiply; one of their threads when left out. */
  readonly producer?: "warp" | undefined;
  /** Row tiles that blocks take in turn before the next column tile. */
  readonly order: number;
  /** When fragments are fetched from shared memory. */
  readonly fragments: "inline" | "ahead" | "across";
  readonly store: "direct" | "staged" | "quads";
  /** Blocks that take all tiles in turn; each tile has a block of its own when left out. */
  readonly persistent?: number | undefined;
  /** Blocks that share the sum of a tile, and where their parts meet; each block sums its own tile when left out. */
  readonly split?: { readonly parts: number; readonly through: "cluster" | "memory" } | undefined;
  /** Inputs, by operand, that are first copied with the summed axis innermost; all are read as they lie when left out. */
  readonly repack?: readonly string[] | undefined;
  /** Taps of a filter are windows of what is staged of its input once; each is staged by itself when left out. */
  readonly taps?: "shifted" | undefined;
  /** The input, by operand, of which what a tile reads is staged once, as it lies in its tensor; each step stages its own part when left out. */
  readonly gather?: string | undefined;
  /** Kernels that await another one of the call are launched while that one runs; once it has ended when left out. */
  readonly launch?: "early" | undefined;
}

/** A mapping onto an instruction of a warp, and how blocks and warps share the work. */
export interface GridCandidate extends Scheduled<GridSchedule> {
  readonly kind: "grid";
}

/**
 * What a kernel leaves open whose threads each compute some elements by an instruction of one thread: how the loops are dealt to lanes, warps and
 * blocks. A loop that is named nowhere has one of each. Of a summed loop, lanes add up by shuffles, warps through shared memory, blocks through
 * the workspace.
 */
export interface ThreadSchedule {
  /** Lanes of a warp along each loop: powers of two that make a whole warp. */
  readonly lanes: Readonly<Record<string, number>>;
  /** Warps of a block along each loop. */
  readonly warps: Readonly<Record<string, number>>;
  /** Neighbours along each loop that one thread takes in a step: sums side by side in registers, or terms of a sum. */
  readonly each: Readonly<Record<string, number>>;
  /** Blocks that share the sum of an element. */
  readonly split: number;
  /** The kernel that adds parts up is launched while the one ahead runs; once it has ended when left out. */
  readonly launch?: "early" | undefined;
}

/** A computation by the instruction of one thread, which has no axes to match, and how threads share the work. */
export interface ThreadCandidate extends Scheduled<ThreadSchedule> {
  readonly kind: "threads";
}

/** What a search proposes: a mapping or a design on lanes, with the schedule it runs under. */
export type Candidate = MappedCandidate | LaneCandidate | ArrayCandidate | GridCandidate | ThreadCandidate;

/** Whether a candidate is made for a GPU. */
export function isOnGpu(candidate: Candidate): candidate is GridCandidate | ThreadCandidate {
  return candidate.kind === "grid" || candidate.kind === "threads";
}

/** Whether a candidate maps loops onto an instruction; a design on lanes does not. */
export function isMapped(candidate: Candidate): candidate is MappedCandidate | GridCandidate | ThreadCandidate {
  return candidate.kind !== "lanes";
}

/** Threads of the processor that call the kernel: a grid is launched by one. */
export function callingThreads(candidate: Candidate): number {
  return isOnGpu(candidate) ? 1 : candidate.schedule.threads;
}

/** The canonical text of a candidate: its identity within a workload. What says the same as nothing is left out. */
export function candidateKey(candidate: Candidate): string {
  return canonicalJson({ ...candidate, schedule: scheduleSaid(candidate) });
}

/** One of each where it is left out: a number, or for each loop that is not named. `warps` of a grid name every axis. */
const ONE_WHEN_LEFT_OUT: Readonly<Record<NonNullable<Candidate["kind"]> | "mapped", readonly string[]>> = {
  mapped: ["block"],
  lanes: ["beside", "depth", "each", "ahead"],
  grid: [],
  threads: ["lanes", "warps", "each"],
};
const NONE_WHEN_LEFT_OUT: readonly string[] = ["spread", "within", "repack"];

/** The schedule without what says the same as nothing. */
function scheduleSaid({ kind, schedule }: Candidate): object {
  const counts = ONE_WHEN_LEFT_OUT[kind ?? "mapped"];
  const isOne = (name: string, value: unknown): boolean => counts.includes(name) && value === 1;
  const said = Object.entries(schedule).flatMap(([name, value]: [string, unknown]) => {
    if (typeof value !== "object" || value === null) return isOne(name, value) ? [] : [[name, value]];
    if (NONE_WHEN_LEFT_OUT.includes(name) && Object.keys(value).length === 0) return [];
    if (Array.isArray(value)) return [[name, value]];
    return [[name, Object.fromEntries(Object.entries(value).filter(([, count]) => !isOne(name, count)))]];
  });
  return Object.fromEntries(said);
}

/** JSON with the keys of every object in order, so that equal data has equal text. */
export function canonicalJson(value: unknown): string {
  return JSON.stringify(value, (_, v: unknown) =>
    v !== null && typeof v === "object" && !Array.isArray(v)
      ? Object.fromEntries(Object.entries(v).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0)))
      : v,
  );
}

/** Which kinds of candidates a search may choose from. */
export const CANDIDATE_KINDS = ["all", "mappings", "lanes"] as const;
/** What a search chooses from: mappings onto instructions, designs on lanes, or both. */
export type CandidateKinds = (typeof CANDIDATE_KINDS)[number];
