/**
 * @file Windows whose rows come as lines in registers: what a block loads and shifts, the ends of rows, the refusals,
 * and the results between guard pages. Random ones stand in drawn-lanes.deep.test.ts.
 */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { WindowSchedule } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { windowProblem } from "../../mapper/schedule/lanes.ts";
import { lowerWindow } from "../../mapper/space-time/lower-window.ts";
import { tapsOf } from "../../mapper/space-time/taps.ts";
import { type ModelTarget, modelTarget } from "../../perfmodel/target.ts";
import { createRunner, type Runner } from "../../runtime/measure.ts";
import { readProcessor } from "../../runtime/processor.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { targetOf } from "../../targets/index.ts";
import { windowSpace } from "../../tuner/lane-candidates.ts";
import { smallInputs, wrongNest } from "../support/drawn/drawn.ts";
import { stated } from "../support/subjects.ts";
import { windowSchedule } from "../support/window.ts";

const CARRIED: WindowSchedule = windowSchedule({ rows: 2, vectors: 2, weights: "memory", lines: "carried" });

const sourceOf = (computation: Computation, changes: Partial<WindowSchedule>): string => {
  const schedule = { ...CARRIED, ...changes };
  const type = Object.values(computation.tensors)[0]?.dtype;
  return `${kernelFor(computation, { kind: "window", intrinsic: `avx512.fma.${type}`, schedule }).source}`;
};

/** The loops over blocks of columns, as text. */
const blocksOf = (source: string): string[] =>
  source
    .split(/for \(long q_block\w* = 0;/)
    .slice(1)
    .map((text) => text.slice(0, text.search(/\n {2,6}\}/)));

