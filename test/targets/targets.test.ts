/** @file The table of machines: properties of every row, and figures that follow from a data sheet. */

import { describe, expect, it } from "vitest";
import { bytesOf } from "../../abstraction/dtype.ts";
import { defineIntrinsic, registerElements } from "../../abstraction/intrinsic.ts";
import { issueCyclesOn, levelOf, memoryOf, mostBytes, readRate, unitCost } from "../../abstraction/machine.ts";
import { tileRowElements } from "../../abstraction/memory-tile.ts";
import { declarationHash } from "../../db/identity.ts";
import { INTRINSICS, instructionsOf } from "../../intrinsics/index.ts";
import { calibratable } from "../../perfmodel/calibrate.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import { ARM_TARGETS } from "../../targets/arm-cpus.ts";
import {
  FAMILIES,
  familyOf,
  hasFeature,
  isWritten,
  type MachineRecord,
  nativeTarget,
  OPENCL_ISA,
  openClFeatures,
  PORTABLE_ISA,
  PREDICTED_GPUS,
  predictedGpuNamed,
  recordOf,
  registerClass,
  runsOn,
  targetOf,
  widestVector,
} from "../../targets/index.ts";
import { GEN9 } from "../../targets/intel.ts";
import { laneCosts } from "../../targets/lanes.ts";
import { NVIDIA_TARGETS, nvidiaTarget } from "../../targets/nvidia.ts";
import { featuresOfCapability } from "../../targets/nvidia-features.ts";
import { REFERENCE_CPU } from "../../targets/x86.ts";
import { rowNamed } from "../support/subjects.ts";

/** Every figure in an object, with where it says it comes from. */
function figures(value: unknown, at: string): { at: string; source: unknown }[] {
  if (typeof value !== "object" || value === null) return [];
  const inside = Object.entries(value).flatMap(([key, child]) => figures(child, `${at}.${key}`));
  return "value" in value || ("latencyCycles" in value && typeof value.latencyCycles === "number")
    ? [{ at, source: "source" in value ? value.source : undefined }, ...inside]
    : inside;
}

describe.each([...NVIDIA_TARGETS, REFERENCE_CPU, GEN9, ...PREDICTED_GPUS, ...ARM_TARGETS])("$name", (target) => {
  it("names the source of every figure", () => {
    const all = figures(target, target.name);
    expect(all.length).toBeGreaterThan(2);
    expect(all.filter(({ source }) => typeof source !== "string" || source === "")).toEqual([]);
  });

  it("is one processor", () => {
    expect(target.levels[0].units).toBe(1);
  });

  it("is plain data", () => {
    expect(JSON.parse(JSON.stringify(target))).toEqual(target);
  });

  it("refers only to levels and memories that it has", () => {
    const levels = target.levels.map((l) => l.name);
    const memories = target.memories.map((m) => m.name);
    for (const m of target.memories) {
      expect(levels).toContain(m.at);
      for (const c of m.copies ?? []) expect(memories).toContain(c.into);
    }
    for (const u of target.units) expect(levels).toContain(u.at);
    for (const r of target.rates) {
      expect(target.units.map((u) => u.name)).toContain(r.unit);
      expect(target.isa).toContain(r.feature);
    }
    for (const c of target.memories.flatMap((m) => m.copies ?? []))
      expect(c.feature === undefined || target.isa.includes(c.feature)).toBe(true);
  });

  it("gives every Tensor Core instruction of its features a rate, and no faster than the peak", () => {
    const rows = INTRINSICS.filter((row) => ["mma", "wmma"].includes(row.family) && hasFeature(target, row.isa));
    for (const row of rows.filter((r) => target.rates.some((rate) => rate.family === r.family))) {
      const cycles = issueCyclesOn(target, row);
      expect(cycles?.value, row.name).toBeGreaterThan(0);
    }
  });
});

describe("figures of the data sheets", () => {
  it.each([
    ["dg2", 560e9],
    ["pvc", 3276.8e9],
  ] as const)("%s reads memory at the bandwidth of its data sheet", (name, stated) => {
    const target = predictedGpuNamed(name);
    if (!target?.clockHz) throw new Error(`no ${name}`);
    const each = readRate(target, "dram", "core");
    expect(each?.per).toBe("cycle");
    const together = (each?.value ?? 0) * levelOf(target, "core").units * target.clockHz.value;
    expect(together / stated).toBeCloseTo(1, 6);
  });

  it.each([
    ["v100", "f16", 125],
    ["a100", "f16", 312],
    ["a100", "s8", 624],
  ] as const)("%s reaches the stated peak in %s: %d T operations a second", (name, dtype, stated) => {
    const target = nvidiaTarget(name);
    const tensor = target.units.find((u) => u.name === "tensor");
    const peak =
      (tensor?.operationsPerCycle?.[dtype] ?? 0) * levelOf(target, "block").units * (target.clockHz?.value ?? 0);
    expect(peak / 1e12).toBeCloseTo(stated, -0.5);
  });

  it("a block of an H100 may have 227 KB, and 384 threads of 168 registers fill a multiprocessor", () => {
    const target = nvidiaTarget("h100");
    expect(mostBytes(target, "shared", "block")).toBe(232448);
    expect(384 * 168 * 4).toBeLessThanOrEqual(memoryOf(target, "registers").bytes?.value ?? 0);
    expect(readRate(target, "l2", "block")?.value).toBe(120e9);
  });

  it("an mma of 4096 operations takes 1.6 cycles of an H100 and 2 of an A100", () => {
    expect(issueCyclesOn(nvidiaTarget("h100"), rowNamed("mma.m16n8k16.f32.f16"))?.value).toBeCloseTo(1.59, 2);
    expect(issueCyclesOn(nvidiaTarget("h100"), rowNamed("mma.m16n8k32.s32.s8"))?.value).toBeCloseTo(1.59, 2);
    expect(issueCyclesOn(nvidiaTarget("a100"), rowNamed("mma.m16n8k16.f32.f16"))?.value).toBe(2);
  });
});

