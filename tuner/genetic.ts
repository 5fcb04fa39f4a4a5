/**
 * @file Evolves candidates under the model, which is cheap to evaluate, and proposes the best few for measurement.
 *
 *     measured best, last population, random ones  ->  generations under the model  ->  the best | the most different | random
 *
 * This is the only file that uses genetic-js. The package draws from `Math.random` and accepts no other source, so a seeded generator replaces
 * it during the synchronous call of `start()`. Its `evolve()` would lose our closures.
 */

import Genetic from "genetic-js";
import type { Random } from "../abstraction/random.ts";
import { distanceIn } from "./space.ts";
import { defineStrategy, drawUntried, inRounds, type OptionValues, type Search } from "./strategy.ts";
import { inOrder, secondsOf } from "./trials.ts";

const OPTIONS = {
  population: { default: 64, min: 4, max: 10_000, whole: true, summary: "candidates in a generation" },
  generations: { default: 12, min: 1, max: 10_000, whole: true, summary: "generations under the model a round" },
  late: {
    default: 0.25,
    min: 0,
    max: 1,
    summary: "share of them bred with the last results; others while these are measured",
  },
  crossover: { default: 0.8, min: 0, max: 1, summary: "share of children with two parents" },
  mutation: { default: 0.4, min: 0, max: 1, summary: "share of children that are mutated" },
  different: { default: 0.25, min: 0, max: 1, summary: "share of a round: good, and most unlike all that was tried" },
  descents: {
    default: 8,
    min: 0,
    max: 1000,
    whole: true,
    summary: "candidates bred that are then improved step by step",
  },
  explore: { default: 0.1, min: 0, max: 1, summary: "share of a round: drawn blindly, against errors of the model" },
  doubt: { default: 2, min: 1, max: 1000, summary: "factor on the expectation when the nearest trial failed" },
} as const;
type Options = OptionValues<typeof OPTIONS>;

/** The most different candidates are chosen from this fraction of the bred ones, the best. */
const GOOD_SHARE = 0.25;
/**
 * Candidates chosen for being different, or for the model that predicts them, are expected to take at most this many times the least. Of a wide
 * convolution in NHWC three of the first eight kernels were designs of 200 to 370 ms, expected to take 4 times as long as the mappings of 35 ms
 * (c and k 128 at 112 x 112 in f32, a Zen 4, 2026-11-29).
 */
const WORTHWHILE_SPREAD = 3;
/** Candidates of the first round that differ in so many decisions come first, as long as they are expected to take at most this many times the least. */
const MOST_APART = 4;
const AS_FAST = 1.35;
/**
 * Random candidates of a round are expected to take at most this many times the least, as long as such are found. Of designs on lanes
 * that were drawn blindly, kernels of 150 ms to seconds used up searches whose best takes 2 ms, while the model's error is a factor of two
 * or three (conv1 of ResNet in f32, a Zen 4, 2026-11-23).
 */
const EXPLORED_SPREAD = 8;
/**
 * Steps without a gain after which a descent ends. In nine first rounds of VGG-16's layers in f32 descents lowered the least expectation by 7 % on
 * average and by 20 % at most, with three times the predictions; eight times as many generations of four times as many candidates, with twenty times
 * the predictions, lowered it by 12 % in four of them (2026-11-30).
 */
const PATIENCE = 50;
/** How much slower than its own first choice the model may expect a candidate that is measured before that. A choice; the model errs by less. */
const DOUBTED_SPREAD = 1.5;
/** Shares of the first population: the best measured, and what the round before bred; the rest is random. */
const MEASURED_SHARE = 0.25;
const INHERITED_SHARE = 0.5;
/**
 * Written instructions with which the expectation doubles. Models see many schedules as equal, and rank the longest first by the
 * little that loops cost; in a search of conv2d u8s8 those took up to 2.7 times the expected time and three times the compiler's.
 */
const CODE_DOUBLES = 4096;
/** genetic-js needs a number for every candidate and sorts NaN first. Failures therefore cost this many seconds, more than any kernel takes. */
const WORST = 1e12;

export const genetic = defineStrategy({
  name: "genetic",
  summary: "breeds candidates under the model; the best and the most different are measured",
  options: OPTIONS,
  guided: true,
  propose: rounds,
});

