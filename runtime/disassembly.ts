/**
 * @file Checks that the compiled code contains the instruction that a mapping promises.
 *
 *     await countInstruction("kernel.so", "vpdpbusd")      24
 */

import { EnvironmentError } from "../abstraction/error.ts";
import { type ChildRun, explainRun, findProgram, runChild } from "./child.ts";
import { toolProblem } from "./environment.ts";

const DISASSEMBLERS = ["objdump", "llvm-objdump"];

/** The path of a disassembler, or undefined if none is installed. */
export function findDisassembler(path?: string): string | undefined {
  return DISASSEMBLERS.map((name) => findProgram(name, path)).find((found) => found !== undefined);
}

/** The path of a disassembler. @throws EnvironmentError if none is installed */
export function requireDisassembler(): string {
  const found = findDisassembler();
  if (found !== undefined) return found;
  throw new EnvironmentError({
    what: `neither ${DISASSEMBLERS.join(" nor ")} is on the PATH`,
    why: WHY,
    remedy: "install binutils (apt-get install binutils)",
  });
}

const WHY = "a kernel counts only when the instruction its mapping promised is found in what the compiler made of it";

/**
 * Counts an instruction in the code of a shared object.
 * @param cpus processors for the disassembler; by default any
 * @param disassembler for code of another processor
 * @throws EnvironmentError if disassembly fails here, which says nothing about the kernel
 */
export async function countInstruction(
  sharedObject: string,
  mnemonic: string,
  cpus?: readonly number[],
  disassembler: string = requireDisassembler(),
): Promise<number> {
  const run = await runChild([disassembler, "-d", "--no-show-raw-insn", sharedObject], { timeLimitMs: 30_000, cpus });
  if (run.status === "ok") {
    const count = countMnemonic(run.stdout, mnemonic);
    if (count > 0 || !run.stdout.includes("(bad)")) return count;
    throw new EnvironmentError({
      what: `${disassembler} does not know all instructions of a kernel, and finds no ${mnemonic}`,
      why: WHY,
      remedy: "install binutils as new as the compiler, or llvm-objdump",
    });
  }
  throw undisassembled(run, sharedObject);
}

/** The fault of a disassembler that did not list a file, or not all of it. */
export function undisassembled(run: ChildRun, file: string): EnvironmentError {
  return (
    toolProblem(run, "disassembling") ??
    new EnvironmentError({
      what: `${explainRun(run)}: ${run.stderr.trim()}`,
      why: WHY,
      remedy: `see whether it reads ${file}, and install it again if not`,
    })
  );
}

/** Counts lines of a listing that contain the instruction, perhaps after a prefix such as `{evex}` or `lock`. */
export function countMnemonic(listing: string, mnemonic: string): number {
  const wanted = withoutOperandOrder(mnemonic);
  let count = 0;
  for (const line of listing.split("\n")) {
    const code = /^\s*[0-9a-f]+:\s+(.*)$/.exec(line)?.[1];
    if (code?.split(/\s+/, 3).some((word) => withoutOperandOrder(word) === wanted)) count++;
  }
  return count;
}

/**
 * `vfmadd132ps`, `vfmadd213ps` and `vfmadd231ps` are the same instruction with different operand orders, which the
 * compiler chooses.
 */
function withoutOperandOrder(mnemonic: string): string {
  return mnemonic.replace(/^(vfn?m(?:add|sub|addsub|subadd))(?:132|213|231)/, "$1");
}
