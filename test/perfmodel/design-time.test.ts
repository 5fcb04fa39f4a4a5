/** @file The time of space-time designs: figures counted by hand from the table of machines. */

import { describe, expect, it } from "vitest";
import { arrayPass } from "../../mapper/space-time/derive.ts";
import { type Design, designOf } from "../../mapper/space-time/design.ts";
import { explainDesign, predictDesign } from "../../perfmodel/design.ts";
import { LANE_TARGETS, laneCosts, laneTarget } from "../../targets/lanes.ts";
import { convolution1d, product } from "../support/space-time.ts";

const line = arrayPass(convolution1d(16, 5)).problem;
const design = (allocation: readonly number[], schedule: readonly number[]): Design =>
  designOf(line, { allocation: [allocation], schedule: [schedule] });
const SBM = design([1, 1], [0, 1]);
const FBS = design([1, 0], [0, 1]);
const FSA = design([0, 1], [1, 0]);

describe("the time of a design", () => {
  const avx512 = laneTarget("avx512");

  it("FBS on AVX-512 takes one vector, one shift and one load a step, and stores its sums once", () => {
    const time = predictDesign(FBS, line, avx512);
    expect(time.vectors).toBe(1);
    // x enters at 20 places of the 80: 4 a step, one vector's worth at most.
    expect(time.step).toEqual({ multiplyAdds: 0.5, shifts: 1, loads: 1, stores: 0 });
    expect(time.once).toEqual({ multiplyAdds: 0, shifts: 0, loads: 0, stores: 1 });
    expect(time.chain).toEqual({ cycles: 4, operand: "out" });
    expect(time.cycles).toBe(5);
    expect(time.latencyCycles).toBe(7 + 5 * 4 + 4 + 1);
  });

  it("SBM takes two vectors that shift on AVX-512, and one for all 20 PEs on a warp", () => {
    const time = predictDesign(SBM, line, avx512);
    expect(time.vectors).toBe(2);
    expect(time.step).toEqual({ multiplyAdds: 1, shifts: 2, loads: 0.5, stores: 0 });
    // All results leave at the last step.
    expect(time.once).toEqual({ multiplyAdds: 0, shifts: 0, loads: 1, stores: 2 });
    expect(time.chain).toEqual({ cycles: 4 + 3, operand: "out" });
    expect(time.cycles).toBe(10);
    const warp = predictDesign(SBM, line, laneTarget("warp"));
    expect([warp.vectors, warp.step.shifts, warp.cycles]).toEqual([1, 4, 5 * 4 + 4]);
    expect([warp.step.loads, warp.once.loads]).toEqual([4, 4]);
  });

  it("a sum across five PEs takes three more shifts and additions", () => {
    const { step } = predictDesign(FSA, line, avx512);
    expect([step.shifts, step.multiplyAdds]).toEqual([3 + 1, 0.5 * 4]);
  });

  it("elements of eight bytes take twice the vectors on a core, and as many on a warp", () => {
    expect(predictDesign(FBS, line, avx512, 8).vectors).toBe(2);
    expect(predictDesign(FBS, line, laneTarget("warp"), 8).vectors).toBe(1);
  });

  it("a plane of PEs is divided into vectors", () => {
    const { problem } = arrayPass(product(8, 8, 3), { loops: ["i", "j", "k"] });
    const plane = designOf(problem, {
      allocation: [
        [1, 0, 0],
        [0, 1, 0],
      ],
      schedule: [[1, 1, 1]],
    });
    expect(predictDesign(plane, problem, avx512).vectors).toBe(4);
  });

  it.each(LANE_TARGETS.map((t) => [t.lanes?.name, t] as const))(
    "with full overlap is no more than with none: %s",
    (_, machine) => {
      for (const d of [SBM, FBS, FSA]) {
        const { cycles, sumCycles, latencyCycles } = predictDesign(d, line, machine);
        expect(cycles).toBeGreaterThan(0);
        expect(sumCycles).toBeGreaterThanOrEqual(cycles);
        expect(latencyCycles).toBeGreaterThanOrEqual(cycles);
        const explained = explainDesign(d, predictDesign(d, line, machine), machine);
        expect(explained).toContain(`multiply-adds: ${laneCosts(machine).multiplyAdd.source.slice(0, 60)}`);
      }
    },
  );
});
