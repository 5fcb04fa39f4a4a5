/**
 * @file Packages of kernels in CUDA, made without a search, and built with no GPU: by nvcc where it is, or with the
 * headers of the emulation.
 */

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { generateCuda } from "../../codegen/cuda/cuda.ts";
import { type Environment, openDatabase, recordTrial, showTrial, type TrialRecord } from "../../db/index.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { lowerGrid } from "../../mapper/lower/grid.ts";
import type { GridContext } from "../../mapper/schedule/grid-context.ts";
import { instantiate, operatorNamed, parseDataTypes } from "../../operators/index.ts";
import { type EmitSubject, packageName } from "../../package/index.ts";
import { type ChildRun, runChild } from "../../runtime/child.ts";
import { emulationFolder } from "../../runtime/emulation.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { rankByModel } from "../../session/tune/rank.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { measured, trial } from "./database.ts";
import { convolutionF16, gridContextOf, MATMUL, matmulF16, mmaSchedule, wgmmaSchedule } from "./grid-kernels.ts";
import { keptProgram } from "./kept-compiler.ts";
import { operation, parametersIn } from "./subjects.ts";

const H100 = nvidiaTarget("h100");

const subjectOf = (
  computation: Computation,
  tuned: Kernel,
  operator?: NonNullable<EmitSubject["gpu"]>["operator"],
): EmitSubject => ({
  name: packageName(computation.name),
  computation,
  tuned,
  threads: 1,
  provenance: ["a test"],
  gpu: { capability: 90, ...(operator && { operator }) },
});

const gridKernel = (context: GridContext, schedule: GridSchedule): Kernel =>
  generateCuda(context.mapping.computation, context.intrinsic, lowerGrid(context, schedule), { lines: [] });

/** A product whose tiles the copy engine brings, parts of its sum meeting in a cluster. */
export function engineMatmul(): EmitSubject {
  const parameters = { m: 70, n: 40, k: 256 };
  const computation = matmulF16(70, 40, 256);
  const context = gridContextOf(computation, "wgmma.m64n32k16.f32.f16", MATMUL);
  const kernel = gridKernel(
    context,
    wgmmaSchedule(64, 32, 64, { transfer: "engine", split: { parts: 4, through: "cluster" } }),
  );
  return subjectOf(computation, kernel, { name: "matmul", parameters });
}

/** Products of groups whose matrices a copy engine finds by an index that is read. */
export function groupedMatmul(): EmitSubject {
  const computation = operation("grouped-matmul groups=3 t=6 m=64 n=64 k=64", "bf16", { epilogue: "bf16" });
  const context = gridContextOf(computation, "wgmma.m64n32k16.f32.bf16", MATMUL);
  const schedule = wgmmaSchedule(64, 32, 32, { transfer: "engine", producer: "warp" });
  return subjectOf(computation, gridKernel(context, schedule));
}

/** A convolution of two launches, parts of its sum meeting in the workspace, on any GPU since sm_80. */
export function splitConvolution(): EmitSubject {
  const words = "conv2d n=1 c=64 k=16 h=4 w=4 r=3 s=3 stride=1 pad=1 dilation=1 groups=1";
  const computation = convolutionF16(words);
  const context = gridContextOf(computation, "mma.m16n8k16.f32.f16", "m <- p,q; n <- k; k <- c");
  const kernel = gridKernel(
    context,
    mmaSchedule(32, 16, 16, { warps: { m: 2, n: 1 }, split: { parts: 4, through: "memory" } }),
  );
  return subjectOf(computation, kernel, { name: "conv2d", parameters: parametersIn(words) });
}

/** The model's best kernel for an operator on an H100. */
export function ranked(words: string, dtype: string, kinds: "lanes" | "mappings"): EmitSubject {
  const computation = operation(words, dtype);
  const found = rankByModel(computation, { machine: H100, kinds, count: 1 });
  const [best] = "refused" in found ? [] : found;
  if (!best) throw new Error(`nothing maps ${words}`);
  return subjectOf(computation, kernelFor(computation, best.candidate, H100));
}

/** A filter on the lanes of warps, whose weights lie in constant memory: they are prepared. */
export const filter = (): EmitSubject => ranked("conv2d-single h=20 w=40 r=3 s=3 pad=1", "f32", "lanes");

/** A kernel of threads. */
export const depthwise = (): EmitSubject => ranked("depthwise-conv2d n=1 c=8 h=9 w=9 m=1 r=3 s=3", "f16", "mappings");

/** A product on the tensor cores of an H100, as a record. */
export function recordOnGpu(file: string, environment: Environment): TrialRecord {
  const parameters = { m: 16, n: 16, k: 32 };
  const computation = instantiate(operatorNamed("matmul"), {
    parameters,
    types: parseDataTypes("f16"),
    epilogue: "c[m,n] = f16(out[m,n])",
  });
  const intrinsics = intrinsicsNamed("mma.m16n8k16.f32.f16");
  const found = rankByModel(computation, { machine: H100, intrinsics, kinds: "mappings", count: 1 });
  const [best] = "refused" in found ? [] : found;
  if (!best) throw new Error("nothing maps the product");
  const db = openDatabase(file);
  const id = recordTrial(db, {
    workload: { computation, parameters },
    environment: { ...environment, target: "h100" },
    trial: trial(measured(900), 1, best.candidate),
    conditions: { threads: 1, cache: "warm" },
    ...(best.mapping && { intrinsic: best.mapping.intrinsic }),
  });
  const record = showTrial(db, id);
  db.close();
  return record;
}

/** The runtime library's headers as an emulation has them. */
function emulationHeaders(folder: string): string {
  const include = join(folder, "emulated");
  mkdirSync(include, { recursive: true });
  for (const name of ["cuda_runtime.h", "cuda_runtime_api.h"])
    writeFileSync(join(include, name), '#include "cuda-runtime.h"\n');
  return include;
}

/** Builds the library and the test of a package for the emulated device, and runs the test. */
export async function proveEmulated(folder: string, name: string): Promise<ChildRun> {
  const include = emulationHeaders(folder);
  const parts = ["", "_tuned", "_test", "_reference"];
  const flags = ["-std=c++17", "-O0", "-w", "-ffp-contract=off", "-fwrapv", "-DAUTOMAP_EMULATED_CUDA="];
  const sources = ["-I", include, "-I", emulationFolder(), "-include", "cuda_runtime.h", "-x", "c++"];
  const compiler = keptProgram("g++");
  const built = await Promise.all(
    parts.map((part) =>
      runChild([compiler, ...flags, ...sources, "-c", `${name}${part}.cu`, "-o", `${name}${part}.o`], {
        timeLimitMs: 900_000,
        cwd: folder,
      }),
    ),
  );
  const failed = built.find((run) => run.status !== "ok");
  if (failed) return failed;
  const objects = parts.map((part) => `${name}${part}.o`);
  const linked = await runChild([compiler, ...objects, "-pthread", "-o", "test"], {
    timeLimitMs: 900_000,
    cwd: folder,
  });
  return linked.status === "ok" ? runChild(["./test"], { timeLimitMs: 900_000, cwd: folder }) : linked;
}
