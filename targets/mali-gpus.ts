/**
 * @file Arm's Mali GPUs as the model sees them. None is available here: kernels for them are predicted and run under emulation, and no compiler of theirs is
 * asked.
 *
 *     MALI_G76.summary      "Mali-G76 MP10: 30 execution engines at 720 MHz"
 *
 * A `core` of the target is one execution engine, of which a shader core has three.
 */

import type { Target } from "../abstraction/machine.ts";
import { gpuOfEngines } from "./engines.ts";
import { assumed, cited, KIB, MIB } from "./figures.ts";

const ENGINES = "Arm Community, Mali-G76: three execution engines of eight lanes a shader core";
const KIRIN = "AnandTech, HiSilicon Kirin 980";

export const MALI_G76: Target = gpuOfEngines({
  name: "mali-g76",
  summary: "Mali-G76 MP10: 30 execution engines at 720 MHz",
  isa: ["mali_g76", "cl_arm_integer_dot_product_int8", "cl_arm_integer_dot_product_accumulate_int8"],
  engines: cited(30, `${ENGINES}; ten cores in the Kirin 980`),
  clockHz: cited(720e6, `${KIRIN}: 720 MHz`),
  lanes: 8,
  threads: 32,
  loadLatency: assumed(200, "a load goes through the queue of the load/store unit, as on Gen9 at half the clock"),
  sharing: 3,
  l1Bytes: assumed(16 * KIB, "a load/store cache of 16 KB a shader core, as of its predecessors"),
  l1: assumed(32, "eight lanes of four bytes a cycle"),
  l2Bytes: assumed(2 * MIB, "a licensee takes 512 KB to 4 MB"),
  l2: assumed(64, "four slices of 128 bits"),
  dram: cited(34.1e9, `${KIRIN}: four channels of LPDDR4X at 2133 MHz`),
  vector: { f32: 16, f16: 32, s8: 64, u8: 64 },
  matrix: {},
  rates: `${ENGINES}, a multiply-add each; assumed: a dot product of four bytes as often`,
});
