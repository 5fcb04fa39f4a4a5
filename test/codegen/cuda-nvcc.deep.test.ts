/**
 * @file Kernels compiled by nvcc: several in one program under their own names, without a warning, a stack frame or a
 * spill.
 */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { Computation } from "../../abstraction/computation.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { LoopNest } from "../../abstraction/loop-nest.ts";
import { generateCuda } from "../../codegen/cuda/cuda.ts";
import { findProgram, runChild } from "../../runtime/child.ts";
import { gridContextOf, gridKernelOf, mmaSchedule } from "../support/grid-kernels.ts";
import { groupMatmul } from "../support/group-matmul.ts";
import { keptProgram } from "../support/kept-compiler.ts";
import { ringMatmul } from "../support/ring-matmul.ts";
import { scratchFolder } from "../support/scratch.ts";
import { operation, rowNamed } from "../support/subjects.ts";
import { type WarpMatmulOptions, warpMatmul } from "../support/warp-matmul.ts";

const nvcc = findProgram("nvcc");
const folder = scratchFolder();

const kernel = (intrinsic: Intrinsic, { computation, nest }: { computation: Computation; nest: LoopNest }): Kernel =>
  generateCuda(computation, intrinsic, nest, { lines: [] });

function product(name: string, l: number, options: WarpMatmulOptions): Kernel {
  const intrinsic = rowNamed(name);
  return kernel(intrinsic, warpMatmul(intrinsic, { i: 37, j: 22, l }, options));
}

const SAMPLES: readonly Kernel[] = [
  kernel(rowNamed("mma.m16n8k16.f32.f16"), ringMatmul()),
  kernel(rowNamed("mma.m16n8k16.f32.f16"), ringMatmul({ transfer: "plain" })),
  // More shared memory than a kernel may declare.
  product("mma.m16n8k16.f32.bf16", 700, { a: "ldmatrix", b: "ldmatrix.trans", store: "direct", epilogue: "bf16" }),
  product("mma.m16n8k8.f32.tf32", 29, { a: "ldmatrix", b: "elements", store: "direct", epilogue: "f16" }),
  product("mma.m16n8k32.s32.u8s8", 61, { a: "ldmatrix", b: "elements", store: "staged", epilogue: "u8" }),
  product("mma.m16n8k16.f32.f16", 48, { a: "ldmatrix", b: "ldmatrix.trans", store: "staged", epilogue: "e4m3" }),
  product("mma.m16n8k16.f16.f16", 48, { a: "elements", b: "ldmatrix", store: "direct" }),
  product("wmma.m16n16k16.f32.f16", 48, { a: "instruction", b: "instruction", store: "staged" }),
  gridKernelOf({
    context: gridContextOf(
      operation("matmul-4bit m=9 n=64 k=256", "f16"),
      "mma.m16n8k16.f32.f16",
      "m <- n; n <- m; k <- g,b,h",
    ),
    schedule: mmaSchedule(32, 8, 128, { stage: 3 }),
  }),
];

/** What began with sm_89. */
const ADA: readonly Kernel[] = [
  product("mma.m16n8k32.f32.e4m3", 96, { a: "ldmatrix", b: "elements", store: "direct", epilogue: "e4m3" }),
  product("mma.m16n8k32.f32.e5m2e4m3", 64, { a: "ldmatrix", b: "elements", store: "staged", epilogue: "bf16" }),
];

/** What only sm_90a has. */
const HOPPER: readonly Kernel[] = [{}, { turned: true }].map((options) => {
  const { intrinsic, ...made } = groupMatmul(options);
  return kernel(intrinsic, made);
});

/** All kernels in one program, each in a namespace, its interface renamed; what a host would call them by. */
function programOf(kernels: readonly Kernel[]): { readonly text: string; readonly names: readonly string[] } {
  const includes = new Set<string>();
  const names: string[] = [];
  const parts = kernels.map(({ source }, i) => {
    for (const [line] of source.matchAll(/^#include .*$/gm)) includes.add(line);
    const functions = [...source.matchAll(/^extern "C".*?\b(automap_\w+)\(/gm)].map(([, name = ""]) => name);
    names.push(...functions.map((name) => `${name}_of_${i}`));
    const text = source.replace(/^#include .*$/gm, "").replace(/\bautomap_\w+(?=\()/g, (name) => `${name}_of_${i}`);
    // Code behind an include guard must be in every namespace.
    const guards = [...source.matchAll(/^#ifndef (\w+)$/gm)].map(([, name]) => `#undef ${name}`);
    return [...guards, `namespace kernel_${i} {`, text, "}"].join("\n");
  });
  return { text: [...includes, ...parts].join("\n"), names };
}

describe(`nvcc${nvcc === undefined ? " (skipped: no nvcc on the PATH)" : ""}`, () => {
  it.skipIf(nvcc === undefined).each([
    ["80", SAMPLES],
    ["89", ADA],
    ["90a", [...SAMPLES, ...ADA, ...HOPPER]],
  ])("compiles kernels of every kind for sm_%s without a warning or a byte of stack", async (architecture, samples) => {
    const { text, names } = programOf(samples);
    expect(names.length).toBe(4 * samples.length);
    const file = join(folder, `${architecture}.cu`);
    writeFileSync(file, text);
    const target = `-gencode=arch=compute_${architecture},code=sm_${architecture}`;
    const flags = ["-std=c++17", "-O3", target, "-Werror", "all-warnings", "-Xptxas", "-v"];
    const run = await runChild(
      [keptProgram(nvcc ?? "nvcc"), ...flags, "-c", file, "-o", join(folder, `${architecture}.o`)],
      {
        timeLimitMs: 900_000,
      },
    );
    const said = `${run.stdout}${run.stderr}`;
    expect([run.status, ...(said.match(/.*(?:error|warning).*/g) ?? [])]).toEqual(["ok"]);
    const stacks = said.match(/\d+ bytes stack frame, \d+ bytes spill stores, \d+ bytes spill loads/g);
    expect(stacks).toEqual(samples.map(() => "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"));
  });
});
