/** @file Operators of opset 1 to 10 mean what ONNX's texts of these versions say. */

import { describe, expect, it } from "vitest";
import { made, onnx, refused } from "./support/networks.ts";

const UP_TO_12 = Array.from({ length: 12 }, (_, i) => i);

describe("what later became an input is an attribute", () => {
  it("of Slice, before opset 10", async () => {
    const slice = "Slice<starts=[0,-2], ends=[2,9007199254740991]>(x[3,4])";
    expect(await made(onnx(slice, 9), UP_TO_12)).toEqual([2, 3, 6, 7]);
    const rows = onnx("Slice<starts=[1], ends=[3], axes=[0]>(x[3,4])", 7);
    expect(await made(rows, UP_TO_12)).toEqual([4, 5, 6, 7, 8, 9, 10, 11]);
    expect(refused(onnx(slice, 10))).toBe("slice0 (Slice): starts and ends are missing");
    expect(refused(onnx("Slice(x[3,4], s64{0}, s64{2})", 9))).toMatch(/starts and ends/);
  });

  it("of Pad, before opset 11", async () => {
    const pad = "Pad<pads=[1,2], value=9, mode=constant>(x[3])";
    expect(await made(onnx(pad, 10), [1, 2, 3])).toEqual([9, 1, 2, 3, 9, 9]);
    expect(await made(onnx("Pad<pads=[1,2], mode=reflect>(x[3])", 7), [1, 2, 3])).toEqual([2, 1, 2, 3, 2, 1]);
    expect(refused(onnx(pad, 11))).toMatch(/the padding needs 2 numbers/);
  });

  it("of Clip, before opset 11, where a missing one is no bound", async () => {
    expect(await made(onnx("Clip(x[4], {-1.5}, {6})", 13), [-3, -1, 5, 7])).toEqual([-1.5, -1, 5, 6]);
    expect(await made(onnx("Clip(x[4], {-1.5})", 13), [-3, -1, 5, 7])).toEqual([-1.5, -1, 5, 7]);
    const clip = "Clip<min=-1.5, max=6>(x[4])";
    expect(await made(onnx(clip, 10), [-5, 0, 5, 7])).toEqual([-1.5, 0, 5, 6]);
    expect(await made(onnx("Clip<max=1>(x[4])", 7), [-5, 0, 5, 7])).toEqual([-5, 0, 1, 1]);
    expect(await made(onnx("Clip(x[4])", 7), [-5, 0, 5, 7])).toEqual([-5, 0, 5, 7]);
    expect(refused(onnx(clip, 11))).toBe("clip0 (Clip): the attribute min is not supported in opset 11");
  });

  it("of Pow, whose exponent is one number for all or one for each", async () => {
    const power = (exponents: string) => onnx(`Pow(x[4], {${exponents}})`, 13);
    expect(await made(power("2"), [-3, 0, 0.5, 2])).toEqual([9, 0, 0.25, 4]);
    expect(await made(power("3"), [-3, 0, 0.5, 2])).toEqual([-27, 0, 0.125, 8]);
    expect(await made(power("2,0,1,-1"), [-3, 7, 0.5, 2])).toEqual([9, 1, 0.5, 0.5]);
  });

  it("of TopK, before opset 10", async () => {
    const top = "y, place = TopK<k=2>(x[4])";
    expect(await made(onnx(top, 9), [3, 9, 4, 1])).toEqual([9, 4]);
    expect(await made(onnx(top, 9), [3, 9, 4, 1], "place")).toEqual([1, 2]);
    expect(await made(onnx("y, place = TopK(x[4], s64{2})", 10), [3, 9, 4, 1])).toEqual([9, 4]);
    expect(refused(onnx(top, 10))).toMatch(/0 of 4 elements/);
  });

  it("of Upsample, before opset 9", async () => {
    const twice = onnx("Upsample<scales=[1,1,1,2]>(x[1,1,1,3])", 7);
    expect(await made(twice, [1, 2, 3])).toEqual([1, 1, 2, 2, 3, 3]);
    const given = onnx("Upsample<mode=linear>(x[1,1,1,3], {1,1,1,2})", 9);
    expect(await made(given, [1, 2, 3])).toEqual([1, 1.5, 2, 2.5, 3, 3]);
  });
});

