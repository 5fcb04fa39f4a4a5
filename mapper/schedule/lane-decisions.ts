/**
 * @file The decisions about a window on lanes, in addition to its transform. Together they are its schedule.
 *
 *     FBS-load on 16 lanes, 4 rows x 4 vectors   loops kept none   weights in registers   stores around the caches   prefetch 2048 bytes ahead
 *
 * A block is `rows` by `vectors` of outputs. The first four decisions are printed together, as the design; see report/describe-candidate.ts.
 */

import { z } from "zod";
import { LANE_DATAFLOWS, type LaneSchedule } from "../../abstraction/candidate.ts";
import { WARP } from "../../abstraction/intrinsic.ts";
import { identifier } from "../../abstraction/schema.ts";
import type { TapSum } from "../space-time/taps.ts";
import { sweptAxis } from "../space-time/window-sweep.ts";
import type { Decision, Listed } from "./decision.ts";
import { AT_ONCE, movesAtOnce, stripsOf } from "./lanes.ts";
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
    "The transform, by its name in records: sums move over lanes that hold data (`SBM`), data move past sums (`FBS-shift`), or each column is loaded again (`FBS-load`).",
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
  summary: "Output rows of a block: they share the rows of data that lie between them.",
  example: "4",
  schema: positive,
  values: () => SIDES,
  print,
};

const vectors: Searched<"vectors"> = {
  name: "vectors",
  summary: "Vectors of a block side by side: independent sums hide the latency of one.",
  example: "4",
  schema: positive,
  values: () => SIDES,
  print,
};

const rolled: Searched<"rolled"> = {
  name: "rolled",
  label: "loops kept",
  summary: "Summed axes that stay loops inside a block, so that long filters stay short programs.",
  example: "s",
  schema: z.array(identifier).max(64),
  values: ({ rollings }) => rollings,
  print: (names) => names.join(" ") || "none",
};

const weights: Searched<"weights"> = {
  name: "weights",
  summary: "Broadcast ahead of the blocks and kept in vectors, or read where they are used.",
  example: "in registers",
  schema: z.enum(["registers", "memory"]),
  values: () => ["registers", "memory"],
  print: (where) => `in ${where}`,
};

const streaming: Searched<"streaming"> = {
  name: "streaming",
  label: "stores",
  summary:
    "Whether results go around the caches, as is right when memory has to hold them. Blocks that overlap store unaligned and never do.",
  example: "around the caches",
  schema: z.boolean(),
  values: () => [true, false],
  print: (around) => (around ? "around the caches" : "through the caches"),
};

const prefetchBytes: Searched<"prefetchBytes"> = {
  name: "prefetchBytes",
  label: "prefetch",
  summary: "How far ahead of its use new data are asked for; 0 leaves that to the hardware.",
  example: "2048 bytes ahead",
  schema: natural,
  values: () => [0, 512, 2048],
  print: (bytes) => (bytes === 0 ? "left to the hardware" : `${bytes} bytes ahead`),
};

const borders: LaneDecision<"borders"> = {
  name: "borders",
  summary:
    "How borders are handled: whole blocks where every neighbour is inside and the rest apart (`peeled`), or every access tested, as thousands of warps want it.",
  example: "peeled",
  schema: z.enum(["peeled", "guarded"]),
  draw: () => "peeled",
  moves: [],
  print: (how) => how,
};

const strip: Searched<"strip"> = {
  name: "strip",
  summary: "Row blocks swept before the next step of the outer axes, so that planes stay in cache; 0 sweeps all.",
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
    "Of a stencil in time: how many steps one pass over memory takes, each some rows behind the one before, with the newest rows of all in cache. `strip` then says how many rows of a plane of a 3-D grid are taken at once; strips overlap. On a GPU the newest rows lie in registers, and `rows`, `each` and `sweep` say which a warp has.",
  example: "8",
  schema: positive.optional(),
  values: () => [undefined],
  print: (steps) => steps?.toString(),
};

/** Whether lanes are those of a GPU's warps. A CPU's vectors reach their neighbours through `vectors`, and keep rows in their caches. */
const ofWarps = ({ lanes: known }: LaneContext): boolean => known.includes(WARP);
const SWEEPS = [16, 32, 64, 128, 256] as const;
const AHEAD = [2, 4] as const;

const each: Searched<"each"> = {
  name: "each",
  label: "outputs a lane",
  summary:
    "Neighbouring outputs of one lane: they share the data they read, which are moved so many elements at once. When left out, a lane has one of each vector.",
  example: "4",
  schema: positive.optional(),
  values: (context) => {
    const several = AT_ONCE.filter((n) => n > 1 && movesAtOnce(context.sum, n));
    return ofWarps(context) ? [undefined, ...several] : [undefined];
  },
  print: (outputs) => outputs?.toString(),
};

const sweep: Searched<"sweep"> = {
  name: "sweep",
  summary:
    "How many rows of an image, or planes of a 3-D grid, lanes take one after another: data are loaded once and added to every sum they belong to. Longer sweeps load fewer rows twice and leave fewer blocks.",
  example: "64 outputs",
  schema: positive.optional(),
  values: (context) => (ofWarps(context) && sweptAxis(context.sum) ? [undefined, ...SWEEPS] : [undefined]),
  print: (outputs) => (outputs === undefined ? undefined : `${outputs} outputs`),
};

const ahead: Searched<"ahead"> = {
  name: "ahead",
  label: "steps written out",
  summary: "Steps of a sweep that are written out, with the loads of all of them first: more data are on their way.",
  example: "2",
  schema: positive.optional(),
  values: (context) => (ofWarps(context) ? [undefined, ...AHEAD] : [undefined]),
  print: (steps) => steps?.toString(),
};

const { name, summary, example, schema } = MAPPED_DECISIONS.threads;
const threads: LaneDecision<"threads"> = {
  ...{ name, summary, example, schema },
  draw: (context) => context.threads,
  moves: [],
  print: String,
};

/** The decisions in the order they are drawn and printed. */
export const LANE_DECISIONS: Decisions<LaneSchedule, LaneContext> & {
  readonly [K in Exclude<keyof LaneSchedule, Given>]-?: Searched<K>;
} = {
  ...{
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
    threads,
  },
};
