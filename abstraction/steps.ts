/**
 * @file Long work in steps: between two of them it can be put down, looked at, or told to come to an end.
 *
 *     function* judge(all): Steps<Judged[]> {
 *       for (const one of all) {
 *         judged.push(worth(one));
 *         if ((yield { done: judged.length, of: all.length }) && judged.length > 0) break;        told to come to an end
 *       }
 *       return judged;
 *     }
 *     finished(judge(all))                                                    at once
 *     await inSlices(judge(all), { isEnough: () => late() })                  timers and signals are heard meanwhile
 *
 * How many steps were made decides the result, and no clock does: `finished(work, steps)` makes the same of it that `inSlices` made.
 */

import { setImmediate } from "node:timers/promises";

/** How far work has come; `of` may grow. */
export interface Step {
  /** What is counted, in the plural. */
  readonly what: string;
  readonly done: number;
  readonly of: number;
}

/** Work that gives a result at its end. A step is answered by whether to come to an end with what there is. */
export type Steps<T> = Generator<Step, T, boolean>;

/**
 * The result.
 * @param most steps after which the work is told to come to an end; as many as it takes when left out
 */
export function finished<T>(work: Steps<T>, most = Number.POSITIVE_INFINITY): T {
  let next = work.next(false);
  for (let made = 1; !next.done; made++) next = work.next(made >= most);
  return next.value;
}

/** What came of work in slices. */
export interface Sliced<T> {
  readonly value: T;
  /** Where it was told to come to an end, and after how many steps; undefined where it was done. */
  readonly cut: { readonly after: number; readonly at: Step } | undefined;
}

export interface SliceOptions {
  /** Asked between slices: whether the work is to come to an end with what there is. */
  readonly isEnough: () => boolean;
  /** Abandons the work: the promise is rejected with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /** Told after each slice how far it has come. */
  readonly onSlice?: ((at: Step) => void) | undefined;
}

/** Of computing without a pause: a Ctrl-C is heard after it. */
const SLICE_MS = 50;

/** The result, with a turn of the event loop between slices. */
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
