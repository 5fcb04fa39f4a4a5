/**
 * @file Calibration of a GPU: the probes for a target, the rates from their samples, and runs under emulation and
 * through nvcc.
 */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { issueCyclesOn, latencyCyclesOn, levelOf, readRate, type Target, unitCost } from "../../abstraction/machine.ts";
import { INTRINSICS, intrinsicNamed, intrinsicsNamed } from "../../intrinsics/index.ts";
import { calibratedGpu, calibrateGpu } from "../../perfmodel/calibrate-gpu.ts";
import { gpuProbes, probedRows } from "../../perfmodel/gpu-probes.ts";
import { findProgram, runChild } from "../../runtime/child.ts";
import { nvidiaTarget } from "../../targets/index.ts";
import { GPU_CALIBRATION } from "../support/gpu-calibration.ts";
import { emulatedGpu } from "../support/here.ts";
import { keptProgram } from "../support/kept-compiler.ts";
import { scratchFolder } from "../support/scratch.ts";
import { inFull } from "../support/slow.ts";

const folder = scratchFolder();

const H100 = nvidiaTarget("h100");
/** Two multiprocessors and little memory: an emulation goes through all of it. */
const SMALL: Target = {
  ...H100,
  levels: H100.levels.map((level) => (level.name === "block" ? { ...level, units: 1 } : level)),
};
const FOOTPRINTS = { near: 2 ** 17, far: 2 ** 18 };
const ROWS = [
  "mma.m16n8k16.f32.f16",
  "wmma.m16n16k16.f32.f16",
  "wgmma.m64n8k16.f32.f16",
  "cuda.fma.f32",
  "shuffle.down.1",
]
  .map((name) => intrinsicNamed(name))
  .filter((row) => row !== undefined);

describe("probes of a GPU", () => {
  it("time every instruction of the target, one shuffle for all, and nothing else", () => {
    const rows = probedRows(H100, INTRINSICS);
    expect(rows.every((row) => row.language === "cuda")).toBe(true);
    expect(rows.filter((row) => row.family === "shuffle")).toHaveLength(1);
    expect(rows.some((row) => row.family === "wgmma")).toBe(true);
    expect(probedRows(nvidiaTarget("a100"), INTRINSICS).some((row) => row.family === "wgmma")).toBe(false);
    const labels = gpuProbes(H100, rows).flatMap((l) => l.probes.map((p) => p.label));
    for (const { name } of rows) expect(labels).toContain(`issue ${name}`);
    expect(labels.filter((l) => l === "loaded clock")).toHaveLength(1);
    expect(new Set(labels).size).toBe(labels.length);
  });

  it("print as their rows", () => {
    const [, second] = gpuProbes(H100, intrinsicsNamed("mma.m16n8k16.f32.f16"));
    const source = second?.source ?? "";
    const from = source.indexOf("// mma.m16n8k16.f32.f16");
    expect(
      source.slice(from, source.indexOf("static __global__ void __launch_bounds__(32)", from)),
    ).toMatchInlineSnapshot(`
      "// mma.m16n8k16.f32.f16
      static __global__ void __launch_bounds__(512) issue_0(char* memory, long long* cycles, int times) {
        unsigned x0[4];
        load_fragment(x0, memory + 0);
        unsigned x1[2];
        load_fragment(x1, memory + 16384);
        float c0[4];
        load_fragment(c0, memory + 0);
        float c1[4];
        load_fragment(c1, memory + 4096);
        float c2[4];
        load_fragment(c2, memory + 8192);
        float c3[4];
        load_fragment(c3, memory + 12288);
        BEGIN;
        for (int i = 0; i < times; i++) {
          mma_m16n8k16_f32_f16(c0, x0, x1);
          mma_m16n8k16_f32_f16(c1, x0, x1);
          mma_m16n8k16_f32_f16(c2, x0, x1);
          mma_m16n8k16_f32_f16(c3, x0, x1);
        }
        END;
        if (times < 0) {
          store_fragment(memory + 0, c0);
          store_fragment(memory + 4096, c1);
          store_fragment(memory + 8192, c2);
          store_fragment(memory + 12288, c3);
        }
      }
      "
    `);
  });

  it("all run under emulation, and give no figure where there is no clock", async () => {
    const runner = await emulatedGpu();
    try {
      const calibration = await calibrateGpu(
        SMALL,
        "an emulation",
        ROWS,
        (libraries) => runner.probe(libraries.map((l) => l.source)),
        FOOTPRINTS,
      );
      expect(Object.keys(calibration.instructions).sort()).toEqual(ROWS.map((row) => row.name).sort());
      expect(calibration.l2.readBytesPerSecond.median).toBeGreaterThan(0);
    } finally {
      await runner.close();
    }
  });

  const nvcc = findProgram("nvcc");
  it.skipIf(nvcc === undefined)("are compiled by nvcc without a warning or a byte of stack", async () => {
    const libraries = gpuProbes(H100, ROWS).slice(inFull(0, 1));
    for (const [i, { source }] of libraries.entries()) {
      const file = join(folder, `probes_${i}.cu`);
      writeFileSync(file, source);
      const target = [...H100.compilerFlags, "-std=c++17", "-O3", "-shared", "-Xcompiler", "-fPIC", "-Xptxas", "-v"];
      const run = await runChild([keptProgram(nvcc ?? ""), file, "-o", `${file}.so`, ...target], {
        timeLimitMs: 900_000,
      });
      expect(run.status, run.stderr).toBe("ok");
      expect(run.stderr).not.toMatch(/warning|C75\d\d|[1-9]\d* bytes (?:stack|spill)/);
    }
  });
});

describe("a calibrated GPU", () => {
  const machine = calibratedGpu(H100, GPU_CALIBRATION);

  it("has measured figures in place of the table's, and names their source", () => {
    const row = intrinsicNamed("wgmma.m64n128k16.f32.f16");
    if (!row) throw new Error("no such row");
    expect(issueCyclesOn(machine, row)).toEqual({ value: 80, source: "calibrated on a test's GPU" });
    expect(latencyCyclesOn(machine, row)).toBe(120);
    expect(machine.loadedClockHz).toEqual({ value: 1.5e9, source: "calibrated on a test's GPU" });
    expect(readRate(machine, "l2", "block")?.value).toBe(1e9);
    expect(readRate(machine, "dram", "grid")?.value).toBe(1.9e12);
    expect(unitCost(machine, "shuffle").issueCycles).toBe(2);
    expect(machine.fixed["launch"]?.value).toBe(1e-6);
  });

  it("interpolates widths between measured ones, and keeps figures that no probe measures", () => {
    const between = intrinsicNamed("wgmma.m64n96k16.f32.bf16");
    if (!between) throw new Error("no such row");
    expect(issueCyclesOn(machine, between)?.value).toBeCloseTo(60, 5);
    expect(machine.fixed["drain"]).toEqual(H100.fixed["drain"]);
    expect(levelOf(machine, "block")).toEqual(levelOf(H100, "block"));
  });
});
