/**
 * @file The decisions about a window on lanes, in addition to its transform. Together they are its schedule.
 *
 *     FBS-load on 16 lanes, 4 rows x 4 vectors   loops kept none   weights in registers   stores around the caches   prefetch 2048 bytes ahead
 *
 * A block is `rows` by `vectors` of outputs. The first four decisions are printed together, as the design; see
 * report/describe-candidate.ts.
 */

import { z } from "zod";
import { LANE_DATAFLOWS, type LaneSchedule, LINE_USES } from "../../abstraction/candidate.ts";
import { WARP } from "../../abstraction/intrinsic.ts";
import { identifier } from "../../abstraction/schema.ts";
import type { TapSum } from "../space-time/taps.ts";
import { planeAxis, sweptAxis } from "../space-time/window-sweep.ts";
import type { Decision, Listed } from "./decision.ts";
import { linesProblem, movedAtOnce, planesProblem, stripsOf } from "./lanes.ts";
import { MAPPED_DECISIONS } from "./mapped-decisions.ts";
import type { Decisions } from "./schedules.ts";

export interface LaneContext {
  /** The sum of taps with no loop kept. */
  readonly sum: TapSum;
  /** Lane counts to choose from. */
  readonly lanes: readonly number[];
  /** Sets of summed axes that may stay loops together. */
  readonly rollings: readonly (readonly string[])[];
  readonly threads: number;
}

type LaneDecision<K extends keyof LaneSchedule> = Decision<LaneSchedule[K], LaneContext, LaneSchedule>;
type Searched<K extends keyof LaneSchedule> = LaneDecision<K> & Listed<LaneSchedule[K], LaneContext, LaneSchedule>;
type Given = "borders" | "threads";

/** Sides of a block, in outputs: more than eight rows or vectors need more registers than there are. */
const SIDES = [1, 2, 3, 4, 6, 8] as const;
const MOST_OF_BLOCK = 1024;
const positive = z.number().int().positive().max(MOST_OF_BLOCK);
const natural = z
  .number()
  .int()
  .nonnegative()
  .max(2 ** 31);
/** Printed as part of the design. */
const print = (): undefined => undefined;

const dataflow: Searched<"dataflow"> = {
  name: "dataflow",
  summary:
    "The name of the transform: sums move across lanes that hold data (`SBM`), data move across lanes that hold sums (`FBS-shift`), or each lane loads every column itself (`FBS-load`).",
  example: "FBS-load",
  schema: z.enum(LANE_DATAFLOWS),
  values: () => LANE_DATAFLOWS,
  print,
};

const lanes: Searched<"lanes"> = {
  name: "lanes",
  summary: "Elements of a vector: those of a register, or the threads of a warp.",
  example: "16",
  schema: positive,
  values: (context) => context.lanes,
  print,
};

const rows: Searched<"rows"> = {
  name: "rows",
  summary: "Output rows of a block. They share the input rows that they both read.",
  example: "4",
  schema: positive,
  values: () => SIDES,
  print,
};

const vectors: Searched<"vectors"> = {
  name: "vectors",
  summary: "Vectors of a block along a row. Independent sums hide the latency of an addition.",
  example: "4",
  schema: positive,
  values: () => SIDES,
  print,
};

const rolled: Searched<"rolled"> = {
  name: "rolled",
  label: "loops kept",
  summary: "Summed axes that stay loops inside a block, which bounds the code size of large filters.",
  example: "s",
  schema: z.array(identifier).max(64),
  values: ({ rollings }) => rollings,
  print: (names) => names.join(" ") || "none",
};

const weights: Searched<"weights"> = {
  name: "weights",
  summary: "Whether weights are broadcast before the blocks and kept in registers, or read where they are used.",
  example: "in registers",
  schema: z.enum(["registers", "memory"]),
  values: () => ["registers", "memory"],
  print: (where) => `in ${where}`,
};

const streaming: Searched<"streaming"> = {
  name: "streaming",
  label: "stores",
  summary:
    "Whether results are written with streaming stores that bypass the caches. This pays when the output does not fit in them. Blocks that overlap store unaligned vectors, which cannot be streamed.",
  example: "around the caches",
  schema: z.boolean(),
  values: () => [true, false],
  print: (around) => (around ? "around the caches" : "through the caches"),
};

const prefetchBytes: Searched<"prefetchBytes"> = {
  name: "prefetchBytes",
  label: "prefetch",
  summary:
    "Prefetch distance of input data in bytes; 0 leaves prefetching to the hardware. Lines that are 4096 bytes ahead or more wait in the second-level cache.",
  example: "2048 bytes ahead",
  schema: natural,
  values: () => [0, 512, 2048, 8192],
  print: (bytes) => (bytes === 0 ? "left to the hardware" : `${bytes} bytes ahead`),
};

const borders: LaneDecision<"borders"> = {
  name: "borders",
  summary:
    "How borders are handled: blocks whose neighbours are all inside run without tests and the rest is peeled (`peeled`), or every access is tested (`guarded`), which suits thousands of warps.",
  example: "peeled",
  schema: z.enum(["peeled", "guarded"]),
  draw: () => "peeled",
  moves: [],
  print: (how) => how,
};

const strip: Searched<"strip"> = {
  name: "strip",
  summary:
    "Row blocks computed before the next step of the outer axes, so that planes stay in cache; 0 means all of them.",
  example: "8 row blocks",
  schema: natural,
  values: ({ sum }) => [...new Set(SIDES.flatMap((tall) => stripsOf(sum, tall)))],
  worthTrying: ({ sum }, schedule) => stripsOf(sum, schedule.rows).includes(schedule.strip),
  print: (blocks) => (blocks === 0 ? undefined : `${blocks} row blocks`),
};

