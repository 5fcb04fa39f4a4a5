/**
 * @file Medians, their intervals and the tie rule; instructions counted in a listing; processors as described by Linux.
 */

import { describe, expect, it } from "vitest";
import { randomInteger, seededRandom } from "../../abstraction/random.ts";
import { countMnemonic } from "../../runtime/disassembly.ts";
import { allowedCpus, coresHere, processorsOf, readProcessor } from "../../runtime/processor.ts";
import { compareTimes, isTie, median, summarise, summariseRatio } from "../../runtime/statistics.ts";
import fc from "../support/property.ts";

const sample = fc.double({ min: 1e-9, max: 1, noNaN: true });
const samples = fc.array(sample, { minLength: 1, maxLength: 40 });

describe("the median", () => {
  it("has as many samples below it as above it", () => {
    fc.assert(
      fc.property(samples, (xs) => {
        const middle = median(xs);
        expect(xs.filter((x) => x < middle).length).toBeLessThanOrEqual(xs.length / 2);
        expect(xs.filter((x) => x > middle).length).toBeLessThanOrEqual(xs.length / 2);
      }),
    );
    expect(median([3, 1, 2])).toBe(2);
    expect(median([4, 1, 2, 3])).toBe(2.5);
  });

  it("refuses an empty list of samples", () => {
    expect(() => median([])).toThrow("statistics: there are no samples");
  });
});

describe("the interval of a median", () => {
  it("holds the median and stays among the samples, and is the same for the same seed", () => {
    fc.assert(
      fc.property(samples, fc.integer(), (xs, seed) => {
        const { median: middle, interval } = summarise(xs, seed);
        expect(interval[0]).toBeLessThanOrEqual(middle);
        expect(interval[1]).toBeGreaterThanOrEqual(middle);
        expect(interval[0]).toBeGreaterThanOrEqual(Math.min(...xs));
        expect(interval[1]).toBeLessThanOrEqual(Math.max(...xs));
        expect(summarise(xs, seed)).toEqual(summarise(xs.toReversed(), seed));
      }),
      { numRuns: 30 },
    );
  });

  it("holds the true median 95 times of 100, give or take", () => {
    const random = seededRandom(5);
    let held = 0;
    for (let trial = 0; trial < 200; trial++) {
      const xs = Array.from({ length: 30 }, () => random() ** 2);
      const { interval } = summarise(xs, trial);
      if (interval[0] <= 0.25 && interval[1] >= 0.25) held++;
    }
    expect(held / 200).toBeGreaterThan(0.9);
    expect(held / 200).toBeLessThan(0.99);
  });

  it("is that of the medians of resamples, drawn and sorted one by one", () => {
    for (const count of [1, 2, 5, 8]) {
      const xs = Array.from({ length: count }, (_, i) => 2 ** i);
      const random = seededRandom(9);
      const medians = Array.from({ length: 1000 }, () =>
        median(xs.map(() => xs[randomInteger(random, 0, count - 1)] ?? 0)),
      ).sort((a, b) => a - b);
      const at = (fraction: number): number => {
        const rank = fraction * 999;
        const low = medians[Math.floor(rank)] ?? 0;
        return low + ((medians[Math.ceil(rank)] ?? 0) - low) * (rank - Math.floor(rank));
      };
      const { interval } = summarise(xs, 9);
      expect(interval[0]).toBeCloseTo(at(0.025), 9);
      expect(interval[1]).toBeCloseTo(at(0.975), 9);
    }
  });

  it("scales with its samples", () => {
    fc.assert(
      fc.property(samples, (xs) => {
        const half = summarise(xs, 1);
        const whole = summarise(
          xs.map((x) => 2 * x),
          1,
        );
        expect(whole).toEqual({ median: 2 * half.median, interval: half.interval.map((x) => 2 * x) });
      }),
      { numRuns: 20 },
    );
  });
});