function* rounds<C>(search: Search<C>, options: Options): Generator<readonly C[]> {
  const { representatives = [], transferred = [] } = search.space;
  yield* inRounds(representatives, search);
  const late = Math.ceil(options.generations * options.late);
  let bred = breed(search, options, options.generations);
  for (let others = transferred; ; ) {
    const own = handOut(search, options, bred.seen);
    const turns = isDoubted(search, others[0], own[0]) ? inTurns(own, others) : inTurns(others, own);
    const round = turns.slice(0, search.batch);
    others = others.filter((one) => !round.includes(one));
    search.meanwhile(() => {
      bred = breed(search, options, options.generations - late, { ...bred, seen: new Map() });
    });
    yield round;
    bred = breed(search, options, late, bred);
  }
}

/** Whether a candidate that was fast elsewhere is expected to be so much slower here that a search of one kernel would lose by it. */
function isDoubted<C>({ expected }: Search<C>, other: C | undefined, own: C | undefined): boolean {
  const [there, here] = [other, own].map((candidate) => candidate && expected(candidate));
  return there !== undefined && here !== undefined && there > DOUBTED_SPREAD * here;
}

/** One of each list in turn: a search that ends early has measured some of both. */
function inTurns<C>(a: readonly C[], b: readonly C[]): C[] {
  const both = Math.min(a.length, b.length);
  return [...a.slice(0, both).flatMap((each, i) => [each, ...b.slice(i, i + 1)]), ...a.slice(both), ...b.slice(both)];
}

interface Costed<C> {
  readonly candidate: C;
  readonly cost: number;
}

/** What was bred. */
interface Bred<C> {
  readonly population: readonly C[];
  /** Every candidate encountered, by its key. */
  readonly seen: ReadonlyMap<string, Costed<C>>;
}

/** Evolves candidates under the model. @param before what was bred earlier; what it encountered is costed anew */
function breed<C>(search: Search<C>, options: Options, generations: number, before?: Bred<C>): Bred<C> {
  const { space, random } = search;
  const cost = costUnder(search, options.doubt);
  const seen = new Map<string, Costed<C>>();
  for (const [key, { candidate }] of before?.seen ?? []) seen.set(key, { candidate, cost: cost(candidate, key) });
  const costed = (candidate: C): Costed<C> => {
    const key = space.key(candidate);
    const known = seen.get(key) ?? { candidate, cost: cost(candidate, key) };
    seen.set(key, known);
    return known;
  };
  let population = before?.population ?? [...(space.transferred ?? []), ...(space.promising ?? [])];
  if (generations === 0) return { population, seen };
  const first = [
    ...fastest(search).slice(0, Math.ceil(options.population * MEASURED_SHARE)),
    ...population.slice(0, Math.ceil(options.population * INHERITED_SHARE)),
  ].values();

  const evolution = Genetic.create<C>();
  const { configuration } = evolution;
  configuration.size = options.population;
  configuration.iterations = generations;
  configuration.crossover = options.crossover;
  configuration.mutation = options.mutation;
  evolution.optimize = Genetic.Optimize.Minimize;
  evolution.select1 = Genetic.Select1.Tournament2;
  evolution.select2 = Genetic.Select2.Tournament2;
  evolution.seed = () => {
    const next = first.next();
    return next.done ? space.random(random) : next.value;
  };
  evolution.mutate = (candidate) => space.mutate(candidate, random);
  evolution.crossover = (a, b) => [space.crossover(a, b, random), space.crossover(b, a, random)];
  evolution.fitness = (candidate) => costed(candidate).cost;
  evolution.generation = (scored) => {
    population = scored.map(({ entity }) => entity);
    return true;
  };
  withMathRandom(random, () => evolution.start());
  for (const candidate of space.promising ?? []) costed(candidate);
  const improved = apart(search, inCost(seen), Math.ceil((options.descents * generations) / options.generations)).map(
    (candidate) => descended(search, costed(candidate), costed),
  );
  return { population: [...improved, ...population], seen };
}

/**
 * What steps downhill lead to. On a plateau they go on, since the model sees many schedules as equal. A population meets few of the neighbours of its
 * best: of the 768 candidates of twelve generations some 340 differ.
 */
