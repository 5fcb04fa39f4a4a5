/**
 * @file Generates the code of any kind of candidate.
 *
 *     kernelFor(computationOf(trial.workload), trial.candidate).source
 */

import { type Candidate, isArray, isOnGpu, type MappedCandidate } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import { UsageError } from "../abstraction/error.ts";
import type { Language } from "../abstraction/intrinsic.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import type { Target } from "../abstraction/machine.ts";
import { type Mapping, printMatching } from "../abstraction/mapping.ts";
import { generateCm } from "../codegen/cm.ts";
import { generateCpp } from "../codegen/cpp.ts";
import { generateOpenCl } from "../codegen/opencl.ts";
import { generateSycl } from "../codegen/sycl.ts";
import { computationOf, type TrialRecord } from "../db/index.ts";
import { lowerSchedule } from "../mapper/lower/scheduled.ts";
import { scheduleProblem } from "../mapper/schedule/mapped.ts";
import { scheduleText } from "../report/describe-candidate.ts";
import { isWritten } from "../targets/features.ts";
import { gpuTargetNamed } from "../targets/gpu.ts";
import { generateArray } from "./array-space.ts";
import { declaredAs } from "./declared.ts";
import { choiceOnGpu, generateOnGpu, type InStream } from "./grid-space.ts";
import { generateDesign } from "./lane-space.ts";
import { loopCandidateKernel } from "./plain-loops.ts";
import { mappingOf, rewritingNotes } from "./recorded.ts";
import { VERSION } from "./version.ts";

/** Printers, by language, for the nest of a mapping under a {@link Schedule}. */
const PRINTERS: Readonly<Partial<Record<Language, typeof generateCpp>>> = {
  "c++": generateCpp,
  cm: generateCm,
  opencl: generateOpenCl,
  sycl: generateSycl,
};

/** Whether nests under a {@link Schedule} can be printed in a language. */
export const isPrinted = (language: Language): boolean => PRINTERS[language] !== undefined;

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
  if (isArray(candidate)) return generateArray(computation, candidate);
  if (candidate.kind === "lanes") return generateDesign(computation, candidate);
  if (candidate.kind === "loops") return loopCandidateKernel(computation, candidate);
  if (isOnGpu(candidate)) return generateOnGpu(choiceOnGpu(computation, candidate, machine), inStream);
  const mapping = mappingOf(computation, candidate);
  const { language, isa, name } = mapping.intrinsic;
  if (PRINTERS[language] === undefined || !isWritten(isa))
    throw new UsageError(
      language === "cuda"
        ? `${name} runs in blocks of a GPU, and this is the schedule of a CPU's loops`
        : `${name} is an instruction of ${isa}, which automap maps onto and writes no kernels for`,
      { hint: "automap map and explain show its mappings; --intrinsic portable maps onto plain C++" },
    );
  const problem = scheduleProblem(mapping, candidate.schedule);
  if (problem !== undefined)
    throw new UsageError(`the schedule does not fit ${computation.name} on ${name}: ${problem}`);
  return generate(candidate, mapping);
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

/** The kernel of a mapping, lowered under its schedule and printed. */
export function generate(candidate: MappedCandidate, mapping: Mapping): Kernel {
  const nest = lowerSchedule(mapping, candidate.schedule);
  const notes = [
    ...rewritingNotes(mapping),
    `mapping   ${printMatching(mapping.matching)}   waste ${(100 * mapping.waste).toFixed(1)} %`,
    `schedule  ${scheduleText(candidate)}`,
    `made by   automap ${VERSION}`,
  ];
  const print = PRINTERS[mapping.intrinsic.language];
  if (!print) throw new Error(`internal: no nest is printed in ${mapping.intrinsic.language}`);
  return print(mapping.computation, mapping.intrinsic, nest, { lines: notes });
}
