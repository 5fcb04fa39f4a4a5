/** @file What an operator is instantiated with: layouts, storage, data types, and what is refused. */

import { describe, expect, it } from "vitest";
import { defineComputation } from "../../abstraction/computation.ts";
import { printExpr } from "../../abstraction/expression.ts";
import { parseDataTypes, printDataTypes } from "../../operators/data-types.ts";
import { type InstantiateOptions, instantiate, operatorNamed } from "../../operators/index.ts";
import { explanationOf } from "../support/message.ts";
import { stated } from "../support/subjects.ts";

describe("layouts", () => {
  const storages = (name: string, options: InstantiateOptions): string[] =>
    Object.values(instantiate(operatorNamed(name), options).tensors).map(
      (t) => `${t.name}[${t.dims.map((d) => d.name)}] at ${printExpr(t.storage, "formula")}`,
    );

  it("one name lays out input and output, letter by letter", () => {
    const parameters = { n: 2, c: 8, h: 5, w: 5, k: 8 };
    expect(storages("conv2d", { parameters, layouts: "NHWC" })).toEqual([
      "out[n,k,p,q] at ((n*5 + p)*5 + q)*8 + k",
      "in[n,c,h,w] at ((n*5 + h)*5 + w)*8 + c",
      "w[k,c,r,s] at ((k*8 + c)*3 + r)*3 + s",
    ]);
    expect(storages("conv2d", { parameters: { ...parameters, groups: 2 }, layouts: "NCHW4c" })[0]).toBe(
      "out[n,k,p,q] at (((n*2 + k/4)*5 + p)*5 + q)*4 + k%4",
    );
  });

  it("a dimension that only the output has lies innermost", () => {
    const parameters = { c: 8, h: 5, w: 5, k: 8, caps: 4 };
    expect(storages("cap", { parameters, layouts: "NHWC" })[0]).toBe(
      "out[n,k,p,q,u] at (((n*5 + p)*5 + q)*8 + k)*4 + u",
    );
  });

  it("a record lays out each tensor", () => {
    const layouts = { a: "KM", b: "KN" };
    expect(storages("matmul", { parameters: { m: 2, n: 3, k: 4 }, layouts })).toEqual([
      "out[m,n] at m*3 + n",
      "a[m,k] at k*2 + m",
      "b[k,n] at k*3 + n",
    ]);
  });
});

describe("storage formulas", () => {
  const copy = (storage: string) =>
    defineComputation({ equation: "y[i] = x[i]", extents: { i: 4 }, tensors: { x: { dtype: "f32", storage } } });

  it("place an element where no layout name can", () => {
    const { x } = copy("i/2 + 2*(i%2)").tensors;
    expect(x && printExpr(x.storage, "formula")).toBe("i/2 + 2*(i%2)");
  });

  it.each([
    ["2*l", 'equation: storage of x: no dimension "l"\n  2*l\n  known: i'],
    ["i - 1", "equation: storage of x: the formula reaches element -1\n  i - 1"],
    ["i*i", "equation: storage of x: i * i is not affine: it multiplies two axes"],
  ])("refuse %s", (storage, expected) => {
    expect(explanationOf(() => copy(storage))).toMatch(expected);
  });
});

describe("data types", () => {
  it.each([
    ["f16", "f16 f16 f32"],
    ["bf16", "bf16 bf16 f32"],
    ["tf32", "tf32 tf32 f32"],
    ["f32", "f32 f32 f32"],
    ["f64", "f64 f64 f64"],
    ["s8", "s8 s8 s32"],
    ["u8s8", "u8 s8 s32"],
    ["u8u8", "u8 u8 s32"],
    ["f16->f16", "f16 f16 f16"],
  ])("reads %s as %s", (text, expected) => {
    const types = parseDataTypes(text);
    expect([...types.inputs, types.sum].join(" ")).toBe(expected);
    expect(parseDataTypes(printDataTypes(types))).toEqual(types);
  });

  it("takes the type of the sum separately, and refuses one that cannot hold it", () => {
    expect(parseDataTypes("f16", "f16").sum).toBe("f16");
    expect(explanationOf(() => parseDataTypes("u8s9"))).toBe('unknown data types "u8s9"\n  did you mean "u8s8"?');
    expect(explanationOf(() => parseDataTypes("f16", "s32"))).toMatch(
      "the integer sum s32 cannot hold products of floats",
    );
    expect(explanationOf(() => parseDataTypes("f16", "f23"))).toMatch('did you mean "f32"?');
  });
});

describe("mistakes", () => {
  it.each([
    ["conv2d", { stride: 0 }, "conv2d: stride must be positive, got 0"],
    ["conv2d", { pad: -1 }, "conv2d: pad must not be negative, got -1"],
    ["conv2d", { c: 1.5 }, "conv2d: c must be an integer, got 1.5"],
    ["conv2d", { groups: 3 }, "conv2d: groups 3 does not divide c = 64"],
    ["conv2d", { strid: 2 }, 'conv2d: no parameter "strid"\n  did you mean "stride"?'],
    ["conv2d", { h: 5, r: 8 }, "conv2d: kernel r = 8 does not fit h = 5 with pad 1 on both sides"],
    ["dil", { w: 2, pad: 0 }, "dilated-conv2d: kernel s = 3 with dilation 2 does not fit w = 2"],
    ["t2d", { h: 1, pad: 2 }, "transposed-conv2d: pad 2 on both sides cuts away the whole output of 4 along h"],
    ["2d5pt", { radius: 2 }, '2d5pt: no parameter "radius"\n  known: h, w'],
  ])("%s with %o is refused in one sentence", (name, parameters, expected) => {
    expect(
      explanationOf(() => instantiate(operatorNamed(name), { parameters: parameters as Record<string, number> })),
    ).toBe(expected);
  });

  it("a kernel as large as the padded input gives one row", () => {
    const computation = stated("conv2d --h 5 --r 7");
    expect(computation.axes.find(({ name }) => name === "p")?.extent).toBe(1);
  });

  it("an unknown operator gets the nearest name", () => {
    expect(explanationOf(() => operatorNamed("convd2"))).toBe('unknown operator "convd2"\n  did you mean "conv2d"?');
  });

  it("a layout that does not fit is refused in the letters given", () => {
    const conv2d = operatorNamed("conv2d");
    expect(explanationOf(() => instantiate(conv2d, { layouts: "NHXC" }))).toMatch('conv2d: layout of in: "NHXC"');
    expect(explanationOf(() => instantiate(conv2d, { layouts: { inn: "NHWC" } }))).toBe(
      'conv2d: no tensor "inn" to lay out\n  did you mean "in"?',
    );
    expect(explanationOf(() => instantiate(operatorNamed("matmul"), { layouts: "KM" }))).toBe(
      'matmul: one layout "KM" does not say which tensor it is for\n  name the tensors: a, b, out',
    );
  });
});
