/** @file The table of machines: what holds of every row, and figures that a data sheet states another way. */

import { describe, expect, it } from "vitest";
import { issueCyclesOn, levelOf, memoryOf, mostBytes, readRate } from "../abstraction/machine.ts";
import { hasFeature } from "../abstraction/target.ts";
import { INTRINSICS, intrinsicsNamed } from "../intrinsics/index.ts";
import { featuresOfCapability, NVIDIA_TARGETS, nvidiaTarget } from "../targets/nvidia.ts";

/** Every value in an object that says where it comes from. */
function figures(value: unknown, at: string): { at: string; source: unknown }[] {
  if (typeof value !== "object" || value === null) return [];
  const inside = Object.entries(value).flatMap(([key, child]) => figures(child, `${at}.${key}`));
  return "value" in value ? [{ at, source: "source" in value ? value.source : undefined }, ...inside] : inside;
}

const one = (name: string) => {
  const [found] = intrinsicsNamed(name);
  if (!found) throw new Error(`no ${name}`);
  return found;
};

describe.each(NVIDIA_TARGETS)("$name", (target) => {
  it("says of every figure where it comes from", () => {
    const all = figures(target, target.name);
    expect(all.length).toBeGreaterThan(5);
    expect(all.filter(({ source }) => typeof source !== "string" || source === "")).toEqual([]);
  });

  it("is plain data", () => {
    expect(JSON.parse(JSON.stringify(target))).toEqual(target);
  });

  it("speaks of levels and memories it has", () => {
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
    ["v100", "f16", 125],
    ["a100", "f16", 312],
    ["a100", "s8", 624],
  ] as const)("%s reaches the stated peak in %s: %d T operations a second", (name, dtype, stated) => {
    const target = nvidiaTarget(name);
    const tensor = target.units.find((u) => u.name === "tensor");
    const peak = (tensor?.operationsPerCycle?.[dtype] ?? 0) * levelOf(target, "block").units * target.clockHz.value;
    expect(peak / 1e12).toBeCloseTo(stated, -0.5);
  });

  it("a block of an H100 may have 227 KB, and 384 threads of 168 registers fill a multiprocessor", () => {
    const target = nvidiaTarget("h100");
    expect(mostBytes(target, "shared", "block")).toBe(232448);
    expect(384 * 168 * 4).toBeLessThanOrEqual(memoryOf(target, "registers").bytes.value);
    expect(readRate(target, "l2", "block")?.value).toBe(58e9);
  });

  it("an mma of 4096 operations takes 1.6 cycles of an H100 and 2 of an A100", () => {
    expect(issueCyclesOn(nvidiaTarget("h100"), one("mma.m16n8k16.f32.f16"))?.value).toBeCloseTo(1.59, 2);
    expect(issueCyclesOn(nvidiaTarget("h100"), one("mma.m16n8k32.s32.s8"))?.value).toBeCloseTo(1.59, 2);
    expect(issueCyclesOn(nvidiaTarget("a100"), one("mma.m16n8k16.f32.f16"))?.value).toBe(2);
  });
});

describe("features of a compute capability", () => {
  it("grow with it, but for what only Hopper has", () => {
    expect(featuresOfCapability(70)).toEqual(["sm_61", "sm_70", "dp4a", "wmma"]);
    expect(featuresOfCapability(80)).toEqual(expect.arrayContaining(["mma", "cp_async", "ldmatrix"]));
    expect(featuresOfCapability(80)).not.toContain("tma");
    expect(featuresOfCapability(90)).toEqual(expect.arrayContaining(["wgmma", "sm_90a", "tma", "cp_async"]));
    expect(featuresOfCapability(100)).not.toContain("wgmma");
    expect(featuresOfCapability(100)).toContain("tma");
  });
});
