/** @file The data of a network's report, as plain data. */

import type { NextStep, Noise, Roofline } from "./report-data.ts";

/** Source of a time: a record, the model, the bytes the step moves, or none. */
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
  /** In execution order. */
  readonly steps: readonly NetworkStep[];
  /** Tasks that sum products first, then the others. Equal steps share a task. */
  readonly tasks: readonly NetworkTask[];
  /** Total seconds of the tuned steps after each successful trial. Before a task's own trials its first one counts. */
  readonly progress: readonly number[];
  readonly roofline: Roofline | undefined;
  /** How reliable the times of the searches are. */
  readonly noise: Pick<Noise, "verdict" | "meaning">;
  readonly next: readonly NextStep[];
}

export interface NetworkStep {
  /** The step's first node. */
  readonly node: string;
  readonly ops: readonly string[];
  /** Index in {@link NetworkReportData.tasks}. */
  readonly task: number;
  /** Numbers of the earlier steps whose values it reads, the last 64 of them. */
  readonly reads: readonly number[];
}

export interface NetworkTask {
  /** The computation, shortened if long. */
  readonly label: string;
  /** The first node of each step. */
  readonly nodes: readonly string[];
  readonly ops: readonly string[];
  /** Number of steps that share this task. */
  readonly times: number;
  /** For one step; 0 if no products are summed. */
  readonly multiplyAdds: number;
  readonly time: TimeSource;
  /** For one step. */
  readonly seconds: number | undefined;
  /** Seconds that the kernel of its record takes at least by the calibration; undefined without a record or a calibration. */
  readonly roof: number | undefined;
  /** Instruction and mapping; undefined for plain loops. */
  readonly kernel: string | undefined;
  /** Why no instruction computes it; undefined if one does. */
  readonly because: string | undefined;
  readonly record: string | undefined;
  /** Seconds of the first successful kernel and of the fastest, each from one measurement during the search. */
  readonly first: number | undefined;
  readonly best: number | undefined;
  /** Successful trials. */
  readonly trials: number;
}
