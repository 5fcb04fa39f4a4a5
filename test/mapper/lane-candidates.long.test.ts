/** @file The space of lane kernels: its candidates, mutations that stay in it, and the model's preferences. */

import { describe, expect, it } from "vitest";
import type { WindowSchedule } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import type { Statement } from "../../abstraction/loop-nest.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { windowProblem, writtenInAll } from "../../mapper/schedule/lanes.ts";
import { lowerWindow } from "../../mapper/space-time/lower-window.ts";
import { tapsOf } from "../../mapper/space-time/taps.ts";
import { parseDataTypes } from "../../operators/data-types.ts";
import { operatorNamed } from "../../operators/index.ts";
import { instantiate } from "../../operators/operator.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import { targetOf } from "../../targets/index.ts";
import { ZMM, ZMM_WORDS } from "../../targets/x86.ts";
import { windowSpace } from "../../tuner/lane-candidates.ts";
import type { ListedSpace } from "../../tuner/listed-space.ts";
import { stated } from "../support/subjects.ts";

const target = modelTarget(targetOf({ name: "a test", isa: [], levels: [], source: "none" }));

function spaceOf(
  operator: string,
  parameters: Readonly<Record<string, number>>,
): [Computation, ListedSpace<WindowSchedule>] {
  const computation = instantiate(operatorNamed(operator), { parameters, types: parseDataTypes("f32") });
  const space = windowSpace(computation, { threads: 1, target });
  if ("because" in space) throw new Error(space.because);
  return [computation, space];
}

/** Schedules by predicted time, the shortest first. */
function ranked(space: ListedSpace<WindowSchedule>): WindowSchedule[] {
  return [...space.all()].sort((a, b) => space.expectedSeconds(a) - space.expectedSeconds(b));
}

