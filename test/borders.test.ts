/** @file Indices that are clamped, mirrored or wrapped: read, printed, interpreted, and compiled as references and on instructions. */

import { describe, expect, it } from "vitest";
import { computationKey, defineComputation, equationText } from "../abstraction/computation.ts";
import { borderOp } from "../abstraction/expression.ts";
import { interpret } from "../abstraction/interpret.ts";

const slid = (how: string, i = 6) =>
  defineComputation({
    equation: `y[i] += x[${how}(i+r-2)] * w[r]`,
    extents: { i, r: 5 },
    tensors: { x: "f32", w: "f32" },
  });

describe("indices that stay inside", () => {
  it("are those of ONNX's Pad: edge, reflect, wrap", () => {
    const at = (how: "clamp" | "reflect" | "wrap") =>
      [-5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6].map((i) =>
        borderOp({ kind: "border", how, index: { kind: "number", value: i }, extent: 3 }, i),
      );
    expect(at("clamp")).toEqual([0, 0, 0, 0, 0, 0, 1, 2, 2, 2, 2, 2]);
    expect(at("reflect")).toEqual([1, 0, 1, 2, 1, 0, 1, 2, 1, 0, 1, 2]);
    expect(at("wrap")).toEqual([1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0]);
  });

  it("keep to the tensor, which is as long as the output", () => {
    const computation = slid("reflect");
    expect(computation.tensors["x"]?.dims).toEqual([{ name: "d0", extent: 6 }]);
    const x = [1, 2, 4, 8, 16, 32];
    expect([...interpret(computation, { x, w: [1, 0, 0, 0, 0] })]).toEqual([4, 2, 1, 2, 4, 8]);
    expect([...interpret(slid("clamp"), { x, w: [1, 0, 0, 0, 0] })]).toEqual([1, 1, 1, 2, 4, 8]);
    expect([...interpret(slid("wrap"), { x, w: [0, 0, 0, 0, 1] })]).toEqual([4, 8, 16, 32, 1, 2]);
  });

  it("print as they are written and are read back", () => {
    const computation = slid("clamp");
    expect(equationText(computation)).toBe("y[i] += x[clamp(i+r-2)] * w[r]");
    const again = defineComputation({
      equation: equationText(computation),
      extents: { i: 6, r: 5 },
      tensors: { x: "f32", w: "f32" },
    });
    expect(computationKey(again)).toBe(computationKey(computation));
  });

  it.each([
    ["y[clamp(i-1)] = x[i]", "is assigned"],
    ["y[i] = x[clamp(i-1)+1]", "whole index"],
    ["y[i] = clamp(x[i])", "stands around an index"],
    ["y[i] = x[clamp(i-1, 4)]", "takes 1 argument"],
    ["y[i] = x[i] where clamp(i-1) == 0", "whole index"],
  ])("refuses %s", (equation, because) => {
    expect(() => defineComputation({ equation, extents: { i: 4 }, tensors: { x: "f32" } })).toThrow(because);
  });
});
