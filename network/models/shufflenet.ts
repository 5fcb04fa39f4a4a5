/**
 * @file ShuffleNet: Zhang, Zhou, Lin, Sun, ShuffleNet: An Extremely Efficient Convolutional Neural Network for Mobile
 * Devices (CVPR 2018), table 1, three groups.
 *
 *     shufflenet({ batch: 1, seed: 1 })      137 M multiply-adds, 1.87 M parameters
 */

import type { Graph } from "../graph.ts";
import { HALVING, SeededLayers } from "./layers.ts";
import type { ModelOptions } from "./resnet.ts";

const GROUPS = 3;
/** Channels and units of each stage; the first unit halves the image. */
const STAGES = [
  { channels: 240, units: 4 },
  { channels: 480, units: 8 },
  { channels: 960, units: 4 },
] as const;

interface UnitShape {
  readonly from: number;
  readonly to: number;
  /** Rows and columns of its input. */
  readonly size: number;
  readonly batch: number;
}

export function shufflenet({ batch = 1, seed = 1, size = 224 }: ModelOptions = {}): Graph {
  const net = new SeededLayers("shufflenet", seed);
  const x = net.input("image", [batch, 3, size, size]);
  const first = net.convolved(x, "conv1", { from: 3, to: 24, kernel: 3, stride: 2 });
  let y = net.node("MaxPool", [first], HALVING, "maxpool");
  let shape = { from: 24, size: halved(halved(size)), batch };
  for (const [stage, { channels, units }] of STAGES.entries())
    for (let number = 0; number < units; number++) {
      y = unit(net, y, `stage${stage + 2}.${number}`, { ...shape, to: channels });
      shape = { ...shape, from: channels, size: number === 0 ? halved(shape.size) : shape.size };
    }
  net.output(net.classified(y, shape.from, 1000));
  return net.graph;
}

/** Size after a window of 3 with stride 2 and padding 1. */
const halved = (size: number): number => Math.ceil(size / 2);

/** Figure 2: (b) keeps the channels, (c) has a stride and adds channels. Inside are a quarter of the channels. */
function unit(net: SeededLayers, x: string, name: string, { from, to, size, batch }: UnitShape): string {
  const stride = from === to ? 1 : 2;
  const inner = to / 4;
  // The very first unit reads 24 channels, too few for groups (section 3.3).
  const groups = from === 24 ? 1 : GROUPS;
  const narrow = net.convolved(x, `${name}.compress`, { from, to: inner, groups });
  const mixed = shuffled(net, narrow, `${name}.shuffle`, [batch, inner, size, size]);
  const deep = net.convolved(mixed, `${name}.depthwise`, {
    from: inner,
    to: inner,
    kernel: 3,
    stride,
    groups: inner,
    relu: false,
  });
  const wide = { from: inner, to: stride === 1 ? to : to - from, groups: GROUPS, relu: false };
  const outer = net.convolved(deep, `${name}.expand`, wide);
  if (stride === 1) return net.node("Relu", [net.node("Add", [x, outer], {}, `${name}.add`)], {}, `${name}.relu`);
  const beside = net.node("AveragePool", [x], { ...HALVING, count_include_pad: 1 }, `${name}.pool`);
  return net.node("Relu", [net.node("Concat", [beside, outer], { axis: 1 }, `${name}.concat`)], {}, `${name}.relu`);
}

/** Interleaves the channels of the groups: [groups, channels] becomes [channels, groups]. */
function shuffled(
  net: SeededLayers,
  x: string,
  name: string,
  shape: readonly [batch: number, channels: number, rows: number, columns: number],
): string {
  const [batch, channels, rows, columns] = shape;
  const apart = net.whole(`${name}.groups`, [batch, GROUPS, channels / GROUPS, rows, columns]);
  const split = net.node("Reshape", [x, apart], {}, `${name}.split`);
  const turned = net.node("Transpose", [split], { perm: [0, 2, 1, 3, 4] }, `${name}.turned`);
  return net.node("Reshape", [turned, net.whole(`${name}.shape`, shape)], {}, name);
}
