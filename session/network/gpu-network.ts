/**
 * @file The GPU that a network is built for.
 *
 *     const gpu = await gpuForNetworks("h100");
 *     const { program } = inHalfOnGpu(openGraph(resnet18()));
 *     const subject = networkSubject(program, choicesOf(program, { machine: gpu }), { gpu });
 */

import { EnvironmentError, UsageError } from "../../abstraction/error.ts";
import type { Target } from "../../abstraction/machine.ts";
import { findCudaDevice } from "../../runtime/run/cuda-device.ts";
import { gpuTargetNamed, gpuTargetOf, isGpu } from "../../targets/index.ts";
import { gpuEnvironment } from "../calibrate/environment.ts";
import { localGpu } from "../tune/workplace.ts";
import type { Records } from "./network.ts";

/**
 * The GPU a network is built for. @throws UsageError when the target is not a GPU, EnvironmentError when this machine's is requested and it has
 * none
 */
export async function gpuForNetworks(name: string): Promise<Target> {
  const machine = name === "cuda" ? await localGpu() : gpuTargetNamed(name);
  if (!machine || ("levels" in machine && !isGpu(machine)))
    throw new UsageError(
      `--target ${name}: networks are made for this machine's CPU, and for GPUs in CUDA`,
      "--target cuda is the GPU here, --target h100 one that need not be",
    );
  if ("status" in machine) throw new EnvironmentError(machine);
  return machine;
}

/** The environment that records of this machine's GPU have; undefined when it is another GPU or there is none. */
export async function gpuEnvironmentHere(machine: Target): Promise<Records["environment"] | undefined> {
  const device = await findCudaDevice();
  if ("status" in device) return undefined;
  return gpuTargetOf(device).name === machine.name ? gpuEnvironment(device, machine) : undefined;
}
