/**
 * @file Small models as exporters write them, with drawn weights: node by node what PyTorch, tf2onnx and ONNX Runtime's quantiser emit.
 *
 *     exportedTransformer()      ids in s64, sizes computed from shapes, layer norms in five nodes, positions counted with CumSum
 */

import { seededRandom } from "../../abstraction/random.ts";
import type { Attribute, Graph } from "../../network/graph.ts";
import { SeededLayers } from "../../network/models/layers.ts";

const F32 = 1;
const S32 = 6;
const S64 = 7;

class Exported extends SeededLayers {
  number(name: string, value: number): string {
    return this.constant(name, [], Float32Array.of(value));
  }

  /** Constants are nodes in graphs of PyTorch. */
  list(...values: number[]): string {
    const value: Attribute = { type: "s64", shape: [values.length], values: Float64Array.from(values) };
    return this.node("Constant", [], { value });
  }

  place(value: number): string {
    return this.node("Constant", [], { value: { type: "s64", shape: [], values: Float64Array.of(value) } });
  }
}

/** `torch.onnx.export` of an encoder with the masks of Hugging Face and the positions of RoBERTa, opset 14. */
class PyTorch extends Exported {
  private readonly hidden = 16;
  private readonly heads = 2;

  /** `x.size(dim)` */
  size(x: string, dim: number): string {
    return this.node("Gather", [this.node("Shape", [x]), this.place(dim)], { axis: 0 });
  }

  shape(...sizes: (string | number)[]): string {
    const parts = sizes.map((size) =>
      typeof size === "number" ? this.list(size) : this.node("Unsqueeze", [size, this.list(0)]),
    );
    return this.node("Concat", parts, { axis: 0 });
  }

  linear(x: string, name: string, from: number, to: number): string {
    const y = this.node("MatMul", [x, this.drawn(`${name}.weight`, [from, to], Math.sqrt(3 / from))]);
    return this.node("Add", [this.drawn(`${name}.bias`, [to], 0.1), y]);
  }

  layerNorm(x: string, name: string): string {
    const mean = this.node("ReduceMean", [x], { axes: [-1] });
    const centred = this.node("Sub", [x, mean]);
    const square = this.node("Pow", [centred, this.number(`${name}.two`, 2)]);
    const variance = this.node("ReduceMean", [square], { axes: [-1] });
    const deviation = this.node("Sqrt", [this.node("Add", [variance, this.number(`${name}.epsilon`, 1e-5)])]);
    const normed = this.node("Div", [centred, deviation]);
    const scaled = this.node("Mul", [normed, this.drawn(`${name}.weight`, [this.hidden], 0.2, 1)]);
    return this.node("Add", [scaled, this.drawn(`${name}.bias`, [this.hidden], 0.1)]);
  }

  attention(x: string, mask: string): string {
    const { hidden, heads } = this;
    const apart = (word: string): string => {
      const all = this.linear(x, word, hidden, hidden);
      const shaped = this.node("Reshape", [all, this.shape(this.size(x, 0), this.size(x, 1), heads, hidden / heads)]);
      return this.node("Transpose", [shaped], { perm: [0, 2, 1, 3] });
    };
    const [query, key, value] = [apart("query"), apart("key"), apart("value")];
    const scores = this.node("MatMul", [query, this.node("Transpose", [key], { perm: [0, 1, 3, 2] })]);
    const scaled = this.node("Div", [scores, this.number("sqrt", Math.sqrt(hidden / heads))]);
    const weights = this.node("Softmax", [this.node("Add", [scaled, mask])], { axis: 3 });
    const context = this.node("Transpose", [this.node("MatMul", [weights, value])], { perm: [0, 2, 1, 3] });
    const joined = this.node("Reshape", [context, this.shape(this.size(x, 0), this.size(x, 1), hidden)]);
    return this.linear(joined, "out", hidden, hidden);
  }

  gelu(x: string): string {
    const inside = this.node("Erf", [this.node("Div", [x, this.number("sqrt2", Math.SQRT2)])]);
    const half = this.node("Mul", [x, this.node("Add", [inside, this.number("one", 1)])]);
    return this.node("Mul", [half, this.number("half", 0.5)]);
  }