describe("the tie rule", () => {
  it("calls overlapping intervals a tie, and ranks no result before itself", () => {
    const fast = { median: 1, interval: [0.9, 1.1] as const };
    const near = { median: 1.15, interval: [1.05, 1.2] as const };
    const slow = { median: 2, interval: [1.9, 2.1] as const };
    expect([compareTimes(fast, near), compareTimes(fast, slow), compareTimes(slow, near)]).toEqual([
      "tie",
      "faster",
      "slower",
    ]);
    fc.assert(
      fc.property(samples, samples, (xs, ys) => {
        const a = summarise(xs, 1);
        const b = summarise(ys, 2);
        expect(isTie(a, a)).toBe(true);
        expect(isTie(a, b)).toBe(isTie(b, a));
        const opposite = { faster: "slower", tie: "tie", slower: "faster" } as const;
        expect(compareTimes(a, b)).toBe(opposite[compareTimes(b, a)]);
      }),
      { numRuns: 20 },
    );
  });

  it("calls drifting samples a tie, where the ratio of neighbours tells them apart", () => {
    const random = seededRandom(1);
    const drift = Array.from({ length: 50 }, (_, i) => 1 + i / 10);
    const a = drift.map((d) => 1.05 * d * (1 + 0.01 * random()));
    const b = drift.map((d) => d * (1 + 0.01 * random()));
    expect(isTie(summarise(a, 1), summarise(b, 1))).toBe(true);
    expect(summariseRatio(a, b, 1).interval[0]).toBeGreaterThan(1.04);
  });
});

describe("counting an instruction", () => {
  const listing = `
0000000000001100 <automap_run>:
    1100:\tvpdpbusd (%rsi),%zmm1,%zmm0
    1106:\t{vex} vpdpbusd %ymm1,%ymm2,%ymm3
    110c:\tvfmadd213ps %zmm0,%zmm1,%zmm2
    1112:\tvpdpbusds %zmm0,%zmm1,%zmm2
    1118:\tcall   1030 <vpdpbusd>
    111d:\tret
`;

  it("counts its lines, prefixes or not, and neither longer names nor mentions", () => {
    expect(countMnemonic(listing, "vpdpbusd")).toBe(2);
    expect(countMnemonic(listing, "vpdpbusds")).toBe(1);
    expect(countMnemonic(listing, "tdpbusd")).toBe(0);
  });

  it("takes the three operand orders of a fused multiply-add for one instruction", () => {
    expect(countMnemonic(listing, "vfmadd231ps")).toBe(1);
    expect(countMnemonic(listing, "vfmadd231pd")).toBe(0);
  });
});

describe("the processors", () => {
  it("are pinned core by core, the second processors of cores last", () => {
    const siblings = (cpu: number): number[] => [cpu % 4, (cpu % 4) + 4];
    const order = (allowed: readonly number[], threads = 8): number[] =>
      processorsOf(
        coresHere(allowed, siblings, () => 1024),
        threads,
      );
    expect(order([0, 1, 2, 3, 4, 5, 6, 7])).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
    expect(order([0, 4, 1, 5])).toEqual([0, 1, 4, 5]);
    expect(order([0, 4, 1, 5], 3)).toEqual([0, 1, 4]);
  });

  it("are named by core, even where a core's first is not allowed, and small cores are told from big", () => {
    const cores = coresHere(
      [4, 1, 5, 2],
      (cpu) => [cpu % 4, (cpu % 4) + 4],
      (cpu) => (cpu === 2 ? 600 : 1024 - cpu),
    );
    expect(cores).toEqual([
      { name: "core 0", cpus: [4], isFastest: true },
      { name: "core 1", cpus: [1, 5], isFastest: true },
      { name: "core 2", cpus: [2], isFastest: false },
    ]);
  });

  it("are read from Linux", () => {
    expect(readProcessor("processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: fpu avx2\n\nprocessor\t: 1\n")).toEqual({
      model: "Some CPU",
      features: ["fpu", "avx2"],
    });
    expect(allowedCpus("Cpus_allowed:\tff\nCpus_allowed_list:\t0-2,5\n")).toEqual([0, 1, 2, 5]);
  });
});
