/** @file Targets that every machine has: plain C++ for any CPU, and accelerators that exist only on paper. */

import { C_TYPES } from "../abstraction/kernel.ts";
import type { Family } from "../abstraction/machine.ts";

/** Feature required by rows of plain C++: no machine lists it, and every CPU has it. */
export const PORTABLE_ISA = "portable";

export const PORTABLE: Family = {
  name: "portable",
  kernels: true,
  registers: [
    {
      name: "vec",
      // XMM of x86; AArch64 has 32.
      count: 16,
      bytes: 16,
      types: C_TYPES,
      declared: "lanes<{type}, {elements}> {reg};",
      cleared: "{reg} = decltype({reg}){};",
      constraint: "x",
      source: "Intel SDM vol. 1, section 10; GCC manual, Using Vector Instructions",
    },
  ],
  features: [
    { name: PORTABLE_ISA, summary: "plain C++", extensions: [], flags: [], source: "the C++ standard; GCC's vectors" },
  ],
};

/** Only the interpreter runs them. */
export const VIRTUAL: Family = {
  name: "virtual",
  kernels: false,
  registers: [],
  features: [{ name: "virtual", summary: "an accelerator on paper", source: "AMOS (ISCA 2022), section 7.5" }],
};
