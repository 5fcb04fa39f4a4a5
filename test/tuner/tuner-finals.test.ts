/** @file Who is measured again at the end of a search: finalists, and those near enough to the best. */

import { describe, expect, it } from "vitest";
import { random } from "../../tuner/random.ts";
import { contendersOf, finalistsOf, secondsOf, type TrialOf } from "../../tuner/trials.ts";
import { failed, fakeTune, gridWhere, predicts, secondsAt, took } from "../support/fake-space.ts";

const keys = (trials: readonly TrialOf<unknown>[]): string[] => trials.map(({ key }) => key);

describe("finalists", () => {
  const trial = (
    key: string,
    median: number,
    interval: readonly [number, number],
    seconds?: number,
  ): TrialOf<string> => ({
    key,
    candidate: key,
    prediction: seconds === undefined ? undefined : predicts(seconds),
    measurement: { status: "ok", samples: [median], median, interval, instructions: 1 },
    at: 0,
  });

  it("are those whose intervals overlap with the leader's, the shorter prediction first", () => {
    const a = trial("a", 10, [9, 11], 5);
    const b = trial("b", 11, [10, 13], 4);
    const c = trial("c", 12.5, [12, 13], 1);
    expect(keys(finalistsOf([c, a, b]))).toEqual(["b", "a"]);
  });

  it("are at most the three lowest medians, unpredicted ones last, equal ones by key", () => {
    const interval = [0, 99] as const;
    const all = [
      trial("z", 1, interval, 5),
      trial("y", 2, interval),
      trial("x", 3, interval, 5),
      trial("w", 4, interval, 1),
    ];
    expect(keys(finalistsOf(all))).toEqual(["x", "z", "y"]);
    expect(keys(finalistsOf([...all].reverse()))).toEqual(["x", "z", "y"]);
  });

  it("have no failed run among them", () => {
    const broken = { ...trial("a", 1, [1, 1]), measurement: failed("wrong") };
    expect(keys(finalistsOf([broken, trial("b", 9, [8, 9])]))).toEqual(["b"]);
    expect(finalistsOf([broken])).toEqual([]);
  });
});

describe("contenders", () => {
  const trial = (key: string, median: number, fastest: number): TrialOf<string> => ({
    key,
    candidate: key,
    prediction: undefined,
    measurement: {
      status: "ok",
      samples: [median, fastest, median],
      median,
      interval: [median, median],
      instructions: 1,
    },
    at: 0,
  });
  const leader = trial("leader", 10, 10);

  it("are the finalists and the trials once or by prediction faster than the leader's median", () => {
    const all = [trial("slow", 30, 29), trial("once", 20, 9), trial("hoped", 30, 30), leader];
    const expected = (key: string): number | undefined => ({ leader: 10, slow: 11, once: 20, hoped: 9 })[key];
    expect(keys(contendersOf(all, expected))).toEqual(["leader", "once", "hoped"]);
  });

  it("are at most three of each kind, the most promising first, and none twice", () => {
    const names = ["a", "b", "c", "d", "e", "f", "g"];
    const all = [leader, ...names.map((key, i) => trial(key, 20, 2 + i))];
    const expected = (key: string): number => 1 + names.indexOf(key);
    expect(keys(contendersOf(all, expected))).toEqual(["leader", "a", "b", "c", "d", "e", "f"]);
    expect(keys(contendersOf(all, () => undefined))).toEqual(["leader", "a", "b", "c"]);
  });

  it("are predicted by the model that has learnt from all trials", async () => {
    let learnt = 0;
    const { result } = await fakeTune({
      space: gridWhere(({ m, n }) => m === 5 && n === 3),
      strategy: random,
      seed: 1,
      batch: 8,
      answer: (p) => took(secondsAt(p)),
      budget: { trials: 16 },
      earlyStop: false,
      // It ends up believing the opposite of what was measured.
      predict: (p) => predicts(learnt === 0 ? 1 : secondsAt(p) ** -5),
      learn: (trials) => {
        learnt = trials.length;
      },
    });
    const slowest = result.trials.reduce((a, b) => ((secondsOf(a) ?? 0) > (secondsOf(b) ?? 0) ? a : b));
    expect(learnt).toBeGreaterThan(0);
    expect(keys(result.finalists)).not.toContain(slowest.key);
    expect(keys(result.contenders)).toContain(slowest.key);
  });
});
