/** @file If and Loop: what is known before the run is decided when the network is read. */

import { describe, expect, it } from "vitest";
import type { Body, Constant, Graph, Node } from "../network/graph.ts";
import { type LowerOptions, lowerGraph } from "../network/lower.ts";
import { parseOnnx } from "../network/onnx/read.ts";
import { onnxBytes } from "../network/onnx/write.ts";
import type { Program } from "../network/program.ts";
import { runNetwork } from "../network/run.ts";
import { explanationOf } from "./support/message.ts";

const scalar = (type: "s64" | "bool" | "f32", x: number): Constant => ({
  type,
  shape: [],
  values: type === "bool" ? Uint8Array.of(x) : type === "f32" ? Float32Array.of(x) : Float64Array.of(x),
});
const node = (op: string, inputs: string[], output: string, attributes: Node["attributes"] = {}): Node => ({
  name: output,
  op,
  inputs,
  outputs: [output],
  attributes,
});
const body = (nodes: Node[], outputs: string[], more: Partial<Body> = {}): Body => ({
  inputs: [],
  constants: new Map(),
  nodes,
  outputs,
  ...more,
});

function graphOf(nodes: Node[], more: Partial<Graph> = {}): Graph {
  return {
    name: "g",
    opset: 17,
    inputs: [{ name: "x", type: "f32", shape: [2] }],
    outputs: ["y"],
    constants: new Map(),
    nodes,
    ...more,
  };
}

async function made(program: Program, inputs: Record<string, number[]>): Promise<number[]> {
  return Array.from((await runNetwork(program, inputs)).get("y") ?? []);
}

const refusalOf = (graph: Graph, options?: LowerOptions): string => explanationOf(() => lowerGraph(graph, options));

/** `y = 2 x` where the condition holds, otherwise `-x`; the branches call their results alike, and read x from around them. */
const branching = (condition: string): Node =>
  node("If", [condition], "y", {
    then_branch: body([node("Add", ["x", "x"], "r")], ["r"]),
    else_branch: body([node("Neg", ["x"], "r")], ["r"]),
  });

describe("If", () => {
  it("with a condition made of a bound input leaves only the branch taken", async () => {
    const graph = graphOf([node("Equal", ["sr", "rate"], "is16"), branching("is16")], {
      inputs: [
        { name: "x", type: "f32", shape: [2] },
        { name: "sr", type: "s64", shape: [] },
      ],
      constants: new Map([["rate", scalar("s64", 16000)]]),
    });
    const at = (rate: number) => lowerGraph(graph, { constants: new Map([["sr", scalar("s64", rate)]]) });
    expect(await made(at(16000), { x: [1, 2] })).toEqual([2, 4]);
    expect(await made(at(8000), { x: [1, 2] })).toEqual([-1, -2]);
    expect(at(8000).steps.flatMap(({ ops }) => ops)).toEqual(["Neg"]);
    expect(at(8000).inputs.map(({ name }) => name)).toEqual(["x"]);
  });

  it("with a condition of a known shape folds", async () => {
    const graph = graphOf(
      [
        node("Shape", ["x"], "shape"),
        node("ReduceProd", ["shape"], "n", { keepdims: 0 }),
        node("Size", ["x"], "size"),
        node("Equal", ["size", "two"], "c"),
        branching("c"),
      ].filter(({ op }) => op !== "ReduceProd"),
      { constants: new Map([["two", scalar("s64", 2)]]) },
    );
    expect(lowerGraph(graph).steps.flatMap(({ ops }) => ops)).toEqual(["Add"]);
  });

  it("with a condition of numbers that are no integers folds", () => {
    const graph = graphOf([node("Less", ["low", "high"], "c"), branching("c")], {
      constants: new Map([
        ["low", scalar("f32", 0.5)],
        ["high", scalar("f32", 1.5)],
      ]),
    });
    expect(lowerGraph(graph).steps.flatMap(({ ops }) => ops)).toEqual(["Add"]);
  });

  it("with a condition of the run computes both and selects", async () => {
    const graph = graphOf([branching("c")], {
      inputs: [
        { name: "x", type: "f32", shape: [2] },
        { name: "c", type: "bool", shape: [] },
      ],
    });
    expect(await made(lowerGraph(graph), { x: [1, Number.POSITIVE_INFINITY], c: [1] })).toEqual([2, Infinity]);
    expect(await made(lowerGraph(graph), { x: [1, Number.NaN], c: [0] })).toEqual([-1, Number.NaN]);
  });

  it("whose branches differ in shape is refused, and says which input to bind", () => {
    const both = node("If", ["c"], "y", {
      then_branch: body([node("Concat", ["x", "x"], "r", { axis: 0 })], ["r"]),
      else_branch: body([node("Neg", ["x"], "r")], ["r"]),
    });
    const inputs = [
      { name: "x", type: "f32", shape: [2] },
      { name: "c", type: "bool", shape: [] },
    ] as const;
    expect(refusalOf(graphOf([both], { inputs }))).toBe(
      "y (If): its condition c is known only when the network runs, and its branches give f32[4] and f32[2]\n  bind the inputs that the condition is made of: --constant NAME=VALUE",
    );
    expect(refusalOf(graphOf([both], { inputs }), { constants: new Map([["c", scalar("bool", 0)]]) })).toBe("accepted");
  });

  it("is read from a file, branches within branches, after nodes that only they read", async () => {
    const inner = body([branching("c")], ["y"]);
    const outer: Node = {
      name: "outer",
      op: "If",
      inputs: ["c"],
      outputs: ["z"],
      attributes: { then_branch: { ...inner, outputs: ["y"] }, else_branch: body([node("Abs", ["late"], "q")], ["q"]) },
    };
    const graph = graphOf([outer, node("Exp", ["x"], "late")], {
      outputs: ["z"],
      constants: new Map([["c", scalar("bool", 1)]]),
    });
    const again = parseOnnx(onnxBytes(graph), "m.onnx", ".");
    const values = await runNetwork(lowerGraph(again), { x: [3, 4] });
    expect(Array.from(values.get("z") ?? [])).toEqual([6, 8]);
    expect(refusalOf(graphOf([{ ...outer, inputs: ["d"] }], { outputs: ["z"] }))).toMatch(
      /outer \(If\) reads "d", which nothing in g makes/,
    );
    const lost = body([node("Abs", ["nowhere"], "q")], ["q"]);
    expect(refusalOf(graphOf([node("If", ["x"], "y", { then_branch: lost, else_branch: lost })]))).toMatch(
      /reads "nowhere", which nothing in g makes/,
    );
  });

  it("is refused in a file that nests graphs without end", () => {
    let nested = body([node("Abs", ["x"], "q")], ["q"]);
    for (let depth = 0; depth < 40; depth++)
      nested = body(
        [node("If", ["c"], `r${depth}`, { then_branch: nested, else_branch: nested })].map((n) => ({
          ...n,
          attributes: { then_branch: nested },
        })),
        [`r${depth}`],
      );
    const graph = graphOf([node("If", ["c"], "y", { then_branch: nested })]);
    expect(() => parseOnnx(onnxBytes(graph), "m.onnx", ".")).toThrow(
      /^m.onnx is no ONNX model: .*maximum recursion depth/,
    );
  });
});

