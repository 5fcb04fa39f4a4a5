/**
 * @file NVIDIA GPUs with known figures. The features of compute capabilities are in nvidia-features.ts.
 *
 *     nvidiaTarget("h100").isa                           ["sm_61", "sm_70", ..., "sm_90a", "wmma", "mma", "cp_async", "wgmma", ...]
 *     mostBytes(nvidiaTarget("h100"), "shared", "block") 232448
 *
 * A block runs on one multiprocessor. So the hardware units of the level `block` are multiprocessors, and those of the level `warp` are the four
 * quarters that issue instructions.
 */

import { namesOf, withName } from "../abstraction/collections.ts";
import { suggestion, UsageError } from "../abstraction/error.ts";
import type { Bandwidth, CopyForm, Figure, Rate, Target, Unit } from "../abstraction/machine.ts";
import { assumed, cited, GIB, KIB, MIB } from "./figures.ts";
import { featuresOfCapability } from "./nvidia-features.ts";
import { type Gpu, GUIDE, gpu } from "./nvidia-gpu.ts";

/** Probes of each figure, with every result verified; CUDA 13.0, driver 580.159. */
const H100_PROBES = "own probes on an H100 80GB HBM3 SXM (132 multiprocessors, 700 W, CUDA 13.0)";
const H200_PROBES = "own micro-benchmarks on an H200, 2026-11-21 (CUDA 13.0)";
/** Fitted to kernels of seven of the operators there. */
const RANDOM_KERNELS = "fitted to random kernels on H100s, bench/results/gpu-model-accuracy-h100.md";
const LUO = "Luo et al., Hopper micro-benchmarks";

const machine = (given: Omit<Gpu, "isa">): Target => gpu({ ...given, isa: featuresOfCapability(given.capability) });

const perSecond = (
  value: number,
  direction: Bandwidth["direction"],
  of: Bandwidth["of"],
  source: string,
): Bandwidth => ({
  value,
  per: "second",
  direction,
  of,
  source,
});

/** Without asynchronous copies, data reach shared memory through registers. */
const PLAIN: readonly CopyForm[] = [{ into: "shared", name: "plain", bytes: [1, 2, 4, 8, 16], completes: "at once" }];
const cpAsync = (latencyCycles?: Figure): CopyForm => ({
  into: "shared",
  name: "cp.async",
  bytes: [4, 8, 16],
  completes: "group",
  feature: "cp_async",
  ...(latencyCycles && { latencyCycles }),
});

/** The same for all compute capabilities here. The latency is that of an H200; Ada and B300 have the same. */
const shuffleUnit: Unit = {
  name: "shuffle",
  at: "block",
  issueCycles: 1,
  latencyCycles: 24.2,
  source: `${H200_PROBES}: dependent 24.2 cycles, 8.3 T lane operations a second; 32 lanes a cycle: ${GUIDE}`,
};

/** Share of the Tensor Cores' peak for families that were not measured. */
const AT_PEAK: Figure = assumed(1, "the peak of the data sheet; not measured");

const V100 = machine({
  name: "v100",
  summary: "NVIDIA V100 SXM2 16 GB",
  capability: 70,
  multiprocessors: 80,
  clockHz: cited(1.53e9, "NVIDIA V100 whitepaper: boost clock"),
  dram: {
    bytes: cited(16 * GIB, "NVIDIA V100 whitepaper"),
    bandwidth: [perSecond(900e9, "both", "grid", "NVIDIA V100 whitepaper")],
  },
  l2: { bytes: cited(6 * MIB, "NVIDIA V100 whitepaper"), bandwidth: [] },
  shared: { bytes: 96 * KIB, block: 96 * KIB },
  copies: PLAIN,
  units: [
    {
      name: "tensor",
      at: "block",
      operationsPerCycle: { f16: 1024 },
      source: "NVIDIA V100 whitepaper: 8 Tensor Cores of 64 multiply-adds a multiprocessor; 125 TFLOP/s",
    },
    {
      name: "fma",
      at: "block",
      operationsPerCycle: { f16: 256, f32: 128, f64: 64 },
      latencyCycles: 4,
      source: "NVIDIA V100 whitepaper: 15.7 TFLOP/s f32, 7.8 f64, twice f32 in f16; latency by micro-benchmarks",
    },
    shuffleUnit,
  ],
  rates: [{ family: "wmma", unit: "tensor", share: AT_PEAK, feature: "wmma" }],
  fixed: {},
});

