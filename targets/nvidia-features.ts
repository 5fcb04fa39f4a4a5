/**
 * @file What NVIDIA GPUs can do, by compute capability, and the registers that their instructions name.
 *
 *     featuresOfCapability(80)        ["sm_61", ..., "sm_80", "dp4a", "wmma", "wmma_int8", "ldmatrix", "mma", "cp_async", "mbarrier"]
 */

import { namesOf } from "../abstraction/collections.ts";
import type { Family, Feature, RegisterClass } from "../abstraction/machine.ts";
import { VIEW_ALIGNMENT } from "../abstraction/matrix-view.ts";
import { GUIDE } from "./nvidia-gpu.ts";

/** A feature with the compute capability that introduces it. */
interface Introduced extends Feature {
  readonly capability: number;
}

const sm = (capability: number): Introduced => ({
  name: `sm_${capability}`,
  summary: `compute capability ${capability / 10}`,
  capability,
  source: GUIDE,
});

const feature = (name: string, capability: number, summary: string, source: string, only?: true): Introduced => ({
  name,
  summary,
  capability,
  source,
  ...(only && { only }),
});

/** Features that instructions require. */
const FEATURES: readonly Introduced[] = [
  ...[61, 70, 72, 75, 80, 89, 90].map(sm),
  feature("sm_90a", 90, "what only Hopper has", "PTX ISA, Target directive: sm_90a", true),
  feature("dp4a", 61, "dot product of four bytes in each lane", "PTX ISA, dp4a"),
  feature("wmma", 70, "warp matrix functions on f16", "CUDA C++ Programming Guide, Warp Matrix Functions"),
  feature("wmma_int8", 72, "the same on bytes", "CUDA C++ Programming Guide, Warp Matrix Functions"),
  feature("ldmatrix", 75, "eight rows of 16 bytes to the lanes of a warp", "PTX ISA, ldmatrix"),
  feature("mma", 80, "mma.sync m16n8k16 on 16-bit factors, m16n8k8 on tf32, m16n8k32 on bytes", "PTX ISA, mma"),
  feature("cp_async", 80, "asynchronous copies of 4, 8 and 16 bytes into shared memory", "PTX ISA, cp.async"),
  feature("mbarrier", 80, "barriers that count arrivals", "PTX ISA, mbarrier"),
  feature("mbarrier_tx", 90, "barriers that count bytes", "PTX ISA, mbarrier.expect_tx"),
  feature("stmatrix", 90, "the lanes of a warp to eight rows of 16 bytes", "PTX ISA, stmatrix"),
  feature("tma", 90, "copies of boxes by an engine", "PTX ISA, cp.async.bulk.tensor"),
  feature("cluster", 90, "blocks that share their memories", "CUDA C++ Programming Guide, Thread Block Clusters"),
  feature("dependent_launch", 90, "a kernel begins before its predecessor ends", "PTX ISA, griddepcontrol"),
  feature("setmaxnreg", 90, "registers moved between warpgroups", "PTX ISA, setmaxnreg", true),
  feature("wgmma", 90, "a warpgroup's matrix product from shared memory", "PTX ISA, wgmma.mma_async", true),
];

const fragment = (use: "matrix_a" | "matrix_b" | "accumulator"): RegisterClass => ({
  name: `wmma::${use}`,
  types: {
    f16: "__half",
    bf16: "__nv_bfloat16",
    tf32: "wmma::precision::tf32",
    s8: "signed char",
    u8: "unsigned char",
    s32: "int",
    f32: "float",
    f64: "double",
  },
  declared: `wmma::fragment<wmma::${use}, {shape}, {type}${use === "accumulator" ? "" : ", wmma::row_major"}> {reg};`,
  cleared: "wmma::fill_fragment({reg}, 0);",
  perLane: true,
  source: "CUDA C++ Programming Guide, Warp Matrix Functions",
});

const REGISTERS: readonly RegisterClass[] = [
  fragment("matrix_a"),
  fragment("matrix_b"),
  fragment("accumulator"),
  {
    name: "frag",
    types: { f32: "float", s32: "int" },
    // PTX passes all other types as 32 bits.
    otherwise: "unsigned",
    declared: "{type} {reg}[{words}];",
    cleared: "for (auto& word : {reg}) word = 0;",
    perLane: true,
    source: "PTX ISA, Matrix Fragments for mma",
  },
  {
    // Not registers: the instruction reads its operand from shared memory.
    name: "shared",
    types: {
      f16: "uint16_t",
      bf16: "uint16_t",
      tf32: "float",
      s8: "int8_t",
      u8: "uint8_t",
      e4m3: "uint8_t",
      e5m2: "uint8_t",
    },
    declared: `__shared__ __align__(${VIEW_ALIGNMENT}) {type} {reg}[{elements}];`,
    cleared: "for (auto& element : {reg}) element = 0;",
    source: "PTX ISA, wgmma.mma_async: matrix descriptors",
  },
  {
    // Four bytes share the register of a lane.
    name: "lane",
    types: { f32: "float", f64: "double", u8: "unsigned", u32: "unsigned" },
    otherwise: "int",
    perLane: true,
    source: "CUDA C++ Programming Guide, Warp Shuffle Functions",
  },
  {
    // A variable of one thread; 16-bit floats are held as their bits.
    name: "thread",
    types: { f32: "float", f64: "double", f16: "uint16_t", bf16: "uint16_t", s8: "signed char", u8: "unsigned char" },
    otherwise: "int",
    source: "CUDA C++ Programming Guide, Device Memory Space Specifiers: automatic variables",
  },
];

export const NVIDIA: Family = {
  name: "nvidia",
  emulation: "cuda.h",
  kernels: false,
  registers: REGISTERS,
  features: FEATURES,
};

/** Features of a compute capability, 80 for 8.0. */
export function featuresOfCapability(capability: number): string[] {
  return namesOf(FEATURES.filter((f) => (f.only ? f.capability === capability : f.capability <= capability)));
}
