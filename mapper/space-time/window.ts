/**
 * @file How a window that slides along a row is placed on lanes, derived from its space-time transform: loops (c
 * outputs, q columns).
 *
 *     z[c] += x[c+q] * w[q] on 16 lanes, 3 columns
 *
 *     allocation [1 1], schedule [0 1]     SBM   data stay, sums move by one lane a column: lanes 2 to 15 end with a complete sum
 *     allocation [1 0], schedule [0 1]     FBS   sums stay, data move by one lane in the other direction: lanes 0 to 13 see all of
 *                                                their window. If each column is loaded again instead, all 16 lanes do
 *
 * Every design that broadcasts the weights and puts neighbours on neighbouring lanes can be lowered. It is determined
 * by how far sums and data move from column to column. (Data x, weights w, sums z: the terms of Systolic Computing on
 * GPUs for Productive Performance; SSAM, Chen et al., SC'19, listing 1, is SBM.)
 */

import type { LaneDataflow } from "../../abstraction/candidate.ts";
import { memoisedBy } from "../../abstraction/collections.ts";
import type { SpaceTime } from "../../abstraction/recurrence.ts";
import { designOf, type OperandFlow } from "./design.ts";
import type { ArrayProblem } from "./problem.ts";
import type { LaneRefusal } from "./taps.ts";
import { refusalOf } from "./validity.ts";

/** A transform of (c, q), and whether data stay on lanes once loaded or are loaded for every column. */
export interface WindowDesign {
  readonly spaceTime: SpaceTime;
  readonly data: "held" | "loaded";
}

const SUMS_MOVE: SpaceTime = { allocation: [[1, 1]], schedule: [[0, 1]] };
const SUMS_STAY: SpaceTime = { allocation: [[1, 0]], schedule: [[0, 1]] };

/** The designs by their names in records. */
export const WINDOW_DESIGNS: Readonly<Record<LaneDataflow, WindowDesign>> = {
  SBM: { spaceTime: SUMS_MOVE, data: "held" },
  "FBS-shift": { spaceTime: SUMS_STAY, data: "held" },
  "FBS-load": { spaceTime: SUMS_STAY, data: "loaded" },
};

/** Lanes and steps of a window. Each step is a column. */
export interface WindowPlacement {
  /** Outputs of a vector: lanes that end with a complete sum. Consecutive vectors overlap by the other lanes. */
  readonly outputs: number;
  /** Lanes by which sums, and data, move from one column to the next. */
  readonly sumHop: number;
  readonly dataHop: number;
  readonly data: WindowDesign["data"];
  /** Whether columns are processed from left to right. */
  readonly ascending: boolean;
  /** The lane that holds the sum of the first complete output at the first column, and at the last. */
  readonly firstLane: number;
  readonly lastLane: number;
}

/** One row of a window. */
export function windowProblem(outputs: number, columns: number): ArrayProblem {
  return {
    name: "window",
    loops: [
      { name: "c", extent: outputs },
      { name: "q", extent: columns },
    ],
    operands: [
      { name: "x", role: "input", reuse: [[1, -1]], order: "free" },
      { name: "w", role: "input", reuse: [[1, 0]], order: "free" },
      { name: "z", role: "output", reuse: [[0, 1]], order: "free" },
    ],
    outputs,
  };
}

/** Cached, since a search asks the same few questions for thousands of schedules. */
const known = memoisedBy<WindowDesign, Placed>();

/** Places a window, or says why lanes cannot run the design. */
export function placeWindow(design: WindowDesign, lanes: number, columns: number): Placed {
  return known(design, `${lanes} ${columns}`, () => judged(design, lanes, columns));
}

function judged({ spaceTime, data }: WindowDesign, lanes: number, columns: number): Placed {
  const problem = windowProblem(lanes, columns);
  const refuse = (because: string): Placed => ({ ok: false, refusal: { rule: "design", because } });
  const invalid = refusalOf(problem, spaceTime);
  if (invalid) return refuse(invalid.because);
  const [[lane = 0] = [], ...planes] = spaceTime.allocation;
  const [[across = 0, time = 0] = [], ...slower] = spaceTime.schedule;
  if (planes.length > 0 || slower.length > 0) return refuse("lanes are one row of PEs, and columns one row of time");
  if (across !== 0 || Math.abs(time) !== 1) return refuse("w is not broadcast: a step is not one column for all lanes");
  if (lane !== 1) return refuse("neighbouring outputs do not lie on neighbouring lanes");
  const [x, , z] = designOf(problem, spaceTime).flows;
  const dataHop = hopOf(x);
  const sumHop = hopOf(z);
  if (data === "loaded" && sumHop !== 0) return refuse("data that are loaded for every column serve sums that stay");

  // Lanes that an output uses, relative to where its sum begins: those of the sum, and those its data were loaded on.
  const last = columns - 1;
  const touched = [0, sumHop * last, ...(data === "held" ? [(sumHop - dataHop) * last] : [])];
  const firstLane = 0 - Math.min(...touched);
  const outputs = lanes - (Math.max(...touched) + firstLane);
  return {
    ok: true,
    placement: {
      outputs,
      sumHop,
      dataHop,
      data,
      ascending: time > 0,
      firstLane,
      lastLane: firstLane + sumHop * last,
    },
  };
}

export type Placed =
  | { readonly ok: true; readonly placement: WindowPlacement }
  | { readonly ok: false; readonly refusal: LaneRefusal };

/** P.d, or 0 for an operand that stays. */
function hopOf(flow: OperandFlow | undefined): number {
  return flow?.variables[0]?.dependences[0]?.hop[0] ?? 0;
}
