/**
 * @file The decisions about a window on lanes, in addition to its transform: on the vectors of a CPU, and on the warps of
 * a GPU.
 *
 *     FBS-load on 16 lanes, 4 rows x 4 vectors   loops kept none   weights in registers   stores around the caches   prefetch 2048 bytes ahead
 *     FBS-load on 32 lanes, 2 rows x 1 vector   warps 8   sweep 64 outputs   outputs a lane 4   loops kept none   steps written out 2
 *
 * A block is `rows` by `vectors` of outputs. The design and its block are printed together; see
 * report/describe-candidate.ts.
 */

import { z } from "zod";
import {
  LANE_DATAFLOWS,
  LINE_USES,
  type WarpWindowSchedule,
  type WindowSchedule,
} from "../../abstraction/candidate.ts";
import { memoised, unique } from "../../abstraction/collections.ts";
import { type Computation, outputOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { internal } from "../../abstraction/error.ts";
import { printExpr } from "../../abstraction/expression.ts";
import { identifier } from "../../abstraction/schema.ts";
import { type LaneRefusal, rollable, type TapSum, tapsOf } from "../space-time/taps.ts";
import { WINDOW_DESIGNS } from "../space-time/window.ts";
import { lineRegisters, lineRows } from "../space-time/window-lines.ts";
import { planeAxis, sweepRegisters, sweptAxis } from "../space-time/window-sweep.ts";
import {
  ahead,
  each,
  lanes,
  natural,
  ofDesign,
  positive,
  rows,
  streaming,
  sweep,
  threads,
  USUAL_WARPS,
  vectors,
  warpLanes,
  warps,
} from "./lane-decisions.ts";
import { movedAtOnce, productsOf, stripsOf, warpWindowProblem, windowProblem, writtenInAll } from "./lanes.ts";
import type { ScheduleKind } from "./schedules.ts";

/** A sum of taps, with each set of loops that may be kept. */
interface WarpWindowContext {
  /** The sum with no loop kept. */
  readonly sum: TapSum;
  /** By the names of the loops that are kept. */
  readonly sums: ReadonlyMap<string, TapSum>;
}

interface WindowContext extends WarpWindowContext {
  /** Vector registers, and lanes of each. */
  readonly registers: number;
  readonly lanes: number;
  readonly threads: number;
}

/** The sums of a computation, or why lanes cannot compute it. */
export function tapSums(computation: Computation): WarpWindowContext | LaneRefusal {
  const verdict = tapsOf(computation);
  if (!verdict.ok) return verdict.refusal;
  // Loops to keep: none, or the innermost summed axis. With more, every multiply-add would load a vector.
  const last = rollable(computation).at(-1);
  const sums = (last === undefined ? [[]] : [[], [last]]).flatMap((rolled) => {
    const own = tapsOf(computation, rolled);
    return own.ok ? [[rolled.join(), own.sum] as const] : [];
  });
  return { sum: verdict.sum, sums: new Map(sums) };
}

/** @throws Error for loops that cannot be kept */
export function sumUnder({ sums }: WarpWindowContext, { rolled }: Pick<WindowSchedule, "rolled">): TapSum {
  const found = sums.get(rolled.join()) ?? internal(`${rolled.join(", ")} cannot stay loops`);
  return found;
}

const dataflow = {
  summary:
    "The name of the transform: sums move across lanes that hold data (`SBM`), data move across lanes that hold sums (`FBS-shift`), or each lane loads every column itself (`FBS-load`).",
  example: "FBS-load",
  schema: z.enum(LANE_DATAFLOWS),
  values: () => LANE_DATAFLOWS,
  print: ofDesign,
};

const rolled = {
  label: "loops kept",
  summary: "Summed axes that stay loops inside a block, which bounds the code size of large filters.",
  example: "s",
  schema: z.array(identifier).max(64),
  values: ({ sums }: WarpWindowContext) => [...sums.values()].map((sum) => sum.rolled),
  print: (names: readonly string[]) => names.join(" ") || "none",
};

/** Whether a dataflow is more than another name of loads: data that lanes hold are shifted between columns. */
const isOther = (sum: TapSum, flow: WindowSchedule["dataflow"]): boolean =>
  WINDOW_DESIGNS[flow].data !== "held" || sum.columns > 1;

// ---- Vectors of a CPU

/** Sides of a block, in outputs: more than eight rows or vectors need more registers than there are. */
const SIDES = [1, 2, 3, 4, 6, 8] as const;

/**
 * Most multiply-adds of a block. g++ 12 takes 2 ms for each, and borders add up to the same number again: a block of 2304 took 9 s of processor
 * time (conv2d f32, 64 channels; a Xeon, 2026-11-22). The longest that won a search has 248 (bench/results/stencils-xeon.md). Blocks of one
 * output at a time may have more, since long filters would otherwise have no block at all.
 */
const LONGEST_BLOCK = 600;
const LONGEST_OUTPUT = 3000;
/**
 * Most multiply-adds in all blocks of a kernel, since those at borders and beside whole ones are written separately. Each is two or three lines
 * with its comment. For seven windows of 5 to 400 taps the model's best kernels have 220 to 792; longer ones had up to 7,172 lines (2026-11-23).
 */
const LONGEST_IN_ALL = 1024;
/**
 * The same for windows of so many taps whose rows come as lines, since their blocks compile faster: g++ takes 2.9 s for 1296 multiply-adds of a
 * 9x9 filter, as for 324 in other forms. 4 rows x 4 vectors then take 1.6 ms, 2 x 2 take 1.9, and the products alone 1.44 (1024 x 1024, a Zen 4,
 * 2026-11-23).
 */
const MOST_LINE_TAPS = 100;
const LONGEST_LINES = 1300;
const LINES_IN_ALL = 3000;

/** Whether a block fits and is no other name of another. */
function isWorthwhile(context: WindowContext, block: WindowSchedule): boolean {
  const sum = sumUnder(context, block);
  const single = block.rows * block.vectors * (block.planes ?? 1) === 1;
  const isLong = block.lines === undefined || sum.taps.length > MOST_LINE_TAPS;
  if (productsOf(sum, block) > (single ? LONGEST_OUTPUT : isLong ? LONGEST_BLOCK : LONGEST_LINES)) return false;
  if (!single && writtenInAll(sum, block) > (isLong ? LONGEST_IN_ALL : LINES_IN_ALL)) return false;
  return isOther(sum, block.dataflow) && windowProblem(sum, block) === undefined;
}

/** Vectors that hold the weights of a window. */
const factorsOf = memoised((sum: TapSum) => new Set(sum.taps.map((t) => t.factor && printExpr(t.factor))).size);

/** Whether sums, data, lines and weights fit the registers. */
function isHeld(context: WindowContext, schedule: WindowSchedule): boolean {
  const sum = sumUnder(context, schedule);
  const lined = schedule.lines ? lineRegisters(lineRows(sum, schedule), schedule) : 0;
  const sums = schedule.rows * (schedule.planes ?? 1) * schedule.vectors;
  const factors = schedule.weights === "registers" ? factorsOf(sum) : 1;
  return sums + schedule.vectors + lined + factors <= context.registers;
}

/** Windows on the vectors of a CPU. Decisions are drawn in this order, and listed with the first as the outermost loop. */
export const WINDOW: ScheduleKind<WindowSchedule, WindowContext> = {
  problem: (context, schedule) => windowProblem(sumUnder(context, schedule), schedule)?.because,
  tries: 200,
  decisions: {
    lanes: { ...lanes, values: (context) => [context.lanes] },
    dataflow,
    rolled,
    rows: { ...rows, values: () => SIDES },
    vectors: { ...vectors, values: () => SIDES },
    lines: {
      summary:
        "How the rows of an input reach registers. By default each column of the window is a load of its own, and most of these cross a cache line, which costs a second access. Otherwise whole lines are loaded, and lanes take the columns from them by shifts: all lines that a block needs (`loaded`), the same with every second column still loaded by itself, which balances loads and shifts (`mixed`), or only the new lines, since the others stay in registers from the block before (`carried`).",
      example: "carried",
      schema: z.enum(LINE_USES).optional(),
      values: () => [undefined, ...LINE_USES],
    },
    planes: {
      summary:
        "Planes of a 3-D grid that a block computes together. They share the planes that they both read, which then come from the second-level cache once for all of them.",
      example: "2",
      schema: positive.optional(),
      values: ({ sum }) => (planeAxis(sum) === undefined ? [undefined] : [undefined, 2, 3, 4]),
      worthTrying: isWorthwhile,
    },
    strip: {
      summary:
        "Row blocks computed before the next step of the outer axes, so that planes stay in cache; 0 means all of them.",
      example: "8 row blocks",
      schema: natural,
      values: ({ sum }) => unique(SIDES.flatMap((tall) => stripsOf(sum, tall))),
      worthTrying: ({ sum }, schedule) => stripsOf(sum, schedule.rows).includes(schedule.strip),
      print: (blocks) => (blocks === 0 ? undefined : `${blocks} row blocks`),
    },
    weights: {
      summary: "Whether weights are broadcast before the blocks and kept in registers, or read where they are used.",
      example: "in registers",
      schema: z.enum(["registers", "memory"]),
      values: () => ["registers", "memory"],
      worthTrying: isHeld,
      print: (where) => `in ${where}`,
    },
    streaming: {
      ...streaming,
      summary: `${streaming.summary} Blocks that overlap store unaligned vectors, which cannot be streamed.`,
      values: () => [true, false],
      worthTrying: (_, schedule) => !schedule.streaming || WINDOW_DESIGNS[schedule.dataflow].data === "loaded",
    },
    prefetchBytes: {
      label: "prefetch",
      summary:
        "Prefetch distance of input data in bytes; 0 leaves prefetching to the hardware. Lines that are 4096 bytes ahead or more wait in the second-level cache.",
      example: "2048 bytes ahead",
      schema: natural,
      values: () => [0, 512, 2048, 8192],
      print: (bytes) => (bytes === 0 ? "left to the hardware" : `${bytes} bytes ahead`),
    },
    threads,
  },
};

// ---- Warps of a GPU

const WARP_ROWS = [1, 2, 4, 8, 16] as const;
const WARP_VECTORS = [1, 2] as const;
const SWEEPS = [16, 32, 64, 128, 256] as const;
const AHEAD = [2, 4] as const;
const OTHER_WARPS = [2, 8] as const;
/** Of 3d13pt in f64, one step is fastest; two gain in blocks of eight warps, and more lose (an H100, 2026-11-24). */
const PREFETCHED = [1, 2] as const;
/**
 * Most multiply-adds written in a kernel. nvcc 13.0 took 34 s for 6400 of one vector a row, 6 s for 3200, and 3 s for 3200 of a sweep (filters
 * of 20, 2026-11-22). Of kernels with one vector a row, none of more than 1296 was the fastest of its case (bench/trials/cuda-picked-lanes-h200.jsonl.gz).
 */
const LONGEST_WARP_BLOCK = 1600;
const LONGEST_SWEEP = 3300;
/** 32-bit registers for sums and data, in addition to those for addresses: a thread has 255. */
const MOST_REGISTERS = 200;
/** Sums of a thread, in addition to the rows that are held. */
const MOST_SUMS = 32;
/**
 * Most taps of a window for which rows fetched ahead and other blocks are tried. Larger ones are bound by arithmetic: a search of 4 s for a filter of 9
 * tried two shapes in all their variants, and found 275 us where one without them had found 240 (an H100, 2026-11-24).
 */
const MOST_TAPS_WAITING = 32;

const waitsForMemory = ({ sum }: WarpWindowContext): boolean => sum.taps.length <= MOST_TAPS_WAITING;

/** Whether lanes compute neighbouring outputs two by two, so that each needs several. */
const inPairs = (sum: TapSum): boolean => bytesOf(outputOf(sum.computation).dtype) === 2;

const isSwept = ({ each: outputs, sweep: length }: WarpWindowSchedule): boolean =>
  outputs !== undefined || length !== undefined;

/** Whether a block fits a thread and is no other name of another. */
function isWorthwhileOnWarps(context: WarpWindowContext, block: WarpWindowSchedule): boolean {
  const sum = sumUnder(context, block);
  const outputs = block.rows * block.vectors;
  if (warpWindowProblem(sum, block) !== undefined) return false;
  if (isSwept(block)) return (block.each !== undefined || !inPairs(sum)) && fitsRegisters(context, block);
  const longest = outputs === 1 ? LONGEST_SWEEP : LONGEST_WARP_BLOCK;
  return !inPairs(sum) && isOther(sum, block.dataflow) && outputs <= MOST_SUMS && sum.taps.length * outputs <= longest;
}

function fitsRegisters(context: WarpWindowContext, schedule: WarpWindowSchedule): boolean {
  if (!isSwept(schedule)) return true;
  const sum = sumUnder(context, schedule);
  return productsOf(sum, schedule) <= LONGEST_SWEEP && sweepRegisters(sum, schedule) <= MOST_REGISTERS;
}

/**
 * Windows on the lanes of warps. Blocks of the usual number of warps are listed first, since most predictions of the
 * others tie with them.
 */
export const WARP_WINDOW: ScheduleKind<WarpWindowSchedule, WarpWindowContext> = {
  problem: (context, schedule) => warpWindowProblem(sumUnder(context, schedule), schedule)?.because,
  tries: 200,
  decisions: {
    lanes: warpLanes,
    warps: {
      ...warps,
      values: (context) => (waitsForMemory(context) ? [undefined, ...OTHER_WARPS] : [undefined]),
    },
    sweep: {
      ...sweep,
      values: ({ sum }) => (sweptAxis(sum) ? [undefined, ...SWEEPS] : [undefined]),
      // Fewer warps than usual are of use where a block takes long.
      worthTrying: (_, schedule) => schedule.sweep !== undefined || (schedule.warps ?? USUAL_WARPS) >= USUAL_WARPS,
    },
    each: { ...each, values: ({ sum }) => [undefined, ...movedAtOnce(sum).filter((n) => n > 1)] },
    rolled,
    dataflow,
    rows: { ...rows, values: () => WARP_ROWS },
    vectors: { ...vectors, values: () => WARP_VECTORS, worthTrying: isWorthwhileOnWarps },
    ahead: {
      ...ahead,
      values: () => [undefined, ...AHEAD],
      worthTrying: (context, schedule) =>
        schedule.ahead === undefined || (schedule.sweep !== undefined && fitsRegisters(context, schedule)),
    },
    prefetchSteps: {
      label: "rows fetched",
      summary:
        "Steps of a sweep by which new rows are fetched into the last cache before they are loaded. This takes no registers, where steps written out take some for each load.",
      example: "1 step ahead",
      schema: positive.optional(),
      values: (context) => (waitsForMemory(context) ? [undefined, ...PREFETCHED] : [undefined]),
      worthTrying: (_, schedule) => schedule.prefetchSteps === undefined || schedule.sweep !== undefined,
      print: (steps) => (steps === undefined ? undefined : `${steps} ${steps === 1 ? "step" : "steps"} ahead`),
    },
  },
};
