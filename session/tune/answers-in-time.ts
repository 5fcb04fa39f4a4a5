/**
 * @file Bounds the time in which the expected results of kernels are computed. Without them nothing can be verified,
 * and what is not verified is not measured.
 *
 *     const answers = answersIn(5);                                     they may take 60 s
 *     needsLonger(conv2d, answers)                                      { seconds: 110 }: the search ends at once
 *     if (!(await isDoneBefore(drawing, answers.late))) ...             the search ends with nothing measured
 *
 * A run of kernels under emulation ends at the user's signal, when the expected results take too long, or when the time is up and at least one kernel
 * has been judged:
 *
 *     const deadline = deadlineOf(signal, 5);
 *     const reference = await emulator.reference(computation, fixed);   deadline.signal ends it
 *     deadline.next("first kernel");
 */

import { availableParallelism } from "node:os";
import type { Computation } from "../../abstraction/computation.ts";
import type { Inputs } from "../../abstraction/interpret.ts";
import { secondsOfReference } from "../../runtime/reference/reference-cost.ts";
import { heard } from "../../runtime/until.ts";

/** Why nothing was verified, and therefore nothing measured: the expected results would have taken too long. */
export interface Unanswered {
  /** How long they take here at least, in seconds; absent when they were stopped after all the time they may take. */
  readonly needs?: number;
  /** How long they may take, in seconds. */
  readonly limit: number;
}

/** The time that expected results may take. */
interface AnswersInTime {
  /** In seconds; infinite for a search without a limit. */
  readonly limit: number;
  /** Aborted when it is over; undefined for a search without a limit. */
  readonly late: AbortSignal | undefined;
}

/**
 * They may take as long as the search, and never less than this, so that a search of a few seconds has a result on a
 * busy machine too. Those of every operator's shipped sizes take less on two processors.
 */
const LEAST_SECONDS = 60;

/** @param within the time limit of the search in seconds; unlimited when left out */
export function answersIn(within: number | undefined): AnswersInTime {
  if (within === undefined) return { limit: Number.POSITIVE_INFINITY, late: undefined };
  const limit = Math.max(within, LEAST_SECONDS);
  return { limit, late: AbortSignal.timeout(Math.ceil(1000 * limit)) };
}

/** Set when the expected results are known to take longer than they may. */
export function needsLonger(
  computation: Computation,
  { limit }: Pick<AnswersInTime, "limit">,
  {
    fixed = {},
    processors = availableParallelism(),
  }: { readonly fixed?: Inputs | undefined; readonly processors?: number } = {},
): Unanswered | undefined {
  const needs = secondsOfReference(computation, processors, fixed);
  return needs !== undefined && needs > limit ? { needs, limit } : undefined;
}

/** The time of a run of kernels under emulation. */
export interface Deadline {
  /** Aborted at the end. */
  readonly signal: AbortSignal;
  readonly answers: AnswersInTime;
  /** What is being worked on from now on; the expected results at first. */
  readonly next: (stage: "first kernel" | "other kernels") => void;
  /** Whether the time ended the run, and not the user. */
  readonly isLate: () => boolean;
  /** Ends the listening to the user's signal. */
  readonly letGo: () => void;
}

/** @param seconds the time limit from now on; unlimited when left out */
export function deadlineOf(user: AbortSignal | undefined, seconds: number | undefined): Deadline {
  const controller = new AbortController();
  const answers = answersIn(seconds);
  const time = seconds === undefined ? undefined : AbortSignal.timeout(Math.ceil(1000 * seconds));
  let until = answers.late;
  let isLate = false;
  const look = (): void => {
    if (controller.signal.aborted || !(user?.aborted || until?.aborted)) return;
    isLate = !user?.aborted;
    controller.abort();
  };
  const releases = [user, answers.late, time].map((signal) => heard(signal, look));
  return {
    signal: controller.signal,
    answers,
    next: (stage) => {
      until = stage === "first kernel" ? undefined : time;
      look();
    },
    isLate: () => isLate,
    letGo: () => {
      for (const release of releases) release();
    },
  };
}
