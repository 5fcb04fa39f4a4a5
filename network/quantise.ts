/**
 * @file Quantises an f32 network to 8-bit integers in the form that ONNX quantisers write: pairs of QuantizeLinear and DequantizeLinear around
 * stored values.
 *
 *     Conv(x, w)  ->  BatchNormalization  ->  Relu                                          ranges: { x: [-2, 2], relu: [0, 3.1] }
 *     DQ(Q(x)), DQ(w s8), DQ(bias s32)  ->  Conv  ->  Relu  ->  Q (u8)  ->  DQ
 *
 * Values are u8 with one scale and zero point each, from their observed range. Weights are s8 with one scale for each filter, with batch norms
 * folded in. Biases are s32 in units of both scales. Values without a range stay f32.
 */

import { addTo } from "../abstraction/collections.ts";
import { UsageError } from "../abstraction/error.ts";
import type { Attribute, Constant, Graph, Node } from "./graph.ts";
import { numbersFor } from "./numbers.ts";

/** Observed range of each value, by name. */
export type Ranges = Readonly<Record<string, readonly [least: number, most: number]>>;

/** Operators that move elements; their outputs keep the input's scale. */
const MOVES = ["Flatten", "MaxPool", "Reshape", "Transpose"];
/** Operators that multiply weights; their third input is a bias. */
const LAYERS = ["Conv", "Gemm"];

interface Scale {
  readonly scale: number;
  readonly zero: number;
}

function readersOf(nodes: readonly Node[]): Map<string, Node[]> {
  const readers = new Map<string, Node[]>();
  for (const node of nodes) for (const name of node.inputs) addTo(readers, name, node);
  return readers;
}

/** @throws UsageError when a layer's weights are not known, or a range is invalid */
export function quantise(graph: Graph, ranges: Ranges, name = `${graph.name}_u8s8`): Graph {
  return new Quantiser(graph, ranges).graph(name);
}

class Quantiser {
  private readonly from: Graph;
  private readonly ranges: Ranges;
  private readonly readers: ReadonlyMap<string, Node[]>;
  private readonly constants = new Map<string, Constant>();
  private readonly nodes: Node[] = [];
  /** The current replacement of each value of the network. */
  private readonly now = new Map<string, string>();
  private readonly scales = new Map<string, Scale>();
  private readonly folded = new Set<Node>();

  constructor(from: Graph, ranges: Ranges) {
    this.from = from;
    this.ranges = ranges;
    this.readers = readersOf(from.nodes);
  }

  graph(name: string): Graph {
    const { inputs, outputs, opset, nodes } = this.from;
    for (const input of inputs) this.stored(input.name);
    for (const node of nodes) if (!this.folded.has(node)) this.add(node);
    return { name, opset, inputs, outputs, constants: this.constants, nodes: this.nodes };
  }

  private add(node: Node): void {
    const [x = "", w = ""] = node.inputs;
    const scale = this.scales.get(x);
    const [y = ""] = node.outputs;
    if (LAYERS.includes(node.op) && scale && this.from.constants.has(w)) this.layer(node, scale);
    else {
      for (const input of node.inputs) {
        const constant = this.from.constants.get(input);
        if (constant) this.constants.set(input, constant);
      }
      this.nodes.push({ ...node, inputs: node.inputs.map((input) => this.now.get(input) ?? input) });
    }
    this.stored(y, MOVES.includes(node.op) ? scale : undefined);
  }

  /** Stores a value as u8 if its scale is known. */
  private stored(value: string, given?: Scale): void {
    const range = this.ranges[value];
    const scale = given ?? (range && scaleOf(value, range));
    if (!scale || this.from.outputs.includes(value)) return;
    this.scales.set(value, scale);
    const parameters = this.parameters(value, [scale.scale], scale.zero, "u8", []);
    const whole = `${value}.u8`;
    const shown = `${value}.shown`;
    this.push("QuantizeLinear", `${value}.quantize`, [this.now.get(value) ?? value, ...parameters], whole);
    this.push("DequantizeLinear", `${value}.dequantize`, [whole, ...parameters], shown);
    this.now.set(value, shown);
  }

