/**
 * @file Neighbouring taps of bytes and words on lanes by dot products: which taps are joined, the refusals, and the
 * results.
 */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { DesignCandidate, DesignSchedule } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { finished } from "../../abstraction/steps.ts";
import { dotOf } from "../../mapper/space-time/dots.ts";
import { placeArray } from "../../mapper/space-time/lane-array.ts";
import { parseDataTypes } from "../../operators/data-types.ts";
import { instantiate, operatorNamed } from "../../operators/index.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import type { Runner } from "../../runtime/measure.ts";
import { readProcessor } from "../../runtime/processor.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { nativeTarget } from "../../targets/index.ts";
import { arraySpaceOf } from "../../tuner/array-candidates.ts";
import { lowerArray } from "../support/arrays.ts";
import { smallInputs } from "../support/drawn/drawn.ts";
import { runnerHere } from "../support/here.ts";
import { inFull } from "../support/slow.ts";
import { stated } from "../support/subjects.ts";

const image = (types: string, sizes: Readonly<Record<string, number>> = {}): Computation =>
  instantiate(operatorNamed("conv2d-single"), {
    parameters: { h: 5, w: 40, r: 2, s: 5, ...sizes },
    types: parseDataTypes(types),
  });

const BY_COLUMNS: DesignSchedule = {
  transform: {
    loops: ["q", "r", "s"],
    allocation: [1, 0, 0],
    schedule: [
      [0, 1, 0],
      [0, 0, 1],
    ],
  },
  lanes: 16,
  tile: { q: 16 },
  beside: { p: 2 },
  inputs: "dots",
  streaming: false,
  threads: 1,
};

const because = (computation: Computation, schedule: DesignSchedule = BY_COLUMNS): string => {
  const placed = placeArray(computation, schedule);
  return placed.ok ? "" : placed.refusal.because;
};

describe("neighbouring taps as dot products", () => {
  it("are joined four at a time, and the rest one by one", () => {
    const text = printNest(lowerArray(image("u8s8", { h: 3, w: 20 }), { ...BY_COLUMNS, beside: {} }));
    expect(text).toMatchInlineSnapshot(`
      "vectors IN: 1 x s32[16]
      vectors W: 1 x s32[16]
      vectors OUT: 1 x s32[16]
      for parallel p in 0..2
        for unrolled t1 in 0..2
          for lanes lane in 0..16
            OUT[0,lane] = select(t1 == 0, 0, OUT[0,lane]) + s32(in[p+t1,lane]) * s32(w[t1,0]) + s32(in[p+t1,lane+1]) * s32(w[t1,1]) + s32(in[p+t1,lane+2]) * s32(w[t1,2]) + s32(in[p+t1,lane+3]) * s32(w[t1,3])
          for lanes lane in 0..16
            OUT[0,lane] = OUT[0,lane] + s32(in[p+t1,lane+4]) * s32(w[t1,4])
            out[p,lane] = OUT[0,lane] where t1 == 1"
    `);
  });

  it.each(["u8s8", "s8u8", "s16"])("equal the equation in %s, whatever the taps and borders", (types) => {
    for (const s of [2, 3, 4, 5, 8, 9])
      for (const pad of [0, 1]) {
        const computation = image(types, { s, pad });
        const inputs = smallInputs(computation, 3);
        const nest = lowerArray(computation, BY_COLUMNS);
        expect([...interpretNest(nest, computation, inputs)], `${s} taps`).toEqual([...interpret(computation, inputs)]);
      }
  });

  it("are refused with the reason", () => {
    const { transform } = BY_COLUMNS;
    const refusals = [
      because(image("s8")),
      because(image("u8")),
      because(image("f32")),
      because(image("u8s8", { stride: 2 })),
      because(image("u8s8", { r: 40, s: 40, h: 50, w: 80 })),
      because(image("u8s8"), {
        ...BY_COLUMNS,
        transform: { ...transform, schedule: [transform.schedule[1] ?? [], transform.schedule[0] ?? []] },
      }),
      because(image("u8s8"), { ...BY_COLUMNS, tile: { q: 12 }, transform: { ...transform, allocation: [1, 0, 1] } }),
    ];
    expect(refusals).toMatchInlineSnapshot(`
      [
        "form: a dot product multiplies u8 by s8 (VPDPBUSD), or s16 by s16 (VPDPWSSD); AVX-512 has none of s8 by s8",
        "form: a dot product multiplies u8 by s8 (VPDPBUSD), or s16 by s16 (VPDPWSSD); AVX-512 has none of u8 by u8",
        "form: a dot product adds products of two integers to a sum of s32",
        "form: neighbouring lanes along q do not read neighbouring elements of one operand and the same element of the other",
        "form: 1600 steps are too many to unroll, and only unrolled taps (at most 64) become dot products",
        "form: neighbouring taps of in along r do not lie side by side in memory",
        "form: neighbouring taps meet on a lane where lanes go along one loop and the innermost steps along another",
      ]
    `);
  });

  it("are offered where the machine has the instruction, and predicted to be faster", () => {
    const target = modelTarget(nativeTarget());
    const waysOf = (hasDots: boolean): Map<string, number> => {
      const space = finished(arraySpaceOf(image("u8s8", { h: 64, w: 256 }), { threads: 1, target, hasDots }));
      if ("rule" in space) throw new Error(space.because);
      const best = new Map<string, number>();
      for (const { schedule, roughCycles } of space.ranked)
        best.set(schedule.inputs, Math.min(roughCycles, best.get(schedule.inputs) ?? roughCycles));
      return best;
    };
    expect([...waysOf(false).keys()].toSorted()).toEqual(["loaded", "passed"]);
    const { dots = 0, loaded = 0 } = Object.fromEntries(waysOf(true));
    expect(dots).toBeGreaterThan(0);
    expect(dots).toBeLessThan(loaded);
  });
});