describe("the families", () => {
  it("have each feature once", () => {
    const names = FAMILIES.flatMap((f) => f.features.map((x) => x.name));
    expect(names.filter((name, i) => names.indexOf(name) !== i)).toEqual([]);
  });

  it("have every feature that instructions require, in a language of their own", () => {
    const languages = new Map<string, Set<string>>();
    for (const row of INTRINSICS) {
      const { name } = familyOf(row);
      languages.set(name, (languages.get(name) ?? new Set()).add(row.language));
    }
    expect(Object.fromEntries([...languages].map(([name, found]) => [name, [...found]]))).toEqual({
      x86: ["c++"],
      arm: ["c++"],
      nvidia: ["cuda"],
      intel: ["cm", "opencl", "sycl"],
      mali: ["opencl"],
      opencl: ["opencl"],
      portable: ["c++"],
      virtual: ["none"],
    });
  });

  it("refuse an instruction that requires an unknown feature, with the known ones", () => {
    const row = rowNamed("avx2.fma.f32");
    expect(() => familyOf({ ...row, name: "mine.dot", isa: "avx1024" })).toThrow(
      'mine.dot asks for "avx1024", a feature of no machine family',
    );
    expect(familyOf({ ...row, isa: "mine", language: "none" }).name).toBe("virtual");
  });

  it("check an instruction's further features wherever they check its first", () => {
    const fma = rowNamed("avx512.fma.f32");
    const both = defineIntrinsic({ ...fma.declaration, name: "mine.both", features: ["avx512_bf16"] });
    expect(both.features).toEqual(["avx512f", "avx512_bf16"]);
    expect([runsOn({ isa: ["avx512f"] }, both), runsOn({ isa: ["avx512f", "avx512_bf16"] }, both)]).toEqual([
      false,
      true,
    ]);
    expect(calibratable(targetOf({ name: "", isa: ["avx512f"], levels: [], source: "" }), [fma, both])).toEqual([fma]);
    expect(instructionsOf({ isa: ["fma"] }).every((row) => row.isa === "fma")).toBe(true);
    const alone = defineIntrinsic({ ...fma.declaration, name: "mine.both" });
    expect(declarationHash(both)).not.toBe(declarationHash(alone));
  });

  it("name a mnemonic for each row that kernels are written with, except plain C++", () => {
    // No compiler of CM or SYCL is asked what it makes of them, and of OpenCL C only one of matrix products.
    const written = INTRINSICS.filter(
      (row) =>
        isWritten(row.isa) &&
        row.isa !== PORTABLE_ISA &&
        !["cm", "sycl"].includes(row.language) &&
        (row.language !== "opencl" || row.family === "dpas"),
    );
    expect(written.length).toBeGreaterThan(25);
    expect(written.filter((row) => !/^[a-z][a-z0-9]+$/.test(row.mnemonic ?? "")).map((row) => row.name)).toEqual([]);
    const named = written.filter((row) => !row.source.toLowerCase().includes(row.mnemonic ?? "?"));
    expect(named.map((row) => row.name)).toEqual([]);
  });
});

describe("register classes", () => {
  it("exist for every operand of an instruction that runs, in the instruction's family", () => {
    const own = INTRINSICS.filter((row) => row.language !== "none").flatMap((row) =>
      row.operands.map((o) => [familyOf(row), o] as const),
    );
    expect(own.filter(([family, o]) => !family.registers.some((r) => r.name === o.file))).toEqual([]);
    expect(registerClass("unit")).toBeUndefined();
  });

  it("are as large as their operands, rows of tiles included", () => {
    for (const row of INTRINSICS)
      for (const o of row.operands) {
        const { bytes, rowBytes } = registerClass(o.file) ?? {};
        const held = registerElements(row, o) * bytesOf(o.dtype);
        // One lane of plain C++ has part of a register, and a row that is only copied passes through several.
        if (bytes !== undefined && !/^portable\.copy\..*\.lanes$/.test(row.name))
          expect(held, `${row.name} ${o.name}`).toBeLessThanOrEqual(bytes);
        if (rowBytes !== undefined) expect(tileRowElements(o) * bytesOf(o.dtype), row.name).toBe(rowBytes);
      }
  });

  it("give the widest vector of a machine", () => {
    const widest = (isa: string[]) => widestVector({ isa });
    expect([widest(["avx2", "avx512f", "amx_int8"]), widest(["avx2"]), widest(["asimd"]), widest([])]).toMatchObject([
      { name: "zmm", constraint: "v" },
      { name: "ymm", constraint: "x" },
      { name: "v", constraint: "w" },
      { name: "vec", constraint: "x" },
    ]);
  });
});

