/**
 * @file The peers of kernels on a GPU: cuBLAS in the same process, copies of as many bytes, NPP and PyTorch in separate processes.
 *
 *     for (const line of await copies(2 ** 28, runner, folder))      { kind: "copy", bytes, by: "the runtime", seconds }
 *     for await (const line of torchPeers(cases, "python3"))         { kind: "peer", case, forms: { NCHW: 5.1e-6, ... } }
 */

import { execFileSync, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { z } from "zod";
import { defineComputation } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { argumentsOf } from "../../codegen/cpp/cpp-frame.ts";
import type { CudaRunner, Prebuilt } from "../../runtime/run/cuda.ts";
import type { GpuCase, Product } from "./gpu-cases.ts";

const peerFile = (name: string): string => fileURLToPath(new URL(`../peers/${name}`, import.meta.url));

/** The shared object of a peer, compiled once. */
function shared(runner: CudaRunner, source: string, file: string, words: readonly string[]): string {
  const flags = "-shared -Xcompiler -fPIC -O3 -o".split(" ");
  if (!existsSync(file)) execFileSync(runner.device.nvcc.path, [...flags, file, peerFile(source), ...words]);
  return file;
}

/** The product of two matrices by cuBLAS, as a kernel. */
export function cublas(
  runner: CudaRunner,
  workdir: string,
  { m, n, k, dtype, transposed, scaled }: Product,
  like: Prebuilt["arguments"],
): Prebuilt {
  const type = dtype === "bf16" ? "CUDA_R_16BF" : "CUDA_R_16F";
  const how =
    dtype === "e4m3"
      ? `-DE4M3${scaled ? " -DBLOCKS" : ""} -lcublasLt`
      : `-DTYPE=${type} -DTRANSPOSED=${Number(transposed)} -lcublas`;
  const words = [`-DM=${m}`, `-DN=${n}`, `-DK=${k}`, ...how.split(" ")];
  const file = join(
    workdir,
    `cublas-${[m, n, k, dtype, transposed ? "transposed" : "plain", ...(scaled ? ["scaled"] : [])].join("-")}.so`,
  );
  return { file: shared(runner, "cublas.cu", file, words), arguments: like };
}

export const COPY = z.object({ kind: z.literal("copy"), bytes: z.number(), by: z.string(), seconds: z.number() });

/** Copies of so many bytes by the runtime and by a kernel, or why there are none. */
export async function copies(bytes: number, runner: CudaRunner, workdir: string): Promise<readonly object[]> {
  const count = bytes / bytesOf("f32");
  const computation = defineComputation({
    name: "copy",
    equation: "out[i] = x[i]",
    extents: { i: count },
    tensors: { x: { dtype: "f32", shape: [count] } },
  });
  const ways = { "the runtime": [], "a kernel": ["-DBY_KERNEL"] } as const;
  try {
    const files = Object.values(ways).map((flags, i) =>
      shared(runner, "copy.cu", join(workdir, `copy-${bytes}-${i}.so`), [...flags, `-DBYTES=${bytes}ul`]),
    );
    const prebuilt = files.map((file) => ({ file, arguments: argumentsOf(computation) }));
    const all = await runner.measureTogether(prebuilt, runner.reference(computation, 1));
    return Object.keys(ways).map((by, i) => {
      const m = all[i];
      return { kind: "copy", bytes, by, ...(m?.status === "ok" ? { seconds: m.median } : { status: m?.status }) };
    });
  } catch (error) {
    return [{ kind: "no copy", because: String(error).slice(0, 2000) }];
  }
}

export const NPP = z.object({
  kind: z.literal("npp"),
  case: z.string(),
  status: z.number(),
  wrong: z.number(),
  ms: z.number(),
});

/** NPP's filters of all sides on an image, or why there are none. */
export function nppPeers(runner: CudaRunner, workdir: string, side: number): readonly object[] {
  const program = join(workdir, "npp");
  try {
    const source = peerFile("npp.cu");
    execFileSync(runner.device.nvcc.path, ["-O3", "-arch=native", "-o", program, source, "-lnppif", "-lnppc"]);
    const lines = execFileSync(program, [String(side)], { encoding: "utf8" })
      .trim()
      .split("\n");
    return lines.map((line) => JSON.parse(line) as object); // what npp.cu prints
  } catch (error) {
    return [{ kind: "no npp", because: String(error).slice(0, 2000) }];
  }
}

export const PEER = z.object({
  kind: z.literal("peer"),
  case: z.string(),
  forms: z.record(z.string(), z.number()),
  failed: z.record(z.string(), z.string()),
});
export const LIBRARY = z.object({ kind: z.literal("library"), torch: z.string(), cudnn: z.number() });
const answer = z.union([
  PEER.omit({ kind: true, case: true }).extend({ id: z.string() }),
  LIBRARY.omit({ kind: true }),
]);

/** Times cases in PyTorch, each in all its forms, in a process of its own. */
export async function* torchPeers(
  cases: readonly GpuCase[],
  command: string,
): AsyncGenerator<z.infer<typeof PEER> | z.infer<typeof LIBRARY>> {
  const asked = cases.flatMap(({ name, suite }) => (suite ? [{ ...suite, id: name }] : []));
  if (asked.length === 0) return;
  const python = spawn(command, [peerFile("torch-operators.py")], { stdio: ["pipe", "pipe", "inherit"] });
  python.on("error", (error) => console.error(`PyTorch: ${error.message}`));
  python.stdin.on("error", () => undefined);
  python.stdin.end(JSON.stringify(asked));
  for await (const text of createInterface({ input: python.stdout })) {
    const told = answer.parse(JSON.parse(text));
    if ("torch" in told) yield { kind: "library", ...told };
    else yield { kind: "peer", case: told.id, forms: told.forms, failed: told.failed };
  }
}
