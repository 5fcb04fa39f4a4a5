/** @file The oracle against results worked out by hand, and against loops written without it. */

import { describe, expect, it } from "vitest";
import { type ComputationSpec, defineComputation } from "../abstraction/computation.ts";
import { type Inputs, interpret, interpretInPlace } from "../abstraction/interpret.ts";
import { interpretNest } from "../abstraction/interpret-nest.ts";
import { defineIntrinsic } from "../abstraction/intrinsic.ts";
import { type LoopNest, loops, type Statement } from "../abstraction/loop-nest.ts";
import { parseEquation, parseExpr } from "../abstraction/parse.ts";
import { printNest } from "../abstraction/print-nest.ts";
import fc from "./support/property.ts";

/** The output of an equation whose tensors all have one type, unless given otherwise. */
function run(
  equation: string,
  extents: ComputationSpec["extents"],
  tensors: ComputationSpec["tensors"],
  inputs: Inputs,
): number[] {
  return [...interpret(defineComputation({ equation, extents, tensors }), inputs)];
}

describe("sums and maxima", () => {
  it("sum over every axis that does not index the target", () => {
    expect(run("y[i] += x[i,k]", { i: 2, k: 3 }, { x: "s32" }, { x: [1, 2, 3, 4, 5, 6] })).toEqual([6, 15]);
    expect(run("y[] += x[i] * x[i]", { i: 3 }, { x: "f32" }, { x: [1, 2, 3] })).toEqual([14]);
  });

  it("multiply matrices", () => {
    const inputs = { a: [1, 2, 3, 4, 5, 6], b: [7, 8, 9, 10, 11, 12] };
    expect(run("c[m,n] += a[m,k] * b[k,n]", { m: 2, n: 2, k: 3 }, { a: "s32", b: "s32" }, inputs)).toEqual([
      58, 64, 139, 154,
    ]);
  });

  it("read the identity of the reduction outside a tensor", () => {
    const outside = (op: string, dtype: "f32" | "s8" | "u8"): number[] =>
      run(`y[i] ${op} x[i+j-2]`, { i: 5, j: 2 }, { x: { dtype, shape: [2] } }, { x: [5, 7] });
    expect(outside("+=", "f32")).toEqual([0, 5, 12, 7, 0]);
    expect(outside("max=", "f32")).toEqual([Number.NEGATIVE_INFINITY, 5, 7, 7, Number.NEGATIVE_INFINITY]);
    expect(outside("max=", "s8")).toEqual([-128, 5, 7, 7, -128]);
    expect(outside("min=", "f32")).toEqual([Number.POSITIVE_INFINITY, 5, 5, 7, Number.POSITIVE_INFINITY]);
    expect(outside("min=", "u8")).toEqual([255, 5, 5, 7, 255]);
  });

  it("leave the identity where no point meets the condition", () => {
    expect(run("y[i] max= x[i,j] where j < i", { i: 2, j: 2 }, { x: "f32" }, { x: [1, 2, 3, 4] })).toEqual([
      Number.NEGATIVE_INFINITY,
      3,
    ]);
  });

  it("saturate the sum once, at its end", () => {
    expect(run("y[] sat+= x[i]", { i: 3 }, { x: "s8" }, { x: [100, 100, -100] })).toEqual([100]);
    expect(run("y[] sat+= x[i]", { i: 2 }, { x: "s8" }, { x: [100, 100] })).toEqual([127]);
    expect(run("y[] sat+= x[i]", { i: 2 }, { x: "s8" }, { x: [-100, -100] })).toEqual([-128]);
  });

  it("add to a register that already holds a value", () => {
    const spec = { extents: { i: 3 }, tensors: { x: "s8" } } as const;
    const y = Float64Array.of(100);
    const x = Float64Array.of(20, 20, 20);
    interpretInPlace(defineComputation({ equation: "y[] sat+= x[i]", ...spec }), { y, x });
    expect([...y]).toEqual([127]);
    interpretInPlace(defineComputation({ equation: "y[] += x[i]", ...spec }), { y, x });
    expect([...y]).toEqual([-69]);
    interpretInPlace(defineComputation({ equation: "y[] max= x[i]", ...spec }), { y, x });
    expect([...y]).toEqual([20]);
  });
});