const depth: Searched<"depth"> = {
  name: "depth",
  label: "steps a pass",
  summary:
    "Time steps of a stencil that one pass over memory computes (temporal blocking). Each step runs some rows behind the one before, and the newest rows of every step stay in cache. On a 3-D grid, `strip` is the number of rows of a plane that are computed together; strips overlap. On a GPU the newest rows are in registers, and `rows`, `each` and `sweep` give the part that a warp computes.",
  example: "8",
  schema: positive.optional(),
  values: () => [undefined],
  print: (steps) => steps?.toString(),
};

/**
 * Whether lanes are those of a GPU's warps. A CPU's vectors reach their neighbours through `vectors`, and keep rows in
 * their caches.
 */
const ofWarps = ({ lanes: known }: LaneContext): boolean => known.includes(WARP);
const SWEEPS = [16, 32, 64, 128, 256] as const;
const AHEAD = [2, 4] as const;

const each: Searched<"each"> = {
  name: "each",
  label: "outputs a lane",
  summary:
    "Neighbouring outputs of one lane. They share inputs, and each load or store moves this many elements. By default a lane has one output of each vector.",
  example: "4",
  schema: positive.optional(),
  values: (context) => {
    const several = movedAtOnce(context.sum).filter((n) => n > 1);
    return ofWarps(context) ? [undefined, ...several] : [undefined];
  },
  print: (outputs) => outputs?.toString(),
};

const sweep: Searched<"sweep"> = {
  name: "sweep",
  summary:
    "Rows of an image, or planes of a 3-D grid, that lanes compute one after another. Each element is loaded once and added to every sum that needs it. Longer sweeps load fewer halo rows twice, but leave fewer blocks.",
  example: "64 outputs",
  schema: positive.optional(),
  values: (context) => (ofWarps(context) && sweptAxis(context.sum) ? [undefined, ...SWEEPS] : [undefined]),
  print: (outputs) => (outputs === undefined ? undefined : `${outputs} outputs`),
};

const ahead: Searched<"ahead"> = {
  name: "ahead",
  label: "steps written out",
  summary: "Steps of a sweep that are unrolled together with all their loads first, so that more loads are in flight.",
  example: "2",
  schema: positive.optional(),
  values: (context) => (ofWarps(context) ? [undefined, ...AHEAD] : [undefined]),
  print: (steps) => steps?.toString(),
};

/** Of 3d13pt in f64, one step is fastest; two gain in blocks of eight warps, and more lose (an H100, 2026-11-24). */
const PREFETCHED = [1, 2] as const;

const prefetchSteps: Searched<"prefetchSteps"> = {
  name: "prefetchSteps",
  label: "rows fetched",
  summary:
    "Steps of a sweep by which new rows are fetched into the last cache before they are loaded. This takes no registers, where steps written out take some for each load.",
  example: "1 step ahead",
  schema: positive.optional(),
  values: (context) => (ofWarps(context) && sweptAxis(context.sum) ? [undefined, ...PREFETCHED] : [undefined]),
  print: (steps) => (steps === undefined ? undefined : `${steps} ${steps === 1 ? "step" : "steps"} ahead`),
};

const OTHER_WARPS = [2, 8] as const;

const warps: Searched<"warps"> = {
  name: "warps",
  summary: "Warps of a block on a GPU; 4 when left out. They run on one multiprocessor and share its first cache.",
  example: "8",
  schema: z.number().int().positive().max(32).optional(),
  values: (context) => (ofWarps(context) ? [undefined, ...OTHER_WARPS] : [undefined]),
  print: (count) => count?.toString(),
};

const lines: Searched<"lines"> = {
  name: "lines",
  summary:
    "How the rows of an input reach registers. By default each column of the window is a load of its own, and most of these cross a cache line, which costs a second access. Otherwise whole lines are loaded, and lanes take the columns from them by shifts: all lines that a block needs (`loaded`), the same with every second column still loaded by itself, which balances loads and shifts (`mixed`), or only the new lines, since the others stay in registers from the block before (`carried`).",
  example: "carried",
  schema: z.enum(LINE_USES).optional(),
  values: (context) => (ofWarps(context) ? [undefined] : [undefined, ...LINE_USES]),
  worthTrying: ({ sum }, schedule) => schedule.lines === undefined || linesProblem(sum, schedule) === undefined,
  print: (use) => use,
};

const planes: Searched<"planes"> = {
  name: "planes",
  summary:
    "Planes of a 3-D grid that a block computes together. They share the planes that they both read, which then come from the second-level cache once for all of them.",
  example: "2",
  schema: positive.optional(),
  values: (context) => (ofWarps(context) || planeAxis(context.sum) === undefined ? [undefined] : [undefined, 2, 3, 4]),
  worthTrying: ({ sum }, schedule) => planesProblem(sum, schedule) === undefined,
  print: (count) => count?.toString(),
};

const { name, summary, example, schema } = MAPPED_DECISIONS.threads;
const threads: LaneDecision<"threads"> = {
  name,
  summary,
  example,
  schema,
  draw: (context) => context.threads,
  moves: [],
  print: String,
};

/** The decisions in the order they are drawn and printed. */
export const LANE_DECISIONS: Decisions<LaneSchedule, LaneContext> & {
  readonly [K in Exclude<keyof LaneSchedule, Given>]-?: Searched<K>;
} = {
  dataflow,
  lanes,
  rows,
  vectors,
  rolled,
  weights,
  streaming,
  prefetchBytes,
  borders,
  strip,
  depth,
  each,
  sweep,
  ahead,
  prefetchSteps,
  warps,
  lines,
  planes,
  threads,
};
