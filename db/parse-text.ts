/**
 * @file Parses the texts and numbers a record may contain: names, words, hashes, lines and logs.
 *
 *     identifier.parse("p_q")        "p_q"
 *     identifier.parse("k*\/")       refused: is no name of the notation
 *
 * Records travel between people. Their texts end up in generated sources, terminals, tables and file names, so a text that any of these could
 * interpret as more than text is refused on import.
 */

import { z } from "zod";
import { canonicalJson } from "../abstraction/candidate.ts";
import { attempt } from "../abstraction/error.ts";
import { type PrintStyle, printExpr } from "../abstraction/expression.ts";
import { parseExpr } from "../abstraction/parse.ts";
import { TAKEN } from "../abstraction/schema.ts";
import { isFreeName, isVisible } from "../abstraction/text.ts";

/** Most characters of a line, as a limit on memory. */
const LINE = 1000;
const NOTATION = 16_000;
const LOG = 20_000;
/** Most characters of a column that holds JSON. */
const JSON_TEXT = 2 ** 20;

export { word } from "../abstraction/schema.ts";

/** The name of a workload. */
export const title = z
  .string()
  .max(100)
  .regex(/^[A-Za-z0-9_][A-Za-z0-9_ .:+-]*$/, { error: "is no name of letters, digits, blanks and _ . : + -" })
  .refine(isFreeName, TAKEN);

/** An id made by {@link idOf}. */
export const hash = z.string().regex(/^[0-9a-f]{32}$/, { error: "is no hash of 32 hexadecimal digits" });

/** One line that a machine reports: a model, a version, a path, a flag. */
export const line = z.string().max(LINE).refine(isVisible, { error: "holds a character that cannot be seen" });

/** Text in the notation: equations and keys of computations. Its reader parses it. */
export const notation = z
  .string()
  .max(NOTATION)
  .regex(/^[\w .,;:+\-*/%()[\]<>=!@^]*$/, { error: "holds characters that the notation has not" });

/** A printed expression: what an operand stands for, where an element is stored. */
export const expression = (style: PrintStyle) =>
  notation.refine((text) => attempt(() => printExpr(parseExpr(text), style)) === text, {
    error: "is no expression of the notation",
  });

/** Output lines of a compiler or a runner. */
export const log = z
  .string()
  .max(LOG)
  .refine((text) => isVisible(text.replaceAll(/[\n\t]/g, "")), { error: "holds a character that cannot be seen" });

/** A log ready to be recorded: invisible characters are escaped, and long text is cut. */
export function shortened(text: string): string {
  return text.length > LOG ? `${text.slice(0, LOG - 40)}\n... ${text.length - LOG + 40} more characters` : text;
}

export const extent = z.int().positive().max(Number.MAX_SAFE_INTEGER);
/** Milliseconds since 1970, up to the end of the year 9999. */
export const time = z.int().nonnegative().max(253_402_300_799_999);
/** Seconds of one call, at most a month. */
export const seconds = z.number().positive().max(2_678_400);

/**
 * A column of canonical JSON text, which holds exactly what was parsed. Duplicate keys, which SQLite and JavaScript read differently, are not
 * canonical.
 */
export function json<T>(schema: z.ZodType<T>) {
  return z
    .string()
    .max(JSON_TEXT)
    .transform((text, context): T => {
      const refuse = (message: string, path: PropertyKey[] = []): never => {
        context.addIssue({ code: "custom", message, path });
        return z.NEVER;
      };
      let data: unknown;
      try {
        data = JSON.parse(text);
      } catch {
        return refuse("is not JSON");
      }
      const result = schema.safeParse(data);
      if (!result.success) {
        const [issue] = result.error.issues;
        return refuse(issue?.message ?? "is not what it should be", [...(issue?.path ?? [])]);
      }
      if (canonicalJson(result.data) !== text) return refuse("holds more than its fields, or is not canonical JSON");
      return result.data;
    });
}

/** Limits on the depth and size of free data: a calibration has some thousand figures, a run names some hundred instructions. */
const DEPTH = 8;
const ENTRIES = 20_000;
const OPTIONS = 1000;
const KEY = /^[A-Za-z0-9_][A-Za-z0-9_ .:+-]{0,99}$/;

/** Data of limited size whose shape only its reader knows: figures, lines, lists and named entries. */
export const plainData: z.ZodType<unknown> = z.unknown().superRefine(plain(ENTRIES));

/** The same for an object: the options of a run. */
export const plainEntries = z.record(z.string(), z.unknown()).superRefine(plain(OPTIONS));

function plain(most: number): (value: unknown, context: z.RefinementCtx) => void {
  return (value, context) => {
    const because = plainProblem(value, most);
    if (because !== undefined) context.addIssue({ code: "custom", message: because });
  };
}

function plainProblem(value: unknown, most: number): string | undefined {
  let entries = 0;
  const problem = (part: unknown, depth: number): string | undefined => {
    if (++entries > most) return `holds more than ${most} entries`;
    if (part === null || typeof part === "boolean") return undefined;
    if (typeof part === "number") return Number.isFinite(part) ? undefined : "holds a number that is not finite";
    if (typeof part === "string") return line.safeParse(part).error?.issues[0]?.message;
    if (typeof part !== "object") return `holds a ${typeof part}`;
    if (depth === DEPTH) return `nests deeper than ${DEPTH} levels`;
    for (const [key, inner] of Object.entries(part)) {
      if (!Array.isArray(part) && (!KEY.test(key) || key in {})) return "holds an entry under what is no name";
      const found = problem(inner, depth + 1);
      if (found !== undefined) return found;
    }
    return undefined;
  };
  return problem(value, 0);
}
