/**
 * @file Mappings with loops around them, on the cores of a processor, as a session's search sees them.
 *
 *     generate(candidate, mapping).source        the kernel in the language of its instruction
 */

import type { MappedCandidate } from "../../abstraction/candidate.ts";
import { internal, UsageError } from "../../abstraction/error.ts";
import type { Language } from "../../abstraction/intrinsic.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { type Mapping, printMatching } from "../../abstraction/mapping.ts";
import { generateCm } from "../../codegen/cm/cm.ts";
import { generateCpp } from "../../codegen/cpp/cpp.ts";
import { generateOpenCl } from "../../codegen/subgroup/opencl.ts";
import { generateSycl } from "../../codegen/subgroup/sycl.ts";
import { lowerSchedule } from "../../mapper/lower/scheduled.ts";
import { scheduleProblem } from "../../mapper/schedule/mapped.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import { scheduleText } from "../../report/describe-candidate.ts";
import { isWritten } from "../../targets/features.ts";
import { isGpu } from "../../targets/index.ts";
import { candidateSpace } from "../../tuner/candidates.ts";
import { mappingOf, rewritingNotes } from "../recorded.ts";
import { learntParts } from "../tune/learner.ts";
import { predictorFor } from "../tune/predict.ts";
import { MADE_BY } from "../version.ts";
import { isRefusals, type SessionKind } from "./session-space.ts";

/** Printers, by language, for the nest of a mapping under a {@link Schedule}. */
const PRINTERS: Readonly<Partial<Record<Language, typeof generateCpp>>> = {
  "c++": generateCpp,
  cm: generateCm,
  opencl: generateOpenCl,
  sycl: generateSycl,
};

/** Whether nests under a {@link Schedule} can be printed in a language. */
export const isPrinted = (language: Language): boolean => PRINTERS[language] !== undefined;

export const MAPPING: SessionKind<MappedCandidate> = {
  kind: "mapping",
  family: "mapping",
  isFor: (_, machine) => !isGpu(machine),
  *spaceOf({ computation, intrinsics, threads, seed, keeps, machine, calibration }) {
    const predictor = predictorFor(calibration, machine);
    const space = yield* candidateSpace(
      computation,
      intrinsics,
      (mapping, schedule) => predictor.predict(mapping, schedule)?.seconds,
      threads,
      seed,
      modelTarget(machine, calibration).memory[0]?.bytes,
      keeps,
    );
    if (isRefusals(space)) return space;
    return {
      kind: "mapping",
      space,
      intrinsics: space.ranked.map(({ context }) => context.mapping.intrinsic),
      model: learntParts(
        (c) => predictor.costs(space.mappingOf(c), c.schedule),
        (c, correction) => predictor.predict(space.mappingOf(c), c.schedule, { correction }),
      ),
      mappingOf: (c) => space.mappingOf(c),
      kernelOf: (c) => generate(c, space.mappingOf(c)),
      carried: (c, from) => (c.kind === "mapping" ? space.carried(c, from) : undefined),
    };
  },
  kernelOf: (computation, candidate) => {
    const mapping = mappingOf(computation, candidate);
    const { language, isa, name } = mapping.intrinsic;
    if (!isPrinted(language) || !isWritten(isa))
      throw new UsageError(
        language === "cuda"
          ? `${name} runs in blocks of a GPU, and this is the schedule of a CPU's loops`
          : `${name} is an instruction of ${isa}, which automap maps onto and writes no kernels for`,
        "automap map and explain show its mappings; --intrinsic portable maps onto plain C++",
      );
    const problem = scheduleProblem(mapping, candidate.schedule);
    if (problem !== undefined)
      throw new UsageError(`the schedule does not fit ${computation.name} on ${name}: ${problem}`);
    return generate(candidate, mapping);
  },
  predict: (computation, candidate, { machine, calibration }) =>
    predictorFor(calibration, machine).predict(mappingOf(computation, candidate), candidate.schedule),
};

/** The kernel of a mapping, lowered under its schedule and printed. */
export function generate(candidate: MappedCandidate, mapping: Mapping): Kernel {
  const nest = lowerSchedule(mapping, candidate.schedule);
  const notes = [
    ...rewritingNotes(mapping),
    `mapping   ${printMatching(mapping.matching)}   waste ${(100 * mapping.waste).toFixed(1)} %`,
    `schedule  ${scheduleText(candidate)}`,
    MADE_BY,
  ];
  const print = PRINTERS[mapping.intrinsic.language] ?? internal(`no nest is printed in ${mapping.intrinsic.language}`);
  return print(mapping.computation, mapping.intrinsic, nest, { lines: notes });
}
