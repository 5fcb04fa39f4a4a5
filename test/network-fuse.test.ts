/** @file Fused steps compute the same as the nodes, and all that can be fused is fused. */

import { describe, expect, it } from "vitest";
import { equationText } from "../abstraction/computation.ts";
import { printEquation } from "../abstraction/equation.ts";
import { UsageError } from "../abstraction/error.ts";
import { parseEquation } from "../abstraction/parse.ts";
import { randomInteger, seededRandom } from "../abstraction/random.ts";
import { inBrainFloats } from "../network/brain-float.ts";
import { GraphBuilder } from "../network/builder.ts";
import { fuse } from "../network/fuse.ts";
import type { Graph } from "../network/graph.ts";
import { inHalf } from "../network/half.ts";
import { channelsLast } from "../network/layout.ts";
import { lowerGraph } from "../network/lower.ts";
import { SeededLayers } from "../network/models/layers.ts";
import { resnet18 } from "../network/models/resnet.ts";
import { runNetwork } from "../network/run.ts";
import { tasksOf } from "../network/tasks.ts";
import { differenceOf, onnxCases, programOf } from "./support/onnx-cases.ts";
import { inFull } from "./support/slow.ts";

/** A residual block with a branch that changes the shape, a depthwise layer, and a softmax. */
function block() {
  const net = new SeededLayers("block", 7);
  const x = net.input("x", [1, 4, 6, 6]);
  const a = net.convolved(x, "a", { from: 4, to: 8, kernel: 3, stride: 2 });
  const b = net.convolved(a, "b", { from: 8, to: 8, kernel: 3, groups: 8, relu: false });
  const beside = net.convolved(x, "beside", { from: 4, to: 8, stride: 2, relu: false });
  const sum = net.node("Relu", [net.node("Add", [b, beside])]);
  net.output(
    net.node("Softmax", [net.classified(net.node("Mul", [sum, net.node("Sigmoid", [sum])]), 8, 5)], { axis: 1 }),
  );
  return net.graph;
}

type Swish = (net: GraphBuilder, x: string, number: (value: number) => string) => string;

const clipped: Swish = (net, x, number) => net.node("Clip", [net.node("Add", [x, number(3)]), number(0), number(6)]);

/** Forms in which exporters write `x * clip(x + 3, 0, 6) / 6`. */
const HARD_SWISHES: Readonly<Record<string, Swish>> = {
  "divided at the end": (net, x, number) => net.node("Div", [net.node("Mul", [x, clipped(net, x, number)]), number(6)]),
  "divided before the product": (net, x, number) =>
    net.node("Mul", [x, net.node("Div", [clipped(net, x, number), number(6)])]),
  "multiplied by a sixth": (net, x, number) =>
    net.node("Mul", [net.node("Mul", [x, clipped(net, x, number)]), number(1 / 6)]),
  "by HardSigmoid": (net, x) => net.node("Mul", [x, net.node("HardSigmoid", [x], { alpha: 1 / 6, beta: 0.5 })]),
  "by one node": (net, x) => net.node("HardSwish", [x]),
};

