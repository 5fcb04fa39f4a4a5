/** @file Arm Mali GPUs, programmed in OpenCL C: the extensions that instructions require. Mappings are found, and proved under emulation. */

import type { Family, Feature } from "../abstraction/machine.ts";

const extension = (name: string, summary: string): Feature => ({ name, summary, source: `OpenCL extension ${name}` });

export const MALI: Family = {
  name: "mali",
  emulation: "opencl.h",
  kernels: false,
  registers: [
    {
      name: "reg",
      named: "variable",
      types: { s8: "char", u8: "uchar", s32: "int", u32: "uint", f32: "float" },
      declared: "{type}{width} {reg};",
      cleared: "{reg} = 0;",
      source: "OpenCL C specification, vector data types",
    },
  ],
  features: [
    extension("cl_arm_integer_dot_product_int8", "a dot product of four bytes"),
    extension("cl_arm_integer_dot_product_accumulate_int8", "the same, added to a sum"),
    extension("cl_arm_integer_dot_product_accumulate_saturate_int8", "the same, saturating"),
  ],
};
