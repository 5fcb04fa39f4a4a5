/**
 * @file Lanes of 16 bits: how they read in C++, refusals, what the searches take, and results between guard pages. Random
 * ones stand in drawn-lanes.deep.test.ts.
 */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { DesignSchedule, WindowSchedule } from "../../abstraction/candidate.ts";
import { type Computation, defineComputation, elementCount, tensorOf } from "../../abstraction/computation.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import { finished } from "../../abstraction/steps.ts";
import { lowerWindow } from "../../mapper/space-time/lower-window.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import type { Runner } from "../../runtime/measure.ts";
import { readProcessor } from "../../runtime/processor.ts";
import { multiplyAddOf } from "../../session/kinds/design-kinds.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { registersOf, windowLanes } from "../../session/kinds/window-kinds.ts";
import { declaredAs } from "../../session/package/declared.ts";
import { nativeTarget } from "../../targets/index.ts";
import { arraySpaceOf } from "../../tuner/array-candidates.ts";
import { windowSpace } from "../../tuner/lane-candidates.ts";
import { runnerHere } from "../support/here.ts";
import { windowSchedule } from "../support/window.ts";

type Type = "s16" | "f16" | "f32" | "s32";

const image = (dtype: Type, extents: Readonly<Record<string, number>> = {}): Computation =>
  defineComputation({
    name: "filter",
    equation: "y[i,j] += x[i+r-1,j+s-1] * w[r,s]",
    extents: { i: 6, j: 90, r: 3, s: 3, ...extents },
    tensors: { x: dtype, w: dtype, y: dtype },
  });

const WINDOW: WindowSchedule = windowSchedule({ lanes: 32, rows: 2, vectors: 2, weights: "memory" });

/** Results lie on lanes, columns come one after another. */
const BY_COLUMNS: DesignSchedule = {
  transform: {
    loops: ["j", "r", "s"],
    allocation: [1, 0, 0],
    schedule: [
      [0, 1, 0],
      [0, 0, 1],
    ],
  },
  lanes: 32,
  tile: { j: 32 },
  beside: { i: 2 },
  inputs: "passed",
  streaming: false,
  threads: 1,
};

const windowOf = (dtype: Type, intrinsic: string, changes: Partial<WindowSchedule> = {}) =>
  kernelFor(image(dtype), { kind: "window", intrinsic, schedule: { ...WINDOW, ...changes } });

describe("lanes of 16 bits", () => {
  it("read as words of AVX-512 and AVX2, and as halves of AVX512-FP16", () => {
    const operations = (text: string): string[] => [
      ...new Set(text.match(/_mm\d+_(mullo|add|fmadd)_\w+|(words|halves)_from<\d+>|_mm\d+_alignr_epi8/g)),
    ];
    const of = (dtype: Type, intrinsic: string, changes: Partial<WindowSchedule>) =>
      operations(`${windowOf(dtype, intrinsic, changes).source}`);
    expect([
      of("s16", "avx512.vpmullw", { dataflow: "SBM" }),
      of("s16", "avx2.vpmullw", { dataflow: "SBM", lanes: 16 }),
      of("f16", "avx512.fma.f16", { dataflow: "SBM" }),
    ]).toMatchInlineSnapshot(`
      [
        [
          "_mm512_alignr_epi8",
          "_mm512_mullo_epi16",
          "_mm512_add_epi16",
          "words_from<31>",
        ],
        [
          "_mm256_alignr_epi8",
          "_mm256_mullo_epi16",
          "_mm256_add_epi16",
          "words_from<15>",
        ],
        [
          "_mm512_alignr_epi8",
          "_mm512_fmadd_ph",
          "halves_from<31>",
        ],
      ]
    `);
  });

  it("need the extension that computes in them", () => {
    expect(windowOf("s16", "avx512.vpmullw")).toMatchObject({ promises: "vpmullw" });
    expect(windowOf("s16", "avx512.vpmullw").features).not.toContain("avx512fp16");
    expect(windowOf("f16", "avx512.fma.f16")).toMatchObject({ promises: "vfmadd132ph" });
    expect(windowOf("f16", "avx512.fma.f16").features).toContain("avx512fp16");
  });

  it("promise no multiply-add for a window of one tap, which has nothing to add", () => {
    const schedule = { ...WINDOW, rows: 1 };
    const promised = (r: number): string | undefined =>
      kernelFor(image("f16", { r, s: 1 }), { kind: "window", intrinsic: "avx512.fma.f16", schedule }).promises;
    expect([promised(1), promised(2)]).toEqual([undefined, "vfmadd132ph"]);
  });

  it("add the low 16 bits of products of s16, as the equation does", () => {
    const computation = image("s16");
    const alternating = (tensor: string, x: number): Float64Array =>
      Float64Array.from({ length: elementCount(tensorOf(computation, tensor)) }, (_, i) => (i % 2 === 0 ? x : -x - 1));
    const inputs = { x: alternating("x", 32767), w: alternating("w", 30000) };
    const expected = interpret(computation, inputs);
    expect(expected.some((sum) => Math.abs(sum) > 255)).toBe(true);
    expect(interpretNest(lowerWindow(computation, WINDOW), computation, inputs)).toEqual(expected);
  });

  it("round after every product of f16, where the equation rounds its sum once", () => {
    const computation = image("f16", { i: 2, j: 40, r: 1, s: 4 });
    const x = new Float64Array(elementCount(tensorOf(computation, "x"))).fill(2048);
    const inputs = { x, w: Float64Array.of(1, 2 ** -11, 2 ** -11, 2 ** -11) };
    // Halves above 2048 are even: 2048 + 1 is 2048 again, and 2051 is 2052.
    expect(interpretNest(lowerWindow(computation, { ...WINDOW, rows: 1 }), computation, inputs)[45]).toBe(2048);
    expect(interpret(computation, inputs)[45]).toBe(2052);
  });

  it("are refused with the reason", () => {
    const array =
      (dtype: Type, intrinsic: string, changes: Partial<DesignSchedule> = {}) =>
      () =>
        kernelFor(image(dtype), { kind: "design", intrinsic, schedule: { ...BY_COLUMNS, ...changes } });
    expect(array("f32", "avx512.vpmullw", { lanes: 16, tile: { j: 16 } })).toThrow(
      "avx512.vpmullw adds 16 bits, and not all tensors are of one such type",
    );
    const window = { kind: "window", intrinsic: "avx2.vpmullw", schedule: WINDOW } as const;
    expect(() => kernelFor(image("s16"), window)).toThrow("32 lanes, but a register of AVX2 has 16");
    expect(array("s16", "avx512.vpmulld")).toThrow("32 lanes, but a register of AVX-512 has 16");
    expect(array("s16", "avx512.vpmullw", { lanes: 64, tile: { j: 64 } })).toThrow(
      "64 lanes, but a register of AVX-512 has 32",
    );
    expect(() => windowOf("f16", "avx2.fma.f32", { lanes: 8 })).toThrow("lanes of AVX2 do not compute in f16");
  });
});

