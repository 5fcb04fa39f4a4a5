/** @file Steps that share their rows become one chain, whose nest computes what its equations say; other steps are refused with the reason. */

import { describe, expect, it } from "vitest";
import { equationsOf } from "../../abstraction/computation.ts";
import { printEquation } from "../../abstraction/expression.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import { placedInRows } from "../../abstraction/row-chain.ts";
import { lowerRowChain } from "../../mapper/lower/row-chain.ts";
import { chainsOf, type StepChain } from "../../network/chains.ts";
import { fuse } from "../../network/fuse.ts";
import type { Graph } from "../../network/graph.ts";
import { channelsLast } from "../../network/layout.ts";
import { lowerGraph } from "../../network/lower.ts";
import { planMemory } from "../../network/memory.ts";
import { bertBase } from "../../network/models/bert.ts";
import { rootOf } from "../../network/network.ts";
import { runNetwork } from "../../network/run.ts";
import { CHAIN_GRAPHS, drawnFor, masked, readBy, residual, rowsIn } from "../support/chain-graphs.ts";
import { onnx } from "../support/networks.ts";
import { stated } from "../support/subjects.ts";

const programOf = (graph: Graph) => channelsLast(fuse(lowerGraph(graph)));
const text = (chain: StepChain): string[] => [
  `${rowsIn(chain).rows} rows of ${rowsIn(chain).columns}, stored ${chain.computation.program?.stored.join(" ")}`,
  ...equationsOf(chain.computation).map(printEquation),
];

describe("steps that share their rows", () => {
  it("become one chain: a masked softmax", () => {
    expect(chainsOf(programOf(masked)).map(text)).toMatchInlineSnapshot(`
      [
        [
          "30 rows of 70, stored y4",
          "y0[i0,i1,i2,i3] = x0[i0,i1,i2,i3] * 0.125 + x1[i0,i3]",
          "y1[i0,i1,i2] max= y0[i0,i1,i2,i3]",
          "y2[i0,i1,i2,i3] = exp(y0[i0,i1,i2,i3] - y1[i0,i1,i2])",
          "y3[i0,i1,i2] += y2[i0,i1,i2,i3]",
          "y4[i0,i1,i2,i3] = y2[i0,i1,i2,i3] / y3[i0,i1,i2]",
        ],
      ]
    `);
  });

  it("become one chain: a layer norm after a sum, which its last step reads too", () => {
    expect(chainsOf(programOf(residual)).map(text)).toMatchInlineSnapshot(`
      [
        [
          "6 rows of 70, stored y4",
          "y0[i0,i1,i2] = x0[i0,i1,i2] + x1[i0,i1,i2]",
          "y1_sum[i0,i1] += y0[i0,i1,i2]",
          "y1[i0,i1] = y1_sum[i0,i1] / 70",
          "y2[i0,i1,i2] = y0[i0,i1,i2] - y1[i0,i1]",
          "y3_sum[i0,i1] += square(y2[i0,i1,i2])",
          "y3[i0,i1] = 1 / sqrt(y3_sum[i0,i1] / 70 + 0.00001)",
          "y4[i0,i1,i2] = y0[i0,i1,i2] + max(y2[i0,i1,i2] * y3[i0,i1] * x2[i2] + x3[i2], 0)",
        ],
      ]
    `);
  });

  it("leave out a sum of one element with an epilogue, which a row has no place for", () => {
    const program = programOf(onnx("Softmax<axis=1>(Relu(ReduceSum<keepdims=0>(x[6,8,1], s64{-1})))"));
    const [first, ...others] = program.steps;
    if (!first) throw new Error("no step");
    expect(placedInRows(first.computation, { rows: 6, columns: 8 })).toEqual({
      because: "its epilogue follows a sum of one term",
    });
    expect(chainsOf(program).map(({ steps }) => steps)).toEqual([others]);
  });

  it("leave one step for each softmax and each layer norm of BERT", () => {
    const program = programOf(bertBase({ tokens: 6, layers: 2, hidden: 24, heads: 2, vocabulary: 40 }));
    const chains = chainsOf(program);
    expect(chains.map(({ steps }) => steps.length)).toEqual([4, 4, 4, 4, 4, 4, 4]);
    expect(new Set(chains.flatMap(({ steps }) => steps)).size).toBe(28);
  });

  it("stay apart where there are fewer rows than threads, and where a step may not join", () => {
    const program = programOf(residual);
    expect(chainsOf(program, { threads: 7 })).toEqual([]);
    expect(chainsOf(program, { isFree: ({ ops }) => !ops.includes("LayerNormalization") })).toEqual([]);
  });

  it("end where another step reads a value of theirs, before the last is made", () => {
    const graph = onnx(`
      raised = Exp(Sub(x[4,8], ReduceMax(x, s64{1})))
      turned = Transpose<perm=[1,0]>(raised)
      sum = ReduceSum(raised, s64{1})
      back = Transpose<perm=[1,0]>(turned)
      Add(Div(raised, sum), back)
    `);
    const program = programOf(graph);
    for (const { steps } of chainsOf(program)) {
      const last = program.steps.indexOf(steps.at(-1) as (typeof steps)[number]);
      const made = new Set(steps.map(({ output }) => output));
      const early = program.steps
        .slice(0, last)
        .filter((step) => !steps.includes(step) && Object.values(step.reads).some((value) => made.has(rootOf(value))));
      expect(early).toEqual([]);
    }
    expect(chainsOf(program).length).toBeGreaterThan(0);
  });

  it("hold what they read until the last of them is computed, and no memory for values that stay among them", () => {
    const graph = onnx(`
      most = ReduceMax(Transpose<perm=[1,0]>(x[8,16]), s64{1})
      half = Exp(z[4,16])
      other = Concat<axis=0>(half, half)
      MatMul(Sub(y[16,8], most), other)
    `);
    const program = programOf(graph);
    const chains = chainsOf(program);
    expect(chains.map(({ steps }) => steps.map(({ ops }) => ops.join(" ")))).toEqual([["ReduceMax", "Sub"]]);
    const { offsets } = planMemory(program, true, chains);
    const first = program.steps.findIndex(({ output }) => output.name === "most");
    const last = program.steps.indexOf(chains[0]?.steps.at(-1) as (typeof program.steps)[number]);
    const between = program.steps.slice(first + 1, last).map(({ output }) => offsets.get(output));
    const [read] = Object.values(program.steps[first]?.reads ?? {});
    expect(between.length).toBe(1);
    expect(between).not.toContain(read && offsets.get(read));
    expect([...offsets.keys()].map(({ name }) => name)).not.toContain("most");
  });

  it.each(CHAIN_GRAPHS)("give the same row by row as step by step: %s", async (_, graph) => {
    const program = programOf(graph);
    const [chain, another] = chainsOf(program);
    if (!chain || another) throw new Error("one chain is expected");
    expect(chain.steps.length).toBe(program.steps.length);
    const held = drawnFor(program);
    const inputs = Object.fromEntries([...held].map(([value, elements]) => [value.name, elements]));
    const wanted = [...(await runNetwork(program, inputs)).values()];
    const { nest } = lowerRowChain(rowsIn(chain));
    const got = interpretNest(nest, chain.computation, readBy(chain, held));
    expect(got.length).toBe(wanted[0]?.length);
    for (let i = 0; i < got.length; i++) expect(got[i]).toBeCloseTo(wanted[0]?.[i] ?? Number.NaN, 5);
  });
});

