/** @file The oracle against loops written without it. Results worked out by hand are in test/golden/computations. */

import { describe, expect, it } from "vitest";
import { defineComputation } from "../../abstraction/computation.ts";
import { interpret, interpretInPlace } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import { defineIntrinsic } from "../../abstraction/intrinsic.ts";
import { type LoopNest, loops, type Statement } from "../../abstraction/loop-nest.ts";
import { parseEquation, parseExpr } from "../../abstraction/parse.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import fc from "../support/property.ts";
import { stated } from "../support/subjects.ts";

it.each([
  ["sat+=", 127],
  ["+=", -96],
  ["max=", 100],
])("%s adds to a register that already holds 100", (op, result) => {
  const y = Float64Array.of(100);
  interpretInPlace(stated(`y[] ${op} x[i] --i 3 --dtype s8`), { y, x: Float64Array.of(20, 20, 20) });
  expect([...y]).toEqual([result]);
});

describe("inputs", () => {
  const sum = stated("y[] += x[i] --i 3 --dtype s32 --name sum");

  it("must be there and have the size of their tensors", () => {
    expect(() => interpret(sum, {})).toThrowErrorMatchingInlineSnapshot(`[Error: sum: no values for tensor "x"]`);
    expect(() => interpret(sum, { x: [1, 2] })).toThrowErrorMatchingInlineSnapshot(
      "[Error: sum: x has 3 elements, got 2]",
    );
  });

  it("are not changed", () => {
    const x = Float64Array.of(1, 2, 3);
    expect([...interpret(sum, { x })]).toEqual([6]);
    expect([...x]).toEqual([1, 2, 3]);
  });
});

/** The same convolution as plain loops over a padded image, written apart from the notation. */
function convolve(
  { n, c, h, w, k, r, s }: Record<"n" | "c" | "h" | "w" | "k" | "r" | "s", number>,
  { stride, pad, dilation }: Record<"stride" | "pad" | "dilation", number>,
  image: readonly number[],
  weight: readonly number[],
): number[] {
  const span = (size: number, kernel: number): number =>
    Math.floor((size + 2 * pad - dilation * (kernel - 1) - 1) / stride) + 1;
  const padded = new Map<string, number>();
  let next = 0;
  for (let b = 0; b < n; b++)
    for (let ch = 0; ch < c; ch++)
      for (let y = 0; y < h; y++)
        for (let x = 0; x < w; x++) padded.set(`${b},${ch},${y + pad},${x + pad}`, image[next++] ?? 0);
  const out: number[] = [];
  for (let b = 0; b < n; b++)
    for (let o = 0; o < k; o++)
      for (let top = 0; top < span(h, r) * stride; top += stride)
        for (let left = 0; left < span(w, s) * stride; left += stride) {
          let sum = 0;
          let at = o * c * r * s;
          for (let ch = 0; ch < c; ch++)
            for (let y = 0; y < r; y++)
              for (let x = 0; x < s; x++)
                sum +=
                  (padded.get(`${b},${ch},${top + y * dilation},${left + x * dilation}`) ?? 0) * (weight[at++] ?? 0);
          out.push(sum);
        }
  return out;
}

describe("a convolution", () => {
  it("equals plain loops over a padded image, for any stride, padding and dilation", () => {
    const small = fc.integer({ min: 1, max: 3 });
    const size = fc.integer({ min: 1, max: 7 });
    const shape = fc.record({
      n: fc.integer({ min: 1, max: 2 }),
      c: small,
      h: size,
      w: size,
      k: small,
      r: small,
      s: small,
    });
    const window = fc.record({ stride: small, pad: fc.nat(2), dilation: fc.integer({ min: 1, max: 2 }) });
    const numbers = fc.infiniteStream(fc.integer({ min: -128, max: 127 }));
    const property = fc.property(shape, window, numbers, (dims, { stride, pad, dilation }, values) => {
      const { n, c, h, w, k, r, s } = dims;
      const p = Math.floor((h + 2 * pad - dilation * (r - 1) - 1) / stride) + 1;
      const q = Math.floor((w + 2 * pad - dilation * (s - 1) - 1) / stride) + 1;
      fc.pre(p >= 1 && q >= 1);
      const computation = defineComputation({
        equation: "out[n,k,p,q] += s32(in[n,c,p*stride+r*dilation-pad,q*stride+s*dilation-pad]) * s32(w[k,c,r,s])",
        extents: { n, c, k, r, s, p, q },
        parameters: { stride, pad, dilation },
        tensors: { in: { dtype: "s8", shape: [n, c, h, w] }, w: "s8" },
      });
      const image = [...values.take(n * c * h * w)];
      const weight = [...values.take(k * c * r * s)];
      expect([...interpret(computation, { in: image, w: weight })]).toEqual(
        convolve(dims, { stride, pad, dilation }, image, weight),
      );
    });
    fc.assert(property, { numRuns: 100 });
  });
});

