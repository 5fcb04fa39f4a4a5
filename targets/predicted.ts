/**
 * @file GPUs whose kernels are predicted by the model and run under emulation, and measured nowhere: those of Intel, and Mali.
 *
 *     predictedGpuNamed("mali-g76")?.summary      "Mali-G76 MP10: 30 execution engines at 720 MHz"
 */

import { withName } from "../abstraction/collections.ts";
import type { Target } from "../abstraction/machine.ts";
import { INTEL_GPUS } from "./intel-gpus.ts";
import { MALI_G76 } from "./mali-gpus.ts";

/** In the order they are listed. */
export const PREDICTED_GPUS: readonly Target[] = [...INTEL_GPUS, MALI_G76];

/** A GPU whose kernels are predicted and measured nowhere, by its name, such as `dg2`; undefined for a name that is none of them. */
export const predictedGpuNamed = (name: string): Target | undefined => withName(PREDICTED_GPUS, name);

/** Whether kernels for a machine are predicted and emulated, and measured nowhere. */
export const isPredictedOnly = ({ name }: Pick<Target, "name">): boolean => predictedGpuNamed(name) !== undefined;
