/**
 * @file A fake machine: a test gives the times of its kernels, so that a whole session runs in milliseconds.
 *
 *     const runner = fakeRunner(compiler, { alone: (kernel) => 10e-6, inTurns: (kernels) => kernels.map(() => 11e-6) });
 *     await tuneComputation({ computation }, { runner, database: withCalibration(path, compiler) });
 */

import { createHash } from "node:crypto";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import { openDatabase, recordCalibration } from "../../db/index.ts";
import type { Compiler } from "../../runtime/compiler.ts";
import type { Runner } from "../../runtime/measure.ts";
import { referenceFor } from "../../runtime/reference/verify.ts";
import type { CudaRunner } from "../../runtime/run/cuda.ts";
import { environmentOf } from "../../session/calibrate/environment.ts";

export interface FakeTimes {
  /** The time of a kernel alone. */
  readonly alone: (kernel: Kernel) => Measurement | Promise<Measurement>;
  /** The time of each kernel in turns with the others. */
  readonly inTurns: (kernels: readonly Kernel[]) => readonly Measurement[];
}

/** A measurement of so many seconds, good to a share. */
export function took(seconds: number, spread = 0.01): Extract<Measurement, { status: "ok" }> {
  const low = seconds * (1 - spread);
  const high = seconds * (1 + spread);
  return { status: "ok", samples: [low, seconds, high], median: seconds, interval: [low, high], instructions: 1 };
}

/** Between 0 and 1, the same for the same kernel. */
export function shareOf(kernel: Kernel): number {
  return createHash("sha256").update(kernel.source).digest().readUInt32BE() / 2 ** 32;
}

export function fakeRunner(compiler: Compiler, { alone, inTurns }: FakeTimes): Runner {
  const unused = (): never => {
    throw new Error("a fake runner was asked for what it has not");
  };
  return {
    conditions: {
      clock: "CLOCK_MONOTONIC_RAW",
      threads: 1,
      cache: "warm",
      compiler: { path: compiler.path, version: compiler.version },
    },
    compiler,
    workdir: "/nowhere",
    cores: {
      processors: 1,
      measuring: (_, work) => work([0]),
      working: (work) => work([0]),
      waited: () => 0,
    },
    compile: () =>
      Promise.resolve({ status: "compiled", file: "/nowhere/kernel.so", seconds: 0, cached: true, instructions: 1 }),
    reference: (computation, seed, options = {}) =>
      referenceFor(computation, seed, { compiler, workdir: "/nowhere", ...options }),
    measure: (kernel) => Promise.resolve(alone(kernel)),
    async *race(kernels) {
      for (const kernel of kernels) yield await Promise.resolve(alone(kernel));
    },
    compareKernels: (kernels) => Promise.resolve(inTurns(kernels)),
    baseline: unused,
    close: () => Promise.resolve(),
  };
}

/** A database that knows this machine already, so that nothing is calibrated. @returns its path */
export function withCalibration(path: string, compiler: Compiler): string {
  const figure = (median: number): object => ({ median, spread: 0 });
  const db = openDatabase(path);
  recordCalibration(db, {
    environment: environmentOf({ compiler }),
    data: { machine: "made up", clockHz: figure(2e9), memory: {}, intrinsics: {}, scalar: {} },
    at: 1,
  });
  db.close();
  return path;
}

/** Told what a fake GPU is asked for. */
export interface GpuListener {
  readonly onCompile?: (kernel: Kernel) => void;
  readonly onMeasure: (kernels: readonly Kernel[]) => void;
}

/** An H100 whose kernels take times that their texts decide. */
export function fakeGpuRunner({ onCompile, onMeasure }: GpuListener): CudaRunner {
  const unused = (): never => {
    throw new Error("a fake GPU was asked for what it has not");
  };
  return {
    device: {
      name: "NVIDIA H100 80GB HBM3",
      id: "GPU-fake",
      driver: "580.159.03",
      cuda: "13.0",
      capability: 90,
      limits: "1980 MHz, 700 W",
      memoryMiB: 81559,
      disassembler: "cuobjdump",
      nvcc: { path: "/usr/local/cuda/bin/nvcc", version: "V13.0.88" },
    },
    reference: (computation, seed) => Promise.resolve({ computation, seed, file: "", sets: [], fixed: {}, bounds: "" }),
    measureTogether: (given) => {
      const kernels = given as readonly Kernel[]; // no library is among them
      onMeasure(kernels);
      return Promise.resolve(kernels.map((kernel) => took((10 + shareOf(kernel)) * 1e-6)));
    },
    compile: (kernel) => {
      onCompile?.(kernel);
      return Promise.resolve({ status: "compiled", file: "", instructions: 1, seconds: 0 });
    },
    probe: unused,
    emulated: false,
    prepare: () => Promise.resolve(),
    requestOf: unused,
    harness: "",
    waited: () => 0,
    close: () => Promise.resolve(),
  };
}
