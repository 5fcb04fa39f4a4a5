/**
 * @file A kernel of the gallery in each language: its text or why there is none, where its computation stands under a machine's roofline, and what
 * its run says.
 */

import {
  type Candidate,
  type Computation,
  type Intrinsic,
  intrinsicsNamed,
  type Kernel,
  type KernelLanguage,
  type Measurement,
  nativeTarget,
  nvidiaTarget,
  predict,
  predictedGpuNamed,
  type Target,
} from "automap";
import { candidateInLanguage, judgeKernel, rooflineOn } from "automap/internals";
import { designInLanguage } from "automap/systolic";
import type { GalleryKernel } from "./kernels.ts";

/** A kernel in one language, on the instruction it is made of. */
export interface Printed {
  readonly kernel: Kernel;
  readonly computation: Computation;
  readonly row: Intrinsic;
  /** Undefined of a design on lanes. */
  readonly candidate: Candidate | undefined;
}

/** Engines of an Intel GPU that share a kernel here: so small a problem has no work for all. */
const ENGINES = 8;

/** The multiply-add that the lanes of a design run. */
const OF_LANES: Readonly<Record<KernelLanguage, string>> = {
  "c++": "avx512.fma.f32",
  cuda: "cuda.fma.f32",
  cm: "cm.fma.16.f32",
  opencl: "opencl.fma.f32",
  sycl: "sycl.fma.16.f32",
};

function rowNamed(name: string): Intrinsic {
  const [row] = intrinsicsNamed(name);
  if (!row) throw new Error(`no intrinsic ${name}`);
  return row;
}

/** The kernel in a language, or why there is none: what the first of its schedules says. */
export function printedIn(
  { computation, schedules, design }: GalleryKernel,
  language: KernelLanguage,
): Printed | { readonly refused: string } {
  if (design) {
    const kernel = designInLanguage(computation, design.spaceTime, language, design.loops);
    if ("refused" in kernel) return kernel;
    return { kernel, computation, row: rowNamed(OF_LANES[language]), candidate: undefined };
  }
  const said = schedules.map((candidate) => {
    const onCpu = language === "c++" || (language === "opencl" && rowNamed(candidate.intrinsic).family === "opencl");
    return candidateInLanguage(computation, sharedBy(candidate, onCpu ? 1 : ENGINES), language);
  });
  const found = said.find((one) => !("refused" in one));
  if (found && !("refused" in found)) return { ...found, row: rowNamed(found.candidate.intrinsic) };
  const [first] = said;
  return first && "refused" in first ? first : { refused: `${language}: there is no schedule` };
}

/** The schedule of a CPU's loops with its loops dealt to so many threads; others say themselves how many there are. */
const sharedBy = (candidate: Candidate, threads: number): Candidate =>
  candidate.kind === "mapping" ? { ...candidate, schedule: { ...candidate.schedule, threads } } : candidate;

/** Where a kernel would run: this CPU, an H100, an Intel GPU of its instruction's generation. */
function placeOf({ row }: Printed): { readonly machine: Target; readonly units: number; readonly called: string } {
  if (row.language === "cuda") return { machine: nvidiaTarget("h100"), units: 1, called: "h100" };
  const name = row.isa === "xe_hpg" ? "dg2" : row.isa === "xe_hpc" ? "pvc" : undefined;
  const machine = name === undefined ? undefined : predictedGpuNamed(name);
  return machine
    ? { machine, units: ENGINES, called: `${machine.name}, ${ENGINES} engines` }
    : { machine: nativeTarget(), units: 1, called: "this CPU, a core" };
}

/** `memory-bound, 1.3 us at least; predicted 2.1 us` on the machine that the kernel is for. */
export function rooflineText(printed: Printed): string {
  const { computation, candidate, row } = printed;
  const { machine, units, called } = placeOf(printed);
  const { bound, memory, ridge, seconds } = rooflineOn(computation, row, machine, units);
  const under = bound === "memory" ? `bound by ${memory}` : "bound by arithmetic";
  const least = `${called}: ${under} (ridge ${ridge.toPrecision(3)}), ${microseconds(seconds)} at least`;
  const expected = candidate && predict({ computation, candidate }, machine);
  return expected ? `${least}, predicted ${microseconds(expected.seconds)}` : least;
}

/** `measured 2.3 us, every element right`; `emulated, every element right`; that it was not run; or how it failed. */
export async function verdictText({ computation, kernel }: Printed): Promise<string> {
  const verdict = await judgeKernel(computation, kernel);
  return saidOf(verdict);
}

function saidOf(verdict: Measurement): string {
  switch (verdict.status) {
    case "ok":
      return `measured ${microseconds(verdict.median)}, every element right`;
    case "emulated":
      return "emulated, every element right";
    case "illegal-instruction":
      return "not run: this processor lacks an instruction of it";
    default:
      return `WRONG: ${verdict.status}: ${verdict.log}`;
  }
}

/** Operations a byte: the same on every machine. */
export const intensityOf = (computation: Computation): number =>
  rooflineOn(computation, rowNamed(OF_LANES["c++"]), nativeTarget()).intensity;

const microseconds = (seconds: number): string => `${(1e6 * seconds).toPrecision(3)} us`;
