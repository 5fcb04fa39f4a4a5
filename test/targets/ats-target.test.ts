/**
 * @file Arctic Sound, which the talk modelled: kernels by the model alone, in Xe-HPG's instructions, and none of them
 * compiled.
 */

import { expect, it } from "vitest";
import { firstThatCompiles } from "../../session/judge/offline.ts";
import { rankOf } from "../../session/tune/rank.ts";
import { predictedGpuNamed } from "../../targets/index.ts";
import { disagreements } from "../support/subgroup-kernels.ts";
import { operation } from "../support/subjects.ts";

it("has a kernel of DPAS that equals the equation, and says that no compiler has seen it", async () => {
  const machine = predictedGpuNamed("ats");
  if (!machine) throw new Error("no target ats");
  const computation = operation("batched-matmul b=3 m=27 n=27 k=32", "f16");
  const ranked = rankOf(computation, { machine, count: 2 }, 60);
  if ("refused" in ranked) throw new Error(ranked.refused[0]?.because);
  const { kept, unchecked } = await firstThatCompiles(computation, ranked, machine);
  expect(unchecked).toBe("not compiled: no compiler here knows ats");
  expect(kept?.expected.candidate.intrinsic).toBe("opencl.dpas.8x8.f32.f16");
  expect(kept?.expected.prediction.seconds).toBeGreaterThan(0);
  if (!kept) return;
  expect(await disagreements([{ computation, candidate: kept.expected.candidate, kernel: kept.kernel }])).toEqual([]);
});
