/**
 * @file The one lowered program: what a mapping becomes, what the interpreter runs and every generator prints.
 *
 *     buffer a_tiles: u8[1024]
 *     for m_outer in 0..4
 *       for k_outer in 0..2
 *         c_tiles[256*m_outer ..] <- tdpbusd(a_tiles[1024*m_outer + 512*k_outer ..], b_tiles[512*k_outer ..])
 *
 * A scalar statement is an equation at the point its loops stand at, so the same notation serves from the operator down to the copy.
 * User tensors are read and written by logical index, outside reads giving the identity; scratch buffers are flat, or say by a storage
 * formula where an element lies.
 *
 * On a GPU the loops at `block` and `warp` stand outermost: every warp of a block runs what is below them, with registers of its own.
 * What stands beside a loop at warp is run by every warp; warps that its steps do not reach pass it by. A loop at thread beside it is another
 * role: one thread of a warp more, which the loops at warp do not reach.
 *
 *     shared a_ring: f16[stage 3, m 128, k 64] at 8192*stage + 64*m + 8*((k/8) ^ (m%8)) + k%8
 *     for at block m_tile in 0..32, n_tile in 0..16
 *       for at warp warp_m in 0..2, warp_n in 0..4
 *         acc{0..31} <- identity
 *         copy 128 x 64 by 8, async, by block          a_ring[0,m,k] = a[128*m_tile + m, k]
 *         commit
 *         for k_tile in 0..64
 *           wait 1
 *           barrier block
 *           ...
 *
 * Below are functions that build statements, and fresh names for the loops, buffers and registers that lowering adds.
 *
 *     assign(access("y", [plus(times(16, axis("block")), axis("lane"))]), number(0))          y[16*block + lane] = 0
 */

import { type Dimension, rowMajor } from "./affine.ts";
import { namesOf } from "./collections.ts";
import { type Computation, targetOf } from "./computation.ts";
import type { DType } from "./dtype.ts";
import { type Access, type Equation, type Expr, guarded } from "./expression.ts";
import { type Intrinsic, WARP } from "./intrinsic.ts";
import type { TensorView } from "./tensor-view.ts";

/**
 * Memory of a nest besides the user's tensors. It begins zeroed, except shared memory and `scratch`, whose initial contents are undefined.
 */
export interface Scratch {
  readonly name: string;
  readonly dtype: DType;
  /** Elements of memory, including holes that a storage formula leaves. */
  readonly elements: number;
  /**
   * `workspace` lasts from call to call and is shared by threads. So is `scratch`, but other kernels may write there between calls. `local` belongs to
   * one thread, `shared` to a block of a GPU. `cluster` is memory whose first dimension is the block's number: each block holds its part in its own
   * shared memory, and all blocks of the cluster can reach it.
   */
  readonly scope: "workspace" | "scratch" | "local" | "shared" | "cluster";
  /** Logical dimensions; one flat dimension when left out. The first dimension of a ring is its stage. */
  readonly dims?: readonly Dimension[];
  /** Where a logical element lies, over the names of `dims`; row-major when left out. */
  readonly storage?: Expr;
  /** A read outside its dimensions gives the identity of the combine, as outside a tensor. When left out, such reads are illegal. */
  readonly outside?: "identity";
  /** `result`: it holds a whole result, as the output does in the end, so its stores may bypass the caches. Any other buffer is read again soon. */
  readonly holds?: "result";
}

/** Whether it lies in shared memory, whose contents are lost between blocks. */
export const isShared = ({ scope }: Scratch): boolean => scope === "shared" || scope === "cluster";

/** Logical dimensions of a scratch buffer. */
export function dimsOf({ dims, elements }: Scratch): readonly Dimension[] {
  return dims ?? [{ name: "element", extent: elements }];
}

/** Where the elements of a scratch buffer lie, over the names of its dimensions. */
export function storageOf(scratch: Scratch): Expr {
  return scratch.storage ?? rowMajor(dimsOf(scratch));
}

/** Registers of one operand of an instruction, each holding one tile. */
export interface RegisterFile {
  readonly name: string;
  readonly intrinsic: Intrinsic;
  readonly operand: string;
  readonly count: number;
}

