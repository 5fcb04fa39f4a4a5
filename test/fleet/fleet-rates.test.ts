/** @file The rates of a machine elsewhere: measured by a worker of a fleet, once or on request, and kept for its environment. */

import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { EXIT } from "../../abstraction/exit-codes.ts";
import { openDatabase } from "../../db/index.ts";
import type { WorkerMachine } from "../../fleet/worker.ts";
import { gpuEnvironment } from "../../session/calibrate/environment.ts";
import { storedGpuCalibration } from "../../session/calibrate/gpu-rates.ts";
import { keepCalibration } from "../../session/calibrate/shared-calibration.ts";
import { nvidiaTarget } from "../../targets/index.ts";
import { commandLine } from "../support/command-line.ts";
import { fakeGpuRunner } from "../support/fake-runner.ts";
import { fakeMachine, fleetOn, type TestFleet } from "../support/fleet.ts";
import { BY_TEXT } from "../support/fleet-search.ts";
import { GPU_CALIBRATION } from "../support/gpu-calibration.ts";
import { compilerHere } from "../support/here.ts";
import { scratchFolder } from "../support/scratch.ts";
import { hasRedis, redisHere } from "../support/servers.ts";

const compiler = await compilerHere();

describe.skipIf(!hasRedis)("rates of a fleet's workers", async () => {
  const folder = scratchFolder();
  const redis = await redisHere();
  beforeEach(() => void vi.stubEnv("XDG_CACHE_HOME", join(folder, "cache")));
  afterEach(() => vi.unstubAllEnvs());

  const machine = nvidiaTarget("h100");
  /** A GPU of this clock, whose probes all take the same. */
  function gpu(clock: number): { readonly worker: WorkerMachine; readonly probed: () => number } {
    const runner = fakeGpuRunner({ onMeasure: () => undefined });
    const device = { ...runner.device, limits: `${clock} MHz` };
    let probed = 0;
    const probe = () => {
      probed++;
      return Promise.resolve(Array.from({ length: 1000 }, () => [[1e-3, clock * 1e3] as const]));
    };
    const openRunner = () => Promise.resolve({ ...runner, device, probe });
    const environment = gpuEnvironment(device, machine);
    return { worker: { machine, environment, compiler: undefined, openRunner }, probed: () => probed };
  }
  const words = (fleet: TestFleet, db: string): string[] => [
    "calibrate",
    "--db",
    join(folder, db),
    "--fleet",
    redis.url,
    "--fleet-key",
    join(fleet.folder, "tuner.key"),
  ];

  it("are measured on its GPU, once, and again on request", async () => {
    const fleet = fleetOn(redis, folder);
    const { worker, probed } = gpu(1500);
    await fleet.worker("gpu1", worker);
    const { code, out, err } = await commandLine(words(fleet, "gpu.db"));
    expect({ code, err }).toEqual({
      code: EXIT.ok,
      err: expect.stringMatching(/a worker tells the rates of its machine/),
    });
    expect(out).toMatch(/^NVIDIA H100 80GB HBM3 \(1500 MHz\) {3}measured now\n/);
    expect(out).toMatch(/under load, GHz +1\.500/);
    const again = JSON.parse((await commandLine([...words(fleet, "gpu.db"), "--json"])).out);
    expect(again).toMatchObject({ measuredNow: false, environment: { target: "h100" } });
    expect(probed()).toBe(1);
    expect((await commandLine([...words(fleet, "gpu.db"), "--force"])).out).toMatch(/measured now/);
    expect(probed()).toBe(2);
    // Another database has what the worker keeps.
    expect((await commandLine(words(fleet, "other.db"))).out).toMatch(/measured before/);
    expect(probed()).toBe(2);
  });

  it("are a search's where a worker knows them, and those of the table where none does", async () => {
    const fleet = fleetOn(redis, folder);
    const { worker, probed } = gpu(1600);
    await fleet.worker("gpu1", worker);
    const place = await fleet.place();
    const db = openDatabase(join(folder, "search.db"));
    const say = (): void => undefined;
    expect(await place.calibration(db, say)).toBeUndefined();
    expect(storedGpuCalibration(db, worker.environment)).toBeUndefined();
    expect(place.machineIn(db)).toEqual(machine);
    await keepCalibration(worker.environment, { calibration: GPU_CALIBRATION, at: 1 });
    // Searches of one place ask once.
    await place.calibration(db, say);
    expect(storedGpuCalibration(db, worker.environment)).toBeUndefined();
    const later = await fleet.place();
    expect(await later.calibration(db, say)).toBeUndefined();
    expect(storedGpuCalibration(db, worker.environment)?.calibration).toEqual(GPU_CALIBRATION);
    expect(later.machineIn(db).loadedClockHz?.source).toMatch(/^calibrated on/);
    expect(probed()).toBe(0);
    db.close();
  });

  it("are those of its processor, which differ from the ones here", async () => {
    const fleet = fleetOn(redis, folder);
    const here = fakeMachine(compiler, BY_TEXT);
    const worker = { ...here, environment: { ...here.environment, cpu: "Processor elsewhere" } };
    const figure = (median: number) => ({ median, spread: 0 });
    const calibration = { machine: "elsewhere", clockHz: figure(2e9), memory: {}, intrinsics: {}, scalar: {} };
    await keepCalibration(worker.environment, { calibration, at: 1 });
    await fleet.worker("node1", worker);
    const { code, out } = await commandLine([...words(fleet, "cpu.db"), "--json"]);
    expect(code).toBe(EXIT.ok);
    expect(JSON.parse(out)).toMatchObject({
      measuredNow: false,
      environment: { cpu: "Processor elsewhere" },
      calibration,
      figures: { clockHz: { value: 2e9, source: expect.stringMatching(/^calibrated/) } },
    });
  });
});
