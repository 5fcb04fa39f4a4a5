/** @file Products of one value by several constants are one step on a GPU. */

import { describe, expect, it } from "vitest";
import { equationText, outputOf } from "../../abstraction/computation.ts";
import { seededRandom } from "../../abstraction/random.ts";
import type { Graph } from "../../network/graph.ts";
import { inHalf } from "../../network/half.ts";
import { planMemory } from "../../network/memory.ts";
import { bertBase } from "../../network/models/bert.ts";
import { beginOf, type Network, rootOf } from "../../network/network.ts";
import { runNetwork } from "../../network/run.ts";
import { stacked } from "../../network/stack.ts";
import { openGraph } from "../../session/network/network.ts";

const halfOf = (graph: Graph): Network => inHalf(openGraph(graph).program);

const textsOf = ({ steps }: Network): string[] =>
  steps.map(({ nodes, computation }) => `${nodes.join(" ")}: ${equationText(computation)}`);

describe("products of one value", () => {
  it("are one step: query, key and value of attention, whose readers stay as they are", async () => {
    const before = halfOf(bertBase({ tokens: 16, layers: 2, hidden: 32, heads: 2, vocabulary: 40 }));
    const after = stacked(before);
    expect(after.steps.length).toBe(before.steps.length - 4);
    const [one] = after.steps.filter(({ nodes }) => nodes.includes("layer1.attention.key"));
    expect(
      one && [textsOf({ ...after, steps: [one] }), outputOf(one.computation).dims.map((d) => d.extent)],
    ).toMatchInlineSnapshot(`
        [
          [
            "layer1.attention.query add36 layer1.attention.key add40 layer1.attention.value add44: out[s,m,n] += f32(a[m,k]) * f32(b[s,k,n]); res[s,m,n] = f16(out[s,m,n] + e0[s,n])",
          ],
          [
            3,
            16,
            32,
          ],
        ]
      `);
    const readers = after.steps.filter(({ reads }) =>
      Object.values(reads).some((value) => rootOf(value) === one?.output),
    );
    expect(readers.map(({ nodes, reads }) => [nodes[0], Object.values(reads).map(beginOf)])).toEqual([
      ["layer1.attention.scores", [0, 512]],
      ["layer1.attention.weighted", [0, 1024]],
    ]);
    const random = seededRandom(2);
    const inputs = Object.fromEntries(
      before.inputs.map(({ name, shape }) => {
        const most = name === "kinds" ? 2 : 40;
        return [name, Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => Math.floor(most * random()))];
      }),
    );
    const expected = await runNetwork(before, inputs);
    const found = await runNetwork(after, inputs);
    expect([...found.values()].map((x) => Array.from(x))).toEqual([...expected.values()].map((x) => Array.from(x)));
    expect(one && planMemory(after).offsets.has(one.output)).toBe(true);
  });
});