describe("Loop", () => {
  /** `a = a + i`, and a row of each pass: `a * 2`. */
  const pass = (more: Partial<Body> = {}): Body =>
    body(
      [node("Cast", ["i"], "f", { to: 1 }), node("Add", ["a", "f"], "b"), node("Add", ["b", "b"], "row")],
      ["go", "b", "row"],
      { inputs: ["i", "go", "a"], ...more },
    );
  const looping = (inside: Body, most = "n", first = ""): Node => ({
    name: "l",
    op: "Loop",
    inputs: [most, first, "x"],
    outputs: ["last", "y"],
    attributes: { body: inside },
  });

  it("of a known number of passes is written out, values carried and rows stacked", async () => {
    const graph = graphOf([looping(pass())], { constants: new Map([["n", scalar("s64", 3)]]), outputs: ["last", "y"] });
    const program = lowerGraph(graph);
    const values = await runNetwork(program, { x: [10, 20] });
    expect(Array.from(values.get("last") ?? [])).toEqual([13, 23]);
    expect(Array.from(values.get("y") ?? [])).toEqual([20, 40, 22, 42, 26, 46]);
    expect(program.outputs[1]?.value.shape).toEqual([3, 2]);
  });

  it("ends where its condition is known not to hold", async () => {
    const inside = pass();
    const until = body([...inside.nodes, node("Less", ["i", "two"], "goes")], ["goes", "b", "row"], {
      inputs: inside.inputs,
      constants: new Map([["two", scalar("s64", 2)]]),
    });
    expect(await made(lowerGraph(graphOf([looping(until, "")])), { x: [0, 1] })).toEqual([0, 2, 2, 4, 6, 8]);
  });

  it("is refused where its passes are known only in the run, or have no end", () => {
    const inputs = [
      { name: "x", type: "f32", shape: [2] },
      { name: "n", type: "s64", shape: [] },
    ] as const;
    expect(refusalOf(graphOf([looping(pass())], { inputs }))).toMatch(
      /l \(Loop\): the number of passes comes from n, which is known only when the network runs/,
    );
    const endless = body([], ["go", "a"], { inputs: ["i", "go", "a"] });
    expect(refusalOf(graphOf([{ ...looping(endless, ""), outputs: ["y"] }]))).toMatch(
      /l \(Loop\): the network's loops make more than 10000 passes/,
    );
    const unsure = body(
      [node("ReduceMax", ["a"], "m", { keepdims: 0 }), node("Less", ["m", "m"], "goes")],
      ["goes", "a"],
      {
        inputs: ["i", "go", "a"],
      },
    );
    expect(refusalOf(graphOf([{ ...looping(unsure, ""), outputs: ["y"] }]))).toMatch(
      /whether pass 1 follows is known only/,
    );
  });
});
