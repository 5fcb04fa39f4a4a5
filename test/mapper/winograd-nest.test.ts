/** Convolutions by Winograd's transforms in one nest: interpreted, they are the convolution; and which schedules they have. */

import { describe, expect, it } from "vitest";
import type { WinogradSchedule } from "../../abstraction/candidate.ts";
import { type ComputationSpec, defineComputation, elementCount, inputsOf } from "../../abstraction/computation.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import { randomInteger, seededRandom } from "../../abstraction/random.ts";
import { boundOfForm } from "../../abstraction/winograd.ts";
import { intrinsicNamed } from "../../intrinsics/index.ts";
import { lowerWinograd } from "../../mapper/lower/winograd.ts";
import { allSchedules, problemIn } from "../../mapper/schedule/schedules.ts";
import {
  formUnder,
  WINOGRAD,
  type WinogradContext,
  winogradContext,
} from "../../mapper/schedule/winograd-decisions.ts";

const BROADCAST = intrinsicNamed("avx512.fma.f32.broadcast");

/** A convolution of 16 channels, with 20 filters: those of the second vector are padded. */
function layer(change: Partial<ComputationSpec> = {}, { n = 1, h = 7, w = 6, pad = 1 } = {}) {
  return defineComputation({
    equation: `out[n,k,p,q] += in[n,c,p+r-${pad},q+s-${pad}] * w[k,c,r,s]`,
    extents: { n, k: 20, p: h + 2 * pad - 2, q: w + 2 * pad - 2, c: 16, r: 3, s: 3 },
    tensors: { in: { dtype: "f32", shape: [n, 16, h, w] }, w: { dtype: "f32", constant: true } },
    ...change,
  });
}

function contextOf(computation: ReturnType<typeof layer>, threads = 1): WinogradContext {
  if (!BROADCAST) throw new Error("no instruction");
  const context = winogradContext(computation, BROADCAST, threads, 2 ** 20);
  if (typeof context === "string") throw new Error(context);
  return context;
}

const PLAIN: WinogradSchedule = { outputs: 4, images: 1, rows: 1, windows: 2, vectors: 1, threads: 1 };

/** The largest difference from the convolution, of two calls with small integers, beside the largest result. */
function differenceOf(
  computation: ReturnType<typeof layer>,
  change: Partial<WinogradSchedule>,
): readonly [number, number] {
  const schedule = { ...PLAIN, ...change };
  const context = contextOf(computation, schedule.threads);
  const form = formUnder(context, schedule);
  if (typeof form === "string") throw new Error(form);
  expect(problemIn(WINOGRAD, context, schedule)).toBeUndefined();
  const random = seededRandom(7);
  const inputs = Object.fromEntries(
    inputsOf(computation).map((t) => [
      t.name,
      Float64Array.from({ length: elementCount(t) }, () => randomInteger(random, -3, 3)),
    ]),
  );
  const wanted = interpret(computation, inputs);
  const made = interpretNest(lowerWinograd(form, schedule).nest, computation, inputs, 2);
  const apart = Array.from(wanted, (x, i) => Math.abs(x - (made[i] ?? Number.NaN)));
  return [Math.max(...apart), Math.max(...wanted)];
}

describe("a convolution by Winograd's transforms in one nest", () => {
  it.each([
    ["windows of two rows, one at a time", {}, {}, {}],
    ["windows of 4 x 4", {}, {}, { outputs: 2, rows: 2, vectors: 2 }],
    ["blocks of which the last reaches beyond the image", {}, { h: 9 }, { rows: 2 }],
    ["all windows at once", {}, {}, { rows: 2, windows: 3 }],
    ["images of a block", {}, { n: 4 }, { images: 2, rows: 2 }],
    ["blocks dealt to threads", {}, { n: 3, h: 9 }, { rows: 1, threads: 2 }],
    ["no border", {}, { pad: 0, h: 8, w: 9 }, { rows: 1 }],
    [
      "a bias and a residual",
      {
        equation:
          "out[n,k,p,q] += in[n,c,p+r-1,q+s-1] * w[k,c,r,s]; res[n,k,p,q] = max(out[n,k,p,q] + bias[k] + x[n,k,p,q], 0)",
        tensors: {
          in: { dtype: "f32", shape: [1, 16, 7, 6] },
          w: { dtype: "f32", constant: true },
          bias: "f32",
          x: "f32",
        },
      },
      {},
      { rows: 1 },
    ],
    [
      "channels innermost",
      {
        tensors: {
          out: { dtype: "f32", storage: "((n*7 + p)*6 + q)*20 + k" },
          in: { dtype: "f32", shape: [1, 16, 7, 6], storage: "((n*7 + d2)*6 + d3)*16 + c" },
          w: { dtype: "f32", constant: true },
        },
      },
      {},
      { rows: 1 },
    ],
  ] as const)("is the convolution: %s", (_, spec, sizes, schedule) => {
    const [apart, most] = differenceOf(layer(spec, sizes), schedule);
    expect(most).toBeGreaterThan(50);
    expect(apart).toBeLessThan(1e-3);
  });

  it("has schedules whose blocks lie in the caches, and whose register tiles fit", () => {
    const context = contextOf(layer({}, { h: 56, w: 56 }));
    const all = [...allSchedules(WINOGRAD, context)];
    expect(all.length).toBeGreaterThan(20);
    expect(all.every((s) => problemIn(WINOGRAD, context, s) === undefined)).toBe(true);
    const problem = (change: Partial<WinogradSchedule>) => problemIn(WINOGRAD, context, { ...PLAIN, ...change });
    expect(problem({ images: 2 })).toBe("images: 2 do not divide 1");
    expect(problem({ rows: 15 })).toBe("rows: 15 of 14");
    expect(problem({ windows: 14, vectors: 3 })).toContain("registers of 32");
  });

  it.each([
    [
      "a stride",
      {
        equation: "out[n,k,p,q] += in[n,c,p*2+r,q*2+s] * w[k,c,r,s]",
        tensors: { in: "f32", w: { dtype: "f32", constant: true } },
      },
    ],
    ["filters that change", { tensors: { in: { dtype: "f32", shape: [1, 16, 7, 6] }, w: "f32" } }],
    [
      "integers",
      {
        equation: "out[n,k,p,q] += s32(in[n,c,p+r,q+s]) * s32(w[k,c,r,s])",
        tensors: { in: "u8", w: { dtype: "s8", constant: true } },
      },
    ],
  ] as const)("is no form of a convolution with %s", (_, spec) => {
    const computation = layer(spec);
    expect(BROADCAST && winogradContext(computation, BROADCAST, 1)).toContain("no convolution of 3 x 3 in f32");
    expect(boundOfForm(computation)).toBeUndefined();
  });

  it("may be off by a multiple of the bound of the equation", () => {
    expect(boundOfForm(layer())?.growth).toBe(576);
    expect(Math.round(boundOfForm(layer())?.factor ?? 0)).toBe(256);
  });
});
