/**
 * @file Whether the compiler really used the instruction a mapping promised.
 *
 *     await countInstruction("kernel.so", "vpdpbusd")      { status: "counted", count: 24 }
 */

import { explainRun, findProgram, runChild } from "./child.ts";

export type InstructionCount =
  | { readonly status: "counted"; readonly count: number }
  | { readonly status: "unknown"; readonly reason: string };

const DISASSEMBLERS = ["objdump", "llvm-objdump"];

/** The program that disassembles, or undefined when none is installed. */
export function findDisassembler(path?: string): string | undefined {
  return DISASSEMBLERS.map((name) => findProgram(name, path)).find((found) => found !== undefined);
}

/** How often an instruction stands in the code of a shared object. */
export async function countInstruction(
  sharedObject: string,
  mnemonic: string,
  path?: string,
): Promise<InstructionCount> {
  const disassembler = findDisassembler(path);
  if (disassembler === undefined)
    return {
      status: "unknown",
      reason: `neither ${DISASSEMBLERS.join(" nor ")} is installed (apt-get install binutils)`,
    };
  const run = await runChild([disassembler, "-d", "--no-show-raw-insn", sharedObject], { timeLimitMs: 30_000 });
  if (run.status !== "ok") return { status: "unknown", reason: `${explainRun(run)}: ${run.stderr.trim()}` };
  return { status: "counted", count: countMnemonic(run.stdout, mnemonic) };
}

/** Lines of a listing that hold the instruction; `{evex}` and `lock` may stand before it. */
export function countMnemonic(listing: string, mnemonic: string): number {
  const wanted = withoutOperandOrder(mnemonic);
  let count = 0;
  for (const line of listing.split("\n")) {
    const code = /^\s*[0-9a-f]+:\s+(.*)$/.exec(line)?.[1];
    if (code?.split(/\s+/, 3).some((word) => withoutOperandOrder(word) === wanted)) count++;
  }
  return count;
}

/** `vfmadd132ps`, `vfmadd213ps` and `vfmadd231ps` are one instruction with its operands in another order: the compiler's choice. */
function withoutOperandOrder(mnemonic: string): string {
  return mnemonic.replace(/^(vfn?m(?:add|sub|addsub|subadd))(?:132|213|231)/, "$1");
}
