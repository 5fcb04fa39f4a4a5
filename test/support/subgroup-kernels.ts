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
import { inMemory, operation, smallIntegers } from "./subjects.ts";

/** Devices, and the feature that their rows ask for. */
export const DEVICES = [
  ["dg2", "xe_hpg"],
  ["pvc", "xe_hpc"],
] as const;

/** Overflows 32 bits, which ends an emulated program unless it is written as unsigned arithmetic. */
const WRAPPING = "y[n,k,p,q] = square(out[n,k,p,q] * 70000) - abs(out[n,k,p,q]) * 2000000000";
/** Sizes of which none is a multiple of a tile. */
export const COMPUTATIONS = [
  operation("matmul m=21 n=19 k=37", "f16"),
  operation("matmul m=21 n=19 k=37", "u8s8", { epilogue: "y[m,n] = sat_u8(round(max(f32(out[m,n]) * 0.5, 0)))" }),
  operation("batched-matmul b=2 m=9 n=17 k=18", "bf16"),
  operation("conv1d c=5 l=23 k=9 r=3 pad=2 dilation=2", "f16"),
  operation("conv2d c=5 h=7 w=9 k=9 r=3 s=3 pad=1 stride=2", "s8", { epilogue: WRAPPING }),
  operation("conv2d c=4 h=7 w=9 k=17 r=3 s=3 pad=1", "u8s8"),
];

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
