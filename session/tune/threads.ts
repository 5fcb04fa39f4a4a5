/** @file How many threads a kernel may have on a machine. */

import { UsageError } from "../../abstraction/error.ts";
import { levelOf, type Target } from "../../abstraction/machine.ts";
import { checkProcessors, coresOf } from "../../runtime/cores.ts";
import { isGpu, isPredictedOnly } from "../../targets/index.ts";

/** @throws UsageError when more threads are requested than the machine has, or more than one for a GPU */
export function checkThreads(machine: Target, threads: number): void {
  if (isGpu(machine) || isPredictedOnly(machine)) {
    if (threads !== 1)
      throw new UsageError(
        `threads ${threads}: a kernel for ${machine.name} is launched by one thread`,
        "leave --threads out: blocks and warps are the schedule's to decide",
      );
    return;
  }
  checkProcessors(threads, coresOf({}).processors);
}

/** @throws UsageError when more threads are requested than a machine elsewhere has cores */
export function checkCores(machine: Target, threads: number): void {
  const { units } = levelOf(machine, "core");
  if (threads > units) throw new UsageError(`threads ${threads}: ${machine.name} has ${units} cores`);
}
