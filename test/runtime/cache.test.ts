/** @file The cache of compiled kernels drops the oldest first, never one in use, and no file that is not its own. */

import { mkdirSync, mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeEach, describe, expect, it, vi } from "vitest";
import { cacheLimits, examineCache, isWritten, trimCache } from "../../runtime/cache.ts";
import { commandLine } from "../support/command-line.ts";

const home = mkdtempSync(join(tmpdir(), "automap-cache-"));
afterAll(() => {
  vi.unstubAllEnvs();
  rmSync(home, { recursive: true, force: true });
});
const folder = join(home, "automap", "runtime");
const HOUR = 3600;
const [OLD, OLDER, NEW] = ["0", "1", "2"].map((digit) => digit.repeat(32)) as [string, string, string]; // three given

/** A file of so many bytes that was used so long ago. */
function write(name: string, bytes: number, secondsAgo: number): void {
  writeFileSync(join(folder, name), "x".repeat(bytes));
  const at = Date.now() / 1000 - secondsAgo;
  utimesSync(join(folder, name), at, at);
}

beforeEach(() => {
  vi.stubEnv("XDG_CACHE_HOME", home);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  write(`${OLD}.so`, 300, 24 * HOUR);
  write(`${OLD}.cpp`, 100, 24 * HOUR);
  write(`${OLDER}-0123456789abcdef.so`, 500, 48 * HOUR);
  write(`${NEW}.cu`, 200, 2 * HOUR);
  write("notes.txt", 900, 99 * HOUR);
});

describe("the cache", () => {
  it("lists entries by hash, the last used first", async () => {
    const entries = await examineCache(folder);
    expect(entries.map(({ names, bytes }) => [names.length, bytes])).toEqual([
      [1, 200],
      [2, 400],
      [1, 500],
    ]);
    expect(entries.some(({ inUse }) => inUse)).toBe(false);
  });

  it("takes an empty file, such as a power cut leaves, for none", async () => {
    write(`${NEW}.so`, 0, HOUR);
    expect(await isWritten(join(folder, `${NEW}.so`))).toBe(false);
    expect(await isWritten(join(folder, `${OLD}.so`))).toBe(true);
  });

  it("drops the oldest until it fits, and entries unused for too long", async () => {
    await trimCache(folder, { bytes: 650, days: 30 });
    expect(readdirSync(folder).sort()).toEqual([`${OLD}.cpp`, `${OLD}.so`, `${NEW}.cu`, "notes.txt"]);
    await trimCache(folder, { bytes: 650, days: 0.5 });
    expect(readdirSync(folder).sort()).toEqual([`${NEW}.cu`, "notes.txt"]);
  });

  it("keeps entries used just now, and the folders of running processes", async () => {
    write(`${NEW}.so`, 200, 1);
    mkdirSync(join(folder, `runner-${process.pid}-a`));
    mkdirSync(join(folder, "runner-999999999-b"));
    const later = Date.now() / 1000 + HOUR;
    utimesSync(join(folder, `${OLD}.so`), later, later);
    const gone = await trimCache(folder, { bytes: 0, days: 0 });
    expect(gone.flatMap(({ names }) => names).sort()).toEqual([`${OLDER}-0123456789abcdef.so`, "runner-999999999-b"]);
    expect(readdirSync(folder)).toContain(`runner-${process.pid}-a`);
  });

  it("has the size limit that the environment gives", () => {
    const given = (text: string): number => {
      vi.stubEnv("AUTOMAP_CACHE_LIMIT", text);
      return cacheLimits().bytes;
    };
    expect([given("500M"), given("1.5g"), given("2 GiB"), given("0")]).toEqual([
      500 * 2 ** 20,
      1.5 * 2 ** 30,
      2 ** 31,
      0,
    ]);
    expect(() => given("much")).toThrow('AUTOMAP_CACHE_LIMIT must be a size, got "much"');
    expect(given("")).toBe(4 * 2 ** 30);
  });
});

describe("automap cache", () => {
  it("shows the entries and clears them", async () => {
    const { out } = await commandLine("cache show");
    expect(out).toMatch(/^runtime {7}3 {8}1\.1 KiB {2}0 /m);
    expect(out).toContain("at most 4.0 GiB and 30 days in each folder");
    expect(JSON.parse((await commandLine("cache show --json")).out)).toMatchObject({
      folders: [
        { what: "runtime", folder, count: 3, bytes: 1100, inUse: 0 },
        { what: "kernels", count: 0 },
        { what: "calibrations", count: 0 },
        { what: "fleet", count: 0 },
      ],
    });
    expect(await commandLine("cache clear")).toEqual({ code: 0, out: "3 entries deleted, 1.1 KiB\n", err: "" });
    expect(readdirSync(folder)).toEqual(["notes.txt"]);
  });
});
