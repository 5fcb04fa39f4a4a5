/**
 * @file ResNet-18 and -50: He, Zhang, Ren, Sun, Deep Residual Learning for Image Recognition (CVPR 2016), table 1.
 *
 *     resnet18({ batch: 1, seed: 1 })      1.81 G multiply-adds, 11.69 M parameters
 *     resnet50({ batch: 1, seed: 1 })      4.09 G multiply-adds, 25.56 M parameters
 *
 * A bottleneck's stride is in its 3x3 convolution, as in torchvision and MLPerf; the paper has it in the 1x1 (3.86 G).
 */

import type { Graph } from "../graph.ts";
import { HALVING, SeededLayers } from "./layers.ts";

export interface ModelOptions {
  /** Images; default 1. */
  readonly batch?: number;
  /** Seed of the weights; default 1. */
  readonly seed?: number;
  /** Rows and columns of an image; default 224. */
  readonly size?: number;
}

/** Channels inside the blocks of the four stages. All stages but the first halve the image. */
const STAGES = [64, 128, 256, 512] as const;

interface BlockShape {
  readonly from: number;
  /** Channels inside the block. */
  readonly inner: number;
  readonly to: number;
  readonly stride: number;
}

interface Family {
  readonly name: string;
  /** Blocks of each stage. */
  readonly blocks: readonly number[];
  /** A block's output channels for each inner channel. */
  readonly expansion: number;
  readonly branch: (net: SeededLayers, x: string, name: string, shape: BlockShape) => string;
}

export const resnet18 = (options: ModelOptions = {}): Graph =>
  resnet({ name: "resnet18", blocks: [2, 2, 2, 2], expansion: 1, branch: basic }, options);

export const resnet50 = (options: ModelOptions = {}): Graph =>
  resnet({ name: "resnet50", blocks: [3, 4, 6, 3], expansion: 4, branch: bottleneck }, options);

function resnet({ name, blocks, expansion, branch }: Family, { batch = 1, seed = 1, size = 224 }: ModelOptions): Graph {
  const net = new SeededLayers(name, seed);
  const x = net.input("image", [batch, 3, size, size]);
  const first = net.convolved(x, "conv1", { from: 3, to: 64, kernel: 7, stride: 2 });
  let y = net.node("MaxPool", [first], HALVING, "maxpool");
  let from = 64;
  for (const [stage, inner] of STAGES.entries())
    for (let block = 0; block < (blocks[stage] ?? 0); block++) {
      const shape = { from, inner, to: inner * expansion, stride: stage > 0 && block === 0 ? 2 : 1 };
      const called = `layer${stage + 1}.${block}`;
      y = joined(net, y, called, { shape, outer: branch(net, y, called, shape) });
      from = shape.to;
    }
  net.output(net.classified(y, from, 1000));
  return net.graph;
}

/** Two 3x3 convolutions. */
function basic(net: SeededLayers, x: string, name: string, { from, to, stride }: BlockShape): string {
  const inner = net.convolved(x, `${name}.conv1`, { from, to, kernel: 3, stride });
  return net.convolved(inner, `${name}.conv2`, { from: to, to, kernel: 3, relu: false });
}

/** A 3x3 convolution of fewer channels between two 1x1 convolutions. */
function bottleneck(net: SeededLayers, x: string, name: string, { from, inner, to, stride }: BlockShape): string {
  const narrow = net.convolved(x, `${name}.conv1`, { from, to: inner });
  const middle = net.convolved(narrow, `${name}.conv2`, { from: inner, to: inner, kernel: 3, stride });
  return net.convolved(middle, `${name}.conv3`, { from: inner, to, relu: false });
}

/** Adds the branch to the identity, or to a 1x1 convolution where the shape changes. */
function joined(
  net: SeededLayers,
  x: string,
  name: string,
  { shape, outer }: { readonly shape: BlockShape; readonly outer: string },
): string {
  const { from, to, stride } = shape;
  const beside =
    stride === 1 && from === to ? x : net.convolved(x, `${name}.downsample`, { from, to, stride, relu: false });
  return net.node("Relu", [net.node("Add", [outer, beside], {}, `${name}.add`)], {}, `${name}.relu`);
}
