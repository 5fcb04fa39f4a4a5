/**
 * @file Enumerates every mapping of a computation onto an instruction, and explains why the other matches are refused.
 *
 *     mappings(conv2d(...), wmma16x16x16)             98 valid: 49 gathers, either operand first
 *     mappings(conv2d(...), wmma16x16x16, { rule: "amos" })       35 valid
 *
 * A loop may feed an axis when both have the same column in their access matrices and both are kept or both summed. The
 * space is therefore a product over groups of axes with equal columns, and its size is known before it is listed. Axes
 * that no loop can feed are padded.
 */

import { bitAt } from "../../abstraction/binary-matrix.ts";
import { memoised, namesOf, sumOf } from "../../abstraction/collections.ts";
import { type Axis, type Computation, summedIn } from "../../abstraction/computation.ts";
import { checkNames } from "../../abstraction/error.ts";
import { printEquation } from "../../abstraction/expression.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import { type Mapping, type Matching, printMatching, type Refusal, RULES } from "../../abstraction/mapping.ts";
import { pick, type Random, seededRandom } from "../../abstraction/random.ts";
import { finished, type Step, type Steps } from "../../abstraction/steps.ts";
import { bandsWhole } from "./bands.ts";
import { bindOperands } from "./bind.ts";
import { phasesTogether } from "./phases.ts";
import { defineProblem, type Problem, wasteOf } from "./problem.ts";
import { type EnumerationRule, mappingBy, validate } from "./validate.ts";

/** Which matches count as mappings, and how many are listed. */
export interface MappingOptions {
  /** `gather` (every valid set of loops) by default; `amos` for unions of match points. */
  readonly rule?: EnumerationRule;
  /** Refuse fused extents smaller than the instruction's. */
  readonly strict?: boolean;
  /**
   * `fixed` binds operands in the order of the text; `any` also commutes products. By default fixed for amos, any for
   * gather.
   */
  readonly binding?: "fixed" | "any";
  /** Largest space that is listed completely; a larger one is sampled. */
  readonly limit?: number;
  /** Seed of the sample. */
  readonly seed?: number;
  /**
   * Whether to explain why loops may not feed axes, each with a counterexample; this takes most of the time. True by
   * default.
   */
  readonly reasons?: boolean;
}

const OPTIONS = { rule: true, strict: true, binding: true, limit: true, seed: true, reasons: true } as const;

/** The mappings of a computation onto an instruction, and why other matches are refused. */
export interface MappingSet {
  /** The computation given. */
  readonly computation: Computation;
  /** The instruction given. */
  readonly intrinsic: Intrinsic;
  /** The rule that was applied. */
  readonly rule: EnumerationRule;
  /** Whether extents smaller than the instruction's were refused. */
  readonly strict: boolean;
  /** Valid mappings, best first: least waste, then most loops mapped. */
  readonly valid: readonly Mapping[];
  /** Refusals, those closest to a mapping first. */
  readonly refused: readonly Refusal[];
  /** Matches in the space of gathers, over all bindings. */
  readonly total: number;
  /** Whether the space exceeded the limit, so that only a sample of it was validated. */
  readonly sampled: boolean;
}

/** Largest space listed completely by default: half a second of enumeration. */
const DEFAULT_LIMIT = 20_000;

/**
 * Mappings of one instruction that a search considers: those with the least waste. More than any operator of the table
 * has (450, conv3d). The model requests schedules for each, at a millisecond or more.
 */
const MOST_SEARCHED = 512;

/**
 * Every way to compute a computation with an instruction, and why the other matches are refused. A space larger than
 * `options.limit` is sampled, which `sampled` says.
 * @throws UsageError for an unknown option
 */
export function mappings(computation: Computation, intrinsic: Intrinsic, options: MappingOptions = {}): MappingSet {
  return finished(mappingsInSteps(computation, intrinsic, options));
}

/**
 * The same with a step after every {@link MATCHES_A_STEP} matches. When told to stop, it returns the matches validated
 * by then.
 */
export function* mappingsInSteps(
  computation: Computation,
  intrinsic: Intrinsic,
  options: MappingOptions = {},
): Steps<MappingSet> {
  const { valid, refused, ...told } = yield* judge(computation, intrinsic, options);
  return { ...told, valid: byPromise(valid.map(({ mapping }) => mapping)), refused: distinct(refused).sort(byHope) };
}

/** Matches a step: half a millisecond to ten of validation, depending on the number of loops. */
const MATCHES_A_STEP = 256;

/** Validated matches, cached for all instructions that differ only in the extents of kept axes. */
const judgedAlike = memoised((_: Computation) => new Map<string, Judged>());

/**
 * The most promising of {@link mappings}, for a search: phases feed an axis together, and at most `MOST_SEARCHED` are
 * returned. The number of steps does not depend on what is cached, so that a repeated search is cut off at the same
 * step.
 */
