/**
 * @file Measures kernels one after another in as few processes as possible, for a search that wants the fastest of
 * them.
 *
 *     process 1    a timed   b timed   c crashed
 *     process 2    c crashed                          alone, so c itself is the cause
 *     process 3    d timed, until all of five batches were longer than a's median by a margin
 *                  e verified by single calls, each of which took more than twice as long as a's median
 */

import { internal } from "../abstraction/error.ts";
import type { Verdict } from "./harness/run.ts";
import { median } from "./statistics.ts";

/** Runs a process with these kernels. A kernel that is clearly slower than `goal` seconds is not timed to the end. */
type RunRace<T extends Verdict> = (
  files: readonly string[],
  goal: number | undefined,
  onVerdict: (at: number, verdict: T) => void,
) => Promise<ReadonlyMap<number, T>>;

/**
 * Gives each kernel its verdict as soon as it is known. A failure counts only for the first kernel in a process, since
 * another kernel might have caused a later one. A kernel that fails later begins the next process.
 */
export async function raced<T extends Verdict>(
  files: readonly string[],
  goal: number | undefined,
  run: RunRace<T>,
  give: (at: number, verdict: T) => void,
): Promise<void> {
  let least = goal;
  let left = files.map((file, at) => ({ file, at }));
  while (left.length > 0) {
    const racers = left;
    const settled = new Set<number>();
    const settle = (i: number, verdict: T): void => {
      const racer = racers[i];
      if (!racer || settled.has(racer.at)) return;
      settled.add(racer.at);
      give(racer.at, verdict);
    };
    const verdicts = await run(
      racers.map(({ file }) => file),
      least,
      (i, verdict) => {
        if (verdict.status !== "timed") return;
        least = Math.min(least ?? Number.POSITIVE_INFINITY, median(verdict.samples));
        settle(i, verdict);
      },
    );
    const first = verdicts.get(0) ?? internal("a race ended without an answer");
    settle(0, first);
    left = racers.filter(({ at }) => !settled.has(at));
  }
}

/** Yields numbered answers in order, each as soon as it is available. */
export async function* inOrder<T>(
  count: number,
  work: (give: (at: number, answer: T) => void) => Promise<void>,
): AsyncGenerator<T, void> {
  const answers = new Map<number, T>();
  let wake: () => void = () => undefined;
  let failure: { readonly error: unknown } | undefined;
  const working = work((at, answer) => {
    answers.set(at, answer);
    wake();
  });
  working.catch((error: unknown) => {
    failure = { error };
    wake();
  });
  for (let at = 0; at < count; at++) {
    while (!answers.has(at) && !failure) await new Promise<void>((resolve) => (wake = resolve));
    const answer = answers.get(at);
    if (answer === undefined) throw failure?.error;
    yield answer;
  }
}
