/** @file Nodes are computed by all their attributes, in every opset: an unknown attribute is refused by name. */

import { describe, expect, it } from "vitest";
import { UsageError } from "../abstraction/error.ts";
import type { Attribute, Constant, Graph, Input } from "../network/graph.ts";
import { lowerGraph } from "../network/lower.ts";
import type { Program } from "../network/program.ts";
import { runNetwork } from "../network/run.ts";
import { processorWatch } from "./support/processor-time.ts";

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
  readonly opset?: number;
  readonly x: readonly number[];
  /** What the node reads besides `x`. */
  readonly more?: readonly (Constant | undefined)[];
  readonly attributes?: Readonly<Record<string, Attribute>>;
  readonly outputs?: readonly string[];
  readonly declared?: readonly number[];
}

/** A network of one node that reads `x`. */
function networkOf({ op, opset = 18, x, more = [], attributes = {}, outputs = ["y"], declared }: One): Graph {
  const constants = new Map(more.flatMap((constant, i) => (constant ? [[`c${i}`, constant] as const] : [])));
  const inputs: Input[] = [{ name: "x", type: "f32", shape: x }];
  const names = more.map((constant, i) => (constant ? `c${i}` : ""));
  return {
    name: "one",
    opset,
    inputs,
    outputs,
    constants,
    nodes: [{ name: "act", op, inputs: ["x", ...names], outputs, attributes }],
    ...(declared && { declared: new Map([["y", declared]]) }),
  };
}

const lowered = (one: One): Program => lowerGraph(networkOf(one));
const shapeOf = (one: One): readonly number[] | undefined => lowered(one).outputs[0]?.value.shape;

function refusalOf(work: () => unknown): string {
  try {
    work();
  } catch (error) {
    if (error instanceof UsageError) return error.message;
    throw error;
  }
  return "accepted";
}

const refused = (one: One): string => refusalOf(() => lowered(one));

describe("Pad with axes", () => {
  it("leaves the other dimensions unchanged", async () => {
    const one = { op: "Pad", x: [4, 5], more: [longs(2, 3), undefined, longs(1)] };
    expect(shapeOf(one)).toEqual([4, 10]);
    const row = [1, 2, 3, 4, 5];
    const values = await runNetwork(lowered(one), { x: [...row, ...row, ...row, ...row] });
    const padded = [0, 0, ...row, 0, 0, 0];
    expect(Array.from(values.get("y") ?? [])).toEqual([...padded, ...padded, ...padded, ...padded]);
  });
});

describe("Tile", () => {
  it("repeats what it reads along each dimension", async () => {
    const values = await runNetwork(lowered({ op: "Tile", x: [2, 2], more: [longs(2, 3)] }), { x: [1, 2, 3, 4] });
    const first = [1, 2, 1, 2, 1, 2];
    const second = [3, 4, 3, 4, 3, 4];
    expect(Array.from(values.get("y") ?? [])).toEqual([first, second, first, second].flat());
  });
});

describe("a node", () => {
  it("is refused when its output has another shape than the model says", () => {
    expect(refused({ op: "Relu", x: [2, 3], declared: [2, 3] })).toBe("accepted");
    expect(refused({ op: "Relu", x: [2, 3], declared: [3, 2] })).toBe(
      "act (Relu): its output y is f32[2,3], and the model says [3,2]",
    );
    expect(refused({ op: "Relu", x: [2, 3], declared: [6] })).toMatch(/the model says .6./);
  });

  it("is refused when it has an attribute or input that its operator ignores", () => {
    const scalar: Constant = { type: "f32", shape: [], values: Float32Array.of(1) };
    expect([
      refused({ op: "ReduceMean", x: [2, 3], attributes: { axes: [1] } }),
      refused({ op: "ReduceMean", opset: 17, x: [2, 3], more: [longs(1)] }),
      refused({ op: "Clip", x: [2, 3], attributes: { min: 0 } }),
      refused({ op: "Pad", x: [2, 3], more: [longs(0, 0, 1, 1)], attributes: { pads: [0, 0, 1, 1] } }),
      refused({ op: "Squeeze", x: [1, 3], attributes: { axes: [0] } }),
      refused({ op: "Add", x: [2, 3], more: [scalar], attributes: { broadcast: 1 } }),
      refused({ op: "Relu", x: [2, 3], more: [scalar] }),
      refused({ op: "Split", x: [4, 3], attributes: { num_outputs: 3 }, outputs: ["y", "z"] }),
    ]).toMatchInlineSnapshot(`
      [
        "act (ReduceMean): the attribute axes is not supported in opset 18",
        "act (ReduceMean): input 1, c0, is not supported in opset 17",
        "act (Clip): the attribute min is not supported in opset 18",
        "act (Pad): the attribute pads is not supported in opset 18",
        "act (Squeeze): the attribute axes is not supported in opset 18",
        "act (Add): the attribute broadcast is not supported in opset 18",
        "act (Relu): input 1, c0, is not supported in opset 18",
        "act (Split): num_outputs is 3, and it has 2 outputs",
      ]
    `);
  });

  it("may have attributes that change nothing here", () => {
    expect(refused({ op: "Cast", opset: 19, x: [2], attributes: { to: 11, saturate: 0 } })).toBe("accepted");
    expect(refused({ op: "Dropout", x: [2], attributes: { seed: 3 } })).toBe("accepted");
    expect(refused({ op: "ReduceMean", x: [2], more: [longs(0)], attributes: { noop_with_empty_axes: 1 } })).toBe(
      "accepted",
    );
    expect(refused({ op: "Split", x: [4, 3], attributes: { num_outputs: 2 }, outputs: ["y", "z"] })).toBe("accepted");
  });
});

