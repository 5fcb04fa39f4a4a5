/**
 * @file The traffic of lane kernels, which bench/lanes/stencils.ts times beside them: it moves what the kernel moves, computes
 * nothing, and is a copy.
 */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { WindowSchedule } from "../../abstraction/candidate.ts";
import { type Computation, elementCount, outputOf } from "../../abstraction/computation.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import { exactReference, kernelOf } from "../../bench/lanes/stencil-bounds.ts";
import { copyingWeights, trafficKernel, trafficNest, trafficSchedules } from "../../bench/lanes/traffic.ts";
import { createRunner, type Runner } from "../../runtime/measure.ts";
import { readProcessor } from "../../runtime/processor.ts";
import { smallInputs } from "../support/drawn/drawn.ts";
import { stated } from "../support/subjects.ts";
import { windowSchedule } from "../support/window.ts";

const plain: WindowSchedule = windowSchedule({
  rows: 2,
  vectors: 2,
  weights: "memory",
  streaming: true,
  prefetchBytes: 8192,
});
const image = stated("conv2d-single --h 12 --w 112 --r 3 --s 3 --pad 1");
const grid = stated("3d7pt --d 7 --h 9 --w 80");

const CASES: readonly (readonly [string, Computation, Partial<WindowSchedule>])[] = [
  ["columns that are loaded", image, {}],
  ["weights in registers", image, { weights: "registers", streaming: false, prefetchBytes: 512 }],
  ["lines", image, { lines: "loaded", vectors: 3 }],
  ["lines carried from block to block", image, { lines: "carried" }],
  ["lines and columns", stated("conv1d-single --l 777 --r 9"), { rows: 1, vectors: 4, lines: "mixed" }],
  ["planes", grid, { planes: 2, weights: "registers" }],
  ["planes of doubles, in strips", stated("3d27pt --d 6 --h 11 --w 40 --dtype f64"), { lanes: 8, planes: 2, strip: 2 }],
];

const notes = { lines: [] };
const MOVES = ["loadu", "storeu", "stream_lanes", "prefetch_distant", "prefetch_from", "for \\("] as const;
const counted = (source: string): readonly number[] =>
  MOVES.map((name) => source.match(new RegExp(name, "g"))?.length ?? 0);

describe("the traffic of a lane kernel", () => {
  it.each(CASES)("has its loads, stores, prefetches and loops, and no arithmetic: %s", (_, computation, changes) => {
    const schedule = { ...plain, ...changes };
    const [kernel, traffic] = [kernelOf(computation, schedule), trafficKernel(computation, schedule, notes)].map((k) =>
      // The nest above the code says the same words.
      String(k.source).replace(/^\/\/.*$/gm, ""),
    );
    expect(counted(traffic ?? "")).toEqual(counted(kernel ?? ""));
    expect(kernel).toMatch(/_mm512_fmadd/);
    expect(traffic).not.toMatch(/_mm512_(fmadd|mul|add)/);
    expect(traffic?.match(/kept\(_mm512_maskz_loadu|kept\(_mm512_loadu/g)).toHaveLength(counted(kernel ?? "")[0] ?? 0);
  });

  it.each(CASES)("copies the input, whatever the weights are: %s", (_, computation, changes) => {
    const inputs = smallInputs(computation, 5, 4);
    const found = interpretNest(trafficNest(computation, { ...plain, ...changes }), computation, inputs);
    expect([...found]).toEqual([...(inputs["in"] ?? []).slice(0, elementCount(outputOf(computation)))]);
  });

  it("is that of the kernel itself, of other prefetch distances, other forms of rows and other schedules", () => {
    const best = { ...plain, weights: "registers", rolled: ["s"] } as const;
    const others = [{ ...plain, rows: 3 }, { ...plain, dataflow: "SBM" } as const];
    const tried = trafficSchedules(image, best, others, 8);
    expect(tried.map((s) => [s.rows, s.lines, s.prefetchBytes, s.dataflow].join(" "))).toEqual([
      "2  8192 FBS-load",
      "3  8192 FBS-load",
      "2 loaded 8192 FBS-load",
      "2 carried 8192 FBS-load",
      "2  2048 FBS-load",
      "2  512 FBS-load",
    ]);
    expect(tried.every((s) => s.rolled.length === 0)).toBe(true);
  });

  it("is not timed where the stencil is no copy with any weights", () => {
    // Rows of the result are shorter than those of the image.
    expect(copyingWeights(stated("conv2d-single --h 12 --w 112 --r 3 --s 3"))).toBeUndefined();
    expect(copyingWeights(image)).toEqual({ w: Float64Array.of(0, 0, 0, 0, 1, 0, 0, 0, 0) });
  });
});

const { features } = readProcessor();
describe.skipIf(!features.includes("avx512dq"))("the traffic of a lane kernel on a processor with AVX-512", () => {
  let runner: Runner | undefined;
  beforeAll(async () => {
    const made = await createRunner({ budgetSeconds: 0.002, batches: [1, 2] });
    if (made.status === "ready") runner = made.runner;
  });
  afterAll(() => runner?.close());

  // Planes, carried lines and plain loads of an image.
  it.each(CASES.filter((_, i) => [0, 3, 5].includes(i)))(
    "keeps every load, and copies: %s",
    async (_, computation, changes) => {
      if (!runner) throw new Error("no compiler");
      const traffic = trafficKernel(computation, { ...plain, ...changes }, notes);
      const [loads = 0] = counted(String(traffic.source).replace(/^\/\/.*$/gm, ""));
      const weights = copyingWeights(computation);
      const counting = { ...traffic, promises: "vmovups" };
      const measured = await runner.measure(counting, await exactReference(computation, runner, weights));
      expect(measured.status, "log" in measured ? measured.log : "").toBe("ok");
      expect(measured.status === "ok" && measured.instructions).toBeGreaterThanOrEqual(loads);
    },
  );
});
