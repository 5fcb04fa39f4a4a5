/**
 * @file Where programs keep what they can make again.
 *
 *     cacheFolder("runtime")        ~/.cache/automap/runtime
 */

import { homedir } from "node:os";
import { join } from "node:path";

/** Reads the environment. */
export function cacheFolder(what: "runtime" | "kernels"): string {
  return join(process.env["XDG_CACHE_HOME"] || join(homedir(), ".cache"), "automap", what);
}
