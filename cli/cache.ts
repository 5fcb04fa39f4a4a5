/**
 * @file `automap cache show|clear`: shows the size and the limit of the cache of compiled files, and empties it.
 *
 *     automap cache show
 *     automap cache clear
 */

import { z } from "zod";
import { sortedBy, sumOf } from "../abstraction/collections.ts";
import { counted } from "../report/text.ts";
import { CACHES, type CacheEntry, cacheFolder, cacheLimits, examineCache, trimCache } from "../runtime/cache.ts";
import type { Cli } from "./command.ts";
import { flag } from "./options.ts";
import { documentOf, EXIT, type ExitCode, integer, number, print, printJson, text } from "./output.ts";
import { printFitted } from "./terminal.ts";

const options = z.object({ json: flag });
type Options = z.infer<typeof options>;

const total = {
  count: integer,
  bytes: integer,
  inUse: integer.describe("entries that a running automap holds"),
  lastUsed: text.nullable().describe("ISO 8601; null of nothing"),
};
const showSchema = documentOf({
  limit: z.strictObject({ bytes: number, days: number }).describe("of each folder"),
  folders: z.array(z.strictObject({ what: text, folder: text, ...total })),
});
const clearSchema = documentOf({ deleted: z.strictObject(total), kept: z.strictObject(total) });

export function register(cache: Cli): void {
  cache.examples(["automap cache show", "automap cache clear"]);
  cache
    .command("show")
    .json(showSchema)
    .summary("what is kept, where, and how much there may be")
    .examples(
      ["automap cache show"],
      "Kernels, expected outputs and headers that were compiled are kept under their hash and found again, and so are the rates",
      "of this machine, which every new database takes over. Each folder holds 4 GiB at most, or what AUTOMAP_CACHE_LIMIT",
      "says, for example 500M: the oldest goes first, what is in use stays.",
      "XDG_CACHE_HOME names another place.",
    )
    .runs(options, show);
  cache
    .command("clear")
    .json(clearSchema)
    .summary("delete what is kept; what is in use stays, and databases are not touched")
    .examples(["automap cache clear"])
    .runs(options, clear);
}

async function show({ json }: Options): Promise<ExitCode> {
  const limits = cacheLimits();
  const held = await Promise.all(
    CACHES.map(async (what) => ({ what, folder: cacheFolder(what), entries: await examineCache(cacheFolder(what)) })),
  );
  if (json)
    printJson(showSchema, {
      limit: limits,
      folders: held.map(({ what, folder, entries }) => ({ what, folder, ...totalOf(entries) })),
    });
  else {
    const rows = held.map(({ what, folder, entries }) => {
      const { count, bytes, inUse, lastUsed } = totalOf(entries);
      return [what, String(count), sizeText(bytes), String(inUse), lastUsed?.slice(0, 10) ?? "", folder];
    });
    const head = ["what", "entries", "size", "in use", "last used", "folder"];
    printFitted([head, ...rows], ["last used", "in use", "entries"]);
    print(`\nat most ${sizeText(limits.bytes)} and ${limits.days} days in each folder`);
  }
  return EXIT.ok;
}

async function clear({ json }: Options): Promise<ExitCode> {
  const gone = (await Promise.all(CACHES.map((what) => trimCache(cacheFolder(what), { bytes: 0, days: 0 })))).flat();
  const left = (await Promise.all(CACHES.map((what) => examineCache(cacheFolder(what))))).flat();
  const deleted = totalOf(gone);
  const kept = totalOf(left);
  if (json) printJson(clearSchema, { deleted, kept });
  else
    print(
      `${counted(deleted.count, "entry", "entries")} deleted, ${sizeText(deleted.bytes)}${kept.count === 0 ? "" : `; ${kept.count} in use stay`}`,
    );
  return EXIT.ok;
}

function totalOf(entries: readonly CacheEntry[]) {
  const [last] = sortedBy(
    entries.map(({ usedAt }) => usedAt),
    (a) => -a,
  );
  return {
    count: entries.length,
    bytes: sumOf(entries, (entry) => entry.bytes),
    inUse: entries.filter((entry) => entry.inUse).length,
    lastUsed: last === undefined ? null : new Date(last).toISOString(),
  };
}

function sizeText(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const step = bytes < 1024 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  return `${(bytes / 1024 ** step).toFixed(step === 0 ? 0 : 1)} ${units[step]}`;
}
