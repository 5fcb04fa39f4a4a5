/**
 * @file The cache of compiled files and calibrations: its location and its size limit.
 *
 *     cacheFolder("runtime")                              ~/.cache/automap/runtime
 *     await examineCache(folder)                          [{ names: ["0f3a...so", "0f3a...cpp"], bytes: 81234, usedAt, inUse: false }, ...]
 *     await trimCache(folder, { bytes: 2 ** 31, days: 30 })     deletes the oldest entries first, but none in use
 *
 * An entry consists of all files with the same hash in their names. Its time of use is the time of its files, which is
 * set when it is created and whenever it is found again.
 */

import type { Dirent } from "node:fs";
import { readdir, rm, stat, utimes } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { groupsOf, sumOf } from "../abstraction/collections.ts";
import { UsageError } from "../abstraction/error.ts";

/**
 * Libraries compiled for measuring, libraries compiled for calls, the rates of this machine, and what a worker of a fleet measures: others compiled
 * some of that, and nothing else runs it.
 */
export const CACHES = ["runtime", "kernels", "calibrations", "fleet"] as const;

/** Reads XDG_CACHE_HOME and HOME. */
export function cacheFolder(what: (typeof CACHES)[number]): string {
  return join(process.env["XDG_CACHE_HOME"] || join(homedir(), ".cache"), "automap", what);
}

interface CacheLimits {
  /** The most bytes of all entries together. */
  readonly bytes: number;
  /** Entries that have not been used for this many days are deleted. */
  readonly days: number;
}

const DEFAULT_LIMITS: CacheLimits = { bytes: 4 * 2 ** 30, days: 30 };

/**
 * The limits of one folder. `AUTOMAP_CACHE_LIMIT=500M` in the environment sets the size.
 * @throws UsageError if it is not a size
 */
export function cacheLimits(): CacheLimits {
  const text = process.env["AUTOMAP_CACHE_LIMIT"] ?? "";
  if (text === "") return DEFAULT_LIMITS;
  const [, number, unit = ""] = /^(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?$/i.exec(text) ?? [];
  if (number === undefined)
    throw new UsageError(
      `AUTOMAP_CACHE_LIMIT must be a size, got "${text}"`,
      "for example 500M or 2G; 0 keeps nothing that is not in use",
    );
  return { ...DEFAULT_LIMITS, bytes: Number(number) * 1024 ** " KMGT".indexOf(unit.toUpperCase() || " ") };
}

export interface CacheEntry {
  readonly names: readonly string[];
  readonly bytes: number;
  /** Milliseconds since 1970. */
  readonly usedAt: number;
  /** Whether a running process uses it: its own files, and every entry used since the oldest such process began. */
  readonly inUse: boolean;
  /** Whether a killed process left it behind. */
  readonly isLeft: boolean;
}

/**
 * Files that belong to a running process have its number in their names: a runner's, a reference's, a compilation's.
 */
const OWNED = /^(?:runner-|reference-|[0-9a-f]{32}\.)(\d+)[-.]/;
/** Compiled or measured files, or the folder of a library. The second hash is the version of the emulation headers. */
const COMPILED = /^([0-9a-f]{32})(?:-[0-9a-f]{16})?(?:\.(?:so|o|out|cpp|cu|log|h|h\.gch|db|[A-Za-z0-9]{6}))?$/;
/** The longest time between an entry being found and being loaded. */
const GRACE_MS = 60_000;

/** automap's entries in a folder, the last used first. Other files are ignored. */
export async function examineCache(folder: string): Promise<readonly CacheEntry[]> {
  const found = await readdir(folder, { withFileTypes: true }).catch(() => []);
  const ours = found.filter(({ name }) => OWNED.test(name) || COMPILED.test(name));
  const sized = await Promise.all(ours.map(async (entry) => ({ entry, ...(await sizeOf(folder, entry)) })));
  const living = sized.filter(({ entry }) => isAlive(ownerOf(entry.name)));
  const since = Math.min(Date.now() - GRACE_MS, ...living.map(({ madeAt }) => madeAt));
  const groups = groupsOf(sized, ({ entry: { name } }) => COMPILED.exec(name)?.[1] ?? name);
  const entries = [...groups.values()].map((files): CacheEntry => {
    const owner = ownerOf(files[0]?.entry.name ?? "");
    const usedAt = Math.max(...files.map((file) => file.usedAt));
    return {
      names: files.map(({ entry }) => entry.name),
      bytes: sumOf(files, (file) => file.bytes),
      usedAt,
      inUse: owner === undefined ? usedAt >= since : isAlive(owner),
      isLeft: owner !== undefined && !isAlive(owner),
    };
  });
  return entries.sort((a, b) => b.usedAt - a.usedAt);
}

/**
 * Deletes what killed runners left, entries that are too old, and then the oldest until the rest fits. Entries in use
 * stay.
 * @returns the deleted entries
 */
export async function trimCache(folder: string, { bytes, days }: CacheLimits): Promise<readonly CacheEntry[]> {
  const oldest = Date.now() - days * 24 * 3600 * 1000;
  let kept = 0;
  const gone: CacheEntry[] = [];
  for (const entry of await examineCache(folder)) {
    const stays = entry.inUse || (!entry.isLeft && entry.usedAt >= oldest && kept + entry.bytes <= bytes);
    if (stays) kept += entry.bytes;
    else gone.push(entry);
  }
  for (const name of gone.flatMap(({ names }) => names)) await rm(join(folder, name), { recursive: true, force: true });
  return gone;
}

/** Whether a file is there and holds something. A compiler, or a power cut, may leave an empty one. */
export async function isWritten(path: string): Promise<boolean> {
  const found = await stat(path).catch(() => undefined);
  return found !== undefined && found.size > 0;
}

/** Records that an entry was used. */
export async function touch(path: string): Promise<void> {
  const now = new Date();
  // The file may belong to another user, or may just have been deleted. Neither matters.
  await utimes(path, now, now).catch(() => undefined);
}

async function sizeOf(
  folder: string,
  entry: Dirent,
): Promise<{ readonly bytes: number; readonly usedAt: number; readonly madeAt: number }> {
  const path = join(folder, entry.name);
  const about = await stat(path).catch(() => undefined);
  const inside = entry.isDirectory() ? await readdir(path, { withFileTypes: true }).catch(() => []) : [];
  const parts = await Promise.all(inside.map((part) => sizeOf(path, part)));
  const bytes = parts.reduce((sum, part) => sum + part.bytes, about?.isDirectory() ? 0 : (about?.size ?? 0));
  return { bytes, usedAt: about?.mtimeMs ?? 0, madeAt: about?.birthtimeMs || (about?.ctimeMs ?? 0) };
}

function ownerOf(name: string): number | undefined {
  const owner = OWNED.exec(name)?.[1];
  return owner === undefined ? undefined : Number(owner);
}

/** Whether a process is running. */
export function isAlive(pid: number | undefined): boolean {
  if (pid === undefined) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // The process exists but belongs to another user.
    return error instanceof Error && "code" in error && error.code === "EPERM";
  }
}