describe("fused steps", () => {
  it("give the same as the nodes", async () => {
    const program = lowerGraph(block());
    const fused = channelsLast(fuse(program));
    const random = seededRandom(1);
    const x = Float32Array.from({ length: 144 }, () => 2 * random() - 1);
    const plain = await runNetwork(program, { x });
    const joined = await runNetwork(fused, { x });
    for (const [name, values] of plain)
      for (let i = 0; i < values.length; i++) expect(joined.get(name)?.[i]).toBeCloseTo(values[i] ?? Number.NaN, 5);
    expect(
      fused.steps.map(({ ops, computation }) => `${ops.join(" ")}: ${equationText(computation)}`),
    ).toMatchInlineSnapshot(`
      [
        "Conv BatchNormalization: out[n,k,p,q] += in[n,c,p*2+r,q*2+s] * w[k,c,r,s]; res[n,k,p,q] = out[n,k,p,q] + e1[k]",
        "Conv BatchNormalization Relu: out[n,k,p,q] += in[n,c,p*2+r-1,q*2+s-1] * w[k,c,r,s]; res[n,k,p,q] = max(out[n,k,p,q] + e1[k], 0)",
        "Conv BatchNormalization Add Relu: out[n,c+m,p,q] += in[n,c,p+r-1,q+s-1] * w[c+m,r,s]; res[n,d1,p,q] = max(out[n,d1,p,q] + e1[d1] + e2[n,d1,p,q], 0)",
        "Sigmoid Mul: y[i0,i1,i2,i3] = x[i0,i1,i2,i3] * (1 / (1 + exp(-x[i0,i1,i2,i3])))",
        "GlobalAveragePool: y[n,c,p,q] += x[n,c,p+r,q+s]; res[n,c,p,q] = y[n,c,p,q] / 9",
        "Gemm: out[m,n] += a[m,k] * b[n,k]; res[m,n] = out[m,n] + e0[n]",
        "Softmax: y[i0] max= x[i0,i1]",
        "Softmax: y[i0,i1] = exp(x0[i0,i1] - x1[i0])",
        "Softmax: y[i0] += x[i0,i1]",
        "Softmax: y[i0,i1] = x0[i0,i1] / x1[i0]",
      ]
    `);
  });

  it("fuse an epilogue into a product of batched rows, but not one that reads part of a longer tensor", async () => {
    const net = new SeededLayers("sentences", 3);
    const x = net.input("x", [2, 3, 4]);
    const product = net.node("MatMul", [x, net.drawn("w", [4, 5], 1)]);
    const both = net.input("both", [4, 3, 5]);
    const [first = ""] = net.split(both, 0, 2, "half");
    const biased = net.node("Add", [net.node("MatMul", [x, net.drawn("v", [4, 5], 1)]), net.drawn("b", [5], 1)]);
    net.output(net.node("Add", [first, product]));
    net.output(biased);
    const program = lowerGraph(net.graph);
    const fused = fuse(program);
    const random = seededRandom(1);
    const drawn = (count: number): Float32Array => Float32Array.from({ length: count }, () => 2 * random() - 1);
    const inputs = { x: drawn(24), both: drawn(60) };
    const plain = await runNetwork(program, inputs);
    const joined = await runNetwork(fused, inputs);
    for (const [name, values] of plain)
      for (let i = 0; i < values.length; i++) expect(joined.get(name)?.[i]).toBeCloseTo(values[i] ?? Number.NaN, 5);
    expect(fused.steps.map(({ ops }) => ops)).toEqual([["MatMul"], ["Split", "Add"], ["MatMul", "Add"]]);
  });

  it("leave a value apart that the network returns, although one element-wise node reads it", async () => {
    const net = new GraphBuilder("both");
    const x = net.input("x", [2, 3]);
    const inner = net.node("Relu", [x]);
    const product = net.node("MatMul", [x, net.input("w", [3, 3])]);
    const shown = net.node("Flatten", [product]);
    for (const name of [inner, net.node("Sqrt", [inner]), shown, net.node("Abs", [product])]) net.output(name);
    const { plain, fused, steps } = await plainAndFused(net.graph);
    expect(fused).toEqual(plain);
    expect(steps).toBe(4);
  });

  it("leave apart whatever else the network returns: what two nodes read, under a second name, an input", async () => {
    const net = new GraphBuilder("returned");
    const x = net.input("x", [1, 3, 4, 4]);
    const weights = net.constant("weights", [2, 3, 3, 3], wholes(54, seededRandom(5)));
    const summed = net.node("Conv", [x, weights]);
    const read = net.node("Relu", [summed]);
    const twice = [net.node("Neg", [read]), net.node("Mul", [read, net.node("Abs", [read])])];
    const named = net.node("Identity", [read]);
    const cut = net.node("Conv", [net.node("Neg", [x]), weights]);
    const shown = net.node("Flatten", [net.node("Identity", [cut])]);
    for (const name of [x, summed, read, named, ...twice, net.node("Relu", [named]), shown, net.node("Neg", [cut])])
      net.output(name);
    const { plain, fused } = await plainAndFused(net.graph);
    expect(fused).toEqual(plain);
    expect(plain).toHaveLength(9);
  });

  it.each(Object.entries(HARD_SWISHES))("have the hard swish of a convolution, %s", async (_, swish) => {
    for (const before of ["bias", "norm", "scale"] as const) {
      const net = new SeededLayers("swish", 9);
      const inputs = [net.input("x", [1, 3, 5, 5]), net.drawn("w", [4, 3, 3, 3], 1)];
      const number = (value: number): string => net.constant(`${value}`, [], Float32Array.of(value));
      const channels = (name: string): string => net.drawn(name, [4], 0.5, 1);
      let y = net.node("Conv", before === "bias" ? [...inputs, channels("b")] : inputs);
      if (before === "norm") y = net.node("BatchNormalization", [y, ...["f", "g", "h", "v"].map(channels)]);
      if (before === "scale") y = net.node("Add", [net.node("Mul", [y, number(0.7)]), number(0.2)]);
      y = swish(net, y, number);
      net.output(before === "scale" ? net.node("Add", [net.node("Mul", [y, number(0.9)]), number(0.1)]) : y);
      const program = lowerGraph(net.graph);
      const fused = channelsLast(fuse(program));
      expect(fused.steps.map(({ ops }) => ops[0])).toEqual(["Conv"]);
      const random = seededRandom(1);
      const x = Float32Array.from({ length: 75 }, () => 4 * random() - 2);
      const plain = await runNetwork(program, { x });
      const joined = await runNetwork(fused, { x });
      for (const [name, values] of plain)
        for (let i = 0; i < values.length; i++) expect(joined.get(name)?.[i]).toBeCloseTo(values[i] ?? Number.NaN, 4);
    }
  });

  it("end before the text of their equation could not be read back", async () => {
    const net = new GraphBuilder("chain");
    let x = net.input("x", [2]);
    for (let i = 0; i < 100; i++) x = net.node("Neg", [net.node("Relu", [x])]);
    const product = net.input("w", [2, 300]);
    let y = net.node("MatMul", [net.input("v", [1, 2]), product]);
    for (let i = 0; i < 60; i++) y = net.node("Add", [y, net.input(`b${i}`, [1, 300])]);
    net.output(x);
    net.output(y);
    const { plain, fused } = await plainAndFused(net.graph);
    expect(fused).toEqual(plain);
    const steps = [fuse, inHalf, inBrainFloats].flatMap((pass) => pass(fuse(lowerGraph(net.graph))).steps);
    for (const { computation } of steps)
      for (const text of equationText(computation).split("; ")) expect(printEquation(parseEquation(text))).toBe(text);
  });

  it("leave 23 of the 69 nodes of ResNet-18, in 18 tasks", () => {
    const fused = channelsLast(fuse(lowerGraph(resnet18({ size: 64 }))));
    expect(fused.steps.map(({ ops }) => ops.join(" "))).toMatchInlineSnapshot(`
      [
        "Conv BatchNormalization Relu",
        "MaxPool",
        "Conv BatchNormalization Relu",
        "Conv BatchNormalization Add Relu",
        "Conv BatchNormalization Relu",
        "Conv BatchNormalization Add Relu",
        "Conv BatchNormalization",
        "Conv BatchNormalization Relu",
        "Conv BatchNormalization Add Relu",
        "Conv BatchNormalization Relu",
        "Conv BatchNormalization Add Relu",
        "Conv BatchNormalization",
        "Conv BatchNormalization Relu",
        "Conv BatchNormalization Add Relu",
        "Conv BatchNormalization Relu",
        "Conv BatchNormalization Add Relu",
        "Conv BatchNormalization",
        "Conv BatchNormalization Relu",
        "Conv BatchNormalization Add Relu",
        "Conv BatchNormalization Relu",
        "Conv BatchNormalization Add Relu",
        "GlobalAveragePool",
        "Gemm",
      ]
    `);
    expect(tasksOf(fused).length).toBe(18);
  });

  it.skipIf(onnxCases().length === 0)("give ONNX's expected outputs, case by case", async () => {
    let compared = 0;
    for (const onnxCase of onnxCases().filter((_, i) => i % 3 === 0)) {
      try {
        const { program, inputs } = programOf(onnxCase);
        const values = Object.fromEntries(Object.entries(inputs).map(([name, constant]) => [name, constant.values]));
        const plain = await runNetwork(program, values);
        const joined = await runNetwork(channelsLast(fuse(program)), values);
        for (const { name, value } of program.outputs) {
          const expected = { type: value.type, shape: value.shape, values: Float64Array.from(plain.get(name) ?? []) };
          expect(differenceOf(joined.get(name) ?? [], expected, value), `${onnxCase.name} ${name}`).toBeUndefined();
        }
        compared++;
      } catch (error) {
        if (!(error instanceof UsageError)) throw error;
      }
    }
    expect(compared).toBeGreaterThan(100);
  });
});

