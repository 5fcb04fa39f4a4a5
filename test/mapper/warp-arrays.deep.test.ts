/**
 * @file Designs by their transforms on the warps of a GPU: what a search chooses from, how they read on a whole warp and on a part of it, results
 * under emulation, and what is refused. Random ones stand in drawn-lanes.deep.test.ts ("designs by their transforms as CUDA").
 */

import { describe, expect, it } from "vitest";
import { type Candidate, canonicalJson, isDesign, type WarpDesignSchedule } from "../../abstraction/candidate.ts";
import { type Computation, defineComputation } from "../../abstraction/computation.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { finished } from "../../abstraction/steps.ts";
import { usableIntrinsics } from "../../session/kinds/choose.ts";
import { warpMultiplyAddOf } from "../../session/kinds/design-kinds.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { sessionKindOf } from "../../session/kinds/kinds.ts";
import { isRefusals } from "../../session/kinds/session-space.ts";
import { sessionSpace } from "../../session/kinds/space.ts";
import { nvidiaTarget } from "../../targets/index.ts";
import { type ArraySpaceOfDesigns, bestOfEach } from "../../tuner/array-candidates.ts";
import { evaluateTogether, type Judged } from "../../tuner/evaluate.ts";
import { lanesFor, warpArraySpace } from "../../tuner/warp-array-candidates.ts";
import { emulatedRunner } from "../support/emulated-runner.ts";
import { recordedCases } from "../support/recorded-trials.ts";
import { stated } from "../support/subjects.ts";

const H100 = nvidiaTarget("h100");
const intrinsics = usableIntrinsics(H100);
const { runner } = emulatedRunner();

function spaceOf(computation: Computation, mixed?: number): ArraySpaceOfDesigns<WarpDesignSchedule> {
  const space = finished(warpArraySpace(computation, H100, mixed));
  if ("rule" in space) throw new Error(space.because);
  return space;
}

function bestOf(computation: Computation, dataflow: string): WarpDesignSchedule {
  const best = bestOfEach(spaceOf(computation, 2)).find((b) => b.design.dataflow === dataflow);
  if (!best) throw new Error(`no ${dataflow}`);
  return best.schedule;
}

const kernelOf = (computation: Computation, schedule: WarpDesignSchedule) =>
  kernelFor(computation, {
    kind: "warp-design",
    schedule,
    intrinsic: warpMultiplyAddOf(computation, intrinsics)?.name ?? "",
  });

const LINE = stated("conv1d-single --l 200 --r 5");

describe("a search on a GPU", () => {
  const multiplyAdds = intrinsics.filter((i) => i.name.startsWith("cuda.fma."));

  function drawn(computation: Computation, kinds: "all" | "lanes"): readonly Candidate[] {
    const space = finished(
      sessionSpace(computation, { machine: H100, intrinsics: multiplyAdds, threads: 1, seed: 1, kinds }),
    );
    if (isRefusals(space)) throw new Error(space.map((r) => r.because).join());
    const random = seededRandom(1);
    const drawn = Array.from({ length: 20 }, () => space.random(random));
    return [...(space.representatives ?? []), ...(space.promising ?? []), ...drawn];
  }

  it("has designs by transforms beside windows when lanes are asked for, and alone where no window runs", () => {
    const both = drawn(LINE, "lanes");
    expect([both.some(isDesign), both.some((c) => !isDesign(c))]).toEqual([true, true]);
    expect(drawn(LINE, "all").some(isDesign)).toBe(false);
    // The best window is measured first.
    expect(both[0]).toMatchObject({ schedule: { dataflow: expect.any(String) } });
    const channels = drawn(stated("conv1d --n 16 --c 32 --k 64 --l 4096 --r 9"), "lanes");
    expect([channels.slice(0, 2).map(isDesign), channels.some((c) => !isDesign(c))]).toEqual([[false, true], true]);
    const filter = drawn(stated("conv2d-single --h 8192 --w 8192 --r 9 --s 9"), "lanes");
    expect(filter.some(isDesign)).toBe(false);
    const depthwise = stated("depthwise-conv2d --n 1 --c 3 --h 9 --w 40 --m 1");
    expect(new Set(drawn(depthwise, "lanes").map(isDesign))).toEqual(new Set([true]));
    expect(drawn(depthwise, "all").some(isDesign)).toBe(true);
  });

  it("expects data that are loaded to win over sums that migrate, and these over sums across lanes", () => {
    const space = spaceOf(stated("conv2d-single --h 2048 --w 2048 --r 5 --s 5"), 2);
    const best = space.bestOfEach();
    const seconds = ["FBS", "SBM", "FSA"].map(
      (dataflow) => best.find((b) => b.design.dataflow === dataflow)?.seconds ?? 0,
    );
    expect(seconds).toEqual(seconds.toSorted((a, b) => a - b));
    expect(new Set(seconds).size).toBe(3);
  });

  it.each(["h100", "h200"])(
    "expects what was measured on an %s, within a factor of 1.3 for half of the designs",
    (name) => {
      const cases = recordedCases(`bench/trials/cuda-designs-${name}.jsonl.gz`);
      const groups = cases.map(({ computation, trials }) =>
        trials.flatMap(({ candidate, median }): Judged[] => {
          if (candidate.kind !== "warp-design") return [];
          const predicted = sessionKindOf(candidate).predict(computation, candidate, { machine: nvidiaTarget(name) });
          return [{ predicted: predicted?.seconds ?? 0, measured: median }];
        }),
      );
      const { pairwise = 0, recall = 0 } = evaluateTogether(groups);
      expect(pairwise).toBeGreaterThan(0.88);
      expect(recall).toBeGreaterThan(0.83);
      const errors = groups.flat().map(({ predicted, measured }) => Math.abs(Math.log(measured / predicted)));
      expect(errors.toSorted((a, b) => a - b)[errors.length >> 1]).toBeLessThan(Math.log(1.3));
    },
  );

  it("changes what runs beside a design, or its transform with the same beside it and its inputs alike", () => {
    const space = spaceOf(LINE, 2);
    const random = seededRandom(4);
    const shared = { transform: 0, beside: 0 };
    for (let i = 0; i < 200; i++) {
      const own = space.random(random);
      const next = space.mutate(own, random);
      const same = (of: (s: WarpDesignSchedule) => unknown): boolean =>
        canonicalJson(of(own)) === canonicalJson(of(next));
      if (same((s) => s.transform)) shared.transform++;
      else if (same((s) => [s.beside, s.inputs])) shared.beside++;
    }
    expect(shared.transform + shared.beside).toBe(200);
    expect(Math.min(shared.transform, shared.beside)).toBeGreaterThan(50);
  });

  it("runs an array of few PEs on the smallest part of a warp that holds it", () => {
    expect([1, 4, 5, 16, 17, 32].map(lanesFor)).toEqual([4, 4, 8, 16, 32, 32]);
    const { ranked } = spaceOf(LINE, 2);
    for (const { design, schedule } of ranked) expect(schedule.lanes).toBe(lanesFor(design.judged.design.pes));
    expect(new Set(ranked.map((r) => r.schedule.lanes))).toEqual(new Set([8, 32]));
    expect(new Set(ranked.map((r) => r.schedule.warps))).toEqual(new Set([undefined, 8]));
  });
});

