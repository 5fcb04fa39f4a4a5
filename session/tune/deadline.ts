/**
 * @file When a run of kernels under emulation ends: at the user's signal, when the expected results take too long, or
 * when the time is up and at least one kernel has been judged.
 *
 *     const deadline = deadlineOf(signal, 5);
 *     const reference = await emulator.reference(computation, fixed);      deadline.signal ends it
 *     deadline.next("first kernel");
 */

import { heard } from "../../runtime/until.ts";
import { type AnswersInTime, answersIn } from "./answers-in-time.ts";

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