describe("the space of lane kernels", () => {
  it("holds schedules that fit, each once, and every dataflow that a narrow window allows", () => {
    const [computation, space] = spaceOf("conv2d-single", { h: 64, w: 64, r: 3, s: 3, pad: 1 });
    const all = [...space.all()];
    expect(all.length).toBe(space.size);
    expect(new Set(all.map((s) => space.key(s))).size).toBe(space.size);
    expect(new Set(all.map((s) => s.dataflow))).toEqual(new Set(["SBM", "FBS-shift", "FBS-load"]));
    for (const schedule of all) {
      const verdict = tapsOf(computation, schedule.rolled);
      expect(verdict.ok && windowProblem(verdict.sum, schedule)).toBeUndefined();
    }
    expect(() => lowerWindow(computation, space.random(seededRandom(1)))).not.toThrow();
  });

  it("contains every mutation and crossover, most of them new candidates", () => {
    const [, space] = spaceOf("3d7pt", { d: 64, h: 66, w: 64 });
    const inside = new Set([...space.all()].map((s) => space.key(s)));
    const random = seededRandom(7);
    let moved = 0;
    for (let i = 0; i < 200; i++) {
      const a = space.random(random);
      const b = space.random(random);
      for (const next of [space.mutate(a, random), space.crossover(a, b, random)]) {
        expect(inside.has(space.key(next))).toBe(true);
        if (space.key(next) !== space.key(a)) moved++;
      }
    }
    expect(moved).toBeGreaterThan(50);
  });

  it("streams outputs that only memory holds, not those a cache holds", () => {
    const [, large] = spaceOf("2d5pt", { h: 8192, w: 8192 });
    const [, small] = spaceOf("2d5pt", { h: 512, w: 512 });
    // 16 MB in all, half of the third-level cache.
    const [, half] = spaceOf("3d7pt", { d: 128, h: 128, w: 128 });
    expect(ranked(large)[0]).toMatchObject({ streaming: true, prefetchBytes: 8192 });
    expect(ranked(half)[0]?.streaming).toBe(true);
    expect(ranked(small)[0]?.streaming).toBe(false);
  });

  it("expects a block of rows to beat single rows where arithmetic binds", () => {
    const [, space] = spaceOf("conv2d-single", { h: 512, w: 512, r: 9, s: 9, pad: 4 });
    const [best] = ranked(space);
    expect(best?.dataflow).toBe("FBS-load");
    expect(best && best.rows * best.vectors).toBeGreaterThanOrEqual(8);
  });

  it("expects two operations of a multiply-add of s16, and three of s32, where arithmetic binds", () => {
    const schedule: Omit<WindowSchedule, "lanes"> = {
      dataflow: "FBS-load",
      rows: 4,
      vectors: 2,
      rolled: [],
      weights: "registers",
      streaming: false,
      prefetchBytes: 0,
      strip: 0,
      threads: 1,
    };
    const [words, singles, integers] = [
      ["s16->s16", ZMM_WORDS, 32] as const,
      ["f32", ZMM, 16] as const,
      ["s32->s32", ZMM, 16] as const,
    ].map(([types, vectors, lanes]) => {
      const parameters = { h: 128, w: 128, r: 9, s: 9 };
      const computation = instantiate(operatorNamed("conv2d-single"), { parameters, types: parseDataTypes(types) });
      const space = windowSpace(computation, { threads: 1, target, vectors });
      return "because" in space ? Number.NaN : space.expectedSeconds({ ...schedule, lanes });
    });
    // Of s16, half as many vectors. With one operation they would take half the time.
    expect(words && singles && words / singles).toBeGreaterThan(0.8);
    expect(integers && singles && integers / singles).toBeGreaterThan(2);
  });

  it("expects strips to pay whose planes fit half of the second-level cache, and higher ones where more fits", () => {
    const computation = stated("3d7pt --d 512 --h 512 --w 512");
    // 255 blocks of two rows: strips of 30 and of 102 rows, 192 KB and 624 KB in three planes.
    const best = (bytes: number): number | undefined => {
      const memory = target.memory.map((m, i) => (i === 1 ? { ...m, bytes } : m));
      const space = windowSpace(computation, { threads: 1, target: { ...target, memory } });
      if ("because" in space) throw new Error(space.because);
      const two = [...space.all()].filter((s) => s.rows === 2 && s.dataflow === "FBS-load");
      return two.reduce((a, b) => (space.expectedSeconds(b) < space.expectedSeconds(a) ? b : a)).strip;
    };
    expect([2 ** 20, 2 ** 21].map(best)).toEqual([15, 51]);
  });

  it("holds no kernel of thousands of written-out products, and still a fastest one of blocks", () => {
    for (const [operator, parameters] of [
      ["3d125pt", { d: 32, h: 64, w: 64 }],
      ["2d121pt", { h: 256, w: 256 }],
    ] as const) {
      const [computation, space] = spaceOf(operator, parameters);
      const written = [...space.all()].map((s) => {
        const verdict = tapsOf(computation, s.rolled);
        return verdict.ok ? writtenInAll(verdict.sum, s) : Number.NaN;
      });
      expect(Math.max(...written)).toBeLessThanOrEqual(1024);
      const [best] = ranked(space);
      expect(best && best.rows * best.vectors).toBeGreaterThan(1);
      // The nest has no more products than counted: one for each tap of each block.
      const productsIn = (body: readonly Statement[]): number =>
        body.reduce((n, s) => {
          if (s.kind === "loop") return n + productsIn(s.body);
          const { value } = s.kind === "scalar" ? s.equation : {};
          return n + (value?.kind === "binary" && value.op === "*" ? 1 : 0);
        }, 0);
      for (const s of ranked(space).slice(0, 3)) {
        const verdict = tapsOf(computation, s.rolled);
        const counted = verdict.ok ? writtenInAll(verdict.sum, s) : 0;
        const products = productsIn(lowerWindow(computation, s).body);
        expect(counted, JSON.stringify(s)).toBeGreaterThanOrEqual(products);
      }
    }
  });

  it("holds no block that compiles for seconds, and still one for long filters", () => {
    const written = (c: number): number[] => {
      const [computation, space] = spaceOf("conv2d", { c, k: 8, h: 16, w: 16, r: 3, s: 3, pad: 1 });
      return [...space.all()].map((s) => {
        const verdict = tapsOf(computation, s.rolled);
        return verdict.ok ? verdict.sum.taps.length * s.rows * s.vectors : Number.POSITIVE_INFINITY;
      });
    };
    expect(Math.max(...written(64))).toBeLessThanOrEqual(600);
    expect(new Set(written(216))).toEqual(new Set([648, 1944]));
  });

  it("says why lanes cannot compute a computation", () => {
    const computation = stated("conv2d-single --h 32 --w 32 --stride 2");
    expect(windowSpace(computation, { threads: 1, target })).toMatchObject({ rule: "step" });
  });
});
