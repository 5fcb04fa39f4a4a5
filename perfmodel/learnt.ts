/**
 * @file What the models of a GPU leave out, learnt from recorded kernels (perfmodel/learnt.json, made by bench/model/learn.ts): a sum of regression
 * trees over features of a prediction, which estimates log(measured / predicted).
 *
 *     costs = learnt("grid", costs)       costs.factor 1.21: kernels with such features took 1.21 times what was predicted
 *
 * All nodes at one depth of a tree ask the same question, whether a feature is above a value. So a tree is a table with an entry for each combination
 * of answers, the first of which is its lowest bit. Features have no unit: shares of the longest part, counts, and shares of what a multiprocessor has.
 */

import { readFileSync } from "node:fs";
import { internal } from "../abstraction/error.ts";
import type { Costs, Features } from "./correct.ts";

/** The models that trees correct. */
export const LEARNT_MODELS = ["grid", "threads"] as const;
export type LearntModel = (typeof LEARNT_MODELS)[number];

/** Trees of one depth. */
export interface Trees {
  /** Names of the features, in order. */
  readonly features: readonly string[];
  readonly depth: number;
  /** For each question of each tree: the feature, and the value it is compared with. */
  readonly asked: readonly number[];
  readonly above: readonly number[];
  /** The entries of each tree. */
  readonly entries: readonly number[];
}

/** A factor is at most this, in either direction: as much as nearly all recorded kernels are off. */
const MOST = Math.log(3);

let read: Readonly<Record<LearntModel, Trees>> | undefined;

/** The trees of a model. */
export function treesOf(model: LearntModel): Trees {
  // A command that predicts nothing on a GPU does not read the file.
  read ??= JSON.parse(readFileSync(new URL("./learnt.json", import.meta.url), "utf8")) as Record<LearntModel, Trees>; // written by bench/model/learn.ts
  return read[model];
}

/** Costs with the factor that trees give them, by default those of the file. */
export function learnt(
  model: LearntModel,
  costs: Costs & { readonly features: Features },
  trees: Trees = treesOf(model),
): Costs {
  const values = new Float64Array(Object.values(costs.features));
  if (values.length !== trees.features.length)
    internal(
      `trees of ${trees.features.length} features asked about ${values.length}: make perfmodel/learnt.json anew`,
    );
  const log = Math.min(MOST, Math.max(-MOST, treesSum(trees, values)));
  return { ...costs, factor: Math.exp(log) };
}

/** The sum of all trees for the values of the features. */
export function treesSum({ depth, asked, above, entries }: Trees, values: ArrayLike<number>): number {
  let sum = 0;
  let first = 0;
  for (let at = 0; at < asked.length; first += 1 << depth) {
    let answers = 0;
    for (let level = 0; level < depth; level++, at++)
      if ((values[asked[at] ?? 0] ?? 0) > (above[at] ?? 0)) answers |= 1 << level;
    sum += entries[first + answers] ?? 0;
  }
  return sum;
}
