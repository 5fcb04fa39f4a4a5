/**
 * @file Schemas of data from outside: names, words, and the options of public functions.
 *
 *     identifier.parse("p_q")        "p_q"
 *     identifier.parse("k*\/")       refused: is no name of the notation
 *
 * And what options may hold: `checkOptions(schema, { trails: 3 }, "tune")` is refused with `did you mean "trials"?`.
 */

import { z } from "zod";
import { suggestion, UsageError } from "./error.ts";
import { isFreeName, LONGEST_NAME, NAME } from "./text.ts";

export const TAKEN = { error: "cannot be used as a name" };

/** A name of the notation, {@link NAME}. */
export const identifier = z
  .string()
  .max(LONGEST_NAME)
  .regex(NAME, { error: "is no name of the notation" })
  .refine(isFreeName, TAKEN);

/** A word from a table: an instruction, a feature, a level, a strategy. */
export const word = z
  .string()
  .max(100)
  .regex(/^[A-Za-z0-9][A-Za-z0-9._+-]*$/, { error: "is no word of letters, digits and . _ + -" })
  .refine(isFreeName, TAKEN);

/** A schema for at most `most` named entries. */
export function named<K extends z.ZodType<string, string>, V extends z.ZodType>(name: K, value: V, most = 64) {
  return z
    .record(name, value)
    .refine((found) => Object.keys(found).length <= most, { error: `has more than ${most} entries` });
}

/**
 * Checks a caller's value against a schema, nested fields included.
 * @param subject function called, or what the value is: `tune`
 * @throws UsageError naming the field that is unknown, missing or wrong, and the nearest known one
 */
export function checkOptions(schema: z.ZodType, given: unknown, subject: string, kind = "option"): void {
  const read = schema.safeParse(given);
  if (read.success) return;
  const [issue] = read.error.issues;
  const path = issue?.path ?? [];
  const place = [subject, ...(path.length > 0 ? [path.join(".")] : [])].join(": ");
  if (issue?.code === "unrecognized_keys") {
    const [unknown = ""] = issue.keys;
    const hint = suggestion(unknown, fieldsAt(schema, path));
    throw new UsageError(`${place} has no ${kind} "${unknown}"`, hint);
  }
  throw new UsageError(`${place}: ${(issue?.message ?? "is wrong").replace(/^Invalid input: /, "")}`);
}

/** Names of the fields that a schema has at a path. */
function fieldsAt(schema: unknown, path: readonly PropertyKey[]): string[] {
  if (schema instanceof z.ZodOptional || schema instanceof z.ZodNullable) return fieldsAt(schema.unwrap(), path);
  const [step, ...rest] = path;
  if (schema instanceof z.ZodObject)
    return step === undefined ? Object.keys(schema.shape) : fieldsAt(schema.shape[String(step)], rest);
  if (schema instanceof z.ZodRecord) return fieldsAt(schema.valueType, rest);
  if (schema instanceof z.ZodArray) return fieldsAt(schema.element, rest);
  return [];
}
