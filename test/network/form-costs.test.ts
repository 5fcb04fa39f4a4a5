/** @file What a step of a network is expected to take in one of its forms: its kernels, what is moved, weights that other weights displaced. */

import { expect, it } from "vitest";
import { type Computation, defineComputation } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { memoryOf, readRate } from "../../abstraction/machine.ts";
import type { Network, Step } from "../../network/network.ts";
import { leastSecondsOnGpu } from "../../perfmodel/grid.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import { levelOfWeights, movedSeconds, secondsOfForm } from "../../session/network/forms.ts";
import { nvidiaTarget, targetOf } from "../../targets/index.ts";
import { operation, stated } from "../support/subjects.ts";

const TARGET = modelTarget(
  targetOf({
    name: "Testium",
    isa: [],
    levels: [
      { name: "dram", units: 1 },
      { name: "l3", units: 1, bytes: 32 << 20 },
      { name: "l2", units: 1, bytes: 1 << 20 },
      { name: "l1", units: 1, bytes: 32 << 10 },
    ],
    source: "made up",
  }),
);

function levelNamed(name: string) {
  const level = TARGET.memory.find((one) => one.name === name);
  if (!level) throw new Error(`no ${name}`);
  return level;
}

const rateOf = (name: string): number => levelNamed(name).readBytesPerCycle.value;
const BYTES = 100 * 90 * bytesOf("f32");
const product = operation("matmul m=4 n=90 k=100", "f32", { constants: ["b"] });
const seconds = (from: string, computation = product, isFlushed = false): number | undefined =>
  secondsOfForm(
    [{ computation } as Step],
    { secondsOf: () => 1e-3, isFlushed: () => isFlushed, target: TARGET },
    levelNamed(from),
  );

it("weights that fit the second level take longer from where they lie in a network, by their bytes at both rates", () => {
  const extra = (from: string): number => (BYTES * (1 / rateOf(from) - 1 / rateOf("l2"))) / TARGET.clockHz.value;
  expect(rateOf("dram")).toBeLessThan(rateOf("l2"));
  for (const from of ["l3", "dram"]) expect(seconds(from)).toBeCloseTo(1e-3 + extra(from), 12);
});

it("weights take no longer from where they lie in a kernel called again, nor after caches were flushed, nor what is no constant", () => {
  expect(seconds("l2")).toBe(1e-3);
  expect(seconds("l1")).toBe(1e-3);
  expect(seconds("dram", product, true)).toBe(1e-3);
  expect(seconds("dram", operation("matmul m=4 n=90 k=100"))).toBe(1e-3);
});

it("the weights of all steps lie together in the smallest memory that holds them", () => {
  const levelOf = (...of: readonly Computation[]): string =>
    levelOfWeights({ steps: of.map((computation) => ({ computation })) } as unknown as Network, TARGET).name;
  const large = operation("matmul m=1000 n=100 k=100", "f32", { constants: ["b"] });
  expect(levelOf(product)).toBe("l2");
  expect(levelOf(large)).toBe("l2");
  expect(levelOf(...Array.from({ length: 30 }, () => large))).toBe("l3");
  expect(levelOf(operation("matmul m=4 n=90 k=100"))).toBe("l1");
});

it("a step without products moves each tensor at the rate of the memory that holds it", () => {
  const extents = { i: 64, j: 1024 };
  const sums = defineComputation({ equation: "y[i] += x[i,j]", extents, tensors: { x: "f32", y: "f32" } });
  const bytes = 64 * 1024 * bytesOf("f32");
  const read = bytes / rateOf("l2") / TARGET.clockHz.value;
  const written = (64 * bytesOf("f32")) / levelNamed("l1").writeBytesPerCycle.value / TARGET.clockHz.value;
  const moved = movedSeconds(sums, TARGET);
  expect(moved).toBeCloseTo(read + written, 15);
  // Threads share it.
  const form = [{ computation: sums } as Step];
  expect(secondsOfForm(form, { secondsOf: () => 0, target: TARGET, threads: 2 }, levelNamed("l1"))).toBe(moved / 2);
});

it("a GPU reads what its last cache just holds at that cache's rate, and more at that of its memory", () => {
  const target = nvidiaTarget("h100");
  const bytes = memoryOf(target, "l2").bytes?.value ?? 0;
  const seconds = (n: number): number => {
    const copy = stated(`y[i] = x[i] --i ${n}`);
    return leastSecondsOnGpu(copy, target) - (target.fixed["launch"]?.value ?? 0);
  };
  const elements = bytes / (2 * bytesOf("f32"));
  expect(Number.isInteger(elements)).toBe(true);
  expect(seconds(elements)).toBeCloseTo(bytes / (readRate(target, "l2", "grid")?.value ?? 0), 12);
  expect(seconds(elements + 1)).toBeCloseTo((bytes + 8) / (readRate(target, "dram", "grid")?.value ?? 0), 12);
});
