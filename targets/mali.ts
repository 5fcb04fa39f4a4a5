/** @file Arm Mali GPUs, programmed in OpenCL C: the extensions that instructions require, and the registers of a thread. */

import type { Family, Feature, RegisterClass } from "../abstraction/machine.ts";

const extension = (name: string, summary: string): Feature => ({ name, summary, source: `OpenCL extension ${name}` });

/** Of 64 registers; the rest hold factors and addresses. */
const SUMS = 40;

/** What one lane of a warp holds: an element, or four bytes. */
const ofLanes: readonly RegisterClass[] = [
  {
    name: "warp_lane",
    count: SUMS,
    types: { s32: "int", u32: "uint", f32: "float" },
    perLane: true,
    source: "OpenCL C specification, scalar data types; Arm, Mali Offline Compiler: 64 registers a thread",
  },
  {
    name: "warp_lane4",
    types: { s8: "char4", u8: "uchar4" },
    perLane: true,
    source: "OpenCL C specification, vector data types",
  },
];

export const MALI: Family = {
  name: "mali",
  emulation: "opencl.h",
  kernels: true,
  registers: [
    {
      name: "reg",
      count: SUMS,
      types: { s8: "char", u8: "uchar", s32: "int", u32: "uint", f32: "float" },
      declared: "{type}{width} {reg};",
      source: "OpenCL C specification, vector data types; Arm, Mali Offline Compiler: 64 registers a thread",
    },
    ...ofLanes,
  ],
  features: [
    {
      name: "mali_g76",
      summary: "warps of eight lanes",
      subgroup: 8,
      lanesAreGroups: true,
      localBytes: 32 * 1024,
      source: "Arm Community, Mali-G76; CL_DEVICE_LOCAL_MEM_SIZE of Arm's driver",
    },
    extension("cl_arm_integer_dot_product_int8", "a dot product of four bytes"),
    extension("cl_arm_integer_dot_product_accumulate_int8", "the same, added to a sum"),
    extension("cl_arm_integer_dot_product_accumulate_saturate_int8", "the same, saturating"),
  ],
};
