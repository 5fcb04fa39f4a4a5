/**
 * @file Which instructions a search may choose from on a machine, and the space over the first of them that map.
 *
 *     usableIntrinsics(nvidiaTarget("h100"))                            mma, wgmma, those of one thread
 *     finished(chooseSpace(conv2d, usableIntrinsics(), options))        instructions first; plain C++ where none maps
 */

import type { Computation } from "../abstraction/computation.ts";
import { isRecurrent } from "../abstraction/dependence.ts";
import type { Intrinsic, Language } from "../abstraction/intrinsic.ts";
import type { KernelLanguage } from "../abstraction/kernel.ts";
import type { Target } from "../abstraction/machine.ts";
import type { Steps } from "../abstraction/steps.ts";
import { knownIntrinsics } from "../intrinsics/index.ts";
import { searchedWgmma } from "../intrinsics/wgmma.ts";
import { isGpu, isPredictedOnly, isWritten, nativeTarget, OPENCL_ISA, PORTABLE_ISA, runsOn } from "../targets/index.ts";
import type { Reason, SessionSpace, SessionSpaceOptions } from "./session-space.ts";
import { isRefusals, sessionSpace } from "./space.ts";

/** The instructions, of the table or registered, that a machine has and that kernels are written with. */
export function nativeIntrinsics(machine: Target = nativeTarget()): Intrinsic[] {
  return usableIntrinsics(machine).filter((i) => !isPlain(i));
}

/** All that kernels for a machine can be written with: its instructions, then plain C++, which needs none; on a GPU those of a thread, warp or warpgroup.
 * @param asked the language they are reached from; the machine's own when left out
 */
export function usableIntrinsics(machine: Target = nativeTarget(), asked?: Language): Intrinsic[] {
  if (isGpu(machine) && (asked ?? "cuda") === "cuda")
    return [...new Set([...knownIntrinsics(), ...searchedWgmma()])].filter(
      (i) => i.language === "cuda" && i.scope !== "subgroup" && runsOn(machine, i),
    );
  const languages = languagesFor(machine);
  const language = asked ?? languages[0];
  if (!languages.some((l) => l === language)) return [];
  return knownIntrinsics().filter((i) => i.language === language && runsOn(machine, i) && isWritten(i.isa));
}

/** What kernels for a machine are written in, the first when none is asked for. */
export function languagesFor(machine: Target): readonly [KernelLanguage, ...KernelLanguage[]] {
  if (isGpu(machine)) return ["cuda"];
  if (isPredictedOnly(machine)) return ["opencl", "cm", "sycl"];
  return machine.isa.includes(OPENCL_ISA) ? ["opencl"] : ["c++"];
}

/** Whether a row is plain C++ and no instruction. */
export function isPlain({ isa }: Intrinsic): boolean {
  return isa === PORTABLE_ISA;
}

/**
 * What is tried before what: instructions, then products in plain C++. A sum or a copy of what is computed while it is packed maps almost
 * anything and writes every term to memory first, so it comes last.
 */
function tiersOf(intrinsics: readonly Intrinsic[]): readonly (readonly Intrinsic[])[] {
  const plain = intrinsics.filter(isPlain);
  const tiers = [
    intrinsics.filter((i) => !isPlain(i)),
    plain.filter((i) => i.operands.length > 2),
    plain.filter((i) => i.operands.length <= 2),
  ];
  return tiers.filter((tier) => tier.length > 0);
}

/**
 * The space of a computation over the first tier of instructions that maps: a search that has an instruction spends no trial on plain C++.
 * @returns the instructions to choose from with it, and the steps that were made before it was looked for; or why nothing maps
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
  const tiers = tiersOf(intrinsics);
  // What refers to itself runs on lanes alone: what plain C++ would be refused for says nothing more.
  for (const chosen of isRecurrent(computation.equation) ? tiers.slice(0, 1) : tiers) {
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
