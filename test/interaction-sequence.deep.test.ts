/** @file The sequence of kernels that the fused interaction is compared with on a GPU computes the same. */

import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, it } from "vitest";
import type { GridSchedule } from "../abstraction/candidate.ts";
import { interaction, products } from "../bench/layers/interaction.ts";
import { generateCuda } from "../codegen/cuda.ts";
import { lowerGrid } from "../mapper/lower/grid.ts";
import { createCudaRunner, type Prebuilt } from "../runtime/run/cuda.ts";
import { gridContextOf } from "./support/grid-kernels.ts";

const folder = mkdtempSync(join(tmpdir(), "automap-sequence-"));
afterAll(() => rmSync(folder, { recursive: true }));

const SCHEDULE: GridSchedule = {
  tile: { m: 32, n: 32, k: 64 },
  warps: { m: 1, n: 1 },
  stage: 2,
  swizzle: "swizzled",
  transfer: "async",
  order: 1,
  fragments: "inline",
  store: "direct",
};
const SAMPLES = 9;

/** For the emulation: its headers in place of CUDA's. */
const emulated = (source: string): string => source.replace(/^#include [<"].*$/gm, "");

it("computes the interaction", async () => {
  const made = await createCudaRunner({ emulated: true });
  if (made.status === "environment") throw new Error(`${made.what}: ${made.remedy}`);
  const { runner } = made;
  const computation = interaction(SAMPLES, "bf16");
  const product = products(SAMPLES, "bf16");
  const [fused, unfused] = [computation, product].map((c) => {
    const context = gridContextOf(c, "mma.m16n8k16.f32.bf16", "m <- i; n <- j; k <- k");
    return generateCuda(c, context.intrinsic, lowerGrid(context, SCHEDULE), { lines: [] });
  });
  if (!fused || !unfused) throw new Error("no kernels");
  const peer = emulated(readFileSync(new URL("../bench/peers/interaction.cu", import.meta.url), "utf8"));
  const text = peer.replace("#include PRODUCT", () => emulated(unfused.source));
  const sequence = (twice: number, changed = text): Prebuilt => {
    const [source, file] = ["cpp", "so"].map((ending) => join(folder, `sequence-${twice}-${changed.length}.${ending}`));
    if (!source || !file) throw new Error("no files");
    writeFileSync(source, `#include "cuda.h"\n#define SAMPLES ${SAMPLES}\n#define TWICE ${twice}\n${changed}`);
    const emulation = fileURLToPath(new URL("../runtime/emulation", import.meta.url));
    execFileSync(runner.device.nvcc.path, [
      "-std=c++17",
      "-w",
      "-ffp-contract=off",
      "-fwrapv",
      `-I${emulation}`,
      "-DAUTOMAP_EMULATED_CUDA=",
      "-shared",
      "-fPIC",
      source,
      "-o",
      file,
    ]);
    return { file, arguments: fused.arguments };
  };
  const wrong = text.replace("int i = 1;", "int i = 2;");
  const all = [fused, sequence(15), sequence(15, `${wrong} `)];
  const measured = await runner.measureTogether(all, runner.reference(computation, 1), {
    budgetSeconds: 0.001,
    batches: [1, 1],
  });
  expect(measured.map((m) => m.status)).toEqual(["ok", "ok", "wrong"]);
  await runner.close();
});
