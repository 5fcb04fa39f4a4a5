/** @file Whether the process of a search still works: a search that was killed is recorded as running for ever. */

import { textOf } from "../../runtime/processor.ts";

/** Clock ticks a second in /proc, on every architecture of Linux that Node runs on. */
const TICKS = 100;
/**
 * When a process of this machine began, milliseconds since 1970, to the second: what was begun before it, another process of its number began.
 * Undefined where there is none; processes of other containers are not seen. Where the system does not say when, it was always there.
 */
export function beginningOf(process: number): number | undefined {
  if (!isThere(process)) return undefined;
  const stat = textOf(`/proc/${process}/stat`) ?? "";
  // The name of a program, in parentheses, may hold blanks. The 22nd field is the beginning.
  const ticks = Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19] ?? Number.NaN);
  const [, boot] = /^btime (\d+)$/m.exec(textOf("/proc/stat") ?? "") ?? [];
  const begun = 1000 * (Number(boot) + ticks / TICKS);
  return Number.isFinite(begun) ? begun : Number.NEGATIVE_INFINITY;
}

function isThere(process: number): boolean {
  try {
    // Signal 0 is not sent.
    return globalThis.process.kill(process, 0);
  } catch (error) {
    // Another user's process may not be signalled.
    return error instanceof Error && "code" in error && error.code === "EPERM";
  }
}
