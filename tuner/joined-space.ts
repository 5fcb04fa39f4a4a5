/**
 * @file Joins two search spaces into one: mappings of a computation, and its lane designs.
 *
 *     const space = joinedSpace(mapped, lanes, (c) => c.kind !== "lanes")
 *
 * Either may be empty. A candidate is mutated and crossed within its own space; a draw picks one of the spaces at random.
 */

import type { Random } from "../abstraction/random.ts";
import { distanceIn, type SearchSpace } from "./space.ts";

/** A distance large enough that the first proposals contain candidates of both. */
const SPACES_APART = 6;

export function joinedSpace<A, B>(
  first: SearchSpace<A>,
  second: SearchSpace<B>,
  isFirst: (candidate: A | B) => candidate is A,
): SearchSpace<A | B> {
  if (first.size === 0 && second.size !== 0) return joinedSpace(second, first, (c): c is B => !isFirst(c));
  const isSecond = (candidate: A | B): candidate is B => !isFirst(candidate);
  return {
    size: first.size === undefined || second.size === undefined ? undefined : first.size + second.size,
    promising: [...(first.promising ?? []), ...(second.promising ?? [])],
    representatives: [...(first.representatives ?? []), ...(second.representatives ?? [])],
    key: (c) => (isFirst(c) ? first.key(c) : isSecond(c) ? second.key(c) : impossible()),
    random: (random) => (second.size === 0 || random() < 0.5 ? first.random(random) : second.random(random)),
    mutate: (c, random) =>
      isFirst(c) ? first.mutate(c, random) : isSecond(c) ? second.mutate(c, random) : impossible(),
    crossover: (a, b, random: Random) => {
      if (isFirst(a) && isFirst(b)) return first.crossover(a, b, random);
      if (isSecond(a) && isSecond(b)) return second.crossover(a, b, random);
      return random() < 0.5 ? a : b;
    },
    *all() {
      yield* first.all();
      yield* second.all();
    },
    distance: (a, b) => {
      if (isFirst(a) && isFirst(b)) return distanceIn(first, a, b);
      if (isSecond(a) && isSecond(b)) return distanceIn(second, a, b);
      return SPACES_APART;
    },
    codeSize: (c) => (isFirst(c) ? first.codeSize?.(c) : isSecond(c) ? second.codeSize?.(c) : impossible()) ?? 0,
  };
}

/** An empty space. */
export function emptySpace<C>(): SearchSpace<C> {
  const nothing = (): never => {
    throw new Error("internal: an empty space was asked for a candidate");
  };
  return { size: 0, key: nothing, random: nothing, mutate: nothing, crossover: nothing, all: () => [] };
}

function impossible(): never {
  throw new Error("internal: a candidate of neither space");
}
