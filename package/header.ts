/**
 * @file The C header of a package.
 *
 *     int conv2d_create(conv2d_plan** plan, int which);
 *     int conv2d_run(conv2d_plan* plan, const uint8_t* in, int32_t* out);
 */

import { equationText } from "../abstraction/computation.ts";
import { type Code, code, comment, join, list, NOTHING } from "../abstraction/source-text.ts";
import { aboutParameter, type EmitSubject, namesOf, type Parameter, parametersOf, pointerTo } from "./subject.ts";

/** Messages for the return codes, in the order of the codes. */
export const MESSAGES = [
  ["OK", "ok"],
  ["NO_MEMORY", "no memory for the workspace"],
  ["UNSUPPORTED", "this CPU, or the system, lacks what the tuned kernel needs"],
  ["NOT_PREPARED", "run before prepare: the constants are not there yet"],
  ["NULL", "a pointer is null"],
  ["NO_THREAD", "a thread could not be started"],
] as const;

/** Parameter lists of run and prepare, each with the tensors of its role. */
export function signatures(parameters: readonly Parameter[]): { prepare: Code; run: Code } {
  const behind = (chosen: readonly Parameter[]): Code => join(chosen.map((p) => code`, ${pointerTo(p)}`));
  return {
    prepare: behind(parameters.filter((p) => p.role === "constant")),
    run: behind(parameters.filter((p) => p.role !== "constant")),
  };
}

/** The header. Parameter names are spelled as in the package's other public files (index.ts). */
export function headerText(subject: EmitSubject): Code {
  const { computation, tuned, threads, provenance } = subject;
  const { name, upper } = namesOf(subject);
  const parameters = parametersOf(computation);
  const constants = parameters.filter((p) => p.role === "constant");
  const { prepare, run } = signatures(parameters);
  return code`${comment([
    `${subject.name}: ${equationText(computation)}`,
    "",
    ...parameters.flatMap(aboutParameter),
    "",
    "Pointers need the alignment of their element type; with 64 bytes no load crosses a cache line. The output may not overlap an input. An element",
    "that the storage formula does not reach is neither read for its value nor promised to be kept.",
    "",
    tuned
      ? tuned.features.length === 0
        ? "The tuned kernel is plain C++ too and runs on every CPU."
        : `The tuned kernel needs ${tuned.features.join(", ")} and uses ${tuned.promises ?? "no special instruction"}; elsewhere the portable code runs.`
      : "There is no tuned kernel in this package: the portable code runs everywhere.",
    `A call uses ${threads === 1 ? "the thread that makes it" : `${threads} threads, started by create and ended by destroy`}. A plan serves one call at a time; make one for every thread that calls.`,
    "",
    ...provenance,
  ])}
#ifndef AUTOMAP_${upper}_H
#define AUTOMAP_${upper}_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ${upper}_API __attribute__((visibility("default")))

/* What a function returns; ${name}_message says it in words. */
enum { ${list(MESSAGES.map(([word], value) => code`${upper}_${word} = ${value}`))} };

/* Which code a plan runs: BEST is the tuned one where the CPU has what it needs. */
enum { ${upper}_BEST = 0, ${upper}_TUNED = 1, ${upper}_PORTABLE = 2 };

typedef struct ${name}_plan ${name}_plan;

/* Asks the CPU and allocates the workspace. */
${upper}_API int ${name}_create(${name}_plan** plan, int which);
${
  constants.length > 0
    ? code`/* Call it before the first run, and again whenever a constant has changed. Its arguments are packed or copied and may be freed. */
${upper}_API int ${name}_prepare(${name}_plan* plan${prepare});
`
    : NOTHING
}/* One call of the kernel. */
${upper}_API int ${name}_run(${name}_plan* plan${run});
/* Frees a plan; null is allowed. */
${upper}_API void ${name}_destroy(${name}_plan* plan);

/* ${upper}_TUNED or ${upper}_PORTABLE: what the plan runs. */
${upper}_API int ${name}_chosen(const ${name}_plan* plan);
/* What the tuned kernel needs and this machine lacks, words with spaces between; empty when nothing is missing. */
${upper}_API const char* ${name}_missing(void);
${upper}_API const char* ${name}_message(int code);

#ifdef __cplusplus
}
#endif
#endif
`;
}
