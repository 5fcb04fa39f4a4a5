/**
 * @file `--target`: the machine to generate kernels for.
 *
 *     --target cpu       this machine's processor, the default
 *     --target cuda      this machine's GPU
 *     --target opencl    this machine's processor, by way of OpenCL C
 *     --target h100      a GPU by name: measured where one is, ranked by the model anywhere
 *     --target dg2       a GPU of Intel, or mali-g76: ranked by the model
 *     --target neoverse-n1      an Arm CPU by name: ranked by the model, and run under qemu without a time
 */

import { namesOf } from "../abstraction/collections.ts";
import { EnvironmentError, suggestion, UsageError } from "../abstraction/error.ts";
import type { Target } from "../abstraction/machine.ts";
import {
  ARM_TARGETS,
  armTargetNamed,
  gpuTargetNamed,
  NVIDIA_TARGETS,
  nativeTarget,
  PREDICTED_GPUS,
  predictedGpuNamed,
} from "../targets/index.ts";

export const GPU_NAMES = namesOf(NVIDIA_TARGETS);
export const TARGET_NAMES = ["cpu", "cuda", "opencl", ...GPU_NAMES, ...namesOf([...PREDICTED_GPUS, ...ARM_TARGETS])];
/** Other common names for this machine's GPU. */
const GPU_WORDS = ["gpu", "nvidia", "nvptx"];

export const TARGET_OPTION = [
  "--target <machine>",
  `what kernels are for: ${TARGET_NAMES.join(", ")}, or a GPU's compute capability as sm_89 (default cpu)`,
] as const;

/**
 * @param options.otherwise a hint on what the command can do without a GPU
 * @param options.threads threads that run a kernel
 * @throws EnvironmentError for `cuda` when there is no GPU, UsageError for an unknown name
 */
export async function readTarget(name = "cpu", { otherwise = "", threads = 1 } = {}): Promise<Target> {
  if (name === "cpu") return nativeTarget();
  if (name === "cuda") {
    // Completion works without it.
    const { localGpu } = await import("../session/tune/workplace.ts");
    const found = await localGpu();
    if ("status" in found) throw new EnvironmentError({ ...found, remedy: `${found.remedy}${otherwise}` });
    return found;
  }
  if (name === "opencl") {
    const { localOpenCl } = await import("../session/tune/workplace.ts");
    const found = await localOpenCl(threads);
    if ("status" in found) throw new EnvironmentError(found);
    return found;
  }
  const target = gpuTargetNamed(name) ?? predictedGpuNamed(name) ?? armTargetNamed(name);
  if (target) return target;
  throw new UsageError(
    `--target: no machine "${name}"`,
    GPU_WORDS.includes(name.toLowerCase()) ? "--target cuda is this machine's GPU" : suggestion(name, TARGET_NAMES),
  );
}