describe("a CPU described by Linux", () => {
  const MACHINE: MachineRecord = {
    name: "Testium 9000",
    isa: ["avx2", "fma", "avx512f"],
    levels: [
      { name: "dram", units: 1 },
      { name: "l3", units: 2, bytes: 32 << 20 },
      { name: "l2", units: 8, bytes: 1 << 20 },
      { name: "l1", units: 1, bytes: 48 << 10 },
      { name: "registers", units: 2 },
    ],
    source: "made up",
  };

  it("becomes a target with its sizes and the reference machine's rates, and is recovered from it", () => {
    const target = targetOf(MACHINE);
    expect(target.memories.map((m) => [m.name, m.count, m.bytes?.value])).toEqual([
      ["dram", 1, undefined],
      ["l3", 2, 32 << 20],
      ["l2", 16, 1 << 20],
      ["l1", 16, 48 << 10],
    ]);
    expect(levelOf(target, "core").units).toBe(32);
    expect(target.compilerFlags).toContain("-mavx512bw");
    expect(recordOf(target)).toEqual(MACHINE);
    expect(recordOf(nativeTarget()).levels[0]).toEqual({ name: "dram", units: 1 });
    const model = modelTarget(target);
    expect(model.memory.map((m) => [m.name, m.bytes])).toEqual([
      ["l1", 48 << 10],
      ["l2", 1 << 20],
      ["l3", 32 << 20],
      ["dram", undefined],
    ]);
    expect(model.memory[0]?.readBytesPerCycle).toEqual({
      value: 403 / 3.7,
      source: expect.stringMatching(/^measured/),
    });
  });

  it("without caches gets those of the reference machine in the model", () => {
    const bare = {
      ...MACHINE,
      levels: [
        { name: "dram", units: 1 },
        { name: "registers", units: 4 },
      ],
    };
    expect(modelTarget(targetOf(bare)).memory.map((m) => m.name)).toEqual(["l1", "l2", "l3", "dram"]);
    expect(recordOf(targetOf(bare)).levels).toEqual(bare.levels);
  });
});

describe("a named unit", () => {
  it("has one cost: a warp's shuffle costs the same as an instruction and as an array's step", () => {
    const h200 = nvidiaTarget("h200");
    expect(rowNamed("shuffle.down.1").cost).toEqual(unitCost(h200, "shuffle"));
    expect(unitCost(h200, "shuffle").issueCycles).toBe(1);
    // Four quarters of a multiprocessor take turns.
    expect(laneCosts(h200).shift).toEqual({ ...unitCost(h200, "shuffle"), issueCycles: 4 });
    const mma = rowNamed("mma.m16n8k16.f32.f16");
    expect(mma.cost?.issueCycles).toBe(issueCyclesOn(h200, mma)?.value);
    expect(rowNamed("cuda.fma.f32").cost).toEqual(unitCost(h200, "fma"));
    expect(laneCosts(h200).multiplyAdd.issueCycles).toBe(1);
    expect(rowNamed("avx512.fma.f32").cost).toEqual(laneCosts(REFERENCE_CPU).multiplyAdd);
    expect(rowNamed("cm.fma.f32").cost).toEqual(laneCosts(GEN9).multiplyAdd);
  });
});

describe("a CPU as an OpenCL device", () => {
  it("has dot products of bytes where PoCL compiles for AVX-512 and the CPU has VNNI", () => {
    const isa = ["avx2", "avx512_vnni"];
    expect(openClFeatures("pthread-skylake-avx512-AMD EPYC", isa)).toEqual([OPENCL_ISA, "opencl_vnni"]);
    expect(openClFeatures("basic-skylake-avx512-AMD EPYC", isa)).toEqual([OPENCL_ISA, "opencl_vnni"]);
    expect(openClFeatures("pthread-znver3-AMD EPYC", isa)).toEqual([OPENCL_ISA]);
    expect(openClFeatures("pthread-skylake-avx512-Xeon", ["avx2"])).toEqual([OPENCL_ISA]);
  });
});

describe("features of a compute capability", () => {
  it("grow with it, except for those that only Hopper has", () => {
    expect(featuresOfCapability(70)).toEqual(["sm_61", "sm_70", "dp4a", "wmma"]);
    expect(featuresOfCapability(80)).toEqual(expect.arrayContaining(["mma", "cp_async", "ldmatrix"]));
    expect(featuresOfCapability(80)).not.toContain("tma");
    expect(featuresOfCapability(90)).toEqual(expect.arrayContaining(["wgmma", "sm_90a", "tma", "cp_async"]));
    expect(featuresOfCapability(100)).not.toContain("wgmma");
    expect(featuresOfCapability(100)).toContain("tma");
  });
});
