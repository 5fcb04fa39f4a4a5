/** @file The library of a network, written, built, and proved step by step. */

import { expect } from "vitest";
import { type NetworkParts, networkFiles, partsOfNetwork } from "../../package/network/index.ts";
import { networkSubject, type OpenNetwork } from "../../session/network/network.ts";
import { proveNetwork } from "../../session/network/prove-network.ts";
import { writePackage } from "../../session/package/package-folder.ts";
import { compilerHere } from "./here.ts";

/** Writes a network's library into a folder, and expects that each step gives what its equation says, and the whole what the model does. */
export async function expectProved(
  folder: string,
  { program, plain }: Pick<OpenNetwork, "program" | "plain">,
  choices: Parameters<typeof networkSubject>[1] = new Map(),
  options: Parameters<typeof networkSubject>[2] = {},
): Promise<NetworkParts> {
  const subject = networkSubject(program, choices, options);
  const parts = partsOfNetwork(subject);
  writePackage(folder, networkFiles(subject), true);
  const proof = await proveNetwork(folder, parts, await compilerHere(), { asRead: plain });
  expect(proof).toEqual({ status: "right", steps: program.steps.length });
  return parts;
}
