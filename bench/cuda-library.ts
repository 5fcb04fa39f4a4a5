/**
 * @file cuBLAS as a kernel: a shared object with the same interface, to be measured beside other kernels.
 *
 *     runner.measureTogether([kernel, cublas(folder, 4096, "nvcc", kernel.arguments)], reference)
 */

import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Prebuilt } from "../runtime/run/cuda.ts";

/** The product of two square matrices of f16. @param workdir a folder for the shared object */
export function cublas(workdir: string, n: number, nvcc: string, arguments_: Prebuilt["arguments"]): Prebuilt {
  const source = fileURLToPath(new URL("./peers/cublas.cu", import.meta.url));
  const file = join(workdir, `cublas-${n}.so`);
  execFileSync(nvcc, [
    "-shared",
    "-Xcompiler",
    "-fPIC",
    `-DM=${n}`,
    `-DN=${n}`,
    `-DK=${n}`,
    "-o",
    file,
    source,
    "-lcublas",
  ]);
  return { file, arguments: arguments_ };
}
