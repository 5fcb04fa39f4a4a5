/**
 * @file A decision: one thing a mapping leaves open, with all that is known about it in one place. A schedule is one value of each.
 *
 *     stage 3          values 1 to 8; "3 stages of a ring in shared memory: 2 steps are on their way while 1 is multiplied"
 *     block q 12       drawn: one or two kept loops, as far as registers allow; moved: another number of steps of one loop
 *
 * Search, the database's codec, the model's traits, explanations and docs/schedule.md read these files and have no list of their own.
 */

import type { z } from "zod";
import type { Random } from "../../abstraction/random.ts";
import { identifier, named } from "../../abstraction/schema.ts";

/**
 * @template V its values
 * @template C what is known of a mapping when it is scheduled
 * @template S the schedule it is a part of
 */
export type Decision<V, C, S> = Described<V, C, S> & (Listed<V, C, S> | Drawn<V, C, S>);

interface Described<V, C, S> {
  /** Key in the schedule. */
  readonly name: string;
  /** In explanations, where the key alone says too little. */
  readonly label?: string;
  /** One sentence or two for docs/schedule.md: what it decides, and what it trades. */
  readonly summary: string;
  /** A value, as {@link print} writes it. */
  readonly example: string;
  /** What a record may hold: bounded numbers, names of the notation. A decision that came later is optional in the schedule, and in its records. */
  readonly schema: z.ZodType<V>;
  /** `m 128, n 256, k 64`: as schedules are printed. Undefined where there is nothing to say. */
  print(value: V): string | undefined;
  /** What the model counts a schedule by besides time: each name has a weight that the correction learns. Nothing when left out. */
  traits?(schedule: S): readonly string[];
  /** Why its value cannot be lowered beside the others, in one sentence; undefined when it can. */
  problem?(context: C, schedule: S): string | undefined;
  /** Whether a legal value is worth a trial; always when left out. Recorded schedules need not be. */
  worthTrying?(context: C, schedule: S): boolean;
  /** Its value in the one way that equal schedules write it; undefined where it is left out. */
  tidy?(context: C, schedule: S): V | undefined;
  /** How far apart two schedules are in it, 0 for equal values; 1 for any other when left out. */
  distance?(context: C, a: S, b: S): number;
  /** The decision whose parent it comes from when schedules are crossed, since the values belong together. */
  readonly goesWith?: keyof S & string;
}

/** A decision whose values are few enough to be listed: each is as likely to be drawn, and any may follow any other. */
export interface Listed<V, C, S> {
  /** The values worth trying for a mapping, smallest or plainest first. Each may still clash with another decision's value. */
  values(context: C): readonly V[];
  /** Whether a value goes with what was decided before it; one that does not is not drawn, where another does. */
  suits?(context: NoInfer<C>, schedule: NoInfer<S>, value: NoInfer<V>): boolean;
}

/** A decision with too many values for a list, or with values that follow from other decisions. */
export interface Drawn<V, C, S> {
  /** @param schedule what was decided before it */
  draw(context: C, schedule: S, random: Random): V;
  /** What is drawn once all others are: loops over tiles, copies inside of loops. */
  refine?(context: C, schedule: S, random: Random): S;
  /** Steps to neighbours; none where the user decides. */
  readonly moves: readonly Move<C, S>[];
}

/** How far apart values are of which a search tries one, where it has many schedules to try, before it tries the others. */
export const MINOR_DISTANCE = 0.25;

export interface Move<C, S> {
  /** How often it is taken, beside the weights of the moves that find something to change; 1 for a listed decision. */
  readonly weight: number;
  /** A neighbour, perhaps not a legal one; the same schedule where nothing was found. */
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

/** Entries that differ between two records. */
export function pairsApart(a: Readonly<Record<string, unknown>>, b: Readonly<Record<string, unknown>>): number {
  return [...new Set([...Object.keys(a), ...Object.keys(b)])].filter((name) => a[name] !== b[name]).length;
}

/** Why values by axis are not one of each axis, and of no other. */
export function namesProblem(
  decision: string,
  of: Readonly<Record<string, number>>,
  axes: readonly { readonly axis: string }[],
): string | undefined {
  const same = Object.keys(of).length === axes.length && axes.every(({ axis }) => Object.hasOwn(of, axis));
  if (same) return undefined;
  return `${decision} is of ${Object.keys(of).join(", ") || "nothing"}, not of ${axes.map((a) => a.axis).join(", ")}`;
}

/** Axes of an instruction, or loops of a computation that is dealt to threads. */
const MOST_AXES = 8;

/** Values by axis, as a record may hold them: names of the notation, and no more than there may be. */
export function byAxis<T>(value: z.ZodType<T>): z.ZodType<Readonly<Record<string, T>>> {
  return named(identifier, value, MOST_AXES);
}
