/**
 * @file Where the kernels of a network come from: the GPU that it is built for, if any, and the records that are valid here.
 *
 *     const gpu = await gpuForNetworks("h100");
 *     const { program } = inHalfOnGpu(openGraph(resnet18()));
 *     const { choices } = await chosenFor(program, { db: "automap.db", threads: 1, exact: false }, gpu);
 */

import { existsSync } from "node:fs";
import { EnvironmentError, UsageError } from "../../abstraction/error.ts";
import type { Target } from "../../abstraction/machine.ts";
import { withDatabase } from "../../db/index.ts";
import type { Network } from "../../network/network.ts";
import { findCompiler } from "../../runtime/compiler.ts";
import { findCudaDevice } from "../../runtime/run/cuda-device.ts";
import { gpuTargetNamed, gpuTargetOf, isGpu } from "../../targets/index.ts";
import { environmentOf, gpuEnvironment } from "../calibrate/environment.ts";
import type { ChosenNetwork } from "../report/network-report.ts";
import { localGpu } from "../tune/workplace.ts";
import { type ChosenChain, chainsIn, choicesOf, inRecordedForms, type Records } from "./network.ts";

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

export interface ChoiceOptions {
  /** Path of the database, which need not exist. */
  readonly db: string;
  readonly threads: number;
  readonly exact: boolean;
}

/** The forms of the steps and the kernel of each task. Without a database, or when nothing can be measured here, the model alone decides. */
export async function chosenFor(
  program: Network,
  { db: file, threads, exact }: ChoiceOptions,
  gpu: Target | undefined,
): Promise<
  ChosenNetwork & {
    readonly environment: Records["environment"] | undefined;
    readonly chains: readonly ChosenChain[];
  }
> {
  const environment = existsSync(file) ? await environmentHere(gpu) : undefined;
  const chosen = (formed: Network, records?: Records) => {
    const on = { machine: gpu, records, threads };
    const choices = choicesOf(formed, on);
    return { program: formed, environment, choices, chains: chainsIn(formed, choices, on) };
  };
  if (!environment) return chosen(program);
  return withDatabase(file, (db) => {
    const records = { db, environment };
    return chosen(gpu ? program : inRecordedForms(program, records, threads, exact), records);
  });
}

/** The environment of this machine's records: of its CPU, or of a GPU if it is here. Undefined where kernels cannot be measured. */
export async function environmentHere(gpu: Target | undefined): Promise<Records["environment"] | undefined> {
  if (gpu) return gpuEnvironmentHere(gpu);
  const compiler = await findCompiler();
  return compiler.status === "environment" ? undefined : environmentOf({ compiler });
}

/** The environment that records of this machine's GPU have; undefined when it is another GPU or there is none. */
async function gpuEnvironmentHere(machine: Target): Promise<Records["environment"] | undefined> {
  const device = await findCudaDevice();
  if ("status" in device) return undefined;
  return gpuTargetOf(device).name === machine.name ? gpuEnvironment(device, machine) : undefined;
}
