/** @file What defining a computation checks and completes. */

import { describe, expect, it } from "vitest";
import { affineForm, boundsOf, evaluateIndex, pointsOf } from "../../abstraction/affine.ts";
import {
  type ComputationSpec,
  computationKey,
  defineComputation,
  equationText,
  inputsOf,
  pointCount,
  targetOf,
} from "../../abstraction/computation.ts";
import type { Expr } from "../../abstraction/expression.ts";
import { parseEquation, parseExpr } from "../../abstraction/parse.ts";
import { explanationOf } from "../support/message.ts";
import fc from "../support/property.ts";

const conv: ComputationSpec = {
  name: "conv2d",
  equation: "out[n,k,p,q] += f32(in[n,c,p*stride+r-pad,q*stride+s-pad]) * f32(w[k,c,r,s])",
  extents: { n: 1, k: 4, p: 3, q: 3, c: 2, r: 3, s: 3 },
  parameters: { stride: 2, pad: 1 },
  tensors: { in: "f16", w: { dtype: "f16", constant: true } },
};

describe("a computation", () => {
  it("tells kept axes from summed ones, in the order they appear", () => {
    const { axes } = defineComputation(conv);
    expect(axes.map((a) => `${a.name}:${a.extent} ${a.kind}`)).toEqual([
      "n:1 spatial",
      "k:4 spatial",
      "p:3 spatial",
      "q:3 spatial",
      "c:2 reduce",
      "r:3 reduce",
      "s:3 reduce",
    ]);
    expect(pointCount(defineComputation(conv))).toBe(4 * 9 * 2 * 9);
  });

  it("completes types, shapes and layouts", () => {
    const defined = defineComputation(conv);
    expect(targetOf(defined).dtype).toBe("f32");
    expect(inputsOf(defined).map((t) => t.name)).toEqual(["in", "w"]);
    expect(defined.tensors["in"]?.dims).toEqual([
      { name: "n", extent: 1 },
      { name: "c", extent: 2 },
      { name: "d2", extent: 6 },
      { name: "d3", extent: 6 },
    ]);
    expect(defined.tensors["w"]?.constant).toBe(true);
  });

  it("has one key, which covers everything that changes its meaning", () => {
    expect(computationKey(defineComputation(conv))).toMatchInlineSnapshot(
      `"out[n,k,p,q] += f32(in[n,c,p*2+r-1,q*2+s-1]) * f32(w[k,c,r,s]); n=1,k=4,p=3,q=3,c=2,r=3,s=3; out:f32[1,4,3,3]@((n*4 + k)*3 + p)*3 + q; in:f16[1,2,6,6]@((n*2 + c)*6 + d2)*6 + d3; w:f16[4,2,3,3]@((k*2 + c)*3 + r)*3 + s constant"`,
    );
    const equation = "out[n,k,p,q] += f32(in[n,c,p*2+r-1,q*2+s-1]) * f32(w[k,c,r,s])";
    const { parameters, ...rest } = conv;
    expect(parameters).toBeDefined();
    expect(computationKey(defineComputation({ ...rest, equation }))).toBe(computationKey(defineComputation(conv)));
  });

  it("survives JSON", () => {
    const defined = defineComputation(conv);
    expect(JSON.parse(JSON.stringify(defined))).toEqual(defined);
  });

  it("drops casts to a value's own type, and keeps arithmetic as written", () => {
    const text = (equation: string): string =>
      equationText(defineComputation({ equation, extents: { i: 4 }, tensors: { x: "f32" } }));
    expect(text("y[i] = f32(x[i]) * f32(2)")).toBe("y[i] = x[i] * f32(2)");
    expect(text("y[i] = x[i] * (1 / 2) + 0")).toBe("y[i] = x[i] * (1 / 2) + 0");
    expect(text("y[i] = 0 * x[i*1+0]")).toBe("y[i] = 0 * x[i]");
  });

  it("binds parameters in indices, in values and in conditions", () => {
    const equation = "y[i] += alpha * x[i*stride-(-pad)] where i % stride == pad + 0";
    const bind = (alpha: number, stride: number, pad: number): string =>
      equationText(
        defineComputation({
          equation,
          extents: { i: 4 },
          parameters: { alpha, stride, pad },
          tensors: { x: "f32" },
        }),
      );
    expect(bind(0.5, 2, 1)).toBe("y[i] += 0.5 * x[i*2+1] where i%2 == 1");
    expect(bind(1, 1, 0)).toBe("y[i] += x[i] where 0 == 0");
  });

  it("lets a negated parameter multiply an axis", () => {
    const equation = "y[i] = x[-stride*i + 8]";
    const flipped = { equation, extents: { i: 4 }, parameters: { stride: 2 }, tensors: { x: "f32" } } as const;
    expect(equationText(defineComputation(flipped))).toBe("y[i] = x[-2*i+8]");
  });

  it("gives every dimension a name of its own", () => {
    const names = (equation: string): (string[] | undefined)[] => {
      const { tensors } = defineComputation({ equation, extents: { d1: 2, i: 2 }, tensors: { x: "f32" } });
      return [tensors["x"]?.dims.map((d) => d.name)];
    };
    expect(names("y[i,d1] = x[i,i,d1]")).toEqual([["i", "d2", "d1"]]);
    expect(names("y[i,d1] = x[d1,d1,i]")).toEqual([["d1", "d2", "i"]]);
  });
});

