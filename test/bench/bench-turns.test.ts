/** The rest between batches that are timed in turns. */

import { expect, it } from "vitest";
import { atRest } from "../../bench/support/turns.ts";

/** A process whose threads use the given milliseconds of processors in each window, and how long it was waited for. */
function processThatUses(windows: readonly number[]) {
  let window = 0;
  let used = 0;
  let waited = 0;
  const wait = async (milliseconds: number): Promise<void> => {
    used += windows[Math.min(window++, windows.length - 1)] ?? 0;
    waited += milliseconds;
  };
  return { clock: { used: () => used, wait }, waited: () => waited };
}

it("rests until no thread spins", async () => {
  const spinning = processThatUses([10, 10, 6, 0.3]);
  expect(await atRest(spinning.clock)).toBe(true);
  expect(spinning.waited()).toBe(40);
});

it("goes on after a second where a thread never stops", async () => {
  const busy = processThatUses([10]);
  expect(await atRest(busy.clock)).toBe(false);
  expect(busy.waited()).toBe(1000);
});
