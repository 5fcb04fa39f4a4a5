/**
 * @file From what is stored back to code: the kernel of a candidate, whatever kind of candidate it is.
 *
 *     kernelFor(computationOf(trial.workload), trial.candidate).source
 */

import type { Candidate } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import { UsageError } from "../abstraction/error.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import { compilerFeatures } from "../codegen/cpp.ts";
import { mappingOf } from "./recorded.ts";
import { generate } from "./tune.ts";

/** @throws UsageError when the candidate's mapping is no longer what it was, or its instruction is not one of an x86 CPU */
export function kernelFor(computation: Computation, candidate: Candidate): Kernel {
  const mapping = mappingOf(computation, candidate);
  const { language, isa, name } = mapping.intrinsic;
  if (language !== "c++" || compilerFeatures([isa]).length === 0)
    throw new UsageError(`${name} is an instruction of ${isa}; kernels are written for x86 CPUs so far`, {
      hint: "automap map and explain show its mappings; --portable writes plain C++ of an operator",
    });
  return generate(candidate, mapping);
}
