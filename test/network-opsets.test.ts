/** @file Operators of opset 1 to 10 mean what ONNX's texts of these versions say. */

import { describe, expect, it } from "vitest";
import { UsageError } from "../abstraction/error.ts";
import type { Attribute, Constant, Graph } from "../network/graph.ts";
import { lowerGraph } from "../network/lower.ts";
import { runNetwork } from "../network/run.ts";

const longs = (...values: number[]): Constant => ({
  type: "s64",
  shape: [values.length],
  values: Float64Array.from(values),
});
const floats = (...values: number[]): Constant => ({
  type: "f32",
  shape: [values.length],
  values: Float32Array.from(values),
});

interface One {
  readonly op: string;
  readonly opset: number;
  readonly x: readonly number[];
  readonly type?: "f32" | "s64";
  readonly more?: readonly Constant[];
  readonly attributes?: Readonly<Record<string, Attribute>>;
  readonly outputs?: readonly string[];
}

function graphOf({ op, opset, x, type = "f32", more = [], attributes = {}, outputs = ["y"] }: One): Graph {
  return {
    name: "one",
    opset,
    inputs: [{ name: "x", type, shape: x }],
    outputs: outputs.filter((name) => name !== ""),
    constants: new Map(more.map((constant, i) => [`c${i}`, constant] as const)),
    nodes: [{ name: "act", op, inputs: ["x", ...more.map((_, i) => `c${i}`)], outputs, attributes }],
  };
}

async function made(one: One, x: readonly number[], output = "y"): Promise<number[]> {
  return Array.from((await runNetwork(lowerGraph(graphOf(one)), { x })).get(output) ?? []);
}

function refused(one: One): string {
  try {
    lowerGraph(graphOf(one));
  } catch (error) {
    if (error instanceof UsageError) return error.message;
    throw error;
  }
  return "accepted";
}

const UP_TO_12 = Array.from({ length: 12 }, (_, i) => i);

describe("what later became an input is an attribute", () => {
  it("of Slice, before opset 10", async () => {
    const slice = { op: "Slice", x: [3, 4], attributes: { starts: [0, -2], ends: [2, Number.MAX_SAFE_INTEGER] } };
    expect(await made({ ...slice, opset: 9 }, UP_TO_12)).toEqual([2, 3, 6, 7]);
    const rows = { starts: [1], ends: [3], axes: [0] };
    expect(await made({ ...slice, opset: 7, attributes: rows }, UP_TO_12)).toEqual([4, 5, 6, 7, 8, 9, 10, 11]);
    expect(refused({ ...slice, opset: 10 })).toBe("act (Slice): starts and ends are missing");
    expect(refused({ op: "Slice", opset: 9, x: [3, 4], more: [longs(0), longs(2)] })).toMatch(/starts and ends/);
  });

  it("of Pad, before opset 11", async () => {
    const pads = { op: "Pad", x: [3], attributes: { pads: [1, 2], value: 9, mode: "constant" } };
    expect(await made({ ...pads, opset: 10 }, [1, 2, 3])).toEqual([9, 1, 2, 3, 9, 9]);
    const mirrored = { ...pads, attributes: { pads: [1, 2], mode: "reflect" } };
    expect(await made({ ...mirrored, opset: 7 }, [1, 2, 3])).toEqual([2, 1, 2, 3, 2, 1]);
    expect(refused({ ...pads, opset: 11 })).toMatch(/the padding needs 2 numbers/);
  });

  it("of Clip, before opset 11, where a missing one is no bound", async () => {
    const bounds = { op: "Clip", opset: 13, x: [4] };
    expect(await made({ ...bounds, more: [floats(-1.5), floats(6)] }, [-3, -1, 5, 7])).toEqual([-1.5, -1, 5, 6]);
    expect(await made({ ...bounds, more: [floats(-1.5)] }, [-3, -1, 5, 7])).toEqual([-1.5, -1, 5, 7]);
    const clip = { op: "Clip", x: [4], attributes: { min: -1.5, max: 6 } };
    expect(await made({ ...clip, opset: 10 }, [-5, 0, 5, 7])).toEqual([-1.5, 0, 5, 6]);
    expect(await made({ ...clip, opset: 7, attributes: { max: 1 } }, [-5, 0, 5, 7])).toEqual([-5, 0, 1, 1]);
    expect(await made({ ...clip, opset: 7, attributes: {} }, [-5, 0, 5, 7])).toEqual([-5, 0, 5, 7]);
    expect(refused({ ...clip, opset: 11 })).toBe("act (Clip): the attribute min is not supported in opset 11");
  });

  it("of TopK, before opset 10", async () => {
    const top = { op: "TopK", x: [4], outputs: ["y", "place"], attributes: { k: 2 } };
    expect(await made({ ...top, opset: 9 }, [3, 9, 4, 1])).toEqual([9, 4]);
    expect(await made({ ...top, opset: 9 }, [3, 9, 4, 1], "place")).toEqual([1, 2]);
    const given = { op: "TopK", x: [4], outputs: ["y", "place"], more: [longs(2)] };
    expect(await made({ ...given, opset: 10 }, [3, 9, 4, 1])).toEqual([9, 4]);
    expect(refused({ ...top, opset: 10 })).toMatch(/0 of 4 elements/);
  });

  it("of Upsample, before opset 9", async () => {
    const twice = { op: "Upsample", x: [1, 1, 1, 3], attributes: { scales: [1, 1, 1, 2] } };
    expect(await made({ ...twice, opset: 7 }, [1, 2, 3])).toEqual([1, 1, 2, 2, 3, 3]);
    const given = { op: "Upsample", x: [1, 1, 1, 3], more: [floats(1, 1, 1, 2)], attributes: { mode: "linear" } };
    expect(await made({ ...given, opset: 9 }, [1, 2, 3])).toEqual([1, 1.5, 2, 2.5, 3, 3]);
  });
});

