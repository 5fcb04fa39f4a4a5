/**
 * @file A warp as 32 lanes: shuffles that pass values to neighbours, byte dot products and multiply-adds in each lane.
 *
 *     shuffle.down.4        d[l] = select(l + 4 < 32, s[l+4], s[l])      a lane whose source is outside keeps its own value
 *     dp4a.s32.s8           c[l] += s32(a[l,k]) * s32(b[l,k])            lane[4*l + k]: four bytes in each lane
 *     cuda.fma.f32          c[l] += a[l] * b[l]
 *
 * `lane[l]` is one register a lane; memory tiles hold the lanes side by side, as coalesced loads want them.
 */

import { UsageError } from "../abstraction/error.ts";
import { type Intrinsic, tableRow } from "../abstraction/intrinsic.ts";
import { unitCost } from "../abstraction/machine.ts";
import { nvidiaTarget } from "../targets/nvidia.ts";

/** Per cycle and multiprocessor, the shuffles of one warp or the multiply-adds of four. */
const SHUFFLE_COST = unitCost(nvidiaTarget("h200"), "shuffle");
const FMA_COST = unitCost(nvidiaTarget("h200"), "fma");

const LANE = "threadIdx.x % 32";
const load = (type: string): string => `{reg} = ((const ${type}*)({ptr}))[${LANE}];`;
const loadSame = (type: string): string => `{reg} = *(const ${type}*)({ptr});`;
const store = (type: string): string => `((${type}*)({ptr}))[${LANE}] = {reg};`;

export const SHUFFLE_DIRECTIONS = ["down", "up", "xor"] as const;
export type ShuffleDirection = (typeof SHUFFLE_DIRECTIONS)[number];

/** A shuffle within a warp as an equation. */
function shuffleEquation(direction: ShuffleDirection, delta: number) {
  switch (direction) {
    case "down":
      return `d[l] = select(l + ${delta} < 32, s[l+${delta}], s[l])` as const;
    case "up":
      return `d[l] = select(l >= ${delta}, s[l-${delta}], s[l])` as const;
    case "xor":
      // Flips one bit of the lane number: reads from `delta` above where the bit is 0, from `delta` below where it is 1.
      return `d[l] = s[l+${delta}-${2 * delta}*((l/${delta})%2)]` as const;
    default:
      return direction satisfies never;
  }
}

/**
 * Each lane reads the lane `delta` away: the neighbour in a stencil or systolic array, without memory.
 * @param delta 1 to 31; a power of two for `xor`
 * @throws UsageError for another delta
 */
export function shuffle(direction: ShuffleDirection, delta: number, dtype: "f32" | "s32" | "f64" = "f32"): Intrinsic {
  if (!Number.isInteger(delta) || delta < 1 || delta > 31)
    throw new UsageError(`shuffle.${direction}: delta must be 1 to 31, got ${delta}`);
  if (direction === "xor" && !Number.isInteger(Math.log2(delta)))
    throw new UsageError(`shuffle.xor: delta must be a power of two, got ${delta}`);
  const type = { f32: "float", s32: "int", f64: "double" }[dtype];
  return tableRow({
    name: dtype === "f32" ? `shuffle.${direction}.${delta}` : `shuffle.${direction}.${delta}.${dtype}`,
    family: "shuffle",
    isa: "sm_70",
    language: "cuda",
    scope: "warp",
    summary:
      direction === "xor"
        ? `Each lane reads the lane whose number differs in bit ${Math.log2(delta)}.`
        : `Each lane reads the lane ${delta} ${direction === "down" ? "above" : "below"} it; at the edge, itself.`,
    compute: shuffleEquation(direction, delta),
    extents: { l: 32 },
    operands: {
      d: { dtype, storage: "lane[l]", load: load(type), store: store(type) },
      s: { dtype, storage: "lane[l]", dims: ["l"], shape: [32], load: load(type) },
    },
    emit: `{d} = __shfl_${direction}_sync(0xffffffffu, {s}, ${delta});`,
    cost: SHUFFLE_COST,
    source: "CUDA C++ Programming Guide, Warp Shuffle Functions",
  });
}

