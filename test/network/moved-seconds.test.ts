/** @file What a step that only moves data is expected to take: on a CPU and on a GPU. */

import { expect, it } from "vitest";
import { defineComputation } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { memoryOf, readRate } from "../../abstraction/machine.ts";
import { leastSecondsOnGpu } from "../../perfmodel/grid.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import { movedSeconds } from "../../session/network/task-memory.ts";
import { nvidiaTarget, targetOf } from "../../targets/index.ts";
import { stated } from "../support/subjects.ts";

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
it("a step without products moves each tensor at the rate of the memory that holds it", () => {
  const extents = { i: 64, j: 1024 };
  const sums = defineComputation({ equation: "y[i] += x[i,j]", extents, tensors: { x: "f32", y: "f32" } });
  const bytes = 64 * 1024 * bytesOf("f32");
  const read = bytes / rateOf("l2") / TARGET.clockHz.value;
  const written = (64 * bytesOf("f32")) / levelNamed("l1").writeBytesPerCycle.value / TARGET.clockHz.value;
  expect(movedSeconds(sums, TARGET)).toBeCloseTo(read + written, 15);
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
