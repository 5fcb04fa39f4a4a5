/**
 * @file Intel GPUs, programmed in CM, OpenCL C and SYCL: the generations that instructions require, their registers, and the costs of instructions
 * on Gen9.
 */

import type { Family, RegisterClass, Target } from "../abstraction/machine.ts";
import { cited } from "./figures.ts";

const SOURCE = "CM language specification";
const LOCAL = `${SOURCE}; local memory: CL_DEVICE_LOCAL_MEM_SIZE as Intel's compute runtime gives it for DG2 and PVC`;

/** Tiles of a sub-group in OpenCL C: each lane holds one component of a vector per row. */
const fragments: readonly RegisterClass[] = [
  {
    name: "dwords",
    // Each takes eight of a thread's 128 registers; the rest hold addresses.
    count: 13,
    types: { f32: "float8", tf32: "float8" },
    otherwise: "int8",
    source:
      "OpenCL extension cl_intel_subgroup_matrix_multiply_accumulate; Intel Graphics Compiler: 128 registers a thread",
  },
  {
    name: "words",
    types: { tf32: "tf32_rows" },
    otherwise: "short8",
    source: "OpenCL extension cl_intel_subgroup_matrix_multiply_accumulate",
  },
];

/** One lane's element in OpenCL C. */
const ofLanes: RegisterClass = {
  name: "eu_lane",
  // Sixteen floats take two of 128 registers; the rest hold addresses.
  count: 48,
  types: { s8: "char", u8: "uchar", s32: "int", f32: "float" },
  perLane: true,
  source: "OpenCL C specification, scalar data types; Intel Graphics Compiler: 128 registers a thread",
};

const JOINT_MATRIX = "sycl_ext_oneapi_matrix, joint_matrix";
const joint = (use: "a" | "b" | "accumulator", most?: number): RegisterClass => ({
  name: `joint_${use === "accumulator" ? "c" : use}`,
  ...(most !== undefined && { count: most }),
  types: {
    s8: "int8_t",
    u8: "uint8_t",
    s32: "int32_t",
    f32: "float",
    f16: "sycl::half",
    bf16: "sycl::ext::oneapi::bfloat16",
    tf32: "matrix::precision::tf32",
  },
  declared: `matrix::joint_matrix<sycl::sub_group, {type}, matrix::use::${use}, {sizes}${use === "accumulator" ? "" : ", matrix::layout::row_major"}> {reg};`,
  cleared: "matrix::joint_matrix_fill(item.get_sub_group(), {reg}, 0);",
  source: JOINT_MATRIX,
});

/** Values of SYCL work-items: an element each, or their share of a matrix. */
const items: readonly RegisterClass[] = [
  {
    name: "item",
    // Of 128 registers; the rest hold addresses.
    count: 96,
    types: {
      s8: "int8_t",
      u8: "uint8_t",
      s32: "int32_t",
      f32: "float",
      tf32: "float",
      f16: "sycl::half",
      bf16: "sycl::ext::oneapi::bfloat16",
    },
    source: "SYCL 2020, section 4.14; Intel Graphics Compiler: 128 registers a thread",
  },
  joint("a"),
  joint("b"),
  // Each takes eight of 128 registers; factors and addresses take the rest.
  joint("accumulator", 8),
];

/** The same tiles in CM: vectors of dwords, in eight of 128 registers, or in four. */
const tiles: readonly RegisterClass[] = (["grf8", "grf4"] as const).map((name) => ({
  name,
  // No sums use grf4, so the registers for the sums of grf8 set the limit.
  ...(name === "grf8" && { count: 13 }),
  types: { f32: "float" },
  otherwise: "int",
  declared: "vector<{type}, {words}> {reg};",
  source: "CM language specification, cm_dpas; Intel Graphics Compiler: 128 registers a thread",
}));

export const INTEL: Family = {
  name: "intel",
  emulation: "cm.h",
  kernels: true,
  registers: [
    {
      name: "grf",
      // Sixteen floats take two of 128 registers; the rest hold addresses.
      count: 48,
      types: {
        s8: "char",
        u8: "uchar",
        s32: "int",
        u32: "uint",
        f16: "half",
        bf16: "ushort",
        tf32: "float",
        f32: "float",
      },
      declared: "vector<{type}, {elements}> {reg};",
      source: "CM language specification, vector",
    },
    {
      name: "grf_dwords",
      types: { s8: "int", u8: "uint" },
      declared: "vector<{type}, {words}> {reg};",
      source: "CM language specification, vector; cm_dp4a takes four bytes as a dword",
    },
    ...fragments,
    ofLanes,
    ...items,
    ...tiles,
  ],
  features: [
    {
      name: "gen9",
      summary: "vectors of sixteen lanes on EUs of Gen9",
      subgroup: 16,
      localBytes: 64 * 1024,
      source: `${SOURCE}; The Compute Architecture of Intel Processor Graphics Gen9: 64 KB of local memory a subslice`,
    },
    { name: "xe_hpg", summary: "DPAS of eight lanes", subgroup: 8, localBytes: 64 * 1024, source: LOCAL },
    { name: "xe_hpc", summary: "DPAS of sixteen lanes", subgroup: 16, localBytes: 128 * 1024, source: LOCAL },
  ],
};

const SCHEDULER = "Intel Graphics Compiler, scheduler tables before Xe";

/** A part with 24 execution units, such as HD Graphics 620; a `core` is one of them. */
export const GEN9: Target = {
  name: "gen9",
  summary: "an Intel GPU of Gen9.5 with 24 EUs",
  isa: ["gen9"],
  compilerFlags: [],
  clockHz: cited(1.1e9, "HD Graphics 620, as the paper on systolic designs states it"),
  levels: [
    { name: "grid", units: 1 },
    { name: "core", units: 24 },
    { name: "lane", units: 16 },
  ],
  memories: [],
  units: [
    {
      name: "fma",
      at: "core",
      issueCycles: 2,
      latencyCycles: 14,
      source: `${SCHEDULER}: float pipe 14 cycles, two cycles a SIMD16 instruction; not measured`,
    },
    {
      // A shifted read is a register region of the operand; it needs a move only where it crosses registers.
      name: "shuffle",
      at: "core",
      issueCycles: 2,
      latencyCycles: 14,
      source: `${SCHEDULER}: a move; not measured`,
    },
    // No source gives its issue rate, so it costs nothing.
    {
      name: "load",
      at: "core",
      issueCycles: 0,
      latencyCycles: 400,
      source: `${SCHEDULER}: data port 400; not measured`,
    },
    { name: "store", at: "core", issueCycles: 0, source: `${SCHEDULER}: none` },
  ],
  rates: [],
  fixed: {},
  // The scheduler tables count one cycle for a SIMD8 instruction of f32, two for a SIMD16 one.
  lanes: {
    name: "gen9",
    summary: "a thread of a Gen9 EU, SIMD16",
    level: "core",
    lanes: 16,
    lanesByBytes: true,
    granule: 8,
  },
};
