/** @file Selects a kernel for each task of a network from the records that are valid here. */

import { existsSync } from "node:fs";
import type { Target } from "../../abstraction/machine.ts";
import { withDatabase } from "../../db/index.ts";
import type { Network } from "../../network/network.ts";
import { findCompiler } from "../../runtime/compiler.ts";
import { environmentOf } from "../calibrate/environment.ts";
import type { ChosenNetwork } from "../report/network-report.ts";
import { gpuEnvironmentHere } from "./gpu-network.ts";
import { type ChosenChain, chainsIn, choicesOf, inRecordedForms, type Records } from "./network.ts";

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
  const environment = !existsSync(file) ? undefined : gpu ? await gpuEnvironmentHere(gpu) : await environmentHere();
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

async function environmentHere(): Promise<Records["environment"] | undefined> {
  const compiler = await findCompiler();
  return compiler.status === "environment" ? undefined : environmentOf({ compiler });
}
