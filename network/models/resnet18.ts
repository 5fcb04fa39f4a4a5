/**
 * @file ResNet-18: He, Zhang, Ren, Sun, Deep Residual Learning for Image Recognition (CVPR 2016), table 1.
 *
 *     resnet18({ batch: 1, seed: 1 })      1.81 G multiply-adds, 11.69 M parameters
 */

import type { Graph } from "../graph.ts";
import { SeededLayers } from "./layers.ts";

export interface ModelOptions {
  /** Images; 1 by default. */
  readonly batch?: number;
  /** Of the weights; 1 by default. */
  readonly seed?: number;
  /** Rows and columns of an image; 224 by default. */
  readonly size?: number;
}

/** Channels of the four stages; each has two blocks, and all but the first halve the image. */
const STAGES = [64, 128, 256, 512] as const;

export function resnet18({ batch = 1, seed = 1, size = 224 }: ModelOptions = {}): Graph {
  const net = new SeededLayers("resnet18", seed);
  const x = net.input("image", [batch, 3, size, size]);
  const first = net.convolved(x, "conv1", { from: 3, to: 64, kernel: 7, stride: 2 });
  let y = net.node("MaxPool", [first], { kernel_shape: [3, 3], strides: [2, 2], pads: [1, 1, 1, 1] }, "maxpool");
  let from = 64;
  for (const [stage, to] of STAGES.entries())
    for (const block of [0, 1]) {
      const stride = stage > 0 && block === 0 ? 2 : 1;
      y = basicBlock(net, y, `layer${stage + 1}.${block}`, { from, to, stride });
      from = to;
    }
  net.output(net.classified(y, 512, 1000));
  return net.graph;
}

/** Two 3x3 convolutions beside the identity, or beside a 1x1 convolution where the shape changes. */
function basicBlock(
  net: SeededLayers,
  x: string,
  name: string,
  { from, to, stride }: { readonly from: number; readonly to: number; readonly stride: number },
): string {
  const inner = net.convolved(x, `${name}.conv1`, { from, to, kernel: 3, stride });
  const outer = net.convolved(inner, `${name}.conv2`, { from: to, to, kernel: 3, relu: false });
  const beside =
    stride === 1 && from === to ? x : net.convolved(x, `${name}.downsample`, { from, to, stride, relu: false });
  return net.node("Relu", [net.node("Add", [outer, beside], {}, `${name}.add`)], {}, `${name}.relu`);
}
