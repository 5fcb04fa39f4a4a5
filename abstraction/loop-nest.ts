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
 */

import type { DType } from "./dtype.ts";
import type { Equation } from "./equation.ts";
import type { Access, Expr } from "./expression.ts";
import type { Intrinsic } from "./intrinsic.ts";
import { type Dimension, rowMajor } from "./layout.ts";
import type { TensorView } from "./tensor-view.ts";

/** Memory of a nest besides the user's tensors. It starts at zero, shared memory with anything. */
export interface Scratch {
  readonly name: string;
  readonly dtype: DType;
  /** Elements of memory, those that a storage formula leaves out included. */
  readonly elements: number;
  /** `workspace` lasts from call to call and is shared by threads; `local` belongs to one thread, `shared` to a block of a GPU. Of memory of a
   * `cluster`, each block has what lies at its number along the first dimension in its own shared memory, and all reach it.
   */
  readonly scope: "workspace" | "local" | "shared" | "cluster";
  /** Logical dimensions; one flat dimension when left out. The first dimension of a ring is its stage. */
  readonly dims?: readonly Dimension[];
  /** Where a logical element lies, over the names of `dims`; row-major when left out. */
  readonly storage?: Expr;
  /** A read outside its dimensions gives the identity of the combine, as outside a tensor; nothing may be read there when left out. */
  readonly outside?: "identity";
  /** It holds a whole result at a time, as the output does in the end: its stores may go around the caches. Any other is read again soon. */
  readonly holds?: "result";
}

/** Whether it lies in shared memory, which begins anew with every block. */
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
 * Vectors of lanes: `count` registers of `lanes` elements, element l of a register in lane l. They are indexed `[register, lane]`, the
 * register by a number known while printing. `Z[0,lane-1]` is the neighbour's value: a shift. What a lane reads beyond the ends of a
 * register is unknown (the interpreter gives NaN): whoever reads it must not use it.
 */
export interface VectorFile {
  readonly name: string;
  readonly dtype: DType;
  readonly lanes: number;
  readonly count: number;
}

/**
 * How the steps of a loop run: in order, all written out, dealt to threads in equal ranges, all at once on the lanes of a vector, or each
 * by a block of a GPU's grid, a block of a cluster, a group of four warps of a block, a warp of it, or one thread of a warp that a block has besides.
 * A `lanes` loop holds scalar statements only. Each runs on every lane before the next begins, and every lane reads before any writes:
 *
 *     for lanes lane in 0..16
 *       Z[0,lane] = Z[0,lane-1] + x[16*b + lane] * w[q]          shift, contiguous load, broadcast, multiply-add
 *       s[0,0] += X[0,lane]                                      an access that lacks the lane axis on the left: a reduction
 */
export type LoopMode = "serial" | "unrolled" | "parallel" | "lanes" | "block" | "cluster" | TeamMode | "thread";
export type TeamMode = "warpgroup" | "warp";

/** Loops whose steps run side by side on the parts of a block; a block has them of one level only. */
export const isTeamMode = (mode: LoopMode): mode is TeamMode => mode === "warp" || mode === "warpgroup";

/** Loops inside a block that a part of it runs. */
export const isRoleMode = (mode: LoopMode): mode is TeamMode | "thread" => isTeamMode(mode) || mode === "thread";

/** Loops whose steps are blocks of a grid: those of a cluster stand innermost. */
export const isGridMode = (mode: LoopMode): mode is "block" | "cluster" => mode === "block" || mode === "cluster";

/** Threads that share a piece of work or wait for one another. */
export type Group = "cluster" | "block" | "warpgroup" | "warp";

