/**
 * @file A trial: the candidate, the prediction of the model, and the measurement.
 */

import type { Candidate } from "./candidate.ts";

/** One level of the layered model: `cycles = trips * max(inner, read, write)`. */
export interface LevelCost {
  readonly level: string;
  readonly trips: number;
  /** Cycles of one trip of the next inner level. */
  readonly inner: number;
  readonly read: number;
  readonly write: number;
  readonly bound: "inner" | "read" | "write";
}

/** The model's prediction for a candidate. */
export interface Prediction {
  readonly seconds: number;
  /** The prediction before correction by earlier trials. */
  readonly uncorrectedSeconds: number;
  /** Innermost first. */
  readonly levels: readonly LevelCost[];
}

/** Where a kernel ran, and under what load. */
export interface Surroundings {
  /** Processor of each thread. */
  readonly cpus: readonly number[];
  /** Share of these processors' time that other programs took during timing, 0 to 1; the largest over several processors. */
  readonly load: number | undefined;
}

/** The clock that a device's driver reported while a kernel was timed. */
export interface DeviceClock {
  /** Of its multiprocessors, the median of what was seen. */
  readonly hertz: number;
  /** What kept it below its highest clock, as {@link THROTTLES} names it; empty when nothing did. */
  readonly throttled: readonly Throttle[];
}

/** `1755 MHz while it was timed, throttled: power-limit` */
export function printClock({ hertz, throttled }: DeviceClock): string {
  const why = throttled.length === 0 ? "not throttled" : `throttled: ${throttled.join(", ")}`;
  return `${(hertz / 1e6).toFixed(0)} MHz while it was timed, ${why}`;
}

/** Reasons for which a GPU throttles its clock. Source: NVML API Reference, nvmlClocksEventReasons. */
export const THROTTLES = ["power-limit", "slowdown", "temperature", "hot-slowdown", "power-brake"] as const;
type Throttle = (typeof THROTTLES)[number];

/** A failed run is a status with its log, never a number. */
export type Measurement = {
  readonly ran?: Surroundings;
  readonly clock?: DeviceClock;
  /** The fleet's worker that measured it; left out at home. */
  readonly worker?: string;
} & (
  | {
      readonly status: "ok";
      /** Seconds per call, one sample per batch. */
      readonly samples: readonly number[];
      readonly median: number;
      /** 95 % bootstrap interval of the median. */
      readonly interval: readonly [number, number];
      /** Occurrences of the promised instruction in the disassembly. */
      readonly instructions: number;
      /**
       * Seconds of the best kernel, when this one was slower by a margin in every batch and its timing ended early, or so slow in the calls that
       * verified it that the fastest of them is its only sample. Left out when it was timed to the end.
       */
      readonly lostTo?: number;
    }
  | {
      readonly status: "wrong";
      readonly log: string;
    }
  | {
      readonly status:
        | "compile-failed"
        | "missing-instruction"
        | "illegal-instruction"
        | "crashed"
        | "timed-out"
        | "out-of-memory"
        | "out-of-bounds"
        | "output-flood"
        /** It needs more registers or shared memory than a block of the device has. */
        | "out-of-resources"
        /** The compiler ran out of registers and spilled to memory. */
        | "spilled"
        /** The compiler serialised asynchronous instructions. */
        | "serialised"
        /** An emulator computed it correctly for every set of inputs, as the log says. It has no time. */
        | "emulated";
      readonly log: string;
    }
);

export type MeasurementStatus = Measurement["status"];

/** A candidate that was measured, and the result. */
export interface Trial {
  readonly candidate: Candidate;
  readonly prediction: Prediction | undefined;
  readonly measurement: Measurement;
  /** Milliseconds since 1970. */
  readonly at: number;
}
