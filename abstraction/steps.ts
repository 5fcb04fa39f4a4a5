/**
 * @file Long work as a sequence of steps. Between two steps it can be paused, observed, or told to stop early with what it has.
 *
 *     function* judge(all): Steps<Judged[]> {
 *       for (const one of all) {
 *         judged.push(worth(one));
 *         if ((yield { done: judged.length, of: all.length }) && judged.length > 0) break;        told to stop early
 *       }
 *       return judged;
 *     }
 *     finished(judge(all))                                                    without pauses
 *     await inSlices(judge(all), { isEnough: () => late() })                  timers and signals are handled in between
 *
 * The result depends on the number of steps, not on a clock: `finished(work, steps)` reproduces what `inSlices` returned.
 */

import { setImmediate } from "node:timers/promises";

/** Progress of work; `of` may grow. */
export interface Step {
  /** What is counted, in the plural. */
  readonly what: string;
  readonly done: number;
  readonly of: number;
}

/** Work that returns a result. The answer to each step says whether to stop early. */
export type Steps<T> = Generator<Step, T, boolean>;

/**
 * Runs the work to its result.
 * @param most steps after which the work is told to stop early; unlimited when left out
 */
export function finished<T>(work: Steps<T>, most = Number.POSITIVE_INFINITY): T {
  let next = work.next(false);
  for (let made = 1; !next.done; made++) next = work.next(made >= most);
  return next.value;
}

/** The result of work in slices. */
export interface Sliced<T> {
  readonly value: T;
  /** Where and after how many steps it was told to stop early; undefined when it ran to the end. */
  readonly cut: { readonly after: number; readonly at: Step } | undefined;
}

interface SliceOptions {
  /** Asked between slices whether the work is to stop early. */
  readonly isEnough: () => boolean;
  /** Aborts the work: the promise is rejected with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /** Receives the progress after each slice. */
  readonly onSlice?: ((at: Step) => void) | undefined;
}

/** Longest computation without a pause, in milliseconds; bounds how long a Ctrl-C waits. */
const SLICE_MS = 50;

/** Runs the work to its result, giving the event loop a turn between slices. */
export async function inSlices<T>(work: Steps<T>, { isEnough, signal, onSlice }: SliceOptions): Promise<Sliced<T>> {
  let cut: Sliced<T>["cut"];
  let begun = performance.now();
  let next = work.next(false);
  for (let made = 1; !next.done; made++) {
    if (performance.now() - begun >= SLICE_MS) {
      onSlice?.(next.value);
      await setImmediate();
      signal?.throwIfAborted();
      if (!cut && isEnough()) cut = { after: made, at: next.value };
      begun = performance.now();
    }
    next = work.next(cut !== undefined);
  }
  return { value: next.value, cut };
}
