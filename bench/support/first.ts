/**
 * @file Gives this process priority over all others of the machine, so that they disturb neither side of a comparison.
 *
 *     const [a, b] = await beforeOthers(() => inTurns(sides, { batches: 40 }));
 *
 * On Linux, shells of different sessions share the processors equally, whatever their niceness. A kernel of two threads waits for both of its halves,
 * so that whatever interrupts one of them delays it.
 */

import { spawnSync } from "node:child_process";
import { UsageError } from "../../abstraction/error.ts";

/** Sets the policy of all threads of this process. Those that start later inherit it. @returns whether the system allows it */
function schedule(policy: "--fifo" | "--other", priority: number): boolean {
  return spawnSync("chrt", [policy, "--all-tasks", "--pid", String(priority), String(process.pid)]).status === 0;
}

/** Runs `work` before all others. @throws UsageError when the system does not allow that */
export async function beforeOthers<T>(work: () => Promise<T>): Promise<T> {
  if (!schedule("--fifo", 50))
    throw new UsageError("this process may not come before others", "run it as root, with chrt of util-linux");
  try {
    return await work();
  } finally {
    schedule("--other", 0);
  }
}