describe("QuantizeLinear", () => {
  const scale: Constant = { type: "f32", shape: [], values: Float32Array.of(1) };
  const of = (output_dtype: number, zero?: Constant): One => ({
    op: "QuantizeLinear",
    opset: 21,
    x: [3],
    more: [scale, ...(zero ? [zero] : [])],
    attributes: { output_dtype },
  });

  it("gives the type in output_dtype", async () => {
    expect(lowered(of(3)).outputs[0]?.value.type).toBe("s8");
    const values = await runNetwork(lowered(of(3)), { x: [-5, 3, 300] });
    expect(Array.from(values.get("y") ?? [])).toEqual([-5, 3, 127]);
    expect(lowered(of(2)).outputs[0]?.value.type).toBe("u8");
    expect(lowered(of(0)).outputs[0]?.value.type).toBe("u8");
  });

  it("is refused when output_dtype differs from its zero point's type, or is unsupported", () => {
    const zero: Constant = { type: "u8", shape: [], values: Uint8Array.of(1) };
    expect([refused(of(3, zero)), refused(of(2, zero)), refused(of(4)), refused(of(17))]).toMatchInlineSnapshot(`
      [
        "act (QuantizeLinear): output_dtype s8 contradicts its zero point of u8",
        "accepted",
        "act (QuantizeLinear): u16 is not supported; u8 and s8 are",
        "act (QuantizeLinear): output_dtype 17 is not supported; u8 and s8 are",
      ]
    `);
  });
});

describe("windows", () => {
  it("are counted without visiting them, and refused when larger than a step may be", () => {
    const pool = (kernel: readonly number[], more: Readonly<Record<string, Attribute>>): One => ({
      op: "AveragePool",
      x: [1, 1, 224, 1],
      attributes: { kernel_shape: kernel, ...more },
    });
    const seconds = processorWatch();
    expect(refused(pool([2 ** 31 - 1, 1], { auto_pad: "SAME_UPPER" }))).toBe(
      "act (AveragePool): its kernel [2147483647,1] must hold 2 numbers from 1 to 16777216",
    );
    expect(refused(pool([2 ** 24, 1], { auto_pad: "SAME_UPPER" }))).toBe("accepted");
    expect(seconds()).toBeLessThan(10);
  });

  it("cover as many elements as were counted", async () => {
    const size = 9;
    const width = 3;
    const stride = 2;
    const begin = 3;
    const end = 2;
    for (const dilation of [1, 2, 3])
      for (const withPadding of [0, 1]) {
        const attributes = {
          kernel_shape: [width],
          strides: [stride],
          dilations: [dilation],
          pads: [begin - 1, end],
          count_include_pad: withPadding,
        };
        const program = lowered({ op: "AveragePool", opset: 19, x: [1, 1, size], attributes });
        const values = await runNetwork(program, { x: Array.from({ length: size }, () => 1) });
        const means = Array.from(values.get("y") ?? [], (_, p) => {
          const at = Array.from({ length: width }, (__, r) => p * stride + r * dilation - (begin - 1));
          const inside = at.filter((place) => place >= 0 && place < size).length;
          const counted = at.filter((place) => place >= 1 - begin && place < size + end).length;
          return Math.fround(inside / (withPadding ? counted : inside));
        });
        expect(Array.from(values.get("y") ?? []), `dilation ${dilation}`).toEqual(means);
      }
  });
});

