/** @file Fused steps compute the same as the nodes, and all that can be fused is fused. */

import { describe, expect, it } from "vitest";
import { equationText } from "../../abstraction/computation.ts";
import { UsageError } from "../../abstraction/error.ts";
import { printEquation } from "../../abstraction/expression.ts";
import { parseEquation } from "../../abstraction/parse.ts";
import { randomInteger, seededRandom } from "../../abstraction/random.ts";
import { inBrainFloats } from "../../network/brain-float.ts";
import { GraphBuilder } from "../../network/builder.ts";
import { fuse } from "../../network/fuse.ts";
import type { Graph } from "../../network/graph.ts";
import { inHalf } from "../../network/half.ts";
import { channelsLast } from "../../network/layout.ts";
import { lowerGraph } from "../../network/lower.ts";
import { resnet18 } from "../../network/models/resnet.ts";
import { runNetwork } from "../../network/run.ts";
import { tasksOf } from "../../network/tasks.ts";
import { plainAndFused } from "../support/networks.ts";
import { differenceOf, onnxCases, programOf } from "../support/onnx-cases.ts";
import { sampled } from "../support/sample.ts";
import { inFull } from "../support/slow.ts";

describe("fused steps", () => {
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
    // Another sixth of them with each commit.
    const names = new Set(
      sampled(
        onnxCases().map(({ name }) => name),
        6,
      ),
    );
    for (const onnxCase of onnxCases().filter(({ name }) => names.has(name))) {
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
    expect(compared).toBeGreaterThan(50);
  });
});

/** Whole numbers of few bits: sums are exact, in whatever order they are added. */
const wholes = (count: number, random: () => number): Float32Array =>
  Float32Array.from({ length: count }, () => randomInteger(random, -9, 9));

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

it("a fused program gives the same as the plain one, whatever moves follow whatever steps", async () => {
  let joined = 0;
  for (let seed = 1; seed <= inFull(1000, 120); seed++) {
    const { plain, fused, steps, nodes } = await plainAndFused(randomMoves(seed, seed % 4 === 0), seed);
    expect(fused, `seed ${seed}`).toEqual(plain);
    if (steps < nodes) joined++;
  }
  expect(joined).toBeGreaterThan(30);
});