const A100 = machine({
  name: "a100",
  summary: "NVIDIA A100 SXM4 40 GB",
  capability: 80,
  multiprocessors: 108,
  clockHz: cited(1.41e9, "NVIDIA A100 whitepaper: boost clock"),
  dram: {
    bytes: cited(40 * GIB, "NVIDIA A100 whitepaper"),
    bandwidth: [perSecond(1555e9, "both", "grid", "NVIDIA A100 whitepaper")],
  },
  l2: { bytes: cited(40 * MIB, "NVIDIA A100 whitepaper"), bandwidth: [] },
  shared: { bytes: 164 * KIB, block: 163 * KIB },
  copies: [...PLAIN, cpAsync()],
  units: [
    {
      name: "tensor",
      at: "block",
      operationsPerCycle: { f16: 2048, bf16: 2048, tf32: 1024, s8: 4096, u8: 4096, f64: 128 },
      source: "NVIDIA A100 whitepaper: 312 TFLOP/s f16 and bf16, 156 tf32, 624 TOP/s int8, 19.5 TFLOP/s f64",
    },
    {
      name: "fma",
      at: "block",
      operationsPerCycle: { f16: 512, bf16: 256, f32: 128, f64: 64 },
      source: "NVIDIA A100 whitepaper: 78 TFLOP/s f16, 39 bf16, 19.5 f32, 9.7 f64",
    },
    shuffleUnit,
  ],
  rates: [
    {
      family: "mma",
      unit: "tensor",
      share: AT_PEAK,
      latencyCycles: cited(24.6, `${LUO}: m16n8k16 f16 on an A100`),
      feature: "mma",
    },
    { family: "wmma", unit: "tensor", share: AT_PEAK, feature: "wmma" },
  ],
  fixed: {},
});

const HOPPER_TENSOR: Unit = {
  name: "tensor",
  at: "block",
  operationsPerCycle: { f16: 4096, bf16: 4096, tf32: 2048, s8: 8192, u8: 8192, e4m3: 8192, e5m2: 8192, f64: 256 },
  source:
    "NVIDIA H100 whitepaper: 989 TFLOP/s f16 and bf16, 495 tf32, 1,979 TFLOP/s fp8 and TOP/s int8 at 1.83 GHz; 67 TFLOP/s f64",
};

const HOPPER_FMA: Unit = {
  name: "fma",
  at: "block",
  operationsPerCycle: { f16: 512, bf16: 512, f32: 256, f64: 128 },
  latencyCycles: 4.7,
  source: `NVIDIA H100 data sheet: 67 TFLOP/s f32, 34 f64; dependent FFMA 4.7 cycles, loop overhead included: ${H200_PROBES}`,
};

const HOPPER_L1 = `${LUO}, H100: an L1 hit 40.2 cycles, about 128 bytes a clock and multiprocessor`;
/** Loads of 32 words. */
const HOPPER_LOAD: Unit = { name: "load", at: "block", issueCycles: 1, latencyCycles: 40.2, source: HOPPER_L1 };
const HOPPER_STORE: Unit = { name: "store", at: "block", issueCycles: 1, source: HOPPER_L1 };

/** Loads from constant memory at a place that the compiler does not know to be the same in all lanes. */
const HOPPER_CONSTANT: Unit = {
  name: "constant",
  at: "block",
  issueCycles: 5.4,
  source:
    "bench/trials/cuda-designs-h100: 128 of them take 2,780 cycles of a quarter in fir, with 4 and with 8 warps a block",
};

