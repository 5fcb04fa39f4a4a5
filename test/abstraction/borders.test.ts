/**
 * @file Indices that are clamped, mirrored or wrapped. What they compute and which are refused is in test/golden/computations/elements.txt.
 */

import { describe, expect, it } from "vitest";
import { computationKey, equationText } from "../../abstraction/computation.ts";
import { borderOp } from "../../abstraction/expression.ts";
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
    expect(slid("reflect").tensors["x"]?.dims).toEqual([{ name: "d0", extent: 6 }]);
  });

  it("print as they are written and are read back", () => {
    const computation = slid("clamp");
    expect(computationKey(stated(`${equationText(computation)} --i 6 --r 5`))).toBe(computationKey(computation));
  });
});
