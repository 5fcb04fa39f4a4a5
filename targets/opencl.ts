/** @file Any device that takes OpenCL C: vectors of its own types, in a single work-item. A CPU is such a device through PoCL. */

import type { Family } from "../abstraction/machine.ts";

/** Feature required by rows of plain OpenCL C. */
export const OPENCL_ISA = "opencl_c";

export const OPENCL: Family = {
  name: "opencl",
  emulation: "opencl.h",
  kernels: true,
  registers: [
    {
      name: "wide",
      // As many as AVX-512 has for the vectors of sixteen floats into which they are compiled.
      count: 32,
      bytes: 64,
      named: "variable",
      types: { s8: "char", u8: "uchar", s32: "int", f32: "float" },
      declared: "{type}{width} {reg};",
      cleared: "{reg} = 0;",
      source: "OpenCL C specification, vector data types; Intel SDM vol. 1, section 15",
    },
  ],
  features: [{ name: OPENCL_ISA, summary: "vectors of OpenCL C", source: "OpenCL C specification, section 6.3.2" }],
};
