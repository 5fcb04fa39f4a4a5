/** @file Kernels with an epilogue, compiled and run, equal their equations; so does the compiled reference. */

import { afterAll, describe, expect, it } from "vitest";
import {
  type Computation,
  defineComputation,
  equationText,
  inputsOf,
  outputOf,
} from "../../abstraction/computation.ts";
import { partsOf } from "../../abstraction/epilogue.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import { printMatching } from "../../abstraction/mapping.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { pick, type Random, seededRandom } from "../../abstraction/random.ts";
import type { SourceText } from "../../abstraction/source-text.ts";
import { lowerMapping } from "../../mapper/lower/plain.ts";
import { lowerSchedule } from "../../mapper/lower/scheduled.ts";
import { randomSchedule } from "../../mapper/schedule/mapped.ts";
import { intervalsOf } from "../../runtime/reference/interval.ts";
import { interpretCompiled } from "../../runtime/reference/reference-program.ts";
import { fromMemory } from "../../runtime/reference/verify.ts";
import { nativeTarget } from "../../targets/index.ts";
import { runnerHere } from "../support/here.ts";
import { inFull } from "../support/slow.ts";
import { emulatedX86, sourceOf } from "../support/source.ts";
import { mappedKernel, mappingNamed, mappingsOnto, operation, rowNamed, smallIntegers } from "../support/subjects.ts";

const CASES = [
  "conv2d c=5 k=18 h=5 w=7 r=3 s=3 NHWC",
  "conv2d c=6 k=33 h=5 w=4 r=3 s=3 stride=2 NCHW",
  "grouped-conv2d c=8 k=12 h=4 w=4 r=3 s=3 groups=2 NHWC",
  "depthwise-conv2d c=19 h=5 w=4 m=1 r=3 s=3 NHWC",
  "transposed-conv2d c=4 k=5 h=3 w=3 r=3 s=3 stride=2 NCHW",
  "matmul m=7 n=33 k=9",
];
const NAMES = ["requantize", "bias-relu", "bf16"];

const typed = (words: string, on: Intrinsic, epilogue: string): Computation => operation(words, on, { epilogue });

