/** @file What a live page shows, as plain data: the searches of a database that run now. Times are seconds; instants are milliseconds since 1970. */

import type { Subject, TrialPoint } from "./report-data.ts";

export interface LiveData {
  /** The database's path. */
  readonly source: string;
  readonly version: string;
  readonly now: number;
  /** Why there is nothing to show, or nothing new, as a sentence: there is no such file yet, another program has locked it. */
  readonly trouble: string | undefined;
  /** Those that search now. */
  readonly processes: readonly LiveProcess[];
  /** Searches that were begun and neither ended nor go on, newest first. */
  readonly left: readonly LeftSearch[];
}

/**
 * How a search is known to go on: its process lives on this machine, or is not seen here although trials land. A search is recorded as running until its
 * process ends it, so one that was killed is recorded so for ever.
 */
type Life = "lives" | "elsewhere";

/** A process, with the searches that it has made so far, oldest first. */
export interface LiveProcess {
  readonly process: number;
  readonly life: Life;
  /** `Xeon, automap 0.2.0` */
  readonly machine: string;
  readonly searches: readonly LiveSearch[];
}

type Words = "label" | "name" | "subject" | "shape" | "types" | "dtype" | "layout" | "epilogue" | "threads";

export interface LiveSearch extends Pick<Subject, Words> {
  /** Id of the run. */
  readonly id: string;
  readonly started: number;
  readonly ended: number | undefined;
  /** How it ended; `running` until then. */
  readonly status: string;
  /** What it may spend, as far as that is recorded. */
  readonly budget: { readonly trials: number | undefined; readonly seconds: number | undefined };
  /** The network that it is a task of: the steps that its kernel computes, and the seconds that were left for all tasks when it began. */
  readonly network: { readonly name: string; readonly steps: number; readonly seconds: number } | undefined;
  /** Multiply-adds of a call. */
  readonly points: number;
  /** Those of the search, in the order in which they landed. */
  readonly trials: readonly TrialPoint[];
  /** Kernels that its finals measured again. */
  readonly finals: number;
  /** The winner of its finals, or before them the fastest. */
  readonly best: TrialPoint | undefined;
}

export interface LeftSearch extends Pick<LiveSearch, "id" | "label" | "started"> {
  readonly process: number;
  readonly isImported: boolean;
}
