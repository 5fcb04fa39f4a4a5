/**
 * @file Gives work an empty compile cache of its own, so that a search whose length is stated compiles all that it measures.
 *
 *     await withOwnCache(() => tuneNetwork(program, { seconds: 120, database }))
 *
 * Calibrations are kept: they are the machine's, and one that a search made in its own time would put it behind those that find it made.
 */

import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { cacheFolder } from "../../runtime/cache.ts";

/** Runs `work` with an empty cache, which is deleted afterwards. Processes that it starts use the same cache. */
export async function withOwnCache<T>(work: () => Promise<T>): Promise<T> {
  const usual = process.env["XDG_CACHE_HOME"];
  const calibrations = cacheFolder("calibrations");
  const folder = mkdtempSync(join(tmpdir(), "automap-own-cache-"));
  try {
    process.env["XDG_CACHE_HOME"] = folder;
    mkdirSync(dirname(cacheFolder("calibrations")), { recursive: true });
    if (existsSync(calibrations)) cpSync(calibrations, cacheFolder("calibrations"), { recursive: true });
    return await work();
  } finally {
    if (usual === undefined) delete process.env["XDG_CACHE_HOME"];
    else process.env["XDG_CACHE_HOME"] = usual;
    rmSync(folder, { recursive: true, force: true });
  }
}
