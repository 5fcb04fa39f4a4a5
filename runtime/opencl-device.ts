/**
 * @file This machine's CPU as an OpenCL device: the name in its records, or what is missing.
 *
 *     await findOpenClCpu(1)      { name: "basic-skylake-avx512-Intel(R) Xeon(R) Processor" }        PoCL, in the calling thread
 *     await findOpenClCpu(2)      { name: "pthread-skylake-avx512-Intel(R) Xeon(R) Processor" }      PoCL, in threads of its own
 */

import type { EnvironmentProblem } from "../abstraction/error.ts";
import { findProgram, runChild } from "./child.ts";

const TIME_LIMIT_MS = 30_000;

/**
 * Environment variables for an OpenCL platform whose kernels one thread runs. PoCL runs them in the calling thread then. Its threads wake up
 * for each launch, and it takes 8 to 17 us, where a call takes 0.4 us (Zen 4, PoCL 3.1, 2026-11-23).
 */
export function openClVariables(threads: number): Readonly<Record<string, string>> {
  const chosen = process.env["POCL_DEVICES"] ?? (threads === 1 ? "basic" : undefined);
  return chosen === undefined ? {} : { POCL_DEVICES: chosen };
}

/** The first device of type CPU that `clinfo` lists, for kernels of so many threads. */
export async function findOpenClCpu(threads: number): Promise<{ readonly name: string } | EnvironmentProblem> {
  const missing = (what: string): EnvironmentProblem => ({
    status: "environment",
    what,
    why: "kernels in OpenCL C are compiled and run by a device",
    remedy: "install an OpenCL platform for this CPU (Debian: pocl-opencl-icd, ocl-icd-opencl-dev, clinfo)",
  });
  const clinfo = findProgram("clinfo");
  if (clinfo === undefined) return missing("there is no clinfo here, which lists OpenCL's devices");
  const run = await runChild([clinfo, "--raw"], { timeLimitMs: TIME_LIMIT_MS, env: openClVariables(threads) });
  const found = cpuIn(run.stdout);
  return found === undefined ? missing("no OpenCL platform here has a CPU") : { name: found };
}

/** The name of the first CPU in what `clinfo --raw` prints: lines of a device, a property and its value. */
export function cpuIn(text: string): string | undefined {
  const names = new Map<string, string>();
  for (const line of text.split("\n")) {
    const [, device = "", property = "", value = ""] = /^(\[\S+\])\s+(CL_DEVICE_\w+)\s+(.*)$/.exec(line) ?? [];
    if (property === "CL_DEVICE_NAME") names.set(device, value.trim());
    if (property === "CL_DEVICE_TYPE" && value.includes("CL_DEVICE_TYPE_CPU")) return names.get(device);
  }
  return undefined;
}
