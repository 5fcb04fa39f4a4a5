/**
 * @file Seeded randomness: the same seed gives the same numbers everywhere. Nothing in automap draws from `Math.random`.
 *
 *     const random = seededRandom(1); random()     0.6270739405881613
 */

import { internal } from "./error.ts";

/** A uniform number in [0, 1) at each call. Mulberry32 (Tommy Ettinger, 2017, public domain): 32 bits of state, fine for sampling. */
export type Random = () => number;

/** A generator of random numbers that the seed determines. @param seed a whole number, of which the lowest 32 bits count */
export function seededRandom(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t = (t + Math.imul(t ^ (t >>> 7), t | 61)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 0x1_0000_0000;
  };
}

/** A uniform integer in `min .. max`, both included. */
export function randomInteger(random: Random, min: number, max: number): number {
  return min + Math.floor(random() * (max - min + 1));
}

/** One of the items, with equal probability. @throws Error when there is none */
export function pick<T>(random: Random, items: readonly T[]): T {
  if (items.length === 0) internal("picked from nothing");
  return items[Math.floor(random() * items.length)] as T; // a number below 1 times the length is an index
}

/** The items in a random order. */
export function shuffled<T>(random: Random, items: readonly T[]): T[] {
  const result = [...items];
  for (let i = result.length - 1; i > 0; i--) {
    const j = randomInteger(random, 0, i);
    const x = result[i];
    const y = result[j];
    if (x !== undefined && y !== undefined) [result[i], result[j]] = [y, x];
  }
  return result;
}

/** One of the items, with probability proportional to its weight. @throws Error when there is none */
export function pickWeighted<T>(random: Random, items: readonly T[], weightOf: (item: T) => number): T {
  let left = random() * items.reduce((sum, item) => sum + weightOf(item), 0);
  for (const item of items) {
    left -= weightOf(item);
    if (left <= 0) return item;
  }
  // Reached only through rounding of the sum of weights.
  return pick(random, items.slice(-1));
}
