/**
 * @file Lane kernels compiled and run: every element right on every set of inputs, between guard pages, by one thread
 * and by two.
 */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { WindowSchedule } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { UsageError } from "../../abstraction/error.ts";
import { generateLanes } from "../../codegen/lanes.ts";
import { lowerWindow } from "../../mapper/space-time/lower-window.ts";
import { createRunner, type Runner } from "../../runtime/measure.ts";
import { readProcessor } from "../../runtime/processor.ts";
import { stated } from "../support/subjects.ts";
import { windowSchedule } from "../support/window.ts";

const AVX512 = readProcessor().features.includes("avx512dq");
const runners: Runner[] = [];

beforeAll(async () => {
  for (const threads of [1, 2]) {
    try {
      const made = await createRunner({ threads, budgetSeconds: 0.002, batches: [1, 2] });
      if (made.status === "ready") runners.push(made.runner);
    } catch (error) {
      if (!(error instanceof UsageError)) throw error;
    }
  }
});
afterAll(async () => {
  for (const runner of runners) await runner.close();
});

const plain: WindowSchedule = windowSchedule();

const CASES: readonly (readonly [string, Computation, Partial<WindowSchedule>])[] = [
  [
    "a star, streamed and prefetched",
    stated("2d9pt --h 37 --w 208"),
    { rows: 4, vectors: 3, streaming: true, prefetchBytes: 512 },
  ],
  [
    "a box with its columns as a loop",
    stated("conv2d-single --h 21 --w 101 --r 5 --s 5 --pad 2"),
    { rows: 4, vectors: 2, rolled: ["s"] },
  ],
  ["sums that move", stated("conv2d-single --h 14 --w 77 --r 3 --s 9"), { dataflow: "SBM", rows: 3, vectors: 2 }],
  ["data that move", stated("2d13pt --h 13 --w 65"), { dataflow: "FBS-shift", rows: 2 }],
  ["a long filter", stated("conv1d-single --l 777 --r 31"), { vectors: 4, weights: "memory", prefetchBytes: 2048 }],
  [
    "a grid of doubles in strips",
    stated("3d7pt --d 7 --h 18 --w 37 --dtype f64"),
    { lanes: 8, rows: 2, vectors: 2, strip: 4, streaming: true },
  ],
];

describe.skipIf(!AVX512)("lane kernels on AVX-512 (skipped where the processor has none)", () => {
  it.each(CASES)("compute %s", async (_, computation, changes) => {
    const schedule = { ...plain, ...changes };
    const kernel = generateLanes(
      "c++",
      computation,
      lowerWindow(computation, schedule),
      { lines: [] },
      { streaming: schedule.streaming },
    );
    expect(kernel.source).toContain(schedule.prefetchBytes > 0 ? "prefetch_from(" : "_mm512_");
    if (schedule.streaming) expect(kernel.source).toContain("_mm512_stream_");
    expect(runners.length).toBeGreaterThan(0);
    // Every kernel is checked with data that ends exactly at a guard page, aligned to its elements, and with data that begins at one.
    for (const runner of runners) {
      const reference = await runner.reference(computation, 1);
      const measured = await runner.measure(kernel, reference);
      expect(measured.status, "log" in measured ? measured.log : "").toBe("ok");
    }
  });
});
