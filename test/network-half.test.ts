/**
 * @file Networks in half precision: which tensors are f16, which stay f32, and the difference to the network in f32.
 */

import { describe, expect, it } from "vitest";
import { equationText } from "../abstraction/computation.ts";
import { wrap } from "../abstraction/dtype.ts";
import { UsageError } from "../abstraction/error.ts";
import { fuse } from "../network/fuse.ts";
import type { Graph } from "../network/graph.ts";
import { inHalf } from "../network/half.ts";
import { channelsLast } from "../network/layout.ts";
import { lowerGraph } from "../network/lower.ts";
import { bertBase } from "../network/models/bert.ts";
import { SeededLayers } from "../network/models/layers.ts";
import { miLstm } from "../network/models/milstm.ts";
import { shufflenet } from "../network/models/shufflenet.ts";
import type { Network } from "../network/network.ts";
import { runNetwork } from "../network/run.ts";
import { drawInputs } from "../session/prove-network.ts";
import { onnx } from "./support/networks.ts";
import { inFull } from "./support/slow.ts";

function residual(): Graph {
  const net = new SeededLayers("residual", 7);
  const x = net.input("x", [1, 4, 6, 6]);
  const a = net.convolved(x, "a", { from: 4, to: 8, kernel: 3 });
  const b = net.convolved(a, "b", { from: 8, to: 8, groups: 8, kernel: 3, relu: false });
  const sum = net.node("Relu", [net.node("Add", [b, a])]);
  net.output(net.node("Softmax", [net.classified(sum, 8, 10)], { axis: 1 }));
  return net.graph;
}

/** What is held in f32, moved to where it is f16. */
const moved = (): Graph =>
  onnx(`
    pooled = MaxPool<kernel_shape=[2,2]>(x[1,2,4,4])
    sums = ReduceSum<keepdims=1>(x, s64{1})
    turned = Transpose<perm=[0,2,3,1]>(pooled)
    return turned, Slice(pooled, s64{1}, s64{2}, s64{1}), Transpose<perm=[0,1,3,2]>(sums), Mul(x, sums)
  `);

const multiplied = (by: number): Graph =>
  onnx(`weights = [4,2]{${by === Number.POSITIVE_INFINITY ? "inf" : by}}; MatMul(x[1,4], weights)`);

const halfOf = (graph: Graph): { plain: Network; half: Network } => {
  const plain = lowerGraph(graph);
  return { plain, half: channelsLast(inHalf(fuse(plain)), true) };
};

const typesOf = ({ steps }: Network): string[] =>
  steps.map(
    ({ computation }) =>
      `${equationText(computation)}   ${Object.values(computation.tensors)
        .map(({ name, dtype }) => `${name} ${dtype}`)
        .join(", ")}`,
  );

