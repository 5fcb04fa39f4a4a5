/**
 * @file A fence around kernels that others wrote: bubblewrap, where it is installed and the system lets it. Inside, files can only be read, some not
 * even that; there is no network, and no process of the outside.
 *
 *     const fence = await fenceHere(["/home/me/node1.key"]);
 *     await createRunner({ fence })
 *
 * A process costs some milliseconds more by it, and kernels take the same time.
 */

import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { explainRun, findProgram, runChild } from "./child.ts";

/** Words before the command of a process that is fenced in. */
export interface Fence {
  readonly command: readonly string[];
}

/** Who starts a fenced process, by the number that it has inside. */
export const FENCE_PROCESS = 1;

/** @param hidden files that cannot be read inside. @returns the fence, or why there is none */
export async function fenceHere(hidden: readonly string[]): Promise<Fence | string> {
  const bubblewrap = findProgram("bwrap");
  if (bubblewrap === undefined) return "bubblewrap is not installed (apt-get install bubblewrap)";
  const command = [
    bubblewrap,
    ...["--ro-bind", "/", "/"],
    ...["--dev", "/dev"],
    ...["--proc", "/proc"],
    ...hidden.filter((file) => existsSync(file)).flatMap((file) => ["--ro-bind", "/dev/null", resolve(file)]),
    "--unshare-all",
    "--die-with-parent",
  ];
  const run = await runChild([...command, "true"], { timeLimitMs: 10_000 });
  return run.status === "ok" ? { command } : `bubblewrap does not work here: ${explainRun(run)}: ${run.stderr.trim()}`;
}