describe("a window whose rows are lines in registers", () => {
  const image = stated("conv2d-single --h 12 --w 128 --r 3 --s 3 --pad 1");

  it.each([
    // Four rows of data: two new vectors of each, or two more on either side of them. A line is outside of the last block,
    // and of the first one too unless lines are carried.
    ["carried", 3, 4 * 2, 4 * 2 * 2],
    ["loaded", 2, 4 * (2 + 2), 4 * 2 * 2],
  ] as const)("loads each element of a block once (%s), and shifts the rest", (lines, blocks, loads, shifts) => {
    const inner = blocksOf(sourceOf(image, { lines })).find((text) => text.includes(`< ${blocks};`)) ?? "";
    expect(inner.match(/_mm512_loadu_ps/g)).toHaveLength(loads);
    expect(inner.match(/lanes_from<(1|15)>/g)).toHaveLength(shifts);
    expect(inner).not.toContain("maskz");
  });

  it.each(["carried", "loaded", undefined] as const)("writes the ends of rows as whole blocks (%s)", (lines) => {
    // Eight vectors in blocks of two; blocks of long windows are followed by single vectors.
    const trips = (changes: Partial<WindowSchedule>): string[] =>
      blocksOf(sourceOf(image, { lines, ...changes }))
        .map((text) => /< (\d+);/.exec(text)?.[1] ?? "")
        .slice(-3);
    expect(trips({})).toEqual(lines === "carried" ? ["8", "3", "1"] : ["1", "2", "1"]);
    const right = blocksOf(sourceOf(image, { lines })).at(-1) ?? "";
    expect(right.match(/_mm512_storeu_ps/g)).toHaveLength(2 * 2);
    expect(right.match(/maskz_loadu/g) ?? []).toHaveLength(lines === undefined ? 4 : 0);
    expect(trips({ vectors: 8, rows: 3 })).toEqual(lines === "carried" ? ["1", "7", "1"] : ["1", "6", "1"]);
  });

  it("reads the planes between them once for all planes of a block, and says how far ahead it prefetches", () => {
    const grid = stated("3d7pt --d 6 --h 10 --w 64");
    const loads = (changes: Partial<WindowSchedule>): number => {
      const source = sourceOf(grid, { vectors: 1, lines: undefined, ...changes });
      const bodies = source.split(/for \(long \w+ = 0;[^{]*\{/).map((text) => text.slice(0, text.indexOf("}")));
      return Math.max(...bodies.map((body) => body.match(/_mm512_loadu_ps/g)?.length ?? 0));
    };
    // Two rows of a star: the planes before and behind, and rows j-1 to j+2 with both neighbours of j and j+1 between.
    expect([loads({}), loads({ planes: 2 })]).toEqual([2 * 2 + 8, 2 * 2 + 2 * 8]);
    const distances = [2048, 8192].map((prefetchBytes) => sourceOf(grid, { prefetchBytes }));
    expect(distances.map((s) => [s.includes("prefetch_from("), s.includes("prefetch_distant(")])).toEqual([
      [true, false],
      [false, true],
    ]);
  });

  it("loads every second column by itself, where loads and shifts are mixed", () => {
    const line = stated("conv1d-single --l 1000 --r 5");
    const source = sourceOf(line, { rows: 1, vectors: 2, lines: "mixed" });
    // Of columns 0 to 4 the first lies on lines; columns 1 and 3 are shifted, columns 2 and 4 loaded.
    expect([...new Set(source.match(/lanes_from<\d+>/g))]).toEqual(["lanes_from<1>", "lanes_from<3>"]);
  });

  it("is refused with the reason where lines cannot hold it", () => {
    const because = (computation: Computation, changes: Partial<WindowSchedule>): string | undefined => {
      const schedule = { ...CARRIED, ...changes };
      const verdict = tapsOf(computation, schedule.rolled);
      return verdict.ok ? windowProblem(verdict.sum, schedule)?.because : verdict.refusal.because;
    };
    const line = stated("conv1d-single --l 1000 --r 5");
    expect([
      because(image, {}),
      because(image, { dataflow: "SBM" }),
      because(image, { rolled: ["s"] }),
      because(stated("conv2d-single --h 12 --w 128 --r 3 --s 1"), {}),
      because(line, { rows: 1 }),
      because(line, { rows: 1, lines: "mixed" }),
      because(image, { planes: 2 }),
      because(stated("3d7pt --d 6 --h 10 --w 64"), { planes: 0 }),
      because(stated("3d7pt --d 6 --h 10 --w 64"), { planes: 2, dataflow: "SBM", lines: undefined }),
    ]).toMatchInlineSnapshot(`
      [
        undefined,
        "schedule: lines hold what lanes would load (FBS-load), not SBM",
        "schedule: lines are shifted by constants, and s stays a loop",
        "schedule: a window of one column reads no other line",
        "schedule: blocks of the only axis are dealt to threads, so that none carries lines to the next",
        undefined,
        "schedule: 2 planes, but nothing moves along an axis beside rows and columns",
        "schedule: planes must be a positive integer, got 0",
        "schedule: 2 planes share data that lanes load (FBS-load), not SBM",
      ]
    `);
    expect(() => sourceOf(image, { lanes: 8 })).toThrow(
      "lines are whole registers, of 16 lanes, and the schedule has 8",
    );
  });

  it("is expected to be faster, more so where a core has one multiply-add and one load a cycle instead of two", () => {
    const two = modelTarget(targetOf({ name: "a test", isa: [], levels: [], source: "none" }));
    const fma = { issueCycles: 1, latencyCycles: 4, loadCycles: {}, storeCycles: 1, source: "a test" };
    const one: ModelTarget = {
      ...two,
      loadsPerCycle: { value: 1, source: "a test" },
      timings: { "avx512.fma.f32": fma },
    };
    const gain = (target: ModelTarget): number => {
      const space = windowSpace(stated("conv2d-single --h 512 --w 512 --r 5 --s 5 --pad 2"), { threads: 1, target });
      if ("because" in space) throw new Error(space.because);
      const best = (isLines: boolean): number =>
        Math.min(
          ...[...space.all()]
            .filter((schedule) => (schedule.lines !== undefined) === isLines)
            .map((schedule) => space.expectedSeconds(schedule)),
        );
      return best(false) / best(true);
    };
    expect(gain(one)).toBeGreaterThan(1.1);
    expect(gain(two)).toBeLessThan(gain(one));
  });
});

const CASES: readonly (readonly [string, Computation, Partial<WindowSchedule>])[] = [
  ["an image of whole lines", stated("conv2d-single --h 11 --w 128 --r 3 --s 3 --pad 1"), { rows: 3 }],
  ["an image of no whole lines", stated("conv2d-single --h 7 --w 101 --r 3 --s 5 --pad 2"), { vectors: 3 }],
  ["an image narrower than a block", stated("conv2d-single --h 5 --w 13 --r 3 --s 3 --pad 1"), {}],
  ["no borders", stated("conv2d-single --h 9 --w 95 --r 2 --s 9"), { lines: "loaded", weights: "registers" }],
  ["columns in three lines", stated("conv1d-single --l 777 --r 31"), { rows: 1, vectors: 4, lines: "mixed" }],
  ["a filter beside a signal", stated("conv1d-single --l 40 --r 31"), { rows: 1, vectors: 4, lines: "loaded" }],
  ["a star, streamed and prefetched", stated("2d9pt --h 17 --w 208"), { streaming: true, prefetchBytes: 512 }],
  ["a grid of doubles", stated("3d7pt --d 5 --h 10 --w 37 --dtype f64"), { lanes: 8, strip: 4, vectors: 1 }],
  [
    "planes, one left over, prefetched into the second level",
    stated("3d7pt --d 7 --h 9 --w 48"),
    { planes: 2, vectors: 1, streaming: true, prefetchBytes: 8192 },
  ],
  ["a box of planes, without lines", stated("3d27pt --d 6 --h 11 --w 50"), { planes: 3, lines: undefined, strip: 2 }],
  ["planes with weights in registers", stated("3d7pt --d 5 --h 7 --w 40"), { planes: 2, weights: "registers" }],
];

describe("windows in lines, interpreted", () => {
  it.each(CASES)("equal the equation: %s", (_, computation, changes) => {
    const schedule = { ...CARRIED, ...changes };
    const inputs = smallInputs(computation, 3, 4);
    expect(wrongNest({ computation, inputs, nest: () => lowerWindow(computation, schedule) })).toBeUndefined();
  });
});

const { features } = readProcessor();
describe.skipIf(!features.includes("avx512dq"))("windows in lines on a processor with AVX-512", () => {
  const runners: Runner[] = [];
  beforeAll(async () => {
    for (const threads of [1, 2]) {
      const made = await createRunner({ threads, budgetSeconds: 0.002, batches: [1, 2] });
      if (made.status === "ready") runners.push(made.runner);
    }
  });
  afterAll(async () => {
    for (const runner of runners) await runner.close();
  });

  // Those that no other one contains; the rest is interpreted.
  it.each(CASES.filter((_, i) => i % 3 === 1))("compute %s", async (_, computation, changes) => {
    const schedule = { ...CARRIED, ...changes };
    const type = Object.values(computation.tensors)[0]?.dtype;
    const kernel = kernelFor(computation, { kind: "window", intrinsic: `avx512.fma.${type}`, schedule });
    for (const runner of runners) {
      const measured = await runner.measure(kernel, await runner.reference(computation, 1));
      expect(measured.status, "log" in measured ? measured.log : "").toBe("ok");
    }
  });
});
