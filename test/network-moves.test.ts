/** @file Products read and write elements where they lie, instead of steps that move them. */

import { describe, expect, it } from "vitest";
import { equationText, outputOf } from "../abstraction/computation.ts";
import { type Random, randomInteger, seededRandom } from "../abstraction/random.ts";
import { GraphBuilder } from "../network/builder.ts";
import { fuse } from "../network/fuse.ts";
import { channelsLast } from "../network/layout.ts";
import { lowerGraph } from "../network/lower.ts";
import { bertBase } from "../network/models/bert.ts";
import { shufflenet } from "../network/models/shufflenet.ts";
import type { Program } from "../network/program.ts";
import { runNetwork } from "../network/run.ts";
import { tasksOf } from "../network/tasks.ts";
import { inFull } from "./support/slow.ts";

const fusedOf = (build: (net: GraphBuilder) => string | readonly string[]): Program => {
  const net = new GraphBuilder("moved");
  for (const output of [build(net)].flat()) net.output(output);
  return fuse(lowerGraph(net.graph));
};

const opsOf = ({ steps }: Program): string[] => steps.map(({ ops }) => ops.join(" "));

const textsOf = ({ steps }: Program): string[] =>
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

  it("go through one another, and through reshapes that keep their indices affine", () => {
    const program = fusedOf((net) => {
      const turned = net.node("Transpose", [net.node("Exp", [net.input("x", [6, 2, 40])])], { perm: [1, 0, 2] });
      const [, half = ""] = net.split(turned, 2, 2, "half");
      const parts = net.node("Reshape", [half, net.whole("parts", [2, 6, 4, 5])]);
      return net.node("MatMul", [net.input("y", [2, 6, 32, 4]), parts]);
    });
    expect(opsOf(program)).toEqual(["Exp", "MatMul Split Transpose"]);
    expect(textsOf(program)[1]).toMatchInlineSnapshot(
      `"out[b0,b1,m,n] += a[b0,b1,m,k] * b[b1,b0,n+k*5+20]   [2,6,32,5]"`,
    );
  });

  it.each<readonly [string, (net: GraphBuilder) => string | readonly string[], readonly string[]]>([
    [
      "another step reads what was moved",
      (net) => {
        const moved = net.node("Transpose", [net.input("x", [20, 20])]);
        return [net.node("MatMul", [net.input("y", [20, 20]), moved]), net.node("Concat", [moved, moved], { axis: 0 })];
      },
      ["Transpose", "MatMul", "Concat"],
    ],
    [
      "the user reads what was moved",
      (net) => {
        const moved = net.node("Transpose", [net.input("x", [20, 20])]);
        return [moved, net.node("MatMul", [net.input("y", [20, 20]), moved])];
      },
      ["Transpose", "MatMul"],
    ],
    [
      "a product reads each element too rarely to copy it, and other elements would lie side by side",
      (net) => net.node("MatMul", [net.input("y", [15, 8]), net.node("Transpose", [net.input("x", [20, 8])])]),
      ["Transpose", "MatMul"],
    ],
    [
      "elements of different matrices would lie side by side",
      (net) =>
        net.node("MatMul", [
          net.input("y", [6, 20, 20]),
          net.node("Transpose", [net.input("x", [20, 20, 6])], { perm: [2, 0, 1] }),
        ]),
      ["Transpose", "MatMul"],
    ],
    [
      "a result would be stored in columns",
      (net) => {
        const moved = net.node("Transpose", [net.node("MatMul", [net.input("y", [20, 20]), net.input("x", [20, 20])])]);
        return net.node("Concat", [moved, moved], { axis: 0 });
      },
      ["MatMul", "Transpose", "Concat"],
    ],
    [
      "only a part of a result is moved",
      (net) => {
        const product = net.node("MatMul", [net.input("y", [20, 20]), net.input("x", [20, 20])]);
        const [first = ""] = net.split(product, 1, 2, "half");
        return net.node("Concat", [first, first], { axis: 0 });
      },
      ["MatMul", "Split", "Concat"],
    ],
    [
      "a part of a result is moved and repeated, so that there are as many elements",
      (net) => {
        const product = net.node("MatMul", [net.input("y", [4, 20]), net.input("x", [20, 20])]);
        const top = net.node("Slice", [product, net.whole("starts", [0]), net.whole("ends", [2])]);
        const twice = net.node("Expand", [top, net.whole("twice", [2, 2, 20])]);
        return net.node("ReduceMax", [twice, net.whole("axis", [1])], { keepdims: 0 });
      },
      ["MatMul", "Expand Slice", "ReduceMax"],
    ],
    [
      "an image would have its dimension of one element elsewhere than its readers have",
      (net) => {
        const filters = (name: string, shape: readonly number[]): string =>
          net.constant(name, shape, new Float32Array(shape.reduce((n, size) => n * size, 1)).fill(1));
        const image = net.node("Conv", [net.input("image", [1, 3, 1, 20]), filters("first", [16, 3, 1, 1])]);
        const moved = net.node("Transpose", [image], { perm: [0, 1, 3, 2] });
        return net.node("Conv", [moved, filters("second", [16, 16, 3, 1])], { pads: [1, 0, 1, 0] });
      },
      ["Conv", "Transpose", "Conv"],
    ],
    [
      "the user and another step read a result as it was",
      (net) =>
        ["a", "b"].flatMap((name) => {
          const product = net.node("MatMul", [net.input(name, [2, 20, 20]), net.input(`${name}2`, [2, 20, 20])]);
          const moved = net.node("Transpose", [product], { perm: [1, 0, 2] });
          const last = net.node("Concat", [moved, moved], { axis: 0 });
          return [last, name === "a" ? product : net.node("Concat", [product, product], { axis: 0 })];
        }),
      ["MatMul", "MatMul", "Transpose", "Transpose", "Concat", "Concat", "Concat"],
    ],
    [
      "an axis would have to be taken apart: a shuffle of 3 x 20 channels, read in 3 groups of 20",
      (net) => {
        const parts = net.node("Reshape", [net.input("x", [3, 60]), net.whole("parts", [3, 3, 20])]);
        const shuffled = net.node("Transpose", [parts], { perm: [0, 2, 1] });
        return net.node("MatMul", [
          net.node("Reshape", [shuffled, net.whole("rows", [3, 60])]),
          net.input("y", [60, 32]),
        ]);
      },
      ["Transpose", "MatMul"],
    ],
    [
      "zeros around it were read",
      (net) => {
        const padded = net.node("Pad", [net.input("x", [6, 8]), net.whole("sides", [1, 0, 1, 0])]);
        return net.node("MatMul", [padded, net.input("y", [8, 32])]);
      },
      ["Pad", "MatMul"],
    ],
  ])("stay where %s", (_, build, ops) => {
    expect(opsOf(fusedOf(build))).toEqual(ops);
  });

  it("go to a product that reads each element once, when rows stay rows", () => {
    const program = fusedOf((net) => {
      const [, , third = ""] = net.split(net.input("x", [6, 8]), 0, 3, "part");
      return net.node("MatMul", [third, net.input("y", [8, 1])]);
    });
    expect(textsOf(program)).toMatchInlineSnapshot(`
      [
        "out[m,n] += a[m+4,k] * b[k,n]   [2,1]",
      ]
    `);
  });

  it("go to convolutions of some channels, which read the image in the layout that it has", () => {
    const program = fusedOf((net) => {
      const weights = net.constant("w", [32, 4, 1, 1], new Float32Array(128).fill(1));
      const image = net.node("MaxPool", [net.input("x", [1, 8, 4, 4])], { kernel_shape: [1, 1] });
      return net.split(image, 1, 2, "half").map((half) => net.node("Conv", [half, weights]));
    });
    expect(textsOf(program).slice(1)).toMatchInlineSnapshot(`
      [
        "out[n,k,p,q] += in[0,c,p,q] * w[k,c,r,s]   [1,32,4,4]",
        "out[n,k,p,q] += in[0,c+4,p,q] * w[k,c,r,s]   [1,32,4,4]",
      ]
    `);
    expect(program.steps.slice(1).map(({ reads }) => reads["in"] === program.steps[0]?.output)).toEqual([true, true]);
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
      const plain = lowerGraph(net.graph);
      const fused = channelsLast(fuse(plain));
      gone += plain.steps.length - fused.steps.length;
      const inputs = Object.fromEntries(
        plain.inputs.map(({ name, shape }) => [
          name,
          Float32Array.from({ length: shape.reduce((n, size) => n * size, 1) }, () => randomInteger(random, -8, 8)),
        ]),
      );
      const wanted = await runNetwork(plain, inputs);
      const made = await runNetwork(fused, inputs);
      for (const [name, elements] of wanted)
        expect(Array.from(made.get(name) ?? []), `seed ${seed}`).toEqual(Array.from(elements));
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
