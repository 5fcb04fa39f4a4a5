/**
 * @file The element types of bench/gpu/gpu-search.ts: its kernels map, fill their ring by the copy engine or by threads,
 * and are right.
 */

import { describe, expect, it } from "vitest";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { inputsOf, outputOf } from "../../abstraction/computation.ts";
import { expectCompiled, expectRightEmulated, type GridSubject, gridContextOf, NVCC } from "../support/grid-kernels.ts";
import { inFull } from "../support/slow.ts";
import { type Configuration, suiteComputation } from "../support/suite.ts";

const LAYER = { n: 1, c: 64, h: 4, w: 5, k: 16, r: 3, s: 3, stride: 1, pad: 1, dilation: 1, groups: 1 };
const PRODUCT = { m: 40, n: 24, k: 128 };

/** The instructions of a type on Hopper and on Ampere, and elements of a step along the sum: 64 bytes. */
const TYPES = [
  ["f16", "wgmma.m64n16k16.f32.f16", "mma.m16n8k16.f32.f16", 32],
  ["bf16", "wgmma.m64n16k16.f32.bf16", "mma.m16n8k16.f32.bf16", 32],
  ["tf32", "wgmma.m64n16k8.f32.tf32", "mma.m16n8k8.f32.tf32", 16],
  ["s8", "wgmma.m64n16k32.s32.s8", "mma.m16n8k32.s32.s8", 64],
  ["e4m3", "wgmma.m64n16k32.f32.e4m3", "mma.m16n8k32.f32.e4m3", 64],
] as const;
type Row = (typeof TYPES)[number];

const HOPPER: GridSchedule = {
  tile: {},
  warps: { m: 1, n: 1 },
  stage: 3,
  swizzle: "spans",
  transfer: "engine",
  order: 1,
  fragments: "across",
  store: "direct",
};
const AMPERE: GridSchedule = { ...HOPPER, swizzle: "swizzled", transfer: "async", fragments: "inline" };

/** A configuration on the instructions of both. @param mapping as it is printed */
function subjectsOf(
  [dtype, hopper, ampere, k]: Row,
  one: Omit<Configuration, "dtype">,
  mapping: string,
): GridSubject[] {
  const computation = suiteComputation({ ...one, dtype });
  return [[hopper, HOPPER, { m: 64, n: 16, k }] as const, [ampere, AMPERE, { m: 16, n: 8, k }] as const].map(
    ([instruction, schedule, tile]) => ({
      name: `${dtype} ${one.op} ${one.layout} ${instruction}`,
      schedule: { ...schedule, tile },
      context: gridContextOf(computation, instruction, mapping),
    }),
  );
}

const subjects = (row: Row): readonly GridSubject[] => [
  ...subjectsOf(row, { op: "c2d", params: LAYER, layout: "last" }, "m <- n,p,q; n <- k; k <- c"),
  ...subjectsOf(row, { op: "gmm", params: PRODUCT, layout: "last" }, "m <- m; n <- n; k <- k"),
];

describe("the operator suite", () => {
  it.each(TYPES.map((row) => [row[0], row] as const))(
    "in %s has factors of that type, and stores the type that PyTorch does",
    (dtype, row) => {
      const computation = subjects(row)[0]?.context.mapping.computation;
      const stored = { f16: "f16", bf16: "bf16", tf32: "f32", s8: "s32", e4m3: "bf16" } as const;
      expect(computation && inputsOf(computation).map((t) => t.dtype)).toEqual([dtype, dtype]);
      expect(computation && outputOf(computation).dtype).toBe(stored[dtype]);
    },
  );

  it("is right on the emulated device in every type, with instructions of Hopper and Ampere", () =>
    expectRightEmulated(TYPES.slice(1).flatMap(subjects)));

  it.skipIf(NVCC === undefined).each(
    inFull(TYPES.slice(1), TYPES.slice(3))
      .flatMap(subjects)
      .map((s) => [s.name, s] as const),
  )("is compiled: %s", (_, subject) => {
    const { asynchronous, isa } = subject.context.intrinsic;
    return expectCompiled(subject, asynchronous ? "90a" : isa === "sm_89" ? "89" : "80");
  });
});
