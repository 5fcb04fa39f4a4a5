/** @file Networks of f16 are computed in f32: constants, what lies between, and the conversions of inputs and outputs. */

import { describe, expect, it } from "vitest";
import { wrapperOf } from "../../abstraction/dtype.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { GraphBuilder } from "../../network/builder.ts";
import { fuse } from "../../network/fuse.ts";
import type { Constant, Graph } from "../../network/graph.ts";
import { lowerGraph } from "../../network/lower.ts";
import { runNetwork } from "../../network/run.ts";
import { widened } from "../../network/widen.ts";
import { openGraph } from "../../session/network/network.ts";
import { expectProved } from "../support/proved-network.ts";
import { scratchFolder } from "../support/scratch.ts";

const folder = scratchFolder();

const half = wrapperOf("f16");
const drawn = (count: number, seed: number): Float32Array => {
  const random = seededRandom(seed);
  return Float32Array.from({ length: count }, () => half(2 * random() - 1));
};

/** A convolution of halves with a bias, a branch, a cast to f16 and constants of f16 in nodes; `x` is an output too. */
function halves(type: "f16" | "f32"): Graph {
  const to = type === "f16" ? 10 : 1;
  const net = new GraphBuilder("halves");
  const x = net.input("x", [1, 4, 5, 5], type);
  const filters = drawn(288, 1);
  // The least that f16 holds.
  filters[0] = 2 ** -24;
  const w = net.constant("w", [8, 4, 3, 3], filters, type);
  const convolved = net.node("Conv", [x, w, net.constant("b", [8], drawn(8, 2), type)]);
  const factor: Constant = { type, shape: [1], values: Float32Array.of(0.5) };
  const scaled = net.node("Mul", [net.node("Constant", [], { value: factor }), convolved]);
  const indices = net.node("Cast", [net.node("Cast", [scaled], { to: 6 })], { to });
  const branch = {
    inputs: [],
    outputs: ["inner"],
    constants: new Map([["c", factor]]),
    nodes: [{ name: "inner", op: "Mul", inputs: [x, "c"], outputs: ["inner"], attributes: {} }],
  };
  const chosen = net.node("If", [net.constant("yes", [], Uint8Array.of(1), "bool")], {
    then_branch: branch,
    else_branch: branch,
  });
  net.output(net.node("Add", [scaled, indices], {}, "y"));
  net.output(net.node("Relu", [chosen], {}, "z"));
  net.output(x);
  return { ...net.graph, outputTypes: new Map(net.graph.outputs.map((name) => [name, type])) };
}

describe("a network of f16", () => {
  it("is computed in f32, and its inputs and outputs stay f16", async () => {
    const wide = widened(halves("f16"));
    expect(wide?.was).toEqual({ constants: 5, inputs: ["x"], outputs: ["y", "z"] });
    if (!wide) return;
    const program = lowerGraph(wide.graph);
    expect([...program.inputs, ...program.outputs.map(({ value }) => value)].map(({ type }) => type)).toEqual(
      Array.from({ length: 4 }, () => "f16"),
    );
    const x = drawn(100, 3);
    const expected = await runNetwork(lowerGraph(halves("f32")), { x });
    const got = await runNetwork(fuse(program), { x });
    for (const [name, values] of expected) expect(Array.from(got.get(name) ?? [])).toEqual(Array.from(values, half));
  });

  it("is no other one's business", () => {
    expect(widened(halves("f32"))).toBeUndefined();
    expect(openGraph(halves("f32")).widened).toBeUndefined();
  });

  it("keeps its weights as f16 in the library, which widens them when it is made", async () => {
    const parts = await expectProved(folder, openGraph(halves("f16")));
    expect(parts.widened.halves).toEqual([{ from: 0, to: 0, elements: 288 }]);
    expect(parts.weights.length).toBeLessThan(4 * 288);
  });
});
