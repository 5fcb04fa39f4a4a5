/**
 * @file A network on a GPU. Each task gets the fastest measured kernel, else the one the model predicts to be fastest, else threads that compute
 * the equation directly.
 *
 *     const { program } = inHalfOnGpu(openGraph(resnet18()));
 *     const subject = networkSubject(program, gpuChoicesOf(program, nvidiaTarget("h100")), { gpu: nvidiaTarget("h100") });
 */

import { attempt, EnvironmentError, UsageError } from "../../abstraction/error.ts";
import type { Target } from "../../abstraction/machine.ts";
import type { Network } from "../../network/network.ts";
import { type Task, tasksOf } from "../../network/tasks.ts";
import { findCudaDevice } from "../../runtime/run/cuda-device.ts";
import { gpuTargetNamed, gpuTargetOf, isGpu } from "../../targets/index.ts";
import { gpuEnvironment } from "../calibrate/environment.ts";
import { kernelFor } from "../kinds/kernel.ts";
import { threadsKernel } from "../kinds/plain-threads.ts";
import { localGpu } from "../tune/workplace.ts";
import { type Choice, choiceOfModel, networkKernel, type Records, recordedKernel } from "./network.ts";

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

/** Candidates that the model ranks for a step that was never tuned. */
const UNTUNED_DRAWS = 400;

/** Each task with its kernel. @throws UsageError naming the node when a step has no CUDA kernel */
export function gpuChoicesOf(program: Network, machine: Target, records?: Records): Map<Task, Choice> {
  return new Map(tasksOf(program).map((task) => [task, chosen(task, machine, records)] as const));
}

function chosen(task: Task, machine: Target, records: Records | undefined): Choice {
  const { computation, steps } = task;
  const recorded = records && recordedKernel(computation, records, { threads: 1, onGpu: true });
  if (recorded) return recorded;
  const chained = { chained: true };
  const expected = choiceOfModel(task, { machine }, UNTUNED_DRAWS, (candidate) =>
    kernelFor(computation, candidate, machine, chained),
  );
  if (expected.kind === "model") return expected;
  const kernel = attempt(
    () => threadsKernel(computation, machine, chained),
    ({ message }) => {
      throw new UsageError(`${steps[0]?.nodes[0] ?? computation.name}: ${message}`);
    },
  );
  return { ...expected, kernel: networkKernel(kernel) };
}
