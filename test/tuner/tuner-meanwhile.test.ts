/** @file What a strategy does while its round is measured, and what a search does with candidates that there was no time for. */

import { expect, it } from "vitest";
import type { Measurement } from "../../abstraction/trial.ts";
import { exhaustive } from "../../tuner/exhaustive.ts";
import { genetic } from "../../tuner/genetic.ts";
import { random } from "../../tuner/random.ts";
import { type SearchOptions, search } from "../../tuner/search.ts";
import { defineStrategy, inRounds } from "../../tuner/strategy.ts";
import type { TrialOf } from "../../tuner/trials.ts";
import { grid, memoryStore, nearlyRight, type Point, secondsAt, took } from "../support/fake-space.ts";

const base = { space: grid, predict: nearlyRight, seed: 1, earlyStop: false, now: () => 0 } as const;
const keys = (trials: readonly TrialOf<Point>[]): string[] => trials.map(({ key }) => key);
type Measure = SearchOptions<Point>["measure"];

/** Calls back, or leaves it to the search. */
const asking = (isAsking: (round: number) => boolean): Measure => {
  let round = 0;
  return async function* (batch, _goal, meanwhile) {
    if (isAsking(round++)) meanwhile();
    await Promise.resolve();
    for (const point of batch) yield took(secondsAt(point));
  };
};

/** A strategy that notes how many trials it knew when it worked beside a round. */
const noting = (notes: number[]) =>
  defineStrategy({
    name: "noting",
    summary: "tries every candidate once, and takes notes",
    options: {},
    guided: false,
    *propose(searching) {
      for (const round of inRounds(searching.space.all(), searching)) {
        searching.meanwhile(() => notes.push(searching.trials.length));
        yield round;
      }
    },
  });

it.each([
  ["every round", () => true],
  ["no round", () => false],
  ["some rounds", (round: number) => round % 2 === 1],
])(
  "work beside a round is done once, before its first result, where %s asks for it; and not for the last",
  async (_, asks) => {
    const notes: number[] = [];
    const options = { ...base, strategy: noting(notes), store: memoryStore<Point>(), budget: { trials: 32 } };
    await search<Point>({ ...options, measure: asking(asks) });
    expect(notes).toEqual([0, 8, 16]);
  },
);

it("work beside a round is done for results that the store knows, too", async () => {
  const options = { ...base, strategy: exhaustive, store: memoryStore<Point>(), budget: { trials: 32 } };
  const before = await search<Point>({ ...options, measure: asking(() => false) });
  const notes: number[] = [];
  const store = memoryStore(before.trials.slice(0, 20));
  await search<Point>({ ...options, strategy: noting(notes), store, measure: asking(() => true) });
  expect(notes).toEqual([0, 8, 16]);
});

it("a genetic search is the same, whenever its machine has a core to spare", async () => {
  const options = { ...base, strategy: genetic, budget: { trials: 64 } };
  const run = async (asks: (round: number) => boolean): Promise<string[]> =>
    keys((await search<Point>({ ...options, store: memoryStore(), measure: asking(asks) })).trials);
  const always = await run(() => true);
  expect(always).toHaveLength(64);
  expect(await run(() => false)).toEqual(always);
});

it("an error of that work ends the search", async () => {
  const broken = defineStrategy({
    name: "broken",
    summary: "fails beside its first round",
    options: {},
    guided: false,
    *propose(searching) {
      searching.meanwhile(() => {
        throw new Error("no such thing");
      });
      yield [...searching.space.all()].slice(0, 8);
    },
  });
  const options = { ...base, strategy: broken, store: memoryStore<Point>(), budget: { trials: 32 } };
  await expect(search<Point>({ ...options, measure: asking(() => true) })).rejects.toThrow("no such thing");
});

it("a candidate that there was no time for is no trial, and its round the last", async () => {
  const store = memoryStore<Point>();
  async function* measure(batch: readonly Point[]): AsyncGenerator<Measurement | undefined> {
    for (const [i, point] of batch.entries())
      yield await Promise.resolve(i % 2 === 0 ? undefined : took(secondsAt(point)));
  }
  const asked = await search<Point>({ ...base, strategy: random, store, budget: { trials: 32 }, measure });
  expect(asked).toMatchObject({ status: "time-spent", trials: { length: 4 } });
  expect(keys(store.trials)).toEqual(keys(asked.trials));
  const all = await search<Point>({
    ...base,
    strategy: random,
    store: memoryStore(),
    budget: { trials: 8 },
    measure: asking(() => false),
  });
  expect(keys(asked.trials)).toEqual(keys(all.trials).filter((_, i) => i % 2 === 1));
});