const MMA_SHARE: Figure = cited(
  0.63,
  `${LUO}, H800: mma.sync m16n8k16 f16 494 TFLOP/s, m16n8k32 s8 978 TOP/s, 63 % of peak on average`,
);

/** TFLOP/s of wgmma m64nNk16 in f16, both factors in shared memory, two warpgroups a multiprocessor, random data. */
const WGMMA_BY_N = [
  [8, 209],
  [16, 379],
  [32, 633],
  [64, 847],
  [128, 872],
  [200, 879],
  [256, 889],
] as const;

/**
 * Luo et al.: n 256 takes 128 cycles and reaches more than 95 % of the peak on zeros. The clock is lower on random data, so the share of a smaller n
 * is that of n 256 times the ratio of their rates.
 */
const WGMMA_SHARE = 0.97;

const HOPPER_RATES: readonly Rate[] = [
  {
    family: "mma",
    unit: "tensor",
    share: MMA_SHARE,
    latencyCycles: cited(25, `${H200_PROBES}: m16n8k16 f16`),
    feature: "mma",
  },
  {
    family: "mma",
    types: ["e4m3", "e5m2"],
    unit: "tensor",
    share: assumed(
      MMA_SHARE.value / 2,
      "ptxas converts the factors to f16 on sm_90 and issues m16n8k16: the rate of f16",
    ),
    latencyCycles: assumed(50, "two m16n8k16 after one another"),
    feature: "mma",
  },
  {
    family: "wmma",
    unit: "tensor",
    share: { ...MMA_SHARE, source: `${H200_PROBES}: wmma and mma.sync f16 alike, 627 TFLOP/s` },
    feature: "wmma",
  },
  {
    family: "wgmma",
    unit: "tensor",
    share: {
      axis: "n",
      points: WGMMA_BY_N.map(([n, teraflops]) => [n, (WGMMA_SHARE * teraflops) / 889] as const),
      source: `${H100_PROBES}, two warpgroups; ${LUO}: more than 95 % at n 256`,
    },
    latencyCycles: {
      axis: "n",
      points: [
        [8, 61],
        [64, 88],
        [128, 117],
        [256, 206],
      ],
      source: `${H100_PROBES}: one issued and awaited`,
    },
    feature: "wgmma",
  },
];

const HOPPER_COPIES: readonly CopyForm[] = [
  ...PLAIN,
  cpAsync(cited(345, `${H100_PROBES}: 16 bytes from L2, 300 to 390`)),
  {
    into: "shared",
    name: "tma",
    bytes: [16],
    alignment: 128,
    completes: "barrier",
    feature: "tma",
    latencyCycles: cited(
      1000,
      `under load, fitted as the rate of the last cache was; ${H100_PROBES}: 590 for a box of 16 KB that is alone`,
    ),
  },
];

const HOPPER_L2_TO_SHARED = [
  perSecond(7.66e12, "read", "grid", `${H100_PROBES}: to shared memory, by boxes and by 16 bytes alike`),
  perSecond(
    120e9,
    "read",
    "block",
    "fitted to 2,000 products and convolutions of bench/trials (H100, H200), whose blocks read the same tiles at the same time; a probe whose blocks share nothing reaches 58",
  ),
  perSecond(25e9, "write", "block", `${H100_PROBES}: stores of a block as its time model fits them, about`),
] as const;

const HOPPER_CLUSTER: Gpu["cluster"] = {
  level: {
    name: "cluster",
    units: 1,
    feature: "cluster",
    synchronises: true,
    barrier: {
      cycles: cited(784, `${H100_PROBES}: 755 to 812 with release and acquire, 79 to 92 relaxed`),
    },
  },
  atOnce: (
    [
      [2, 66],
      [4, 30],
      [8, 15],
    ] as const
  ).map(([blocks, value]) => ({ blocks, value, source: `${H100_PROBES}, blocks of 200 KB` })),
};

