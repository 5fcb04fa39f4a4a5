/**
 * @file A trial: the candidate, the prediction of the model, and the measurement.
 */

import type { Candidate } from "./candidate.ts";

/** One level of the layered model: `cycles = trips * max(inner, read, write)`. */
export interface LevelCost {
  readonly level: string;
  readonly trips: number;
  /** Cycles of one trip of the level inside. */
  readonly inner: number;
  readonly read: number;
  readonly write: number;
  readonly bound: "inner" | "read" | "write";
}

/** What the model expects of a candidate. */
export interface Prediction {
  readonly seconds: number;
  /** Before the correction learnt from trials. */
  readonly uncorrectedSeconds: number;
  /** Innermost first. */
  readonly levels: readonly LevelCost[];
}

/** Where a kernel ran, and beside what. */
export interface Surroundings {
  /** Processor of each thread. */
  readonly cpus: readonly number[];
  /** Share of the time of these processors that other programs took while it was timed; of several the most. 0 to 1. */
  readonly load: number | undefined;
}

/** What a device's driver said of its clock while a kernel was timed. */
export interface DeviceClock {
  /** Of its multiprocessors, the median of what was seen. */
  readonly hertz: number;
  /** What held it below its highest clock, as {@link THROTTLES} names it; empty where nothing did. */
  readonly throttled: readonly Throttle[];
}

/** Why a GPU slows down by itself. Source: NVML API Reference, nvmlClocksEventReasons. */
export const THROTTLES = ["power-limit", "slowdown", "temperature", "hot-slowdown", "power-brake"] as const;
export type Throttle = (typeof THROTTLES)[number];

/** A failed run is a status with its log, never a number. */
export type Measurement = { readonly ran?: Surroundings; readonly clock?: DeviceClock } & (
  | {
      readonly status: "ok";
      /** Seconds of one call, one number a batch. */
      readonly samples: readonly number[];
      readonly median: number;
      /** 95 % bootstrap interval of the median. */
      readonly interval: readonly [number, number];
      /** Times the promised instruction stands in the disassembly. */
      readonly instructions: number;
      /** Seconds that it was slower than, by a margin, in every batch: its timing was ended early. Left out where it was timed to the end. */
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
        /** It asks for more registers or shared memory than a block of the device has. */
        | "out-of-resources"
        /** Registers did not suffice: the compiler put memory in their place. */
        | "spilled"
        /** What was written as asynchronous the compiler made wait for itself. */
        | "serialised"
        /** Right on every set of inputs where an emulator ran it, as the log says: it has no time. */
        | "emulated";
      readonly log: string;
    }
);

export type MeasurementStatus = Measurement["status"];

/** A candidate that was measured, and what came of it. */
export interface Trial {
  readonly candidate: Candidate;
  readonly prediction: Prediction | undefined;
  readonly measurement: Measurement;
  /** Milliseconds since 1970. */
  readonly at: number;
}
