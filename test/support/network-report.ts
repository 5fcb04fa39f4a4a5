/**
 * @file Data for the report of a network, written by hand: thirty steps with long names, tuned, untuned and of plain
 * loops.
 */

import type { NetworkReportData, NetworkTask } from "../../report/network-data.ts";

const task = (given: Partial<NetworkTask>): NetworkTask => ({
  label: "conv2d c 64 h 56 w 56 k 64",
  nodes: ["layer1.0.conv1"],
  ops: ["Conv", "BatchNormalization", "Relu"],
  times: 10,
  multiplyAdds: 115_605_504,
  time: "measured",
  seconds: 1.9e-3,
  roof: 1.7e-3,
  kernel: "avx512.fma.f32.broadcast n <- k",
  because: undefined,
  record: "8aa86f473907",
  first: 2.6e-3,
  best: 1.8e-3,
  trials: 20,
  ...given,
});

const OF_LOOPS = {
  time: "estimated",
  kernel: undefined,
  record: undefined,
  roof: undefined,
  first: undefined,
  best: undefined,
  trials: 0,
  multiplyAdds: 0,
  because: "it sums no products",
} as const;

export const NETWORK_REPORT: NetworkReportData = {
  name: "resnet18",
  source: "networks.db",
  madeAt: Date.UTC(2026, 10, 23),
  version: "0.1.0",
  machine: "Testium 9000, 1 thread",
  nodes: 69,
  multiplyAdds: 1.814e9,
  parameters: 11.69e6,
  share: { counted: 30, mapped: 21, instructions: [["avx512.fma.f32.broadcast", 21]] },
  steps: Array.from({ length: 60 }, (_, i) => ({
    node: `model/stage_${i}/residual_branch/convolution_with_a_long_name`,
    ops: ["Conv", "BatchNormalization", "Relu"],
    task: i % 3,
    // A chain with a residual connection around every second step.
    reads: [i - 1, i % 2 === 0 ? i - 3 : -1].filter((step) => step >= 0),
  })),
  tasks: [
    task({}),
    task({
      time: "predicted",
      seconds: 0.4e-3,
      roof: undefined,
      record: undefined,
      first: undefined,
      best: undefined,
      trials: 0,
    }),
    task({ ...OF_LOOPS, ops: ["MaxPool"], nodes: ["a", "b", "c", "d", "e", "f"], seconds: 20e-6 }),
    task({ ...OF_LOOPS, ops: ["Softmax"], time: "unknown", seconds: undefined }),
  ],
  noise: { verdict: "noisy", meaning: "half of the trials are good to 6.0 %, nine in ten to 30.0 %" },
  next: [
    { because: "20 steps are not tuned. This tunes where it saves most:", command: "automap tune-network resnet18" },
  ],
  progress: [26e-3, 24e-3, 24e-3, 19e-3, 18e-3],
  roofline: {
    environment: 0,
    of: "core",
    source: "calibrated on Testium 9000",
    contradicted: undefined,
    peaks: [{ name: "avx512.fma.f32.broadcast", operationsPerSecond: 118e9 }],
    bandwidths: [
      { name: "l1", bytesPerSecond: 188e9 },
      { name: "dram", bytesPerSecond: 18e9 },
    ],
    rates: [["dram, latency", "90 ns"]],
    points: [1, 0.8, 0.5].map((part, i) => ({
      label: "conv2d",
      dtype: "f32",
      intensity: 40 + i,
      operationsPerSecond: 115e9 * part,
      best: i === 0,
    })),
  },
};
