/**
 * @file MobileNet-V1: Howard et al., MobileNets: Efficient CNNs for Mobile Vision Applications (2017), table 1.
 *
 *     mobilenetV1({ batch: 1, seed: 1 })      569 M multiply-adds, 4.2 M parameters
 */

import type { Graph } from "../graph.ts";
import { SeededLayers } from "./layers.ts";
import type { ModelOptions } from "./resnet.ts";

/** Output channels and stride of each pair: a depthwise convolution, then a 1x1 convolution. */
const PAIRS: readonly (readonly [channels: number, stride: number])[] = [
  ...([
    [64, 1],
    [128, 2],
    [128, 1],
    [256, 2],
    [256, 1],
    [512, 2],
  ] as const),
  ...Array.from({ length: 5 }, () => [512, 1] as const),
  ...([
    [1024, 2],
    [1024, 1],
  ] as const),
];

export function mobilenetV1({ batch = 1, seed = 1, size = 224 }: ModelOptions = {}): Graph {
  const net = new SeededLayers("mobilenet_v1", seed);
  let y = net.convolved(net.input("image", [batch, 3, size, size]), "conv1", { from: 3, to: 32, kernel: 3, stride: 2 });
  let from = 32;
  for (const [i, [to, stride]] of PAIRS.entries()) {
    const wide = net.convolved(y, `pair${i}.depthwise`, { from, to: from, kernel: 3, stride, groups: from });
    y = net.convolved(wide, `pair${i}.pointwise`, { from, to });
    from = to;
  }
  net.output(net.classified(y, from, 1000));
  return net.graph;
}
