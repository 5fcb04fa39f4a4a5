/**
 * @file Hand-picked schedules of matrix products, each decision beside its alternatives, and cuBLAS, all in turns.
 *
 *     npm run build
 *     node dist/bench/cuda-picked.js --sizes 1024,4096 --out bench/results/cuda-producer-h100.md
 *
 * Inputs and outputs are f16, sums f32. Every kernel is compared in every element on three sets of inputs, then timed.
 */

import { appendFileSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { GridCandidate, GridSchedule } from "../abstraction/candidate.ts";
import { printGridSchedule } from "../mapper/schedule/grid.ts";
import { type CudaRunner, createCudaRunner } from "../runtime/run/cuda.ts";
import { choiceOnGpu, generateOnGpu } from "../session/gpu-kinds.ts";
import { nvidiaTarget } from "../targets/nvidia.ts";
import { caseNamed } from "./cuda-cases.ts";
import { cublas } from "./cuda-library.ts";
import { readOptions } from "./options.ts";

const { values } = readOptions({
  options: {
    sizes: { type: "string", default: "1024,2048,4096,8192" },
    seconds: { type: "string", default: "1" },
    out: { type: "string" },
  },
});

const BASE: Omit<GridSchedule, "tile" | "warps"> = {
  stage: 4,
  swizzle: "spans",
  transfer: "engine",
  order: 8,
  fragments: "across",
  store: "quads",
};
const tiled = (m: number, n: number, groups: number): Pick<GridSchedule, "tile" | "warps"> => ({
  tile: { m, n, k: 64 },
  warps: { m: groups, n: 1 },
});
const PRODUCER = { producer: "warp" } as const;
const TURNS = { persistent: 132 } as const;

/** Variants of a tile for each size. The first has one block a tile, whose thread 0 issues the copies. */
const LARGE = [
  tiled(128, 256, 2),
  { ...tiled(128, 256, 2), ...TURNS },
  { ...tiled(128, 256, 2), ...PRODUCER },
  ...[16, 8].map((order) => ({ ...tiled(128, 256, 2), ...PRODUCER, ...TURNS, order })),
  { ...tiled(256, 128, 2), ...PRODUCER, ...TURNS },
];
const SMALL = [
  tiled(64, 128, 1),
  { ...tiled(64, 128, 1), stage: 8 },
  { ...tiled(64, 128, 1), ...PRODUCER },
  ...[6, 8].map((stage) => ({ ...tiled(64, 128, 1), ...PRODUCER, stage })),
  { ...tiled(128, 64, 1), ...PRODUCER, stage: 8 },
  { ...tiled(128, 64, 2), ...PRODUCER, stage: 8 },
];
const MIDDLE = [
  tiled(128, 128, 2),
  { ...tiled(128, 128, 2), ...PRODUCER },
  { ...tiled(128, 128, 2), ...PRODUCER, stage: 6 },
  { ...tiled(128, 256, 2), ...PRODUCER },
  { ...tiled(256, 128, 2), ...PRODUCER },
];
const picked = (n: number): readonly (Partial<GridSchedule> & Pick<GridSchedule, "tile" | "warps">)[] =>
  n <= 1024 ? SMALL : n <= 2048 ? MIDDLE : LARGE;

async function measured(n: number, runner: CudaRunner, workdir: string): Promise<string[]> {
  const { computation } = caseNamed(`gemm-${n}`);
  const machine = nvidiaTarget("h100");
  const candidates = picked(n).map((change): GridCandidate => {
    const schedule = { ...BASE, ...change };
    return {
      kind: "grid",
      intrinsic: `wgmma.m64n${schedule.tile["n"]}k16.f32.f16`,
      schedule,
      matching: { m: ["m"], n: ["n"], k: ["k"] },
      operands: { c: "out[m,n]", a: "a[m,k]", b: "b[k,n]" },
    };
  });
  const kernels = candidates.map((c) => generateOnGpu(choiceOnGpu(computation, c, machine)));
  const [first] = kernels;
  if (!first) return [];
  const library = cublas(workdir, n, runner.device.nvcc.path, first.arguments);
  const reference = await runner.reference(computation, 1);
  const timing = { budgetSeconds: Number(values.seconds), batches: [30, 1000] as const };
  const all = await runner.measureTogether([...kernels, library], reference, timing);
  const peer = all.at(-1);
  return all.map((m, i) => {
    const candidate = candidates[i];
    const name = candidate ? printGridSchedule(candidate.schedule).replaceAll("   ", "; ") : "cuBLAS";
    if (m.status !== "ok") return `| ${n} | ${m.status}: ${m.log.slice(0, 200)} | | ${name} |`;
    const ratio = peer?.status === "ok" ? (peer.median / m.median).toFixed(3) : "";
    const [low, high] = m.interval.map((s) => (s * 1e6).toFixed(2));
    return `| ${n} | ${(m.median * 1e6).toFixed(2)} (${low} to ${high}) | ${ratio} | ${name} |`;
  });
}

const workdir = mkdtempSync(join(tmpdir(), "automap-picked-"));
const made = await createCudaRunner({ workdir });
if (made.status === "environment") {
  console.error(`${made.what}\n${made.why}\n${made.remedy}`);
  process.exitCode = 6;
} else {
  const { runner } = made;
  const { name, driver, nvcc } = runner.device;
  const head = ["| n | microseconds | of cuBLAS | schedule |", "|---|---|---|---|"];
  const write = (lines: readonly string[]): void => {
    console.log(lines.join("\n"));
    if (values.out !== undefined) appendFileSync(values.out, `${lines.join("\n")}\n`);
  };
  if (values.out !== undefined) writeFileSync(values.out, "");
  write([`${name}, driver ${driver}, nvcc ${nvcc.version}.`, "", ...head]);
  for (const n of values.sizes.split(",").map(Number)) write(await measured(n, runner, workdir));
  await runner.close();
}
