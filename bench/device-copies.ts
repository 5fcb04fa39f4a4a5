/**
 * @file Copies on this machine's GPU, measured like kernels: the least time to move this many bytes.
 *
 *     for (const line of await copies(2 ** 28, runner, workdir))    { kind: "copy", bytes, by: "the runtime", seconds }
 */

import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { z } from "zod";
import { defineComputation } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { argumentsOf } from "../codegen/cpp-frame.ts";
import type { CudaRunner } from "../runtime/run/cuda.ts";

export const COPY = z.object({ kind: z.literal("copy"), bytes: z.number(), by: z.string(), seconds: z.number() });

/** One line for each copy: its seconds, or why there are none. */
export async function copies(bytes: number, runner: CudaRunner, workdir: string): Promise<readonly object[]> {
  return await measured(bytes, runner, workdir).catch((e) => [{ kind: "no copy", because: String(e) }]);
}

/** Copies this many bytes with the runtime, and with a kernel. */
async function measured(bytes: number, runner: CudaRunner, workdir: string): Promise<readonly object[]> {
  const count = bytes / bytesOf("f32");
  const computation = defineComputation({
    name: "copy",
    equation: "out[i] = x[i]",
    extents: { i: count },
    tensors: { x: { dtype: "f32", shape: [count] } },
  });
  const source = fileURLToPath(new URL("./peers/copy.cu", import.meta.url));
  const forms = [[], ["-DBY_KERNEL"]];
  const files = forms.map((flags, i) => {
    const file = join(workdir, `copy-${bytes}-${i}.so`);
    if (existsSync(file)) return file;
    execFileSync(runner.device.nvcc.path, [
      "-shared",
      "-Xcompiler",
      "-fPIC",
      "-O3",
      ...flags,
      `-DBYTES=${bytes}ul`,
      "-o",
      file,
      source,
    ]);
    return file;
  });
  const reference = await runner.reference(computation, 1);
  const prebuilt = files.map((file) => ({ file, arguments: argumentsOf(computation) }));
  const all = await runner.measureTogether(prebuilt, reference);
  return all.map((m, i) => ({
    kind: "copy",
    bytes,
    by: i === 0 ? "the runtime" : "a kernel",
    ...(m.status === "ok" ? { seconds: m.median } : { status: m.status, log: m.log }),
  }));
}