describe("a text that changed", () => {
  it("holds for Resize in opset 10: coordinates are divided by the scale, and nearest ones rounded as ONNX Runtime does", async () => {
    const resize = { op: "Resize", opset: 10, x: [1, 1, 2, 4] };
    const values = [1, 2, 3, 4, 5, 6, 7, 8];
    expect(await made({ ...resize, more: [floats(1, 1, 0.6, 0.6)] }, values)).toEqual([1, 3]);
    expect(await made({ ...resize, x: [1, 1, 1, 4], more: [floats(1, 1, 1, 1.5)] }, [1, 2, 3, 4])).toEqual([
      1, 1, 2, 3, 3, 4,
    ]);
    // 6 / 1.2 is 5 in f32, and less in f64.
    const up = { ...resize, x: [1, 1, 1, 10], more: [floats(1, 1, 1, 1.2)] };
    expect((await made(up, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]))[6]).toBe(5);
  });

  it("holds for OneHot: before opset 11 a negative index selects nothing", async () => {
    const values = [longs(3), floats(0, 1)];
    const one = { op: "OneHot", x: [2], type: "s64" as const, more: values };
    expect(await made({ ...one, opset: 9 }, [1, -1])).toEqual([0, 1, 0, 0, 0, 0]);
    expect(await made({ ...one, opset: 11 }, [1, -1])).toEqual([0, 1, 0, 0, 0, 1]);
  });

  it("is refused for ConvTranspose where ONNX and ONNX Runtime pad different ends", () => {
    const filter: Constant = { type: "f32", shape: [1, 1, 3], values: Float32Array.of(1, 2, 3) };
    const conv = {
      op: "ConvTranspose",
      x: [1, 1, 4],
      more: [filter],
      attributes: { auto_pad: "SAME_UPPER", strides: [2] },
    };
    expect(refused({ ...conv, opset: 10 })).toMatch(/its padding of 1 is odd, and before opset 11/);
    expect(refused({ ...conv, opset: 11 })).toBe("accepted");
    const even = { ...conv, attributes: { auto_pad: "SAME_UPPER", strides: [1] } };
    expect(refused({ ...even, opset: 10 })).toBe("accepted");
  });

  it("is refused for BatchNormalization of each pixel", () => {
    const more = [floats(1, 1), floats(0, 0), floats(0, 0), floats(1, 1)];
    const norm = { op: "BatchNormalization", x: [1, 2, 2], more };
    expect(refused({ ...norm, opset: 7, attributes: { spatial: 1 } })).toBe("accepted");
    expect(refused({ ...norm, opset: 7, attributes: { spatial: 0 } })).toMatch(/statistics of each pixel/);
    expect(refused({ ...norm, opset: 9, attributes: { spatial: 1 } })).toMatch(
      /the attribute spatial is not supported/,
    );
  });

  it("gives Scatter its later name", async () => {
    const one = { op: "Scatter", x: [3], more: [longs(1), floats(7)], attributes: { axis: 0 } };
    expect(await made({ ...one, opset: 9 }, [1, 2, 3])).toEqual([1, 7, 3]);
  });
});