describe("a contradiction of shapes", () => {
  it("between kernel_shape and the filters is refused, also where the list is too short", () => {
    const w: Constant = { type: "f32", shape: [1, 1, 3, 3], values: new Float32Array(9) };
    for (const op of ["Conv", "ConvTranspose"])
      expect(refused({ op, x: [1, 1, 5, 5], more: [w], attributes: { kernel_shape: [3], auto_pad: "VALID" } })).toBe(
        `act (${op}): kernel_shape [3] contradicts filters of [3,3]`,
      );
  });

  it("between an input and a constant bound in its place is refused", () => {
    const graph: Graph = {
      ...networkOf({ op: "Relu", x: [2] }),
      inputs: [{ name: "x", type: "f32", shape: ["n", 3] }],
    };
    const bound = (type: "f32" | "f64", shape: readonly number[], dims = {}): string => {
      const values = new Float64Array(shape.reduce((all, size) => all * size, 1));
      return refusalOf(() => lowerGraph(graph, { dims, constants: new Map([["x", { type, shape, values }]]) }));
    };
    expect(bound("f32", [2, 3])).toBe("accepted");
    expect([
      bound("f64", [2, 3]),
      bound("f32", [2, 4]),
      bound("f32", [6]),
      bound("f32", [2, 3], { n: 4 }),
    ]).toMatchInlineSnapshot(`
      [
        "--constant x: input x is f32[n,3], and the constant is f64[2,3]",
        "--constant x: input x is f32[n,3], and the constant is f32[2,4]",
        "--constant x: input x is f32[n,3], and the constant is f32[6]",
        "--constant x: input x is f32[4,3], and the constant is f32[2,3]",
      ]
    `);
  });
});

describe("bytes of bool that are neither 0 nor 1", () => {
  const of = (op: string): Program => {
    const names = op === "Not" ? ["a"] : ["a", "b"];
    const inputs = names.map((name): Input => ({ name, type: "bool", shape: [4] }));
    const nodes = [{ name: "act", op, inputs: names, outputs: ["y"], attributes: {} }];
    return lowerGraph({ name: "one", opset: 18, inputs, outputs: ["y"], constants: new Map(), nodes });
  };

  it.each([
    ["And", [1, 0, 0, 0]],
    ["Equal", [1, 0, 0, 1]],
    ["Or", [1, 1, 1, 0]],
    ["Xor", [0, 1, 1, 0]],
    ["Not", [0, 0, 1, 1]],
  ])("count as true in %s", async (op, expected) => {
    const values = await runNetwork(of(op), { a: [128, 255, 0, 0], b: [2, 0, 7, 0] });
    expect(Array.from(values.get("y") ?? [])).toEqual(expected);
  });
});

/** What one node makes of `x`. */
async function madeOf(one: One, x: readonly number[]): Promise<number[]> {
  const made = await runNetwork(lowered(one), { x });
  return Array.from(made.get("y") ?? []);
}

describe("the index of an extreme in a row with NaN", () => {
  const rows = [1, Number.NaN, 3, Number.NaN, 4, 7, 7, 5];
  const place = (op: string, last: number) =>
    madeOf({ op, x: [2, 4], attributes: { axis: 1, keepdims: 0, select_last_index: last } }, rows);

  it("is that of the first or last NaN, as in NumPy", async () => {
    expect(await place("ArgMax", 0)).toEqual([1, 1]);
    expect(await place("ArgMax", 1)).toEqual([3, 2]);
    expect(await place("ArgMin", 0)).toEqual([1, 0]);
    expect(await place("ArgMin", 1)).toEqual([3, 0]);
  });

  it("is that of the NaN in a window of MaxPool", async () => {
    const attributes = { kernel_shape: [2, 2], strides: [2, 2] };
    const one = { op: "MaxPool", x: [1, 1, 2, 4], attributes, outputs: ["most", "y"] };
    expect(await madeOf(one, rows)).toEqual([1, 3]);
  });
});

it("outside of an image, a crop has the extrapolation value", async () => {
  const more = [floats(0, 0, 0, -0.5, 1, 1, 1, 1.5), undefined, longs(1, 1, 1, 5)];
  const attributes = { mode: "linear", coordinate_transformation_mode: "tf_crop_and_resize", extrapolation_value: 9 };
  expect(await madeOf({ op: "Resize", opset: 13, x: [1, 1, 1, 3], more, attributes }, [1, 2, 3])).toEqual([
    9, 1, 2, 3, 9,
  ]);
});