export const cudaFmaF32 = tableRow({
  name: "cuda.fma.f32",
  family: "fma",
  isa: "sm_70",
  language: "cuda",
  scope: "warp",
  summary: "An f32 multiply-add in each lane.",
  compute: "c[l] += a[l] * b[l]",
  extents: { l: 32 },
  operands: {
    a: { dtype: "f32", storage: "lane[l]", load: load("float") },
    b: { dtype: "f32", storage: "lane[l]", load: load("float") },
    c: { dtype: "f32", storage: "lane[l]", load: load("float"), store: store("float") },
  },
  emit: "{c} = fmaf({a}, {b}, {c});",
  cost: FMA_COST,
  source: "CUDA Math API, fmaf",
});

export const cudaFmaF32Broadcast = tableRow({
  name: "cuda.fma.f32.broadcast",
  family: "fma",
  isa: "sm_70",
  language: "cuda",
  scope: "warp",
  summary: "An f32 multiply-add in each lane with one factor common to the warp.",
  compute: "c[l] += a[] * b[l]",
  extents: { l: 32 },
  operands: {
    a: { dtype: "f32", storage: "lane[l]", load: loadSame("float") },
    b: { dtype: "f32", storage: "lane[l]", load: load("float") },
    c: { dtype: "f32", storage: "lane[l]", load: load("float"), store: store("float") },
  },
  emit: "{c} = fmaf({a}, {b}, {c});",
  cost: FMA_COST,
  source: "CUDA Math API, fmaf",
});

export const cudaFmaF64 = tableRow({
  name: "cuda.fma.f64",
  family: "fma",
  isa: "sm_70",
  language: "cuda",
  scope: "warp",
  summary: "An f64 multiply-add in each lane.",
  compute: "c[l] += a[l] * b[l]",
  extents: { l: 32 },
  operands: {
    a: { dtype: "f64", storage: "lane[l]", load: load("double") },
    b: { dtype: "f64", storage: "lane[l]", load: load("double") },
    c: { dtype: "f64", storage: "lane[l]", load: load("double"), store: store("double") },
  },
  emit: "{c} = fma({a}, {b}, {c});",
  source: "CUDA Math API, fma",
});

/** half2: two f16 in each lane. For lanes. */
export const cudaFmaF16 = tableRow({
  name: "cuda.fma.f16",
  family: "fma",
  isa: "sm_70",
  language: "cuda",
  scope: "warp",
  summary: "Two f16 multiply-adds in each lane, each rounded once.",
  compute: "c[l,k] += a[l,k] * b[l,k]",
  extents: { l: 32, k: 2 },
  operands: {
    a: { dtype: "f16", storage: "lane[2*l + k]", load: load("unsigned") },
    b: { dtype: "f16", storage: "lane[2*l + k]", load: load("unsigned") },
    c: { dtype: "f16", storage: "lane[2*l + k]", load: load("unsigned"), store: store("unsigned") },
  },
  emit: "{c} = fma_halves({a}, {b}, {c});",
  prelude: `__device__ inline unsigned fma_halves(unsigned a, unsigned b, unsigned c) {
  asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(c) : "r"(a), "r"(b));
  return c;
}
`,
  cost: FMA_COST,
  source: "PTX ISA, fma.rn.f16x2",
});

/** For lanes. */
export const cudaMadS32 = tableRow({
  name: "cuda.mad.s32",
  family: "mad",
  isa: "sm_70",
  language: "cuda",
  scope: "warp",
  summary: "An s32 multiply-add in each lane, which keeps the low bits.",
  compute: "c[l] += a[l] * b[l]",
  extents: { l: 32 },
  operands: {
    a: { dtype: "s32", storage: "lane[l]", load: load("unsigned") },
    b: { dtype: "s32", storage: "lane[l]", load: load("unsigned") },
    c: { dtype: "s32", storage: "lane[l]", load: load("unsigned"), store: store("unsigned") },
  },
  emit: "{c} = {a} * {b} + {c};",
  source: "PTX ISA, mad.lo.s32",
});