describe("a computation is refused", () => {
  /** What the user reads when `y[i,j] = value` is not a computation; `extra` adds to the description or replaces parts of it. */
  const complaint = (equation: string, extra: Partial<ComputationSpec> = {}): string =>
    explanationOf(() =>
      defineComputation({ name: "test", equation, extents: { i: 4, j: 3 }, tensors: { x: "f32" }, ...extra }),
    );

  it("when an index is not affine", () => {
    expect(complaint("y[i,j] = x[i*j]")).toMatchInlineSnapshot(`
      "test: index of x[i*j] is not affine: it multiplies two axes; an index may multiply an axis by a constant only
        y[i,j] = x[i*j]
                   ^^^"
    `);
    expect(complaint("y[i,j] = x[x[i],j]")).toMatchInlineSnapshot(`
      "test: index of x[x[i],j] is not affine: it reads a tensor; an index may use axes and constants only, or be one element, which stands alone and is kept inside, as in table[clamp(ids[i])]
        y[i,j] = x[x[i],j]
                   ^^^^"
    `);
    expect(complaint("y[i,j] = x[i/j]")).toMatchInlineSnapshot(`
      "test: index of x[i/j] is not affine: "/" in an index needs a positive constant on its right
        y[i,j] = x[i/j]
                   ^^^"
    `);
    expect(complaint("y[i,j] = x[i,j%0]")).toMatchInlineSnapshot(`
      "test: index of x[i,j%0] is not affine: "%" in an index needs a positive constant on its right
        y[i,j] = x[i,j%0]
                     ^^^"
    `);
    expect(complaint("y[i,j] = x[i+0.5,j]")).toMatchInlineSnapshot(`
      "test: index of x[i+0.5,j] is not affine: 0.5 is not an integer
        y[i,j] = x[i+0.5,j]
                     ^^^"
    `);
    expect(complaint("y[i,max(j,1)] = x[i,j]")).toMatchInlineSnapshot(`
      "test: index of y[i,max(j, 1)] is not affine: it calls a function; an index may use axes and constants only
        y[i,max(j,1)] = x[i,j]
            ^^^^^^^^"
    `);
    expect(complaint("y[i<j] = x[i,j]")).toMatchInlineSnapshot(`
      "test: index of y[i < j] is not affine: it holds a condition, which belongs after where
        y[i<j] = x[i,j]
          ^^^"
    `);
  });

  it("when a parameter makes an index invalid", () => {
    expect(complaint("y[i,j] = x[i/stride,j]", { parameters: { stride: 0 } })).toMatchInlineSnapshot(`
      "test: index of x[i/stride,j] is not affine: "/" in an index needs a positive constant on its right
        y[i,j] = x[i/stride,j]
                   ^^^^^^^^"
    `);
    expect(complaint("y[i,j] = x[i*stride,j]", { parameters: { stride: 1.5 } })).toMatchInlineSnapshot(`
      "test: index of x[i*stride,j] is not affine: 1.5 is not an integer
        y[i,j] = x[i*stride,j]
                   ^^^^^^^^"
    `);
  });

  it("when a condition does not compare indices", () => {
    expect(complaint("y[i] += x[j] where x[j] > 0")).toMatchInlineSnapshot(`
      "test: condition x[j] > 0 is not affine: it reads a tensor; an index may use axes and constants only, or be one element, which stands alone and is kept inside, as in table[clamp(ids[i])]
        y[i] += x[j] where x[j] > 0
                           ^^^^"
    `);
    expect(complaint("y[i] += x[j] where i < 2 and j")).toMatchInlineSnapshot(`
      "test: "j" is not a condition
        y[i] += x[j] where i < 2 and j
                                     ^"
    `);
    expect(complaint("y[i,j] = select(x[i,j] + 1 > 0, x[i,j], 0)")).toMatchInlineSnapshot(`
      "test: condition x[i,j]+1 > 0 compares x[i,j] + 1; elements of inputs are compared as they are, with one another or with a number
        y[i,j] = select(x[i,j] + 1 > 0, x[i,j], 0)
                        ^^^^^^^^^^"
    `);
    expect(complaint("y[i,j] = select(i, x[i,j], 0)")).toMatchInlineSnapshot(`
      "test: "i" is not a condition
        y[i,j] = select(i, x[i,j], 0)
                        ^"
    `);
    expect(complaint("y[i,j] = x[i,j] + (i < j)")).toMatchInlineSnapshot(`
      "type of i < j: a condition is not a value; use it in select(condition, a, b) or after where
        y[i,j] = x[i,j] + (i < j)
                           ^^^^^"
    `);
  });

  it("when extents are missing, unknown or not positive", () => {
    expect(complaint("y[i,j] = x[i,j,k]")).toMatchInlineSnapshot(`
      "test: axis "k" has no extent
        y[i,j] = x[i,j,k]
                       ^
        give it one, for example --k 64"
    `);
    expect(complaint("y[i] = x[i]")).toMatchInlineSnapshot(`
      "test: no axis or parameter "j"
        known: i"
    `);
    expect(complaint("y[i,j] = x[i,j]", { extents: { i: 4, j: -3 } })).toMatchInlineSnapshot(
      `"test: extent of j must be a positive integer, got -3"`,
    );
    expect(complaint("y[i,j] = x[i,j]", { extents: { i: 4, j: 2.5 } })).toMatchInlineSnapshot(
      `"test: extent of j must be a positive integer, got 2.5"`,
    );
  });

  it("when types disagree", () => {
    expect(complaint("y[i,j] = x[i] * z[j]", { tensors: { x: "u8", z: "s8" } })).toMatchInlineSnapshot(`
      "type of x[i] * z[j]: operands have types u8 and s8; cast one, for example f32(...)
        y[i,j] = x[i] * z[j]
                 ^^^^^^^^^^^"
    `);
    expect(complaint("y[i,j] = x[i] * z[j]", { tensors: { x: "f32", z: "f32", y: "f16" } })).toMatchInlineSnapshot(`
      "test: y is f16 but the value is f32
        cast the value: f16(...)"
    `);
  });

  it("when a literal does not fit the integers beside it", () => {
    expect(complaint("y[i,j] = max(x[i,j], 200)", { tensors: { x: "s8" } })).toMatchInlineSnapshot(`
      "type of 200: s8 does not hold it; it holds the integers from -128 to 127
        y[i,j] = max(x[i,j], 200)
                             ^^^"
    `);
    expect(complaint("y[i,j] = x[i,j] * (1 + 0.5)", { tensors: { x: "s32" } })).toMatchInlineSnapshot(`
      "type of 0.5: s32 does not hold it; it holds the integers from -2147483648 to 2147483647
        y[i,j] = x[i,j] * (1 + 0.5)
                               ^^^"
    `);
    expect(complaint("y[i,j] = -1", { tensors: { y: "u8" } })).toMatchInlineSnapshot(`
      "type of -1: u8 does not hold it; it holds the integers from 0 to 255
        y[i,j] = -1
                 ^^"
    `);
  });

  it("when a tensor has no type, an unknown one, or is not there", () => {
    expect(complaint("y[i,j] = x[i] * z[j]")).toMatchInlineSnapshot(`
      "test: tensor "z" has no data type
        known types: u8, s8, u16, s16, u32, s32, f16, bf16, tf32, f32, f64"
    `);
    expect(complaint("y[i,j] = x[i,j]", { tensors: { x: "float32" as "f32" } })).toMatchInlineSnapshot(`
      "test: unknown data type "float32" of x
        known: u8, s8, u16, s16, u32, s32, f16, bf16, tf32, f32, f64"
    `);
    expect(complaint("y[i,j] = x[i,j]", { tensors: { x: "f32", weight: "f32" } })).toMatchInlineSnapshot(`
      "test: the equation has no tensor "weight"
        known: y, x"
    `);
  });

  it("when indices, shape and names differ in number", () => {
    expect(complaint("y[i,j] = x[i,j] + x[i]")).toMatchInlineSnapshot(
      `"test: x[i] has rank 1, elsewhere x has rank 2"`,
    );
    expect(complaint("y[i,j] = x[i,j]", { tensors: { x: { dtype: "f32", shape: [4] } } })).toMatchInlineSnapshot(
      `"test: x has rank 2 but a shape of rank 1"`,
    );
    expect(complaint("y[i,j] = x[i,j]", { tensors: { x: { dtype: "f32", dims: ["n"] } } })).toMatchInlineSnapshot(
      `"test: x has rank 2 but names for rank 1"`,
    );
    expect(complaint("y[i,j] = x[i,j]", { tensors: { x: { dtype: "f32", shape: [4, 0] } } })).toMatchInlineSnapshot(
      `"test: the shape of x must hold positive integers, got 0"`,
    );
  });

  it("when its target reads itself and has no type", () => {
    expect(complaint("y[i,j] = y[i-1,j] + x[i,j]")).toMatchInlineSnapshot(
      `"test: "y" reads itself, so its data type must be given"`,
    );
  });

  it("when the text that it prints could not be read back", () => {
    expect(complaint(`y[i,j] = max(x[i,j]${", 0".repeat(99)})`)).toMatchInlineSnapshot(
      `"test: as printed, the equation nests deeper than 100 levels"`,
    );
    expect(complaint(`y[i,j] = x[i,j]${"+x[i,j]".repeat(450)}`)).toMatchInlineSnapshot(
      `"test: as printed, the equation is longer than 4000 characters"`,
    );
    const value = Array.from({ length: 5000 }).reduce<Expr>(
      (inner) => ({ kind: "call", fn: "max", args: [inner, { kind: "number", value: 0 }] }),
      parseExpr("x[i,j]"),
    );
    expect(complaint("", { equation: { ...parseEquation("y[i,j] = x[i,j]"), value } })).toMatchInlineSnapshot(
      `"test: as printed, the equation has more than 1000 levels of operations"`,
    );
    const doubled = Array.from({ length: 40 }).reduce<Expr>(
      (inner) => ({ kind: "binary", op: "*", left: inner, right: inner }),
      parseExpr("x[i,j]"),
    );
    expect(complaint("", { equation: { ...parseEquation("y[i,j] = x[i,j]"), value: doubled } })).toMatchInlineSnapshot(
      `"test: as printed, the equation has more than 1000 levels of operations"`,
    );
  });
});

