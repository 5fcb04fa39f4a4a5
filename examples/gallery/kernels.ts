/**
 * @file The kernels of a course on GPU programming, each as one equation and the schedules that make it the kernel of the lecture.
 *
 *     conv-1d      y[p] += x[p+r-2] * w[r]          a lane for each of 16 results; or a thread for each result
 *
 * A schedule of a CPU's loops (`mapped`) is printed in C++, CM, OpenCL C and SYCL, a schedule of blocks and warps in CUDA, a design on lanes
 * (`design`) in all five.
 */

import {
  type Candidate,
  type Computation,
  defineComputation,
  instantiate,
  operatorNamed,
  parseDataTypes,
} from "automap";
import type { GridCandidate, MappedCandidate, ThreadCandidate } from "automap/internals";
import type { SpaceTime } from "automap/systolic";

/** A design on lanes: where the points of the array's loops run, and when. */
export interface LaneDesign {
  readonly spaceTime: SpaceTime;
  readonly loops: { readonly loops: readonly string[]; readonly lanes: number };
}

export interface GalleryKernel {
  readonly name: string;
  /** One line. */
  readonly summary: string;
  readonly computation: Computation;
  /** Schedules of one equation; a language is printed by the first that it can express. */
  readonly schedules: readonly Candidate[];
  readonly design?: LaneDesign;
}

type Mapped = Pick<MappedCandidate, "matching" | "operands" | "schedule">;
const onVectors = (mapped: Mapped): MappedCandidate => ({
  kind: "mapping",
  intrinsic: "opencl.fma.f32.broadcast",
  ...mapped,
});
const onMatrices = (mapped: Mapped): MappedCandidate => ({
  kind: "mapping",
  intrinsic: "opencl.dpas.8x16.f32.f16",
  ...mapped,
});
const onThreads = ({ operands, schedule }: Pick<ThreadCandidate, "operands" | "schedule">): ThreadCandidate => ({
  kind: "threads",
  intrinsic: "thread.fma.f32",
  matching: {},
  operands,
  schedule,
});

/** Tiles of 32 by 32 in shared memory, copied through registers, for two warps; unless the schedule says otherwise. */
const onWarps = (
  intrinsic: string,
  matching: GridCandidate["matching"],
  operands: GridCandidate["operands"],
  schedule: Partial<GridCandidate["schedule"]>,
): GridCandidate => ({
  kind: "grid",
  intrinsic,
  matching,
  operands,
  schedule: {
    tile: { m: 32, n: 32, k: 32 },
    warps: { m: 2, n: 1 },
    stage: 1,
    swizzle: "padded",
    transfer: "plain",
    order: 1,
    fragments: "inline",
    store: "direct",
    ...schedule,
  },
});

// ---- Convolutions of one channel

const signal = defineComputation({
  name: "conv-1d",
  equation: "y[p] += x[p+r-2] * w[r]",
  extents: { p: 4096, r: 5 },
  tensors: { x: { dtype: "f32", shape: [4096] }, w: { dtype: "f32", constant: true } },
});
const SIGNAL = { c: "y[p]", a: "w[r]", b: "x[p+r-2]" };

const image = defineComputation({
  name: "conv-2d",
  equation: "y[p,q] += x[p+r-1,q+s-1] * w[r,s]",
  extents: { p: 64, q: 64, r: 3, s: 3 },
  tensors: { x: { dtype: "f32", shape: [64, 64] }, w: { dtype: "f32", constant: true } },
});
const IMAGE = { c: "y[p,q]", a: "w[r,s]", b: "x[p+r-1,q+s-1]" };

const CONVOLUTIONS: readonly GalleryKernel[] = [
  {
    name: "conv-1d",
    summary: "1-D convolution: zeros beyond the ends",
    computation: signal,
    schedules: [
      onVectors({
        matching: { n: ["p"] },
        operands: SIGNAL,
        schedule: { order: ["p", "r"], block: { p: 4 }, placement: { a: "in-place", b: "padded" }, threads: 1 },
      }),
      onThreads({
        operands: { c: "y[p]", a: "x[p+r-2]", b: "w[r]" },
        schedule: { lanes: { p: 32 }, warps: { p: 4 }, each: {}, split: 1 },
      }),
    ],
  },
  {
    name: "conv-2d",
    summary: "2-D convolution: zeros around the image",
    computation: image,
    schedules: [
      onVectors({
        matching: { n: ["q"] },
        operands: IMAGE,
        schedule: {
          order: ["p", "q", "r", "s"],
          block: { p: 4, q: 2 },
          placement: { a: "in-place", b: "padded" },
          threads: 1,
        },
      }),
      onThreads({
        operands: { c: "y[p,q]", a: "x[p+r-1,q+s-1]", b: "w[r,s]" },
        schedule: { lanes: { q: 32 }, warps: { p: 4 }, each: {}, split: 1 },
      }),
    ],
  },
  {
    name: "constant-mask",
    summary: "2-D convolution whose mask all lanes read alike: the pixels stay, the sums move over lanes",
    computation: image,
    schedules: [],
    design: {
      spaceTime: { allocation: [[1, 0, 1]], schedule: [[0, 1, 3]] },
      loops: { loops: ["q", "r", "s"], lanes: 14 },
    },
  },
  {
    name: "tiled-halo",
    summary: "2-D convolution by tiles of rows, each copied with its halo before it is used",
    computation: image,
    schedules: [
      onVectors({
        matching: { n: ["q"] },
        operands: IMAGE,
        schedule: {
          order: ["p", "q", "r", "s"],
          block: { p: 8, q: 2 },
          placement: { a: "in-place", b: "padded" },
          within: { b: "p" },
          threads: 1,
        },
      }),
    ],
  },
];