  /** A convolution or product with its batch norm folded into the weights. */
  private layer(node: Node, input: Scale): void {
    const [x = "", tensor = "", given = ""] = node.inputs;
    const [y = ""] = node.outputs;
    const weights = this.constantNamed(tensor, node);
    // Layers that share weights still have separate scales.
    const w = this.constants.has(`${tensor}.s8`) ? `${y}.${tensor}` : tensor;
    const filters = weights.shape[0] ?? 1;
    const isRows = node.op === "Conv" || node.attributes["transB"] === 1;
    if (!isRows) throw new UsageError(`${node.name} (${node.op}): weights that lie by columns are not quantised`);
    const norm = this.normBehind(node);
    const { factors, offsets } = norm ? this.normOf(norm) : { factors: undefined, offsets: undefined };
    const bias = given === "" ? undefined : this.constantNamed(given, node).values;
    const run = weights.values.length / filters;
    const whole = new Int8Array(weights.values.length);
    const steps = new Float32Array(filters);
    for (let k = 0; k < filters; k++) {
      const factor = factors?.[k] ?? 1;
      let most = 0;
      for (let i = k * run; i < (k + 1) * run; i++) most = Math.max(most, Math.abs((weights.values[i] ?? 0) * factor));
      const step = Math.fround((most || 1) / 127);
      steps[k] = step;
      for (let i = k * run; i < (k + 1) * run; i++) whole[i] = Math.round(((weights.values[i] ?? 0) * factor) / step);
    }
    const units = Float32Array.from(steps, (step) => step * Math.fround(input.scale));
    const sums = Int32Array.from(units, (unit, k) =>
      Math.round(((bias?.[k] ?? 0) * (factors?.[k] ?? 1) + (offsets?.[k] ?? 0)) / unit),
    );
    this.constants.set(`${w}.s8`, { type: "s8", shape: weights.shape, values: whole });
    this.constants.set(`${w}.bias.s32`, { type: "s32", shape: [filters], values: sums });
    const own = this.parameters(w, steps, 0, "s8", [filters]);
    const ofBias = this.parameters(`${w}.bias`, units, 0, "s32", [filters]);
    this.push("DequantizeLinear", `${w}.dequantize`, [`${w}.s8`, ...own], `${w}.shown`, { axis: 0 });
    this.push("DequantizeLinear", `${w}.bias.dequantize`, [`${w}.bias.s32`, ...ofBias], `${w}.bias.shown`, { axis: 0 });
    const made = norm?.outputs[0] ?? y;
    this.nodes.push({ ...node, inputs: [this.now.get(x) ?? x, `${w}.shown`, `${w}.bias.shown`], outputs: [made] });
    if (norm) {
      this.folded.add(norm);
      this.stored(made);
    }
  }

  /** The batch norm that follows a layer as its only reader, if it can be folded into the layer's weights and bias. */
  private normBehind({ outputs: [y = ""], attributes }: Node): Node | undefined {
    const [reader, ...others] = this.readers.get(y) ?? [];
    const isPlain = (attributes["alpha"] ?? 1) === 1 && (attributes["beta"] ?? 1) === 1;
    if (reader?.op !== "BatchNormalization" || others.length > 0 || !isPlain || this.from.outputs.includes(y))
      return undefined;
    return reader;
  }

  /** A batch norm as a factor and an offset per channel. */
  private normOf(norm: Node) {
    const [scale, bias, mean, variance] = [1, 2, 3, 4].map(
      (i) => this.constantNamed(norm.inputs[i] ?? "", norm).values,
    );
    const epsilon = typeof norm.attributes["epsilon"] === "number" ? norm.attributes["epsilon"] : 1e-5;
    const factors = Array.from(scale ?? [], (s, k) => s / Math.sqrt((variance?.[k] ?? 0) + epsilon));
    return { factors, offsets: factors.map((factor, k) => (bias?.[k] ?? 0) - (mean?.[k] ?? 0) * factor) };
  }

  private constantNamed(name: string, node: Node): Constant {
    const constant = this.from.constants.get(name);
    if (!constant) throw new UsageError(`${node.name} (${node.op}): ${name} is not known, and cannot be quantised`);
    return constant;
  }

  private parameters(
    of: string,
    scales: ArrayLike<number>,
    offset: number,
    type: "u8" | "s8" | "s32",
    shape: readonly number[],
  ): readonly [string, string] {
    const scale = `${of}.scale`;
    const zero = `${of}.zero`;
    this.constants.set(scale, { type: "f32", shape, values: Float32Array.from(scales) });
    this.constants.set(zero, { type, shape, values: numbersFor(type, scales.length, of).fill(offset) });
    return [scale, zero];
  }

  private push(
    op: string,
    name: string,
    inputs: readonly string[],
    output: string,
    attributes: Readonly<Record<string, Attribute>> = {},
  ): void {
    this.nodes.push({ name, op, inputs, outputs: [output], attributes });
  }
}

/** The scale of a u8 value. 0 must be represented exactly, for padding and rectifiers. */
function scaleOf(value: string, [least, most]: readonly [number, number]): Scale {
  const low = Math.min(0, least);
  const high = Math.max(0, most);
  if (!(Number.isFinite(high - low) && high > low))
    throw new UsageError(`the range of ${value}, ${least} to ${most}, is none`);
  const scale = Math.fround((high - low) / 255);
  return { scale, zero: Math.round(-low / scale) };
}