/** Whole numbers of few bits: sums are exact, in whatever order they are added. */
const wholes = (count: number, random: () => number): Float32Array =>
  Float32Array.from({ length: count }, () => randomInteger(random, -9, 9));

/** Plain and fused outputs of a graph whose inputs hold small whole numbers. */
async function plainAndFused(graph: Graph, seed = 1) {
  const program = lowerGraph(graph);
  const random = seededRandom(seed);
  const inputs = Object.fromEntries(
    program.inputs.map(({ name, shape }) => [
      name,
      wholes(
        shape.reduce((all, size) => all * size, 1),
        random,
      ),
    ]),
  );
  const fused = fuse(program);
  const plain = await runNetwork(program, inputs);
  const joined = await runNetwork(channelsLast(fused), inputs);
  const listed = (values: ReadonlyMap<string, ArrayLike<number>>) => [...values].map(([, list]) => Array.from(list));
  return { plain: listed(plain), fused: listed(joined), steps: fused.steps.length, nodes: program.steps.length };
}

/** Moves behind element-wise nodes and a convolution, of any sizes. @param returned whether the network returns values between them too */
function randomMoves(seed: number, returned: boolean): Graph {
  const random = seededRandom(seed);
  const to = (least: number, most: number): number => randomInteger(random, least, most);
  const net = new GraphBuilder("moves");
  const list = (values: readonly number[]): string =>
    net.constant(`list${to(0, 2 ** 40)}`, [values.length], Float64Array.from(values), "s64");
  const scalar = (value: number): string => net.constant(`value${to(0, 2 ** 40)}`, [], Float32Array.of(value));
  let shape = [1, to(1, 3), to(1, 4), to(1, 4)];
  let x = net.input("x", shape);
  const moves = [
    () => {
      x = net.node(["Relu", "Neg", "Abs"][to(0, 2)] ?? "Abs", [x]);
    },
    () => {
      x = net.node("Add", [x, net.input(`b${to(0, 2 ** 40)}`, shape)]);
    },
    () => {
      const [, channels = 1, h = 1, w = 1] = shape;
      const filters = to(1, 3);
      const size = Math.min(h, w, to(1, 2));
      const weights = net.constant(
        `w${to(0, 2 ** 40)}`,
        [filters, channels, size, size],
        wholes(filters * channels * size * size, random),
      );
      x = net.node("Conv", [x, weights]);
      shape = [1, filters, h - size + 1, w - size + 1];
    },
    () => {
      const axis = to(1, 3);
      const others = Array.from({ length: to(1, 9) }, () => shape.map((size, d) => (d === axis ? to(1, 2) : size)));
      const names = others.map((other) => net.input(`c${to(0, 2 ** 40)}`, other));
      x = net.node("Concat", [x, ...names], { axis });
      shape = shape.map((size, d) => others.reduce((all, other) => (d === axis ? all + (other[d] ?? 0) : all), size));
    },
    () => {
      const begins = shape.map((_, d) => (d > 1 ? to(0, 1) : 0));
      const ends = shape.map((_, d) => (d > 0 ? to(0, 1) : 0));
      x = net.node("Pad", [x, list([...begins, ...ends]), ...(to(0, 1) === 0 ? [] : [scalar(7)])]);
      shape = shape.map((size, d) => size + (begins[d] ?? 0) + (ends[d] ?? 0));
    },
    () => {
      const ends = shape.map((size) => to(1, size));
      const starts = ends.map((end) => (to(0, 1) === 0 ? 0 : to(0, end - 1)));
      x = net.node("Slice", [x, list(starts), list(ends)]);
      shape = ends.map((end, d) => end - (starts[d] ?? 0));
    },
    () => {
      const perm = to(0, 1) === 0 ? [0, 1, 3, 2] : [0, 3, 1, 2];
      x = net.node("Transpose", [x], { perm });
      shape = perm.map((d) => shape[d] ?? 1);
    },
  ];
  for (let length = to(2, 7); length > 0; length--) {
    moves[to(0, moves.length - 1)]?.();
    if (returned && length > 1 && to(0, 2) === 0) net.output(x);
  }
  net.output(x);
  return net.graph;
}

