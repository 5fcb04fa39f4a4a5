/** @file A database in which every column holds something in some record, and in another nothing where it may be empty. Frozen in test/fixtures. */

import type { MappedCandidate, WindowCandidate } from "../../abstraction/candidate.ts";
import { beginRun, type Database, endRun, recordCalibration, recordTrial } from "../../db/index.ts";
import { masked, programIn } from "./chain-graphs.ts";
import { CONV, MACHINE, measured, newTrial, trial, workloadNamed } from "./database.ts";
import { windowSchedule } from "./window.ts";

/** A mapping. */
export const MAPPED: MappedCandidate = {
  kind: "mapping",
  intrinsic: "avx512.vpdpbusd",
  matching: { n: ["k"], k: ["c"] },
  operands: { a: "in", b: "w", c: "out" },
  schedule: { order: ["p", "q", "k/8"], block: { q: 12 }, placement: { a: "padded", b: "tiled" }, threads: 1 },
};

/** A window on lanes. */
export const LANES: WindowCandidate = {
  kind: "window",
  intrinsic: "avx512.fma.f32",
  schedule: windowSchedule({ dataflow: "SBM", rows: 2, vectors: 2, rolled: ["k"] }),
};

export function recordEveryFact(db: Database): void {
  const search = { workload: CONV, seed: 1, options: { strategy: "genetic" }, budget: { trials: 4 }, process: 1 };
  const run = beginRun(db, { ...search, environment: MACHINE, started: 100 });
  const spread = { ...MAPPED, schedule: { ...MAPPED.schedule, spread: ["p"], within: { a: "k/8" } } };
  const levels = [{ level: "l1", trips: 1, inner: 2, read: 3, write: 4, bound: "read" as const }];
  const prediction = { seconds: 5e-5, uncorrectedSeconds: 4e-5, levels };
  recordTrial(db, newTrial(60, { run, trial: { ...trial(measured(60), 101, spread), prediction } }));
  recordTrial(db, newTrial(90, { run, trial: trial({ ...measured(90), lostTo: 6e-5 }, 102) }));
  recordTrial(db, newTrial(1, { run, trial: trial({ status: "crashed", log: "signal 11" }, 103) }));
  const finals = { comparison: "finals-1", place: 1 };
  const conditions = { threads: 1, cache: "flushed", affinity: [0], load: 0.25 } as const;
  recordTrial(db, newTrial(61, { run, trial: trial(measured(61), 104), conditions, finals }));
  endRun(db, run, { status: "done", ended: 200 });

  const gpu = { ...MACHINE, cpu: "a GPU", driver: "550.54" };
  const workload = { ...workloadNamed("matmul", { m: 8 }), name: "model/layer1" };
  beginRun(db, { ...search, workload, environment: gpu, started: 300 });
  recordTrial(db, {
    workload,
    environment: gpu,
    trial: trial(measured(62), 301, LANES),
    conditions: { threads: 1, cache: "warm", clock: { hertz: 1.7e9, throttled: ["power-limit"] } },
  });
  const program = { ...search, workload: { computation: programIn(masked) }, environment: MACHINE, started: 303 };
  beginRun(db, program);
  recordCalibration(db, { environment: gpu, data: { clockHz: 1e9 }, at: 302 });
}
