/** @file Nodes are computed by all their attributes, in every opset: an unknown attribute is refused by name. */

import { describe, expect, it } from "vitest";
import type { Graph } from "../network/graph.ts";
import { lowerGraph } from "../network/lower.ts";
import { messageOf } from "./support/message.ts";
import { made, onnx, refused } from "./support/networks.ts";
import { processorWatch } from "./support/processor-time.ts";

const outputOf = (graph: Graph) => lowerGraph(graph).outputs[0]?.value;
const shapeOf = (graph: Graph): readonly number[] | undefined => outputOf(graph)?.shape;

/** What one node makes, or why it is refused. @param text the node */
const madeBy = (text: string, x: readonly number[], opset = 18): Promise<number[]> => made(onnx(text, opset), x);
const refusedBy = (text: string, opset = 18): string => refused(onnx(text, opset));

describe("Pad with axes", () => {
  it("leaves the other dimensions unchanged", async () => {
    const row = [1, 2, 3, 4, 5];
    const padded = [0, 0, ...row, 0, 0, 0];
    const pad = onnx("Pad(x[4,5], s64{2,3}, , s64{1})", 18);
    expect(shapeOf(pad)).toEqual([4, 10]);
    expect(await made(pad, [...row, ...row, ...row, ...row])).toEqual([...padded, ...padded, ...padded, ...padded]);
  });
});

describe("Tile", () => {
  it("repeats what it reads along each dimension", async () => {
    const first = [1, 2, 1, 2, 1, 2];
    const second = [3, 4, 3, 4, 3, 4];
    expect(await madeBy("Tile(x[2,2], s64{2,3})", [1, 2, 3, 4])).toEqual([first, second, first, second].flat());
  });
});

describe("a node", () => {
  it("is refused when its output has another shape than the model says", () => {
    const relu = (...said: readonly number[]): string =>
      refused({ ...onnx("y = Relu(x[2,3])"), declared: new Map([["y", said]]) });
    expect(relu(2, 3)).toBe("accepted");
    expect(relu(3, 2)).toBe("y (Relu): its output y is f32[2,3], and the model says [3,2]");
    expect(relu(6)).toMatch(/the model says .6./);
  });

  it("is refused when it has an attribute or input that its operator ignores", () => {
    expect([
      refusedBy("ReduceMean<axes=[1]>(x[2,3])"),
      refusedBy("ReduceMean(x[2,3], s64{1})", 17),
      refusedBy("Clip<min=0>(x[2,3])"),
      refusedBy("Pad<pads=[0,0,1,1]>(x[2,3], s64{0,0,1,1})"),
      refusedBy("Squeeze<axes=[0]>(x[1,3])"),
      refusedBy("Add<broadcast=1>(x[2,3], 1)"),
      refusedBy("Relu(x[2,3], 1)"),
      refusedBy("y, z = Split<num_outputs=3>(x[4,3])"),
    ]).toMatchInlineSnapshot(`
      [
        "reducemean0 (ReduceMean): the attribute axes is not supported in opset 18",
        "reducemean0 (ReduceMean): input 1, c0, is not supported in opset 17",
        "clip0 (Clip): the attribute min is not supported in opset 18",
        "pad0 (Pad): the attribute pads is not supported in opset 18",
        "squeeze0 (Squeeze): the attribute axes is not supported in opset 18",
        "add0 (Add): the attribute broadcast is not supported in opset 18",
        "relu0 (Relu): input 1, c0, is not supported in opset 18",
        "y (Split): num_outputs is 3, and it has 2 outputs",
      ]
    `);
  });

  it("may have attributes that change nothing here", () => {
    expect(refusedBy("Cast<to=11, saturate=0>(x[2])", 19)).toBe("accepted");
    expect(refusedBy("Dropout<seed=3>(x[2])")).toBe("accepted");
    expect(refusedBy("ReduceMean<noop_with_empty_axes=1>(x[2], s64{0})")).toBe("accepted");
    expect(refusedBy("y, z = Split<num_outputs=2>(x[4,3])")).toBe("accepted");
  });
});