const LOADED = (teraflops: number, where: string): Figure =>
  cited(
    (teraflops * 1e12) / (132 * 4096 * MMA_SHARE.value),
    `${where}: ${teraflops} TFLOP/s of mma.sync m16n8k16 f16 at 63 % of the Tensor Cores`,
  );

const HOPPER_L2 = {
  latencyCycles: cited(260, "study of an H100 SXM; near partition 258, far 414 (Luo et al., H800)"),
  bandwidth: HOPPER_L2_TO_SHARED,
};
const HOPPER = {
  capability: 90,
  multiprocessors: 132,
  clockHz: cited(1.98e9, "the highest an H100 SXM or H200 runs at"),
  shared: {
    bytes: 228 * KIB,
    block: 227 * KIB,
    latencyCycles: cited(28.6, "study of an H100 SXM; 29.3 with loop overhead on an H200"),
  },
  copies: HOPPER_COPIES,
  units: [HOPPER_TENSOR, HOPPER_FMA, shuffleUnit, HOPPER_LOAD, HOPPER_STORE, HOPPER_CONSTANT],
  rates: HOPPER_RATES,
  cluster: HOPPER_CLUSTER,
} as const;

const H100 = machine({
  ...HOPPER,
  name: "h100",
  summary: "NVIDIA H100 SXM 80 GB",
  loadedClockHz: LOADED(547, `${H100_PROBES}, random data`),
  dram: {
    bytes: cited(80 * GIB, "NVIDIA H100 data sheet"),
    latencyCycles: cited(570, "study of an H100 SXM"),
    bandwidth: [perSecond(3.15e12, "both", "grid", H100_PROBES)],
  },
  l2: { bytes: cited(50 * MIB, H100_PROBES), ...HOPPER_L2 },
  fixed: {
    launch: { value: 0.95e-6, per: "second", source: `${H100_PROBES}: empty kernels in a graph, 0.81 to 1.16 us` },
    blockStart: {
      value: 0.58e-9,
      per: "second",
      source:
        "bench/trials/cuda-designs-h100: clearing 64 MB, a warp each 128 bytes, takes 38 us longer in blocks of 4 warps than of 8",
    },
    dependentLaunch: { value: 0.65e-6, per: "second", source: `${H100_PROBES}: programmatic dependent launch` },
    fill: { value: 0.13e-6, per: "second", source: `${RANDOM_KERNELS}: besides the latency of the first copies` },
    drain: { value: 0.13e-6, per: "second", source: `${RANDOM_KERNELS}: besides the instructions and bytes of stores` },
  },
});

const H200 = machine({
  ...HOPPER,
  name: "h200",
  summary: "NVIDIA H200 SXM 141 GB",
  loadedClockHz: LOADED(627, H200_PROBES),
  dram: {
    bytes: cited(141 * GIB, "NVIDIA H200 data sheet"),
    latencyCycles: cited(570, "study of an H100 SXM"),
    bandwidth: [perSecond(4.3e12, "both", "grid", `${H200_PROBES}: a device copy, read and written`)],
  },
  l2: { bytes: cited(60 * MIB, H200_PROBES), ...HOPPER_L2 },
  fixed: {
    ...H100.fixed,
    launch: {
      value: 0.72e-6,
      per: "second",
      source: "automap calibrate --target h200, 2026-12-01: empty kernels in a graph",
    },
  },
});

export const NVIDIA_TARGETS: readonly Target[] = [V100, A100, H100, H200];

/** A GPU of NVIDIA from the table, whether this machine has one or not. @param name such as `h100` @throws UsageError for an unknown name */
export function nvidiaTarget(name: string): Target {
  const found = withName(NVIDIA_TARGETS, name);
  if (found) return found;
  const names = namesOf(NVIDIA_TARGETS);
  throw new UsageError(`no GPU "${name}"`, suggestion(name, names));
}