describe("before opset 7", () => {
  const numbers = (shape: readonly number[]): Constant => ({
    type: "f32",
    shape,
    values: Float32Array.from({ length: shape.reduce((all, n) => all * n, 1) }, (_, i) => 100 * (i + 1)),
  });

  it("the second operand stands at the axis that is named, or at the last ones", async () => {
    const add = { op: "Add", x: [2, 3, 2], opset: 6 };
    const at1 = { ...add, more: [numbers([3])], attributes: { broadcast: 1, axis: 1 } };
    const expected = UP_TO_12.map((x) => x + 100 * (1 + (Math.floor(x / 2) % 3)));
    expect(await made(at1, UP_TO_12)).toEqual(expected);
    const last = { ...add, more: [numbers([2])], attributes: { broadcast: 1 } };
    expect(await made(last, UP_TO_12)).toEqual(UP_TO_12.map((x) => x + 100 * (1 + (x % 2))));
    expect(refused({ ...last, opset: 7 })).toBe("act (Add): the attribute broadcast is not supported in opset 7");
    expect(refused({ ...at1, attributes: { broadcast: 1, axis: 3 } })).toMatch(/^act \(Add\): axis 3 of a tensor/);
    expect(refused({ ...at1, more: [numbers([3, 2, 1])] })).toBe(
      "act (Add): [3,2,1] does not fit into [2,3,2] at axis 1",
    );
  });

  it("a slope of PRelu belongs to a channel", async () => {
    const relu = { op: "PRelu", x: [1, 2, 2], more: [numbers([2])] };
    expect(await made({ ...relu, opset: 6 }, [-1, 1, -1, -1])).toEqual([-100, 1, -200, -200]);
    expect(await made({ ...relu, opset: 7 }, [-1, 1, -1, -1])).toEqual([-100, 1, -100, -200]);
  });

  it("it must be said that a network is not trained", async () => {
    const dropout = { op: "Dropout", opset: 6, x: [2] };
    expect(await made({ ...dropout, attributes: { is_test: 1 } }, [1, 2])).toEqual([1, 2]);
    expect(refused(dropout)).toBe("act (Dropout): training is not supported");
    expect(await made({ ...dropout, opset: 7 }, [1, 2])).toEqual([1, 2]);
  });

  it("an operator that meant something else is refused", async () => {
    const concat = { op: "Concat", x: [1, 2], more: [numbers([1, 2])], attributes: { axis: 0 } };
    expect(await made({ ...concat, opset: 4 }, [1, 2])).toEqual([1, 2, 100, 200]);
    expect(refused({ ...concat, opset: 3 })).toBe(
      "act (Concat): opset 3 is supported where it says what opset 4 says, and this operator was another",
    );
    const relu = { op: "Relu", x: [2], attributes: { consumed_inputs: [0] } };
    expect(await made({ ...relu, opset: 1 }, [-1, 2])).toEqual([0, 2]);
    expect(refused({ ...relu, opset: 7 })).toMatch(/the attribute consumed_inputs is not supported/);
  });
});
