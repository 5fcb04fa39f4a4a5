/** @file What an operator is instantiated with: layouts, storage and data types. What is refused is in test/golden/computations/operators.txt. */

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

  it("takes the type of the sum separately", () => {
    expect(parseDataTypes("f16", "f16").sum).toBe("f16");
  });
});

describe("parameters", () => {
  it("may give a kernel as large as the padded input, and then one row", () => {
    const computation = stated("conv2d --h 5 --r 7");
    expect(computation.axes.find(({ name }) => name === "p")?.extent).toBe(1);
  });
});
