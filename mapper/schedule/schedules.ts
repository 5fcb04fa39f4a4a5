/**
 * @file All operations on schedules, derived from their list of decisions: draw, mutate, cross, list, compare, print,
 * parse, explain. Nothing here knows a decision by name.
 *
 *     const LOOPS: ScheduleKind<Schedule, MappedContext> = { decisions: { spread, order, block, placement, within, threads }, tries: 200 };
 *     drawSchedule(LOOPS, context, random)         { order: ["n", "k", "p", "q", "c"], block: { q: 12 }, ... }
 *     scheduleRows(LOOPS.decisions, schedule)      [["order", "n k p q c"], ["block", "q 12"], ...]
 */

import { z } from "zod";
import { canonicalJson } from "../../abstraction/candidate.ts";
import { memoised, memoisedBy, namesOf, sumOf } from "../../abstraction/collections.ts";
import { internal } from "../../abstraction/error.ts";
import { pick, pickWeighted, type Random } from "../../abstraction/random.ts";
import { type Decision, type Listed, type Move, printValue } from "./decision.ts";

/** One decision for each key of the schedule, in the order in which they are drawn and printed. */
export type Decisions<S, C> = { readonly [K in keyof S]-?: Decision<S[K], C, S> };

export interface ScheduleKind<S extends object, C> {
  readonly decisions: Decisions<S, C>;
  /** Why a schedule cannot be lowered although each of its decisions is legal; undefined when it can. */
  problem?(context: C, schedule: S): string | undefined;
  /**
   * The context for the other decisions once some are made that change how the mapping is seen; the same context when
   * left out.
   */
  seen?(context: C, schedule: S): C;
  /** The number of draws after which a kind is taken to have no legal schedule. */
  readonly tries: number;
}

/** A decision and its key in the schedule. */
type Known<S, C> = Decision<unknown, C, S> & { readonly name: string };

const seenBy = <S extends object, C>({ seen }: ScheduleKind<S, C>, context: C, schedule: S): C =>
  seen ? seen(context, schedule) : context;

const named = memoised((decisions: object): readonly object[] =>
  Object.entries(decisions).map(([name, decision]) => ({ ...decision, name })),
);

function listOf<S extends object, C>(decisions: Decisions<S, C>): readonly Known<S, C>[] {
  return named(decisions) as readonly Known<S, C>[]; // of these very decisions
}

function valueIn<S extends object>(schedule: S, name: string): unknown {
  return (schedule as Readonly<Record<string, unknown>>)[name]; // every key of a schedule is the name of a decision
}

// ---- As text

/** The schema of a schedule in a record: one value for each decision and no other keys. */
export function scheduleSchema<S extends object, C>(decisions: Decisions<S, C>): z.ZodType<S> {
  const shape = Object.fromEntries(listOf(decisions).map(({ name, schema }) => [name, schema]));
  return z.strictObject(shape) as unknown as z.ZodType<S>; // every key has the schema of its own decision
}

/** Each decision's name and value as text. */
export function scheduleRows<S extends object, C>(
  decisions: Decisions<S, C>,
  schedule: S,
): [name: string, text: string][] {
  return listOf(decisions).flatMap((d): [string, string][] => {
    const text = (d.print ?? printValue)(valueIn(schedule, d.name));
    return text === undefined ? [] : [[d.label ?? d.name, text]];
  });
}

/** `tile m 128, n 256, k 64   warps m 2, n 4   stage 3`. */
export function printSchedule<S extends object, C>(decisions: Decisions<S, C>, schedule: S): string {
  return scheduleRows(decisions, schedule)
    .map(([name, text]) => `${name} ${text}`)
    .join("   ");
}

/**
 * The classes that the model's correction distinguishes. The list is derived once, since every evaluation calls the
 * result.
 */
export function traitsOf<S extends object, C>(decisions: Decisions<S, C>): (schedule: S) => readonly string[] {
  const counted = listOf(decisions).filter((d) => d.traits !== undefined);
  return (schedule) => {
    const traits: string[] = [];
    for (const d of counted) traits.push(...(d.traits?.(schedule) ?? []));
    return traits;
  };
}

// ---- As data

const judged = new WeakMap<
  object,
  { readonly kind: unknown; readonly by: unknown; readonly because: string | undefined }
>();

/**
 * Why a schedule cannot be lowered, in one sentence; undefined when it can. Cached, since the model asks again about
 * drawn schedules.
 */
export function problemIn<S extends object, C>(kind: ScheduleKind<S, C>, context: C, schedule: S): string | undefined {
  const known = judged.get(schedule);
  if (known?.by === context && known.kind === kind) return known.because;
  const because = findProblem(kind, context, schedule);
  judged.set(schedule, { kind, by: context, because });
  return because;
}

