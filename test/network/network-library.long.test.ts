/** @file The library of a network, built and run: every step gives what its equation says, and a wrong one is named. */

import { readFileSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { describe, expect, it } from "vitest";
import { GraphBuilder } from "../../network/builder.ts";
import type { Graph } from "../../network/graph.ts";
import { bertBase } from "../../network/models/bert.ts";
import { SeededLayers } from "../../network/models/layers.ts";
import { miLstm } from "../../network/models/milstm.ts";
import { resnet50 } from "../../network/models/resnet.ts";
import { shufflenet } from "../../network/models/shufflenet.ts";
import { type NetworkParts, networkFiles, partsOfNetwork } from "../../package/network/index.ts";
import { runChild } from "../../runtime/child.ts";
import { shareCores } from "../../runtime/cores.ts";
import { choicesOf, inBrainFloatsOnCpu, networkSubject, openGraph } from "../../session/network/network.ts";
import { buildNetwork, proveNetwork } from "../../session/network/prove-network.ts";
import { writePackage } from "../../session/package/package-folder.ts";
import { exportedTransformer } from "../support/exported.ts";
import { compilerHere } from "../support/here.ts";
import { MOVES, onnx } from "../support/networks.ts";
import { expectProved } from "../support/proved-network.ts";
import { quantisedBlock } from "../support/quantised.ts";
import { scratchFolder } from "../support/scratch.ts";
import { inFull } from "../support/slow.ts";

const folder = scratchFolder();
const compiler = await compilerHere();

/** A residual block whose branch changes the shape, a depthwise layer, pooling, a product and a softmax. */
function block(): Graph {
  const net = new SeededLayers("block", 7);
  const x = net.input("x", [1, 4, 12, 12]);
  const a = net.convolved(x, "a", { from: 4, to: 16, kernel: 3, stride: 2 });
  const b = net.convolved(a, "b", { from: 16, to: 16, kernel: 3, groups: 16, relu: false });
  const beside = net.convolved(x, "beside", { from: 4, to: 16, stride: 2, relu: false });
  const sum = net.node("Relu", [net.node("Add", [b, beside])]);
  const pooled = net.node("MaxPool", [sum], { kernel_shape: [3, 3], strides: [2, 2], pads: [1, 1, 1, 1] });
  net.output(net.node("Softmax", [net.classified(pooled, 16, 10)], { axis: 1 }));
  net.output(net.node("Sigmoid", [sum]));
  return net.graph;
}

/** Norms and softmaxes over rows of lengths that vectors do not divide, with values that other steps read too. */
function rowByRow(): Graph {
  const net = new SeededLayers("row_by_row", 5);
  const x = net.input("x", [2, 3, 7, 70]);
  const normed = (of: string, name: string): string =>
    net.node("LayerNormalization", [
      of,
      net.drawn(`${name}.gain`, [70], 0.2, 1),
      net.drawn(`${name}.offset`, [70], 0.1),
    ]);
  const sum = net.node("Add", [net.node("Mul", [x, x]), net.input("beside", [2, 3, 7, 70])]);
  const first = normed(sum, "first");
  const masked = net.node("Add", [net.node("Add", [sum, first]), net.input("mask", [2, 1, 1, 70])]);
  net.output(net.node("Softmax", [masked], { axis: -1 }));
  const turned = net.node("Transpose", [first], { perm: [0, 1, 3, 2] });
  net.output(net.node("LogSoftmax", [turned], { axis: -1 }));
  const parameters = [net.drawn("gain", [3], 0.2, 1), net.drawn("offset", [3], 0.1)];
  net.output(net.node("InstanceNormalization", [turned, ...parameters]));
  return net.graph;
}

/** A convolution that reads an image as a Reshape shows it: the elements lie row-major, not channels last. */
function shuffle(): Graph {
  const net = new SeededLayers("shuffle", 3);
  const wide = net.convolved(net.input("x", [1, 4, 5, 5]), "a", { from: 4, to: 6 });
  const split = net.node("Reshape", [wide, net.whole("groups", [1, 3, 2, 5, 5])]);
  const turned = net.node("Transpose", [split], { perm: [0, 2, 1, 3, 4] });
  const mixed = net.node("Reshape", [turned, net.whole("shape", [1, 6, 5, 5])]);
  net.output(net.convolved(mixed, "b", { from: 6, to: 6, kernel: 3, groups: 6 }));
  return net.graph;
}

/** The inputs of a model with its open sizes set. */
const sized = ({ inputs }: Graph): Graph["inputs"] =>
  inputs.map((input) => ({ ...input, shape: input.shape.map((size) => (size === "batch" ? 2 : Number(size) || 5)) }));

/** Rows by the place of the largest, its product with neighbours, and bytes of bool. */
const PLACES: Graph = {
  ...onnx(`
    table = [5,2]{0,0.25,0.5,0.75,1,1.25,1.5,1.75,2,2.25}
    return Gather(table, ArgMax<axis=1, keepdims=0>(x[3,5])), ReduceProd<keepdims=0>(x, s64{1}), Hardmax<axis=1>(x), Cast<to=1>(Cast<to=9>(x))
  `),
  name: "places",
};

/** Both directions of a recurrent layer, the largest of its outputs, and elements replaced. */
function recurrent(): Graph {
  const net = new SeededLayers("recurrent", 6);
  const weights = (name: string, columns: number): string => net.drawn(name, [2, 16, columns], 0.7);
  const inputs = [net.input("x", [3, 2, 5]), weights("w", 5), weights("r", 4), net.drawn("b", [2, 32], 0.3)];
  const y = net.node("LSTM", inputs, { hidden_size: 4, direction: "bidirectional" });
  const places = net.whole("places", [1]);
  const rows = net.node("Reshape", [y, net.whole("shape", [3, 16])]);
  const one = net.constant("one", [1, 1], Float64Array.of(-1), "s64");
  net.output(net.node("TopK", [rows, places], { axis: -1 }));
  net.output(net.node("ScatterND", [rows, one, net.node("Slice", [rows, net.whole("from", [0]), places])]));
  return net.graph;
}

/** Sizes at which building and proving takes seconds. */
const SMALL: readonly (readonly [name: string, build: () => Graph])[] = [
  ["mi-lstm", () => miLstm({ steps: 3, inputs: 24, units: 32 })],
  ["bert", () => bertBase({ tokens: 5, layers: 1, hidden: 24, heads: 2, vocabulary: 40 })],
  ["shuffled channels", shuffle],
  ["recurrent", recurrent],
  ["exported", () => ({ ...exportedTransformer(), inputs: sized(exportedTransformer()) })],
];
const LARGE: typeof SMALL = [
  ["resnet50", () => resnet50({ size: 64 })],
  ["shufflenet", () => shufflenet({ size: 64 })],
  ["mi-lstm", () => miLstm()],
  ["bert", () => bertBase()],
];

function emitted(graph: Graph, kernels: boolean, threads = 1) {
  const { program } = openGraph(graph);
  const choices = kernels ? choicesOf(program, { threads }) : new Map();
  const subject = networkSubject(program, choices, { threads });
  const at = join(folder, `${graph.name}_${kernels}_${threads}`);
  writePackage(at, networkFiles(subject));
  return { at, parts: partsOfNetwork(subject) };
}

/** Writes, builds and proves the library of a network. */
async function proved(graph: Graph, kernels: boolean, threads = 1): Promise<NetworkParts> {
  const { at, parts } = emitted(graph, kernels, threads);
  expect(await proveNetwork(at, parts, compiler)).toEqual({ status: "right", steps: parts.steps.length });
  return parts;
}

describe("the library of a network", () => {
  it.each([
    ["by kernels that the model chose", block, true, 1],
    ["by kernels that two threads share", block, true, 2],
    ["by plain loops", block, false, 1],
    ["that only moves elements", () => MOVES, true, 2],
    ["that asks for places", () => PLACES, true, 1],
  ] as const)("computes its equations, %s", async (_, build, kernels, threads) => {
    const parts = await proved(build(), kernels, threads);
    expect(parts.memory.bytes).toBeLessThanOrEqual(parts.memory.apart);
  });

  it("computes its equations where it is quantised", async () => {
    await proved(await quantisedBlock(), true);
  });

  it.each([1, 2])("computes the steps of norms and softmaxes together, row by row, on %i threads", async (threads) => {
    const parts = await proved(rowByRow(), true, threads);
    expect(parts.steps.filter(({ kernel }) => kernel !== undefined).length).toBe(5);
    expect(parts.steps.length).toBeGreaterThan(15);
    expect(parts.memory.bytes).toBeLessThan(parts.kept.bytes / 2);
  });

  it("computes its equations in bf16, by kernels that the model chose", async () => {
    const opened = openGraph(bertBase({ tokens: 5, layers: 1, hidden: 24, heads: 2, vocabulary: 40 }));
    const { program } = inBrainFloatsOnCpu(opened);
    const at = join(folder, "bert_bf16");
    await expectProved(at, { program, plain: opened.plain }, choicesOf(program), { name: "bert_bf16" });
  });

  it("prints the time of each step", async () => {
    const { at, parts } = emitted(MOVES, false);
    expect(await buildNetwork(at, parts, compiler, shareCores())).toBeUndefined();
    const files = ["input", "mean", "shaped", "same"].map((name) => join(at, name));
    writeFileSync(files[0] ?? "", new Uint8Array(96));
    const run = await runChild([join(at, "build/moves_main"), "--steps", "3", ...files], { timeLimitMs: 900_000 });
    const lines = run.stdout.trim().split("\n");
    expect(lines.map((line) => line.replace(/^0\.\d{9} /, ""))).toEqual(parts.steps.map(({ name }) => name));
    expect(lines.every((line) => Number.parseFloat(line) > 0)).toBe(true);
  });

  it.each(SMALL)("of %s computes its equations", async (_, build) => {
    await proved(build(), false);
  });

  it.each(inFull(LARGE, []))("of %s computes its equations with tuned kernels", async (_, build) => {
    await proved({ ...build(), name: `${build().name}_large` }, true);
  });

  it("is proved in a folder given relative to the working directory, also against reference programs", async () => {
    const net = new GraphBuilder("wide");
    // More products than the interpreter is given.
    const x = net.input("x", [128, 130]);
    net.output(net.node("MatMul", [x, net.constant("w", [130, 128], new Float32Array(130 * 128).fill(0.5))]));
    const { at, parts } = emitted(net.graph, false);
    expect(await proveNetwork(relative(process.cwd(), at), parts, compiler)).toEqual({ status: "right", steps: 1 });
  });

  it("is found wrong where one step is, by that step's name", async () => {
    const { at, parts } = emitted({ ...block(), name: "spoilt" }, false);
    const weights = readFileSync(join(at, "spoilt.weights"));
    // The first weight of the depthwise layer.
    const depthwise = parts.steps.find((s) => s.name.startsWith("b ("));
    const place = depthwise?.places.find((p) => p.kind === "weights");
    if (place?.kind !== "weights") throw new Error("no weights");
    weights.writeFloatLE(100, place.offset);
    writeFileSync(join(at, "spoilt.weights"), weights);
    expect(await proveNetwork(at, parts, compiler)).toMatchObject({
      status: "wrong",
      step: "b (Conv BatchNormalization Add Relu)",
    });
  });

  it("is found wrong where an output that no step computes is not copied", async () => {
    const graph = {
      ...onnx(`
        y = Relu(x[2,3])
        return y, Identity(x), Identity({1,2,3,4}), Reshape(y, s64{-1})
      `),
      name: "copies",
    };
    const { at, parts } = emitted(graph, false);
    expect(await proveNetwork(at, parts, compiler)).toEqual({ status: "right", steps: 1 });
    const file = join(at, "copies.cpp");
    const source = readFileSync(file, "utf8");
    const copies = [...source.matchAll(/memmove\(net->outputs.*;/g)];
    expect(copies).toHaveLength(3);
    for (const [i, [copy]] of copies.entries()) {
      writeFileSync(file, source.replace(copy, ""));
      expect(await proveNetwork(at, parts, compiler)).toMatchObject({
        status: "wrong",
        step: `output ${graph.outputs[i + 1]}`,
      });
    }
  });
});
