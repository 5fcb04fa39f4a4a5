/**
 * @file A decision: one thing a mapping leaves open, with all that is known about it in one place. A schedule is one value of each.
 *
 *     stage 3          values 1 to 6; "3 stages of a ring in shared memory: 2 steps are on their way while 1 is multiplied"
 *
 * Search, lowering, the database's codec, explanations and docs/schedule.md read these files and have no list of their own.
 */

import { z } from "zod";
import { isFreeName, LONGEST_NAME, NAME } from "../../abstraction/text.ts";
import type { GridContext } from "./grid-context.ts";

export interface Decision<V> {
  /** Key in the schedule. */
  readonly name: string;
  /** One sentence for docs/schedule.md and `explain`: what it decides, and what it trades. */
  readonly summary: string;
  /** What a record may hold: bounded numbers, names of the notation. A decision that came later is optional in the schedule, and in its records. */
  readonly schema: z.ZodType<V>;
  /** The values worth trying for a mapping, smallest or plainest first. Each may still clash with another decision's value. */
  readonly values: (context: GridContext) => readonly V[];
  /** `m 128, n 256, k 64`: as schedules are printed. */
  readonly print: (value: V) => string;
}

/** Of an instruction. */
const MOST_AXES = 8;

/** Values by axis, as a record may hold them: names of the notation, and no more than an instruction has. */
export function byAxis<T>(value: z.ZodType<T>): z.ZodType<Readonly<Record<string, T>>> {
  const name = z.string().max(LONGEST_NAME).regex(NAME).refine(isFreeName);
  return z
    .record(name, value)
    .refine((found) => Object.keys(found).length <= MOST_AXES, { error: `has more than ${MOST_AXES} entries` });
}
