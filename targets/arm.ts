/** @file Arm CPUs with Advanced SIMD: the features instructions ask for. Mappings are found and proved; kernels are not yet written. */

import type { Family } from "../abstraction/machine.ts";

const SOURCE =
  "Arm Architecture Reference Manual for A-profile, feature names; Linux, Documentation/arch/arm64/elf_hwcaps";

export const ARM: Family = {
  name: "arm",
  header: "#include <arm_neon.h>\n",
  emulation: "arm.h",
  kernels: false,
  registers: [
    {
      name: "v",
      count: 32,
      bytes: 16,
      feature: "asimd",
      named: "variable",
      types: { s8: "int8x16_t", u8: "uint8x16_t", s32: "int32x4_t", u32: "uint32x4_t", f32: "float32x4_t" },
      cleared: "{reg} = decltype({reg}){};",
      constraint: "w",
      source:
        "Arm Architecture Reference Manual for A-profile, SIMD and floating-point registers; Arm C Language Extensions",
    },
  ],
  features: [
    { name: "asimd", summary: "128-bit vectors", cpuinfo: ["asimd"], flags: [], source: SOURCE },
    {
      name: "asimddp",
      summary: "dot products of bytes",
      cpuinfo: ["asimddp"],
      flags: ["-march=armv8.2-a+dotprod"],
      source: SOURCE,
    },
    {
      name: "i8mm",
      summary: "matrix products of bytes",
      cpuinfo: ["i8mm"],
      flags: ["-march=armv8.2-a+dotprod+i8mm"],
      source: SOURCE,
    },
  ],
};
