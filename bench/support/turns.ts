/**
 * @file Calls of this process that are timed in turns, with a rest between batches: until the threads of the last one sleep.
 *
 *     const [a, b] = await inTurns([() => net.run(inputs), peer.run], { batches: 40 });      seconds a call, by batch
 *
 * ONNX Runtime's threads spin after a call, for some 35 ms on an EPYC, and occupy the processors that the other side's need.
 */

import { setTimeout } from "node:timers/promises";

/** Milliseconds of a window, and the processor time that this process may use in it. A thread that spins uses all of it. */
const WINDOW = 10;
const IDLE = 2;
/** Windows after which threads that still run are taken to have work of their own. */
const MOST_WINDOWS = 100;

/** The clock, for tests: processor time of this process so far, and a wait, both in milliseconds. */
interface Clock {
  readonly used: () => number;
  readonly wait: (milliseconds: number) => Promise<unknown>;
}

const PROCESS: Clock = {
  used: () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1000;
  },
  wait: setTimeout,
};

/** Waits until this process uses next to no processor time. @returns whether it came to that within a second */
export async function atRest({ used, wait }: Clock = PROCESS): Promise<boolean> {
  for (let window = 0; window < MOST_WINDOWS; window++) {
    const before = used();
    await wait(WINDOW);
    if (used() - before < IDLE) return true;
  }
  return false;
}

/** Length of a batch: it makes as many calls as fit. In the first 20 ms after a rest networks of 3 ms took a tenth longer (two threads, Zen 4, 2026-11-23). */
const BATCH_SECONDS = 0.1;

/** Batches of each side that are timed, however long they take. */
const LEAST_BATCHES = 3;

/**
 * Seconds a call, by side and batch. The sides alternate, and so does the one that begins. Before a batch the other sides' threads come to rest, and
 * one call, which is not timed, wakes those of this side.
 * @param seconds after which no further batches begin; unlimited when left out
 */
export async function inTurns(
  sides: readonly (() => unknown)[],
  { batches, seconds = Number.POSITIVE_INFINITY }: { readonly batches: number; readonly seconds?: number },
): Promise<number[][]> {
  const started = performance.now();
  const timed = async (side: () => unknown, calls: number): Promise<number> => {
    await atRest();
    await side();
    const begun = performance.now();
    for (let call = 0; call < calls; call++) await side();
    return (performance.now() - begun) / 1000 / calls;
  };
  const all = sides.map((run) => ({ run, calls: 1, samples: [] as number[] }));
  for (const side of all) side.calls = Math.max(1, Math.round(BATCH_SECONDS / (await timed(side.run, 1))));
  for (let batch = 0; batch < batches; batch++) {
    if (batch >= LEAST_BATCHES && performance.now() - started > 1000 * seconds) break;
    const first = batch % all.length;
    for (const { run, calls, samples } of [...all.slice(first), ...all.slice(0, first)])
      samples.push(await timed(run, calls));
  }
  return all.map(({ samples }) => samples);
}
