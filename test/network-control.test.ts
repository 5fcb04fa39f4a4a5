/** @file If and Loop: what is known before the run is decided when the network is read. */

import { describe, expect, it } from "vitest";
import type { Body, Constant } from "../network/graph.ts";
import { type LowerOptions, lowerGraph } from "../network/lower.ts";
import { parseOnnx } from "../network/onnx/read.ts";
import { onnxBytes } from "../network/onnx/write.ts";
import { runNetwork } from "../network/run.ts";
import { explanationOf } from "./support/message.ts";
import { bodyOf, made, onnx } from "./support/networks.ts";

const scalar = (type: "s64" | "bool", x: number): Constant => ({
  type,
  shape: [],
  values: type === "bool" ? Uint8Array.of(x) : Float64Array.of(x),
});

/** Branches that call their results alike, and read x from around them. */
const BRANCHES = { twice: bodyOf("r = Add(x, x); return r"), minus: bodyOf("r = Neg(x); return r") };
const CHOSEN = "y = If<then_branch=twice, else_branch=minus>(c); return y";

const control = (text: string, bodies: Readonly<Record<string, Body>> = BRANCHES) => onnx(text, 17, bodies);
const refusalOf = (graph: ReturnType<typeof onnx>, options?: LowerOptions): string =>
  explanationOf(() => lowerGraph(graph, options));
const opsOf = (graph: ReturnType<typeof onnx>): string[] => lowerGraph(graph).steps.flatMap(({ ops }) => ops);

describe("If", () => {
  it("with a condition made of a bound input leaves only the branch taken", async () => {
    const graph = control(`x[2]; c = Equal(sr:s64[], s64[]{16000}); ${CHOSEN}`);
    const at = (rate: number) => lowerGraph(graph, { constants: new Map([["sr", scalar("s64", rate)]]) });
    const chosen = async (rate: number) => Array.from((await runNetwork(at(rate), { x: [1, 2] })).get("y") ?? []);
    expect(await chosen(16000)).toEqual([2, 4]);
    expect(await chosen(8000)).toEqual([-1, -2]);
    expect(at(8000).steps.flatMap(({ ops }) => ops)).toEqual(["Neg"]);
    expect(at(8000).inputs.map(({ name }) => name)).toEqual(["x"]);
  });

  it("with a condition of a known shape folds", () => {
    expect(opsOf(control(`x[2]; shape = Shape(x); c = Equal(Size(x), s64[]{2}); ${CHOSEN}`))).toEqual(["Add"]);
  });

  it("with a condition of numbers that are no integers folds", () => {
    expect(opsOf(control(`x[2]; c = Less(0.5, 1.5); ${CHOSEN}`))).toEqual(["Add"]);
  });

  it("with a condition of the run computes both and selects", async () => {
    const graph = control(`x[2], c:bool[]; ${CHOSEN}`);
    expect(await made(graph, { x: [1, Number.POSITIVE_INFINITY], c: [1] })).toEqual([2, Infinity]);
    expect(await made(graph, { x: [1, Number.NaN], c: [0] })).toEqual([-1, Number.NaN]);
  });

  it("whose branches differ in shape is refused, and says which input to bind", () => {
    const graph = control(`x[2], c:bool[]; ${CHOSEN}`, {
      ...BRANCHES,
      twice: bodyOf("r = Concat<axis=0>(x, x); return r"),
    });
    expect(refusalOf(graph)).toBe(
      "y (If): its condition c is known only when the network runs, and its branches give f32[4] and f32[2]\n  bind the inputs that the condition is made of: --constant NAME=VALUE",
    );
    expect(refusalOf(graph, { constants: new Map([["c", scalar("bool", 0)]]) })).toBe("accepted");
  });

  it("is read from a file, branches within branches, after nodes that only they read", async () => {
    const bodies = { chosen: bodyOf(CHOSEN, [], BRANCHES), late: bodyOf("q = Abs(late); return q") };
    const outer = (condition: string): string => `
      x[2]
      c = bool[]{1}
      z = If<then_branch=chosen, else_branch=late>(${condition})
      late = Exp(x)
      return z
    `;
    const again = parseOnnx(onnxBytes(control(outer("c"), bodies)), "m.onnx", ".");
    expect(await made(again, [3, 4])).toEqual([6, 8]);
    expect(refusalOf(control(outer("d"), bodies))).toMatch(/z \(If\) reads "d", which nothing in text makes/);
    const lost = bodyOf("q = Abs(nowhere); return q");
    expect(refusalOf(control("If<then_branch=lost, else_branch=lost>(x[2])", { lost }))).toMatch(
      /reads "nowhere", which nothing in text makes/,
    );
  });

  it("is refused in a file that nests graphs without end", () => {
    let nested = bodyOf("q = Abs(x); return q");
    for (let depth = 0; depth < 40; depth++)
      nested = bodyOf(`r${depth} = If<then_branch=nested>(c); return r${depth}`, [], { nested });
    const graph = control("x[2]; If<then_branch=nested>(c)", { nested });
    expect(() => parseOnnx(onnxBytes(graph), "m.onnx", ".")).toThrow(
      /^m.onnx is no ONNX model: .*maximum recursion depth/,
    );
  });
});

describe("Loop", () => {
  const HANDED = ["i", "go", "a"];
  /** `a = a + i`, and a row of each pass: `a * 2`. */
  const SUMS = "b = Add(a, Cast<to=f32>(i)); row = Add(b, b)";
  const pass = bodyOf(`${SUMS}; return go, b, row`, HANDED);

  it("of a known number of passes is written out, values carried and rows stacked", async () => {
    const graph = control("last, y = Loop<body=pass>(s64[]{3}, , x[2]); return last, y", { pass });
    expect(await made(graph, [10, 20])).toEqual([13, 23]);
    expect(await made(graph, [10, 20], "y")).toEqual([20, 40, 22, 42, 26, 46]);
    expect(lowerGraph(graph).outputs[1]?.value.shape).toEqual([3, 2]);
  });

  it("ends where its condition is known not to hold", async () => {
    const until = bodyOf(`${SUMS}; goes = Less(i, s64[]{2}); return goes, b, row`, HANDED);
    const graph = control("last, y = Loop<body=until>(, , x[2]); return y", { until });
    expect(await made(graph, [0, 1])).toEqual([0, 2, 2, 4, 6, 8]);
  });

  it("is refused where its passes are known only in the run, or have no end", () => {
    expect(refusalOf(control("last, y = Loop<body=pass>(n:s64[], , x[2])", { pass }))).toMatch(
      /last \(Loop\): the number of passes comes from n, which is known only when the network runs/,
    );
    const endless = (inside: string): string =>
      refusalOf(control("y = Loop<body=inside>(, , x[2])", { inside: bodyOf(inside, HANDED) }));
    expect(endless("return go, a")).toMatch(/y \(Loop\): the network's loops make more than 10000 passes/);
    expect(endless("m = ReduceMax<keepdims=0>(a); goes = Less(m, m); return goes, a")).toMatch(
      /whether pass 1 follows is known only/,
    );
  });
});
