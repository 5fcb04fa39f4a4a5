/**
 * @file Kernels in OpenCL C and SYCL for tests: those of some schedules of a computation, and what they give under
 * emulation beside the equation.
 */

import type { Candidate } from "../../abstraction/candidate.ts";
import { type Computation, elementCount, inputsOf, outputOf } from "../../abstraction/computation.ts";
import type { DType } from "../../abstraction/dtype.ts";
import { type Inputs, interpret } from "../../abstraction/interpret.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { type Random, randomInteger, seededRandom } from "../../abstraction/random.ts";
import { finished } from "../../abstraction/steps.ts";
import { INTRINSICS } from "../../intrinsics/index.ts";
import { instantiate, operatorNamed, parseDataTypes } from "../../operators/index.ts";
import { type EmulatedJob, runEmulated } from "../../runtime/emulated-kernel.ts";
import { toMemory } from "../../runtime/verify.ts";
import { isRefusals, sessionSpace } from "../../session/space.ts";

/** Rows of a language that ask for a feature. */
export const rowsOf = (isa: string, language: Intrinsic["language"] = "opencl"): readonly Intrinsic[] =>
  INTRINSICS.filter((row) => row.language === language && row.isa === isa);

export const operator = (name: string, types: string, parameters: Record<string, number>, epilogue?: string) =>
  instantiate(operatorNamed(name), { parameters, types: parseDataTypes(types), ...(epilogue && { epilogue }) });

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

/** Small integers: every sum is exact in f32, in whatever order. */
function inputsFor(computation: Computation, random: Random = seededRandom(3)): Inputs {
  const least = (dtype: DType): number => (dtype.startsWith("u") ? 0 : -3);
  return Object.fromEntries(
    inputsOf(computation).map((t) => [
      t.name,
      Float64Array.from({ length: elementCount(t) }, () => randomInteger(random, least(t.dtype), 3)),
    ]),
  );
}

/** The errors of each kernel under emulation, with lanes forward and reversed in turn; empty where all equal the equation. */
export async function disagreements(made: readonly Made[]): Promise<readonly string[]> {
  const inputs = new Map(made.map(({ computation }) => [computation, inputsFor(computation)]));
  const inMemory = (computation: Computation): Inputs =>
    Object.fromEntries(
      inputsOf(computation).map((t) => [t.name, toMemory(t, inputs.get(computation)?.[t.name] ?? [], () => 0)]),
    );
  const jobs = made.map(
    ({ computation, kernel }, i): EmulatedJob => ({
      kernel,
      inputs: inMemory(computation),
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
      wanted.get(computation) ??
      toMemory(outputOf(computation), interpret(computation, inputs.get(computation) ?? {}), () => 0);
    wanted.set(computation, Float64Array.from(want));
    const at = [...want].findIndex((value, e) => run.output[e] !== value);
    return at < 0 ? [] : [`${text}: element ${at} is ${run.output[at]}, the equation gives ${want[at]}`];
  });
}
