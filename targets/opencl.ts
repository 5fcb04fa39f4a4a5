/** @file Any device that takes OpenCL C: vectors of its own types, in a single work-item. A CPU is such a device through PoCL. */

import type { Family } from "../abstraction/machine.ts";

/** Feature required by rows of plain OpenCL C. */
export const OPENCL_ISA = "opencl_c";
/** Feature required by dot products of bytes on a CPU that is an OpenCL device. */
const OPENCL_VNNI = "opencl_vnni";

/** The features of this machine's processor as an OpenCL device of this name. PoCL tells by it for which CPU it compiles. */
export function openClFeatures(device: string, isa: readonly string[]): string[] {
  const isWide =
    /^(?:basic|pthread)-(skylake-avx512|cascadelake|cooperlake|icelake|tigerlake|sapphirerapids|znver[4-9])/.test(
      device,
    );
  return [OPENCL_ISA, ...(isWide && isa.includes("avx512_vnni") ? [OPENCL_VNNI] : [])];
}

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
      types: { s8: "char", u8: "uchar", s32: "int", f32: "float" },
      declared: "{type}{width} {reg};",
      source: "OpenCL C specification, vector data types; Intel SDM vol. 1, section 15",
    },
    {
      name: "wide4",
      bytes: 64,
      types: { s8: "int16", u8: "int16" },
      source: "OpenCL C specification, vector data types: four bytes in each component",
    },
  ],
  features: [
    { name: OPENCL_ISA, summary: "vectors of OpenCL C", source: "OpenCL C specification, section 6.3.2" },
    {
      name: OPENCL_VNNI,
      summary: "VPDPBUSD in OpenCL C, where PoCL compiles for a CPU with AVX-512",
      source: "Intel SDM vol. 2, VPDPBUSD; PoCL compiles by Clang, which takes its assembly",
    },
  ],
};
