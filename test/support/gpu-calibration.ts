/** @file Plausible measurements of the probes of a GPU. */

import type { GpuCalibration } from "../../perfmodel/calibrate-gpu.ts";

const figure = (median: number) => ({ median, spread: 0.01 });
export const GPU_CALIBRATION: GpuCalibration = {
  kind: "gpu",
  machine: "a test's GPU",
  clockHz: figure(2e9),
  loadedClockHz: figure(1.5e9),
  instructions: {
    "wgmma.m64n64k16.f32.f16": { issueCycles: figure(40), latencyCycles: figure(90) },
    "wgmma.m64n128k16.f32.f16": { issueCycles: figure(80), latencyCycles: figure(120) },
    "shuffle.down.1": { issueCycles: figure(2), latencyCycles: figure(25) },
  },
  l2: { readBytesPerSecond: figure(132e9), writeBytesPerSecond: figure(66e9), latencyCycles: figure(250) },
  dram: { readBytesPerSecond: figure(2e12), copyBytesPerSecond: figure(1.9e12), latencyCycles: figure(600) },
  shared: { readBytesPerCycle: figure(120), latencyCycles: figure(29) },
  launchSeconds: figure(1e-6),
};
