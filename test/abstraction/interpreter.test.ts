/** @file The oracle against results worked out by hand, and against loops written without it. */

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

/** `x 1 2 3; w 4 5` */
const inputsOf = (text: string): Record<string, number[]> =>
  Object.fromEntries(
    text.split("; ").map((part) => {
      const [name = "", ...values] = part.split(" ");
      return [name, values.map(Number)];
    }),
  );

/** Computations, their inputs, and their results. */
const CASES: Readonly<Record<string, readonly (readonly [line: string, inputs: string, output: string])[]>> = {
  "sums go over every axis that does not index the target": [
    ["y[i] += x[i,k] --i 2 --k 3 --dtype s32", "x 1 2 3 4 5 6", "6 15"],
    ["y[] += x[i] * x[i] --i 3", "x 1 2 3", "14"],
    ["c[m,n] += a[m,k] * b[k,n] --m 2 --n 2 --k 3 --dtype s32", "a 1 2 3 4 5 6; b 7 8 9 10 11 12", "58 64 139 154"],
  ],
  "outside a tensor stands the identity of the reduction, as where no point meets the condition": [
    ["y[i] += x[i+j-2] --i 5 --j 2 --shape x=2", "x 5 7", "0 5 12 7 0"],
    ["y[i] max= x[i+j-2] --i 5 --j 2 --shape x=2", "x 5 7", "-Infinity 5 7 7 -Infinity"],
    ["y[i] max= x[i+j-2] --i 5 --j 2 --shape x=2 --dtype s8", "x 5 7", "-128 5 7 7 -128"],
    ["y[i] min= x[i+j-2] --i 5 --j 2 --shape x=2", "x 5 7", "Infinity 5 5 7 Infinity"],
    ["y[i] min= x[i+j-2] --i 5 --j 2 --shape x=2 --dtype u8", "x 5 7", "255 5 5 7 255"],
    ["y[i] max= x[i,j] where j < i --i 2 --j 2", "x 1 2 3 4", "-Infinity 3"],
  ],
  "a sum saturates once, at its end": [
    ["y[] sat+= x[i] --i 3 --dtype s8", "x 100 100 -100", "100"],
    ["y[] sat+= x[i] --i 2 --dtype s8", "x 100 100", "127"],
    ["y[] sat+= x[i] --i 2 --dtype s8", "x -100 -100", "-128"],
  ],
  "integers wrap after every operation": [
    ["y[] = a[] + b[] --dtype u8", "a 200; b 100", "44"],
    ["y[] = a[] - b[] --dtype u8", "a 1; b 2", "255"],
    ["y[] = a[] * b[] --dtype s8", "a 100; b 3", "44"],
    ["y[] += x[i] --i 3 --dtype u8", "x 200 100 1", "45"],
    ["y[i] = -x[i] --i 2 --dtype s8", "x -128 5", "-128 -5"],
    ["y[i] = abs(x[i]) --i 2 --dtype s8", "x -128 -5", "-128 5"],
  ],
  "a product that no double holds keeps its low 32 bits": [
    ["y[] = a[] * b[] --dtype s32", "a 2147483647; b 2147483647", "1"],
    ["y[] = a[] * b[] --dtype s32", "a 123456789; b 987654321", "-67153019"],
    ["y[] = a[] * b[] --dtype u32", "a 4294967295; b 4294967295", "1"],
    ["y[] = square(x[]) --dtype s32", "x 65537", "131073"],
  ],
  "integers divide towards zero as elements, downwards as indices": [
    ["y[] = a[] / b[] --dtype s32", "a -7; b 2", "-3"],
    ["y[] = a[] % b[] --dtype s32", "a -7; b 2", "-1"],
    ["y[] = a[] / b[] --dtype s32", "a 7; b 0", "0"],
    ["y[] = a[] / b[] --dtype s32", "a -2147483648; b -1", "-2147483648"],
    ["y[i] = x[(i-4)/3+2] --i 6 --dtype s32 --shape x=4", "x 10 11 12 13", "10 11 11 11 12 12"],
    ["y[i] = x[(i-4)%3] --i 6 --dtype s32 --shape x=4", "x 10 11 12 13", "12 10 11 12 10 11"],
  ],
  "integers are cast by their low bits, or clamped": [
    ["y[i] = u8(x[i]) --i 4 --dtype s32", "x 300 -1 -200 5", "44 255 56 5"],
    ["y[i] = s8(x[i]) --i 4 --dtype s32", "x 300 -1 -200 5", "44 -1 56 5"],
    ["y[i] = sat_u8(x[i]) --i 4 --dtype s32", "x 300 -1 -200 5", "255 0 0 5"],
    ["y[i] = sat_s8(x[i]) --i 4 --dtype s32", "x 300 -1 -200 5", "127 -1 -128 5"],
    ["y[i] = s32(x[i]) --i 4", "x 1.9 -1.9 0.5 -0.5", "1 -1 0 0"],
    ["y[] = sat_s8(200)", "", "127"],
  ],
  "ties are rounded to even, and axes are numbers themselves": [
    ["q[i] = sat_u8(round(f32(x[i]) * 0.5) + 2) --i 7 --dtype s32", "x 1 3 5 -1 -3 1000 -1000", "2 4 4 2 0 255 0"],
    ["y[i,j] = i * 10 + j --i 2 --j 2", "", "0 1 10 11"],
  ],
  "floats are rounded after every operation, and a sum once": [
    ["y[] = x[0] + x[1] + x[2] --dtype bf16", "x 256 1 1", "256"],
    ["y[] += x[i] --i 3 --dtype bf16", "x 256 1 1", "258"],
    ["y[] = x[0] + x[1] + x[2] --dtype f16", "x 2048 1 1", "2048"],
    ["y[] += x[i] --i 3 --dtype f16", "x 2048 1 1", "2050"],
    ["y[] = x[0] * x[1] --dtype f16", "x 65504 2", "Infinity"],
    ["y[] += f32(x[i]) * f32(x[i]) --i 2 --dtype f16", "x 4096 1", "16777216"],
  ],
  "literals are as they are written, rounded to the type beside them": [
    ["y[] = x[] * (1 / 2)", "x 3", "1.5"],
    ["y[] = x[] % 1", "x 1.25", "0.25"],
    ["y[] = x[] + 0.1", "x 0", String(Math.fround(0.1))],
    ["y[] = 0 * x[]", "x Infinity", "NaN"],
    ["y[] = max(x[], -0)", "x -0", "-0"],
  ],
  "recurrences run in order": [
    ["y[i] = y[i-1] + x[i] --i 5 --dtype s32", "x 1 2 3 4 5", "1 3 6 10 15"],
    ["y[i,j] = y[i-1,j] + y[i,j-1] + x[i,j] --i 3 --j 3 --dtype s32", "x 1 1 1 1 1 1 1 1 1", "1 2 3 2 5 9 3 9 19"],
  ],
  "points where the condition fails are skipped": [
    // A transposed convolution of stride 2: y[i] gathers x[(i-r)/2] where that is whole.
    [
      "y[i] += x[(i-r)/2] * w[r] where (i-r)%2 == 0 --i 8 --r 3 --dtype s32 --shape x=3",
      "x 1 2 3; w 1 10 100",
      "1 10 102 20 203 30 300 0",
    ],
    ["y[i] += x[j] where j <= i and (j != 1 or i == 3) --i 4 --j 4 --dtype s32", "x 1 2 4 8", "1 1 5 15"],
  ],
  "one of two values is chosen": [
    ["y[i] = select(i < 1 or i >= 3, a[i], -a[i] - 1) --i 4 --dtype s32", "a 5 6 7 8", "5 -7 -8 8"],
    ["y[i] = min(max(a[i], 0), 6) --i 4", "a -1 0.5 6 9", "0 0.5 6 6"],
  ],
};

describe.each(Object.entries(CASES))("%s", (_, cases) => {
  it.each(cases)("%s of %s is %s", (line, inputs, output) => {
    expect([...interpret(stated(line), inputsOf(inputs))]).toEqual(output.split(" ").map(Number));
  });
});

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
