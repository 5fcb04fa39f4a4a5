/**
 * @file A warp as 32 lanes: shuffles that pass values to neighbours, byte dot products and multiply-adds in each lane.
 *
 *     shuffle.down.4        d[l] = select(l + 4 < 32, s[l+4], s[l])      a lane whose source is outside keeps its own value
 *     dp4a.s32.s8           c[l] += s32(a[l,k]) * s32(b[l,k])            lane[4*l + k]: four bytes in each lane
 *     cuda.fma.f32          c[l] += a[l] * b[l]
 *
 * `lane[l]` is one register a lane; memory tiles hold the lanes side by side, as coalesced loads want them.
 */

import type { DType } from "../abstraction/dtype.ts";
import { UsageError } from "../abstraction/error.ts";
import { type Intrinsic, type IntrinsicSpec, tableRow } from "../abstraction/intrinsic.ts";
import { unitCost } from "../abstraction/machine.ts";
import { nvidiaTarget } from "../targets/nvidia.ts";

/** Per cycle and multiprocessor, the shuffles of one warp or the multiply-adds of four. */
const SHUFFLE_COST = unitCost(nvidiaTarget("h200"), "shuffle");
const FMA_COST = unitCost(nvidiaTarget("h200"), "fma");

const LANE = "threadIdx.x % 32";
const load = (type: string): string => `{reg} = ((const ${type}*)({ptr}))[${LANE}];`;
const loadSame = (type: string): string => `{reg} = *(const ${type}*)({ptr});`;
const store = (type: string): string => `((${type}*)({ptr}))[${LANE}] = {reg};`;

const SHUFFLE_DIRECTIONS = ["down", "up", "xor"] as const;
type ShuffleDirection = (typeof SHUFFLE_DIRECTIONS)[number];

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

/** An operation on the registers of each lane. */
interface Form
  extends Pick<
    IntrinsicSpec,
    "name" | "family" | "isa" | "summary" | "compute" | "emit" | "prelude" | "cost" | "source"
  > {
  readonly a: DType;
  readonly b: DType;
  readonly sum: DType;
  /** C++ type of a register of any operand. */
  readonly type: string;
  /** Factors in a register; as many sums as `sums`, one unless said. */
  readonly factors: 1 | 2 | 4;
  readonly sums?: 1 | 2;
  /** Whether the warp shares the left factors. */
  readonly shared?: true;
}

const lanesOf = (perLane: number): string => (perLane === 1 ? "lane[l]" : `lane[${perLane}*l + k]`);

function inEachLane({ a, b, sum, type, factors, sums = 1, shared, ...facts }: Form): Intrinsic {
  return tableRow({
    ...facts,
    language: "cuda",
    scope: "warp",
    extents: factors === 1 ? { l: 32 } : { l: 32, k: factors },
    operands: {
      a: { dtype: a, storage: lanesOf(factors), load: shared ? loadSame(type) : load(type) },
      b: { dtype: b, storage: lanesOf(factors), load: load(type) },
      c: { dtype: sum, storage: lanesOf(sums), load: load(type), store: store(type) },
    },
  });
}

const FMA_F32: Form = {
  name: "cuda.fma.f32",
  family: "fma",
  isa: "sm_70",
  summary: "An f32 multiply-add in each lane.",
  compute: "c[l] += a[l] * b[l]",
  a: "f32",
  b: "f32",
  sum: "f32",
  type: "float",
  factors: 1,
  emit: "{c} = fmaf({a}, {b}, {c});",
  cost: FMA_COST,
  source: "CUDA Math API, fmaf",
};

/** half2: two f16 in each lane. For lanes. */
export const cudaFmaF16 = inEachLane({
  name: "cuda.fma.f16",
  family: "fma",
  isa: "sm_70",
  summary: "Two f16 multiply-adds in each lane, each rounded once.",
  compute: "c[l,k] += a[l,k] * b[l,k]",
  a: "f16",
  b: "f16",
  sum: "f16",
  type: "unsigned",
  factors: 2,
  sums: 2,
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
export const cudaMadS32 = inEachLane({
  name: "cuda.mad.s32",
  family: "mad",
  isa: "sm_70",
  summary: "An s32 multiply-add in each lane, which keeps the low bits.",
  compute: "c[l] += a[l] * b[l]",
  a: "s32",
  b: "s32",
  sum: "s32",
  type: "unsigned",
  factors: 1,
  emit: "{c} = {a} * {b} + {c};",
  source: "PTX ISA, mad.lo.s32",
});

const DP4A_S8: Form = {
  name: "dp4a.s32.s8",
  family: "dp4a",
  isa: "sm_61",
  summary: "A dot product of four s8 in each lane.",
  compute: "c[l] += s32(a[l,k]) * s32(b[l,k])",
  a: "s8",
  b: "s8",
  sum: "s32",
  type: "int",
  factors: 4,
  emit: "{c} = __dp4a({a}, {b}, {c});",
  source: "CUDA Math API, __dp4a(int, int, int); PTX ISA, dp4a.s32.s32",
};

export const SHUFFLES: readonly Intrinsic[] = SHUFFLE_DIRECTIONS.flatMap((direction) =>
  [1, 2, 4, 8, 16].map((delta) => shuffle(direction, delta)),
);

export const CUDA: readonly Intrinsic[] = [
  ...SHUFFLES,
  inEachLane(FMA_F32),
  inEachLane({
    ...FMA_F32,
    name: "cuda.fma.f32.broadcast",
    summary: "An f32 multiply-add in each lane with one factor common to the warp.",
    compute: "c[l] += a[] * b[l]",
    shared: true,
  }),
  inEachLane({
    name: "cuda.fma.f64",
    family: "fma",
    isa: "sm_70",
    summary: "An f64 multiply-add in each lane.",
    compute: "c[l] += a[l] * b[l]",
    a: "f64",
    b: "f64",
    sum: "f64",
    type: "double",
    factors: 1,
    emit: "{c} = fma({a}, {b}, {c});",
    source: "CUDA Math API, fma",
  }),
  inEachLane(DP4A_S8),
  inEachLane({
    ...DP4A_S8,
    name: "dp4a.s32.s8.broadcast",
    summary: "A dot product of four s8 in each lane, the left four common to the warp.",
    compute: "c[l] += s32(a[k]) * s32(b[k,l])",
    shared: true,
  }),
  inEachLane({
    ...DP4A_S8,
    name: "dp4a.u32.u8",
    summary: "A dot product of four u8 in each lane.",
    compute: "c[l] += u32(a[l,k]) * u32(b[l,k])",
    a: "u8",
    b: "u8",
    sum: "u32",
    type: "unsigned",
    source: "CUDA Math API, __dp4a(unsigned, unsigned, unsigned); PTX ISA, dp4a.u32.u32",
  }),
  // CUDA has no function for mixed signs, but the instruction supports them.
  inEachLane({
    ...DP4A_S8,
    name: "dp4a.s32.u8s8",
    summary: "A dot product of four u8 with four s8 in each lane.",
    a: "u8",
    emit: "{c} = dp4a_u8s8({a}, {b}, {c});",
    prelude: `__device__ inline int dp4a_u8s8(int a, int b, int c) {
  asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(c) : "r"(a), "r"(b));
  return c;
}
`,
    source: "PTX ISA, dp4a.u32.s32",
  }),
];