describe("a design on warps", () => {
  it("exchanges values within its part of a warp, which is dealt like a warp", () => {
    const schedule = { ...bestOf(LINE, "BSM"), inputs: "passed", warps: 2 } as const;
    expect(schedule.lanes).toBe(8);
    const source = `${kernelOf(LINE, schedule).source}`;
    expect(source).toContain("const int warp_index = blockIdx.x * 8 + threadIdx.x / 8;");
    expect(source).toContain("const int lane = threadIdx.x % 8;");
    expect(source).toMatch(/__shfl_up_sync\(0xffffffffu, OUT0_?, 1, 8\)/);
    expect(source).toContain("dim3(64)");
  });

  const HALVES = stated("conv2d-single --h 8 --w 45 --r 3 --s 3 --dtype f16");
  const EPILOGUE = defineComputation({
    name: "filter and rectify",
    equation: "sum[k,i,j] += s32(x[i+r,2*j+s]) * s32(w[k,r,s])",
    epilogue: "y[k,i,j] = sat_u8(max(sum[k,i,j] + b[k], 0))",
    extents: { k: 3, i: 4, j: 19, r: 2, s: 3 },
    tensors: { x: "u8", w: "s8", b: "s32" },
  });
  it.each([
    ["f32", LINE, ["FBS", "SBM", "BSM", "FSA"]],
    ["f64", stated("conv1d --n 1 --c 3 --k 4 --l 60 --r 4 --dtype f64"), ["FBS", "SBM"]],
    ["f16 with sums of f32", HALVES, ["FBS", "SBM"]],
    ["bytes and an epilogue", EPILOGUE, ["FBS"]],
    ["a product", stated("matmul --m 5 --n 40 --k 7"), ["BNS"]],
  ] as const)("equals the equation in every element: %s", async (_, computation, dataflows) => {
    const kernels = dataflows.map((dataflow) => kernelOf(computation, bestOf(computation, dataflow)));
    const measured = await runner().measureTogether(kernels, runner().reference(computation, 1), {
      budgetSeconds: 0,
      batches: [1, 1],
    });
    expect(measured.map((m) => (m.status === "ok" ? "ok" : m.log))).toEqual(dataflows.map(() => "ok"));
  });

  it("is refused with the reason: parts that do not divide a warp, dots, an instruction of a CPU", () => {
    const schedule = bestOf(LINE, "FBS");
    const changed = (changes: Partial<WarpDesignSchedule>) => () => kernelOf(LINE, { ...schedule, ...changes });
    expect(changed({ lanes: 12, tile: { p: 12 } })).toThrow("a warp of 32 lanes is not divided into parts of 12");
    expect(changed({ inputs: "dots" })).toThrow("dot products of lanes are of AVX-512");
    const onCpu = {
      kind: "warp-design",
      intrinsic: "avx512.fma.f32",
      schedule: { ...schedule, lanes: 16, warps: 8 },
    } as const;
    expect(() => kernelFor(LINE, onCpu)).toThrow("the kind warp-design is of the warps of a GPU");
  });
});