describe("QuantizeLinear", () => {
  const quantize = (type: number, zero = "") => onnx(`QuantizeLinear<output_dtype=${type}>(x[3], 1${zero})`, 21);

  it("gives the type in output_dtype", async () => {
    expect(await made(quantize(3), [-5, 3, 300])).toEqual([-5, 3, 127]);
    expect([3, 2, 0].map((type) => outputOf(quantize(type))?.type)).toEqual(["s8", "u8", "u8"]);
  });

  it("is refused when output_dtype differs from its zero point's type, or is unsupported", () => {
    const zero = ", u8[]{1}";
    expect([quantize(3, zero), quantize(2, zero), quantize(4), quantize(17)].map(refused)).toMatchInlineSnapshot(`
      [
        "quantizelinear0 (QuantizeLinear): output_dtype s8 contradicts its zero point of u8",
        "accepted",
        "quantizelinear0 (QuantizeLinear): u16 is not supported; u8 and s8 are",
        "quantizelinear0 (QuantizeLinear): output_dtype 17 is not supported; u8 and s8 are",
      ]
    `);
  });
});

describe("windows", () => {
  it("are counted without visiting them, and refused when larger than a step may be", () => {
    const pool = (size: number): string =>
      refusedBy(`AveragePool<kernel_shape=[${size},1], auto_pad=SAME_UPPER>(x[1,1,224,1])`);
    const seconds = processorWatch();
    expect(pool(2 ** 31 - 1)).toBe(
      "averagepool0 (AveragePool): its kernel [2147483647,1] must hold 2 numbers from 1 to 16777216",
    );
    expect(pool(2 ** 24)).toBe("accepted");
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
        const window = `kernel_shape=[${width}], strides=[${stride}], dilations=[${dilation}], pads=[${begin - 1},${end}]`;
        const pool = `AveragePool<${window}, count_include_pad=${withPadding}>(x[1,1,${size}])`;
        const values = await madeBy(pool, new Array<number>(size).fill(1), 19);
        const means = values.map((_, p) => {
          const at = Array.from({ length: width }, (__, r) => p * stride + r * dilation - (begin - 1));
          const inside = at.filter((place) => place >= 0 && place < size).length;
          const counted = at.filter((place) => place >= 1 - begin && place < size + end).length;
          return Math.fround(inside / (withPadding ? counted : inside));
        });
        expect(values, `dilation ${dilation}`).toEqual(means);
      }
  });
});