describe("an index", () => {
  const extents = { i: 4, j: 3 };
  const constant = fc.integer({ min: 1, max: 5 }).map((value) => ({ kind: "number" as const, value }));
  const affineText = fc
    .tuple(fc.integer({ min: -4, max: 4 }), fc.integer({ min: -4, max: 4 }), fc.integer({ min: -9, max: 9 }))
    .map(([a, b, c]) => `${a}*i + j*${b} - ${c}`);

  it("has an affine form that gives its value", () => {
    const form = affineForm(parseExpr("p*2 + r - 1 - (p - 3)*2 + -r"));
    expect(form).toEqual({ constant: 5, terms: new Map() });
    expect(affineForm(parseExpr("i / 2"))).toBeUndefined();
    fc.assert(
      fc.property(affineText, (text) => {
        const e = parseExpr(text);
        const { constant: start, terms } = affineForm(e) ?? { constant: Number.NaN, terms: new Map() };
        for (const point of pointsOf(["i", "j"], extents)) {
          const sum = [...terms].reduce((total, [name, c]) => total + c * (point[name] ?? 0), start);
          expect(sum + 0).toBe(evaluateIndex(e, point) + 0);
        }
      }),
    );
  });

  it("stays within its bounds, which an affine one reaches", () => {
    const any = fc.tuple(affineText, fc.constantFrom("/", "%"), constant, fc.constantFrom("+", "-", "*"), constant);
    fc.assert(
      fc.property(any, ([text, divide, by, op, other]) => {
        for (const e of [text, `(${text}) ${divide} ${by.value} ${op} ${other.value}`].map((t) => parseExpr(t))) {
          const values = [...pointsOf(["i", "j"], extents)].map((point) => evaluateIndex(e, point));
          const [min, max] = boundsOf(e, extents);
          expect(Math.min(...values)).toBeGreaterThanOrEqual(min);
          expect(Math.max(...values)).toBeLessThanOrEqual(max);
          if (affineForm(e)) expect([min + 0, max + 0]).toEqual([Math.min(...values) + 0, Math.max(...values) + 0]);
        }
      }),
    );
  });

  it("runs over a box with the last axis fastest", () => {
    expect([...pointsOf(["i", "j"], { i: 2, j: 2 })]).toEqual([
      { i: 0, j: 0 },
      { i: 0, j: 1 },
      { i: 1, j: 0 },
      { i: 1, j: 1 },
    ]);
    expect([...pointsOf([], {})]).toEqual([{}]);
    expect([...pointsOf(["i"], { i: 0 })]).toEqual([]);
  });
});