describe("integers", () => {
  const binary = (op: string, dtype: "u8" | "s8" | "u32" | "s32", a: number, b: number): number[] =>
    run(`y[] = a[] ${op} b[]`, {}, { a: dtype, b: dtype }, { a: [a], b: [b] });

  it("wrap after every operation", () => {
    expect(binary("+", "u8", 200, 100)).toEqual([44]);
    expect(binary("-", "u8", 1, 2)).toEqual([255]);
    expect(binary("*", "s8", 100, 3)).toEqual([44]);
    expect(run("y[] += x[i]", { i: 3 }, { x: "u8" }, { x: [200, 100, 1] })).toEqual([45]);
    expect(run("y[i] = -x[i]", { i: 2 }, { x: "s8" }, { x: [-128, 5] })).toEqual([-128, -5]);
    expect(run("y[i] = abs(x[i])", { i: 2 }, { x: "s8" }, { x: [-128, -5] })).toEqual([-128, 5]);
  });

  it("keep the low 32 bits of a product that no double holds", () => {
    expect(binary("*", "s32", 2147483647, 2147483647)).toEqual([1]);
    expect(binary("*", "s32", 123456789, 987654321)).toEqual([-67153019]);
    expect(binary("*", "u32", 4294967295, 4294967295)).toEqual([1]);
    expect(run("y[] = square(x[])", {}, { x: "s32" }, { x: [65537] })).toEqual([131073]);
  });

  it("divide towards zero as elements, downwards as indices", () => {
    expect([binary("/", "s32", -7, 2), binary("%", "s32", -7, 2)]).toEqual([[-3], [-1]]);
    expect([binary("/", "s32", 7, 0), binary("/", "s32", -2147483648, -1)]).toEqual([[0], [-2147483648]]);
    const x = { dtype: "s32", shape: [4] } as const;
    expect(run("y[i] = x[(i-4)/3+2]", { i: 6 }, { x }, { x: [10, 11, 12, 13] })).toEqual([10, 11, 11, 11, 12, 12]);
    expect(run("y[i] = x[(i-4)%3]", { i: 6 }, { x }, { x: [10, 11, 12, 13] })).toEqual([12, 10, 11, 12, 10, 11]);
  });

  it("are cast by their low bits, or clamped", () => {
    const x = [300, -1, -200, 5];
    expect(run("y[i] = u8(x[i])", { i: 4 }, { x: "s32" }, { x })).toEqual([44, 255, 56, 5]);
    expect(run("y[i] = s8(x[i])", { i: 4 }, { x: "s32" }, { x })).toEqual([44, -1, 56, 5]);
    expect(run("y[i] = sat_u8(x[i])", { i: 4 }, { x: "s32" }, { x })).toEqual([255, 0, 0, 5]);
    expect(run("y[i] = sat_s8(x[i])", { i: 4 }, { x: "s32" }, { x })).toEqual([127, -1, -128, 5]);
    expect(run("y[i] = s32(x[i])", { i: 4 }, { x: "f32" }, { x: [1.9, -1.9, 0.5, -0.5] })).toEqual([1, -1, 0, 0]);
    expect(run("y[] = sat_s8(200)", {}, {}, {})).toEqual([127]);
  });

  it("requantise with ties to even", () => {
    const x = [1, 3, 5, -1, -3, 1000, -1000];
    expect(run("q[i] = sat_u8(round(f32(x[i]) * 0.5) + 2)", { i: 7 }, { x: "s32" }, { x })).toEqual([
      2, 4, 4, 2, 0, 255, 0,
    ]);
  });

  it("count with the axes themselves", () => {
    expect(run("y[i,j] = i * 10 + j", { i: 2, j: 2 }, {}, {})).toEqual([0, 1, 10, 11]);
  });
});

