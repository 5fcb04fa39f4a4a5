/**
 * @file Kernels in OpenCL C and SYCL for tests: those of some schedules of a computation, and what they give under
 * emulation beside the equation.
 */

import type { Candidate } from "../../abstraction/candidate.ts";
import { type Computation, outputOf } from "../../abstraction/computation.ts";
import { interpret } from "../../abstraction/interpret.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { finished } from "../../abstraction/steps.ts";
import { INTRINSICS } from "../../intrinsics/index.ts";
import { type EmulatedJob, runEmulated } from "../../runtime/emulated-kernel.ts";
import { toMemory } from "../../runtime/reference/verify.ts";
import { isRefusals } from "../../session/kinds/session-space.ts";
import { sessionSpace } from "../../session/kinds/space.ts";
import { inMemory, smallIntegers } from "./subjects.ts";

/** Rows of a language that ask for a feature. */
export const rowsOf = (isa: string, language: Intrinsic["language"] = "opencl"): readonly Intrinsic[] =>
  INTRINSICS.filter((row) => row.language === language && row.isa === isa);

export interface Made {
  readonly computation: Computation;
  readonly candidate: Candidate;
  readonly kernel: Kernel;
}

/** Kernels of random schedules, no two alike. @throws Error where nothing maps */
export function kernelsOf(
  computation: Computation,
  rows: readonly Intrinsic[],
  count: number,
  seed = 1,
): readonly Made[] {
  const space = finished(sessionSpace(computation, { intrinsics: rows, threads: 3, seed }));
  if (isRefusals(space)) throw new Error(`${computation.name}: ${space[0]?.because}`);
  const random = seededRandom(seed);
  const made = new Map<string, Made>();
  for (let tries = 0; made.size < count && tries < 20 * count; tries++) {
    const candidate = space.random(random);
    const key = space.key(candidate);
    if (!made.has(key)) made.set(key, { computation, candidate, kernel: space.kernelOf(candidate) });
  }
  return [...made.values()];
}

/** The errors of each kernel under emulation, with lanes forward and reversed in turn; empty where all equal the equation. */
export async function disagreements(made: readonly Made[]): Promise<readonly string[]> {
  const inputs = new Map(made.map(({ computation }) => [computation, smallIntegers(computation)]));
  const jobs = made.map(
    ({ computation, kernel }, i): EmulatedJob => ({
      kernel,
      inputs: inMemory(computation, inputs.get(computation) ?? {}),
      order: { threads: i % 2 === 0 ? "forward" : "reversed", copies: "early" },
    }),
  );
  const runs = await runEmulated(jobs, { batch: 20 });
  const wanted = new Map<Computation, Float64Array>();
  return made.flatMap(({ computation, candidate }, i) => {
    const run = runs[i];
    const text = `${computation.name} ${JSON.stringify(candidate)}`;
    if (run?.status !== "ok") return [`${text}: ${run?.status} ${run?.log.slice(0, 600)}`];
    const want =
      wanted.get(computation) ?? toMemory(outputOf(computation), interpret(computation, inputs.get(computation) ?? {}));
    wanted.set(computation, Float64Array.from(want));
    const at = [...want].findIndex((value, e) => run.output[e] !== value);
    return at < 0 ? [] : [`${text}: element ${at} is ${run.output[at]}, the equation gives ${want[at]}`];
  });
}
