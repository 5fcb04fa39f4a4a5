/** @file The genetic strategy: better than random search, without side effects, and robust against failures. */

import Genetic from "genetic-js";
import { afterEach, describe, expect, it, vi } from "vitest";
import type { Measurement, Prediction } from "../../abstraction/trial.ts";
import { genetic } from "../../tuner/genetic.ts";
import { random } from "../../tuner/random.ts";
import type { TuneEvent } from "../../tuner/search.ts";
import type { SearchSpace } from "../../tuner/space.ts";
import type { Strategy } from "../../tuner/strategy.ts";
import { secondsOf } from "../../tuner/trials.ts";
import {
  failed,
  fakeTune,
  grid,
  mostlyWorks,
  nearlyRight,
  noiseAt,
  OPTIMUM,
  type Point,
  predicts,
  secondsAt,
  took,
} from "../support/fake-space.ts";

const works = (point: Point): Measurement => took(secondsAt(point));
const base = { space: grid, predict: nearlyRight, answer: works, earlyStop: false, budget: { trials: 40 } } as const;
const seeds = [1, 2, 3, 4, 5];

async function bestOf(
  strategy: Strategy,
  options: Partial<Parameters<typeof fakeTune<Point>>[0]> = {},
): Promise<number[]> {
  const runs = seeds.map((seed) => fakeTune<Point>({ ...base, seed, strategy, ...options }));
  return (await Promise.all(runs)).map(
    ({ result }) => (result.best && secondsOf(result.best)) ?? Number.POSITIVE_INFINITY,
  );
}