function findProblem<S extends object, C>(kind: ScheduleKind<S, C>, context: C, schedule: S): string | undefined {
  const now = seenBy(kind, context, schedule);
  for (const d of listOf(kind.decisions)) {
    const because = d.problem?.(now, schedule);
    if (because !== undefined) return because;
  }
  return kind.problem?.(context, schedule);
}

/** Distance between two schedules of one mapping: the sum over their decisions. */
export function scheduleDistance<S extends object, C>(
  { decisions }: ScheduleKind<S, C>,
  context: C,
  a: S,
  b: S,
): number {
  const apart = (d: Known<S, C>): number => d.distance?.(context, a, b) ?? (areEqual([d.name], a, b) ? 0 : 1);
  return sumOf(listOf(decisions), (d) => apart(d));
}

/** The canonical form of a schedule, so that equal schedules are equal data. */
function tidied<S extends object, C>(kind: ScheduleKind<S, C>, context: C, schedule: S): S {
  const tidy = { ...schedule };
  const now = seenBy(kind, context, schedule);
  for (const d of listOf(kind.decisions)) setValue(tidy, d.name, d.tidy ? d.tidy(now, tidy) : valueIn(tidy, d.name));
  return tidy;
}

function setValue<S extends object>(schedule: S, name: string, value: unknown): void {
  const values = schedule as Record<string, unknown>; // the value is of the decision of that name
  if (value !== undefined) values[name] = value;
  else if (name in values) delete values[name];
}

function withValue<S extends object>(schedule: S, name: string, value: unknown): S {
  const changed = { ...schedule };
  setValue(changed, name, value);
  return changed;
}

/** Whether two canonical schedules are equal. */
function areEqual<S extends object>(names: readonly string[], a: S, b: S): boolean {
  return names.every((name) => {
    const left = valueIn(a, name);
    const right = valueIn(b, name);
    return left === right || canonicalJson(left ?? null) === canonicalJson(right ?? null);
  });
}

// ---- For searches

/** A random legal schedule worth trying; undefined when none was found. */
export function drawSchedule<S extends object, C>(kind: ScheduleKind<S, C>, context: C, random: Random): S | undefined {
  const decisions = listOf(kind.decisions);
  for (let i = 0; i < kind.tries; i++) {
    let schedule = drawEach(kind, decisions, context, random);
    if (!schedule) continue;
    schedule = tidied(kind, context, schedule);
    for (const d of decisions)
      if ("draw" in d && d.refine)
        schedule = tidied(kind, context, d.refine(seenBy(kind, context, schedule), schedule, random));
    if (isCandidate(kind, context, schedule)) return schedule;
  }
  return undefined;
}

/** Draws a value for each decision; undefined when earlier values leave a decision none. */
function drawEach<S extends object, C>(
  kind: ScheduleKind<S, C>,
  decisions: readonly Known<S, C>[],
  context: C,
  random: Random,
): S | undefined {
  const drawn: Record<string, unknown> = {};
  const schedule = drawn as S; // each decision looks at those before it only
  for (const d of decisions) {
    const now = seenBy(kind, context, schedule);
    let value: unknown;
    if ("values" in d) {
      const values = suited(now, schedule, d, valuesOf(now, d));
      if (values.length === 0) return undefined;
      value = pick(random, values);
    } else value = d.draw(now, schedule, random);
    if (value !== undefined) drawn[d.name] = value;
  }
  return schedule;
}

/** A legal schedule one step away, or the same when none was found. */
export function mutateSchedule<S extends object, C>(
  kind: ScheduleKind<S, C>,
  context: C,
  schedule: S,
  random: Random,
): S {
  const decisions = listOf(kind.decisions);
  const names = namesOf(decisions);
  const moves = decisions.flatMap((d): readonly Move<C, S>[] => ("values" in d ? [anotherValue(d)] : d.moves));
  const now = seenBy(kind, context, schedule);
  for (let i = 0; i < kind.tries; i++) {
    const moved = pickWeighted(random, moves, (m) => m.weight).apply(now, schedule, random);
    if (moved === schedule) continue;
    const changed = tidied(kind, context, moved);
    if (!areEqual(names, changed, schedule) && isCandidate(kind, context, changed)) return changed;
  }
  return schedule;
}

/** Decisions below another, one of which may change with it where its value is illegal otherwise: a larger tile needs more warps, or fewer stages. */
const YIELDING = 2;

/**
 * A schedule that no other value of one decision improves: each decision in turn takes the value of the least cost, together with one of the decisions
 * below it where it needs that.
 * @param cost undefined for a schedule that has none
 */
