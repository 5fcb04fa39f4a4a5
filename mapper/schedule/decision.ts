/**
 * @file A decision: one thing a mapping leaves open, with all that is known about it in one place. A schedule is one value of each.
 *
 *     stage 3          values 1 to 6; "3 stages of a ring in shared memory: 2 steps are on their way while 1 is multiplied"
 *
 * Search, lowering, the database's codec, explanations and docs/schedule.md read these files and have no list of their own.
 */

import type { z } from "zod";
import type { GridContext } from "./grid-context.ts";

export interface Decision<V> {
  /** Key in the schedule. */
  readonly name: string;
  /** One sentence for docs/schedule.md and `explain`: what it decides, and what it trades. */
  readonly summary: string;
  /** What a record may hold. */
  readonly schema: z.ZodType<V>;
  /** The values worth trying for a mapping, smallest or plainest first. Each may still clash with another decision's value. */
  readonly values: (context: GridContext) => readonly V[];
  /** `m 128, n 256, k 64`: as schedules are printed. */
  readonly print: (value: V) => string;
}
