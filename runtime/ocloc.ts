/**
 * @file Compiles OpenCL C with Intel's offline compiler and reads the matrix products, registers and spills of each
 * function back from the assembly it writes.
 *
 *     const built = await compileForIntel(kernel, "dg2", ocloc);
 *     if (built.status === "compiled") built.functions[1]          { name: "automap_phase_0", dpas: 8, instructions: 452, registers: 128 }
 *
 * ocloc needs no GPU. It gives no times.
 */

import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { namesOf } from "../abstraction/collections.ts";
import { internal } from "../abstraction/error.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import { explainRun, findProgram, runChild } from "./child.ts";
import { type IsaLoop, loopsIn } from "./isa-loops.ts";

/** A compiled function of a kernel. */
export interface IsaFunction {
  readonly name: string;
  /** Matrix products in its code. */
  readonly dpas: number;
  readonly instructions: number;
  /** Registers of a thread, including addresses. */
  readonly registers: number;
  /** Bytes of registers spilled to memory. */
  readonly spilledBytes: number;
  /** The same instructions, loop by loop. */
  readonly code: IsaLoop;
}

/** The result of a compilation; `spilled` if a function spills registers to memory. */
export type IntelBuild =
  | { readonly status: "compiled"; readonly functions: readonly IsaFunction[] }
  | { readonly status: "spilled" | "compile-failed"; readonly log: string };

const OCLOC = "ocloc";
/** Sub-group barriers need 2.0. For pvc, the compiler's own header does not compile as 3.0 (1.0.12504). */
const OPTIONS = "-cl-std=CL2.0";
const TIME_LIMIT_MS = 120_000;

/** The compiler's path; undefined if it is not installed. */
export const findOcloc = (): string | undefined => findProgram(OCLOC);

/**
 * Compiles a kernel for a device by ocloc's name: `dg2`, `pvc`.
 * @param ocloc path of the compiler
 * @param signal aborts the compilation
 * @throws Error if aborted
 */
export async function compileForIntel(
  kernel: Kernel,
  device: string,
  ocloc: string,
  signal?: AbortSignal,
): Promise<IntelBuild> {
  const folder = await mkdtemp(join(tmpdir(), "automap-ocloc-"));
  try {
    const [source, dump] = [join(folder, "kernel.cl"), join(folder, "dump")];
    await mkdir(dump);
    await writeFile(source, kernel.source);
    const command = [ocloc, "compile", "-file", source, "-device", device, "-options", OPTIONS, "-out_dir", folder];
    const env = { IGC_ShaderDumpEnable: "1", IGC_DumpToCustomDir: dump };
    const run = await runChild(command, { timeLimitMs: TIME_LIMIT_MS, env, cwd: folder, signal });
    if (run.status === "stopped") throw new Error("compiling was stopped");
    const said = `${run.stdout}${run.stderr}`.trim();
    if (run.status !== "ok") return { status: "compile-failed", log: `${explainRun(run)}\n${said}` };
    const spills = said.split("\n").filter((line) => line.includes("spilled"));
    if (spills.length > 0) return { status: "spilled", log: spills.join("\n") };
    const texts = lastAttempts((await readdir(dump)).filter((name) => name.endsWith(".asm")));
    const functions = await Promise.all(
      texts.map(async (name) => functionIn(await readFile(join(dump, name), "utf8"))),
    );
    const [worst] = functions.filter((f) => f.spilledBytes > 0);
    if (worst)
      return { status: "spilled", log: `${worst.name} keeps ${worst.spilledBytes} bytes of registers in memory` };
    return { status: "compiled", functions };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/**
 * The last attempt for each function. ocloc compiles a function again if it spills: `x_simd8_entry_0003.asm`, then
 * `x_1_simd8_entry_0003.asm`.
 */
export function lastAttempts(names: readonly string[]): string[] {
  const last = new Map<string, { readonly attempt: number; readonly name: string }>();
  for (const name of [...names].sort()) {
    const attempt = Number(/_(\d+)_simd\d+_/.exec(name)?.[1] ?? 0);
    const key = name.replace(/(_\d+)?_simd\d+_/, "_");
    if (attempt >= (last.get(key)?.attempt ?? 0)) last.set(key, { attempt, name });
  }
  return namesOf([...last.values()]).sort();
}

/** The facts in the head of a function's assembly, and the number of matrix products in its code. */
export function functionIn(text: string): IsaFunction {
  const word = (pattern: RegExp): string => {
    return pattern.exec(text)?.[1] ?? internal(`ocloc writes its assembly otherwise than expected: no ${pattern}`);
  };
  return {
    name: word(/^\/\/\.kernel (\w+)/m),
    dpas: [...text.matchAll(/^(?:\([^)]*\))?\s+dpasw?\./gm)].length,
    instructions: Number(word(/^\/\/\.instCount (\d+)/m)),
    registers: Number(word(/numGRF=(\d+)/)),
    spilledBytes: Number(/^\/\/\.spill size (\d+)/m.exec(text)?.[1] ?? 0),
    code: loopsIn(text),
  };
}

/** The number of matrix products that a kernel's source issues, by function. The compiled code must contain them. */
export function promisedDpas({ source }: Pick<Kernel, "source">): ReadonlyMap<string, number> {
  const parts = source.split(/^__kernel void (\w+)/m);
  const counts = new Map<string, number>();
  for (let i = 1; i < parts.length; i += 2)
    counts.set(
      parts[i] ?? "",
      [...(parts[i + 1] ?? "").matchAll(/^\s+\w+ = intel_sub_group_\w+_matrix_mad_k/gm)].length,
    );
  return counts;
}
