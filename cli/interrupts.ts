/**
 * @file Ctrl-C during long work, or SIGTERM: the first one ends it with the best so far, the second one ends the process.
 *
 *     const { signal, end } = heardInterrupts("search");
 *     await tuneNetwork(program, { seconds: 60, signal }).finally(end);
 */

import { EXIT, say } from "./output.ts";

const SIGNALS = ["SIGINT", "SIGTERM"] as const;

/**
 * @param what the work, as a message names it
 * @param last called before a second Ctrl-C ends the process
 */
export function heardInterrupts(
  what: "search" | "ranking",
  last: () => void = () => undefined,
): { readonly signal: AbortSignal; readonly end: () => void } {
  const controller = new AbortController();
  let count = 0;
  const onInterrupt = (): void => {
    if (++count > 1) {
      last();
      process.exit(EXIT.interrupted);
    }
    say(`ending the ${what} with the best so far; Ctrl-C again stops at once`);
    controller.abort();
  };
  for (const signal of SIGNALS) process.on(signal, onInterrupt);
  const end = (): void => {
    for (const signal of SIGNALS) process.off(signal, onInterrupt);
  };
  return { signal: controller.signal, end };
}