function descended<C>({ space, random }: Search<C>, from: Costed<C>, costed: (candidate: C) => Costed<C>): C {
  let best = from;
  for (let idle = 0; idle < PATIENCE; idle++) {
    const next = costed(space.mutate(best.candidate, random));
    if (next.cost < best.cost) idle = -1;
    if (next.cost <= best.cost) best = next;
  }
  return best.candidate;
}

/** Candidates that work as far as is known, the least cost first. @param among those to keep; all when left out */
function inCost<C>(seen: ReadonlyMap<string, Costed<C>>, among: (key: string) => boolean = () => true): C[] {
  return [...seen]
    .filter(([key, { cost }]) => cost < WORST && among(key))
    .sort(([keyA, a], [keyB, b]) => a.cost - b.cost || inOrder(keyA, keyB))
    .map(([, { candidate }]) => candidate);
}

/** Measured seconds, else predicted ones; the prediction of a candidate close to a failure is increased. */
function costUnder<C>(search: Search<C>, doubt: number): (candidate: C, key: string) => number {
  const { space, trials, expected } = search;
  const measured = new Map(trials.map((trial) => [trial.key, secondsOf(trial) ?? WORST]));
  const someFailed = trials.some((trial) => secondsOf(trial) === undefined);
  return (candidate, key) => {
    const known = measured.get(key);
    if (known !== undefined) return known;
    const seconds = expected(candidate);
    if (seconds === undefined) return WORST;
    const doubted = someFailed && doubt > 1 && nearestFailed(candidate);
    const length = 1 + (space.codeSize?.(candidate) ?? 0) / CODE_DOUBLES;
    return Math.min(seconds * length * (doubted ? doubt : 1), WORST);
  };

  function nearestFailed(candidate: C): boolean {
    let nearest = Number.POSITIVE_INFINITY;
    let failed = false;
    for (const trial of trials) {
      const distance = distanceIn(space, candidate, trial.candidate);
      if (distance > nearest) continue;
      const alsoFailed = secondsOf(trial) === undefined;
      // Among several equally close trials, one that worked is enough.
      failed = distance < nearest ? alsoFailed : failed && alsoFailed;
      nearest = distance;
    }
    return failed;
  }
}

function fastest<C>({ trials }: Search<C>): C[] {
  return trials
    .flatMap((trial) => {
      const seconds = secondsOf(trial);
      return seconds === undefined ? [] : [{ ...trial, seconds }];
    })
    .sort((a, b) => a.seconds - b.seconds || inOrder(a.key, b.key))
    .map(({ candidate }) => candidate);
}

/**
 * The round to measure: the best by prediction, among them that of each model without a trial, then the most different of the good ones, then
 * random ones.
 */
function handOut<C>(search: Search<C>, options: Options, seen: ReadonlyMap<string, Costed<C>>): C[] {
  const { batch, expected, tried } = search;
  const explore = Math.round(batch * options.explore);

  // 1. the best
  const ranked = inCost(seen, (key) => !tried(key));
  const least = ranked.reduce((min, candidate) => Math.min(min, expected(candidate) ?? min), Number.POSITIVE_INFINITY);
  const worthwhile = ranked.filter((candidate) => (expected(candidate) ?? 0) <= WORTHWHILE_SPREAD * least);
  const rivals = bestOfOthers(search, worthwhile);
  const different = Math.min(batch - explore, Math.max(0, Math.round(batch * options.different) - rivals.length));
  const wanted = Math.max(1, batch - different - explore - rivals.length);
  const promising = search.trials.length === 0 ? apart(search, worthwhile, wanted) : unlike(search, ranked, wanted);
  const best = [...new Set([...promising.slice(0, 1), ...rivals, ...promising])];

  // 2. the most different
  const good = worthwhile
    .slice(0, Math.max(best.length + different, Math.ceil(ranked.length * GOOD_SHARE)))
    .filter((candidate) => !best.includes(candidate));
  const round = [...best, ...mostDifferent(search, good, best, Math.min(different, batch - best.length))];

  // 3. random ones, also to fill the round; candidates that the model can predict, and not as far too slow, come first
  for (const within of [EXPLORED_SPREAD * least, Number.POSITIVE_INFINITY]) {
    const taken = new Set(round.map((candidate) => search.space.key(candidate)));
    const isWorthwhile = (candidate: C, key: string): boolean =>
      !taken.has(key) && (expected(candidate) ?? Number.NaN) <= within;
    round.push(...drawUntried(search, batch - round.length, isWorthwhile, within === Number.POSITIVE_INFINITY));
  }
  return round.length > 0 ? round : drawUntried(search, batch);
}