describe("floats", () => {
  it("round after every operation, and a sum once", () => {
    const x = [256, 1, 1];
    expect(run("y[] = x[0] + x[1] + x[2]", {}, { x: "bf16" }, { x })).toEqual([256]);
    expect(run("y[] += x[i]", { i: 3 }, { x: "bf16" }, { x })).toEqual([258]);
    expect(run("y[] = x[0] + x[1] + x[2]", {}, { x: "f16" }, { x: [2048, 1, 1] })).toEqual([2048]);
    expect(run("y[] += x[i]", { i: 3 }, { x: "f16" }, { x: [2048, 1, 1] })).toEqual([2050]);
    expect(run("y[] = x[0] * x[1]", {}, { x: "f16" }, { x: [65504, 2] })).toEqual([Number.POSITIVE_INFINITY]);
    expect(run("y[] += f32(x[i]) * f32(x[i])", { i: 2 }, { x: "f16" }, { x: [4096, 1] })).toEqual([16777216]);
  });

  it("take literals as they are written, rounded to the type beside them", () => {
    expect(run("y[] = x[] * (1 / 2)", {}, { x: "f32" }, { x: [3] })).toEqual([1.5]);
    expect(run("y[] = x[] % 1", {}, { x: "f32" }, { x: [1.25] })).toEqual([0.25]);
    expect(run("y[] = x[] + 0.1", {}, { x: "f32" }, { x: [0] })).toEqual([Math.fround(0.1)]);
    expect(run("y[] = 0 * x[]", {}, { x: "f32" }, { x: [Number.POSITIVE_INFINITY] })).toEqual([Number.NaN]);
    expect(run("y[] = max(x[], -0)", {}, { x: "f32" }, { x: [-0] })).toEqual([-0]);
  });
});

describe("conditions, recurrences and choices", () => {
  it("scan along an axis", () => {
    expect(run("y[i] = y[i-1] + x[i]", { i: 5 }, { x: "s32", y: "s32" }, { x: [1, 2, 3, 4, 5] })).toEqual([
      1, 3, 6, 10, 15,
    ]);
  });

  it("run a recurrence of two axes in order", () => {
    const ones = Array.from({ length: 9 }, () => 1);
    expect(run("y[i,j] = y[i-1,j] + y[i,j-1] + x[i,j]", { i: 3, j: 3 }, { x: "s32", y: "s32" }, { x: ones })).toEqual([
      1, 2, 3, 2, 5, 9, 3, 9, 19,
    ]);
  });

  it("skip the points where the condition fails", () => {
    // A transposed convolution of stride 2: y[i] gathers x[(i-r)/2] where that is whole.
    const text = "y[i] += x[(i-r)/2] * w[r] where (i-r)%2 == 0";
    const tensors = { x: { dtype: "s32", shape: [3] }, w: "s32" } as const;
    expect(run(text, { i: 8, r: 3 }, tensors, { x: [1, 2, 3], w: [1, 10, 100] })).toEqual([
      1, 10, 102, 20, 203, 30, 300, 0,
    ]);
    const triangle = "y[i] += x[j] where j <= i and (j != 1 or i == 3)";
    expect(run(triangle, { i: 4, j: 4 }, { x: "s32" }, { x: [1, 2, 4, 8] })).toEqual([1, 1, 5, 15]);
  });

  it("choose between two values", () => {
    const text = "y[i] = select(i < 1 or i >= 3, a[i], -a[i] - 1)";
    expect(run(text, { i: 4 }, { a: "s32" }, { a: [5, 6, 7, 8] })).toEqual([5, -7, -8, 8]);
    expect(run("y[i] = min(max(a[i], 0), 6)", { i: 4 }, { a: "f32" }, { a: [-1, 0.5, 6, 9] })).toEqual([0, 0.5, 6, 6]);
  });
});

describe("inputs", () => {
  const sum = defineComputation({ name: "sum", equation: "y[] += x[i]", extents: { i: 3 }, tensors: { x: "s32" } });

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
    const matmul = defineComputation({
      equation: "c[i,j] += s32(a[i,l]) * s32(b[l,j])",
      extents: { i: 3, j: 3, l: 3 },
      tensors: { a: "s8", b: "s8" },
    });
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
