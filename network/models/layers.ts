/**
 * @file Layers of image networks with seeded random weights: the shapes are the papers', the weights are untrained.
 *
 *     const net = new SeededLayers("resnet18", 1);
 *     const y = net.convolved(x, "conv1", { from: 3, to: 64, kernel: 7, stride: 2 });    Conv, BatchNormalization, Relu
 */

import { product } from "../../abstraction/collections.ts";
import { type Random, seededRandom } from "../../abstraction/random.ts";
import { GraphBuilder } from "../builder.ts";

interface LayerShape {
  readonly from: number;
  readonly to: number;
  /** Rows and columns; default 1. */
  readonly kernel?: number;
  readonly stride?: number;
  readonly groups?: number;
  /** Whether a rectifier follows the batch norm; default true. */
  readonly relu?: boolean;
}

/** A window of 3 x 3 that halves an image. */
export const HALVING = { kernel_shape: [3, 3], strides: [2, 2], pads: [1, 1, 1, 1] } as const;

/** Adds layers to a graph. */
export class SeededLayers extends GraphBuilder {
  private readonly random: Random;

  constructor(name: string, seed: number) {
    super(name);
    this.random = seededRandom(seed);
  }

  /** A constant with elements within `limit` of `middle`. */
  drawn(name: string, shape: readonly number[], limit: number, middle = 0): string {
    const values = new Float32Array(product(shape));
    for (let i = 0; i < values.length; i++) values[i] = middle + (2 * this.random() - 1) * limit;
    return this.constant(name, shape, values);
  }

  /** A convolution without bias (padding keeps the size at stride 1), its batch norm, and a rectifier. */
  convolved(
    x: string,
    name: string,
    { from, to, kernel = 1, stride = 1, groups = 1, relu = true }: LayerShape,
  ): string {
    const terms = (from / groups) * kernel * kernel;
    // He's initialisation with a uniform distribution: activations keep their size through the layers, also in f16.
    // A rectifier halves their mean square, so a layer without one has half the variance.
    const limit = Math.sqrt((relu ? 6 : 3) / terms);
    const weights = this.drawn(`${name}.weight`, [to, from / groups, kernel, kernel], limit);
    const pad = (kernel - 1) / 2;
    const y = this.node(
      "Conv",
      [x, weights],
      { kernel_shape: [kernel, kernel], strides: [stride, stride], pads: [pad, pad, pad, pad], group: groups },
      name,
    );
    const normed = this.normed(y, `${name}.bn`, to);
    return relu ? this.node("Relu", [normed], {}, `${name}.relu`) : normed;
  }

  normed(x: string, name: string, channels: number): string {
    const parameters = [
      this.drawn(`${name}.scale`, [channels], 0.2, 1),
      this.drawn(`${name}.bias`, [channels], 0.1),
      this.drawn(`${name}.mean`, [channels], 0.1),
      this.drawn(`${name}.variance`, [channels], 0.2, 1),
    ];
    return this.node("BatchNormalization", [x, ...parameters], { epsilon: Math.fround(1e-5) }, name);
  }

  /** Global average pooling, then a product with a bias. */
  classified(x: string, channels: number, classes: number): string {
    const pooled = this.node("GlobalAveragePool", [x], {}, "pool");
    const flat = this.node("Flatten", [pooled], { axis: 1 }, "flat");
    const weights = this.drawn("fc.weight", [classes, channels], Math.sqrt(1 / channels));
    return this.node("Gemm", [flat, weights, this.drawn("fc.bias", [classes], 0.1)], { transB: 1 }, "fc");
  }
}
