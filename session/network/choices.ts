/**
 * @file Where the kernels of a network come from: the GPU that it is built for, if any, and the records that are valid here.
 *
 *     const gpu = await gpuForNetworks("h100");
 *     const { program } = inHalfOnGpu(openGraph(resnet18()));
 *     const { choices } = await chosenFor(program, { db: "automap.db", threads: 1, exact: false }, gpu);
 */

import { existsSync } from "node:fs";
import { sortedBy } from "../../abstraction/collections.ts";
import { EnvironmentError, NotFoundError, UsageError } from "../../abstraction/error.ts";
import type { Target } from "../../abstraction/machine.ts";
import { type EnvironmentRecord, runsIn, shortId, withDatabase } from "../../db/index.ts";
import type { Network } from "../../network/network.ts";
import type { Task } from "../../network/tasks.ts";
import { findCompiler } from "../../runtime/compiler.ts";
import { findCudaDevice } from "../../runtime/run/cuda-device.ts";
import { gpuTargetNamed, gpuTargetOf, isGpu } from "../../targets/index.ts";
import { environmentOf, gpuEnvironment } from "../calibrate/environment.ts";
import { recordedTarget } from "../recorded.ts";
import { localGpu } from "../tune/workplace.ts";
import { type Choice, type ChosenChain, chainsIn, choicesOf, type Records } from "./network.ts";

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

/** An environment and its machine. */
export interface RecordedWorld {
  readonly environment: EnvironmentRecord;
  readonly machine: Target;
}

/**
 * An environment in which a database has searches, with its machine as the newest of them recorded it.
 * @param prefix how its id begins
 * @throws UsageError when there is none, or more than one
 */
export function recordedWorld(file: string, prefix: string): RecordedWorld {
  return withDatabase(file, (db) => {
    const newest = runsIn(db).map(({ run }) => run);
    const known = new Map(newest.map(({ environment }) => [environment.id, environment]));
    const [environment, ...others] = [...known.values()].filter(({ id }) => id.startsWith(prefix));
    const ids = [...known].map(([id, { target }]) => `${shortId(id)} (${target})`).join(", ");
    if (!environment)
      throw new NotFoundError(
        `${file} has no search in an environment "${prefix}"`,
        ids === "" ? "automap tune-network makes searches" : `it has searches in ${ids}`,
      );
    if (others.length > 0) throw new UsageError(`several environments of ${file} begin with "${prefix}"`, ids);
    const targets = sortedBy(
      newest.filter((run) => run.environment.id === environment.id),
      (a) => -a.started,
    ).flatMap((run) => recordedTarget(run) ?? []);
    const [machine] = targets;
    if (machine) return { environment, machine };
    throw new UsageError(`no search in environment ${shortId(environment.id)} recorded its machine`);
  });
}

export interface ChoiceOptions {
  /** Path of the database, which need not exist. */
  readonly db: string;
  /** Whose records count; this machine's when left out. */
  readonly world?: RecordedWorld | undefined;
  readonly threads: number;
  readonly exact: boolean;
}

/** The kernel of each task. Without a database, or when nothing can be measured here, the model alone decides. */
export async function chosenFor(
  program: Network,
  { db: file, world, threads, exact }: ChoiceOptions,
  gpu: Target | undefined,
): Promise<{
  readonly choices: ReadonlyMap<Task, Choice>;
  readonly environment: Records["environment"] | undefined;
  readonly chains: readonly ChosenChain[];
}> {
  const environment = world?.environment ?? (existsSync(file) ? await environmentHere(gpu) : undefined);
  const machine = world?.machine ?? gpu;
  const chosen = (records?: Records) => {
    const on = { machine, records, threads, exact };
    const choices = choicesOf(program, on);
    return { environment, choices, chains: chainsIn(program, choices, on) };
  };
  return environment ? withDatabase(file, (db) => chosen({ db, environment, machine })) : chosen();
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
