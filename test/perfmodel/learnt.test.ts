/** What trees learn of a GPU's kernels: from examples made up, from a table written by hand, and the trees that are shipped. */

import { describe, expect, it } from "vitest";
import { isMappedOnGpu } from "../../abstraction/candidate.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { treesOfModels } from "../../bench/model/trees.ts";
import { type Costs, gridPrediction } from "../../perfmodel/correct.ts";
import { LEARNT_MODELS, learnt, type Trees, treesOf, treesSum } from "../../perfmodel/learnt.ts";
import { choiceOnGpu, costsOnGpu, partsOnGpu, predictOnGpu } from "../../session/kinds/gpu-kinds.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { recordedCases } from "../support/recorded-trials.ts";

const H100 = nvidiaTarget("h100");

/** Costs of a second, with features. */
const costsWith = (features: Readonly<Record<string, number>>): Costs & { readonly features: typeof features } => ({
  terms: [],
  bounds: [1, 1],
  traits: [],
  features,
});

describe("a sum of trees", () => {
  /** Two trees of two questions. */
  const trees: Trees = {
    features: ["x", "y"],
    depth: 2,
    asked: [0, 1, 1, 1],
    above: [10, 5, 0, 7],
    entries: [0.1, 0.2, 0.3, 0.4, 1, 2, 3, 4],
  };

  it("takes of each tree the entry of the answers, the first of which is the lowest bit", () => {
    expect(treesSum(trees, [0, -1])).toBeCloseTo(0.1 + 1, 12);
    expect(treesSum(trees, [11, 6])).toBeCloseTo(0.4 + 2, 12);
    expect(treesSum(trees, [10, 8])).toBeCloseTo(0.3 + 4, 12);
  });

  it("multiplies the time, by a factor of three at most, and leaves the parts as they were", () => {
    const small = { ...trees, entries: trees.entries.map((e) => e / 10) };
    expect(learnt("grid", costsWith({ x: 0, y: -1 }), small).factor).toBeCloseTo(Math.exp(0.11), 12);
    const costs = learnt("grid", costsWith({ x: 11, y: 8 }), trees);
    expect(costs.factor).toBeCloseTo(3, 12);
    const { seconds, uncorrectedSeconds } = gridPrediction(costs, { inner: [], read: [], write: [] }, 1);
    expect([seconds, uncorrectedSeconds]).toEqual([costs.factor, 1]);
  });

  it("is refused where the features are others", () => {
    expect(() => learnt("grid", costsWith({ x: 0 }), trees)).toThrow("make perfmodel/learnt.json anew");
  });
});

describe("trees that are taught", () => {
  /** Kernels that take twice as long where x is above 3 and y below 0.5; z says nothing. */
  const kernels = (seed: number, count: number) => {
    const random = seededRandom(seed);
    return Array.from({ length: count }, () => {
      const features = { x: Math.floor(8 * random()), y: random(), z: random() };
      const factor = features.x > 3 && features.y < 0.5 ? 2 : 1;
      return {
        model: "grid",
        of: "a case",
        costs: costsWith(features),
        measuredSeconds: factor * (1 + 0.1 * (random() - 0.5)),
      };
    });
  };

  it("predict kernels that they have not seen, always the same", () => {
    const taught = treesOfModels(kernels(1, 1000), 60).get("grid");
    if (!taught) throw new Error("no trees");
    expect(taught).toEqual(treesOfModels(kernels(1, 1000), 60).get("grid"));
    // What they have in common is left to the case.
    const errors = kernels(2, 200).map(({ costs, measuredSeconds }) =>
      Math.log(measuredSeconds / (learnt("grid", costs, taught).factor ?? 0)),
    );
    const common = errors.reduce((sum, e) => sum + e, 0) / errors.length;
    expect(errors.reduce((sum, e) => sum + Math.abs(e - common), 0) / errors.length).toBeLessThan(0.1);
  });

  it("are those of the kinds of kernels there are", () => {
    expect([...treesOfModels(kernels(1, 50), 1).keys()]).toEqual(["grid"]);
  });
});

describe("the trees of the package", () => {
  const [recorded] = recordedCases("bench/trials/cuda-random-h100.jsonl.gz");

  for (const model of LEARNT_MODELS)
    it(`were taught by the features that the model of ${model} tells now`, () => {
      const trial = recorded?.trials.find(({ candidate }) => candidate.kind === model);
      if (!recorded || !trial || !isMappedOnGpu(trial.candidate)) throw new Error("no kernel");
      const choice = choiceOnGpu(recorded.computation, trial.candidate, H100);
      const { features = {} } = partsOnGpu(choice, H100) ?? {};
      expect(Object.keys(features)).toEqual(treesOf(model).features);
      expect(Object.values(features).every(Number.isFinite)).toBe(true);
      const { factor = 1 } = costsOnGpu(choice, H100) ?? {};
      expect(factor).not.toBe(1);
      const { seconds = 0, uncorrectedSeconds = 0 } = predictOnGpu(choice, H100) ?? {};
      expect(seconds / uncorrectedSeconds).toBeCloseTo(factor, 12);
    });
});