describe("a fused step whose shape differs from its input's", () => {
  it("keeps all its elements when it is a Concat", async () => {
    const nine = new GraphBuilder("nine");
    const inputs = Array.from({ length: 9 }, (_, i) => nine.input(`x${i}`, [1, 1]));
    nine.output(nine.node("Concat", inputs, { axis: 1 }));
    const beside = new GraphBuilder("beside");
    const a = beside.node("Relu", [beside.input("a", [1, 4])]);
    beside.output(beside.node("Concat", [a, beside.input("b", [1, 4])], { axis: 1 }));
    for (const graph of [nine.graph, beside.graph]) {
      const { plain, fused } = await plainAndFused(graph);
      expect(fused).toEqual(plain);
    }
  });

  it("keeps its border when it is a Pad after a step without sums, or after an epilogue", async () => {
    const border = new GraphBuilder("border");
    const padded = border.node("Relu", [border.input("x", [2, 3])]);
    border.output(
      border.node("Pad", [
        padded,
        border.constant("pads", [4], Float64Array.of(0, 0, 1, 1), "s64"),
        border.constant("seven", [], Float32Array.of(7)),
      ]),
    );
    const layers = new GraphBuilder("layers");
    const pads = layers.constant("pads", [8], Float64Array.of(0, 0, 0, 0, 0, 0, 1, 1), "s64");
    const bounds = [layers.constant("least", [], Float32Array.of(0)), layers.constant("most", [], Float32Array.of(60))];
    const first = layers.constant("w", [2, 3, 1, 1], wholes(6, seededRandom(3)));
    const clipped = layers.node("Clip", [layers.node("Conv", [layers.input("x", [1, 3, 4, 4]), first]), ...bounds]);
    const second = layers.constant("v", [2, 2, 3, 3], wholes(36, seededRandom(4)));
    layers.output(layers.node("Conv", [layers.node("Pad", [clipped, pads]), second], { strides: [2, 2] }));
    for (const graph of [border.graph, layers.graph]) {
      const { plain, fused } = await plainAndFused(graph);
      expect(fused).toEqual(plain);
    }
  });

  it("gives the same as the plain program, whatever moves follow whatever steps", async () => {
    let joined = 0;
    for (let seed = 1; seed <= inFull(1000, 120); seed++) {
      const { plain, fused, steps, nodes } = await plainAndFused(randomMoves(seed, seed % 4 === 0), seed);
      expect(fused, `seed ${seed}`).toEqual(plain);
      if (steps < nodes) joined++;
    }
    expect(joined).toBeGreaterThan(30);
  });
});
