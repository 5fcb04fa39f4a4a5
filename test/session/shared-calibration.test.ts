/** @file Rates of a machine are measured once for all databases, and copied with the time of their measurement. */

import { mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { calibrationOf, openDatabase } from "../../db/index.ts";
import { examineCache, trimCache } from "../../runtime/cache.ts";
import { takeOverRates } from "../../session/calibrate/gpu-rates.ts";
import { keepCalibration, keptCalibration, sharedCalibration } from "../../session/calibrate/shared-calibration.ts";
import { MACHINE } from "../support/database.ts";
import { GPU_CALIBRATION } from "../support/gpu-calibration.ts";
import { scratchFolder } from "../support/scratch.ts";

const home = scratchFolder();
const folder = join(home, "automap", "calibrations");
beforeEach(() => {
  vi.stubEnv("XDG_CACHE_HOME", home);
  rmSync(folder, { recursive: true, force: true });
});
afterEach(() => vi.unstubAllEnvs());

const read = (data: unknown): { rate: number } | undefined =>
  typeof data === "object" && data !== null && "rate" in data ? { rate: Number(data.rate) } : undefined;
const said: string[] = [];
const asking = (measure: () => Promise<{ rate: number }>, anew = false) =>
  sharedCalibration(MACHINE, { read, measure, anew, announce: (text) => void said.push(text) });
const never = (): Promise<never> => Promise.reject(new Error("measured again"));

describe("a calibration that databases share", () => {
  /** A measurement that is under way, and how it is ended. */
  async function measuring() {
    let give: ((rates: { rate: number }) => void) | undefined;
    const slow = asking(() => new Promise((resolve) => (give = resolve)));
    await vi.waitFor(() => expect(give).toBeDefined());
    return { slow, give: (rates: { rate: number }): void => give?.(rates) };
  }

  it("is measured once, and keeps the time of its measurement", async () => {
    const first = await asking(() => Promise.resolve({ rate: 3 }));
    expect(await asking(never)).toEqual(first);
    expect(first).toEqual({ calibration: { rate: 3 }, at: expect.any(Number) });
    // Nothing beside the one file: no log, no draft.
    expect(readdirSync(folder)).toEqual([expect.stringMatching(/^[0-9a-f]{32}\.db$/)]);
  });

  it("belongs to one environment, and is measured again on request", async () => {
    await asking(() => Promise.resolve({ rate: 3 }));
    expect(keptCalibration({ ...MACHINE, cores: 4 }, read)).toBeUndefined();
    expect(await asking(() => Promise.resolve({ rate: 4 }), true)).toMatchObject({ calibration: { rate: 4 } });
    expect(await asking(never)).toMatchObject({ calibration: { rate: 4 } });
  });

  it("is shared with callers that ask while it is measured", async () => {
    const { slow, give } = await measuring();
    const other = asking(never);
    await vi.waitFor(() => expect(said).toContain(`waiting for process ${process.pid}, which calibrates this machine`));
    give({ rate: 5 });
    expect(await other).toEqual(await slow);
  });

  it("is waited for until the caller no longer wants it", async () => {
    const { slow, give } = await measuring();
    const leaving = new AbortController();
    const options = { read, measure: never, announce: () => leaving.abort(), signal: leaving.signal };
    await expect(sharedCalibration(MACHINE, options)).rejects.toThrow("abort");
    give({ rate: 5 });
    await slow;
  });

  it("that is damaged is measured again, as is one that cannot be kept", async () => {
    await asking(() => Promise.resolve({ rate: 3 }));
    const [file = ""] = readdirSync(folder);
    writeFileSync(join(folder, file), "no database");
    expect(await asking(() => Promise.resolve({ rate: 6 }))).toMatchObject({ calibration: { rate: 6 } });
    expect(await asking(never)).toMatchObject({ calibration: { rate: 6 } });
    rmSync(folder, { recursive: true });
    writeFileSync(folder, "in the way");
    expect(await asking(() => Promise.resolve({ rate: 7 }))).toMatchObject({ calibration: { rate: 7 } });
    rmSync(folder);
  });

  it("for a GPU is copied once, into a database that has none", async () => {
    await keepCalibration(MACHINE, { calibration: GPU_CALIBRATION, at: 5 });
    mkdirSync(home, { recursive: true });
    const db = openDatabase(join(home, "t.db"));
    takeOverRates(db, MACHINE);
    expect(calibrationOf(db, MACHINE)).toMatchObject({ at: 5, provenance: "here", data: GPU_CALIBRATION });
    await keepCalibration(MACHINE, { calibration: GPU_CALIBRATION, at: 9 });
    takeOverRates(db, MACHINE);
    expect(calibrationOf(db, MACHINE)).toMatchObject({ at: 5 });
    db.close();
  });

  it("is listed and cleared with the cache", async () => {
    await keepCalibration(MACHINE, { calibration: { rate: 1 }, at: 5 });
    expect(await examineCache(folder)).toHaveLength(1);
    expect(await trimCache(folder, { bytes: 2 ** 30, days: 30 })).toEqual([]);
    vi.setSystemTime(Date.now() + 31 * 24 * 3600 * 1000);
    await trimCache(folder, { bytes: 2 ** 30, days: 30 });
    vi.useRealTimers();
    expect(readdirSync(folder)).toEqual([]);
  });
});
