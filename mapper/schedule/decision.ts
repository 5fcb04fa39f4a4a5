/**
 * @file A decision: one degree of freedom that a mapping leaves open, with everything known about it in one place. A
 * schedule has one value for each.
 *
 *     stage 3          values 1 to 8; "3 stages of a ring in shared memory: 2 steps are on their way while 1 is multiplied"
 *     block q 12       drawn: one or two kept loops, as far as registers allow; moved: another number of steps of one loop
 *
 * The search, the database's codec, the model's traits, explanations and docs/schedule.md are all derived from these
 * files and have no list of their own.
 */

import type { z } from "zod";
import { hasName, unique } from "../../abstraction/collections.ts";
import type { Random } from "../../abstraction/random.ts";
import { identifier, named } from "../../abstraction/schema.ts";

/**
 * @template V type of its values
 * @template C the facts about a mapping that decisions use
 * @template S the schedule it belongs to
 */
export type Decision<V, C, S> = Described<V, C, S> & (Listed<V, C, S> | Drawn<V, C, S>);

interface Described<V, C, S> {
  /** Its name in explanations, where the key alone is unclear. */
  readonly label?: string;
  /** One or two sentences for docs/schedule.md: what it decides, and the trade-off. */
  readonly summary: string;
  /** An example value, as schedules print it. */
  readonly example: string;
  /**
   * What a record may hold: bounded numbers, names of the notation. A decision added later is optional in the schedule
   * and in its records.
   */
  readonly schema: z.ZodType<V>;
  /** The value as schedules print it; undefined when there is nothing to print. {@link printValue} when left out. */
  print?(value: V): string | undefined;
  /**
   * Classes of schedules that the model's correction distinguishes: it learns a weight for each name. None when left
   * out.
   */
  traits?(schedule: S): readonly string[];
  /** Why its value cannot be lowered together with the others, in one sentence; undefined when it can. */
  problem?(context: C, schedule: S): string | undefined;
  /**
   * Whether a legal value is worth a trial beside those of the decisions before it; always when left out. Recorded
   * schedules are not restricted by it.
   */
  worthTrying?(context: C, schedule: S): boolean;
  /**
   * The canonical form of its value, so that equal schedules are written alike; undefined when the value is omitted.
   */
  tidy?(context: C, schedule: S): V | undefined;
  /** Distance between two schedules in this decision. When left out: 0 for equal values, 1 for others. */
  distance?(context: C, a: S, b: S): number;
  /**
   * The value nearest to that of a schedule made for other extents; undefined when the value is omitted. When left out,
   * the value is taken as it is. Earlier decisions of the schedule have been carried over.
   */
  carry?(context: C, schedule: S): V | undefined;
  /** Another decision whose value must come from the same parent in crossover, because the values belong together. */
  readonly goesWith?: keyof S & string;
}

/**
 * A decision with few enough values to list. All are equally likely to be drawn, and a mutation may change any value to
 * any other.
 */
export interface Listed<V, C, S> {
  /**
   * The values to try for a mapping, smallest or plainest first. Each may still conflict with another decision's value.
   */
  values(context: C): readonly V[];
  /** Whether a value suits the decisions made before it. One that does not is drawn only when no other does. */
  suits?(context: NoInfer<C>, schedule: NoInfer<S>, value: NoInfer<V>): boolean;
}

/** A decision with too many values to list, or with values that follow from other decisions. */
export interface Drawn<V, C, S> {
  /** @param schedule the decisions made before it */
  draw(context: C, schedule: S, random: Random): V;
  /** Draws what can only be drawn after all other decisions: loops over tiles, copies inside loops. */
  refine?(context: C, schedule: S, random: Random): S;
  /** Steps to neighbouring values; empty when the user decides. */
  readonly moves: readonly Move<C, S>[];
}

/**
 * Distance of values of which a search first tries one, when it has many schedules to try, before it tries the others.
 */
export const MINOR_DISTANCE = 0.25;

export interface Move<C, S> {
  /** How often it is chosen, relative to the other moves that find something to change; 1 for a listed decision. */
  readonly weight: number;
  /** A neighbour, which need not be legal; the same schedule when there is none. */
  apply(context: C, schedule: S, random: Random): S;
}

/** `q 12, k 2`. */
export function printPairs(of: Readonly<Record<string, unknown>>): string {
  return (
    Object.entries(of)
      .map(([name, value]) => `${name} ${String(value)}`)
      .join(", ") || "none"
  );
}

/** `m 128, n 256, k 64`, or the value itself; undefined when there is none. */
export function printValue(value: unknown): string | undefined {
  if (value === undefined) return undefined;
  return typeof value === "object" ? printPairs({ ...value }) : String(value);
}

/** Number of entries that differ between two records. */
export function pairsApart(a: Readonly<Record<string, unknown>>, b: Readonly<Record<string, unknown>>): number {
  return unique([...Object.keys(a), ...Object.keys(b)]).filter((name) => a[name] !== b[name]).length;
}

/** Why a record of values does not have exactly one value for each axis. */
export function namesProblem(
  decision: string,
  of: Readonly<Record<string, number>>,
  axes: readonly { readonly axis: string }[],
): string | undefined {
  const same = Object.keys(of).length === axes.length && axes.every(({ axis }) => Object.hasOwn(of, axis));
  if (same) return undefined;
  return `${decision} is of ${Object.keys(of).join(", ") || "nothing"}, not of ${axes.map((a) => a.axis).join(", ")}`;
}

/** Why a record of values names a loop that a computation does not have. */
export function strangeLoop(
  what: string,
  of: Readonly<Record<string, number>>,
  loops: readonly { readonly name: string }[],
): string | undefined {
  const strange = Object.keys(of).find((name) => !hasName(loops, name));
  return strange && `${what} of ${strange}: there is no such loop`;
}

/** Axes of an instruction, or loops of a computation whose points are distributed to threads. */
const MOST_AXES = 8;

/** The schema of values by axis in a record: names of the notation, limited in number. */
export function byAxis<T>(value: z.ZodType<T>): z.ZodType<Readonly<Record<string, T>>> {
  return named(identifier, value, MOST_AXES);
}
