/** @file The notation of epilogues, and the named ones. What they compute, and must be, is in test/golden/computations/epilogues.txt. */

import { describe, expect, it } from "vitest";
import {
  type Computation,
  type ComputationSpec,
  computationKey,
  defineComputation,
  equationText,
  inputsOf,
  outputOf,
  targetOf,
} from "../../abstraction/computation.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { readComputation } from "../../cli/subject.ts";
import { OPERATORS, operatorNamed } from "../../operators/index.ts";
import { instantiate } from "../../operators/operator.ts";
import { messageOf } from "../support/message.ts";
import { operation } from "../support/subjects.ts";

const PRODUCT = {
  equation: "out[i,j] += s32(a[i,k]) * s32(b[k,j])",
  extents: { i: 2, j: 2, k: 2 },
  tensors: { a: "u8", b: "s8" },
} as const;

function product(epilogue: string, tensors: ComputationSpec["tensors"] = {}): Computation {
  return defineComputation({ ...PRODUCT, epilogue, tensors: { ...PRODUCT.tensors, ...tensors } });
}

describe("an epilogue", () => {
  const requantized = product("res[i,j] = sat_u8(round(f32(out[i,j]) * scale[j] + bias[j]))", {
    scale: { dtype: "f32", constant: true },
    bias: { dtype: "f32", constant: true },
  });

  it("makes its target the output and keeps the sum out of memory", () => {
    expect(Object.keys(requantized.tensors)).toEqual(["res", "a", "b", "scale", "bias"]);
    expect([targetOf(requantized).name, targetOf(requantized).dtype]).toEqual(["out", "s32"]);
    expect([outputOf(requantized).name, outputOf(requantized).dtype]).toEqual(["res", "u8"]);
    expect(inputsOf(requantized).map((t) => t.name)).toEqual(["a", "b", "scale", "bias"]);
    const plain = defineComputation(PRODUCT);
    expect(outputOf(plain)).toBe(targetOf(plain));
  });

  it("prints behind a semicolon, and reads back to the same key", () => {
    expect(equationText(requantized)).toBe(
      "out[i,j] += s32(a[i,k]) * s32(b[k,j]); res[i,j] = sat_u8(round(f32(out[i,j]) * scale[j] + bias[j]))",
    );
    const tensors = Object.fromEntries(
      Object.values(requantized.tensors).map(({ name, dtype, constant }) => [name, { dtype, constant }]),
    );
    const again = defineComputation({ equation: equationText(requantized), extents: PRODUCT.extents, tensors });
    expect(computationKey(again)).toBe(computationKey(requantized));
    expect(computationKey(requantized)).not.toBe(computationKey(defineComputation(PRODUCT)));
    expect(computationKey(product("res[i,j] = max(out[i,j], 0)"))).not.toBe(
      computationKey(product("res[i,j] = max(out[i,j], 1)")),
    );
  });

  it("is refused where it is of another type or layout than its sum, and beside another", () => {
    const because = (epilogue: string, tensors: ComputationSpec["tensors"] = {}): string =>
      messageOf(() => product(epilogue, tensors)).replace("equation: ", "");
    expect([
      because("res[i,j] = out[i,j] + x[j]"),
      because("res[i,j] = f32(out[i,j])", { res: "u8" }),
      because("res[i,j] = f32(out[i,j])", { out: { dtype: "s32", layout: "JI" } }),
      messageOf(() =>
        defineComputation({ ...PRODUCT, equation: `${PRODUCT.equation}; r[i,j] = out[i,j]; s[i,j] = r[i,j]` }),
      ),
    ]).toMatchInlineSnapshot(`
      [
        "tensor "x" has no data type",
        "res is u8 but the value is f32",
        "out is never stored; res has the layout",
        "equation: there can be one epilogue, got 2",
      ]
    `);
  });
});

// ------------------------------------------------------------------------------------------------- lowered

