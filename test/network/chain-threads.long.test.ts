/** @file Equations that share their rows as one kernel of a GPU: in every shape it is free of races and gives what the steps give one by one. */

import { describe, expect, it } from "vitest";
import { ADVERSE_ORDERS } from "../../abstraction/blocks/run.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { seededRandom } from "../../abstraction/random.ts";
import type { RowChain } from "../../abstraction/row-chain.ts";
import { lowerChainThreads } from "../../mapper/lower/chain-threads.ts";
import { type ChainShape, chainShapes } from "../../mapper/schedule/chain-shape.ts";
import { gridLimits } from "../../mapper/schedule/grid-context.ts";
import { chainsOf } from "../../network/chains.ts";
import { fuse } from "../../network/fuse.ts";
import type { Graph } from "../../network/graph.ts";
import { inHalf } from "../../network/half.ts";
import { channelsLast } from "../../network/layout.ts";
import { lowerGraph } from "../../network/lower.ts";
import type { Network } from "../../network/network.ts";
import { runNetwork } from "../../network/run.ts";
import { chainSeconds } from "../../perfmodel/row-chains.ts";
import { chainInShape } from "../../session/kinds/plain-threads.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { CHAIN_GRAPHS, drawnFor, masked, readBy, rowsIn } from "../support/chain-graphs.ts";
import { onnx } from "../support/networks.ts";
import { inFull } from "../support/slow.ts";

const TARGET = nvidiaTarget("h100");
const LIMITS = gridLimits(TARGET);
/** Shapes of each chain that are interpreted. */
const DRAWN = inFull(60, 6);

const inFloats = (graph: Graph): Network => channelsLast(fuse(lowerGraph(graph)));
const inHalves = (graph: Graph): Network => channelsLast(inHalf(fuse(lowerGraph(graph))), true);

/** A row of a classifier, for which several warps meet. */
const classes = onnx("Softmax<axis=1>(x[1,1000])");

/** A cell of a recurrent network: its state is read by others too. */
const cell = onnx(`
  state = Add(Mul(Mul(Sigmoid(i[2,45]), f[2,45]), f), c[2,45])
  return state, Mul(Tanh(state), f)
`);
const GRAPHS = [...CHAIN_GRAPHS, ["a softmax of a row for several warps", classes], ["a cell", cell]] as const;

function shapesOf(chain: RowChain): ChainShape[] {
  const random = seededRandom(2);
  return chainShapes(chain, LIMITS)
    .map((shape) => ({ shape, at: random() }))
    .sort((a, b) => a.at - b.at)
    .slice(0, DRAWN)
    .map(({ shape }) => shape);
}

describe("a chain of equations on a GPU", () => {
  it.each(
    GRAPHS.flatMap(
      ([name, graph]) =>
        [
          [name, inFloats(graph), 1e-5],
          [`${name}, in f16`, inHalves(graph), 4e-3],
        ] as const,
    ),
  )("is free of races and gives what its steps give: %s", async (_, program, share) => {
    const [one, another] = chainsOf(program, { withoutSums: true });
    if (!one || another || one.steps.length !== program.steps.length) throw new Error("one chain is expected");
    const chain = rowsIn(one);
    const held = drawnFor(program);
    const inputs = Object.fromEntries([...held].map(([value, elements]) => [value.name, elements]));
    const wanted = [...(await runNetwork(program, inputs)).values()].at(-1) ?? [];
    const most = Array.from(wanted).reduce((a, b) => Math.max(a, Math.abs(b)), 0);
    const shapes = shapesOf(chain);
    expect(shapes.length).toBeGreaterThan(0);
    for (const [i, shape] of shapes.entries()) {
      const nest = lowerChainThreads(chain, shape);
      const order = ADVERSE_ORDERS[i % ADVERSE_ORDERS.length] ?? {};
      const got = interpretNest(nest, one.computation, readBy(one, held), 1, order);
      expect(got.length).toBe(wanted.length);
      const about = `${JSON.stringify(shape)}\n${printNest(nest)}`;
      for (const [e, element] of got.entries())
        expect(Math.abs(element - (wanted[e] ?? Number.NaN)), about).toBeLessThan(share * most);
      expect(chainSeconds(chain, shape, TARGET)).toBeGreaterThan(0);
      // No block is without a row.
      const [blocks] = nest.body;
      const rowsOfBlock = (LIMITS.lanes / shape.lanes) * shape.rowWarps;
      expect(blocks).toMatchObject({ kind: "loop", extent: Math.ceil(chain.rows / rowsOfBlock) });
    }
  });

  it("is predicted to take longer with an exponential than with a square", () => {
    const [first] = chainsOf(inFloats(masked));
    if (!first) throw new Error("no chain");
    const chain = rowsIn(first);
    const squared: RowChain = JSON.parse(JSON.stringify(chain).replaceAll('"exp"', '"square"'));
    const secondsOf = (one: RowChain): number =>
      shapesOf(chain).reduce((sum, shape) => sum + chainSeconds(one, shape, TARGET), 0);
    expect(secondsOf(chain)).toBeGreaterThan(secondsOf(squared));
  });

  it("prints every shape with an output for each step", () => {
    for (const [, graph] of GRAPHS)
      for (const program of [inFloats(graph), inHalves(graph)]) {
        const [one] = chainsOf(program, { withoutSums: true });
        if (!one) throw new Error("a chain is expected");
        for (const shape of shapesOf(rowsIn(one))) {
          const kernel = chainInShape(rowsIn(one), shape, { chained: true });
          expect(kernel.arguments.filter(({ role }) => role === "output").length).toBe(one.steps.length);
        }
      }
  });
});
