/**
 * @file What commands share at the edge: exit codes, where output goes, and how an error is said.
 *
 * stdout is data, stderr is progress and errors. Colour only on a terminal and without NO_COLOR.
 */

import { CommanderError } from "commander";
import { EnvironmentError, UsageError } from "../abstraction/error.ts";
import { DatabaseError } from "../db/index.ts";
import { indent, table, WIDTH } from "../report/text.ts";

/** What the shell learns. */
export const EXIT = {
  ok: 0,
  failed: 1,
  usage: 2,
  nothingMaps: 3,
  verification: 4,
  regression: 5,
  environment: 6,
  interrupted: 130,
} as const;
export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** Version of every `--json` document. */
export const SCHEMA_VERSION = 1;

/** What the shell reads as one word. */
export function shellWord(word: string): string {
  return /^[\w.,:=+/-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

export function print(text: string): void {
  process.stdout.write(`${text}\n`);
}

export function printJson(document: Readonly<Record<string, unknown>>): void {
  print(JSON.stringify({ schemaVersion: SCHEMA_VERSION, ...document }, undefined, 2));
}

/** Progress and remarks, never data. */
export function say(text: string): void {
  process.stderr.write(`${text}\n`);
}

type Style = "bold" | "dim" | "green" | "red";
const CODES: Readonly<Record<Style, readonly [number, number]>> = {
  bold: [1, 22],
  dim: [2, 22],
  green: [32, 39],
  red: [31, 39],
};

/** Coloured when stdout is a terminal. */
export function style(kind: Style, text: string): string {
  const wanted = process.stdout.isTTY === true && (process.env["NO_COLOR"] ?? "") === "";
  const [on, off] = CODES[kind];
  return wanted ? `\u001b[${on}m${text}\u001b[${off}m` : text;
}

/** Says an error and gives the exit code that belongs to it. A mistake of the caller never shows a stack trace. */
export function reportError(error: unknown): ExitCode {
  if (error instanceof CommanderError) return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
  if (error instanceof UsageError) {
    // A long list is broken; a line with marks under it or a command to paste is not.
    const lines = error.explain().split("\n");
    say(
      `automap: ${lines.map((l) => (l.startsWith("  known: ") ? indent(table([[l.trim()]], WIDTH - 2)) : l)).join("\n")}`,
    );
    return EXIT.usage;
  }
  const message = error instanceof Error ? error.message : String(error);
  say(`automap: ${message}`);
  if ((process.env["AUTOMAP_DEBUG"] ?? "") !== "" && error instanceof Error) say(error.stack ?? "");
  return error instanceof DatabaseError || error instanceof EnvironmentError ? EXIT.environment : EXIT.failed;
}
