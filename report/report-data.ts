/**
 * @file The contents of a report as plain data: nothing here opens a database or uses the model.
 *
 *     const page = await reportPage(reportData(db, { operator: "conv2d" }));
 */

import type { GridSchedule, LaneDataflow, LaneTransform } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import type { Mapping } from "../abstraction/mapping.ts";
import type { DeviceClock, LevelCost } from "../abstraction/trial.ts";
import type { DecisionShare } from "./importance.ts";

/** Times are seconds; instants are milliseconds since 1970. */
export interface ReportData {
  /** The database's path. */
  readonly source: string;
  /** What was asked for besides, `operator conv2d`; undefined for everything. */
  readonly filter: string | undefined;
  readonly madeAt: number;
  readonly version: string;
  readonly subjects: readonly Subject[];
  /** By types of the inputs, and of all. */
  readonly accuracy: readonly Accuracy[];
  readonly rooflines: readonly Roofline[];
  readonly environments: readonly EnvironmentFacts[];
  readonly noise: Noise;
  /** Of workloads that were searched more than once. */
  readonly comparisons: readonly Comparison[];
}

/** A workload in a world: what has one best. */
export interface Subject {
  /** All that makes it another workload than any other, in one line. */
  readonly label: string;
  /** The user's own name for it. */
  readonly name: string | undefined;
  /** The operator's name, or the equation. */
  readonly subject: string;
  /** `c 64  h 56`. */
  readonly shape: string;
  /** `u8s8->s32`: of the inputs and of what is stored. */
  readonly types: string;
  /** `u8s8`: of the inputs, which every chart is coloured by. */
  readonly dtype: string;
  /** `NHWC`, or by tensor `in=NHWC,w=KRSC`; empty where all are laid out as usual. */
  readonly layout: string;
  /** A name or an equation; empty without one. */
  readonly epilogue: string;
  readonly equation: string;
  readonly threads: number;
  readonly cache: "warm" | "flushed";
  /** Of {@link ReportData.environments}, from 0. */
  readonly environment: number;
  /** In the order they were made. */
  readonly trials: readonly TrialPoint[];
  readonly best: Best | undefined;
  readonly accuracy: Accuracy;
  /** Decisions that took more than one value in the trials that worked, those that explain most first. */
  readonly decisions: readonly DecisionShare[];
  /** Trials that failed, by status. */
  readonly failures: readonly Reason[];
  /** Matches the mapper refuses, by the rule they break; undefined when the record is too old to tell. */
  readonly refusals: readonly Reason[] | undefined;
}

export interface TrialPoint {
  readonly id: string;
  readonly at: number;
  readonly intrinsic: string;
  readonly status: string;
  /** Median and 95 % interval; undefined for a failure. */
  readonly seconds: number | undefined;
  readonly interval: readonly [low: number, high: number] | undefined;
  readonly predicted: number | undefined;
  readonly uncorrected: number | undefined;
  /** Id of the run that measured it, and how many seconds after its beginning; undefined for a trial of no run. */
  readonly run: string | undefined;
  readonly after: number | undefined;
  /** Of a GPU while it was timed. */
  readonly clock: DeviceClock | undefined;
  /** Kinds of candidates decide different things. */
  readonly kind: "mapping" | "lanes" | "grid" | "threads";
  /** What it decides, a name and a value each. */
  readonly decisions: readonly (readonly [name: string, value: string])[];
}

export interface Best {
  readonly id: string;
  readonly seconds: number;
  readonly interval: readonly [low: number, high: number];
  /** A multiply and an add counted as two. */
  readonly operationsPerSecond: number;
  /** Instruction, mapping or design, and schedule, in words. */
  readonly candidate: readonly (readonly [name: string, text: string])[];
  readonly predicted: number | undefined;
  readonly levels: readonly LevelCost[];
  /** The least time the calibration allows over the time taken; undefined without a calibration of the instruction. */
  readonly ofRoof: number | undefined;
  readonly clock: DeviceClock | undefined;
  readonly drawing: Drawing;
}

