/** @file Products read and write elements where they lie, instead of steps that move them. Small cases stand in test/golden/networks/moves.txt. */

import { describe, expect, it } from "vitest";
import { equationText, outputOf } from "../../abstraction/computation.ts";
import { type Random, randomInteger, seededRandom } from "../../abstraction/random.ts";
import { GraphBuilder } from "../../network/builder.ts";
import { fuse } from "../../network/fuse.ts";
import { lowerGraph } from "../../network/lower.ts";
import { bertBase } from "../../network/models/bert.ts";
import { shufflenet } from "../../network/models/shufflenet.ts";
import type { Network } from "../../network/network.ts";
import { tasksOf } from "../../network/tasks.ts";
import { plainAndFused } from "../support/networks.ts";
import { inFull } from "../support/slow.ts";

const opsOf = ({ steps }: Network): string[] => steps.map(({ ops }) => ops.join(" "));

const textsOf = ({ steps }: Network): string[] =>
  steps.map(
    ({ computation }) =>
      `${equationText(computation)}   [${outputOf(computation)
        .dims.map((d) => d.extent)
        .join(",")}]`,
  );

describe("moves beside products", () => {
  it("go: heads of attention are read and written where they lie, in one task for all layers", () => {
    const program = fuse(lowerGraph(bertBase({ tokens: 16, layers: 2, hidden: 24, heads: 2, vocabulary: 40 })));
    expect(opsOf(program).filter((ops) => ops === "Transpose")).toEqual([]);
    const [scores, weighted] = ["scores", "weighted"].map((name) =>
      tasksOf(program).filter(({ steps }) => steps.some(({ nodes }) => nodes[0]?.endsWith(name))),
    );
    expect([scores?.length, weighted?.length]).toEqual([1, 1]);
    expect(
      textsOf({ ...program, steps: [scores, weighted].flatMap((tasks) => tasks?.[0]?.steps[0] ?? []) }),
    ).toMatchInlineSnapshot(`
        [
          "out[b0,b1,m,n] += a[m,b1,k] * b[n,b1,k]; res[b0,b1,m,n] = out[b0,b1,m,n] * 0.28867512941360474   [1,2,16,16]",
          "out[b0,m,b1,n] += a[b1,m,k] * b[k,b1,n]   [1,16,2,12]",
        ]
      `);
    expect(weighted?.[0]?.steps.map(({ nodes }) => nodes.length)).toEqual([3, 3]);
  });

  it("stay in ShuffleNet, whose shuffles tie channels of all groups together", () => {
    expect(opsOf(fuse(lowerGraph(shufflenet()))).filter((ops) => ops === "Transpose")).toHaveLength(16);
  });

  it("give the same elements, whatever moves lie before and behind products", async () => {
    let gone = 0;
    for (let seed = 1; seed <= inFull(2000, 200); seed++) {
      const random = seededRandom(seed);
      const net = new GraphBuilder("drawn");
      const left = drawnMoves(net, random, "x");
      const [batch = 1, rows = 1, k = 1] = left.shape;
      const columns = randomInteger(random, 1, 20);
      const right = drawnPart(net, random, "z", [random() < 0.3 ? 1 : batch, k, columns]);
      const product = net.node("MatMul", [left.name, right]);
      const shape = [batch, rows, columns];
      const after = random() < 0.3 ? net.node("Add", [product, net.input("bias", [columns])]) : product;
      net.output(furtherMoves(net, random, { name: after, shape }, 2).name);
      const { plain, fused, steps, nodes } = await plainAndFused(net.graph, seed);
      gone += nodes - steps;
      expect(fused, `seed ${seed}`).toEqual(plain);
    }
    expect(gone).toBeGreaterThan(100);
  });
});

const drawnOrder = (random: Random): number[] =>
  [0, 1, 2]
    .map((d) => ({ d, at: random() }))
    .sort((p, q) => p.at - q.at)
    .map(({ d }) => d);

interface Drawn {
  readonly name: string;
  readonly shape: readonly number[];
}

/** A tensor of three dimensions behind up to three moves. */
function drawnMoves(net: GraphBuilder, random: Random, name: string): Drawn {
  const shape = Array.from({ length: 3 }, () => randomInteger(random, 1, 4));
  return furtherMoves(net, random, { name: net.input(name, shape), shape }, 3);
}

function furtherMoves(net: GraphBuilder, random: Random, x: Drawn, most: number): Drawn {
  let drawn = x;
  for (let left = randomInteger(random, 0, most); left > 0; left--) drawn = moved(net, random, drawn);
  return drawn;
}

function moved(net: GraphBuilder, random: Random, { name, shape }: Drawn): Drawn {
  const [a = 1, b = 1, c = 1] = shape;
  const kind = randomInteger(random, 0, 2);
  if (kind === 0) {
    const perm = drawnOrder(random);
    return { name: net.node("Transpose", [name], { perm }), shape: perm.map((d) => shape[d] ?? 1) };
  }
  if (kind === 1) {
    const count = randomInteger(random, 1, c);
    const step = random() < 0.2 ? -1 : 1;
    const start = step > 0 ? randomInteger(random, 0, c - count) : c - 1;
    const end = step > 0 ? start + count : start - count - (start - count < 0 ? c : 0);
    const lists = [[start], [end], [2], [step]].map((list, i) => net.whole(`${name}.${i}`, list));
    return { name: net.node("Slice", [name, ...lists]), shape: [a, b, count] };
  }
  const other = random() < 0.5 ? [c, a, b] : [1, a * b, c];
  return { name: net.node("Reshape", [name, net.whole(`${name}.shape`, other)]), shape: other };
}

/** A tensor of a shape, as a part of another whose dimensions are turned. */
function drawnPart(net: GraphBuilder, random: Random, name: string, shape: readonly number[]): string {
  const perm = drawnOrder(random);
  const axis = randomInteger(random, 0, 2);
  const extra = randomInteger(random, 0, 2);
  const whole = shape.map((size, d) => size + (d === axis ? extra : 0));
  const given = net.input(
    name,
    [0, 1, 2].map((d) => whole[perm.indexOf(d)] ?? 1),
  );
  const turned = net.node("Transpose", [given], { perm });
  const lists = [[extra], [whole[axis] ?? 1], [axis]].map((list, i) => net.whole(`${name}.${i}`, list));
  return net.node("Slice", [turned, ...lists]);
}