export const dp4aS8 = tableRow({
  name: "dp4a.s32.s8",
  family: "dp4a",
  isa: "sm_61",
  language: "cuda",
  scope: "warp",
  summary: "A dot product of four s8 in each lane.",
  compute: "c[l] += s32(a[l,k]) * s32(b[l,k])",
  extents: { l: 32, k: 4 },
  operands: {
    a: { dtype: "s8", storage: "lane[4*l + k]", load: load("int") },
    b: { dtype: "s8", storage: "lane[4*l + k]", load: load("int") },
    c: { dtype: "s32", storage: "lane[l]", load: load("int"), store: store("int") },
  },
  emit: "{c} = __dp4a({a}, {b}, {c});",
  source: "CUDA Math API, __dp4a(int, int, int); PTX ISA, dp4a.s32.s32",
});

export const dp4aS8Broadcast = tableRow({
  name: "dp4a.s32.s8.broadcast",
  family: "dp4a",
  isa: "sm_61",
  language: "cuda",
  scope: "warp",
  summary: "A dot product of four s8 in each lane, the left four common to the warp.",
  compute: "c[l] += s32(a[k]) * s32(b[k,l])",
  extents: { l: 32, k: 4 },
  operands: {
    a: { dtype: "s8", storage: "lane[4*l + k]", load: loadSame("int") },
    b: { dtype: "s8", storage: "lane[4*l + k]", load: load("int") },
    c: { dtype: "s32", storage: "lane[l]", load: load("int"), store: store("int") },
  },
  emit: "{c} = __dp4a({a}, {b}, {c});",
  source: "CUDA Math API, __dp4a(int, int, int); PTX ISA, dp4a.s32.s32",
});

export const dp4aU8 = tableRow({
  name: "dp4a.u32.u8",
  family: "dp4a",
  isa: "sm_61",
  language: "cuda",
  scope: "warp",
  summary: "A dot product of four u8 in each lane.",
  compute: "c[l] += u32(a[l,k]) * u32(b[l,k])",
  extents: { l: 32, k: 4 },
  operands: {
    a: { dtype: "u8", storage: "lane[4*l + k]", load: load("unsigned") },
    b: { dtype: "u8", storage: "lane[4*l + k]", load: load("unsigned") },
    c: { dtype: "u32", storage: "lane[l]", load: load("unsigned"), store: store("unsigned") },
  },
  emit: "{c} = __dp4a({a}, {b}, {c});",
  source: "CUDA Math API, __dp4a(unsigned, unsigned, unsigned); PTX ISA, dp4a.u32.u32",
});

/** CUDA has no function for mixed signs, but the instruction supports them. */
export const dp4aU8S8 = tableRow({
  name: "dp4a.s32.u8s8",
  family: "dp4a",
  isa: "sm_61",
  language: "cuda",
  scope: "warp",
  summary: "A dot product of four u8 with four s8 in each lane.",
  compute: "c[l] += s32(a[l,k]) * s32(b[l,k])",
  extents: { l: 32, k: 4 },
  operands: {
    a: { dtype: "u8", storage: "lane[4*l + k]", load: load("int") },
    b: { dtype: "s8", storage: "lane[4*l + k]", load: load("int") },
    c: { dtype: "s32", storage: "lane[l]", load: load("int"), store: store("int") },
  },
  emit: "{c} = dp4a_u8s8({a}, {b}, {c});",
  prelude: `__device__ inline int dp4a_u8s8(int a, int b, int c) {
  asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(c) : "r"(a), "r"(b));
  return c;
}
`,
  source: "PTX ISA, dp4a.u32.s32",
});

export const SHUFFLES: readonly Intrinsic[] = SHUFFLE_DIRECTIONS.flatMap((direction) =>
  [1, 2, 4, 8, 16].map((delta) => shuffle(direction, delta)),
);

export const CUDA: readonly Intrinsic[] = [
  ...SHUFFLES,
  cudaFmaF32,
  cudaFmaF32Broadcast,
  cudaFmaF64,
  dp4aS8,
  dp4aS8Broadcast,
  dp4aU8,
  dp4aU8S8,
];
