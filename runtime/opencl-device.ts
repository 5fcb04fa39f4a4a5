/**
 * @file This machine's CPU as an OpenCL device: the name in its records, or what is missing.
 *
 *     await findOpenClCpu()      { name: "pthread-skylake-avx512-Intel(R) Xeon(R) Processor" }        PoCL
 */

import type { EnvironmentProblem } from "../abstraction/error.ts";
import { findProgram, runChild } from "./child.ts";

const TIME_LIMIT_MS = 30_000;

/** The first device of type CPU that `clinfo` lists. */
export async function findOpenClCpu(): Promise<{ readonly name: string } | EnvironmentProblem> {
  const missing = (what: string): EnvironmentProblem => ({
    status: "environment",
    what,
    why: "kernels in OpenCL C are compiled and run by a device",
    remedy: "install an OpenCL platform for this CPU (Debian: pocl-opencl-icd, ocl-icd-opencl-dev, clinfo)",
  });
  const clinfo = findProgram("clinfo");
  if (clinfo === undefined) return missing("there is no clinfo here, which lists OpenCL's devices");
  const run = await runChild([clinfo, "--raw"], { timeLimitMs: TIME_LIMIT_MS });
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
