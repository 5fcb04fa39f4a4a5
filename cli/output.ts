/**
 * @file Shared by all commands: output streams, and the text and exit codes of errors.
 *
 * stdout is data, stderr is progress and errors. Colour only on a terminal and without NO_COLOR.
 */

import { randomBytes } from "node:crypto";
import { CommanderError } from "commander";
import { z } from "zod";
import { MachineFault, messageOf, NotFoundError, UsageError } from "../abstraction/error.ts";
import { EXIT, type ExitCode } from "../abstraction/exit-codes.ts";
import { visible } from "../abstraction/text.ts";
import { indent, MARKED, table, WIDTH } from "../report/text.ts";

export { EXIT, type ExitCode };

/** Version of every `--json` document. */
const SCHEMA_VERSION = 1;

export function print(text: string): void {
  aboveStatus(() => process.stdout.write(`${painted(text)}\n`));
}

/** The type a schema describes, with all parts readonly. */
export type Told<T> = T extends object ? { readonly [K in keyof T]: Told<T[K]> } : T;
/** The same without the fields that every document begins with. */
export type PartsOf<S extends z.ZodType> = Distributed<Told<z.input<S>>>;
type Distributed<T> = T extends unknown ? Omit<T, "schemaVersion"> : never;

/** Prints a document of `--json`. @param _schema what `--json-schema` tells of it: the compiler holds the document against it */
export function printJson<S extends z.ZodType>(_schema: S, document: PartsOf<S>): void {
  print(JSON.stringify(rounded({ schemaVersion: SCHEMA_VERSION, ...document }), undefined, 2));
}

/** Significant digits of a figure that is computed of others; times are good to four at best. */
const DIGITS = 6;

/** A document without the noise of binary fractions: 100, not 99.99999999999999. Samples stay as they were measured. */
function rounded(value: unknown, name = ""): unknown {
  if (typeof value === "number") return Number.isInteger(value) ? value : Number(value.toPrecision(DIGITS));
  if (typeof value !== "object" || value === null || name === "samples") return value;
  if (Array.isArray(value)) return value.map((each) => rounded(each));
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, rounded(each, key)]));
}

/** A `--json` document, as `--json-schema` prints its schema. */
export function documentOf<T extends z.ZodRawShape>(parts: T) {
  return z.strictObject({ schemaVersion: z.literal(SCHEMA_VERSION), ...parts });
}

// What parts of documents and options hold.
export const text = z.string();
export const number = z.number();
export const integer = z.int();
export const texts = z.array(text);
export const textsByName = z.record(text, texts);
export const counts = z.record(text, integer);

/** A part whose form is documented elsewhere: any object in the printed schema, exactly this type for the compiler. */
export function partOf<T extends object>(description: string): z.ZodType<T, T> {
  const open: z.ZodType = z.looseObject({}).meta({ description });
  return open as z.ZodType<T, T>; // it lets every object through
}

/** Progress and remarks, never data. */
export function say(text: string): void {
  aboveStatus(() => process.stderr.write(`${painted(text)}\n`));
}

/** Width of a terminal; undefined when it reports none. A terminal without a size reports 0 columns. */
export const columnsOf = ({ columns }: NodeJS.WriteStream): number | undefined => (columns > 0 ? columns : undefined);

const ERASED = "\r\u001b[2K";
let status = "";

/**
 * Shows a line at the bottom of the terminal instead of the previous one; an empty text removes it. Shows nothing when stderr is not a
 * terminal.
 */
export function showStatus(text: string): void {
  if (process.stderr.isTTY !== true) return;
  // A line that wraps could not be overwritten.
  status = visible(text).slice(0, (columnsOf(process.stderr) ?? WIDTH) - 1);
  process.stderr.write(ERASED + status);
}

/** Both streams may end on one terminal: printed text replaces the status line, which is then shown again below it. */
function aboveStatus(write: () => void): void {
  if (status !== "") process.stderr.write(ERASED);
  write();
  if (status !== "") process.stderr.write(status);
}

type Style = "bold" | "dim" | "green" | "red";
const CODES: Readonly<Record<Style, readonly [number, number]>> = {
  bold: [1, 22],
  dim: [2, 22],
  green: [32, 39],
  red: [31, 39],
};

/** Drawn at random by each process, so that no external text can contain one of our marks. */
const MARK = randomBytes(8).toString("hex");

/** Coloured when stdout is a terminal. A mark stands for the colour until the text is printed. */
export function style(kind: Style, text: string): string {
  const wanted = process.stdout.isTTY === true && (process.env["NO_COLOR"] ?? "") === "";
  const [on, off] = CODES[kind];
  const mark = (code: number): string => `${MARKED[0]}${MARK}${code}${MARKED[1]}`;
  return wanted ? mark(on) + text + mark(off) : text;
}

/** The only way to write to the terminal: marks become colours, and all other control characters are escaped. */
function painted(text: string): string {
  const marks = new RegExp(`${MARKED[0]}${MARK}(\\d+)${MARKED[1]}`, "gu");
  // Splitting by a pattern with a group gives texts at even indices and codes between them.
  return text
    .split(marks)
    .map((part, i) => (i % 2 === 0 ? visible(part) : `\u001b[${part}m`))
    .join("");
}

/** Prints an error and returns its exit code. A usage error never shows a stack trace. */
export function reportError(error: unknown): ExitCode {
  if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
  if (error instanceof UsageError) {
    // Long lists are wrapped. Lines that are underlined or are commands to paste are not.
    const lines = error.explain().split("\n");
    say(
      `automap: ${lines.map((l) => (l.startsWith("  known: ") ? indent(table([[l.trim()]], Math.min(WIDTH, columnsOf(process.stderr) ?? WIDTH) - 2)) : l)).join("\n")}`,
    );
    return error instanceof NotFoundError ? EXIT.nothingFound : EXIT.usage;
  }
  const message = messageOf(error);
  say(`automap: ${message}`);
  if ((process.env["AUTOMAP_DEBUG"] ?? "") !== "" && error instanceof Error) say(error.stack ?? "");
  return error instanceof MachineFault ? EXIT.environment : EXIT.failed;
}
