/**
 * @file The kinds of candidates: the decisions of each, from which records, explanations and docs/schedule.md are made.
 *
 *     KINDS.window.decisions                 lanes dataflow rolled rows vectors lines planes strip weights streaming prefetchBytes threads
 *     KINDS.window.place(schedule)           FBS-load on 16 lanes, 4 rows x 4 vectors
 */

import type { ArrayPlan, Candidate, Kind, LoopSchedule, WindowBlock } from "../../abstraction/candidate.ts";
import { DESIGN_DECISIONS, printTransform, RECURRENCE_DECISIONS, WARP_DESIGN_DECISIONS } from "./array-decisions.ts";
import { CHAIN } from "./chain-decisions.ts";
import { WARP_CHAIN } from "./chain-shape.ts";
import { printPairs } from "./decision.ts";
import { GRID_DECISIONS } from "./grid-decisions.ts";
import { threads } from "./lane-decisions.ts";
import { MAPPED_DECISIONS } from "./mapped-decisions.ts";
import type { Decisions } from "./schedules.ts";
import { STEPS, WARP_STEPS } from "./step-decisions.ts";
import { THREAD_DECISIONS } from "./thread/decisions.ts";
import { WARP_WINDOW, WINDOW } from "./window-decisions.ts";
import { WINOGRAD } from "./winograd-decisions.ts";

interface KindOf<S extends object> {
  /** What its kernels are, for docs/schedule.md. */
  readonly summary: string;
  readonly decisions: Decisions<S, never>;
  /** How the loops are placed, on one line; for a mapping, its matching says it. */
  place?(schedule: S): string;
}

const counted = (count: number, what: string): string => `${count} ${what}${count === 1 ? "" : "s"}`;

const placeWindow = ({ dataflow, lanes, rows, vectors }: WindowBlock): string =>
  `${dataflow} on ${lanes} lanes, ${counted(rows, "row")} x ${counted(vectors, "vector")}`;

const placeArray = ({ transform, lanes, beside }: Pick<ArrayPlan, "transform" | "lanes" | "beside">): string =>
  `${printTransform(transform)} on ${lanes} lanes, beside ${printPairs(beside)}`;

const LOOP_DECISIONS: Decisions<LoopSchedule, never> = { threads };

export const KINDS: { readonly [K in Kind]: KindOf<Extract<Candidate, { kind: K }>["schedule"]> } = {
  mapping: { summary: "an instruction with loops around it, on the cores of a processor", decisions: MAPPED_DECISIONS },
  grid: { summary: "an instruction of warps, on the blocks and warps of a GPU", decisions: GRID_DECISIONS },
  threads: { summary: "an instruction of one thread, on the threads of a GPU", decisions: THREAD_DECISIONS },
  window: {
    summary: "a sum of neighbours, on the vectors of a CPU",
    decisions: WINDOW.decisions,
    place: placeWindow,
  },
  "warp-window": {
    summary: "a sum of neighbours, on the lanes of a GPU's warps",
    decisions: WARP_WINDOW.decisions,
    place: placeWindow,
  },
  steps: {
    summary: "the time steps of a stencil, on the vectors of a CPU",
    decisions: STEPS.decisions,
    place: ({ lanes, rows, vectors }) =>
      `time steps on ${lanes} lanes, ${counted(rows, "row")} x ${counted(vectors, "vector")}`,
  },
  "warp-steps": {
    summary: "the time steps of a stencil, on the lanes of a GPU's warps",
    decisions: WARP_STEPS.decisions,
    place: ({ lanes, rows }) => `time steps on ${lanes} lanes, ${counted(rows, "row")}`,
  },
  design: {
    summary: "a design given by its transform, on the vectors of a CPU",
    decisions: DESIGN_DECISIONS,
    place: placeArray,
  },
  "warp-design": {
    summary: "a design given by its transform, on the lanes of a GPU's warps",
    decisions: WARP_DESIGN_DECISIONS,
    place: placeArray,
  },
  recurrence: {
    summary: "a result that refers to itself, on the vectors of a CPU",
    decisions: RECURRENCE_DECISIONS,
    place: placeArray,
  },
  loops: { summary: "the equation in plain loops", decisions: LOOP_DECISIONS, place: () => "plain loops" },
  winograd: {
    summary: "a convolution by Winograd's transforms: fewer products, which round otherwise",
    decisions: WINOGRAD.decisions,
    place: ({ outputs }) => `Winograd F(${outputs}x${outputs},3x3)`,
  },
  "warp-loops": {
    summary: "the equation on the threads of a GPU",
    decisions: THREAD_DECISIONS,
    place: () => "plain loops",
  },
  chain: {
    summary: "equations that share their rows, row by row in plain loops",
    decisions: CHAIN.decisions,
    place: () => "row by row",
  },
  "warp-chain": {
    summary: "equations that share their rows, which the threads of a GPU hold",
    decisions: WARP_CHAIN.decisions,
    place: () => "row by row",
  },
};

/** What is known of a candidate's kind. */
export function kindOf(candidate: Candidate): KindOf<Candidate["schedule"]> {
  return KINDS[candidate.kind] as KindOf<Candidate["schedule"]>; // of the kind that the candidate names
}
