/**
 * @file The contents of a report as plain data: nothing here opens a database or uses the model.
 *
 *     const page = await reportPage(reportData(db, { operator: "conv2d" }));
 */

import type { Extents } from "../abstraction/affine.ts";
import type { GridSchedule, Kind, LaneDataflow, LaneTransform } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import type { Mapping } from "../abstraction/mapping.ts";
import type { NoiseVerdict } from "../abstraction/noise.ts";
import type { DeviceClock, LevelCost } from "../abstraction/trial.ts";
import type { DecisionShare } from "./importance.ts";

/** Times are seconds; instants are milliseconds since 1970. */
export interface ReportData {
  /** The database's path. */
  readonly source: string;
  /** The filter, `operator conv2d`; undefined for everything. */
  readonly filter: string | undefined;
  readonly madeAt: number;
  readonly version: string;
  readonly subjects: readonly Subject[];
  /** Accuracy of the model by types of the inputs, and over all. */
  readonly accuracy: readonly Accuracy[];
  readonly rooflines: readonly Roofline[];
  readonly environments: readonly EnvironmentFacts[];
  readonly noise: Noise;
  /** Comparisons of workloads that were searched more than once, or in both of two databases. */
  readonly comparisons: readonly Comparison[];
  /** The database that this one is compared with. */
  readonly compared: ComparedDatabase | undefined;
}

export interface ComparedDatabase {
  /** Its path. */
  readonly source: string;
  /** Labels of the workloads that only one of the two has a time of. */
  readonly onlyHere: readonly string[];
  readonly onlyThere: readonly string[];
}

/** A workload in an environment, which together have one best kernel. */
export interface Subject {
  /** One line that distinguishes this workload from every other. */
  readonly label: string;
  /** The user's own name for it. */
  readonly name: string | undefined;
  /** The operator's name, or the equation. */
  readonly subject: string;
  /** `c 64  h 56`. */
  readonly shape: string;
  /** `u8s8->s32`: types of the inputs and of the output. */
  readonly types: string;
  /** `u8s8`: types of the inputs, which decide the colour in every chart. */
  readonly dtype: string;
  /** `NHWC`, or by tensor `in=NHWC,w=KRSC`; empty when all layouts are the defaults. */
  readonly layout: string;
  /** Types, shapes and storage of an equation's tensors where the other words do not give them; too long for a table. */
  readonly besides: string;
  /** A name or an equation; empty without one. */
  readonly epilogue: string;
  readonly equation: string;
  readonly threads: number;
  readonly cache: "warm" | "flushed";
  /** Index in {@link ReportData.environments}. */
  readonly environment: number;
  /** In the order in which they were measured. */
  readonly trials: readonly TrialPoint[];
  readonly best: Best | undefined;
  /** How reliable its own times are. */
  readonly noise: Pick<Noise, "verdict" | "meaning">;
  readonly next: readonly NextStep[];
  readonly accuracy: Accuracy;
  /** Decisions with more than one value in successful trials, the most important first. */
  readonly decisions: readonly DecisionShare[];
  /** Trials that failed, by status. */
  readonly failures: readonly Reason[];
  /** Refused matches by the rule they break; undefined when the record is too old to tell. */
  readonly refusals: readonly Reason[] | undefined;
}

/** What to do next. */
export interface NextStep {
  /** Why, as a sentence; it leads up to the command where there is one. */
  readonly because: string;
  readonly command: string | undefined;
}

export interface TrialPoint {
  readonly id: string;
  readonly at: number;
  /** Whether it was made elsewhere, or so whoever wrote the record says. */
  readonly isImported: boolean;
  readonly intrinsic: string;
  readonly status: string;
  /** Median and 95 % interval; undefined for a failure. */
  readonly seconds: number | undefined;
  readonly interval: readonly [low: number, high: number] | undefined;
  readonly predicted: number | undefined;
  readonly uncorrected: number | undefined;
  /** Id of the run that measured it, and seconds since its beginning; undefined for a trial without a run. */
  readonly run: string | undefined;
  readonly after: number | undefined;
  /** Clock of a GPU during timing. */
  readonly clock: DeviceClock | undefined;
  /** Kind of the candidate, because different kinds have different decisions. */
  readonly kind: Kind;
  /** Its decisions, each a name and a value. */
  readonly decisions: readonly (readonly [name: string, value: string])[];
}

export interface Best {
  readonly id: string;
  /** Whether its time was measured elsewhere, or so whoever wrote the record says. */
  readonly isImported: boolean;
  readonly seconds: number;
  readonly interval: readonly [low: number, high: number];
  /** Operations per second; a multiply and an add count as two. */
  readonly operationsPerSecond: number;
  /** Instruction, mapping or design, and schedule, in words. */
  readonly candidate: readonly (readonly [name: string, text: string])[];
  readonly predicted: number | undefined;
  readonly levels: readonly LevelCost[];
  /** How its time was come by and what was checked, as a phrase. */
  readonly judged: string;
  /** The roof; undefined if the instruction is not calibrated. */
  readonly roof: Roof | undefined;
  /** The roof's time over the measured time. */
  readonly ofRoof: number | undefined;
  readonly clock: DeviceClock | undefined;
  readonly drawing: Drawing;
}

