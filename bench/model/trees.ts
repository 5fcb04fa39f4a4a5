/**
 * @file Teaches the trees of perfmodel/learnt.ts: each tree is fitted to what the trees before it leave of log(measured / predicted), and a share of it is
 * added. The same trials give the same trees.
 *
 *     treesTaughtBy([{ values: [0.5, 3], log: 0.19 }, ...], ["part launch", "stage"])
 */

import { groupsOf, sumOf, upTo } from "../../abstraction/collections.ts";
import { type Random, seededRandom } from "../../abstraction/random.ts";
import { apply, NO_CORRECTION, type Observation } from "../../perfmodel/correct.ts";
import { LEARNT_MODELS, type LearntModel, type Trees } from "../../perfmodel/learnt.ts";

/** A kernel: its features, the logarithm of measured over predicted time, and the case that it is of. */
export interface Lesson {
  readonly values: readonly number[];
  readonly log: number;
  readonly of: string;
}

const TREES = 200;
const DEPTH = 4;
/** Share of a tree that is added. */
const RATE = 0.16;
/** An entry counts as if it had so many more kernels, of log 0. */
const RIDGE = 10;
/**
 * What the kernels of a case have in common is left to the case, which counts as if it had so many more kernels, of log 0: a tree is to tell the
 * kernels of one case apart.
 */
const CASE_RIDGE = 10;
/** Kernels on either side of a question in a node, at least. */
const LEAST = 20;
/** Share of the features that a tree may ask about. */
const ASKED = 0.5;
/** Values that a feature is compared with, at most. */
const CUTS = 31;
/** Digits of entries and of values compared with. */
const DIGITS = 3;

/** A feature, and for each kernel how many of its cuts the kernel's value is above. */
interface Column {
  readonly cuts: readonly number[];
  readonly places: Uint8Array;
}

interface Question {
  readonly feature: number;
  readonly cut: number;
}

/** A measured kernel, the kind of its candidate, and its case. */
export interface Example extends Observation {
  readonly model: string;
  readonly of: string;
}

/** The trees of each model that kernels are of. */
export function treesOfModels(examples: readonly Example[], trees = TREES): ReadonlyMap<LearntModel, Trees> {
  const taught = LEARNT_MODELS.flatMap((model): [LearntModel, Trees][] => {
    const own = examples.filter((e) => e.model === model && e.costs.features !== undefined);
    const names = Object.keys(own[0]?.costs.features ?? {});
    const lessons = own.map(({ costs, measuredSeconds, of }) => ({
      of,
      values: Object.values(costs.features ?? {}),
      log: Math.log(measuredSeconds / apply(NO_CORRECTION, costs)),
    }));
    return lessons.length === 0 ? [] : [[model, treesTaughtBy(lessons, names, trees)]];
  });
  return new Map(taught);
}

export function treesTaughtBy(lessons: readonly Lesson[], features: readonly string[], trees = TREES): Trees {
  const columns = features.map((_, f) => columnOf(lessons.map(({ values }) => values[f] ?? 0)));
  const random = seededRandom(1);
  const left = Float64Array.from(lessons, ({ log }) => log);
  const cases = [...groupsOf(upTo(lessons.length), (i) => lessons[i]?.of).values()];
  const asked: number[] = [];
  const above: number[] = [];
  const entries: number[] = [];
  for (let t = 0; t < trees; t++) {
    const apart = withoutCases(left, cases);
    const { questions, nodes } = grown(columns, apart, random);
    const sums = new Float64Array(1 << DEPTH);
    const counts = new Float64Array(1 << DEPTH);
    for (const [i, node] of nodes.entries()) {
      sums[node] = (sums[node] ?? 0) + (apart[i] ?? 0);
      counts[node] = (counts[node] ?? 0) + 1;
    }
    const own = Array.from(sums, (sum, node) => rounded((RATE * sum) / ((counts[node] ?? 0) + RIDGE)));
    for (const [i, node] of nodes.entries()) left[i] = (left[i] ?? 0) - (own[node] ?? 0);
    for (const level of upTo(DEPTH)) {
      const question = questions[level];
      asked.push(question?.feature ?? 0);
      above.push(question ? (columns[question.feature]?.cuts[question.cut] ?? 0) : Number.MAX_VALUE);
    }
    entries.push(...own);
  }
  return { features, depth: DEPTH, asked, above, entries };
}