describe("the genetic strategy", () => {
  it("finds the optimum of 4096 points in 40 trials under a good model, where random does not", async () => {
    const bred = await bestOf(genetic);
    const drawn = await bestOf(random);
    expect(bred).toEqual(seeds.map(() => secondsAt(OPTIMUM)));
    expect(Math.min(...drawn)).toBeGreaterThan(secondsAt(OPTIMUM));
  });

  it("beats random under a bad model as well", async () => {
    const bad = (point: Point) => predicts(secondsAt(point) * (0.3 + 1.4 * noiseAt(point)));
    const bred = await bestOf(genetic, { predict: bad });
    const drawn = await bestOf(random);
    for (const [i, seconds] of bred.entries()) expect(seconds).toBeLessThanOrEqual(drawn[i] ?? 0);
  });

  it("begins with the candidates that the space promises", async () => {
    const few = {
      ...base,
      seed: 1,
      strategy: genetic,
      strategyOptions: { population: 4, generations: 1, descents: 0 },
    };
    const first = async (space: SearchSpace<Point>): Promise<number | undefined> =>
      (await fakeTune({ ...few, space, budget: { trials: 8 } })).result.trials[0]?.prediction?.seconds;
    const promised = await first({ ...grid, promising: [OPTIMUM] });
    const drawn = await first(grid);
    expect(promised).toBe(nearlyRight(OPTIMUM)?.seconds);
    expect(drawn).toBeGreaterThan(promised ?? 0);
  });

  it("goes on from the best that it bred, one step at a time, until no step gains", async () => {
    const first = async (descents: number): Promise<number> => {
      const strategyOptions = { population: 4, generations: 1, descents };
      const { result } = await fakeTune({
        ...base,
        seed: 1,
        strategy: genetic,
        strategyOptions,
        budget: { trials: 8 },
      });
      return result.trials[0]?.prediction?.seconds ?? Number.NaN;
    };
    expect(await first(1)).toBeLessThan(await first(0));
    expect(await first(8)).toBe(nearlyRight(OPTIMUM)?.seconds);
  });

  it("begins with the best of each model that may be right, and with none that is hopeless", async () => {
    const modelOf = ({ packed, unroll }: Point): string => (unroll === 3 ? "slow" : `packed ${packed}`);
    const factor = (point: Point): number => ({ "packed 0": 1, "packed 1": 2, slow: 20 })[modelOf(point)] ?? 1;
    const predict = (point: Point): Prediction =>
      predicts(secondsAt({ ...point, packed: 0, unroll: 0 }) * factor(point));
    const { result } = await fakeTune({
      ...base,
      seed: 1,
      strategy: genetic,
      space: { ...grid, modelOf },
      predict,
      budget: { trials: 8 },
    });
    const models = result.trials.map(({ candidate }) => modelOf(candidate));
    expect(models.slice(0, 2)).toEqual(["packed 0", "packed 1"]);
    expect(models).not.toContain("slow");
  });

  it("measures candidates that were fast elsewhere in turns with those of the model, each once", async () => {
    const expected = (point: Point): number => nearlyRight(point)?.seconds ?? 0;
    const ranked = [...grid.all()].sort((a, b) => expected(a) - expected(b));
    const least = expected(ranked[0] ?? OPTIMUM);
    const transferred = ranked.filter((point) => expected(point) < 1.5 * least).slice(-2);
    const run = { ...base, seed: 1, strategy: genetic, budget: { trials: 16 } };
    const keys = async (space: SearchSpace<Point>): Promise<string[]> =>
      (await fakeTune({ ...run, space })).result.trials.map(({ key }) => key);
    const seeded = await keys({ ...grid, transferred });
    expect([seeded[0], seeded[2]]).toEqual(transferred.map((point) => grid.key(point)));
    expect([seeded[1], seeded[3]].map((key) => transferred.some((point) => grid.key(point) === key))).toEqual([
      false,
      false,
    ]);
    expect(new Set(seeded).size).toBe(16);
    const [best] = await keys(grid);
    const slow = ranked.filter((point) => expected(point) > 1.5 * least).slice(0, 1);
    const doubted = await keys({ ...grid, transferred: slow });
    expect(doubted.slice(0, 2)).toEqual([best, ...slow.map((point) => grid.key(point))]);
    expect(await keys({ ...grid, transferred: [] })).toEqual(await keys(grid));
  });

  it("proposes the best predicted first, then different ones", async () => {
    const { result } = await fakeTune({ ...base, seed: 1, strategy: genetic, budget: { trials: 8 } });
    const expected = result.trials.map(({ prediction }) => prediction?.seconds ?? 0);
    const best = expected.slice(0, 5);
    expect(best).toEqual([...best].sort((a, b) => a - b));
    const apart = (from: number, to: number): number =>
      Math.min(
        ...result.trials.slice(from, to).map((trial) =>
          Math.min(
            ...result.trials
              .slice(0, 5)
              .filter((other) => other !== trial)
              .map((other) => grid.distance?.(trial.candidate, other.candidate) ?? 0),
          ),
        ),
      );
    expect(apart(5, 7)).toBeGreaterThan(apart(0, 5));
  });

  it.each([
    ["an eighth is as fast", ({ m }: Point) => m > 0, 3],
    ["few are as fast", ({ m, n, k }: Point) => m + n > 0 || k > 1, 1],
  ] as const)(
    "begins with candidates that differ much, and none that is slower by half: %s",
    async (_, isSlow, least) => {
      const predict = (point: Point): Prediction =>
        predicts((isSlow(point) ? 1.5e-6 : 1e-6) * (1 + 0.01 * noiseAt(point)));
      const { result } = await fakeTune({ ...base, seed: 1, strategy: genetic, predict, budget: { trials: 8 } });
      const best = result.trials.slice(0, 5).map(({ candidate }) => candidate);
      const distances = best.flatMap((a, i) => best.slice(0, i).map((b) => grid.distance?.(a, b) ?? 0));
      expect(Math.min(...distances)).toBeGreaterThanOrEqual(least);
      expect(best.some(isSlow)).toBe(false);
    },
  );

  it("prefers the shorter of candidates that the model takes for equal, and a longer one that it takes for faster", async () => {
    const space: SearchSpace<Point> = { ...grid, codeSize: ({ unroll }) => 256 >> unroll };
    const best = async (
      predict: (point: Point) => Prediction | undefined,
      from: SearchSpace<Point>,
    ): Promise<number[]> => {
      const run = { ...base, space: from, predict, strategy: genetic, budget: { trials: 8 } };
      const first = await Promise.all(seeds.map((seed) => fakeTune({ ...run, seed })));
      return first.map(({ result }) => result.trials[0]?.candidate.unroll ?? -1);
    };
    const blind = (point: Point) => predicts(secondsAt({ ...point, unroll: 0 }));
    const convinced = (point: Point) => predicts(secondsAt({ ...point, unroll: 0 }) * (1 + point.unroll));
    expect(await best(blind, space)).toEqual(seeds.map(() => 3));
    expect(await best(blind, grid)).not.toEqual(seeds.map(() => 3));
    expect(await best(convinced, space)).toEqual(seeds.map(() => 0));
  });

  it("explores no candidates that are expected to take far longer than the best, while there are others", async () => {
    const predict = (point: Point) => predicts(point.packed === 1 ? 1000 : secondsAt(point));
    const run = { ...base, predict, strategy: genetic, strategyOptions: { explore: 1, different: 0 } };
    const results = await Promise.all(seeds.map((seed) => fakeTune({ ...run, seed, budget: { trials: 24 } })));
    const packed = results.flatMap(({ result }) => result.trials.filter(({ candidate }) => candidate.packed === 1));
    expect(packed).toEqual([]);
    const all = await fakeTune({
      ...run,
      space: { ...grid, random: () => ({ ...OPTIMUM, packed: 1 }) },
      seed: 1,
      budget: { trials: 24 },
    });
    expect(all.result.trials.some(({ candidate }) => candidate.packed === 1)).toBe(true);
  });

  it("doubts neighbours of failures, and so leaves a failing region that the model prefers", async () => {
    const answer = (p: Point): Measurement => (p.packed === 1 ? failed("missing-instruction") : works(p));
    const failures = async (doubt: number): Promise<number> => {
      const run = { ...base, answer, strategy: genetic, strategyOptions: { doubt }, budget: { trials: 80 } };
      const results = await Promise.all(seeds.map((seed) => fakeTune({ ...run, seed })));
      return results.flatMap(({ result }) => result.trials.filter(({ measurement }) => measurement.status !== "ok"))
        .length;
    };
    expect(await failures(4)).toBeLessThan(0.8 * (await failures(1)));
  });

  it("keeps half of a population for the next round, so that only the other half is predicted anew", async () => {
    let predictions = 0;
    const predict = (point: Point) => {
      predictions++;
      return nearlyRight(point);
    };
    const rounds: number[] = [];
    const onEvent = (event: TuneEvent<Point>) => {
      if (event.kind === "round") rounds.push(predictions);
    };
    const strategyOptions = { population: 64, generations: 1, explore: 0, descents: 0 };
    const answer = () => failed("crashed");
    await fakeTune({
      ...base,
      predict,
      answer,
      onEvent,
      seed: 1,
      strategy: genetic,
      strategyOptions,
      budget: { trials: 16 },
    });
    const [first = 0, second = 0] = rounds;
    expect(first).toBeGreaterThan(60);
    expect(second - first).toBeGreaterThan(20);
    expect(second - first).toBeLessThanOrEqual(32);
  });

  it("works in a space without a distance and a size", async () => {
    const { distance: _, ...rest } = grid;
    const space: SearchSpace<Point> = { ...rest, size: undefined };
    expect(await bestOf(genetic, { space })).toEqual(seeds.map(() => secondsAt(OPTIMUM)));
  });

  it("works with the smallest options", async () => {
    const strategyOptions = { population: 4, generations: 1, crossover: 0, mutation: 0, different: 1, explore: 1 };
    const { measured } = await fakeTune({ ...base, seed: 1, strategy: genetic, strategyOptions, batch: 1 });
    expect(measured).toHaveLength(40);
  });
});