  /** Places of tokens among those that are no padding, counted from 2. */
  positions(ids: string): string {
    const isToken = this.node("Not", [this.node("Equal", [ids, this.place(1)])]);
    const counted = this.node("Cast", [isToken], { to: S32 });
    const sums = this.node("Cast", [this.node("CumSum", [counted, this.place(1)])], { to: S32 });
    const places = this.node("Cast", [this.node("Mul", [sums, counted])], { to: S64 });
    return this.node("Add", [places, this.place(1)]);
  }

  exported(): Graph {
    const { hidden } = this;
    const ids = this.input("input_ids", ["batch", "sequence"], "s64");
    const given = this.input("attention_mask", ["batch", "sequence"], "s64");
    const table = (name: string, rows: number): string => this.drawn(name, [rows, hidden], 1);
    const wide = this.node("Unsqueeze", [this.node("Unsqueeze", [given, this.list(1)]), this.list(2)]);
    const less = this.node("Sub", [this.number("all", 1), this.node("Cast", [wide], { to: F32 })]);
    const mask = this.node("Mul", [less, this.number("least", -3.4028234663852886e38)]);
    const kinds = this.node("ConstantOfShape", [this.shape(this.size(ids, 0), this.size(ids, 1))], {
      value: { type: "s64", shape: [1], values: Float64Array.of(0) },
    });
    const words = this.node("Gather", [table("words", 30), ids]);
    const all = this.node("Add", [words, this.node("Gather", [table("kinds", 2), kinds])]);
    const placed = this.node("Add", [all, this.node("Gather", [table("places", 20), this.positions(ids)])]);
    const x = this.layerNorm(placed, "embedding");
    const attended = this.layerNorm(this.node("Add", [this.attention(x, mask), x]), "first");
    const narrow = this.linear(
      this.gelu(this.linear(attended, "wide", hidden, 4 * hidden)),
      "narrow",
      4 * hidden,
      hidden,
    );
    const hiddenStates = this.layerNorm(this.node("Add", [narrow, attended]), "second");
    const logits = this.linear(hiddenStates, "logits", hidden, 30);
    this.output(logits);
    this.output(this.node("ArgMax", [logits], { axis: -1, keepdims: 0 }, "tokens"));
    return { ...this.graph, opset: 14 };
  }
}

export const exportedTransformer = (): Graph => new PyTorch("transformer", 5).exported();

/** `tf2onnx.convert` of a Keras network: images of NHWC, turned for each convolution, and sizes cast to s32 and back. */
export function exportedKeras(): Graph {
  const net = new Exported("keras", 9);
  const x = net.input("x", ["batch", 9, 9, 3]);
  const turned = net.node("Transpose", [x], { perm: [0, 3, 1, 2] });
  const first = net.node("Conv", [turned, net.drawn("w0", [8, 3, 3, 3], 0.4), net.drawn("b0", [8], 0.1)], {
    kernel_shape: [3, 3],
    strides: [2, 2],
    auto_pad: "SAME_UPPER",
  });
  const back = net.node("Transpose", [net.node("Relu", [first])], { perm: [0, 2, 3, 1] });
  const normed = net.node("Add", [net.node("Mul", [back, net.drawn("s", [8], 0.2, 1)]), net.drawn("o", [8], 0.1)]);
  const again = net.node("Transpose", [normed], { perm: [0, 3, 1, 2] });
  const depthwise = net.node("Conv", [again, net.drawn("w1", [8, 1, 3, 3], 0.6)], {
    kernel_shape: [3, 3],
    pads: [0, 0, 1, 1],
    group: 8,
  });
  const clipped = net.node("Clip", [depthwise, net.number("least", 0), net.number("most", 6)]);
  const pooled = net.node("MaxPool", [clipped], { kernel_shape: [2, 2], strides: [2, 2] });
  const rows = net.node("Transpose", [pooled], { perm: [0, 2, 3, 1] });
  const sizes = net.node("Cast", [net.node("Shape", [rows])], { to: S32 });
  const ends = [net.list(0), net.list(1), net.list(0)];
  const batch = net.node("Slice", [sizes, ...ends]);
  const minus = net.node("Constant", [], { value: { type: "s32", shape: [1], values: Int32Array.of(-1) } });
  const shape = net.node("Cast", [net.node("Concat", [batch, minus], { axis: 0 })], { to: S64 });
  const flat = net.node("Reshape", [rows, shape]);
  const scores = net.node("Add", [
    net.node("MatMul", [flat, net.drawn("w2", [32, 5], 0.3)]),
    net.drawn("b2", [5], 0.1),
  ]);
  net.output(net.node("Softmax", [scores], { axis: -1 }));
  return { ...net.graph, opset: 15 };
}

