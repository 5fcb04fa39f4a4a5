/** @file What is shown of a fleet, as plain data: the workers that are there, and how the queues of their jobs stand. */

export interface FleetData {
  /** The address, and what answers there. */
  readonly server: string;
  readonly workers: readonly WorkerFacts[];
  readonly queues: readonly Standing[];
}

/** What a worker says of itself. */
export interface WorkerFacts {
  readonly name: string;
  readonly measures: boolean;
  readonly target: string;
  /** Compilations at once. */
  readonly compiles: number;
  readonly compiler: string;
  /** Id, as records name it. */
  readonly environment: string;
}

/** One queue, which the workers of an environment share, or those with the same compilers. */
export interface Standing {
  readonly task: "measure" | "compile";
  /** The machine, or the compiler. */
  readonly of: string;
  readonly workers: readonly string[];
  /** Jobs that nobody has begun. */
  readonly waiting: number;
  readonly active: number;
  /** Jobs that ended within the last minute, of the latest two hundred. */
  readonly lastMinute: number;
  /** Seconds since the one that has been worked at longest was begun. */
  readonly longest: number | undefined;
}

/** A job that has been worked at for so long is stuck, or its kernels are uncommonly slow: seconds. */
const STUCK = 600;

/** What is said of a queue with a job that is stuck, or undefined. */
export function stuckText({ task, of, longest = 0 }: Pick<Standing, "task" | "of" | "longest">): string | undefined {
  if (longest <= STUCK) return undefined;
  return `a job to ${task} on ${of} has been worked at for ${Math.round(longest / 60)} minutes: look at its worker`;
}
