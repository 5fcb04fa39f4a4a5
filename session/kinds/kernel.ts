/**
 * @file Generates the code of any kind of candidate.
 *
 *     kernelFor(computationOf(trial.workload), trial.candidate).source
 */

import type { Candidate } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { Target } from "../../abstraction/machine.ts";
import { computationOf, type TrialRecord } from "../../db/index.ts";
import { gpuTargetNamed } from "../../targets/gpu.ts";
import { declaredAs } from "../package/declared.ts";
import { sessionKindOf } from "./kinds.ts";
import type { InStream } from "./session-space.ts";

/**
 * @param machine the GPU that a grid was made for; when left out, the first GPU of the table that can run it
 * @throws UsageError when the candidate's mapping, schedule or design is no longer valid, or no kernel can be generated for its instruction
 * under a schedule of a CPU's loops
 */
export function kernelFor(
  computation: Computation,
  candidate: Candidate,
  machine?: Target,
  inStream: InStream = {},
): Kernel {
  return sessionKindOf(candidate).kernelOf(computation, candidate, machine, inStream);
}

/** The kernel of a record, for the machine that it was measured on. @throws UsageError as {@link kernelFor} */
export function kernelOfRecord(
  {
    workload,
    candidate,
    environment,
    declaration,
  }: Pick<TrialRecord, "workload" | "candidate" | "environment" | "declaration">,
  inStream: InStream = {},
): Kernel {
  declaredAs(candidate.intrinsic, declaration);
  return kernelFor(computationOf(workload), candidate, gpuTargetNamed(environment.target), inStream);
}
