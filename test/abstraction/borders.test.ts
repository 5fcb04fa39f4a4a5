/**
 * @file Indices that are clamped, mirrored or wrapped: read, printed, interpreted, and compiled as references and on
 * instructions.
 */

import { describe, expect, it } from "vitest";
import { computationKey, defineComputation, equationText } from "../../abstraction/computation.ts";
import { borderOp } from "../../abstraction/expression.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { stated } from "../support/subjects.ts";

const slid = (how: string) => stated(`y[i] += x[${how}(i+r-2)] * w[r] --i 6 --r 5`);

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

  it("stay inside the tensor, which is as long as the output", () => {
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
    expect(computationKey(stated(`${equationText(computation)} --i 6 --r 5`))).toBe(computationKey(computation));
  });

  it("may be read from a tensor, and find an element whatever their value", () => {
    const picked = (how: string) =>
      stated(`y[i,j] = table[${how}(ids[i]),j] --i 4 --j 2 --dtype ids=s32,table=s8 --shape table=3x2`);
    const rows = { ids: [-1, 0, 7, -2147483648], table: [1, 2, 3, 4, 5, 6] };
    expect([...interpret(picked("wrap"), rows)]).toEqual([5, 6, 1, 2, 3, 4, 3, 4]);
    expect([...interpret(picked("clamp"), rows)]).toEqual([1, 2, 1, 2, 5, 6, 1, 2]);
    expect(equationText(picked("wrap"))).toBe("y[i,j] = table[wrap(ids[i]),j]");
  });

  it.each([
    ["y[i] = t[ids[i]]", "kept inside, as in table[clamp(ids[i])]"],
    ["y[i] = t[clamp(ids[i]+1)]", "stands alone"],
    ["y[i] = t[clamp(ids[i+1])]", "ids[i+1] lies outside ids"],
    ["y[i] = y[i-1] + t[clamp(ids[i])]", "reads itself, so its indices cannot be read"],
    ["y[i] = t[clamp(t[i])]", "and t holds f32; integers up to s32 are indices"],
    ["y[i] = t[clamp(ids[clamp(ids[i])])]", "one may be, not both"],
    ["y[i] = ids[clamp(ids[i])]; z[i] = y[i] + t[clamp(ids[i])]", "may be indexed by i alone"],
  ])("refuses the index that is read in %s", (equation, because) => {
    const tensors = { ids: { dtype: "s32", shape: [4] }, t: { dtype: "f32", shape: [4] } } as const;
    const used = {
      ...Object.fromEntries(Object.entries(tensors).filter(([name]) => equation.includes(`${name}[`))),
      ...(equation.includes("y[i-1]") && { y: "f32" as const }),
    };
    expect(() => defineComputation({ equation, extents: { i: 4 }, tensors: used })).toThrow(because);
  });

  it("refuses an index read from a tensor where the dimension's length is unknown", () => {
    const tensors = { ids: "s32", t: "f32" } as const;
    expect(() => defineComputation({ equation: "y[i] = t[clamp(ids[i])]", extents: { i: 4 }, tensors })).toThrow(
      "give the shape",
    );
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