/**
 * Vectors of lanes: `count` registers of `lanes` elements, element l of a register in lane l. They are indexed `[register, lane]`, and the register
 * number is a constant in generated code. `Z[0,lane-1]` is the neighbour's value: a shift. A read beyond the ends of a register gives an unknown
 * value (NaN in the interpreter), which must not reach a result.
 */
export interface VectorFile {
  readonly name: string;
  readonly dtype: DType;
  readonly lanes: number;
  readonly count: number;
}

/**
 * How the steps of a loop run: in order, unrolled, dealt to threads in equal ranges, or all at once on the lanes of a vector. On a GPU each step runs
 * on a block of the grid, a block of a cluster, a warpgroup (four warps) of a block, a warp of it, or one thread of an extra warp. A `lanes` loop
 * holds scalar statements only. Each runs on every lane before the next begins, and every lane reads before any writes:
 *
 *     for lanes lane in 0..16
 *       Z[0,lane] = Z[0,lane-1] + x[16*b + lane] * w[q]          shift, contiguous load, broadcast, multiply-add
 *       s[0,0] += X[0,lane]                                      an access that lacks the lane axis on the left: a reduction
 */
export type LoopMode = "serial" | "unrolled" | "parallel" | "lanes" | "block" | "cluster" | TeamMode | "thread";
export type TeamMode = "warpgroup" | "warp";

/** Loops whose steps run side by side on parts of a block; a block has such loops of one level only. */
export const isTeamMode = (mode: LoopMode): mode is TeamMode => mode === "warp" || mode === "warpgroup";

/** Loops inside a block whose steps run on a part of it. */
export const isRoleMode = (mode: LoopMode): mode is TeamMode | "thread" => isTeamMode(mode) || mode === "thread";

/** Loops whose steps are blocks of a grid; loops over the blocks of a cluster stand innermost. */
export const isGridMode = (mode: LoopMode): mode is "block" | "cluster" => mode === "block" || mode === "cluster";

/** Threads that share a piece of work or wait for one another. */
export type Group = "cluster" | "block" | "warpgroup" | "warp";