describe("Resize", () => {
  const by = (scales: readonly number[], x: readonly number[], attributes: One["attributes"] = {}): One => ({
    op: "Resize",
    x,
    more: [undefined, floats(...scales)],
    attributes: { nearest_mode: "floor", ...attributes },
  });
  const to = (sizes: readonly number[], x: readonly number[], attributes: One["attributes"] = {}): One => ({
    op: "Resize",
    x,
    more: [undefined, undefined, longs(...sizes)],
    attributes,
  });

  it("makes as many elements as the product in f32 gives", () => {
    const sizes = [0.7, 0.9, 1.4, 2.3].map((scale) => shapeOf(by([1, scale], [1, 10]))?.[1]);
    expect(sizes).toEqual([7, 9, 14, 23]);
  });

  it("keeps infinity and NaN to the outputs nearest to them", async () => {
    const x = [0, 1, 2, Number.POSITIVE_INFINITY, 4, 5, 6, 7, 8, Number.NaN];
    const one = by([1, 1.19], [1, 10], { coordinate_transformation_mode: "asymmetric" });
    expect(await madeOf(one, x)).toEqual(Array.from({ length: 11 }, (_, p) => x[Math.floor(p / Math.fround(1.19))]));
  });

  it("takes an axis of 100,000 outputs", () => {
    expect(shapeOf(to([1, 1, 100_000], [1, 1, 1000], { mode: "linear" }))).toEqual([1, 1, 100_000]);
  });

  it("is refused where an axis would need too many weights", () => {
    expect(refused(to([1, 2_000_000_000], [1, 2]))).toBe(
      "act (Resize): constants made while the network is read would hold more than 268435456 elements",
    );
  });

  it("finds for each axis by itself which part of a crop lies outside", () => {
    const more = [floats(0, 0, -1, -1, 1, 1, 2, 2), undefined, longs(1, 1, 30_000, 30_000)];
    const attributes = { coordinate_transformation_mode: "tf_crop_and_resize" };
    expect(shapeOf({ op: "Resize", x: [1, 1, 2, 2], more, attributes })).toEqual([1, 1, 30_000, 30_000]);
  });

  it("is refused with exclude_outside in the modes nearest and linear", () => {
    const of = (mode: string): string => refused(by([1, 2], [1, 3], { mode, exclude_outside: 1 }));
    expect([of("nearest"), of("linear"), of("cubic")]).toEqual([
      "act (Resize): exclude_outside is supported with cubic only, and its mode is nearest",
      "act (Resize): exclude_outside is supported with cubic only, and its mode is linear",
      "accepted",
    ]);
  });

  it("is refused with scales for a part of the image", () => {
    const attributes = { coordinate_transformation_mode: "tf_crop_and_resize" };
    const of = (end: number): string =>
      refused({ op: "Resize", x: [1, 8], more: [floats(0, 0, 1, end), floats(1, 1)], attributes });
    expect(of(0.5)).toBe("act (Resize): scales of a part of dimension 1 are not supported; sizes are");
    expect(of(1)).toBe("accepted");
  });
});

describe("the indices of MaxPool", () => {
  const one = (x: readonly number[], attributes: One["attributes"]): One => ({
    op: "MaxPool",
    x: [1, 1, ...x],
    attributes: { storage_order: 1, ...attributes },
    outputs: ["most", "y"],
  });

  it("are those of the first of equal elements by rows, also when counted by columns", async () => {
    expect(await madeOf(one([2, 2], { kernel_shape: [2, 2] }), [1, 5, 5, 1])).toEqual([2]);
    expect(await madeOf(one([2, 3], { kernel_shape: [1, 1] }), [1, 2, 3, 4, 5, 6])).toEqual([0, 2, 4, 1, 3, 5]);
    const places = Array.from({ length: 12 }, (_, i) => (i % 2) * 6 + (Math.floor(i / 2) % 3) * 2 + Math.floor(i / 6));
    expect(await madeOf(one([2, 3, 2], { kernel_shape: [1, 1, 1] }), places)).toEqual(places);
  });

  it("are refused where a window lies in the padding alone", () => {
    const attributes = { kernel_shape: [2], dilations: [10], pads: [5, 5] };
    for (const op of ["MaxPool", "AveragePool"])
      expect(refused({ op, opset: 19, x: [1, 1, 3], attributes })).toBe(
        `act (${op}): a window at position 0 of spatial dimension 0 lies in the padding alone`,
      );
  });
});

describe("OneHot", () => {
  it.each([
    ["f32", [4294967296, -4294967296, Number.NaN, Number.POSITIVE_INFINITY, 2, -1]],
    ["f64", [4294967296, -4294967296, Number.NaN, Number.POSITIVE_INFINITY, 2, -1]],
    ["u32", [4294967295, 2147483648, 3, 4294967292, 2, 2]],
    ["u8", [255, 3, 254, 253, 2, 2]],
  ] as const)("with indices of %s chooses nothing for an index out of range", async (type, x) => {
    const depth: Constant = { type: "s64", shape: [], values: Float64Array.of(3) };
    const graph = networkOf({ op: "OneHot", x: [6], more: [depth, floats(0, 1)] });
    const program = lowerGraph({ ...graph, inputs: [{ name: "x", type, shape: [6] }] });
    const made = await runNetwork(program, { x });
    const none = [0, 0, 0];
    expect(Array.from(made.get("y") ?? [])).toEqual([none, none, none, none, [0, 0, 1], [0, 0, 1]].flat());
  });
});