/** The best of each model that has no trial, besides that of the very best. */
function bestOfOthers<C>({ space, trials }: Search<C>, ranked: readonly C[]): C[] {
  const modelOf = (candidate: C): string => space.modelOf?.(candidate) ?? "";
  const known = new Set([...trials.map(({ candidate }) => candidate), ...ranked.slice(0, 1)].map(modelOf));
  return ranked.filter((candidate) => {
    const model = modelOf(candidate);
    if (known.has(model)) return false;
    known.add(model);
    return true;
  });
}

/**
 * The best of `ranked`, then those that differ most from all before and are expected to be about as fast. Until something is measured, the model's
 * errors are the same for schedules that are much alike: of a product of 1536 x 1536 x 4608 ten of the first sixteen kernels had the tile that it
 * preferred by mistake, and the best one after eight seconds took 1.5 times what another tile takes (an H200, 2026-11-29).
 */
function apart<C>({ space, expected }: Search<C>, ranked: readonly C[], count: number): C[] {
  const least = ranked.reduce((min, candidate) => Math.min(min, expected(candidate) ?? min), Number.POSITIVE_INFINITY);
  const close = ranked.filter((candidate) => (expected(candidate) ?? 0) <= AS_FAST * least);
  return spread(space, { from: close, ranked, count, most: MOST_APART });
}

/**
 * The first `count` of `ranked`, skipping those that hardly differ from an earlier one: the model ranks such candidates next to each other, and
 * measuring both teaches little. Skipped ones fill the remaining places in order.
 */
const unlike = <C>({ space }: Search<C>, ranked: readonly C[], count: number): C[] =>
  spread(space, { from: ranked, ranked, count, most: 1 });

/** The first of `from` that differ by `most` decisions from all before, then by fewer, and then others of `ranked`. */
function spread<C>(
  space: Search<C>["space"],
  {
    from,
    ranked,
    count,
    most,
  }: Readonly<Record<"from" | "ranked", readonly C[]>> & Readonly<Record<"count" | "most", number>>,
): C[] {
  const chosen: C[] = [];
  for (let decisions = most; decisions >= 1; decisions--)
    for (const candidate of from) {
      if (chosen.length === count) return chosen;
      if (chosen.every((other) => distanceIn(space, candidate, other) >= decisions)) chosen.push(candidate);
    }
  return [...chosen, ...ranked.filter((candidate) => !chosen.includes(candidate)).slice(0, count - chosen.length)];
}

/** The `count` candidates of `from` that are farthest from the trials, from `chosen` and from one another; the first among equals. */
function mostDifferent<C>(search: Search<C>, from: readonly C[], chosen: readonly C[], count: number): C[] {
  const { space, trials } = search;
  const picked: C[] = [];
  let known = [...trials.map(({ candidate }) => candidate), ...chosen];
  let left = from.map((candidate) => ({ candidate, nearest: Number.POSITIVE_INFINITY }));
  while (picked.length < count && left.length > 0) {
    left = left.map(({ candidate, nearest }) => ({
      candidate,
      nearest: known.reduce((least, other) => Math.min(least, distanceIn(space, candidate, other)), nearest),
    }));
    const farthest = left.reduce((a, b) => (b.nearest > a.nearest ? b : a));
    picked.push(farthest.candidate);
    left = left.filter((one) => one !== farthest);
    known = [farthest.candidate];
  }
  return picked;
}

/** Runs `call` with `Math.random` drawing from `random`, and restores the original afterwards. */
function withMathRandom(random: Random, call: () => void): void {
  const before = Math.random;
  Math.random = random;
  try {
    call();
  } finally {
    Math.random = before;
  }
}
