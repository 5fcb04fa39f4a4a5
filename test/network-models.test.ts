/** @file Networks built in TypeScript: the totals that their papers publish, and the same graph through ONNX and back. */

import { describe, expect, it } from "vitest";
import { lowerGraph } from "../network/lower.ts";
import { mobilenetV1 } from "../network/models/mobilenet.ts";
import { resnet18 } from "../network/models/resnet18.ts";
import { parseOnnx } from "../network/onnx/read.ts";
import { onnxBytes } from "../network/onnx/write.ts";
import { totalsOf } from "../network/tasks.ts";

describe("networks that are built", () => {
  it("have the multiply-adds and parameters that are published", () => {
    const told = [resnet18, mobilenetV1].map((build) => {
      const graph = build();
      const { multiplyAdds, parameters } = totalsOf(graph, lowerGraph(graph));
      return `${graph.name} ${(multiplyAdds / 1e9).toFixed(3)} G, ${(parameters / 1e6).toFixed(2)} M`;
    });
    // He et al. 2016, table 1: 1.8 G; torchvision: 11,689,512. Howard et al. 2017, table 8: 569 M and 4.2 M.
    expect(told).toEqual(["resnet18 1.814 G, 11.69 M", "mobilenet_v1 0.569 G, 4.23 M"]);
  });

  it("are read back from ONNX as they were written", () => {
    const graph = resnet18({ size: 32 });
    const again = parseOnnx(onnxBytes(graph), "resnet18.onnx", ".");
    expect(again.nodes.map(({ attributes, ...node }) => ({ ...node, attributes: { ...attributes } }))).toEqual(
      graph.nodes,
    );
    expect([...again.constants.keys()]).toEqual([...graph.constants.keys()]);
    expect(again.constants.get("fc.bias")).toEqual(graph.constants.get("fc.bias"));
    expect(again.inputs).toEqual(graph.inputs);
  });

  it("have the same weights for the same seed, and others for another", () => {
    const weights = (seed: number) => mobilenetV1({ seed }).constants.get("fc.weight")?.values.slice(0, 8);
    expect(weights(1)).toEqual(weights(1));
    expect(weights(2)).not.toEqual(weights(1));
  });
});
