/**
 * @file Networks built in TypeScript: the totals that their papers publish, and the same graph through ONNX and back.
 */

import { describe, expect, it } from "vitest";
import { equationText } from "../../abstraction/computation.ts";
import { printEquation } from "../../abstraction/expression.ts";
import { parseEquation } from "../../abstraction/parse.ts";
import { inBrainFloats } from "../../network/brain-float.ts";
import { GraphBuilder } from "../../network/builder.ts";
import { chainsOf } from "../../network/chains.ts";
import { fuse } from "../../network/fuse.ts";
import { inHalf } from "../../network/half.ts";
import { channelsLast } from "../../network/layout.ts";
import { lowerGraph } from "../../network/lower.ts";
import { bertBase } from "../../network/models/bert.ts";
import { miLstm } from "../../network/models/milstm.ts";
import { mobilenetV1 } from "../../network/models/mobilenet.ts";
import { resnet18, resnet50 } from "../../network/models/resnet.ts";
import { shufflenet } from "../../network/models/shufflenet.ts";
import { parseOnnx } from "../../network/onnx/read.ts";
import { tasksOf, totalsOf } from "../../network/tasks.ts";
import { onnxBytes } from "../support/onnx-bytes.ts";

describe("built-in networks", () => {
  it("have the published numbers of multiply-adds and parameters", () => {
    const told = [resnet18, resnet50, mobilenetV1, shufflenet, miLstm, bertBase].map((build) => {
      const graph = build();
      const { multiplyAdds, parameters } = totalsOf(graph, lowerGraph(graph));
      return `${graph.name} ${(multiplyAdds / 1e9).toFixed(3)} G, ${(parameters / 1e6).toFixed(2)} M`;
    });
    // He et al. 2016, table 1: 1.8 G; torchvision: 11,689,512; of ResNet-50 4.09 G and 25,557,032. Howard et al. 2017, table 8: 569 M and 4.2 M.
    // Zhang et al. 2018, table 1, 3 groups: 137 M. Wu et al. 2016 give equations: 4 * 1024 * 2048 products a step, and 16 * 1024 weights beside them.
    // Devlin et al. 2019, section 3: 110 M; the published base model has 109,482,240.
    expect(told).toEqual([
      "resnet18 1.814 G, 11.69 M",
      "resnet50 4.089 G, 25.56 M",
      "mobilenet_v1 0.569 G, 4.23 M",
      "shufflenet 0.137 G, 1.87 M",
      "mi_lstm 0.067 G, 8.40 M",
      "bert_base 11.174 G, 109.48 M",
    ]);
  });

  it("are read back from ONNX unchanged", () => {
    const graph = resnet18({ size: 32 });
    const again = parseOnnx(onnxBytes(graph), "resnet18.onnx", ".");
    expect(again.nodes.map(({ attributes, ...node }) => ({ ...node, attributes: { ...attributes } }))).toEqual(
      graph.nodes,
    );
    expect([...again.constants.keys()]).toEqual([...graph.constants.keys()]);
    expect(again.constants.get("fc.bias")).toEqual(graph.constants.get("fc.bias"));
    expect(again.inputs).toEqual(graph.inputs);
  });

  it("have the same weights for the same seed and others for another", () => {
    const weights = (seed: number) => mobilenetV1({ seed }).constants.get("fc.weight")?.values.slice(0, 8);
    expect(weights(1)).toEqual(weights(1));
    expect(weights(2)).not.toEqual(weights(1));
  });
});

describe("a network of thousands of nodes", () => {
  it.each([
    ["element-wise ones", "Relu", 3000],
    ["moves", "Transpose", 1000],
    ["softmaxes", "Softmax", 500],
  ])("is lowered and fused: %s", (_, op, count) => {
    const net = new GraphBuilder("chain");
    let x = net.input("x", [2, 8]);
    for (let i = 0; i < count; i++) x = net.node(op, [x]);
    net.output(x);
    const fused = channelsLast(fuse(lowerGraph(net.graph)));
    expect(new Set(fused.steps.flatMap(({ nodes }) => nodes)).size).toBe(count);
    for (const pass of [inHalf, inBrainFloats]) expect(chainsOf(pass(fused)).length).toBeLessThanOrEqual(count);
    for (const { computation } of tasksOf(fused))
      expect(printEquation(parseEquation(equationText(computation)))).toBe(equationText(computation));
  });
});