/** What can be drawn of a candidate, or why nothing can. */
export type Drawing =
  | {
      readonly kind: "mapping";
      readonly mapping: Mapping;
      /** How blocks and warps share it; undefined where there are none. */
      readonly grid: Pick<GridSchedule, "tile" | "warps" | "stage"> | undefined;
    }
  | { readonly kind: "lanes"; readonly design: LaneDrawing }
  | { readonly kind: "array"; readonly array: ArrayDrawing }
  | { readonly kind: "none"; readonly because: string };

/** A window on lanes: one row of it, on one vector. */
export interface LaneDrawing {
  readonly dataflow: LaneDataflow;
  readonly lanes: number;
  /** Columns of the window; a step is a column. */
  readonly columns: number;
}

/** A sum or a recurrence on lanes under a transform, in the tiles of its schedule. */
export interface ArrayDrawing {
  readonly sum: Computation;
  readonly transform: LaneTransform;
  readonly lanes: number;
  readonly tile: Readonly<Record<string, number>>;
}

export interface Accuracy {
  readonly name: string;
  readonly trials: number;
  readonly corrected: Rates;
  readonly uncorrected: Rates;
}

/** Shares; undefined when there are too few trials to say. */
export interface Rates {
  readonly pairwise: number | undefined;
  readonly recall: number | undefined;
}

export interface Reason {
  readonly name: string;
  readonly count: number;
  /** The first one's words. */
  readonly example: string;
}

/** Ceilings of one core or of a GPU, and what ran under them. */
export interface Roofline {
  readonly environment: number;
  readonly of: "core" | "GPU";
  /** Where the ceilings come from. */
  readonly source: string;
  readonly peaks: readonly { readonly name: string; readonly operationsPerSecond: number }[];
  /** Nearest first: reading from there. */
  readonly bandwidths: readonly { readonly name: string; readonly bytesPerSecond: number }[];
  /** What else the calibration says, each line a name and a value: latencies, other bandwidths, clocks. */
  readonly rates: readonly (readonly [name: string, value: string])[];
  /** What is wrong with the ceilings, in a sentence: kernels that ran faster than they allow. */
  readonly contradicted: string | undefined;
  readonly points: readonly RooflinePoint[];
}

export interface RooflinePoint {
  readonly label: string;
  readonly dtype: string;
  /** Operations a byte, each tensor's elements moved once. */
  readonly intensity: number;
  /** Of a thread of a core, or of a GPU as a whole. */
  readonly operationsPerSecond: number;
  readonly best: boolean;
}

export interface EnvironmentFacts {
  /** `Xeon, g++ 12.2.0`. */
  readonly name: string;
  readonly fields: readonly (readonly [name: string, value: string])[];
}

/** How far the numbers can be believed. */
export interface Noise {
  readonly verdict: "quiet" | "usable" | "noisy" | "unknown";
  /** The sentence that follows from it. */
  readonly meaning: string;
  readonly facts: readonly (readonly [name: string, value: string, remark: string])[];
}

/** A workload that several runs searched, on whatever machines. */
export interface Comparison {
  readonly label: string;
  readonly dtype: string;
  /** In the order they began, or in the order they were asked for; what is said of the others is beside the first. */
  readonly runs: readonly RunSummary[];
}

export interface RunSummary {
  readonly id: string;
  /** Of {@link ReportData.environments}, from 0. */
  readonly environment: number;
  readonly started: number;
  readonly status: string;
  readonly seed: number;
  readonly strategy: string;
  readonly threads: number;
  readonly trials: readonly TrialPoint[];
  readonly failed: number;
  /** Its fastest: the winner of its finals where it had them. */
  readonly best: RunBest | undefined;
  /** Kernels that the first run measured too. */
  readonly shared: SharedKernels | undefined;
}

export interface RunBest {
  readonly id: string;
  readonly seconds: number;
  readonly interval: readonly [low: number, high: number];
  readonly decisions: readonly (readonly [name: string, value: string])[];
}

/** The same kernels in two runs: what differs between them is the machine, not the search. */
export interface SharedKernels {
  readonly count: number;
  /** Median over them of this run's time over the first run's. */
  readonly ratio: number;
}