describe("an equation is refused as part of a chain", () => {
  const rows = { rows: 6, columns: 8 };
  const because = (words: string): string => {
    const placed = placedInRows(stated(words), rows, new Set(["made"]));
    return "because" in placed ? placed.because : placed.makes;
  };
  it.each([
    ["y[i,j] = made[j,i] --i 6 --j 8 --shape made=8x6", "made[j,i] is not of its own row"],
    ["y[i,j] = made[i,7-j] --i 6 --j 8 --shape made=6x8", "made[i,7-j] is not of its own row"],
    ["y[i,j] = x[j] + made[i] --i 6 --j 8 --shape x=8,made=6", "each"],
    ["y[i,j] = x[j,i] --i 6 --j 8 --shape x=8x6", "the columns of x[j,i] do not lie together"],
    ["y[i,j] = x[i,j-1] --i 6 --j 8 --shape x=6x8", "x[i,j-1] may lie outside x"],
    [
      "y[i,j] = x[i,wrap(ids[j])] --i 6 --j 8 --shape x=6x8,ids=8 --dtype x=f32,ids=s32",
      "x[i,wrap(ids[j])] is at an index that is read",
    ],
    ["y[i,j] += x[i,j] * x[i,k] --i 6 --j 8 --k 8 --shape x=6x8", "it sums for each element of a row"],
    ["y[i] += x[i,j] --i 6 --j 4 --shape x=6x4", "it does not sum over rows of 8 columns"],
    ["y[i] += x[j] --i 6 --j 8 --shape x=8", "it sums over something else than whole rows"],
    ["y[i,j] = x[i,j] --i 3 --j 16 --shape x=3x16", "loop j runs across the ends of rows"],
    ["y[i,j] = x[i,j] --i 5 --j 8 --shape x=5x8", "it makes 40 elements, of 6 rows with 8 columns"],
    ["y[i,j] = x[i,j] where j < i --i 6 --j 8 --shape x=6x8", "a condition leaves out points"],
    ["y[i,j,k] = x[i,j] --i 6 --j 4 --k 2 --shape x=6x4", "the columns of x[i,j] do not lie together"],
    ["y[i] += made[i,j] --i 6 --j 8 --shape made=6x8", "sum"],
    ["y[i] = made[i] / 8 --i 6 --shape made=6", "row"],
    ["y[i] = made[i,0] --i 6 --shape made=6x8", "made[i,0] is not of its own row"],
  ])("%s", (words, reason) => {
    expect(because(words)).toBe(reason);
  });
});