export type Statement =
  | {
      readonly kind: "loop";
      readonly axis: string;
      readonly extent: number;
      readonly mode: LoopMode;
      /** Only steps in this range run; all steps when left out. */
      readonly range?: StepRange;
      /** Threads take steps of a parallel loop in turn rather than in ranges, because some steps have less work. */
      readonly inTurn?: true;
      /** Elements whose lines of the cache each step fetches for later: that changes no value, and they may lie outside of their tensors. */
      readonly ahead?: readonly TileAt[];
      readonly body: readonly Statement[];
    }
  /** One of two bodies, chosen by a condition on the loops around it or on elements. */
  | {
      readonly kind: "when";
      readonly condition: Expr;
      readonly body: readonly Statement[];
      readonly otherwise: readonly Statement[];
      /** An axis of the body, inside a block: how often this thread has run the body before, in the same block. */
      readonly counted?: Dimension;
    }
  /** One scalar statement; its axes are bound by the loops around it. Tensors are indexed logically, scratch by element. */
  | {
      readonly kind: "scalar";
      readonly equation: Equation;
      /** An element to prefetch. A prefetch changes no value and may lie outside its tensor. */
      readonly prefetch?: Access;
      /** Whether the line is used so late that it waits in the second-level cache, not in the first. */
      readonly isDistant?: boolean;
      /**
       * The equation holds for each value of this axis. A lane moves these elements at once, so they are contiguous and all inside or all outside.
       */
      readonly together?: Dimension;
    }
  /** One issue of an instruction on memory tiles that begin at the given elements. */
  | { readonly kind: "issue"; readonly intrinsic: Intrinsic; readonly tiles: Readonly<Record<string, TileAt>> }
  /** Moves a tile between memory and a register; `clear` sets a register to the identity of the instruction's combine. */
  | {
      readonly kind: "load" | "store";
      readonly register: RegisterAt;
      readonly memory: MemoryTile;
      /** For a load of anything but the elements of the tile. */
      readonly made?: MadeElements;
    }
  /** Fills registers from the logical elements of a scratch buffer. */
  | { readonly kind: "fetch"; readonly register: RegisterAt; readonly tile: TileAccess }
  | { readonly kind: "clear"; readonly register: RegisterAt }
  /** One issue on registers, and on tiles of shared memory where the instruction reads those directly. */
  | {
      readonly kind: "register-issue";
      readonly intrinsic: Intrinsic;
      readonly registers: Readonly<Record<string, RegisterAt>>;
      readonly tiles?: Readonly<Record<string, TileAccess>>;
      /** Its sums replace what the target's register held. */
      readonly begins?: true;
    }
  /** Adds each element of a register, times the same element of others, to that of `into`: the sums of a group become part of a sum. */
  | {
      readonly kind: "accumulate";
      readonly register: RegisterAt;
      readonly scales: readonly RegisterAt[];
      readonly into: RegisterAt;
    }
  /** Stores each element of a register's tile at its place in memory: accumulators become elements of the output. */
  | {
      readonly kind: "drain";
      readonly register: RegisterAt;
      /** Names that run over the operand's dimensions, in their order. */
      readonly axes: readonly string[];
      /** An assignment that reads the register's element as `element[]`. Elements that fail its `where` are not stored. */
      readonly equation: Equation;
      readonly element: string;
      /** Only so many elements along the last dimension are stored, from one on; all when left out. */
      readonly part?: { readonly from: Expr; readonly extent: number };
      /**
       * `instruction`: the operand's own `store` writes the tile, given the distance between rows. `quads`: four lanes exchange elements first, so
       * that each writes 16 contiguous bytes. `stmatrix`: in rows of 16 bytes, into shared memory. When left out, the tile is written element by element.
       */
      readonly by?: "instruction" | "quads" | "stmatrix";
    }
  | Copy
  /**
   * One thread asks the copy engine to copy boxes into a stage. The data are visible to every thread that awaits the arrival, and to instructions
   * that read memory directly. Skipped where `when` does not hold.
   */
  | { readonly kind: "send"; readonly copies: readonly Copy[]; readonly arrival: ArrivalAt; readonly when?: Expr }
  /** Waits until the stage has been filled, or freed, for the `use`th time, counted from 0. Does not wait when `use` is -1 or `when` does not hold. */
  | { readonly kind: "await"; readonly arrival: ArrivalAt; readonly use: Expr; readonly when?: Expr }
  /**
   * Each warp or warpgroup that runs this is done with the stage, where `when` holds. The stage is free once all have arrived. With `cluster`, it
   * arrives at that stage of every block of the cluster, and those of all blocks free it.
   */
  | { readonly kind: "arrive"; readonly arrival: ArrivalAt; readonly group?: "cluster"; readonly when?: Expr }
  /** Makes everything that this thread has issued since its last commit one group, of copies or of issues, which ends as a whole. */
  | { readonly kind: "commit"; readonly of?: Intrinsic }
  /** Waits until all but this thread's newest `pending` groups have ended. Copies by other threads are visible only after a barrier. */
  | { readonly kind: "wait"; readonly pending: number; readonly of?: Intrinsic }
  /** Waits until the copy engine has read all but the newest `pending` tiles that this thread sent it to store. */
  | { readonly kind: "settle"; readonly pending: number }
  /**
   * `registers`: orders this thread's accesses to the instruction's registers before its next issue. `memory`: makes this thread's writes to shared
   * memory visible, after a barrier, to instructions that read it directly.
   */
  | { readonly kind: "fence"; readonly on: "registers" | "memory"; readonly of: Intrinsic }
  /**
   * No thread continues until all threads of the group have arrived: of a cluster, a block or a warp. Without a group it is a barrier of the whole
   * call, at the top of a nest only. A barrier of `beginnings` ensures only that every block of the cluster runs, so that its memory may be written.
   * `early`: the kernel below may be set up before the one above has ended.
   */
  | { readonly kind: "barrier"; readonly group?: Group; readonly of?: "beginnings"; readonly early?: true };