/** The least time by the calibration, and what sets it. */
export interface Roof {
  readonly seconds: number;
  /** `the rate of avx512.vpdpbusd`, `the bandwidth of dram` */
  readonly by: string;
}

/** The drawing of a candidate, or why there is none. */
export type Drawing =
  | {
      readonly kind: "mapping";
      readonly mapping: Mapping;
      /** How blocks and warps share the work; undefined without blocks. */
      readonly grid: Pick<GridSchedule, "tile" | "warps" | "stage"> | undefined;
    }
  | { readonly kind: "lanes"; readonly design: LaneDrawing }
  | { readonly kind: "array"; readonly array: ArrayDrawing }
  | { readonly kind: "none"; readonly because: string };

/** One row of a window on the lanes of one vector. */
export interface LaneDrawing {
  readonly dataflow: LaneDataflow;
  readonly lanes: number;
  /** Columns of the window; each step takes one column. */
  readonly columns: number;
}

/** A sum or a recurrence on lanes under a transform, in the tiles of its schedule. */
export interface ArrayDrawing {
  readonly sum: Computation;
  readonly transform: LaneTransform;
  readonly lanes: number;
  readonly tile: Extents;
}

export interface Accuracy {
  readonly name: string;
  readonly trials: number;
  readonly corrected: Rates;
  readonly uncorrected: Rates;
}

/** Shares; undefined when there are too few trials. */
interface Rates {
  readonly pairwise: number | undefined;
  readonly recall: number | undefined;
}

export interface Reason {
  readonly name: string;
  readonly count: number;
  /** The reason in the words of the first case. */
  readonly example: string;
}

/** Ceilings of one core or of a GPU, and the trials under them. */
export interface Roofline {
  readonly environment: number;
  readonly of: "core" | "GPU";
  /** Origin of the ceilings. */
  readonly source: string;
  readonly peaks: readonly { readonly name: string; readonly operationsPerSecond: number }[];
  /** Read bandwidths, nearest memory first. */
  readonly bandwidths: readonly { readonly name: string; readonly bytesPerSecond: number }[];
  /** Further measurements of the calibration, each a name and a value: latencies, other bandwidths, clocks. */
  readonly rates: readonly (readonly [name: string, value: string])[];
  /** Why the ceilings cannot be used, as a sentence: some kernels ran faster than they allow. */
  readonly contradicted: string | undefined;
  readonly points: readonly RooflinePoint[];
}

export interface RooflinePoint {
  readonly label: string;
  readonly dtype: string;
  /** Operations per byte, when each tensor's elements are moved once. */
  readonly intensity: number;
  /** Operations per second of one thread, or of a whole GPU. */
  readonly operationsPerSecond: number;
  readonly best: boolean;
}

export interface EnvironmentFacts {
  /** `Xeon, g++ 12.2.0`. */
  readonly name: string;
  readonly fields: readonly (readonly [name: string, value: string])[];
}

/** How reliable the measurements are. */
export interface Noise {
  readonly verdict: NoiseVerdict;
  /** The conclusion, as a sentence. */
  readonly meaning: string;
  readonly facts: readonly (readonly [name: string, value: string, remark: string])[];
}

/** A workload that several runs searched, on whatever machines. Of two databases each gives its fastest run. */
export interface Comparison {
  readonly label: string;
  readonly dtype: string;
  /** In order of their start, or in the requested order; the others are compared with the first. */
  readonly runs: readonly RunSummary[];
}

export interface RunSummary {
  readonly id: string;
  /** The path of its database. */
  readonly source: string;
  /** Index in {@link ReportData.environments}. */
  readonly environment: number;
  readonly started: number;
  readonly isImported: boolean;
  readonly status: string;
  readonly seed: number;
  readonly strategy: string;
  readonly threads: number;
  readonly trials: readonly TrialPoint[];
  readonly failed: number;
  /** Its fastest kernel: the winner of its finals, if it had any. */
  readonly best: RunBest | undefined;
  /** When its search measured the fastest kernel of its own trials. */
  readonly found: Found | undefined;
  readonly noise: NoiseVerdict;
  /** Kernels that the first run measured too. */
  readonly shared: SharedKernels | undefined;
  /** Its best beside that of the first run; undefined for the first run, or where one of the two found none. */
  readonly beside: Beside | undefined;
}

export interface Found {
  /** Number of the trial, from 1. */
  readonly trial: number;
  /** Seconds since the run began. */
  readonly after: number | undefined;
}

export interface Beside {
  /** `tie` where the intervals overlap. */
  readonly verdict: "faster" | "tie" | "slower";
  /** How much, and what speaks against it, as a phrase. */
  readonly says: string;
  /** Whether nothing speaks against it. */
  readonly isSure: boolean;
}

export interface RunBest {
  readonly id: string;
  readonly seconds: number;
  readonly interval: readonly [low: number, high: number];
  readonly decisions: readonly (readonly [name: string, value: string])[];
}

/** Kernels that two runs share. Their differences come from the machine, not from the search. */
export interface SharedKernels {
  readonly count: number;
  /** Median ratio of this run's time to the first run's. */
  readonly ratio: number;
}
