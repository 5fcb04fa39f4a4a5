/**
 * @file The interface of strategies: a declaration with a table of options, and a generator of rounds.
 *
 *     *propose(search) { for (;;) yield drawUntried(search, search.batch); }
 *
 * Each round is measured before the next is requested, so a generator keeps its state in its own variables and finds the results in
 * `search.trials`. A round without new candidates ends the search. Proposals may depend only on the seed and the results, so that a run that was
 * killed makes the same proposals again.
 */

import type { Random } from "../abstraction/random.ts";
import type { SearchSpace } from "./space.ts";
import type { TrialOf } from "./trials.ts";

/** The state of the search that a strategy sees. */
export interface Search<C> {
  /** All candidates. */
  readonly space: SearchSpace<C>;
  /** The only source of randomness. */
  readonly random: Random;
  /** Number of candidates wanted for a round. */
  readonly batch: number;
  /** Trials of this run, in order; grows between rounds. */
  readonly trials: readonly TrialOf<C>[];
  /** Whether this run has tried a candidate with this key. */
  tried(key: string): boolean;
  /** Seconds the model currently predicts, scaled to the trials; undefined when it cannot tell. */
  expected(candidate: C): number | undefined;
  /** Candidates stored by earlier runs, in order. */
  recorded(): Iterable<C>;
  /**
   * Does work that needs none of the results of the round that is yielded next, while a core is idle because kernels are timed on another. It is
   * done once, before `trials` grows; not at all when the search ends with this round.
   */
  meanwhile(work: () => void): void;
}

/** A way to propose candidates. Define your own with `defineStrategy`. */
export interface Strategy<T extends OptionTable = OptionTable> {
  /** Its name for users and in records. */
  readonly name: string;
  /** One line. */
  readonly summary: string;
  /** Numeric options, with their defaults and limits. */
  readonly options: T;
  /** Whether it proposes the candidates with the best predictions, so that poor proposals mean that little is left to gain. */
  readonly guided: boolean;
  /** Rounds of candidates, the most promising of a round first. */
  propose<C>(search: Search<C>, options: OptionValues<T>): Iterable<readonly C[]>;
}

/** A numeric option of a strategy. */
export interface Option {
  /** The default. */
  readonly default: number;
  /** The smallest allowed. */
  readonly min: number;
  /** The largest allowed. */
  readonly max: number;
  /** Whether it must be an integer. */
  readonly whole?: boolean;
  /** What it does. */
  readonly summary: string;
}
/** Numbers that a strategy takes, by name. */
export type OptionTable = Readonly<Record<string, Option>>;
/** A value for each of them. */
export type OptionValues<T extends OptionTable> = { readonly [K in keyof T]: number };

/** Declares a strategy, so that its table of options types the second argument of `propose`. */
export function defineStrategy<const T extends OptionTable>(strategy: Strategy<T>): Strategy<T> {
  return strategy;
}

/** The given options, with defaults for the others. @throws Error for a name or a value that the table does not allow */
export function fillOptions(strategy: Strategy, given: Readonly<Record<string, number>>): OptionValues<OptionTable> {
  const { name, options } = strategy;
  for (const key of Object.keys(given))
    if (!Object.hasOwn(options, key))
      throw new Error(`${name}: no option ${key}, there ${listed(Object.keys(options))}`);
  return Object.fromEntries(
    Object.entries(options).map(([key, { default: usual, min, max, whole }]) => {
      const value = given[key] ?? usual;
      if (!(value >= min && value <= max) || (whole && !Number.isInteger(value)))
        throw new Error(`${name}: ${key} must be a ${whole ? "whole " : ""}number from ${min} to ${max}, got ${value}`);
      return [key, value];
    }),
  );
}

function listed(names: readonly string[]): string {
  return names.length === 0 ? "are none" : names.length === 1 ? `is ${names[0]}` : `are ${names.join(", ")}`;
}

/** Consecutive draws without a new candidate after which a space counts as exhausted. */
const FRUITLESS_DRAWS = 1000;
/** An exhausted space of at most this size is listed to find the remaining candidates. */
const LISTABLE = 100_000;

/**
 * Random untried candidates, each once; fewer when there are no more.
 * @param lists whether a small space is gone through where draws find too few
 */
export function drawUntried<C>(
  search: Search<C>,
  count: number,
  accept: (candidate: C, key: string) => boolean = () => true,
  lists = true,
): C[] {
  const { space, random } = search;
  const drawn = new Map<string, C>();
  const take = (candidate: C): boolean => {
    const key = space.key(candidate);
    if (search.tried(key) || drawn.has(key) || !accept(candidate, key)) return false;
    drawn.set(key, candidate);
    return true;
  };
  for (let fruitless = 0; drawn.size < count && fruitless < FRUITLESS_DRAWS; )
    fruitless = take(space.random(random)) ? 0 : fruitless + 1;
  if (lists && drawn.size < count && space.size !== undefined && space.size <= LISTABLE)
    for (const candidate of space.all()) {
      take(candidate);
      if (drawn.size === count) break;
    }
  return [...drawn.values()];
}

/** Candidates in rounds of `search.batch`, each once. */
export function* inRounds<C>(candidates: Iterable<C>, search: Search<C>): Generator<readonly C[]> {
  const seen = new Set<string>();
  let round: C[] = [];
  for (const candidate of candidates) {
    const key = search.space.key(candidate);
    if (seen.has(key)) continue;
    seen.add(key);
    round.push(candidate);
    if (round.length < search.batch) continue;
    yield round;
    round = [];
  }
  if (round.length > 0) yield round;
}