it("every schedule of every mapping applies the epilogue, twice in a row; so does the trivial one", () => {
  const random = seededRandom(5);
  let ran = 0;
  for (const row of CASES) {
    for (const name of ["avx512.fma.f32", "avx512.vpdpbusd", "avx512.vdpbf16ps", "amx.tdpbusd", "toy.2x2x2"]) {
      const on = rowNamed(name);
      const computation = typed(row, on, pick(random, NAMES));
      const valid = mappingsOnto(computation, on);
      if (valid.length === 0) continue;
      const inputs = smallIntegers(computation, random);
      const expected = interpret(computation, inputs);
      for (let i = 0; i < (name.startsWith("amx") ? 1 : inFull(4, 2)); i++) {
        const mapping = pick(random, valid);
        const schedule = randomSchedule(mapping, random);
        const nest = i === inFull(3, 1) ? lowerMapping(mapping) : lowerSchedule(mapping, schedule);
        expect(printNest(nest)).not.toMatch(/^ *out\[/m);
        const got = interpretNest(nest, computation, inputs, 2);
        const wrong = got.findIndex((x, at) => x !== expected[at]);
        if (wrong >= 0)
          throw new Error(
            `${row} on ${name}: ${printMatching(mapping.matching)} ${JSON.stringify(schedule)}: element ${wrong} is ${got[wrong]}, not ${expected[wrong]}\n${printNest(nest)}`,
          );
        ran++;
      }
    }
  }
  expect(ran).toBeGreaterThan(inFull(60, 30));
});

it("an epilogue stores whole blocks without a test, the output's contiguous axis innermost", () => {
  const on = rowNamed("avx512.vpdpbusd");
  const stores = (layout: string): string => {
    const computation = typed(`conv2d c=4 k=40 h=2 w=2 r=1 s=1 pad=0 ${layout}`, on, "requantize");
    const mapping = mappingNamed(computation, on, "n <- k; k <- c");
    const schedule = {
      order: ["n", "p", "q", "k", "r", "s", "c"],
      block: { q: 2, k: 3 },
      placement: { a: "tiled", b: "tiled" } as const,
      threads: 1,
    };
    const lines = printNest(lowerSchedule(mapping, schedule)).split("\n");
    return lines.slice(lines.findLastIndex((l) => l.includes("<- c_register{")) + 1).join("\n");
  };
  expect(stores("NHWC")).toMatchInlineSnapshot(`
    "    for q_block in 0..2
          for k_block in 0..2
            for n_inner in 0..16
              res[0,k_block*16+n_inner,p_outer,q_block] = sat_u8(round(max(f32(c_results[(q_block*3+k_block)*16+n_inner]) * scale[k_block*16+n_inner] + bias[k_block*16+n_inner], 0)))
        for q_block in 0..2
          for n_inner in 0..8
            res[0,32+n_inner,p_outer,q_block] = sat_u8(round(max(f32(c_results[(q_block*3+2)*16+n_inner]) * scale[32+n_inner] + bias[32+n_inner], 0)))"
  `);
  expect(stores("NCHW")).toMatchInlineSnapshot(`
    "    for k_block in 0..2
          for q_block in 0..2
            for n_inner in 0..16
              res[0,k_block*16+n_inner,p_outer,q_block] = sat_u8(round(max(f32(c_results[(q_block*3+k_block)*16+n_inner]) * scale[k_block*16+n_inner] + bias[k_block*16+n_inner], 0)))
        for q_block in 0..2
          for n_inner in 0..8
            res[0,32+n_inner,p_outer,q_block] = sat_u8(round(max(f32(c_results[(q_block*3+2)*16+n_inner]) * scale[32+n_inner] + bias[32+n_inner], 0)))"
  `);
});

// ------------------------------------------------------------------------------------------------- compiled

const QUICK = { budgetSeconds: 0.002, batchSeconds: 1e-5, batches: [1, 2] as const };

const runner = await runnerHere({ threads: 1, flags: inFull([], ["-O1"]) });
afterAll(() => runner.close());

async function measured(computation: Computation, on: Intrinsic, random: Random): Promise<string | undefined> {
  const valid = mappingsOnto(computation, on);
  const mapping = valid[Math.floor(random() * valid.length)];
  if (!mapping) return "no mapping";
  const schedule = randomSchedule(mapping, random);
  const kernel = mappedKernel(mapping, schedule);
  const here = nativeTarget().isa.includes(on.isa);
  const reference = await runner.reference(computation, 3);
  const result = await runner.measure(here ? kernel : emulatedX86(kernel, on), reference, QUICK);
  if (result.status === "ok") return undefined;
  return `${equationText(computation)} ${printMatching(mapping.matching)} ${JSON.stringify(schedule)}: ${result.status} ${result.log}`;
}

describe("kernels with an epilogue, compiled and run, equal their equations", () => {
  const ON = [
    "avx2.fma.f32.broadcast",
    "avx512.fma.f32.broadcast",
    "avx512.fma.f32",
    "avx512.vpdpbusd",
    "avx512.vpdpbusd.lanes",
    "avx512.vdpbf16ps",
    "amx.tdpbusd",
    "amx.tdpbf16ps",
  ];
  it.each(ON)("on %s, by the CPU or under emulation", async (name) => {
    const on = rowNamed(name);
    const random = seededRandom(23);
    // Every instruction and every epilogue in a short run, not every pair.
    const names = inFull(NAMES, [NAMES[ON.indexOf(name) % NAMES.length] ?? "bf16"]);
    const ran = names.map((epilogue) => {
      const i = NAMES.indexOf(epilogue);
      const rows = CASES.filter((row) => mappingsOnto(typed(row, on, epilogue), on).length > 0);
      const row = rows[(i * 2) % rows.length];
      return row ? measured(typed(row, on, epilogue), on, random) : "nothing maps";
    });
    expect((await Promise.all(ran)).filter((problem) => problem !== undefined)).toEqual([]);
  });

  it("in every kind of arithmetic", async () => {
    const on = rowNamed("avx512.vpdpbusd");
    const random = seededRandom(29);
    const epilogues = [
      "res[m,n] = sat_s8(round(f32(out[m,n]) * x[n]) - 3)",
      "res[m,n] = s16(f32(out[m,n]) * x[n])",
      "res[m,n] = sat_s32(f32(out[m,n]) * x[n] * 1e9)",
      "res[m,n] = sat_u32(f64(out[m,n]) * -3.5)",
      "res[m,n] = u8(out[m,n] / 3 % 100) + y[n]",
      "res[m,n] = sat_s16(min(out[m,n] / z[m,n], abs(out[m,n])))",
      "res[m,n] = f16(out[m,n])",
      "res[m,n] = bf16(f64(out[m,n]) * 1.0000001)",
      "res[m,n] = v[m] * bf16(out[m,n]) + v[m]",
      "res[m,n] = max(f32(out[m,n]) * x[n], x[n]) + f32(n)",
      "res[m,n] = sat_u8(f32(out[m,n]) * (x[n] - x[n]) / (x[n] - x[n]))",
      "res[m,n] = sat_s8(f32(out[m,n]) * (x[n] - x[n]) / (x[n] - x[n]))",
      "res[m,n] = sat_u16(round(max(f32(out[m,n]), 3)) / (x[n] - x[n]))",
      "res[m,n] = sat_u16(out[m,n] * 900)",
      "res[m,n] = s8(out[m,n] * 77) - s8(y[n])",
      "res[m,n] = select(n < m + 3, y[n] * y[n], u8(out[m,n]))",
      "res[m,n] = f16(v[m] * bf16(f32(out[m,n])))",
      "res[m,n] = s8(f32(out[m,n]) * x[n] * 1e8)",
      "res[n,m] = min(-square(f32(out[m,n])), 7) / x[n]",
    ];
    const ran = epilogues.map((epilogue) =>
      measured(
        defineComputation({
          equation: "out[m,n] += s32(a[m,k]) * s32(b[k,n])",
          epilogue,
          extents: { m: 5, n: 37, k: 6 },
          tensors: {
            a: "u8",
            b: "s8",
            ...(epilogue.includes("x[") ? { x: "f32" } : {}),
            ...(epilogue.includes("y[") ? { y: "u8" } : {}),
            ...(epilogue.includes("z[") ? { z: "s32" } : {}),
            ...(epilogue.includes("v[") ? { v: "bf16" } : {}),
          },
        }),
        on,
        random,
      ),
    );
    expect((await Promise.all(ran)).filter((problem) => problem !== undefined)).toEqual([]);
  });

  it("except a kernel with a wrong epilogue, which is caught", async () => {
    const on = rowNamed("avx512.vpdpbusd");
    const computation = typed("matmul m=4 n=32 k=8", on, "requantize");
    const [mapping] = mappingsOnto(computation, on);
    if (!mapping) throw new Error("no mapping");
    const schedule = randomSchedule(mapping, seededRandom(1));
    const right = mappedKernel(mapping, schedule);
    const reference = await runner.reference(computation, 3);
    const of = async (source: SourceText): Promise<string> =>
      (
        await runner.measure(
          nativeTarget().isa.includes(on.isa) ? { ...right, source } : emulatedX86({ ...right, source }, on),
          reference,
          QUICK,
        )
      ).status;
    expect(await of(right.source)).toBe("ok");
    // Rows that run on a CPU with AVX-512, and rows run by an emulation of the instruction.
    const wrongs = nativeTarget().isa.includes(on.isa)
      ? ([
          ["_mm512_cvtusepi32_epi8", "_mm512_cvtsepi32_epi8"],
          ["_mm512_cvtps_epi32", "_mm512_cvttps_epi32"],
          ["_mm512_setzero_ps()", "_mm512_set1_ps(9.0f)"],
          ["_mm512_add_ps", "_mm512_sub_ps"],
        ] as const)
      : ([
          ["255.0f", "254.0f"],
          ["__builtin_rintf", "__builtin_truncf"],
          ["(0.0f)", "(9.0f)"],
          ["+ (bias", "- (bias"],
        ] as const);
    for (const [from, to] of wrongs) {
      expect(right.source).toContain(from);
      expect([from, await of(sourceOf(right.source.replaceAll(from, to)))]).toEqual([from, "wrong"]);
    }
  });
});

describe("the reference of a computation with an epilogue", () => {
  it("is exact for integer sums, whatever the output", async () => {
    for (const epilogue of NAMES) {
      const on = rowNamed("avx512.vpdpbusd");
      const row = "matmul m=6 n=20 k=9";
      const { sets } = await runner.reference(typed(row, on, epilogue), 4);
      for (const set of sets) expect(set.tolerance.every((x) => x === 0)).toBe(true);
    }
  });

  it("draws scales and biases for which the output is neither constant nor saturated throughout", async () => {
    const on = rowNamed("avx512.vpdpbusd");
    const { sets } = await runner.reference(typed("matmul m=16 n=32 k=64", on, "requantize"), 4);
    for (const { expected } of sets) {
      const inside = expected.filter((x) => x > 0 && x < 255);
      expect(new Set(inside).size).toBeGreaterThan(60);
      expect([expected.includes(0), expected.includes(255)]).toEqual([true, true]);
    }
  });

  it("is computed alike by the interpreter and by the compiled program", async () => {
    const on = rowNamed("avx512.fma.f32");
    const computation = typed("matmul m=6 n=20 k=9", on, "requantize");
    const inputs = smallIntegers(computation, seededRandom(8));
    const { compiler, workdir } = runner;
    expect(await interpretCompiled(computation, inputs, { compiler, workdir })).toEqual(interpret(computation, inputs));
  });

  it("allows the epilogue's results for sums within their tolerance, and no others", async () => {
    const of = async (epilogue: string, low: number, high: number, x = 2): Promise<[number, number]> => {
      const computation = defineComputation({
        equation: "out[i] += a[i,k]",
        epilogue,
        extents: { i: 1, k: 1 },
        tensors: { a: "f32", ...(epilogue.includes("x[") ? { x: "f32" } : {}) },
      });
      const { epilogue: part } = partsOf(computation);
      if (!part) throw new Error("no epilogue");
      const ends = { low: Float64Array.of(low), high: Float64Array.of(high) };
      const got = await intervalsOf(part, { x: [x] }, "out", ends, runner);
      return [(got.low[0] ?? Number.NaN) + 0, (got.high[0] ?? Number.NaN) + 0];
    };
    expect(await of("r[i] = sat_u8(round(out[i]))", 3.4, 3.6)).toEqual([3, 4]);
    expect(await of("r[i] = sat_u8(round(out[i]))", 3.6, 3.9)).toEqual([4, 4]);
    expect(await of("r[i] = max(out[i], 0) * x[i]", -1, 2, -2)).toEqual([-4, 0]);
    expect(await of("r[i] = square(out[i]) - x[i]", -3, 2)).toEqual([-2, 7]);
    expect(await of("r[i] = abs(out[i])", -3, -2)).toEqual([2, 3]);
    expect(await of("r[i] = x[i] / out[i]", 1, 4)).toEqual([0.5, 2]);
    expect(await of("r[i] = x[i] / out[i]", -1, 4)).toEqual([Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY]);
    expect(await of("r[i] = u8(out[i])", 254.5, 255.5)).toEqual([254, 255]);
    expect(await of("r[i] = u8(out[i])", 254.5, 256.5)).toEqual([0, 255]);
    expect(await of("r[i] = out[i] - out[i]", 1, 2)).toEqual([-1, 1]);
    expect(await of("r[i] = bf16(out[i])", 1, 1.005)).toEqual([1, 1.0078125]);
  });

  it("holds the interval of random sums of random epilogues", async () => {
    const on = rowNamed("avx512.fma.f32");
    for (const epilogue of NAMES) {
      const computation = typed("matmul m=6 n=20 k=50", on, epilogue);
      const reference = await runner.reference(computation, 5);
      const random = seededRandom(31);
      const { sum, epilogue: part } = partsOf(computation);
      if (!part) throw new Error("no epilogue");
      for (const set of reference.sets.slice(1)) {
        const inputs = Object.fromEntries(
          inputsOf(computation).map((t) => [
            t.name,
            new Float32Array(Uint8Array.from(set.inputs[t.name] ?? []).buffer),
          ]),
        );
        const sums = interpret(sum, inputs);
        // Half a unit in the last place of the largest term, many times: well within the bound of any summation.
        const shaken = sums.map((x) => Math.fround(x * (1 + (random() - 0.5) * 2 ** -22)));
        const got = interpret(part, { ...inputs, out: shaken });
        const expected = fromMemory(outputOf(computation), set.expected);
        const tolerance = fromMemory(outputOf(computation), set.tolerance);
        for (const [i, x] of got.entries())
          expect(Math.abs(x - (expected[i] ?? 0))).toBeLessThanOrEqual(tolerance[i] ?? 0);
      }
    }
  });
});

// ------------------------------------------------------------------------------------------------- operators and words
