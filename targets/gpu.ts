/**
 * @file GPUs as targets, by their common names and by the names that drivers report.
 *
 *     gpuTargetOf({ name: "NVIDIA H100 80GB HBM3", capability: 90 }).name        "h100"
 *     gpuTargetOf({ name: "NVIDIA L4", capability: 89 }).name                    "sm_89": its own features, with the figures of the nearest machine
 */

import { ascending, hasName, namesOf, withName } from "../abstraction/collections.ts";
import { internal } from "../abstraction/error.ts";
import type { Target } from "../abstraction/machine.ts";
import { NVIDIA_TARGETS } from "./nvidia.ts";
import { featuresOfCapability, NVIDIA } from "./nvidia-features.ts";

/** Whether kernels run as a grid of blocks on a machine. */
export function isGpu(machine: Pick<Target, "levels">): boolean {
  return hasName(machine.levels, "block");
}

/** The target of a name in a record or in `--target`: one of the table, or `sm_89`; undefined for an unknown name. */
export function gpuTargetNamed(name: string): Target | undefined {
  const capability = /^sm_([1-9]\d{1,2})$/.exec(name)?.[1];
  return withName(NVIDIA_TARGETS, name) ?? (capability === undefined ? undefined : nearest(Number(capability)));
}

/** The target of a device that a driver reports by its name and its compute capability, 90 for 9.0. */
export function gpuTargetOf({ name, capability }: { readonly name: string; readonly capability: number }): Target {
  const words = name.toLowerCase().split(/[^a-z0-9]+/);
  return NVIDIA_TARGETS.find((t) => words.includes(t.name)) ?? nearest(capability);
}

/** Compute capabilities in the names of features, 90 for 9.0, in ascending order. */
const capabilitiesIn = (features: readonly string[]): number[] =>
  ascending(features.flatMap((name) => (/^sm_\d+$/.test(name) ? [Number(name.slice(3))] : [])));

/** The newest compute capability of a machine, by its features. @throws Error for a machine that is no GPU */
export function capabilityOf({ isa, name }: Pick<Target, "isa" | "name">): number {
  return capabilitiesIn(isa).at(-1) ?? internal(`${name} has no compute capability`);
}

/** The compute capability that features need: the least, or the only one. @throws Error when no GPU has them all */
export function capabilityFor(features: readonly string[]): { readonly least: number; readonly only: boolean } {
  const has = (capability: number): boolean => {
    const known = new Set(featuresOfCapability(capability));
    return features.every((name) => known.has(name));
  };
  const least =
    capabilitiesIn(namesOf(NVIDIA.features)).find(has) ?? internal(`no GPU has all of ${features.join(", ")}`);
  return { least, only: !has(Number.POSITIVE_INFINITY) };
}

/** The features of a compute capability, with the sizes and rates of the newest machine of the table that is not newer. */
function nearest(capability: number): Target {
  const features = new Set(featuresOfCapability(capability));
  const [first = internal("no GPUs")] = NVIDIA_TARGETS;
  const known = NVIDIA_TARGETS.findLast((t) => t.isa.every((f) => features.has(f) || f.endsWith("a"))) ?? first;
  return {
    ...known,
    name: `sm_${capability}`,
    summary: `compute capability ${capability / 10}, with the figures of ${known.name}`,
    isa: [...features],
  };
}