/** `onnxruntime.quantization.quantize_static` in QDQ format: u8 images, s8 weights by channel, biases of s32. */
export function exportedQdq(): Graph {
  const net = new Exported("qdq", 3);
  const random = seededRandom(21);
  /** Scales of weights by output channel. */
  const scales = new Map<string, Float32Array>();
  const number = (name: string, value: number, type: "u8" | "s8"): string =>
    net.constant(name, [], type === "u8" ? Uint8Array.of(value) : Int8Array.of(value), type);
  /** QuantizeLinear and DequantizeLinear with a scale and a zero point of their own. */
  const through = (x: string, name: string, scale: number, zero: number): string => {
    const by = [net.number(`${name}_scale`, scale), number(`${name}_zero_point`, zero, "u8")];
    return net.node("DequantizeLinear", [net.node("QuantizeLinear", [x, ...by]), ...by]);
  };
  const weights = (name: string, shape: readonly number[]): string => {
    const [filters = 1] = shape;
    const count = shape.reduce((product, size) => product * size, 1);
    const values = Int8Array.from({ length: count }, () => Math.floor(255 * random()) - 127);
    const zeros = net.constant(`${name}_zero_point`, [filters], new Int8Array(filters), "s8");
    const scale = Float32Array.from({ length: filters }, () => 0.004 * (1 + random()));
    scales.set(name, scale);
    const by = [net.constant(`${name}_scale`, [filters], scale), zeros];
    return net.node("DequantizeLinear", [net.constant(`${name}_quantized`, shape, values, "s8"), ...by], { axis: 0 });
  };
  /** Biases have the scale of the products they are added to. */
  const bias = (name: string, count: number, scaleOfInput: number): string => {
    const scale = scales.get(`${name}.weight`)?.map((by) => by * scaleOfInput) ?? new Float32Array(count);
    const values = Int32Array.from({ length: count }, () => Math.floor(2000 * random()) - 1000);
    const zeros = net.constant(`${name}.bias_zero_point`, [count], new Int32Array(count), "s32");
    const by = [net.constant(`${name}.bias_scale`, [count], scale), zeros];
    return net.node("DequantizeLinear", [net.constant(`${name}.bias`, [count], values, "s32"), ...by], { axis: 0 });
  };
  const image = through(net.input("x", [1, 4, 8, 8]), "x", 0.0157, 128);
  const a = net.node("Conv", [image, weights("a.weight", [8, 4, 3, 3]), bias("a", 8, 0.0157)], {
    kernel_shape: [3, 3],
    pads: [1, 1, 1, 1],
  });
  const relu = through(net.node("Relu", [a]), "relu", 0.03, 0);
  const b = net.node("Conv", [relu, weights("b.weight", [8, 8, 1, 1]), bias("b", 8, 0.03)], { kernel_shape: [1, 1] });
  const sum = through(net.node("Add", [through(b, "b", 0.04, 110), relu]), "sum", 0.05, 100);
  const pooled = through(net.node("MaxPool", [sum], { kernel_shape: [2, 2], strides: [2, 2] }), "sum.max", 0.05, 100);
  const mean = through(net.node("GlobalAveragePool", [pooled]), "mean", 0.02, 90);
  const flat = through(net.node("Flatten", [mean]), "flat", 0.02, 90);
  const fc = net.node("Gemm", [flat, weights("fc.weight", [5, 8]), bias("fc", 5, 0.02)], { transB: 1 });
  net.output(through(fc, "y", 0.03, 120));
  return { ...net.graph, opset: 13 };
}
