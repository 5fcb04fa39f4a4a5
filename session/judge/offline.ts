/**
 * @file Compiles kernels for an unavailable GPU with its vendor's offline compiler. A kernel that spills is dropped and reported.
 *
 *     const { kept, dropped } = await firstThatCompiles(conv2d, rankByModel(conv2d, { machine: DG2 }), DG2);
 *     kept?.kernel.source            OpenCL C
 *     dropped[0]?.why                "spilled: warning: kernel automap_phase_1 compiled SIMD8 allocated 128 regs and spilled around 26"
 */

import { withName } from "../../abstraction/collections.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { UsageError } from "../../abstraction/error.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { Target } from "../../abstraction/machine.ts";
import { compileForIntel, findOcloc, type IntelBuild, type IsaFunction, promisedDpas } from "../../runtime/ocloc.ts";
import { isPredictedOnly, oclocDevice } from "../../targets/index.ts";
import { kernelFor } from "../kinds/kernel.ts";
import type { Expected } from "../tune/rank.ts";

/** A candidate whose kernel compiles as intended. */
export interface Kept {
  readonly expected: Expected;
  readonly kernel: Kernel;
  /** Its compiled functions, if it was compiled. */
  readonly functions?: readonly IsaFunction[];
}

export interface Compiled {
  readonly kept: Kept | undefined;
  readonly dropped: readonly { readonly expected: Expected; readonly why: string }[];
  /** Why kernels were not compiled. */
  readonly unchecked?: string;
}

/**
 * The first of the candidates whose kernel compiles for a machine, if there is a compiler that does not need the machine; else the first
 * candidate.
 */
export async function firstThatCompiles(
  computation: Computation,
  ranked: readonly Expected[],
  machine: Target,
): Promise<Compiled> {
  const device = oclocDevice(machine);
  const ocloc = device === undefined ? undefined : findOcloc();
  const dropped: { expected: Expected; why: string }[] = [];
  for (const expected of ranked) {
    const kernel = writtenKernel(computation, expected, machine);
    if (typeof kernel === "string") {
      dropped.push({ expected, why: kernel });
      continue;
    }
    const unchecked = isPredictedOnly(machine) ? whyUnchecked(kernel, machine, ocloc) : undefined;
    if (ocloc === undefined || device === undefined || unchecked !== undefined)
      return { kept: { expected, kernel }, dropped, ...(unchecked !== undefined && { unchecked }) };
    const built = await compileForIntel(kernel, device, ocloc);
    const why = problemOf(kernel, built);
    if (built.status === "compiled" && why === undefined)
      return { kept: { expected, kernel, functions: built.functions }, dropped };
    dropped.push({ expected, why: why ?? built.status });
  }
  return { kept: undefined, dropped };
}

/** The kernel of a candidate, or why its language cannot express it. */
export function writtenKernel(computation: Computation, { candidate }: Expected, machine: Target): Kernel | string {
  try {
    return kernelFor(computation, candidate, machine);
  } catch (error) {
    if (isPredictedOnly(machine) && error instanceof UsageError) return error.message;
    throw error;
  }
}

function whyUnchecked({ language }: Kernel, machine: Target, ocloc: string | undefined): string | undefined {
  if (oclocDevice(machine) === undefined) return `not compiled: no compiler here knows ${machine.name}`;
  if (language !== "opencl")
    return `not compiled: ocloc, which tells kernels that spill, takes OpenCL C and not ${language}`;
  return ocloc === undefined
    ? "not compiled: no ocloc here, which tells kernels that spill (Debian: intel-opencl-icd)"
    : undefined;
}

/** Why a compiled kernel is not as intended; undefined when it is. */
export function problemOf(kernel: Kernel, built: IntelBuild): string | undefined {
  if (built.status !== "compiled") return `${built.status}: ${built.log}`;
  const wrong = [...promisedDpas(kernel)].flatMap(([name, promised]) => {
    const dpas = withName(built.functions, name)?.dpas ?? 0;
    return dpas === promised ? [] : [`${name} holds ${dpas} dpas, its text issues ${promised}`];
  });
  return wrong.length > 0 ? `instruction missing: ${wrong.join("; ")}` : undefined;
}