/**
 * A copy of a tile from memory to memory by the threads of a group. Thread t takes the pieces t, t + threads, ... of `width` elements along the last
 * axis. Pieces are numbered row-major over `axes`.
 *
 *     copy 128 x 64 by 8, async, by block where k_tile + 2 < 64          a_ring[(k_tile+2)%3,m,k] = a[128*m_tile + m, 64*(k_tile+2) + k]
 */
export interface Copy {
  readonly kind: "copy";
  /** Outermost first. */
  readonly axes: readonly Dimension[];
  /**
   * Assigns to a scratch buffer or the output. An element outside its tensor, or one that a `select` leaves out, is filled as the equation says.
   * Pieces that fail its `where` are not copied.
   */
  readonly equation: Equation;
  /** Elements moved at once: contiguous on both sides, and inside or outside together. */
  readonly width: number;
  /** Elements of a piece are read one by one: they are contiguous where they are written, and anywhere in shared memory where they are read. */
  readonly gathered?: true;
  /** `async` copies cannot be read until their group has been awaited. They cannot compute: the value is an element or zero. */
  readonly transfer: "plain" | "async" | "engine";
  /**
   * An engine's copy outside a `send` stores a tile of shared memory: the first thread of the group asks for it, each time in a group of its own, and
   * a `settle` waits for it. What lies outside the tensor is not stored. For a cluster, an
   * engine's copy lands in the same place of every block of it, and counts for the arrival of each.
   */
  readonly group: Group;
  /** The copy runs only where this holds. It names none of `axes`, so all threads agree. */
  readonly when?: Expr;
  /**
   * The tile as the copy engine sees it: the elements of the equation, with rows numbered row-major over all axes but the last. Elements that a
   * `select` leaves out are undefined.
   */
  readonly view?: TensorView;
}

/** Largest number of pieces per thread that a printer unrolls; more become a loop. */
export const MOST_WRITTEN_OUT = 32;

/** A stage of one of the nest's arrivals. */
export interface ArrivalAt {
  readonly name: string;
  readonly stage: Expr;
}

export type Loop = Extract<Statement, { kind: "loop" }>;

/** Steps from the largest of `from` up to, but not including, the smallest of `to`; both may lie outside the loop. */
export interface StepRange {
  readonly from: readonly Expr[];
  readonly to: readonly Expr[];
}

/** A tile in a scratch buffer, by its first element. */
export interface TileAt {
  readonly buffer: string;
  readonly base: Expr;
}

export interface RegisterAt {
  readonly file: string;
  /** Number within the file. */
  readonly index: Expr;
}

/** A tile in flat memory: a scratch buffer, or a user's tensor in its storage order. */
export interface MemoryTile {
  readonly buffer: string;
  /** First element of the tile. */
  readonly base: Expr;
  /** Elements from one row of the tile to the next. */
  readonly stride: number;
}

/** What a load makes of the elements of a tile: `(f32(element[]) - 8) * s[n,g]` of numbers that lie in half bytes. */
export interface MadeElements {
  /** The name that runs over the places of the tile, which are the lanes of the register. */
  readonly lane: string;
  /** The name of the element of memory in the value. */
  readonly element: string;
  /** Besides the element it reads elements that all lanes share, and tiles of other buffers: `part_tiles[16*n + lane]`. */
  readonly value: Expr;
  /** Where the tile holds numbers of half a byte, two a byte with the first in its low half, the number that each lane takes. */
  readonly halves?: readonly number[];
}

/** A tile of logical elements of a scratch buffer: `a_ring[k_tile%3, 64*warp_m + 16*i + x, 16*kk + y]` with x and y over the tile. */
export interface TileAccess {
  /** Names that run over the operand's dimensions, in their order. */
  readonly axes: readonly string[];
  readonly access: Access;
  /**
   * `elements`: each lane moves the elements that its register holds. `ldmatrix`: rows of 16 bytes, along the dimension whose neighbours share a
   * 32-bit register; `ldmatrix.trans`: along the other. `instruction`: the operand's own load, given the distance between rows.
   */
  readonly by: "elements" | "ldmatrix" | "ldmatrix.trans" | "instruction";
  /** Elements that fail this are zero and are not read; for `elements` only. */
  readonly where?: Expr;
  /** What each element is made of, over the axes, in place of the one at `access`, which is among what it reads; for `elements` only. */
  readonly made?: Expr;
  /** Number of consecutive registers, each a tile further along a dimension of the operand (its position); one when left out. */
  readonly several?: { readonly count: number; readonly along: number };
}

