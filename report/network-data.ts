/** @file The data of a network's report, as plain data. */

import type { Roofline } from "./report-data.ts";

/** How a time is known: by a record, by the model, by what the step moves through memory; or not at all. */
export type TimeSource = "measured" | "predicted" | "estimated" | "unknown";

/** Times are seconds; instants are milliseconds since 1970. */
export interface NetworkReportData {
  readonly name: string;
  /** The database's path. */
  readonly source: string;
  readonly madeAt: number;
  readonly version: string;
  /** `AMD EPYC, 1 thread` */
  readonly machine: string;
  readonly nodes: number;
  readonly multiplyAdds: number;
  readonly parameters: number;
  readonly share: {
    readonly counted: number;
    readonly mapped: number;
    readonly instructions: readonly (readonly [name: string, operators: number])[];
  };
  /** In the order they run. */
  readonly steps: readonly NetworkStep[];
  /** Those that sum products first, then the others; equal steps are one. */
  readonly tasks: readonly NetworkTask[];
  /** Seconds of all tuned steps after each trial that worked; each task counts by its first trial until its own begin. */
  readonly progress: readonly number[];
  readonly roofline: Roofline | undefined;
}

export interface NetworkStep {
  /** The first of its nodes. */
  readonly node: string;
  readonly ops: readonly string[];
  /** Of {@link NetworkReportData.tasks}, from 0. */
  readonly task: number;
}

export interface NetworkTask {
  /** What it computes, cut where it is long. */
  readonly label: string;
  /** The first node of each step. */
  readonly nodes: readonly string[];
  readonly ops: readonly string[];
  /** Steps that it computes. */
  readonly times: number;
  /** Of one step; 0 where no products are summed. */
  readonly multiplyAdds: number;
  readonly time: TimeSource;
  /** Of one step. */
  readonly seconds: number | undefined;
  /** Instruction and mapping; undefined for plain loops. */
  readonly kernel: string | undefined;
  /** Why no instruction computes it; undefined where one does. */
  readonly because: string | undefined;
  readonly record: string | undefined;
  /** Of the first kernel that worked, and of the fastest, each measured once as it was searched for. */
  readonly first: number | undefined;
  readonly best: number | undefined;
  /** Trials that worked. */
  readonly trials: number;
}
