/** @file The decisions that mattered, and the parts of charts: shares of variance, scales, labels moved apart. */

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type Decided, decisionShares, UNDECIDED } from "../../report/importance.ts";
import { fitted, LINE, linear, log, short, spread, timeUnit, widthOf } from "../../report/plot.ts";

const trial = (seconds: number, decisions: Record<string, string>, kind = "mapping"): Decided => ({
  kind,
  seconds,
  decisions: Object.entries(decisions),
});

describe("the share of a decision", () => {
  it("is all of the variance where it alone decides, and none where it does not matter", () => {
    const trials = Array.from({ length: 16 }, (_, i) =>
      trial(i % 2 === 0 ? 1e-4 : 2e-4, { stage: String(i % 2), order: String((i >> 1) % 2), only: "1" }),
    );
    const shares = decisionShares(trials);
    expect(shares.map(({ name, share }) => [name, share])).toEqual([
      ["stage", 1],
      ["order", 0],
    ]);
    expect(shares[0]?.values).toEqual([
      { value: "0", trials: 8, best: 1e-4, median: 1e-4 },
      { value: "1", trials: 8, best: 2e-4, median: 2e-4 },
    ]);
  });

  it("agrees with an analysis of variance by hand", () => {
    // log2: 1 2 2 3 | 3 4 4 5. Between 4.5 * 16/9..., total: mean 3, squares 12; within 2 + 2 = 4; 1 - (4/12) * 7/6.
    const logs = [1, 2, 2, 3, 3, 4, 4, 5];
    const [share] = decisionShares(logs.map((l, i) => trial(2 ** l, { tile: i < 4 ? "a" : "b" })));
    expect(share?.share).toBeCloseTo(1 - (4 / 12) * (7 / 6), 12);
  });

  it("is near zero on average for random values, however many there are", () => {
    let state = 1;
    const next = (): number => {
      state = (state * 48271) % 2147483647;
      return state / 2147483647;
    };
    for (const values of [2, 5, 10]) {
      const shares = Array.from({ length: 200 }, () => {
        const trials = Array.from({ length: 40 }, () =>
          trial(Math.exp(next()), { x: String(Math.floor(next() * values)) }),
        );
        return decisionShares(trials)[0]?.share ?? 0;
      });
      expect(shares.reduce((a, b) => a + b, 0) / shares.length).toBeLessThan(0.05);
    }
  });

  it("is not given for few trials, nor for values that few trials had", () => {
    const seven = Array.from({ length: 7 }, (_, i) => trial(i + 1, { a: String(i % 2) }));
    const each = Array.from({ length: 12 }, (_, i) => trial(i + 1, { a: String(i) }));
    for (const trials of [seven, each]) expect(decisionShares(trials)[0]?.share).toBeUndefined();
    expect(decisionShares([])).toEqual([]);
  });

  it("is judged over one kind of candidates where only that kind has the decision", () => {
    const lanes = Array.from({ length: 8 }, (_, i) => trial(1e-6 * (1 + (i % 2)), { rows: String(i >> 2) }, "lanes"));
    const grids = Array.from({ length: 8 }, () => trial(1, { stage: "2" }, "grid"));
    const shares = decisionShares([...lanes, ...grids]);
    expect(shares.map(({ name, trials }) => [name, trials])).toEqual([
      ["kind", 16],
      ["rows", 8],
    ]);
    expect(shares[0]?.share).toBeGreaterThan(0.9);
    expect(shares[1]?.share).toBe(0);
  });

  it("counts a missing decision as a value, sorted before numbers", () => {
    const trials = Array.from({ length: 9 }, (_, i) =>
      trial(i + 1, i % 3 === 0 ? { a: "1" } : { a: String(i % 3), split: "10" }),
    );
    const values = decisionShares(trials).map((d) => [d.name, d.values.map((v) => v.value)]);
    expect(Object.fromEntries(values)).toEqual({ a: ["1", "2"], split: [UNDECIDED, "10"] });
  });
});

describe("scales", () => {
  it("have round ticks within their range", () => {
    expect(linear([0, 47], [0, 100]).ticks).toEqual([0, 10, 20, 30, 40]);
    expect(log([42, 930], [0, 100]).ticks).toEqual([50, 100, 200, 500]);
    expect(log([61, 74], [0, 100]).ticks).toEqual([65, 70]);
    expect(linear([3, 3], [0, 100]).ticks.length).toBeGreaterThan(1);
    expect([short(12_500), short(3.2e12), short(0.05)]).toEqual(["12.5k", "3.2T", "0.05"]);
    expect([2, 3e-3, 4e-6, 5e-9].map((s) => timeUnit(s).name)).toEqual(["s", "ms", "us", "ns"]);
    fc.assert(
      fc.property(
        fc.double({ min: 1e-9, max: 1e15, noNaN: true }),
        fc.double({ min: 1, max: 1e9, noNaN: true }),
        (low, times) => {
          for (const scale of [log([low, low * times], [0, 1]), linear([low, low * times], [0, 1])]) {
            const places = scale.ticks.map(scale.at);
            expect(scale.ticks.length).toBeLessThan(9);
            expect(places.filter((p) => !(p > -1e-6 && p < 1 + 1e-6))).toEqual([]);
            expect(places.toSorted((a, b) => a - b)).toEqual(places);
          }
        },
      ),
    );
  });
});

describe("labels", () => {
  it("are moved apart in their order, within the allowed range", () => {
    expect(spread([50, 52, 100], 0, 200)).toEqual([50, 50 + LINE, 100]);
    expect(spread([195, 196], 0, 200)).toEqual([200 - LINE, 200]);
    fc.assert(
      fc.property(fc.array(fc.double({ min: 0, max: 300, noNaN: true }), { maxLength: 20 }), (wanted) => {
        const sorted = wanted.toSorted((a, b) => a - b);
        const places = spread(sorted, 0, 300);
        for (const [i, place] of places.entries()) {
          expect(place).toBeGreaterThan(-1e-6);
          expect(place).toBeLessThan(300 + 1e-6);
          if (i > 0) expect(place - (places[i - 1] ?? 0)).toBeGreaterThan(LINE - 1e-6);
        }
      }),
    );
  });

  it("are cut to the room they have", () => {
    expect(fitted("short", 200)).toBe("short");
    const cut = fitted("wgmma.m64n256k16.f32.f16", 80);
    expect(cut).toMatch(/^wgmma.*…$/);
    expect(widthOf(cut)).toBeLessThanOrEqual(80);
  });
});