describe("searches of 16-bit sums", () => {
  const avx512 = ["avx512.fma.f32", "avx512.fma.f16"].map((name) => declaredAs(name));
  const avx2 = ["avx2.fma.f32"].map((name) => declaredAs(name));
  const target = modelTarget(nativeTarget());

  it("take the multiply-add of the widest lanes that the machine has", () => {
    const named = (dtype: Type, from: typeof avx512) => multiplyAddOf(image(dtype), from)?.name;
    expect([named("s16", avx512), named("f16", avx512), named("s16", avx2), named("f16", avx512.slice(0, 1))]).toEqual([
      "avx512.vpmullw",
      "avx512.fma.f16",
      "avx2.vpmullw",
      "avx512.fma.f32",
    ]);
    expect([windowLanes("s16", avx512)?.name, windowLanes("s32", avx2)?.name, windowLanes("f16", avx2)]).toEqual([
      "avx512.vpmullw",
      "avx2.vpmulld",
      undefined,
    ]);
  });

  it("have twice the lanes, and are predicted to be faster than with 32 bits where data are in a cache", () => {
    const best = (dtype: Type): { lanes: number | undefined; seconds: number } => {
      const intrinsic = multiplyAddOf(image(dtype), avx512);
      if (!intrinsic) throw new Error("no lanes");
      const vectors = registersOf(intrinsic);
      const computation = image(dtype, { i: 64, j: 256 });
      const arrays = finished(arraySpaceOf(computation, { threads: 1, target, vectors, mixed: 2 }));
      const windows = windowSpace(computation, { threads: 1, target, vectors });
      if ("rule" in arrays || "rule" in windows) throw new Error("no space");
      const [first] = arrays.all();
      expect([...windows.all()].every((s) => s.lanes === first?.lanes)).toBe(true);
      const seconds = Math.min(...[...windows.all()].map((s) => windows.expectedSeconds(s)));
      if (!first) throw new Error("no design");
      return { lanes: first.lanes, seconds: Math.max(seconds, arrays.expectedSeconds(first)) };
    };
    const [s16, f16, s32, f32] = [best("s16"), best("f16"), best("s32"), best("f32")];
    expect([s16.lanes, f16.lanes, s32.lanes, f32.lanes]).toEqual([32, 32, 16, 16]);
    expect(s16.seconds).toBeLessThan(s32.seconds);
    expect(f16.seconds).toBeLessThan(f32.seconds);
  });
});

const { features } = readProcessor();

describe.skipIf(!features.includes("avx512dq"))("kernels of words on a processor with AVX-512", () => {
  let runner: Runner;
  beforeAll(async () => {
    runner = await runnerHere({ threads: 1, budgetSeconds: 0.002, batches: [1, 2] });
  });
  afterAll(() => runner.close());

  it.each([
    ["a window that moves sums, on AVX-512", "avx512.vpmullw", { ...WINDOW, dataflow: "SBM" }],
    ["a window in lines, on AVX2", "avx2.vpmullw", { ...WINDOW, lanes: 16, lines: "carried" }],
    ["a transform that passes data, on AVX-512", "avx512.vpmullw", BY_COLUMNS],
  ] as const)("equal the equation on random and extreme inputs: %s", async (_, intrinsic, schedule) => {
    const computation = image("s16");
    const kernel =
      "transform" in schedule
        ? kernelFor(computation, { kind: "design", intrinsic, schedule })
        : kernelFor(computation, { kind: "window", intrinsic, schedule });
    const measured = await runner.measure(kernel, await runner.reference(computation, 1));
    expect(measured.status, "log" in measured ? measured.log : "").toBe("ok");
  });
});