/** What is left of each kernel beside what its case has in common. */
function withoutCases(left: Float64Array, cases: readonly (readonly number[])[]): Float64Array {
  const apart = left.slice();
  for (const of of cases) {
    const common = sumOf(of, (i) => left[i] ?? 0) / (of.length + CASE_RIDGE);
    for (const i of of) apart[i] = (left[i] ?? 0) - common;
  }
  return apart;
}

const rounded = (x: number): number => Number(x.toPrecision(DIGITS));

/** Cuts between all values, or where there are many between equal shares of the kernels. */
function columnOf(values: readonly number[]): Column {
  const sorted = values.toSorted((a, b) => a - b);
  const different = [...new Set(sorted)];
  const from =
    different.length <= CUTS + 1
      ? different
      : upTo(CUTS + 1).map((i) => sorted[Math.floor((i * sorted.length) / (CUTS + 1))] ?? 0);
  const between = from.slice(1).map((value, i) => rounded((value + (from[i] ?? value)) / 2));
  const cuts = [...new Set(between)];
  return { cuts, places: Uint8Array.from(values, (value) => cuts.filter((cut) => value > cut).length) };
}

/** The questions of a tree, and the node that each kernel comes to. */
function grown(
  columns: readonly Column[],
  left: Float64Array,
  random: Random,
): { readonly questions: readonly Question[]; readonly nodes: Uint16Array } {
  const mayAsk = columns.flatMap((_, f) => (random() < ASKED ? [f] : []));
  const nodes = new Uint16Array(left.length);
  const questions: Question[] = [];
  for (let level = 0; level < DEPTH; level++) {
    let best: (Question & { readonly gain: number }) | undefined;
    for (const feature of mayAsk) {
      const gains = gainsOf(columns[feature], left, nodes, 1 << level);
      for (const [cut, gain] of gains.entries()) if (gain > (best?.gain ?? 0)) best = { feature, cut, gain };
    }
    if (!best) break;
    questions.push(best);
    const { cut } = best;
    const places = columns[best.feature]?.places ?? new Uint8Array();
    for (const [i, place] of places.entries()) if (place > cut) nodes[i] = (nodes[i] ?? 0) | (1 << level);
  }
  return { questions, nodes };
}

/** By how much each cut of a feature lowers the squares that are left, over all nodes. */
function gainsOf(column: Column | undefined, left: Float64Array, nodes: Uint16Array, count: number): Float64Array {
  const { cuts, places } = column ?? { cuts: [], places: new Uint8Array() };
  const bins = cuts.length + 1;
  const sums = new Float64Array(count * bins);
  const counts = new Float64Array(count * bins);
  for (let i = 0; i < places.length; i++) {
    const at = (nodes[i] ?? 0) * bins + (places[i] ?? 0);
    sums[at] = (sums[at] ?? 0) + (left[i] ?? 0);
    counts[at] = (counts[at] ?? 0) + 1;
  }
  const gains = new Float64Array(cuts.length);
  const worth = (sum: number, n: number): number => sum ** 2 / (n + RIDGE);
  for (let node = 0; node < count; node++) {
    const own = upTo(bins).map((bin) => node * bins + bin);
    const sum = own.reduce((all, at) => all + (sums[at] ?? 0), 0);
    const all = own.reduce((n, at) => n + (counts[at] ?? 0), 0);
    let below = 0;
    let kernels = 0;
    for (let cut = 0; cut < cuts.length; cut++) {
      below += sums[node * bins + cut] ?? 0;
      kernels += counts[node * bins + cut] ?? 0;
      if (kernels < LEAST || all - kernels < LEAST) continue;
      const gain = worth(below, kernels) + worth(sum - below, all - kernels) - worth(sum, all);
      gains[cut] = (gains[cut] ?? 0) + gain;
    }
  }
  return gains;
}