export type Statement =
  | {
      readonly kind: "loop";
      readonly axis: string;
      readonly extent: number;
      readonly mode: LoopMode;
      /** Of the steps only those are run that are in it; all of them when left out. */
      readonly range?: StepRange;
      /** Threads take the steps of a parallel loop one by one in turn, not in ranges: where some steps have less to do than others. */
      readonly inTurn?: true;
      readonly body: readonly Statement[];
    }
  /** One of two bodies, as a condition holds: on the loops around it, or on elements that they read. */
  | {
      readonly kind: "when";
      readonly condition: Expr;
      readonly body: readonly Statement[];
      readonly otherwise: readonly Statement[];
    }
  /** One scalar statement; its axes are bound by the loops around it. Tensors are indexed logically, scratch by element. */
  | {
      readonly kind: "scalar";
      readonly equation: Equation;
      /** An element to bring into the cache for later: it changes no value and may lie outside its tensor. */
      readonly prefetch?: Access;
      /** The equation holds for each value of this axis, whose elements a lane moves at once: side by side, inside or outside together. */
      readonly together?: Dimension;
    }
  /** One issue of an instruction on memory tiles that begin at the given elements. */
  | { readonly kind: "issue"; readonly intrinsic: Intrinsic; readonly tiles: Readonly<Record<string, TileAt>> }
  /** Moves a tile between memory and a register; `clear` sets a register to the identity of the instruction's combine. */
  | {
      readonly kind: "load" | "store";
      readonly register: RegisterAt;
      readonly memory: MemoryTile;
    }
  /** Fills registers from the logical elements of a scratch buffer. */
  | { readonly kind: "fetch"; readonly register: RegisterAt; readonly tile: TileAccess }
  | { readonly kind: "clear"; readonly register: RegisterAt }
  /** One issue on registers, and on tiles of shared memory where the instruction reads those by itself. */
  | {
      readonly kind: "register-issue";
      readonly intrinsic: Intrinsic;
      readonly registers: Readonly<Record<string, RegisterAt>>;
      readonly tiles?: Readonly<Record<string, TileAccess>>;
    }
  /** Each element of a register's tile at its place in memory: what an accumulator holds becomes elements of the output. */
  | {
      readonly kind: "drain";
      readonly register: RegisterAt;
      /** Names that run over the operand's dimensions, in their order. */
      readonly axes: readonly string[];
      /** Assigns; reads the register's element as `element[]`. Elements for which `where` does not hold stay in the register. */
      readonly equation: Equation;
      readonly element: string;
      /**
       * Written by the operand's own `store`, with the distance between rows; or by four lanes that exchange what they hold first, so that each
       * writes 16 bytes side by side. Element by element when left out.
       */
      readonly by?: "instruction" | "quads";
    }
  | Copy
  /**
   * One thread tells the engine of the machine to copy boxes into a stage; what it copies is there for whoever awaits the arrival, also for
   * instructions that read memory by themselves. Made where `when` holds.
   */
  | { readonly kind: "send"; readonly copies: readonly Copy[]; readonly arrival: ArrivalAt; readonly when?: Expr }
  /**
   * Whoever runs it goes on when the stage has been filled, or freed, for the `use`th time, counted from 0; at once at -1, and where `when` does not
   * hold.
   */
  | { readonly kind: "await"; readonly arrival: ArrivalAt; readonly use: Expr; readonly when?: Expr }
  /** Each warp or warpgroup that runs it is done with the stage, where `when` holds; the stage is free once all have been. */
  | { readonly kind: "arrive"; readonly arrival: ArrivalAt; readonly when?: Expr }
  /** What this thread sent off since its last commit is one group, which ends as a whole: of copies, or of issues of an instruction. */
  | { readonly kind: "commit"; readonly of?: Intrinsic }
  /** This thread goes on when all but its newest `pending` groups have ended. What others copied is there after a barrier. */
  | { readonly kind: "wait"; readonly pending: number; readonly of?: Intrinsic }
  /**
   * `registers`: what this thread did to the registers of the instruction is done before what it issues next. `memory`: what this thread wrote to
   * shared memory is there for instructions that read it by themselves, once a barrier stands between.
   */
  | { readonly kind: "fence"; readonly on: "registers" | "memory"; readonly of: Intrinsic }
  /**
   * All threads have finished what is above before any begins what is below. Of the whole call when no group is named, and then at the
   * top of a nest only; else of the threads of a cluster, of a block, or of a warp. A barrier of `beginnings` says no more than that every block
   * of the cluster runs, so that its memory may be written. `early`: what is below, a kernel of its own, may be set up before what is above has
   * ended.
   */
  | { readonly kind: "barrier"; readonly group?: Group; readonly of?: "beginnings"; readonly early?: true };