describe("a text that changed", () => {
  it("holds for Resize in opset 10: coordinates are divided by the scale, and nearest ones rounded as ONNX Runtime does", async () => {
    const resized = (x: string, scales: string, values: readonly number[]) =>
      made(onnx(`Resize(x[${x}], {${scales}})`, 10), values);
    expect(await resized("1,1,2,4", "1,1,0.6,0.6", [1, 2, 3, 4, 5, 6, 7, 8])).toEqual([1, 3]);
    expect(await resized("1,1,1,4", "1,1,1,1.5", [1, 2, 3, 4])).toEqual([1, 1, 2, 3, 3, 4]);
    // 6 / 1.2 is 5 in f32, and less in f64.
    expect((await resized("1,1,1,10", "1,1,1,1.2", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]))[6]).toBe(5);
  });

  it("holds for OneHot: before opset 11 a negative index selects nothing", async () => {
    const one = "OneHot(x:s64[2], s64{3}, {0,1})";
    expect(await made(onnx(one, 9), [1, -1])).toEqual([0, 1, 0, 0, 0, 0]);
    expect(await made(onnx(one, 11), [1, -1])).toEqual([0, 1, 0, 0, 0, 1]);
  });

  it("is refused for ConvTranspose where ONNX and ONNX Runtime pad different ends", () => {
    const conv = (stride: number): string =>
      `ConvTranspose<auto_pad=SAME_UPPER, strides=[${stride}]>(x[1,1,4], [1,1,3]{1,2,3})`;
    expect(refused(onnx(conv(2), 10))).toMatch(/its padding of 1 is odd, and before opset 11/);
    expect(refused(onnx(conv(2), 11))).toBe("accepted");
    expect(refused(onnx(conv(1), 10))).toBe("accepted");
  });

  it("is refused for BatchNormalization of each pixel", () => {
    const norm = (spatial: number, opset: number): string =>
      refused(onnx(`BatchNormalization<spatial=${spatial}>(x[1,2,2], {1,1}, {0,0}, {0,0}, {1,1})`, opset));
    expect(norm(1, 7)).toBe("accepted");
    expect(norm(0, 7)).toMatch(/statistics of each pixel/);
    expect(norm(1, 9)).toMatch(/the attribute spatial is not supported/);
  });

  it("gives Scatter its later name", async () => {
    expect(await made(onnx("Scatter<axis=0>(x[3], s64{1}, {7})", 9), [1, 2, 3])).toEqual([1, 7, 3]);
  });
});

describe("before opset 7", () => {
  it("the second operand stands at the axis that is named, or at the last ones", async () => {
    const at1 = onnx("Add<broadcast=1, axis=1>(x[2,3,2], {100,200,300})", 6);
    const expected = UP_TO_12.map((x) => x + 100 * (1 + (Math.floor(x / 2) % 3)));
    expect(await made(at1, UP_TO_12)).toEqual(expected);
    const last = "add = Add<broadcast=1>(x[2,3,2], {100,200})";
    expect(await made(onnx(last, 6), UP_TO_12)).toEqual(UP_TO_12.map((x) => x + 100 * (1 + (x % 2))));
    expect(refused(onnx(last, 7))).toBe("add (Add): the attribute broadcast is not supported in opset 7");
    expect(refused(onnx("add = Add<broadcast=1, axis=3>(x[2,3,2], {100,200,300})", 6))).toMatch(
      /^add \(Add\): axis 3 of a tensor/,
    );
    expect(refused(onnx("add = Add<broadcast=1, axis=1>(x[2,3,2], [3,2,1]{1})", 6))).toBe(
      "add (Add): [3,2,1] does not fit into [2,3,2] at axis 1",
    );
  });

  it("a slope of PRelu belongs to a channel", async () => {
    const relu = "PRelu(x[1,2,2], {100,200})";
    expect(await made(onnx(relu, 6), [-1, 1, -1, -1])).toEqual([-100, 1, -200, -200]);
    expect(await made(onnx(relu, 7), [-1, 1, -1, -1])).toEqual([-100, 1, -100, -200]);
  });

  it("it must be said that a network is not trained", async () => {
    expect(await made(onnx("Dropout<is_test=1>(x[2])", 6), [1, 2])).toEqual([1, 2]);
    expect(refused(onnx("Dropout(x[2])", 6))).toBe("dropout0 (Dropout): training is not supported");
    expect(await made(onnx("Dropout(x[2])", 7), [1, 2])).toEqual([1, 2]);
  });

  it("an operator that meant something else is refused", async () => {
    const concat = "joined = Concat<axis=0>(x[1,2], [1,2]{100,200})";
    expect(await made(onnx(concat, 4), [1, 2])).toEqual([1, 2, 100, 200]);
    expect(refused(onnx(concat, 3))).toBe(
      "joined (Concat): opset 3 is supported where it says what opset 4 says, and this operator was another",
    );
    const relu = "Relu<consumed_inputs=[0]>(x[2])";
    expect(await made(onnx(relu, 1), [-1, 2])).toEqual([0, 2]);
    expect(refused(onnx(relu, 7))).toMatch(/the attribute consumed_inputs is not supported/);
  });
});
