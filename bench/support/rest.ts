/**
 * @file A rest between batches that are timed in turns in one process: until the threads of the last one sleep.
 *
 *     await atRest();
 *     await theirs();                 wakes its own threads again
 *     const begun = performance.now();
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