describe("epilogues by name", () => {
  it("apply to every operator, those with a bias only where the output has channels", () => {
    const withChannels: string[] = [];
    for (const operator of OPERATORS) {
      if (operator.stores !== undefined) {
        expect(messageOf(() => instantiate(operator, { epilogue: "relu" }))).toBe(
          `${operator.name}: its sums have an epilogue already`,
        );
        continue;
      }
      for (const epilogue of ["relu", "bf16"]) expect(outputOf(instantiate(operator, { epilogue })).name).toBe("res");
      if (messageOf(() => instantiate(operator, { epilogue: "requantize" })) === "accepted")
        withChannels.push(operator.name);
    }
    expect(withChannels).toMatchInlineSnapshot(`
      [
        "matvec",
        "matmul",
        "matmul-4bit",
        "matmul-8bit",
        "matmul-4bit-s8",
        "scaled-matmul",
        "batched-matmul",
        "grouped-fc",
        "grouped-matmul",
        "counted-matmul",
        "conv1d",
        "conv2d",
        "conv3d",
        "transposed-conv2d",
        "grouped-conv2d",
        "dilated-conv2d",
        "depthwise-conv2d",
        "capsule-conv2d",
        "batched-conv2d",
        "mean",
        "variance",
      ]
    `);
  });

  it("read as equations", () => {
    const of = (epilogue: string, layouts: string): string => {
      const types = { inputs: ["u8", "s8"] as const, sum: "s32" as const };
      const made = instantiate(operatorNamed("conv2d"), { epilogue, layouts, types, parameters: { groups: 2 } });
      return [
        equationText(made).split("; ")[1],
        ...Object.values(made.tensors).map((t) => `${t.name} ${t.dtype}`),
      ].join(", ");
    };
    expect(["relu", "bias", "bias-relu", "requantize", "bf16"].map((name) => of(name, "NHWC"))).toMatchInlineSnapshot(`
      [
        "res[n,k,p,q] = max(out[n,k,p,q], 0), res s32, in u8, w s8",
        "res[n,k,p,q] = out[n,k,p,q] + bias[k], res s32, in u8, w s8, bias s32",
        "res[n,k,p,q] = max(out[n,k,p,q] + bias[k], 0), res s32, in u8, w s8, bias s32",
        "res[n,k,p,q] = sat_u8(round(max(f32(out[n,k,p,q]) * scale[k] + bias[k], 0))), res u8, in u8, w s8, scale f32, bias f32",
        "res[n,k,p,q] = bf16(out[n,k,p,q]), res bf16, in u8, w s8",
      ]
    `);
    expect(of("y[n,k,p,q] = f32(out[n,k,p,q]) * alpha[k] + rest[n,k,p,q]", "NHWC")).toMatchInlineSnapshot(
      `"y[n,k,p,q] = f32(out[n,k,p,q]) * alpha[k] + rest[n,k,p,q], y f32, in u8, w s8, alpha f32, rest f32"`,
    );
    expect(messageOf(() => of("requantise", "NHWC"))).toMatchInlineSnapshot(`"unknown epilogue "requantise""`);
  });

  it("write every element of an output of the sum's shape", () => {
    const of = (text: string, shape: readonly number[]) => product(text, { res: { dtype: "s32", shape } });
    const added = "res[i,j] = out[i,j] + 1";
    expect(of(added, [2, 2]).tensors["res"]?.dims.length).toBe(2);
    expect(messageOf(() => of(added, [2, 3]))).toBe(
      "equation: epilogue: res has shape 2 x 3, and 2 x 2 elements are written",
    );
    expect(messageOf(() => of(added, [1, 2]))).toMatch(/res.i,j. lies outside res, of shape 1 x 2/);
    expect(messageOf(() => of("res[j,i] = out[i,j] + 1", [3, 2]))).toMatch(/2 x 2 elements are written/);
  });

  it("give the layout of the output to the stored tensor", () => {
    const made = operation("conv2d NHWC", "f32", { epilogue: "relu" });
    const plain = operation("conv2d NHWC");
    expect(outputOf(made).storage).toEqual(outputOf(plain).storage);
  });

  it("are options of the command line", () => {
    const matmul = { m: 4, n: 8, k: 4 };
    const named = readComputation("matmul", matmul, { dtype: "u8s8", epilogue: "requantize" });
    expect(outputOf(named).dtype).toBe("u8");
    const sizes = { i: 4, j: 8, k: 4 };
    const text = "c[i,j] += s32(a[i,k]) * s32(b[k,j])";
    const options = { dtype: "u8s8", epilogue: "d[i,j] = f32(c[i,j]) * s[j]", layout: "d=JI" };
    const equation = readComputation(text, sizes, options);
    expect(Object.values(equation.tensors).map((t) => `${t.name} ${t.dtype}`)).toEqual([
      "d f32",
      "a u8",
      "b s8",
      "s f32",
    ]);
    expect(
      computationKey(readComputation(`${text}; d[i,j] = f32(c[i,j]) * s[j]`, sizes, { dtype: "u8s8", layout: "d=JI" })),
    ).toBe(computationKey(equation));
    expect(messageOf(() => readComputation(text, sizes, { dtype: "u8s8", epilogue: "bias" }))).toMatchInlineSnapshot(
      `"equation: epilogue bias has a value for each channel, and c has no channels"`,
    );
  });

  // Values of torch.nn.functional: gelu in its exact form, silu, hardswish.
  it.each([
    ["relu", [-2, 0, 1, 4], [0, 0, 1, 4]],
    ["gelu", [-2, 0, 1, 4], [-0.0455003, 0, 0.8413447, 3.9998733]],
    ["bias-gelu", [-3, -1, 0, 3], [-0.0455003, 0, 0.8413447, 3.9998733]],
    ["silu", [-2, 0, 1, 4], [-0.2384058, 0, 0.7310586, 3.9280552]],
    ["hardswish", [-4, -2, 1, 4], [0, -1 / 3, 2 / 3, 4]],
    ["f16", [0.1, 2049], [0.0999755859375, 2048]],
    ["bf16", [0.1, 257], [0.10009765625, 256]],
  ])("%s of %j is %j", (epilogue, sums, results) => {
    const sizes = `matmul m=${sums.length} n=1 k=1`;
    const made = interpret(operation(sizes, "f32", { epilogue }), { a: sums, b: [1], bias: [1] });
    for (const [i, result] of results.entries()) expect(made[i]).toBeCloseTo(result, 6);
    if (!sums.every(Number.isInteger) || Math.max(...sums) > 255) return;
    // Of sums of integers in f32.
    const integers = interpret(operation(`matmul m=1 n=${sums.length} k=1`, "u8s8", { epilogue }), {
      a: [1],
      b: sums,
      bias: sums.map(() => 1),
    });
    for (const [i, result] of results.entries()) expect(integers[i]).toBeCloseTo(result, 6);
  });

  it("f32 gives sums of integers as floats", () => {
    const made = operation("matmul m=1 n=1 k=2", "u8s8", { epilogue: "f32" });
    expect(outputOf(made).dtype).toBe("f32");
    expect([...interpret(made, { a: [200, 200], b: [-100, -100] })]).toEqual([-40000]);
  });
});
