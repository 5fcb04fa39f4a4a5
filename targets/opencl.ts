/** @file Devices that take OpenCL C, whatever they are: vectors of its own types, one work-item alone. A CPU is one by way of PoCL. */

import type { Family } from "../abstraction/machine.ts";

/** What rows of plain OpenCL C need. */
export const OPENCL_ISA = "opencl_c";

export const OPENCL: Family = {
  name: "opencl",
  emulation: "opencl.h",
  kernels: true,
  registers: [
    {
      name: "wide",
      // As many as AVX-512 has for the vectors of sixteen floats that they become.
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