/**
 * A tile from memory to memory, dealt to the threads of a group: thread t takes the pieces t, t + threads, ... of `width` elements along
 * the last axis. Pieces are numbered row-major over `axes`.
 *
 *     copy 128 x 64 by 8, async, by block where k_tile + 2 < 64          a_ring[(k_tile+2)%3,m,k] = a[128*m_tile + m, 64*(k_tile+2) + k]
 */
export interface Copy {
  readonly kind: "copy";
  /** Outermost first. */
  readonly axes: readonly Dimension[];
  /**
   * Assigns to a scratch buffer or the output. A value outside its tensor, or one a `select` leaves out, is filled with what the equation
   * says; pieces for which `where` does not hold are not copied.
   */
  readonly equation: Equation;
  /** Elements moved at once: they lie side by side on both sides, and are inside or outside together. */
  readonly width: number;
  /** Elements of a piece are read one by one: they lie side by side where they are written, and anywhere in shared memory where they are read. */
  readonly gathered?: true;
  /** `async` is unreadable until its group has arrived, and cannot compute: its value is an element, or a fill of zero. */
  readonly transfer: "plain" | "async" | "engine";
  readonly group: Group;
  /** The copy is made where this holds; it names none of `axes`, so that all threads agree. */
  readonly when?: Expr;
  /**
   * What an engine is told of the tile: it brings what the equation says, rows numbered row-major over all axes but the last. What a `select`
   * leaves out holds anything.
   */
  readonly view?: TensorView;
}

/** Pieces of a copy by one thread that a printer writes out one after the other; more of them are a loop. */
export const MOST_WRITTEN_OUT = 32;

/** One of the arrivals of a nest: of a stage. */
export interface ArrivalAt {
  readonly name: string;
  readonly stage: Expr;
}

export type Loop = Extract<Statement, { kind: "loop" }>;

/** Steps from the largest of `from` on and below the least of `to`, which may lie outside of the loop. */
export interface StepRange {
  readonly from: readonly Expr[];
  readonly to: readonly Expr[];
}

/** A tile in a scratch buffer: the element it begins at. */
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
  /** Element of the tile's first place. */
  readonly base: Expr;
  /** Elements from one row of the tile to the next. */
  readonly stride: number;
}

/** A tile of logical elements of a scratch buffer: `a_ring[k_tile%3, 64*warp_m + 16*i + x, 16*kk + y]` with x and y over the tile. */
export interface TileAccess {
  /** Names that run over the operand's dimensions, in their order. */
  readonly axes: readonly string[];
  readonly access: Access;
  /**
   * `elements`: each lane moves what its register holds. `ldmatrix`: rows of 16 bytes, along the dimension whose neighbours share a
   * 32-bit register; `ldmatrix.trans`: along the other. `instruction`: the operand's own load, with the distance between rows.
   */
  readonly by: "elements" | "ldmatrix" | "ldmatrix.trans" | "instruction";
  /** Elements for which it does not hold are zero, and are not read: of `elements` only. */
  readonly where?: Expr;
  /** So many registers from the named one on, each a tile further along a dimension of the operand (its position); one when left out. */
  readonly several?: { readonly count: number; readonly along: number };
}

/** A lowered program: what is interpreted, printed as source, and counted by the model. */
export interface LoopNest {
  /** Memory of its own. */
  readonly scratch: readonly Scratch[];
  /** Registers that instructions work on. */
  readonly registers: readonly RegisterFile[];
  /** What engines complete when a stage has been filled, or all warps or warpgroups of a block when it is free; none when left out. */
  readonly arrivals?: readonly { readonly name: string; readonly stages: number; readonly by?: "teams" }[];
  /** Vectors that lanes compute on; none when left out. */
  readonly vectors?: readonly VectorFile[];
  /** Run once, ahead of the calls: constants are packed. */
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

/** Loops around a body, outermost first; loops of one step are kept, so that every axis stays bound. */
export function loops(
  axes: readonly { readonly name: string; readonly extent: number }[],
  body: readonly Statement[],
): readonly Statement[] {
  return axes.reduceRight<readonly Statement[]>((inner, { name, extent }) => [loop(name, extent, inner)], body);
}
