/** Models of files beside ONNX Runtime: their weights, and what lies beside them. */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { modelNamed } from "../../bench/networks/built-network.ts";
import { GraphBuilder } from "../../network/builder.ts";
import { parseOnnx } from "../../network/onnx/read.ts";
import { onnxBytes } from "../support/onnx-bytes.ts";

const folder = mkdtempSync(join(tmpdir(), "automap-bench-models-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const two = { type: "f32", shape: [1], values: Float32Array.of(0.02) } as const;

/** A product whose weights the file has, and a sum with weights that it fills with one number. */
function written(name: string, isFilled: boolean): string {
  const net = new GraphBuilder(name);
  const weights = net.constant(
    "w",
    [4, 8],
    Float32Array.from({ length: 32 }, (_, i) => i),
  );
  const product = net.node("MatMul", [weights, net.input("x", [8, 4])], {}, "p");
  const shape = net.constant("shape", [2], Float64Array.of(4, 4), "s64");
  const filled = () => net.node("Add", [product, net.node("ConstantOfShape", [shape], { value: two }, "b")], {}, "sum");
  net.output(isFilled ? net.node("Softmax", [filled()], {}, "y") : product);
  const file = join(folder, `${name}.onnx`);
  writeFileSync(file, onnxBytes(net.graph));
  return file;
}

it("draws weights that a file fills with one number, for both sides alike, and keeps the others", () => {
  const { title, graph, bytes } = modelNamed(written("filled", true));
  expect(title).toBe("filled (file of opset 20, weights drawn)");
  expect(graph.nodes.map(({ op }) => op)).toEqual(["MatMul", "Add", "Softmax"]);
  expect(graph.outputs).toEqual(["y", "sum"]);
  expect(new Set(graph.constants.get("b")?.values).size).toBe(16);
  expect(graph.constants.get("w")?.values).toEqual(Float32Array.from({ length: 32 }, (_, i) => i));
  expect(parseOnnx(bytes(), "filled.onnx", folder).constants.get("b")).toEqual(graph.constants.get("b"));
});

it("hands a file without such weights to the peer as it is, and finds the output of its test", () => {
  const file = written("whole", false);
  const without = modelNamed(file);
  expect(without.title).toBe("whole (file of opset 20)");
  expect(without.test).toBeUndefined();
  // A tensor of two numbers: dims 2, data_type FLOAT, raw_data.
  writeFileSync(join(folder, "whole_output_0.pb"), Uint8Array.of(8, 2, 16, 1, 0x4a, 8, 0, 0, 128, 63, 0, 0, 0, 64));
  expect(modelNamed(file).test?.output.values).toEqual(Float32Array.of(1, 2));
  expect(() => modelNamed(file, 2)).toThrow("the sizes of");
});
