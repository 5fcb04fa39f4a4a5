/**
 * @file Kernels of blocks and warps from the space of a search, printed, compiled for the emulated device and compared
 * in every element.
 */

import { describe, expect, it } from "vitest";
import type { GridCandidate, GridSchedule } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { UsageError } from "../../abstraction/error.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { finished } from "../../abstraction/steps.ts";
import { candidateText, scheduleText } from "../../report/describe-candidate.ts";
import { usableIntrinsics } from "../../session/kinds/choose.ts";
import { choiceOnGpu } from "../../session/kinds/gpu-kinds.ts";
import { sessionSpace } from "../../session/kinds/space.ts";
import { nvidiaTarget } from "../../targets/index.ts";
import { emulatedRunner } from "../support/emulated-runner.ts";
import { matmulF16, mmaSchedule, reluConvolutionF16 } from "../support/grid-kernels.ts";
import { inFull } from "../support/slow.ts";
import { operation } from "../support/subjects.ts";

const TIMING = { budgetSeconds: 0, batches: [1, 1], batchSeconds: 0, stepSeconds: 60 } as const;
const COUNT = inFull(60, 1);

const { runner } = emulatedRunner();

const CASES = [
  ["matmul f16", matmulF16(40, 24, 48)],
  ["matmul tf32", operation("matmul m=20 n=16 k=24", "tf32")],
  ["conv2d f16", reluConvolutionF16("conv2d n=1 c=16 k=16 h=6 w=6")],
  ["conv2d s8", operation("conv2d n=1 c=32 k=16 h=5 w=5", "s8")],
  // The first layer of ResNet-18 and one that halves an image, shrunk.
  ["a first layer", operation("conv2d n=1 c=3 k=16 h=10 w=10 r=7 s=7 pad=3 stride=2", "f16")],
  ["a layer that halves", operation("conv2d n=2 c=16 k=24 h=9 w=9 r=1 s=1 pad=0 stride=2", "f16")],
] as const;

const machine = nvidiaTarget("h100");
const USABLE = usableIntrinsics(machine);
/** Where one schedule is drawn, judging the mappings of every instruction would be nearly all the work: those of warps, then. */
const OFFERED = inFull(
  USABLE,
  USABLE.filter((i) => i.name.startsWith("mma.")),
);

function spaceOf(computation: Computation, intrinsics: readonly Intrinsic[]) {
  const space = finished(sessionSpace(computation, { machine, intrinsics, threads: 1, seed: 1 }));
  if (!("kernelOf" in space)) throw new Error("nothing maps");
  return space;
}

describe("a kernel of blocks and warps", () => {
  it.each(CASES)(`equals the equation on the emulated device: %s, ${COUNT} of the space`, async (_, computation) => {
    const space = spaceOf(computation, OFFERED);
    const random = seededRandom(11);
    const candidates = Array.from({ length: COUNT }, () => space.random(random));
    const reference = await runner().reference(computation, 1);
    const measured = await runner().measureTogether(candidates.map(space.kernelOf), reference, TIMING);
    for (const [i, m] of measured.entries()) {
      const candidate = candidates[i];
      const subject = candidate && `${candidateText(candidate)} ${scheduleText(candidate)}`;
      expect(m.status === "ok" ? "ok" : m.log, subject).toBe("ok");
    }
  });
});

describe("the space of a GPU", () => {
  it("promises schedules of which the best beats nearly all random ones", () => {
    const space = spaceOf(operation("matmul m=256 n=256 k=256", "f16"), USABLE);
    const promised = (space.promising ?? []).map((c) => space.predict(c)?.seconds ?? Number.NaN);
    const random = seededRandom(5);
    const drawn = Array.from({ length: 16 }, () => space.predict(space.random(random))?.seconds ?? Number.NaN);
    expect(promised.length).toBeGreaterThan(10);
    const best = Math.min(...promised);
    expect(drawn.filter((seconds) => seconds < best).length).toBeLessThan(drawn.length / 8);
    expect(best).toBeLessThan(1.05 * Math.min(...drawn));
  });
});

describe("a recorded schedule of blocks", () => {
  const computation = operation("matmul m=64 n=64 k=64", "f16");
  const schedule = mmaSchedule(32, 32, 32, { transfer: "plain" });
  const problem = (change: Partial<GridSchedule>): string => {
    const candidate: GridCandidate = {
      kind: "grid",
      intrinsic: "mma.m16n8k16.f32.f16",
      matching: { m: ["m"], n: ["n"], k: ["k"] },
      operands: { c: "out[m,n]", a: "a[m,k]", b: "b[k,n]" },
      schedule: { ...schedule, ...change },
    };
    try {
      choiceOnGpu(computation, candidate);
      return "stands";
    } catch (error) {
      if (!(error instanceof UsageError)) throw error;
      return error.message;
    }
  };

  it("must give a tile and warps for its own axes and no others", () => {
    expect(problem({})).toBe("stands");
    expect(problem({ tile: {} })).toContain("tile is of nothing, not of m, n, k");
    expect(problem({ warps: { m: 1 } })).toContain("warps is of m, not of m, n");
    expect(problem({ tile: { m: 32, n: 32, k: 32, zz: 7 } })).toContain("tile is of m, n, k, zz, not of m, n, k");
    expect(problem({ warps: { m: 1, n: 1, k: 32 } })).toContain("warps is of m, n, k, not of m, n");
  });
});