describe("a contradiction of shapes", () => {
  it("between kernel_shape and the filters is refused, also where the list is too short", () => {
    for (const op of ["Conv", "ConvTranspose"])
      expect(refusedBy(`act = ${op}<kernel_shape=[3], auto_pad=VALID>(x[1,1,5,5], [1,1,3,3]{0})`)).toBe(
        `act (${op}): kernel_shape [3] contradicts filters of [3,3]`,
      );
  });

  it("between an input and a constant bound in its place is refused", () => {
    const bound = (type: "f32" | "f64", shape: readonly number[], dims = {}): string => {
      const values = new Float64Array(shape.reduce((all, size) => all * size, 1));
      return messageOf(() =>
        lowerGraph(onnx("Relu(x[n,3])"), { dims, constants: new Map([["x", { type, shape, values }]]) }),
      );
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
  it.each([
    ["And(a:bool[4], b:bool[4])", [1, 0, 0, 0]],
    ["Equal(a:bool[4], b:bool[4])", [1, 0, 0, 1]],
    ["Or(a:bool[4], b:bool[4])", [1, 1, 1, 0]],
    ["Xor(a:bool[4], b:bool[4])", [0, 1, 1, 0]],
    ["Not(a:bool[4])", [0, 0, 1, 1]],
  ])("count as true in %s", async (node, expected) => {
    expect(await made(onnx(node), { a: [128, 255, 0, 0], b: [2, 0, 7, 0] })).toEqual(expected);
  });
});

describe("the index of an extreme in a row with NaN", () => {
  const rows = [1, Number.NaN, 3, Number.NaN, 4, 7, 7, 5];

  it("is that of the first or last NaN, as in NumPy", async () => {
    const place = (op: string, last: number) =>
      madeBy(`${op}<axis=1, keepdims=0, select_last_index=${last}>(x[2,4])`, rows);
    expect(await place("ArgMax", 0)).toEqual([1, 1]);
    expect(await place("ArgMax", 1)).toEqual([3, 2]);
    expect(await place("ArgMin", 0)).toEqual([1, 0]);
    expect(await place("ArgMin", 1)).toEqual([3, 0]);
  });

  it("is that of the NaN in a window of MaxPool", async () => {
    const pool = onnx("most, y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(x[1,1,2,4])", 18);
    expect(await made(pool, rows, "y")).toEqual([1, 3]);
  });
});

const CROP = "coordinate_transformation_mode=tf_crop_and_resize";

it("outside of an image, a crop has the extrapolation value", async () => {
  const crop = `Resize<mode=linear, ${CROP}, extrapolation_value=9>(x[1,1,1,3], {0,0,0,-0.5,1,1,1,1.5}, , s64{1,1,1,5})`;
  expect(await madeBy(crop, [1, 2, 3], 13)).toEqual([9, 1, 2, 3, 9]);
});

describe("Resize", () => {
  it("makes as many elements as the product in f32 gives", () => {
    const sizes = [0.7, 0.9, 1.4, 2.3].map(
      (scale) => shapeOf(onnx(`Resize<nearest_mode=floor>(x[1,10], , {1,${scale}})`, 18))?.[1],
    );
    expect(sizes).toEqual([7, 9, 14, 23]);
  });

  it("keeps infinity and NaN to the outputs nearest to them", async () => {
    const x = [0, 1, 2, Number.POSITIVE_INFINITY, 4, 5, 6, 7, 8, Number.NaN];
    const scaled = "Resize<nearest_mode=floor, coordinate_transformation_mode=asymmetric>(x[1,10], , {1,1.19})";
    expect(await madeBy(scaled, x)).toEqual(Array.from({ length: 11 }, (_, p) => x[Math.floor(p / Math.fround(1.19))]));
  });

  it("takes an axis of 100,000 outputs", () => {
    expect(shapeOf(onnx("Resize<mode=linear>(x[1,1,1000], , , s64{1,1,100000})", 18))).toEqual([1, 1, 100_000]);
  });

  it("is refused where an axis would need too many weights", () => {
    expect(refusedBy("Resize(x[1,2], , , s64{1,2000000000})")).toBe(
      "resize0 (Resize): constants made while the network is read would hold more than 268435456 elements",
    );
  });

  it("finds for each axis by itself which part of a crop lies outside", () => {
    const crop = onnx(`Resize<${CROP}>(x[1,1,2,2], {0,0,-1,-1,1,1,2,2}, , s64{1,1,30000,30000})`, 18);
    expect(shapeOf(crop)).toEqual([1, 1, 30_000, 30_000]);
  });

  it("is refused with exclude_outside in the modes nearest and linear", () => {
    const by = (mode: string): string =>
      refusedBy(`act = Resize<nearest_mode=floor, mode=${mode}, exclude_outside=1>(x[1,3], , {1,2})`);
    expect([by("nearest"), by("linear"), by("cubic")]).toEqual([
      "act (Resize): exclude_outside is supported with cubic only, and its mode is nearest",
      "act (Resize): exclude_outside is supported with cubic only, and its mode is linear",
      "accepted",
    ]);
  });

  it("is refused with scales for a part of the image", () => {
    const until = (end: number): string => refusedBy(`act = Resize<${CROP}>(x[1,8], {0,0,1,${end}}, {1,1})`);
    expect(until(0.5)).toBe("act (Resize): scales of a part of dimension 1 are not supported; sizes are");
    expect(until(1)).toBe("accepted");
  });
});

describe("the indices of MaxPool", () => {
  it("are those of the first of equal elements by rows, also when counted by columns", async () => {
    const places = (x: string, kernel: string, values: readonly number[]) =>
      made(onnx(`most, y = MaxPool<storage_order=1, kernel_shape=[${kernel}]>(x[1,1,${x}])`, 18), values, "y");
    expect(await places("2,2", "2,2", [1, 5, 5, 1])).toEqual([2]);
    expect(await places("2,3", "1,1", [1, 2, 3, 4, 5, 6])).toEqual([0, 2, 4, 1, 3, 5]);
    const all = Array.from({ length: 12 }, (_, i) => (i % 2) * 6 + (Math.floor(i / 2) % 3) * 2 + Math.floor(i / 6));
    expect(await places("2,3,2", "1,1,1", all)).toEqual(all);
  });

  it("are refused where a window lies in the padding alone", () => {
    for (const op of ["MaxPool", "AveragePool"])
      expect(refusedBy(`act = ${op}<kernel_shape=[2], dilations=[10], pads=[5,5]>(x[1,1,3])`, 19)).toBe(
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
    const none = [0, 0, 0];
    expect(await madeBy(`OneHot(x:${type}[6], s64[]{3}, {0,1})`, x)).toEqual(
      [none, none, none, none, [0, 0, 1], [0, 0, 1]].flat(),
    );
  });
});
