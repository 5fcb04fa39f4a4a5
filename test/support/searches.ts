/**
 * @file A database of searches as a report meets them: two runs of a convolution, a window on lanes, a grid of an H100 with its clock.
 */

import type { Candidate, GridCandidate } from "../../abstraction/candidate.ts";
import { printExpr } from "../../abstraction/expression.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import {
  beginRun,
  type Environment,
  openDatabase,
  recordCalibration,
  recordTrial,
  type Workload,
} from "../../db/index.ts";
import { intrinsicNamed } from "../../intrinsics/index.ts";
import { mappings } from "../../mapper/match/enumerate.ts";
import { plainSchedule } from "../../mapper/schedule/mapped.ts";
import type { TuneOutcome } from "../../session/tune/tune.ts";
import { CONV, MACHINE, measured, VNNI, workloadNamed } from "./database.ts";
import { LANES } from "./packages.ts";

export const BEGAN = Date.UTC(2026, 10, 21, 12);
export const H100: Environment = {
  ...MACHINE,
  target: "h100",
  cpu: "NVIDIA H100 80GB HBM3",
  cores: 132,
  isa: ["sm_90a", "wgmma"],
  driver: "580.159.04 (CUDA 13.0)",
};
const figure = (median: number) => ({ median, spread: 0 });
const GRID: GridCandidate = {
  kind: "grid",
  intrinsic: "wgmma.m64n64k16.f32.f16",
  matching: { m: ["m"], n: ["n"], k: ["k"] },
  operands: { a: "a[m,k]", b: "b[k,n]", c: "out[m,n]" },
  schedule: {
    tile: { m: 128, n: 256, k: 64 },
    warps: { m: 2, n: 1 },
    stage: 3,
    order: 1,
    swizzle: "spans",
    transfer: "engine",
    fragments: "inline",
    store: "direct",
  },
};

/** Ids of the two runs of the convolution. @param share of the usual times that kernels take */
export function recordSearches(file: string, share = 1): readonly [first: string, second: string] {
  const db = openDatabase(file);
  const timed = (microseconds: number): Measurement => measured(share * microseconds);
  const search = (
    workload: Workload,
    environment: Environment,
    seed: number,
    tried: readonly (readonly [Candidate, Measurement])[],
  ) => {
    const started = BEGAN + seed * 60_000;
    const run = beginRun(db, {
      workload,
      environment,
      seed,
      options: { strategy: "genetic", threads: 1, ...(environment === MACHINE && { target: CACHES }) },
      budget: {},
      started,
    });
    for (const [i, [candidate, measurement]] of tried.entries()) {
      const prediction = { seconds: (60 + 3 * i) * 1e-6, uncorrectedSeconds: (80 - i) * 1e-6, levels: [] };
      const trial = { candidate, prediction, measurement, at: started + 500 * (i + 1) };
      const intrinsic = intrinsicNamed(candidate.intrinsic);
      const conditions = { threads: 1, cache: "warm" as const, ...(measurement.clock && { clock: measurement.clock }) };
      recordTrial(db, { workload, environment, run, trial, conditions, ...(intrinsic && { intrinsic }) });
    }
    return run;
  };
  const crashed: Measurement = { status: "crashed", log: "segmentation fault" };
  const first = search(CONV, MACHINE, 1, [
    ...Array.from({ length: 12 }, (_, i) => [convolution(1 + i, i % 2), timed(70 - 2 * i + 9 * (i % 2))] as const),
    [convolution(40, 0), crashed],
  ]);
  // Two of the kernels of the first run, 2 % slower.
  const second = search(CONV, MACHINE, 2, [
    [convolution(1, 0), timed(70 * 1.02)],
    [convolution(3, 0), timed(66 * 1.02)],
    ...Array.from({ length: 8 }, (_, i) => [convolution(20 + i, i % 2), timed(90 - i)] as const),
  ]);
  search(
    workloadNamed("conv1d-single", { l: 20_000, r: 5 }),
    MACHINE,
    3,
    Array.from({ length: 10 }, (_, i) => {
      const schedule = { ...LANES.schedule, vectors: 1 + (i % 4), rows: 1 + (i >> 2) };
      return [{ ...LANES, schedule }, timed(900 + 40 * i)] as const;
    }),
  );
  search(
    workloadNamed("matmul", { m: 4096, n: 4096, k: 4096 }, "f16"),
    H100,
    4,
    Array.from({ length: 10 }, (_, i) => {
      const schedule = { ...GRID.schedule, stage: 2 + (i % 3), order: 1 + (i >> 1) };
      const clock = { hertz: 1.98e9 - i * 3e7, throttled: i > 6 ? (["power-limit"] as const) : [] };
      return [
        { ...GRID, schedule },
        { ...timed(250 + 10 * i), clock },
      ] as const;
    }),
  );
  recordCalibration(db, { environment: H100, data: GPU_CALIBRATION, at: BEGAN });
  recordCalibration(db, { environment: MACHINE, data: CPU_CALIBRATION, at: BEGAN });
  db.close();
  return [first, second];
}

