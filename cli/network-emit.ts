/** @file `automap network emit`: a network as one library. */

import type { z } from "zod";
import { defined } from "../abstraction/collections.ts";
import { automapCommand } from "../abstraction/error.ts";
import { databaseWords } from "../db/index.ts";
import { type EmittedNetwork, emitNetwork } from "../session/network/emit-network.ts";
import { type emitOptions, emitSchema } from "./network-documents.ts";
import { type OpenedFor, targetWords } from "./network-model.ts";
import { optionWords } from "./options.ts";
import { EXIT, type ExitCode, print, printJson, say, showStatus } from "./output.ts";

export async function emit(
  { model, name, gpu, opened }: OpenedFor,
  given: z.infer<typeof emitOptions>,
): Promise<ExitCode> {
  const { to, threads, exact, verify, force } = given;
  const written = await emitNetwork(opened, {
    to,
    threads,
    exact,
    verify,
    force,
    database: given.db,
    name: given.name ?? name,
    machine: gpu,
    environment: given.environment,
    provenance: [`remake    ${remake(model, given)}`],
    onBuilt: (done, of) => showStatus(`building  ${done} of ${of}`),
    onStep: (step, place, of) => showStatus(`proving  ${place} of ${of}  ${step}`),
  });
  if (verify) showStatus("");
  if (written.proof?.status === "environment") {
    const { what, remedy } = written.proof;
    say(`automap: ${what}\n  the library is written but not proved\n  ${remedy}`);
    return EXIT.environment;
  }
  const { proof, code } = told(written.proof);
  const { steps, calls, kernels, arenaBytes, apartBytes, weightBytes } = written;
  if (given.json)
    printJson(emitSchema, {
      folder: to,
      name: written.name,
      files: [...written.files],
      steps,
      arenaBytes,
      weightBytes,
      ...defined({ proof, widened: opened.widened }),
    });
  else {
    print(`${written.name} in ${to}: ${steps} steps, ${calls} calls of ${kernels} kernels`);
    print(
      `  values between steps and scratch ${mebibytes(arenaBytes)}, ${mebibytes(apartBytes)} side by side; weights ${mebibytes(weightBytes)}`,
    );
    if (proof !== undefined) print(`  ${proof}`);
  }
  if (code !== EXIT.ok && given.json) say(`automap: the library is ${proof}`);
  return code;
}

/** The command that writes the package again. */
function remake(model: string, given: z.infer<typeof emitOptions>): string {
  const { name, threads, exact, db, environment } = given;
  return automapCommand(
    ["network", "emit", model, "--to", "DIR"],
    targetWords(given),
    optionWords({ name, environment, threads: threads === 1 ? undefined : threads }),
    exact ? "--exact" : undefined,
    databaseWords(db),
  );
}

type Proof = Exclude<EmittedNetwork["proof"], { readonly status: "environment" }>;

/** The outcome of a verification, in words and as an exit code. */
function told(proof: Proof): { readonly proof?: string; readonly code: ExitCode } {
  if (!proof) return { code: EXIT.ok };
  switch (proof.status) {
    case "right":
      return { proof: `right: ${proof.steps} steps`, code: EXIT.ok };
    case "wrong":
      return { proof: `wrong: ${proof.step}: ${proof.said}`, code: EXIT.wrong };
    default:
      return { proof: `${proof.status}: ${proof.said}`, code: EXIT.failed };
  }
}

const mebibytes = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(1)} MiB`;
