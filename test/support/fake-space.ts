/**
 * @file A search space of 4096 points whose optimum is known, a model that is nearly right, a store in memory and a
 * clock: no machine needed.
 */

import { pick, type Random, seededRandom } from "../../abstraction/random.ts";
import type { Measurement, Prediction } from "../../abstraction/trial.ts";
import { type SearchOptions, type SearchResult, search, type TrialStore, type TuneEvent } from "../../tuner/search.ts";
import type { SearchSpace } from "../../tuner/space.ts";
import type { TrialOf } from "../../tuner/trials.ts";

/** Powers of two, by their exponent, as a schedule has them. */
export interface Point {
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly unroll: number;
  readonly packed: number;
}

const CHOICES: Readonly<Record<keyof Point, number>> = { m: 8, n: 8, k: 8, unroll: 4, packed: 2 };
const upTo = (count: number): number[] => Array.from({ length: count }, (_, i) => i);
const draw = (random: Random, axis: keyof Point): number => pick(random, upTo(CHOICES[axis]));

function pointBy(choose: (axis: keyof Point) => number): Point {
  return { m: choose("m"), n: choose("n"), k: choose("k"), unroll: choose("unroll"), packed: choose("packed") };
}

export const grid: SearchSpace<Point> = {
  size: Object.values(CHOICES).reduce((product, count) => product * count, 1),
  key: ({ m, n, k, unroll, packed }) => `m${m} n${n} k${k} u${unroll} p${packed}`,
  random: (random) => pointBy((axis) => draw(random, axis)),
  mutate: (point, random) => {
    const axis = pick(random, ["m", "n", "k", "unroll", "packed"] as const);
    return { ...point, [axis]: draw(random, axis) };
  },
  crossover: (a, b, random) => pointBy((axis) => (random() < 0.5 ? a : b)[axis]),
  *all() {
    for (const m of upTo(CHOICES.m))
      for (const n of upTo(CHOICES.n))
        for (const k of upTo(CHOICES.k))
          for (const unroll of upTo(CHOICES.unroll))
            for (const packed of upTo(CHOICES.packed)) yield { m, n, k, unroll, packed };
  },
  distance: (a, b) =>
    Math.abs(a.m - b.m) +
    Math.abs(a.n - b.n) +
    Math.abs(a.k - b.k) +
    Math.abs(a.unroll - b.unroll) +
    Math.abs(a.packed - b.packed),
};

/** The part of the grid that `keep` keeps. */
export function gridWhere(keep: (point: Point) => boolean): SearchSpace<Point> {
  const kept = [...grid.all()].filter(keep);
  const nearest = (point: Point, random: Random): Point => (keep(point) ? point : pick(random, kept));
  return {
    ...grid,
    size: kept.length,
    random: (random) => pick(random, kept),
    mutate: (point, random) => nearest(grid.mutate(point, random), random),
    crossover: (a, b, random) => nearest(grid.crossover(a, b, random), random),
    all: () => kept,
  };
}

export const OPTIMUM: Point = { m: 5, n: 3, k: 6, unroll: 2, packed: 1 };
const BEST_SECONDS = 1e-6;

/** The time on the fake machine: a valley with a ridge across it, 1 us at the optimum and more everywhere else. */
export function secondsAt({ m, n, k, unroll, packed }: Point): number {
  const bowl = 0.2 * (m - 5) ** 2 + 0.15 * (n - 3) ** 2 + 0.1 * (k - 6) ** 2 + 0.2 * Math.abs(unroll - 2);
  const ridge = 0.3 * Math.abs(m + n - 8) + (packed === 1 ? 0 : 0.5 + 0.2 * k);
  return BEST_SECONDS * (1 + bowl + ridge);
}

/** A number in [0, 1) that belongs to the point. */
export function noiseAt(point: Point): number {
  const seed = [...grid.key(point)].reduce((hash, letter) => Math.imul(hash ^ letter.charCodeAt(0), 0x01000193), 7);
  return seededRandom(seed)();
}

export function predicts(seconds: number): Prediction {
  return { seconds, uncorrectedSeconds: seconds, levels: [] };
}

/** Three times too high, and up to a quarter off. */
export function nearlyRight(point: Point): Prediction {
  return predicts(3 * secondsAt(point) * (0.875 + 0.25 * noiseAt(point)));
}

/** A run that worked, its interval `spread` to both sides. */
export function took(seconds: number, spread = 0.01): Measurement {
  const interval = [seconds * (1 - spread), seconds * (1 + spread)] as const;
  return { status: "ok", samples: [seconds], median: seconds, interval, instructions: 1 };
}

export function failed(status: Exclude<Measurement["status"], "ok">): Measurement {
  return { status, log: `pretended: ${status}` };
}

/** Runs that work, but for one in eight that fails in some way. */
export function mostlyWorks(point: Point): Measurement {
  const noise = noiseAt(point);
  if (noise > 0.125) return took(secondsAt(point));
  return failed(
    pick(seededRandom(Math.floor(noise * 1e6)), ["wrong", "crashed", "timed-out", "compile-failed"] as const),
  );
}

export interface MemoryStore<C> extends TrialStore<C> {
  readonly trials: readonly TrialOf<C>[];
}

export function memoryStore<C>(earlier: readonly TrialOf<C>[] = []): MemoryStore<C> {
  const trials = [...earlier];
  const byKey = new Map(trials.map((trial) => [trial.key, trial]));
  return {
    trials,
    known: (key) => byKey.get(key),
    record: (trial) => {
      trials.push(trial);
      byKey.set(trial.key, trial);
    },
    recorded: () => trials.map(({ candidate }) => candidate),
  };
}

export interface FakeRun<C> {
  readonly result: SearchResult<C>;
  readonly events: readonly TuneEvent<C>[];
  /** The points given to the machine, in order. */
  readonly measured: readonly string[];
}

/** Tunes with one second a measurement; the clock stands still otherwise. */
export async function fakeTune<C>(
  options: Omit<SearchOptions<C>, "measure" | "now" | "onEvent" | "store"> & {
    readonly answer: (candidate: C) => Measurement;
    readonly store?: TrialStore<C>;
    readonly onEvent?: (event: TuneEvent<C>) => void;
  },
): Promise<FakeRun<C>> {
  const events: TuneEvent<C>[] = [];
  const measured: string[] = [];
  let clock = 0;
  const result = await search<C>({
    store: memoryStore(),
    ...options,
    now: () => clock,
    onEvent: (event) => {
      events.push(event);
      options.onEvent?.(event);
    },
    async *measure(batch) {
      for (const candidate of batch) {
        clock += 1000;
        measured.push(options.space.key(candidate));
        yield options.answer(candidate);
      }
    },
  });
  return { result, events, measured };
}
