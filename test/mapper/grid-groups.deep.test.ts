/**
 * @file Schedules of warpgroups: random ones lower to nests that the judge finds free of races in adverse orders, and print as kernels that
 * are right on the emulated device; nvcc takes the best of a large product without a warning, a spill or serialised instructions.
 */

import { describe } from "vitest";
import type { Computation } from "../../abstraction/computation.ts";
import { pick, seededRandom } from "../../abstraction/random.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import {
  affordableSchedule,
  gridContextsOf,
  gridSubject,
  itEqualsTheEquation,
  matmulF16,
  reluConvolutionF16,
} from "../support/grid-kernels.ts";
import { playGrids } from "../support/grid-transcript.ts";
import { inFull } from "../support/slow.ts";
import { operation } from "../support/subjects.ts";

const CASES: readonly (readonly [string, Computation, readonly string[]])[] = [
  ["matmul f16", matmulF16(70, 64, 72), ["wgmma.m64n8k16.f32.f16", "wgmma.m64n32k16.f32.f16"]],
  ["matmul f16, nothing divides", matmulF16(37, 19, 53), ["wgmma.m64n8k16.f32.f16", "wgmma.m64n24k16.f32.f16"]],
  ["matmul s8", operation("matmul m=64 n=24 k=64", "s8"), ["wgmma.m64n8k32.s32.s8"]],
  ["matmul tf32", operation("matmul m=40 n=16 k=24", "tf32"), ["wgmma.m64n8k8.f32.tf32"]],
  [
    "conv2d f16 NHWC",
    reluConvolutionF16("conv2d n=1 c=16 k=64 h=6 w=6 r=3 s=3 pad=1"),
    ["wgmma.m64n32k16.f32.f16", "wgmma.m64n8k16.f32.f16"],
  ],
];

/** Of each computation this many schedules that are drawn, on which interpreting costs so many multiply-adds at most. */
const COUNT = inFull(40, 2);
const MOST_WORK = 500_000;

describe("a schedule of warpgroups", () => {
  itEqualsTheEquation(
    CASES.flatMap(([name, computation, rows]) => {
      const random = seededRandom(name.length);
      const contexts = gridContextsOf(computation, rows.flatMap(intrinsicsNamed));
      return Array.from({ length: COUNT }, (_, i) => {
        for (;;) {
          const context = pick(random, contexts);
          const schedule = affordableSchedule(context, random, MOST_WORK);
          if (schedule) return gridSubject(`${name} ${i}, ${context.intrinsic.name}`, context, schedule);
        }
      });
    }),
  );

  playGrids("groups");
});
