/**
 * @file A device's clock while kernels are timed, and the measurements kept when a fault of the machine ends a round.
 */

import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { EnvironmentError } from "../../abstraction/error.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { type Measurement, printClock } from "../../abstraction/trial.ts";
import { openWorkplace } from "../../session/tune/workplace.ts";
import { nvidiaTarget } from "../../targets/index.ts";
import { CutShort } from "../../tuner/search.ts";
import { emulatedRunner } from "../support/emulated-runner.ts";
import { sourceOf } from "../support/source.ts";
import { stated } from "../support/subjects.ts";

const { folder: workdir, runner } = emulatedRunner();
const TIMING = { cache: "flushed", budgetSeconds: 10, batches: [1, 6], batchSeconds: 0, stepSeconds: 10 } as const;

const twice = stated("y[i] = x[i] + x[i] --i 8 --dtype s32 --name twice");

/** A kernel by hand that fails with an error of the machine at its so many-th launch. */
function kernelOf(failsAt: number): Kernel {
  const source = `
__global__ void run(int* y, const int* x) { for (int i = 0; i < 8; i++) y[i] = (int)(2u * (unsigned)x[i]); }
extern "C" unsigned long automap_workspace_bytes(void) { return 64; }
extern "C" int automap_prepare(void*, const void* const*, cudaStream_t) { return 0; }
extern "C" int automap_launch(void*, void* const* tensors, cudaStream_t stream) {
  static int launches = 0;
  if (++launches == ${failsAt}) return 35; /* cudaErrorInsufficientDriver */
  int* y = (int*)tensors[0];
  const int* x = (const int*)tensors[1];
  void* arguments[] = {&y, &x};
  return cudaLaunchKernel(run, dim3(1), dim3(1), arguments, 0, stream);
}`;
  const argument = { dtype: "s32", elements: 8 } as const;
  return {
    language: "cuda",
    source: sourceOf(source),
    features: [],
    promises: undefined,
    arguments: [
      { ...argument, tensor: "y", role: "output" },
      { ...argument, tensor: "x", role: "input" },
    ],
  };
}

const before = process.env["LD_LIBRARY_PATH"];
beforeAll(() => {
  const source = join(workdir, "nvml.c");
  const library = join(workdir, "libnvidia-ml.so.1");
  writeFileSync(
    source,
    `static int asked;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) { *device = &asked; return uuid[0] == 0; }
int nvmlDeviceGetClockInfo(void* device, int type, unsigned* clock) { *clock = type == 1 ? 1410 : 1; return device != &asked; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* reasons) { *reasons = 0x25; return device != &asked; }
`,
  );
  execFileSync("gcc", ["-shared", "-fPIC", source, "-o", library]);
});
afterAll(() => {
  if (before === undefined) delete process.env["LD_LIBRARY_PATH"];
  else process.env["LD_LIBRARY_PATH"] = before;
});

describe("the clock of a device", () => {
  it("is read from the driver for every timed kernel, with the reasons of throttling", async () => {
    process.env["LD_LIBRARY_PATH"] = workdir;
    const reference = await runner().reference(twice, 1);
    const [first, second] = await runner().measureTogether([kernelOf(0), kernelOf(-1)], reference, TIMING);
    for (const measured of [first, second])
      expect(measured).toMatchObject({
        status: "ok",
        clock: { hertz: 1.41e9, throttled: ["power-limit", "temperature"] },
      });
    if (first?.clock)
      expect(printClock(first.clock)).toBe("1410 MHz while it was timed, throttled: power-limit, temperature");
    delete process.env["LD_LIBRARY_PATH"];
  });

  it("is not known without the driver's library", async () => {
    // Of another problem, which is measured by another process.
    const reference = await runner().reference(twice, 2);
    const [measured] = await runner().measureTogether([kernelOf(0)], reference, TIMING);
    expect(measured).toMatchObject({ status: "ok" });
    expect(measured?.clock).toBeUndefined();
  });
});

describe("a device that is faster after a pause", () => {
  // Two sets, each twice, and two to warm up; then a batch that does not count, and six that do.
  const settling = { ...TIMING, settleSeconds: 1e-9 } as const;

  it("runs until it settles before a batch counts", async () => {
    const reference = await runner().reference(twice, 3);
    const [measured] = await runner().measureTogether([kernelOf(14)], reference, settling);
    expect(measured?.status === "ok" && measured.samples.length).toBe(6);
    await expect(runner().measureTogether([kernelOf(13)], reference, settling)).rejects.toBeInstanceOf(
      EnvironmentError,
    );
  });
});

describe("a machine that fails while several kernels are timed", () => {
  it("keeps the measurements made before", async () => {
    const reference = await runner().reference(twice, 1);
    const heard: [number, Measurement["status"]][] = [];
    // Two sets, each twice, two to warm up: the ninth launch is a batch.
    const measuring = runner().measureTogether([kernelOf(0), kernelOf(9)], reference, {
      ...TIMING,
      onMeasured: (at, { status }) => heard.push([at, status]),
    });
    await expect(measuring).rejects.toBeInstanceOf(EnvironmentError);
    expect(heard).toContainEqual([0, "ok"]);
  });

  it("is reported to a search after those measurements", async () => {
    const measured: Measurement = { status: "crashed", log: "" };
    const fault = new EnvironmentError({ what: "lost", why: "", remedy: "" });
    const place = await openWorkplace(nvidiaTarget("h100"), {
      threads: 1,
      runner: {
        ...runner(),
        device: runner().device,
        reference: () => Promise.resolve({ computation: twice, seed: 1, file: "", sets: [], fixed: {}, bounds: "" }),
        prepare: () => Promise.resolve(),
        measureTogether: (_, __, timing) => {
          timing?.onMeasured?.(0, measured);
          return Promise.reject(fault);
        },
      },
    });
    if (place.status !== "open") throw new Error(place.what);
    const bench = await place.bench(twice, { announce: () => undefined });
    const error = await Promise.resolve(bench.measure([kernelOf(0), kernelOf(1)]) as Promise<unknown>).catch(
      (e: unknown) => e,
    ); // of a GPU
    expect(error).toBeInstanceOf(CutShort);
    expect(error).toMatchObject({ measured: [measured], cause: fault });
  });
});