export function convolution(block: number, which: number): Candidate {
  const mapping = VNNI && mappings(CONV.computation, VNNI).valid[which];
  if (!mapping) throw new Error("the table of instructions has changed");
  const { intrinsic, matching, binding } = mapping;
  const operands = Object.fromEntries(Object.entries(binding).map(([o, bound]) => [o, printExpr(bound)]));
  return {
    kind: "mapping",
    intrinsic: intrinsic.name,
    matching,
    operands,
    schedule: { ...plainSchedule(mapping), block: { q: block } },
  };
}

/** Rounded from what an H100 was measured to have, 2026-11. */
const GPU_CALIBRATION = {
  kind: "gpu",
  machine: "NVIDIA H100 80GB HBM3",
  clockHz: figure(1.775e9),
  loadedClockHz: figure(1.62e9),
  instructions: { "wgmma.m64n64k16.f32.f16": { issueCycles: figure(32), latencyCycles: figure(85.7) } },
  l2: { readBytesPerSecond: figure(8e12), writeBytesPerSecond: figure(4e12), latencyCycles: figure(291) },
  dram: { readBytesPerSecond: figure(3.2e12), copyBytesPerSecond: figure(2.9e12), latencyCycles: figure(699) },
  shared: { readBytesPerCycle: figure(127), latencyCycles: figure(29) },
  launchSeconds: figure(1.07e-6),
};

const memory = (footprintBytes: number, rate: number) => ({
  footprintBytes,
  readBytesPerCycle: figure(rate),
  writeBytesPerCycle: figure(rate / 2),
  copyBytesPerCycle: figure(rate),
});
/** The caches of the made-up processor: those of whatever processor runs the tests would decide what is read from where. */
const CACHES = {
  name: "native",
  isa: ["avx512f"],
  levels: [
    { name: "dram", units: 1, bytes: 2 ** 34 },
    { name: "l3", units: 1, bytes: 2 ** 25 },
    { name: "l2", units: 1, bytes: 2 ** 20 },
    { name: "l1", units: 1, bytes: 2 ** 15 },
  ],
  source: "made up",
};
/** Rates that crowd the names of ceilings: two slopes a hair apart, instructions a fifth apart. */
const CPU_CALIBRATION = {
  machine: "Testium 9000",
  clockHz: figure(4e9),
  scalar: {},
  memory: { l1: memory(2 ** 14, 128), l2: memory(2 ** 18, 118), l3: memory(2 ** 22, 20), dram: memory(2 ** 26, 4) },
  intrinsics: Object.fromEntries(
    [
      ["avx512.vpdpbusd", 0.5],
      ["avx512.fma.f32", 0.155],
    ].map(([name, cycles]) => [
      name,
      { issueCycles: figure(Number(cycles)), latencyCycles: figure(4), loadCycles: {}, storeCycles: figure(1) },
    ]),
  ),
};

/** The candidates that a search tried, in order. */
export function keysOf(outcome: TuneOutcome): readonly string[] {
  if (!("trials" in outcome)) throw new Error(outcome.status);
  return outcome.trials.map(({ key }) => key);
}
