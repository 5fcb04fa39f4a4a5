/** @file A small network opened, tuned, written as a verified library, and called; its numbers beside plain loops. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { emitNetwork, type Graph, loadNetwork, openGraph, tuneNetwork } from "automap/network";

const folder = mkdtempSync(join(tmpdir(), "automap-network-"));
const database = join(folder, "automap.db");

// `readOnnx("model.onnx")` gives such a graph. This one has a product and an activation: y = relu(x w).
const weights = Float32Array.from({ length: 64 * 32 }, (_, i) => (i % 5) - 2);
const graph: Graph = {
  name: "layer",
  opset: 17,
  inputs: [{ name: "x", type: "f32", shape: ["batch", 64] }],
  outputs: ["y"],
  constants: new Map([["w", { type: "f32", shape: [64, 32], values: weights }]]),
  nodes: [
    { name: "product", op: "MatMul", inputs: ["x", "w"], outputs: ["sums"], attributes: {} },
    { name: "activation", op: "Relu", inputs: ["sums"], outputs: ["y"], attributes: {} },
  ],
};

const opened = openGraph(graph, { dims: { batch: 8 } });
const tasks = await tuneNetwork(opened.program, { seconds: 3, seed: 1, database });
console.log(`${tasks.length} task, ${tasks.filter(({ seconds }) => seconds !== undefined).length} tuned`);

const emitted = await emitNetwork(opened, { to: join(folder, "layer"), database, verify: true });
console.log(`${emitted.name}: ${emitted.proof?.status}`);

const layer = await loadNetwork(join(folder, "layer"));
const x = Float32Array.from({ length: 8 * 64 }, (_, i) => i % 7);
const { y } = layer.run({ x });
layer.close();
rmSync(folder, { recursive: true });

const wanted = Array.from({ length: 8 * 32 }, (_, at) => {
  let sum = 0;
  for (let k = 0; k < 64; k++) sum += (x[64 * Math.floor(at / 32) + k] ?? 0) * (weights[32 * k + (at % 32)] ?? 0);
  return Math.max(sum, 0);
});
console.log(wanted.every((number, at) => number === y?.[at]) ? "equal to plain loops" : "WRONG");