// ---- Convolutions of many channels

const layer = instantiate(operatorNamed("conv2d"), {
  parameters: { n: 2, c: 16, k: 16, h: 8, w: 8 },
  types: parseDataTypes("f32"),
});
const narrow = instantiate(operatorNamed("conv2d"), {
  parameters: { n: 1, c: 16, k: 16, h: 8, w: 8 },
  types: parseDataTypes("f16"),
  layouts: "NHWC",
});
const LAYER = { c: "out[n,k,p,q]", a: "in[n,c,p+r-1,q+s-1]", b: "w[k,c,r,s]" };

const LAYERS: readonly GalleryKernel[] = [
  {
    name: "conv-layer",
    summary: "a layer's forward pass: images, channels, filters",
    computation: layer,
    schedules: [
      onVectors({
        matching: { n: ["k"] },
        operands: LAYER,
        schedule: {
          order: ["k", "n", "p", "q", "c", "r", "s"],
          block: { p: 2, q: 8 },
          placement: { a: "in-place", b: "tiled" },
          threads: 1,
        },
      }),
      onThreads({
        operands: { c: "out[n,k,p,q]", a: "in[n,c,p+r-1,q+s-1]", b: "w[k,c,r,s]" },
        schedule: { lanes: { p: 4, q: 8 }, warps: { k: 4 }, each: {}, split: 1 },
      }),
    ],
  },
  {
    name: "im2col-gemm",
    summary: "the same as a matrix product: windows written out as rows (im2col), then matrix instructions",
    computation: narrow,
    schedules: [
      onMatrices({
        matching: { m: ["p", "q"], n: ["k"], k: ["r", "s", "c"] },
        operands: LAYER,
        schedule: {
          order: ["n", "p_q", "k", "r_s_c"],
          block: { p_q: 2 },
          placement: { a: "tiled", b: "tiled" },
          threads: 1,
        },
      }),
      onWarps("wmma.m16n16k16.f32.f16", { m: ["p", "q"], n: ["k"], k: ["r", "s", "c"] }, LAYER, {
        tile: { m: 32, n: 16, k: 48 },
        store: "staged",
      }),
    ],
  },
];

// ---- Matrix products

const product = instantiate(operatorNamed("matmul"), {
  parameters: { m: 64, n: 64, k: 64 },
  types: parseDataTypes("f16"),
});
const cells = instantiate(operatorNamed("matmul"), {
  parameters: { m: 3, n: 3, k: 3 },
  types: parseDataTypes("f32"),
});
const PRODUCT = { c: "out[m,n]", a: "a[m,k]", b: "b[k,n]" };
const MATRICES = { m: ["m"], n: ["n"], k: ["k"] };
const ARRAY = { loops: ["m", "n", "k"], lanes: 3 };

const PRODUCTS: readonly GalleryKernel[] = [
  {
    name: "joint-tiling",
    summary: "matrix product: a tile in shared memory, and a tile of sums in the registers of each warp or thread",
    computation: product,
    schedules: [
      onMatrices({
        matching: MATRICES,
        operands: PRODUCT,
        schedule: {
          order: ["m", "n", "k"],
          block: { m: 2, n: 2 },
          placement: { a: "padded", b: "tiled" },
          within: { a: "m" },
          threads: 1,
        },
      }),
      onWarps("mma.m16n8k16.f32.f16", MATRICES, PRODUCT, { stage: 3, swizzle: "swizzled", transfer: "async" }),
    ],
  },
  {
    name: "wmma-gemm",
    summary: "matrix product on Tensor Cores through WMMA, 16 by 16 by 16",
    computation: product,
    schedules: [onWarps("wmma.m16n16k16.f32.f16", MATRICES, PRODUCT, { store: "staged" })],
  },
  {
    name: "output-stationary",
    summary: "3 x 3 array of cells that keep their sums; both factors pass through, skewed",
    computation: cells,
    schedules: [],
    design: {
      spaceTime: {
        allocation: [
          [1, 0, 0],
          [0, 1, 0],
        ],
        schedule: [[1, 1, 1]],
      },
      loops: ARRAY,
    },
  },
  {
    name: "weight-stationary",
    summary: "3 x 3 array of cells that keep their weights, as in a TPU: inputs and sums pass through",
    computation: cells,
    schedules: [],
    design: {
      spaceTime: {
        allocation: [
          [0, 1, 0],
          [0, 0, 1],
        ],
        schedule: [[1, 1, 1]],
      },
      loops: ARRAY,
    },
  },
];

export const GALLERY: readonly GalleryKernel[] = [...CONVOLUTIONS, ...LAYERS, ...PRODUCTS];