/**
 * The levels of a GPU at which the outermost parallel loops run. Their steps, counted as one number, go to the warps of a grid in order, or to equal
 * parts of warps.
 */
interface Deal {
  /** Warps of a block; 4 when left out. */
  readonly warps?: number | undefined;
  /** Lanes that run a step; those of a warp when left out. */
  readonly lanes?: number;
  /** Warps that should fit into a quarter of a multiprocessor; the compiler decides when left out. */
  readonly resident?: number | undefined;
}

export function dealOf({ deal = {} }: LoopNest): { warps: number; lanes: number; resident: number | undefined } {
  const { warps = 4, lanes = WARP, resident } = deal;
  return { warps, lanes, resident };
}

/** A lowered program: what is interpreted, printed as source, and counted by the model. */
export interface LoopNest {
  /** Buffers besides the user's tensors. */
  readonly scratch: readonly Scratch[];
  /** Registers of the instructions. */
  readonly registers: readonly RegisterFile[];
  /** Barriers by stage: copy engines complete one when the stage has been filled, or all teams of a block or cluster when it is free. None when left out. */
  readonly arrivals?: readonly {
    readonly name: string;
    readonly stages: number;
    readonly by?: "teams" | "teams of the cluster";
  }[];
  /** Vectors of lanes; none when left out. */
  readonly vectors?: readonly VectorFile[];
  /** How a GPU deals the parallel loops around loops of lanes to blocks and warps. */
  readonly deal?: Deal;
  /** Run once before the first call: packs constants. */
  readonly prepare: readonly Statement[];
  /** Run at every call. */
  readonly body: readonly Statement[];
}

export const loop = (axis: string, extent: number, body: readonly Statement[], mode: LoopMode = "serial"): Loop => ({
  kind: "loop",
  axis,
  extent,
  mode,
  body,
});

/** A statement of one equation. */
export const scalar = (equation: Equation): Statement => ({ kind: "scalar", equation });

/** Loops around a body, outermost first. Loops of one step are kept, so that every axis stays bound. */
export function loops<Axis extends { readonly name: string; readonly extent: number }>(
  axes: readonly Axis[],
  body: readonly Statement[],
  modeOf: (axis: Axis, at: number) => LoopMode = () => "serial",
): readonly Statement[] {
  return axes.reduceRight((inner, axis, at) => [loop(axis.name, axis.extent, inner, modeOf(axis, at))], body);
}

// ---- names -----------------------------------------------------------------------------------------------------------------------

/** A wish, with underscores until it is not taken. */
export const freshName = (wish: string, taken: ReadonlySet<string>): string =>
  taken.has(wish) ? freshName(`${wish}_`, taken) : wish;

/** Fresh names that no loop or tensor of the computations has. The same wish always gives the same name. */
export class FreshNames {
  private readonly taken: ReadonlySet<string>;

  constructor(...computations: readonly Computation[]) {
    const all = computations.flatMap((c) => [...namesOf(c.axes), ...Object.keys(c.tensors), targetOf(c).name]);
    this.taken = new Set(all);
  }

  fresh(wish: string): string {
    return freshName(wish, this.taken);
  }
}

// ---- assignments of single elements ----------------------------------------------------------------------------------------------

export type Scalar = Extract<Statement, { kind: "scalar" }>;

/** @param where conditions that must all hold */
export const assignment = (target: Access, value: Expr, where: readonly Expr[] = []): Equation =>
  guarded({ target, op: "=", value }, where);

/** @param where conditions that must all hold */
export function assign(target: Access, value: Expr, where: readonly Expr[] = [], op: Equation["op"] = "="): Scalar {
  return { kind: "scalar", equation: guarded({ target, op, value }, where) };
}
