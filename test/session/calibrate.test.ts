/** @file `automap calibrate`: it shows stored rates with their sources and does not measure them again. */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { openDatabase, recordCalibration } from "../../db/index.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { type Compiler, findCompiler } from "../../runtime/compiler.ts";
import { examineCalibration } from "../../session/calibrate/calibrate.ts";
import { environmentOf } from "../../session/calibrate/environment.ts";
import { readCalibrationData, storedCalibration } from "../../session/recorded.ts";
import { commandLine } from "../support/command-line.ts";
import { MACHINE, workshop } from "../support/database.ts";
import { compilerHere } from "../support/here.ts";

const shop = workshop();
afterAll(() => shop.remove());

const figure = (median: number) => ({ median, spread: 0.01 });
const memory = (footprintBytes: number, rate: number) => ({
  footprintBytes,
  readBytesPerCycle: figure(rate),
  writeBytesPerCycle: figure(rate / 2),
  copyBytesPerCycle: figure(rate / 4),
});
const [TDPBUSD] = intrinsicsNamed("amx.tdpbusd");
const CALIBRATION = {
  machine: "Testium 9000",
  clockHz: figure(2e9),
  loadsPerCycle: figure(2),
  memory: { dram: memory(1 << 28, 4), l1: memory(1 << 14, 100), l2: memory(1 << 20, 50) },
  intrinsics: {
    "amx.tdpbusd": {
      issueCycles: figure(16),
      latencyCycles: figure(52),
      loadCycles: { a: figure(8), b: figure(9) },
      storeCycles: figure(16),
    },
  },
  scalar: { strided: figure(1.5) },
};

let compiler: Compiler | undefined;
beforeAll(async () => {
  const found = await findCompiler();
  compiler = found.status === "found" ? found : undefined;
});

describe("automap calibrate", () => {
  it("shows the stored rates of this machine, innermost level first, and measures nothing", async (context) => {
    if (!compiler) return context.skip("no C++ compiler");
    const file = shop.path("remembered.db");
    const db = openDatabase(file);
    recordCalibration(db, { environment: environmentOf({ compiler }), data: CALIBRATION, at: 1 });
    db.close();

    const { code, out, err } = await commandLine(["calibrate", "--db", file]);
    expect({ code, err }).toEqual({ code: 0, err: "" });
    expect(out).toContain("measured before; --force measures again");
    const levels = [...out.matchAll(/^ {2}(l1|l2|dram) .*read +([\d.]+) +([\d.]+)/gm)].map((m) => m.slice(1));
    // Bytes a cycle, and at 2 GHz twice as many GB/s.
    expect(levels).toEqual([
      ["l1", "100.0", "200.0"],
      ["l2", "50.0", "100.0"],
      ["dram", "4.0", "8.0"],
    ]);
    // 16 x 16 x 64 multiplies and adds in 16 cycles of 0.5 ns.
    expect(TDPBUSD?.computation.axes.map((a) => a.extent)).toEqual([16, 16, 64]);
    expect(out).toMatch(/amx\.tdpbusd +16\.00 +52\.00 +a 8\.00 {2}b 9\.00 +16\.00 +4\.10 T operations\/s/);
    expect(out).toMatch(/window +448 +AMD Zen 5 Optimization Guide/);

    const { out: json } = await commandLine(["calibrate", "--db", file, "--json"]);
    const schema = z.fromJSONSchema(JSON.parse((await commandLine("calibrate --json-schema")).out));
    expect(() => schema.parse(JSON.parse(json))).not.toThrow();
    expect(JSON.parse(json)).toMatchObject({
      schemaVersion: 1,
      measuredNow: false,
      calibration: CALIBRATION,
      figures: {
        clockHz: { value: 2e9, source: "calibrated on Testium 9000" },
        storesPerCycle: { source: expect.stringMatching(/^assumed/) },
      },
    });
  });

  it("refuses a folder that is not there", async () => {
    expect((await commandLine(["calibrate", "--db", "/no/such/folder/x.db"])).code).toBe(6);
  });
});

describe("a stored calibration", () => {
  it("is the newest of its environment up to the time asked for, and is ignored when damaged", () => {
    const db = openDatabase(":memory:");
    const record = (at: number, data: unknown, environment = MACHINE): string =>
      recordCalibration(db, { environment, data, at });
    record(10, CALIBRATION);
    record(20, { ...CALIBRATION, clockHz: figure(3e9) });
    record(15, CALIBRATION, { ...MACHINE, cpu: "another" });
    const row = db.sqlite
      .prepare<unknown[], { id: string }>("SELECT id FROM environments WHERE cpu = ?")
      .get(MACHINE.cpu);
    const environment = { ...MACHINE, id: row?.id ?? "" };
    expect(storedCalibration(db, environment)).toMatchObject({ at: 20 });
    expect(storedCalibration(db, environment, { until: 19 })).toMatchObject({ at: 10, calibration: CALIBRATION });
    expect(storedCalibration(db, environment, { until: 9 })).toBeUndefined();
    record(30, { machine: 7 });
    expect(storedCalibration(db, environment)).toBeUndefined();
    expect(readCalibrationData("nonsense")).toBeUndefined();
    db.close();
  });
});

it("the doctor says of which day the calibration of this machine is", async () => {
  const file = shop.path("dated.db");
  const db = openDatabase(file);
  const environment = environmentOf({ compiler: await compilerHere() });
  recordCalibration(db, { environment, data: {}, at: Date.UTC(2026, 0, 2) });
  db.close();
  const detail = "of 2026-01-02, no kernel contradicts it";
  expect(await examineCalibration(file)).toMatchObject([{ status: "ok", detail }]);
});
