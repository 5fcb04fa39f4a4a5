/** @file Fused steps compute what the nodes compute, and nothing that could be fused is left apart. */

import { describe, expect, it } from "vitest";
import { equationText } from "../abstraction/computation.ts";
import { UsageError } from "../abstraction/error.ts";
import { seededRandom } from "../abstraction/random.ts";
import { fuse } from "../network/fuse.ts";
import { channelsLast } from "../network/layout.ts";
import { lowerGraph } from "../network/lower.ts";
import { SeededLayers } from "../network/models/layers.ts";
import { resnet18 } from "../network/models/resnet18.ts";
import { runNetwork } from "../network/run.ts";
import { tasksOf } from "../network/tasks.ts";
import { differenceOf, onnxCases, programOf } from "./support/onnx-cases.ts";

/** A residual block with a branch that changes the shape, a depthwise layer, and a softmax. */
function block() {
  const net = new SeededLayers("block", 7);
  const x = net.input("x", [1, 4, 6, 6]);
  const a = net.convolved(x, "a", { from: 4, to: 8, kernel: 3, stride: 2 });
  const b = net.convolved(a, "b", { from: 8, to: 8, kernel: 3, groups: 8, relu: false });
  const beside = net.convolved(x, "beside", { from: 4, to: 8, stride: 2, relu: false });
  const sum = net.node("Relu", [net.node("Add", [b, beside])]);
  net.output(
    net.node("Softmax", [net.classified(net.node("Mul", [sum, net.node("Sigmoid", [sum])]), 8, 5)], { axis: 1 }),
  );
  return net.graph;
}

describe("fused steps", () => {
  it("compute what the nodes compute", async () => {
    const program = lowerGraph(block());
    const fused = channelsLast(fuse(program));
    const random = seededRandom(1);
    const x = Float32Array.from({ length: 144 }, () => 2 * random() - 1);
    const [plain, joined] = [await runNetwork(program, { x }), await runNetwork(fused, { x })];
    for (const [name, values] of plain)
      for (let i = 0; i < values.length; i++) expect(joined.get(name)?.[i]).toBeCloseTo(values[i] ?? Number.NaN, 5);
    expect(
      fused.steps.map(({ ops, computation }) => `${ops.join(" ")}: ${equationText(computation)}`),
    ).toMatchInlineSnapshot(`
      [
        "Conv BatchNormalization: out[n,k,p,q] += in[n,c,p*2+r,q*2+s] * w[k,c,r,s]; res[n,k,p,q] = out[n,k,p,q] + e1[k]",
        "Conv BatchNormalization Relu: out[n,k,p,q] += in[n,c,p*2+r-1,q*2+s-1] * w[k,c,r,s]; res[n,k,p,q] = max(out[n,k,p,q] + e1[k], 0)",
        "Conv BatchNormalization Add Relu: out[n,c+m,p,q] += in[n,c,p+r-1,q+s-1] * w[c+m,r,s]; res[n,d1,p,q] = max(out[n,d1,p,q] + e1[d1] + e2[n,d1,p,q], 0)",
        "Sigmoid Mul: y[i0,i1,i2,i3] = x[i0,i1,i2,i3] * (1 / (1 + exp(-x[i0,i1,i2,i3])))",
        "GlobalAveragePool: y[n,c,p,q] += x[n,c,p+r,q+s]; res[n,c,p,q] = y[n,c,p,q] / 9",
        "Gemm: out[m,n] += a[m,k] * b[n,k]; res[m,n] = out[m,n] + e0[n]",
        "Softmax: y[i0] max= x[i0,i1]",
        "Softmax: y[i0,i1] = exp(x0[i0,i1] - x1[i0])",
        "Softmax: y[i0] += x[i0,i1]",
        "Softmax: y[i0,i1] = x0[i0,i1] / x1[i0]",
      ]
    `);
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

  it.skipIf(onnxCases().length === 0)("compute what ONNX says, case by case", async () => {
    let compared = 0;
    for (const onnxCase of onnxCases().filter((_, i) => i % 3 === 0)) {
      try {
        const { program, inputs } = programOf(onnxCase);
        const values = Object.fromEntries(Object.entries(inputs).map(([name, constant]) => [name, constant.values]));
        const [plain, joined] = [
          await runNetwork(program, values),
          await runNetwork(channelsLast(fuse(program)), values),
        ];
        for (const { name, value } of program.outputs) {
          const expected = { type: value.type, shape: value.shape, values: Float64Array.from(plain.get(name) ?? []) };
          expect(differenceOf(joined.get(name) ?? [], expected, value), `${onnxCase.name} ${name}`).toBeUndefined();
        }
        compared++;
      } catch (error) {
        if (!(error instanceof UsageError)) throw error;
      }
    }
    expect(compared).toBeGreaterThan(100);
  });
});
