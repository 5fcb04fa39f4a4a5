/**
 * @file Builds a graph in TypeScript from the same nodes that ONNX has.
 *
 *     const net = new GraphBuilder("mlp");
 *     const x = net.input("x", [1, 784]);
 *     const y = net.node("Gemm", [x, net.constant("w", [10, 784], values)], { transB: 1 });
 *     net.output(net.node("Softmax", [y], { axis: 1 }));
 *     lowerGraph(net.graph)
 */

import type { Attribute, Constant, Dimension, Graph, Input, Node } from "./graph.ts";
import type { NumberArray } from "./numbers.ts";
import type { ElementType } from "./value.ts";

/** The version of ONNX's operators that built graphs are written in: the first with Gelu. */
const BUILT_OPSET = 20;

export class GraphBuilder {
  private readonly name: string;
  private readonly inputs: Input[] = [];
  private readonly outputs: string[] = [];
  private readonly constants = new Map<string, Constant>();
  private readonly nodes: Node[] = [];

  constructor(name: string) {
    this.name = name;
  }

  /** Adds a tensor that is supplied when the network runs. @returns its name */
  input(name: string, shape: readonly Dimension[], type: ElementType = "f32"): string {
    this.inputs.push({ name, type, shape });
    return name;
  }

  /** Adds a tensor with known elements. @returns its name */
  constant(name: string, shape: readonly number[], values: NumberArray, type: ElementType = "f32"): string {
    this.constants.set(name, { type, shape, values });
    return name;
  }

  /** @param name of the node and of its output. @returns the output's name */
  node(op: string, inputs: readonly string[], attributes: Readonly<Record<string, Attribute>> = {}, name = ""): string {
    const called = name === "" ? `${op.toLowerCase()}${this.nodes.length}` : name;
    this.nodes.push({ name: called, op, inputs, outputs: [called], attributes });
    return called;
  }

  /** A node with several outputs. */
  nodeOf(
    name: string,
    op: string,
    { inputs, outputs, attributes }: Pick<Node, "inputs" | "outputs" | "attributes">,
  ): void {
    this.nodes.push({ name, op, inputs, outputs, attributes });
  }

  /** Splits a tensor into equal parts along an axis. @returns their names */
  split(x: string, axis: number, parts: number, name: string): string[] {
    const outputs = Array.from({ length: parts }, (_, i) => `${name}.${i}`);
    this.nodeOf(name, "Split", { inputs: [x], outputs, attributes: { axis, num_outputs: parts } });
    return outputs;
  }

  /** A constant list of sizes, axes or places. @returns its name */
  whole(name: string, values: readonly number[]): string {
    return this.constant(name, [values.length], Float64Array.from(values), "s64");
  }

  /** Gives a value to the user. */
  output(name: string): void {
    this.outputs.push(name);
  }

  get graph(): Graph {
    const { name, inputs, outputs, constants, nodes } = this;
    return { name, opset: BUILT_OPSET, inputs, outputs, constants, nodes };
  }
}
