/**
 * @file One candidate in several languages: the same mapping under the same schedule, on each language's instruction with the same meaning.
 *
 *     kernelInLanguage(matmul, candidate, "sycl")        a kernel whose source is SYCL
 *     kernelInLanguage(matmul, candidate, "cuda")        { refused: "cuda: no instruction computes c[m,n] += ... with m 8, n 16, k 16" }
 */

import { type Candidate, isMapped, isMappedOnGpu } from "../../abstraction/candidate.ts";
import { sortedBy } from "../../abstraction/collections.ts";
import { type Computation, extentsOf } from "../../abstraction/computation.ts";
import { attempt } from "../../abstraction/error.ts";
import { printEquation } from "../../abstraction/expression.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { Kernel, KernelLanguage } from "../../abstraction/kernel.ts";
import type { SpaceTime } from "../../abstraction/recurrence.ts";
import { INTRINSICS } from "../../intrinsics/index.ts";
import { declaredAs } from "../package/declared.ts";
import { arrayKernel, judgeArray } from "../systolic.ts";
import { type ArrayLoops, arrayOfComputation } from "./array-subject.ts";
import { kernelFor } from "./kernel.ts";
import { isPrinted } from "./mapping-kind.ts";

/** Why a language has no such kernel. */
export interface NotInLanguage {
  readonly refused: string;
}

/** A candidate on an instruction of the language, and its kernel. */
export interface InLanguage {
  readonly computation: Computation;
  readonly candidate: Candidate;
  readonly kernel: Kernel;
}

/**
 * The kernel of a candidate in a language. Among the language's instructions with the same meaning, those that need the candidate's own feature
 * come first. The first one whose kernel can be generated is used.
 * @returns the kernel, or why the language has none
 */
export function kernelInLanguage(
  computation: Computation,
  candidate: Candidate,
  language: KernelLanguage,
): Kernel | NotInLanguage {
  const found = candidateInLanguage(computation, candidate, language);
  return "refused" in found ? found : found.kernel;
}

/** {@link kernelInLanguage}, with the candidate on the instruction that was used. */
export function candidateInLanguage(
  computation: Computation,
  candidate: Candidate,
  language: KernelLanguage,
): InLanguage | NotInLanguage {
  const refused = (because: string): NotInLanguage => ({ refused: `${language}: ${because}` });
  if (!isMapped(candidate)) return refused("only a mapping under the schedule of a CPU changes its language");
  const own = declaredAs(candidate.intrinsic);
  const isGrid = isMappedOnGpu(candidate);
  if (isGrid && own.language !== language)
    return refused("the schedule deals work to blocks and warps, which only CUDA kernels have");
  const rows =
    own.language === language
      ? [own]
      : INTRINSICS.filter((row) => row.language === language && computesTheSame(row, own));
  const extents = Object.entries(extentsOf(own.computation)).map(([name, extent]) => `${name} ${extent}`);
  if (rows.length === 0)
    return refused(`no instruction computes ${meaningOf(own)} with ${extents.join(", ") || "one element"}`);
  if (!isGrid && !isPrinted(language))
    return refused("its threads are dealt by the schedule of a grid, and this candidate has none");
  const reasons: string[] = [];
  for (const row of sortedBy(rows, (a) => -Number(a.isa === own.isa))) {
    if (!isGrid && row.operands.some((o) => o.load === undefined)) {
      reasons.push(`${row.name} has no loads: it is mapped and proved, and no kernels are written with it`);
      continue;
    }
    const there: Candidate = { ...candidate, intrinsic: row.name };
    const kernel = attempt(
      () => kernelFor(computation, there),
      ({ message }) => void reasons.push(`${row.name}: ${message}`),
    );
    if (kernel) return { computation, candidate: there, kernel };
  }
  return refused(reasons.join("; "));
}

/**
 * The kernel of a design on lanes in a language: the whole computation, with the array inside its loops.
 * @param spaceTime where each point of the array's loops runs, and when
 * @param loops the loops of the array, and the outputs of a tile
 * @returns the kernel, or why the transform is no design or the language cannot run it
 * @throws UsageError for a computation without a uniform recurrence
 */
export function designInLanguage(
  computation: Computation,
  spaceTime: SpaceTime,
  language: KernelLanguage,
  loops: ArrayLoops = {},
): Kernel | NotInLanguage {
  const subject = arrayOfComputation(computation, loops);
  const judged = judgeArray(subject, spaceTime, undefined);
  if ("refusal" in judged) return { refused: `${language}: ${judged.refusal.because}` };
  return attempt(
    () => arrayKernel(subject, judged.design, language, { coalesced: true }, "made by designInLanguage"),
    ({ message }) => ({ refused: `${language}: ${message}` }),
  );
}

/** An instruction's equation with the types of its operands. */
function meaningOf({ computation, operands }: Intrinsic): string {
  return `${printEquation(computation.equation)} of ${operands.map((o) => `${o.name} ${o.dtype}`).join(", ")}`;
}

function computesTheSame(a: Intrinsic, b: Intrinsic): boolean {
  const left = extentsOf(a.computation);
  const right = extentsOf(b.computation);
  return meaningOf(a) === meaningOf(b) && Object.keys(left).every((axis) => left[axis] === right[axis]);
}
