/** @file The README of a network's package: what it says, and that no name of a model ends the block in which it stands. */

import { expect, it } from "vitest";
import type { Graph } from "../../network/graph.ts";
import { networkFiles } from "../../package/network/index.ts";
import { networkSubject, openGraph } from "../../session/network/network.ts";

/** `y = relu(x)`, with a given name for the input. */
const relu = (input: string): Graph => ({
  name: "relu",
  opset: 17,
  inputs: [{ name: input, type: "f32", shape: [2, 3] }],
  outputs: ["y"],
  constants: new Map(),
  nodes: [{ name: "relu", op: "Relu", inputs: [input], outputs: ["y"], attributes: {} }],
});

function readmeOf(graph: Graph, ...provenance: readonly string[]): string {
  const subject = networkSubject(openGraph(graph).program, new Map(), { provenance });
  return `${networkFiles(subject).get("README.md")}`;
}

it("names the tensors, the calls and the origin", () => {
  const text = readmeOf(relu("x"), "made for  a machine");
  expect(text).toContain("    made for  a machine\n    made by   automap ");
  expect(text).toContain("    x   input, f32[2,3], row-major, 24 bytes\n    y   output, ");
  expect(text).toContain("relu_run(net, x, y);");
});

it("keeps every hostile name on one line of a verbatim block", () => {
  const hostile = "x\n# heading\r\n```\u2028[link](https://a.b)\u202e<script>";
  const text = readmeOf(relu(hostile), `remake    ${hostile}`);
  expect(text.match(/\[link\]|<script>/g)).toHaveLength(4);
  for (const line of text.split("\n").filter((l) => /# heading|```\s*\[|<script>/.test(l)))
    expect(line).toMatch(/^ {4}\S/);
  expect(text).not.toMatch(/[\r\u2028\u202e]/);
});
