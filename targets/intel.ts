/** @file Intel GPUs, reached from CM: the generations instructions ask for. Mappings are found and proved under emulation. */

import type { Family } from "../abstraction/machine.ts";

const SOURCE = "CM language specification";

export const INTEL: Family = {
  name: "intel",
  emulation: "cm.h",
  kernels: false,
  features: [
    { name: "gen9", summary: "vectors on EUs of Gen9", source: SOURCE },
    { name: "xe_hpg", summary: "DPAS of eight lanes", source: SOURCE },
    { name: "xe_hpc", summary: "DPAS of sixteen lanes", source: SOURCE },
  ],
};