export function* validMappings(computation: Computation, intrinsic: Intrinsic): Steps<readonly Mapping[]> {
  const { equation, axes } = intrinsic.computation;
  const sums = summedIn(axes).map((a) => a.extent);
  const types = intrinsic.operands.map((o) => `${o.name} ${o.dtype}`);
  const known = judgedAlike(computation);
  // A row that can begin a sum anew leaves scales to the kernel, and others take no such product.
  const alike = [printEquation(equation), ...types, ...sums, intrinsic.begin !== undefined].join();
  const before = known.get(alike);
  const found = before ? yield* judgedAgain(before) : yield* judge(computation, intrinsic, { reasons: false });
  if (!found.isCut) known.set(alike, found);
  const problemOf = (m: Mapping): Problem => defineProblem(computation, intrinsic, m.binding);
  const together = bandsWhole(phasesTogether(found.valid.map(({ mapping }) => mapping))).filter(isWithoutIdle);
  // Only mappings that are kept get an id, which is a hash.
  return byPromise(together.map((m) => ({ ...m, waste: wasteOf(problemOf(m), m.matching) })))
    .slice(0, MOST_SEARCHED)
    .map((m) => mappingBy(problemOf(m), m.matching));
}

/**
 * Whether no loop of one iteration shares an axis with others. Such a loop changes neither what an issue computes nor where it reads, so that a mapping
 * with it equals the one without: a 1 x 1 convolution of one image had nine mappings for each that differs.
 */
function isWithoutIdle({ computation, matching }: Mapping): boolean {
  const idle = new Set(namesOf(computation.axes.filter((a) => a.extent === 1)));
  return Object.values(matching).every((loops) => loops.length < 2 || !loops.some((name) => idle.has(name)));
}

/** A set of mappings in the order of enumeration, each with the step it was found in. */
interface Judged extends Omit<MappingSet, "valid"> {
  readonly valid: readonly { readonly mapping: Mapping; readonly step: number }[];
  /** The steps made. */
  readonly steps: readonly Step[];
  readonly isCut: boolean;
}

/** Replays validated matches from the cache, in the same steps. */
function* judgedAgain(known: Judged): Steps<Judged> {
  for (const [at, step] of known.steps.entries()) {
    const isEnough = yield step;
    const valid = known.valid.filter((found) => found.step <= at);
    if (isEnough && valid.length > 0) return { ...known, valid, isCut: true };
  }
  return known;
}

function* judge(computation: Computation, intrinsic: Intrinsic, options: MappingOptions): Steps<Judged> {
  checkNames(options, OPTIONS, "mappings");
  const rule = options.rule ?? "gather";
  const strict = options.strict ?? false;
  const commute = (options.binding ?? (rule === "amos" ? "fixed" : "any")) === "any";
  const limit = options.limit ?? DEFAULT_LIMIT;
  const random = seededRandom(options.seed ?? 1);
  const { bindings, refusals } = bindOperands(computation, intrinsic, commute);
  const spaces = bindings.map((binding) => {
    const problem = defineProblem(computation, intrinsic, binding);
    const groups = groupsOf(problem);
    return { problem, groups, size: spaceSize(groups) };
  });
  const total = sumOf(spaces, ({ size }) => size);
  const sampled = total > limit;

  const valid: { mapping: Mapping; step: number }[] = [];
  const refused: Refusal[] = [...refusals];
  const steps: Step[] = [];
  const told = { computation, intrinsic, rule, strict, valid, refused, total, sampled, steps };
  let looked = 0;
  for (const { problem, groups, size } of spaces) {
    const share = Math.max(1, Math.floor((limit * size) / total));
    for (const matching of sampled ? sample(problem, groups, share, random) : listAll(problem, groups)) {
      // All loops run outside an instruction of one thread.
      const feedsNothing = Object.values(matching).every((loops) => loops.length === 0);
      if (feedsNothing && problem.axes.length > 0) continue;
      const verdict = validate(problem, matching, { rule, strict });
      if (verdict.ok) valid.push({ mapping: verdict.mapping, step: steps.length });
      else refused.push(verdict.refusal);
      if (++looked % MATCHES_A_STEP > 0) continue;
      const step = { what: `matches of ${intrinsic.name}`, done: looked, of: Math.min(total, limit) };
      steps.push(step);
      if ((yield step) && valid.length > 0) return { ...told, isCut: true };
    }
    if (options.reasons !== false) refused.push(...refusedPairs(problem, groups, rule));
  }
  return { ...told, isCut: false };
}

/** Axes with the same column of the access matrix and the same kind: the same loops may feed each of them. */
interface Group {
  readonly axes: readonly string[];
  readonly loops: readonly string[];
}

function groupsOf(problem: Problem): Group[] {
  const key = (axis: Axis): string =>
    `${axis.kind} ${problem.z.rows.map((row) => bitAt(problem.z, row, axis.name)).join("")}`;
  const byKey = new Map<string, string[]>();
  for (const axis of problem.axes) byKey.set(key(axis), [...(byKey.get(key(axis)) ?? []), axis.name]);
  return [...byKey.values()].map((axes) => ({ axes, loops: problem.feeders[axes[0] ?? ""] ?? [] }));
}

