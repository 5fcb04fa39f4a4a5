/**
 * @file `--target`: the machine that kernels are for.
 *
 *     --target cpu       this machine's processor, the default
 *     --target cuda      this machine's GPU
 *     --target h100      a GPU by name: measured where one is, ranked by the model anywhere
 */

import { EnvironmentError, suggestion, UsageError } from "../abstraction/error.ts";
import type { Target } from "../abstraction/machine.ts";
import { localGpu } from "../session/workplace.ts";
import { gpuTargetNamed, NVIDIA_TARGETS, nativeTarget } from "../targets/index.ts";

const NAMES = ["cpu", "cuda", ...NVIDIA_TARGETS.map((t) => t.name)];

export const TARGET_OPTION = [
  "--target <machine>",
  `what kernels are for: ${NAMES.join(", ")}, or a GPU's compute capability as sm_89 (default cpu)`,
] as const;

/** @throws EnvironmentError for `cuda` where there is no GPU, UsageError for a name that is none */
export async function readTarget(name = "cpu"): Promise<Target> {
  if (name === "cpu") return nativeTarget();
  if (name === "cuda") {
    const found = await localGpu();
    if ("status" in found) throw new EnvironmentError(found);
    return found;
  }
  const target = gpuTargetNamed(name);
  if (target) return target;
  throw new UsageError(`--target: no machine "${name}"`, { hint: suggestion(name, NAMES) });
}
