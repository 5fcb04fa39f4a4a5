/**
 * @file What data from elsewhere may hold under the names of the notation.
 *
 *     identifier.parse("p_q")        "p_q"
 *     identifier.parse("k*\/")       refused: is no name of the notation
 */

import { z } from "zod";
import { isFreeName, LONGEST_NAME, NAME } from "./text.ts";

export const TAKEN = { error: "cannot be used as a name" };

/** {@link NAME} */
export const identifier = z
  .string()
  .max(LONGEST_NAME)
  .regex(NAME, { error: "is no name of the notation" })
  .refine(isFreeName, TAKEN);

/** Entries under names, no more than `most`. */
export function named<K extends z.ZodType<string, string>, V extends z.ZodType>(name: K, value: V, most = 64) {
  return z
    .record(name, value)
    .refine((found) => Object.keys(found).length <= most, { error: `has more than ${most} entries` });
}
