/**
 * @file Selects the instructions a search may use on a machine, and builds the space over the first group of them that maps.
 *
 *     usableIntrinsics(nvidiaTarget("h100"))                            mma, wgmma, those of one thread
 *     finished(chooseSpace(conv2d, usableIntrinsics(), options))        instructions first; plain C++ where none maps
 */

import { unique } from "../../abstraction/collections.ts";
import { type Computation, summedIn, tensorOf } from "../../abstraction/computation.ts";
import { isRecurrent } from "../../abstraction/dependence.ts";
import { accessesIn, axesIn } from "../../abstraction/expression.ts";
import type { Intrinsic, Language } from "../../abstraction/intrinsic.ts";
import type { KernelLanguage } from "../../abstraction/kernel.ts";
import type { Target } from "../../abstraction/machine.ts";
import type { Steps } from "../../abstraction/steps.ts";
import { knownIntrinsics } from "../../intrinsics/index.ts";
import { isLoops, LOOPS } from "../../intrinsics/loops.ts";
import { THREAD } from "../../intrinsics/thread.ts";
import { searchedWgmma } from "../../intrinsics/wgmma.ts";
import { strideAlong } from "../../mapper/schedule/dense-runs.ts";
import {
  isGpu,
  isPredictedOnly,
  isWritten,
  nativeTarget,
  OPENCL_ISA,
  PORTABLE_ISA,
  runsOn,
} from "../../targets/index.ts";
import { isRefusals, type Reason, type SessionSpace, type SessionSpaceOptions } from "./session-space.ts";
import { sessionSpace } from "./space.ts";

/** The instructions, built in or registered, that a machine has and that kernels can be generated for. @param machine this one when left out */
export function nativeIntrinsics(machine: Target = nativeTarget()): Intrinsic[] {
  return usableIntrinsics(machine).filter((i) => !isPlain(i));
}

/**
 * All rows that kernels for a machine can use. On a CPU: its instructions, then plain C++, which needs none. On a GPU: those of a thread, a warp
 * or a warpgroup, then plain CUDA.
 * @param asked the language to generate; the machine's own when left out
 */
export function usableIntrinsics(machine: Target = nativeTarget(), asked?: Language): Intrinsic[] {
  if (isGpu(machine) && (asked ?? "cuda") === "cuda")
    return unique([...knownIntrinsics(), ...searchedWgmma(), THREAD]).filter(
      (i) => i.language === "cuda" && i.scope !== "subgroup" && runsOn(machine, i),
    );
  const languages = languagesFor(machine);
  const language = asked ?? languages[0];
  if (!languages.some((l) => l === language)) return [];
  return writtenFor(machine, language);
}

/** Languages that kernels for a machine can be generated in. The first is the default. */
export function languagesFor(machine: Target): readonly [KernelLanguage, ...KernelLanguage[]] {
  if (isGpu(machine)) return ["cuda"];
  if (isPredictedOnly(machine)) {
    const others = (["cm", "sycl"] as const).filter((language) => writtenFor(machine, language).length > 0);
    return ["opencl", ...others];
  }
  return machine.isa.includes(OPENCL_ISA) ? ["opencl"] : ["c++"];
}

/** The rows of a language with which kernels for a machine can be written. A CM row without loads is only mapped, and used by designs on lanes. */
function writtenFor(machine: Target, language: Language): Intrinsic[] {
  return [...knownIntrinsics(), ...LOOPS].filter(
    (i) =>
      i.language === language &&
      runsOn(machine, i) &&
      isWritten(i.isa) &&
      (language !== "cm" || i.operands.every((o) => o.load !== undefined)),
  );
}

/** Whether a row stands for plain C++ rather than an instruction. */
export function isPlain(row: Intrinsic): boolean {
  return row.isa === PORTABLE_ISA || isLoops(row);
}

/** Whether an instruction's results cost more to store than their bytes: `avx512.fma.f32.inner` adds up the lanes of a vector. */
const addsLanes = ({ cost }: Intrinsic): boolean => cost?.storeCycles !== undefined;

/**
 * Whether each factor has a summed axis innermost and comes anew with each call. Otherwise a factor lies as a vector of kept elements, or is packed
 * so ahead of time, and adding lanes up gains nothing.
 */
function isSummedInnermost(computation: Computation): boolean {
  const summed = summedIn(computation.axes);
  return accessesIn(computation.equation.value).every((access) => {
    const tensor = tensorOf(computation, access.tensor);
    return !tensor.constant && summed.some((a) => strideAlong(access, tensor, a.name) === 1);
  });
}

/**
 * Whether some constant factors are shared by groups of summed elements, as scales of weights are. What a load makes of weights is then the same in
 * all lanes of a sum.
 */
function isScaledByGroups(computation: Computation): boolean {
  const constants = accessesIn(computation.equation.value).filter((a) => tensorOf(computation, a.tensor).constant);
  const summed = constants.map((a) => {
    const axes = axesIn(a);
    return computation.axes.filter(({ name, kind }) => kind === "reduce" && axes.includes(name)).length;
  });
  return Math.min(...summed) < Math.max(...summed);
}

/**
 * Groups in the order they are tried: instructions, then products in plain C++, then rows that only add or copy values computed during packing.
 * The last group maps almost anything, but writes every term to memory first. Plain loops belong to no group: they join one in which mappings fail.
 */
export function tiersOf(computation: Computation, intrinsics: readonly Intrinsic[]): readonly (readonly Intrinsic[])[] {
  const plain = intrinsics.filter((i) => isPlain(i) && !isLoops(i));
  const instructions = intrinsics.filter((i) => !isPlain(i));
  const adds = isSummedInnermost(computation) || isScaledByGroups(computation);
  const others = adds ? instructions : instructions.filter((i) => !addsLanes(i));
  const tiers = [
    others.length > 0 ? others : instructions,
    plain.filter((i) => i.operands.length > 2),
    plain.filter((i) => i.operands.length <= 2),
  ];
  return tiers.filter((tier) => tier.length > 0);
}

/**
 * The search space of a computation over the first group of instructions that maps. A search that has an instruction spends no trial on plain
 * C++.
 * @returns the instructions offered besides the space, and the enumeration steps made before the space was found; or why nothing maps
 */
export function* chooseSpace(
  computation: Computation,
  intrinsics: readonly Intrinsic[],
  options: Omit<SessionSpaceOptions, "intrinsics">,
): Steps<
  | { readonly space: SessionSpace; readonly chosen: readonly Intrinsic[]; readonly before: number }
  | { readonly refused: readonly Reason[] }
> {
  const refused: Reason[] = [];
  let before = 0;
  const tiers = tiersOf(computation, intrinsics);
  const loops = intrinsics.filter(isLoops);
  // On a GPU windows on lanes are never slower than plain loops on threads.
  const beside = loops.includes(THREAD) ? [] : loops;
  // A computation that reads its own result runs on lanes or in plain loops. Refusals of rows of plain C++ would add nothing.
  const mapped = isRecurrent(computation.equation) ? tiers.slice(0, 1) : tiers;
  for (const chosen of [...mapped.map((tier) => [...tier, ...beside]), ...(loops.length > 0 ? [loops] : [])]) {
    const work = sessionSpace(computation, { ...options, intrinsics: chosen });
    let made = 0;
    let next = work.next(false);
    for (; !next.done; made++) next = work.next(yield next.value);
    if (!isRefusals(next.value)) return { space: next.value, chosen, before };
    refused.push(...next.value);
    before += made;
  }
  return { refused: refused.filter((r, i) => refused.findIndex((other) => other.because === r.because) === i) };
}