const { features } = readProcessor();

describe.skipIf(!features.includes("avx512_vnni"))("kernels of dot products (skipped without AVX512-VNNI)", () => {
  let runner: Runner;
  beforeAll(async () => {
    runner = await runnerHere({ threads: 1, budgetSeconds: 0.002, batches: [1, 2] });
  });
  afterAll(() => runner.close());

  const kernelOf = (computation: Computation, schedule = BY_COLUMNS): ReturnType<typeof kernelFor> => {
    const candidate: DesignCandidate = { kind: "design", intrinsic: "avx512.vpmulld", schedule };
    return kernelFor(computation, candidate);
  };

  it("promise the instruction, and their code holds it", () => {
    const { source, promises, features: needed } = kernelOf(image("u8s8"));
    expect([promises, needed.includes("avx512vnni")]).toEqual(["vpdpbusd", true]);
    expect(source).toMatch(/byte_dots\(\w+, byte_windows<19>\(/);
    expect(source).toMatch(/byte_dots\(\w+, byte_windows<16>\(/);
    expect(kernelOf(image("s16")).promises).toBe("vpdpwssd");
    expect(() =>
      kernelFor(image("s16"), {
        kind: "design",
        intrinsic: "avx2.vpmulld",
        schedule: { ...BY_COLUMNS, lanes: 8, tile: { q: 8 } },
      }),
    ).toThrow(/AVX2|AVX-512/);
  });

  const CASES = inFull(
    ["u8s8", "s8u8", "s16"].flatMap((types) => [2, 3, 4, 5, 7, 9].map((s) => [types, s] as const)),
    [
      ["u8s8", 5],
      ["s8u8", 3],
      ["s16", 5],
    ] as const,
  );
  it.each(CASES)("compute %s, %i taps a row, reading nothing beyond their tensors", async (types, s) => {
    const computation = image(types, { h: 7, w: 75, s, pad: 1 });
    const measured = await runner.measure(kernelOf(computation), await runner.reference(computation, 1));
    expect(measured.status, "log" in measured ? measured.log : "").toBe("ok");
  });
});

it("rows side by side are of an axis that has several", () => {
  const computation = stated("y[n,p,q] += x[n,p,q+s] * w[s] --n 2 --p 1 --q 16 --s 2");
  const space = finished(arraySpaceOf(computation, { threads: 1, target: modelTarget(nativeTarget()) }));
  if (!("all" in space)) throw new Error("no design");
  const beside = new Set([...space.all()].flatMap((schedule) => Object.keys(schedule.beside)));
  expect([...beside].sort()).toEqual(["n", "q"]);
});

describe("neighbouring taps of a transform", () => {
  const sum = stated("y[i] += s32(x[q,i+r]) * s32(w[q,r]) --i 16 --q 3 --r 4 --dtype x=u8,w=s8");
  const said = (allocation: readonly number[], ...schedule: (readonly number[])[]): string => {
    const dot = dotOf(sum, { loops: ["i", "q", "r"], allocation, schedule }, 12);
    return typeof dot === "string" ? dot : `${dot.terms} terms`;
  };
  const ELSEWHERE =
    "neighbouring taps meet on a lane where lanes go along one loop and the innermost steps along another";

  it.each([
    [[1, 0, 0], [0, 1, 0], [0, 0, 1], "4 terms"],
    // The taps of the second row begin when those of the first have gone half way.
    [[1, 0, 0], [0, 1, 1], [0, 0, 1], ELSEWHERE],
    [[0, 0, 1], [0, 1, 0], [0, 0, 1], ELSEWHERE],
    [[1, 0, 1], [0, 1, 0], [0, 0, 1], ELSEWHERE],
    [[2, 0, 0], [0, 1, 0], [0, 0, 1], ELSEWHERE],
    [[1, 0, 0], [0, 1, 0], [0, 1, 1], ELSEWHERE],
    [[1, 0, 0], [0, 0, 1], [0, 1, 0], "neighbouring taps of x along q do not lie side by side in memory"],
    [[0, 0, 1], [0, 1, 0], [1, 0, 0], "the innermost steps go along i, which is not summed"],
  ] as const)("on lanes %j in steps %j, %j", (lanes, slow, fast, expected) => {
    expect(said(lanes, slow, fast)).toBe(expected);
  });
});