export function descendedSchedule<S extends object, C>(
  kind: ScheduleKind<S, C>,
  context: C,
  schedule: S,
  cost: (schedule: S) => number | undefined,
): S {
  const listed = listOf(kind.decisions).flatMap((d) => ("values" in d ? [d] : []));
  let [best, least] = [schedule, cost(schedule) ?? Number.POSITIVE_INFINITY];
  const improves = (changed: S): boolean => {
    const tidy = tidied(kind, context, changed);
    if (!isCandidate(kind, context, tidy)) return false;
    const seconds = cost(tidy) ?? Number.POSITIVE_INFINITY;
    if (seconds < least) [best, least] = [tidy, seconds];
    return true;
  };
  for (let before = Number.POSITIVE_INFINITY; least < before; ) {
    before = least;
    for (const [i, d] of listed.entries()) {
      const from = best;
      for (const value of valuesOf(seenBy(kind, context, from), d)) {
        const changed = withValue(from, d.name, value);
        if (improves(changed)) continue;
        const now = seenBy(kind, context, changed);
        for (const below of listed.slice(i + 1, i + 1 + YIELDING))
          for (const beside of suited(now, changed, below, valuesOf(now, below)))
            improves(withValue(changed, below.name, beside));
      }
    }
  }
  return best;
}

/**
 * Takes each decision from either parent, and those that belong together from the same one; the first parent when the
 * result is illegal.
 */
export function crossSchedules<S extends object, C>(
  kind: ScheduleKind<S, C>,
  context: C,
  a: S,
  b: S,
  random: Random,
): S {
  const from = new Map<string, S>();
  let mixed = a;
  for (const d of listOf(kind.decisions)) {
    // Decisions that searches do not change have the same value in both parents.
    if ("moves" in d && d.moves.length === 0) continue;
    const parent = (d.goesWith && from.get(d.goesWith)) ?? (random() < 0.5 ? a : b);
    from.set(d.name, parent);
    mixed = withValue(mixed, d.name, valueIn(parent, d.name));
  }
  mixed = tidied(kind, context, mixed);
  return isCandidate(kind, context, mixed) ? mixed : a;
}

/**
 * A schedule made for other extents, carried over to this mapping: block sizes are cut to the steps there are, inputs
 * get a place they may have. Undefined when the result is illegal, or not worth trying.
 */
export function carriedSchedule<S extends object, C>(kind: ScheduleKind<S, C>, context: C, schedule: S): S | undefined {
  let carried = schedule;
  for (const d of listOf(kind.decisions))
    if (d.carry) carried = withValue(carried, d.name, d.carry(seenBy(kind, context, carried), carried));
  carried = tidied(kind, context, carried);
  return isCandidate(kind, context, carried) ? carried : undefined;
}

/**
 * Every legal schedule worth trying, for kinds whose decisions can all be listed: those of the first value of the first
 * decision come first.
 */
export function* allSchedules<S extends object, C>(kind: ScheduleKind<S, C>, context: C): Generator<S> {
  const decisions = listOf(kind.decisions);
  function* from(at: number, chosen: S): Generator<S> {
    const d = decisions[at];
    if (d === undefined) {
      if (problemIn(kind, context, chosen) === undefined) yield chosen;
      return;
    }
    if (!("values" in d)) internal(`the values of ${d.name} cannot be listed`);
    for (const value of valuesOf(seenBy(kind, context, chosen), d)) {
      const next = withValue(chosen, d.name, value);
      if (d.worthTrying?.(seenBy(kind, context, next), next) ?? true) yield* from(at + 1, next);
    }
  }
  yield* from(0, {} as S); // complete where every decision is made
}

/** The schedule of the first value of each decision, which need not be legal. */
export function firstSchedule<S extends object, C>({ decisions }: ScheduleKind<S, C>, context: C): S {
  return listOf(decisions).reduce(
    (chosen, d) => ("values" in d ? withValue(chosen, d.name, valuesOf(context, d)[0]) : chosen),
    {} as S, // complete where every decision is made
  );
}

function isCandidate<S extends object, C>(kind: ScheduleKind<S, C>, context: C, schedule: S): boolean {
  const now = seenBy(kind, context, schedule);
  return (
    listOf(kind.decisions).every((d) => d.worthTrying?.(now, schedule) ?? true) &&
    problemIn(kind, context, schedule) === undefined
  );
}

/** The values of a decision that suit those drawn before; all values when none does. */
function suited<S, C>(
  context: C,
  schedule: S,
  d: Listed<unknown, C, S>,
  values: readonly unknown[],
): readonly unknown[] {
  const found = d.suits ? values.filter((v) => d.suits?.(context, schedule, v)) : values;
  return found.length > 0 ? found : values;
}

function anotherValue<S extends object, C>(d: Known<S, C> & Listed<unknown, C, S>): Move<C, S> {
  return {
    weight: 1,
    apply: (context, schedule, random) => withValue(schedule, d.name, pick(random, valuesOf(context, d))),
  };
}

const known = memoisedBy<object, readonly unknown[], unknown>();

/** Cached by context. */
function valuesOf<S, C>(context: C, d: Listed<unknown, C, S>): readonly unknown[] {
  return known(Object(context), d, () => d.values(context));
}