describe("a loop nest", () => {
  const toy = defineIntrinsic({
    name: "toy.2x2x2",
    family: "toy",
    isa: "virtual",
    language: "none",
    summary: "A 2x2x2 matrix product that holds b by columns.",
    compute: "c[m,n] += s32(a[m,k]) * s32(b[k,n])",
    extents: { m: 2, n: 2, k: 2 },
    operands: {
      a: { dtype: "s8", storage: "tile[2*m + k]" },
      b: { dtype: "s8", storage: "tile[2*n + k]" },
      c: { dtype: "s32", storage: "tile[2*m + n]" },
    },
    emit: "{c} = toy({c}, {a}, {b});",
    source: "invented for this test",
  });
  const steps = (...names: string[]): { name: string; extent: number }[] => names.map((name) => ({ name, extent: 2 }));
  const scalar = (text: string): Statement => ({ kind: "scalar", equation: parseEquation(text) });
  const tile = (buffer: string): { buffer: string; base: ReturnType<typeof parseExpr> } => ({
    buffer,
    base: parseExpr("0"),
  });

  // A matrix product of 3x3x3 in tiles of 2x2x2: the tails are copied as zeros and not stored.
  const nest: LoopNest = {
    scratch: [
      { name: "a_tile", dtype: "s8", elements: 4, scope: "local" },
      { name: "b_tile", dtype: "s8", elements: 4, scope: "local" },
      { name: "c_tile", dtype: "s32", elements: 4, scope: "local" },
    ],
    registers: [],
    prepare: [],
    body: loops(steps("m_outer", "n_outer"), [
      ...loops([{ name: "i", extent: 4 }], [scalar("c_tile[i] = 0")]),
      ...loops(steps("k_outer"), [
        ...loops(steps("m", "k"), [scalar("a_tile[2*m+k] = a[2*m_outer+m,2*k_outer+k]")]),
        ...loops(steps("k", "n"), [scalar("b_tile[2*n+k] = b[2*k_outer+k,2*n_outer+n]")]),
        { kind: "issue", intrinsic: toy, tiles: { a: tile("a_tile"), b: tile("b_tile"), c: tile("c_tile") } },
      ]),
      ...loops(steps("m", "n"), [scalar("c[2*m_outer+m,2*n_outer+n] = c_tile[2*m+n]")]),
    ]),
  };

  it("prints as a program", () => {
    expect(printNest(nest)).toMatchInlineSnapshot(`
      "local a_tile: s8[4]
      local b_tile: s8[4]
      local c_tile: s32[4]
      for m_outer in 0..2
        for n_outer in 0..2
          for i in 0..4
            c_tile[i] = 0
          for k_outer in 0..2
            for m in 0..2
              for k in 0..2
                a_tile[2*m+k] = a[2*m_outer+m,2*k_outer+k]
            for k in 0..2
              for n in 0..2
                b_tile[2*n+k] = b[2*k_outer+k,2*n_outer+n]
            c_tile[0 ..] <- toy.2x2x2(a_tile[0 ..], b_tile[0 ..])
          for m in 0..2
            for n in 0..2
              c[2*m_outer+m,2*n_outer+n] = c_tile[2*m+n]"
    `);
  });

  it("gives the results of its computation", () => {
    const matmul = stated("c[i,j] += s32(a[i,l]) * s32(b[l,j]) --i 3 --j 3 --l 3 --dtype s8");
    const matrix = fc.array(fc.integer({ min: -128, max: 127 }), { minLength: 9, maxLength: 9 });
    fc.assert(
      fc.property(
        matrix,
        matrix,
        (a, b) => void expect(interpretNest(nest, matmul, { a, b })).toEqual(interpret(matmul, { a, b })),
      ),
    );
  });
});