describe("a network in half precision", () => {
  it("sums in f32, and keeps biases and statistics in it", () => {
    expect(typesOf(halfOf(residual()).half)).toMatchInlineSnapshot(`
      [
        "out[n,k,p,q] += f32(in[n,c,p+r-1,q+s-1]) * f32(w[k,c,r,s]); res[n,k,p,q] = f16(max(out[n,k,p,q] + e1[k], 0))   res f16, in f16, w f16, e1 f32",
        "out[n,c+m,p,q] += f32(in[n,c,p+r-1,q+s-1]) * f32(w[c+m,r,s]); res[n,d1,p,q] = f16(max(out[n,d1,p,q] + e1[d1] + f32(in[n,d1,p,q]), 0))   res f16, in f16, w f16, e1 f32",
        "y[n,c,p,q] += f32(x[n,c,p+r,q+s]); res[n,c,p,q] = f16(y[n,c,p,q] / 36)   res f16, x f16",
        "out[m,n] += f32(a[m,k]) * f32(b[n,k]); res[m,n] = f16(out[m,n] + e0[n])   res f16, a f16, b f16, e0 f32",
        "y[i0] max= f32(x[i0,i1])   y f32, x f16",
        "y[i0,i1] = f16(exp(f32(x0[i0,i1]) - x1[i0]))   y f16, x0 f16, x1 f32",
        "y[i0] += f32(x[i0,i1])   y f32, x f16",
        "y[i0,i1] = f16(f32(x0[i0,i1]) / x1[i0])   y f16, x0 f16, x1 f32",
      ]
    `);
  });

  it("has filters with their channels innermost, depthwise ones included", () => {
    const [a, b] = halfOf(residual()).half.steps;
    expect(a?.computation.tensors["w"]?.storage).toMatchObject({ kind: "binary" });
    expect([a, b].map((step) => step?.operator?.name)).toEqual(["conv2d", "depthwise-conv2d"]);
  });

  it("rounds statistics where they are moved into f16 tensors", async () => {
    const { plain, half } = halfOf(moved());
    expect(typesOf(half)).toMatchInlineSnapshot(`
      [
        "y[n,c,p,q] max= f32(x[n,c,p+r,q+s])   y f32, x f16",
        "y[i0,i2,i3] += f32(x[i0,i1,i2,i3])   y f32, x f16",
        "y[i0,i1,i2,i3] = f16(x[i0,i3,i1,i2])   y f16, x f32",
        "y[i0,i1,i2,i3] = f16(x[i0,i1+1,i2,i3])   y f16, x f32",
        "y[i0,i1,i2,i3] = f16(x[i0,i1,i3,i2])   y f16, x f32",
        "y[i0,i1,i2,i3] = f16(f32(x0[i0,i1,i2,i3]) * x1[i0,i2,i3])   y f16, x0 f16, x1 f32",
      ]
    `);
    const inputs = Object.fromEntries([...drawInputs(half, 1).values].map(([value, drawn]) => [value.name, drawn]));
    const got = await runNetwork(half, inputs);
    for (const [name, wanted] of await runNetwork(plain, inputs))
      expect([name, Array.from(got.get(name) ?? [])]).toEqual([name, Array.from(wanted, (x) => wrap("f16", x))]);
  });

  it.each([1e6, -65520])("is refused where a sum reads a constant beyond f16's range: %d", (by) => {
    const refused = expect(() => halfOf(multiplied(by)));
    refused.toThrow(UsageError);
    refused.toThrow(`weights: ${by} is beyond what f16 holds, which ends at 65504`);
  });

  it.each([65519, 1e-9, Number.POSITIVE_INFINITY])("is accepted where f16 holds a constant or rounds it: %d", (by) => {
    const { half } = halfOf(multiplied(by));
    const held = half.steps.flatMap(({ reads }) => Object.values(reads));
    expect(held.flatMap(({ constant }) => constant?.[0] ?? [])).toEqual([wrap("f16", by)]);
  });

  it.each([
    ["convolutions", residual],
    ...inFull([["shuffled channels", () => shufflenet({ size: 32 })] as const], []),
    ["a recurrent one", () => miLstm({ steps: 2, inputs: 12, units: 8 })],
    ["a transformer", () => bertBase({ tokens: 5, layers: 1, hidden: 24, heads: 2, vocabulary: 40 })],
  ] as const)("gives the outputs of the network in f32 up to f16 rounding: %s", async (_, build) => {
    const { plain, half } = halfOf(build());
    const drawn = drawInputs(half, 1).values;
    const inputs = Object.fromEntries([...drawn].map(([value, elements]) => [value.name, elements]));
    const exact = await runNetwork(plain, inputs);
    const got = await runNetwork(half, inputs);
    for (const [name, wanted] of exact) {
      const made = got.get(name) ?? [];
      let apart = 0;
      let size = 0;
      for (let i = 0; i < wanted.length; i++) {
        apart += ((made[i] ?? Number.NaN) - (wanted[i] ?? 0)) ** 2;
        size += (wanted[i] ?? 0) ** 2;
      }
      const off = Math.sqrt(apart / size);
      expect([name, off > 0 && off < 0.01]).toEqual([name, true]);
    }
  });
});
