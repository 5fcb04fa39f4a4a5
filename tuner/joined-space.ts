/**
 * @file Joins search spaces of several kinds of candidates into one.
 *
 *     const space = joinedSpace([{ kind: "mapping", space: mapped }, { kind: "window", space: windows }])
 *
 * A candidate is mutated and crossed within its own space; a draw picks one of the spaces at random.
 */

import { internal } from "../abstraction/error.ts";
import { pick } from "../abstraction/random.ts";
import { distanceIn, type SearchSpace } from "./space.ts";

/** A distance large enough that the first proposals contain candidates of all kinds. */
const SPACES_APART = 6;

export function joinedSpace<C extends { readonly kind: string }>(
  spaces: readonly { readonly kind: C["kind"]; readonly space: SearchSpace<C> }[],
): SearchSpace<C> {
  const of = (c: C): SearchSpace<C> => {
    const own =
      spaces.find(({ kind }) => kind === c.kind) ?? internal(`a candidate of the kind ${c.kind}, which was not joined`);
    return own.space;
  };
  const [only, ...others] = spaces;
  return {
    size: spaces.reduce<number | undefined>(
      (sum, { space: { size } }) => (sum === undefined || size === undefined ? undefined : sum + size),
      0,
    ),
    promising: spaces.flatMap(({ space }) => space.promising ?? []),
    representatives: spaces.flatMap(({ space }) => space.representatives ?? []),
    key: (c) => of(c).key(c),
    random: (random) => (only && others.length === 0 ? only : pick(random, spaces)).space.random(random),
    mutate: (c, random) => of(c).mutate(c, random),
    crossover: (a, b, random) => {
      if (a.kind === b.kind) return of(a).crossover(a, b, random);
      return random() < 0.5 ? a : b;
    },
    *all() {
      for (const { space } of spaces) yield* space.all();
    },
    distance: (a, b) => (a.kind === b.kind ? distanceIn(of(a), a, b) : SPACES_APART),
    modelOf: ({ kind }) => kind,
    codeSize: (c) => of(c).codeSize?.(c) ?? 0,
  };
}
