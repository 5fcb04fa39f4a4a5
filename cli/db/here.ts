/**
 * @file The world that records are compared with: this machine, its compiler, and the current declarations of instructions. A record of another
 * world is stale here.
 */

import { UsageError } from "../../abstraction/error.ts";
import { type Difference, POLICIES, type Policy, type World } from "../../db/index.ts";
import { intrinsicNamed } from "../../intrinsics/index.ts";
import { type Compiler, findCompiler } from "../../runtime/compiler.ts";
import { findCudaDevice } from "../../runtime/run/cuda-device.ts";
import { environmentOf, gpuEnvironment } from "../../session/calibrate/environment.ts";
import { gpuTargetOf } from "../../targets/index.ts";

/** Evaluated once a command, and only by commands that compare. */
export type Here = () => Promise<World>;

const NO_COMPILER: Compiler = { status: "found", command: [], path: "none", version: "none" };

/** Without a compiler no compiled kernel belongs exactly to this world, and the difference names that. */
export async function thisMachine(): Promise<World> {
  const compiler = await findCompiler();
  const device = await findCudaDevice();
  return {
    environment: environmentOf({ compiler: compiler.status === "found" ? compiler : NO_COMPILER }),
    devices: "status" in device ? [] : [gpuEnvironment(device, gpuTargetOf(device))],
    intrinsics: intrinsicNamed,
  };
}

export function readPolicy(word: string): Policy {
  const policy = POLICIES.find((p) => p === word);
  if (policy === undefined) throw new UsageError(`unknown --trust "${word}"`, `it is one of ${POLICIES.join(", ")}`);
  return policy;
}

/** Formats `kernel: Linux 6.1 there, Linux 6.12 here`. */
export function printDifference({ field, recorded, here }: Difference): string {
  if (field === "declaration")
    return here === undefined ? "declaration: not in the table here" : "declaration: declared otherwise here";
  return `${field}: ${recorded ?? "none"} there, ${here ?? "none"} here`;
}

/** Field names, the most frequent first: `kernel (12), node (3)`. */
export function countFields(differences: readonly (readonly Difference[])[]): string {
  const counts = new Map<string, number>();
  for (const { field } of differences.flat()) counts.set(field, (counts.get(field) ?? 0) + 1);
  return [...counts]
    .sort(([, a], [, b]) => b - a)
    .map(([field]) => field)
    .join(", ");
}
