/** @file What defining a computation checks and completes. More that is refused stands in test/golden/computations/refused.txt. */

import { describe, expect, it } from "vitest";
import { affineForm, boundsOf, evaluateIndex, periodOf, pointsOf } from "../../abstraction/affine.ts";
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

  it("when extents are missing, unknown or not positive", () => {
    expect(complaint("y[i,j] = x[i,j,k]")).toMatchInlineSnapshot(`
      "test: axis "k" has no extent
        y[i,j] = x[i,j,k]
                       ^
        give it one, for example --k 64"
    `);
    expect(complaint("y[i,j] = x[i,j]", { extents: { i: 4, j: -3 } })).toMatchInlineSnapshot(
      `"test: extent of j must be a positive integer, got -3"`,
    );
    expect(complaint("y[i,j] = x[i,j]", { extents: { i: 4, j: 2.5 } })).toMatchInlineSnapshot(
      `"test: extent of j must be a positive integer, got 2.5"`,
    );
  });

  it("when a tensor has no type, an unknown one, or is not there", () => {
    expect(complaint("y[i,j] = x[i] * z[j]")).toMatchInlineSnapshot(`
      "test: tensor "z" has no data type
        known types: u8, s8, u16, s16, u32, s32, e4m3, e5m2, f16, bf16, tf32, f32, f64"
    `);
    expect(complaint("y[i,j] = y[i-1,j] + x[i,j]")).toMatchInlineSnapshot(
      `"test: "y" reads itself, so its data type must be given"`,
    );
    expect(complaint("y[i,j] = x[i,j]", { tensors: { x: "float32" as "f32" } })).toMatchInlineSnapshot(`
      "test: unknown data type "float32" of x
        known: u8, s8, u16, s16, u32, s32, e4m3, e5m2, f16, bf16, tf32, f32, f64"
    `);
    expect(complaint("y[i,j] = x[i,j]", { tensors: { x: "f32", weight: "f32" } })).toMatchInlineSnapshot(`
      "test: the equation has no tensor "weight"
        known: y, x"
    `);
  });

  it("when indices, shape and names differ in number", () => {
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

  it("changes by one number over its period, wherever it starts", () => {
    const any = fc.tuple(affineText, fc.constantFrom("/", "%"), constant, fc.constantFrom("+", "-"), constant);
    expect(["3*i - j", "64*(i / 16) + i % 16", "(i / 4 + j) % 6", "i * j"].map((t) => periodOf(parseExpr(t)))).toEqual([
      1,
      16,
      24,
      undefined,
    ]);
    fc.assert(
      fc.property(any, ([text, divide, by, op, other]) => {
        const e = parseExpr(
          `(3*((${text}) ${divide} ${by.value}) ${op} j) / 2 + (${text}) % ${Math.abs(other.value) + 1}`,
        );
        const period = periodOf(e) ?? Number.NaN;
        for (const axis of ["i", "j"]) {
          const changes = [...pointsOf(["i", "j"], extents)].map(
            (point) => evaluateIndex(e, { ...point, [axis]: (point[axis] ?? 0) + period }) - evaluateIndex(e, point),
          );
          expect(new Set(changes).size).toBe(1);
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