/** Number of matchings of all groups together. A matching that feeds nothing does not count. */
function spaceSize(groups: readonly Group[]): number {
  return groups.some((g) => g.loops.length > 0) ? groups.reduce((product, g) => product * groupSize(g), 1) : 0;
}

/** Ways to give each of L loops to one of A axes or to none so that min(A, L) axes are fed: inclusion and exclusion. */
function groupSize({ axes, loops }: Group): number {
  const fed = Math.min(axes.length, loops.length);
  let onto = 0;
  for (let j = 0; j <= fed; j++) onto += (j % 2 === 0 ? 1 : -1) * choose(fed, j) * (fed + 1 - j) ** loops.length;
  return choose(axes.length, fed) * onto;
}

function choose(n: number, k: number): number {
  let result = 1;
  for (let i = 0; i < k; i++) result = (result * (n - i)) / (i + 1);
  return result;
}

function* listAll(problem: Problem, groups: readonly Group[]): Generator<Matching> {
  const [first, ...rest] = groups;
  if (!first) {
    yield Object.fromEntries(problem.axes.map((a) => [a.name, []]));
    return;
  }
  const others = [...listAll(problem, rest)];
  for (const assignment of assignments(first)) for (const other of others) yield { ...other, ...assignment };
}

function* assignments(
  { axes, loops }: Group,
  at = 0,
  chosen: readonly (string | undefined)[] = [],
): Generator<Matching> {
  const fed = Math.min(axes.length, loops.length);
  if (at === loops.length) {
    if (new Set(chosen.filter((a) => a !== undefined)).size === fed) yield toMatching(axes, loops, chosen);
    return;
  }
  for (const axis of [...axes, undefined]) yield* assignments({ axes, loops }, at + 1, [...chosen, axis]);
}

function toMatching(
  axes: readonly string[],
  loops: readonly string[],
  chosen: readonly (string | undefined)[],
): Matching {
  return Object.fromEntries(axes.map((axis) => [axis, loops.filter((_, i) => chosen[i] === axis)]));
}

/** Distinct random matchings: the loops of each group are assigned at random until enough axes are fed. */
function* sample(problem: Problem, groups: readonly Group[], count: number, random: Random): Generator<Matching> {
  const seen = new Set<string>();
  for (let tries = 0; seen.size < count && tries < 20 * count; tries++) {
    let matching: Matching = Object.fromEntries(problem.axes.map((a) => [a.name, []]));
    for (const { axes, loops } of groups) {
      const fed = Math.min(axes.length, loops.length);
      let chosen: (string | undefined)[];
      do
        chosen = loops.map(
          () =>
            pick(
              random,
              [...axes, undefined].map((axis) => ({ axis })),
            ).axis,
        );
      while (new Set(chosen.filter((a) => a !== undefined)).size !== fed);
      matching = { ...matching, ...toMatching(axes, loops, chosen) };
    }
    const text = printMatching(matching);
    if (seen.has(text)) continue;
    seen.add(text);
    yield matching;
  }
}

/** The refusal for each loop and each axis it may not feed, shown on an otherwise simple matching. */
function refusedPairs(problem: Problem, groups: readonly Group[], rule: EnumerationRule): Refusal[] {
  const base: Record<string, readonly string[]> = {};
  for (const { axes, loops } of groups) {
    for (const [i, axis] of axes.entries()) base[axis] = loops.slice(i, i + 1);
  }
  const found: Refusal[] = [];
  for (const axis of problem.axes) {
    for (const loop of problem.loops) {
      if (problem.feeders[axis.name]?.includes(loop.name)) continue;
      const moved = Object.fromEntries(
        Object.entries(base).map(([name, fed]) => {
          const others = fed.filter((l) => l !== loop.name);
          const wanted = name === axis.name ? [...others, loop.name] : others;
          return [name, namesOf(problem.loops).filter((l) => wanted.includes(l))];
        }),
      );
      const verdict = validate(problem, moved, { rule, strict: false });
      if (!verdict.ok) found.push(verdict.refusal);
    }
  }
  return found;
}

/** Ties keep the order of enumeration: operands as written first, then the fuller sets of loops. */
function byPromise(valid: readonly Mapping[]): Mapping[] {
  const counted = valid.map((m) => ({ m, mapped: Object.values(m.matching).flat().length }));
  return counted.sort((a, b) => a.m.waste - b.m.waste || b.mapped - a.mapped).map(({ m }) => m);
}

function byHope(a: Refusal, b: Refusal): number {
  return RULES.indexOf(a.rule) - RULES.indexOf(b.rule);
}

/** The two bindings of a symmetric product give mirrored refusals with the same words; one of each is enough. */
function distinct(refusals: readonly Refusal[]): Refusal[] {
  const byText = new Map<string, Refusal>();
  for (const r of refusals) {
    const text = `${r.because}|${r.rule === "match-point" || r.rule === "extent" ? printMatching(r.matching) : ""}`;
    if (!byText.has(text)) byText.set(text, r);
  }
  return [...byText.values()];
}
