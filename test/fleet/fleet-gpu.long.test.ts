/** @file A search for a GPU in a fleet: the worker has the device, the tuner has none. */

import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { openDatabase, queryTrials } from "../../db/index.ts";
import type { WorkerMachine } from "../../fleet/worker.ts";
import { gpuEnvironment } from "../../session/calibrate/environment.ts";
import { replayRun } from "../../session/tune/replay.ts";
import { tuneComputation } from "../../session/tune/tune.ts";
import { nvidiaTarget } from "../../targets/index.ts";
import { fakeGpuRunner } from "../support/fake-runner.ts";
import { fleetOn } from "../support/fleet.ts";
import { scratchFolder } from "../support/scratch.ts";
import { hasRedis, redisHere } from "../support/servers.ts";
import { operation } from "../support/subjects.ts";

const matmul = operation("matmul m=128 n=128 k=128", "f16");

/** A GPU whose kernels take times that their texts decide. */
function fakeGpu(): { readonly machine: WorkerMachine; readonly asked: number[] } {
  const asked: number[] = [];
  const runner = fakeGpuRunner({
    onMeasure: (kernels) => {
      asked.push(kernels.length);
      for (const kernel of kernels)
        expect(kernel).toMatchObject({ language: "cuda", call: { prepares: expect.any(Boolean) } });
    },
  });
  const machine = nvidiaTarget("h100");
  const environment = gpuEnvironment(runner.device, machine);
  return { machine: { machine, environment, compiler: undefined, openRunner: () => Promise.resolve(runner) }, asked };
}

describe.skipIf(!hasRedis)("a search for a GPU in a fleet", async () => {
  const folder = scratchFolder();
  const redis = await redisHere();

  it("is measured by a worker that has one, kernel by kernel, and is repeated without", async () => {
    const fleet = fleetOn(redis, folder);
    const { machine, asked } = fakeGpu();
    await fleet.worker("gpu1", machine);
    const place = await fleet.place();
    expect(place.machine).toEqual(nvidiaTarget("h100"));
    const database = join(folder, "gpu.db");
    const outcome = await tuneComputation(
      { computation: matmul },
      {
        machine: place.machine,
        openPlace: () => Promise.resolve(place),
        database,
        trials: 10,
        seconds: 60,
        kinds: "mappings",
      },
    );
    expect(outcome).toMatchObject({ best: { kernel: { language: "cuda" } } });
    expect(asked.slice(0, 10)).toEqual(Array(10).fill(1));
    expect(asked).toHaveLength(11);
    const db = openDatabase(database);
    const [record, ...others] = queryTrials(db, { worker: "gpu1" });
    expect(others.length).toBeGreaterThan(9);
    expect(record?.environment).toMatchObject({ target: "h100", driver: "580.159.03 (CUDA 13.0)" });
    expect(await replayRun(db, record?.run ?? "")).toMatchObject({ divergence: undefined });
    db.close();
  });
});