describe("an invalid prediction", () => {
  const hopeless = (point: Point): boolean => point.m < 4;

  it.each([
    ["NaN", predicts(Number.NaN)],
    ["infinite", predicts(Number.POSITIVE_INFINITY)],
    ["zero", predicts(0)],
    ["undefined", undefined],
  ])("(%s) counts as none, and other candidates go first", async (_, none) => {
    const predict = (point: Point) => (hopeless(point) ? none : nearlyRight(point));
    const { result } = await fakeTune({ ...base, predict, seed: 1, strategy: genetic, budget: { trials: 60 } });
    expect(result.trials.filter(({ candidate }) => hopeless(candidate))).toEqual([]);
    expect(result.best?.candidate).toEqual(OPTIMUM);
  });

  it("costs a large finite number, as does a failure: genetic-js would sort NaN first", async () => {
    const create = vi.spyOn(Genetic, "create");
    const predict = (point: Point) => (hopeless(point) ? predicts(Number.NaN) : nearlyRight(point));
    const answer = (point: Point) => (point.m === 5 ? failed("wrong") : works(point));
    const { result } = await fakeTune({ ...base, predict, answer, seed: 1, strategy: genetic });
    const evolution = create.mock.results.at(-1)?.value;
    create.mockRestore();
    const broken = result.trials.find(({ candidate }) => candidate.m === 5);
    for (const point of [{ ...OPTIMUM, m: 0 }, broken?.candidate]) expect(evolution?.fitness(point)).toBe(1e12);
    expect(evolution?.fitness({ ...OPTIMUM, m: 7, n: 0 })).toBeLessThan(1);
  });

  it("for every candidate leaves a blind search", async () => {
    const predict = () => predicts(Number.NaN);
    const { result } = await fakeTune({ ...base, predict, answer: mostlyWorks, seed: 1, strategy: genetic });
    expect(result.trials).toHaveLength(40);
    expect(result.trials.every(({ prediction }) => prediction === undefined)).toBe(true);
  });
});

describe("Math.random", () => {
  const original = Math.random;
  afterEach(() => {
    Math.random = original;
  });

  it("is restored after every round", async () => {
    const seen = new Set<unknown>();
    const onEvent = () => seen.add(Math.random);
    await fakeTune({ ...base, seed: 1, strategy: genetic, onEvent });
    expect([...seen]).toEqual([original]);
    expect(Math.random).toBe(original);
  });

  it("is restored when the model throws", async () => {
    let calls = 0;
    const predict = (point: Point) => {
      if (++calls > 30) throw new Error("no such level");
      return nearlyRight(point);
    };
    await expect(fakeTune({ ...base, predict, seed: 1, strategy: genetic })).rejects.toThrow("no such level");
    expect(calls).toBe(31);
    expect(Math.random).toBe(original);
  });

  it("is not called, and a replacement by the caller stays", async () => {
    let drawn = 0;
    const theirs = () => {
      drawn++;
      return 0.5;
    };
    Math.random = theirs;
    const a = await fakeTune({ ...base, seed: 1, strategy: genetic });
    expect([Math.random, drawn]).toEqual([theirs, 0]);
    Math.random = original;
    const b = await fakeTune({ ...base, seed: 1, strategy: genetic });
    expect(a).toEqual(b);
  });
});
