/**
 * @file Error messages. A usage error says what is wrong, where, and the nearest correct value; an environment error says what the machine
 * lacks, why that matters, and what to do.
 *
 *     equation: unknown function "sqaure"
 *       y[i] = sqaure(x[i])
 *              ^^^^^^
 *       did you mean "square"?
 *
 * Commands that are offered for pasting into a shell. Every word of them is quoted, since names of files, sizes and tensors may hold anything.
 *
 *     automapCommand("db", "show", "4f0c2e", ["--db", "my records.db"])     automap db show 4f0c2e --db 'my records.db'
 */

import { shellWord } from "./text.ts";

/** A half-open range of characters in a piece of notation. */
export interface Span {
  readonly start: number;
  readonly end: number;
}

/** What a usage error says besides its message; undefined where there is nothing to say. */
export interface UsageDetails {
  /** The text that is wrong. */
  readonly source?: string | undefined;
  /** The place in it. */
  readonly span?: Span | undefined;
  /** What would be right. */
  readonly hint?: string | undefined;
}

/** A mistake of the caller: never a bug of automap, never shown with a stack trace. */
export class UsageError extends Error {
  /** The text that is wrong, where there is one. */
  readonly source: string | undefined;
  /** The place in it. */
  readonly span: Span | undefined;
  /** What would be right. */
  readonly hint: string | undefined;

  /** @param details the hint, or the text that is wrong with its place and hint */
  constructor(message: string, details: string | UsageDetails = {}) {
    super(message);
    const { source, span, hint } = typeof details === "string" ? { hint: details } : details;
    this.name = "UsageError";
    this.source = source;
    this.span = span;
    this.hint = hint;
  }

  /** The message, the source line with the place marked, and the hint. */
  explain(): string {
    const lines = [this.message];
    if (this.source !== undefined) {
      // Of a text with several lines, show the line that holds the place.
      const begin = this.span ? this.source.lastIndexOf("\n", this.span.start - 1) + 1 : 0;
      const [line = ""] = this.source.slice(begin).split("\n", 1);
      lines.push(`  ${line}`);
      if (this.span) {
        const start = this.span.start - begin;
        const width = Math.max(1, Math.min(this.span.end - begin, line.length) - start);
        lines.push(`  ${line.slice(0, start).replace(/[^\t]/g, " ")}${"^".repeat(width)}`);
      }
    }
    if (this.hint !== undefined) lines.push(`  ${this.hint}`);
    return lines.join("\n");
  }
}

/** What is asked for is not there, although nothing is wrong with how it is asked: exit code 3. */
export class NotFoundError extends UsageError {
  /** @param details as of a usage error */
  constructor(message: string, details: string | UsageDetails = {}) {
    super(message, details);
    this.name = "NotFoundError";
  }
}

/** What cannot be: a bug of automap's. */
export function internal(what: string): never {
  throw new Error(`internal: ${what}`);
}

/** Something this machine lacks: not a bug, and not a mistake in the computation. */
export interface EnvironmentProblem {
  /** Tells it apart from a result. */
  readonly status: "environment";
  /** What is missing. */
  readonly what: string;
  /** What it is needed for. */
  readonly why: string;
  /** What to install or to do. */
  readonly remedy: string;
}

/** A fault of the machine or of a file on it, not of the arguments: exit code 6. */
export abstract class MachineFault extends Error {}

/** Something the machine lacks, with what, why and the remedy. */
export class EnvironmentError extends MachineFault {
  /** The parts of the message. */
  readonly problem: EnvironmentProblem;

  constructor(problem: Omit<EnvironmentProblem, "status">, cause?: unknown) {
    super(`${problem.what}\n  ${problem.why}\n  ${problem.remedy}`, cause === undefined ? {} : { cause });
    this.name = "EnvironmentError";
    this.problem = { ...problem, status: "environment" };
  }
}

/** System error codes in a user's words, each with a remedy for a file that was to be written. */
const REASONS: Readonly<Record<string, readonly [reason: string, remedy: string]>> = {
  EACCES: ["permission is denied", "change its permissions or those of its folder, or name another"],
  EDQUOT: ["the disk quota is used up", "free some space, or name a place on another disk"],
  EEXIST: ["it is there already", "name another"],
  EFBIG: ["the limit on the size of a file is reached", "lift the limit (ulimit -f)"],
  EIO: ["the device reports an error", "look at the disk (dmesg), or name a place on another"],
  EISDIR: ["it is a directory", "name a file in it"],
  ELOOP: ["its links lead in a circle", "name another"],
  ENAMETOOLONG: ["the name is too long", "name a shorter one"],
  ENOENT: ["there is no such file or directory", "make its folder first, or name another"],
  ENOSPC: ["the disk is full", "free some space, or name a place on another disk"],
  ENOTDIR: ["a part of the path is no directory", "name another"],
  EPERM: ["the system does not permit it", "name another"],
  EROFS: ["the file system is read-only", "name a place on another disk"],
};

/** What an error says; what else was thrown, as text. */
export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** Why a file operation failed, in a few words. */
export function reasonOf(error: unknown): string {
  return REASONS[codeOf(error)]?.[0] ?? messageOf(error);
}

/** The remedy when the file was to be written. */
export function remedyOf(error: unknown): string {
  return REASONS[codeOf(error)]?.[1] ?? "name another";
}

/** A file that could not be read: it is not there, or it is wrong. */
export function unreadable(message: string, error: unknown, hint?: string): UsageError {
  return isAbsent(error) ? new NotFoundError(message, { hint }) : new UsageError(message, { hint });
}

/** Whether an error of the file system says that there is no such file. */
export const isAbsent = (error: unknown): boolean => ["ENOENT", "ENOTDIR"].includes(codeOf(error));

function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error ? String(error.code) : "";
}

/** The candidate nearest to `word` by edit distance, or undefined when none is near enough to be meant. */
export function nearest(word: string, candidates: Iterable<string>): string | undefined {
  let best: string | undefined;
  // A word of one letter is near to no other letter.
  let bestDistance = Math.min(word.length, Math.max(2, Math.ceil(word.length / 2)));
  for (const candidate of candidates) {
    const distance = editDistance(word.toLowerCase(), candidate.toLowerCase());
    if (distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  }
  return best;
}

/**
 * `did you mean "conv2d"?`, or the list of valid words when none is near.
 * @param before prefix of each word, as the dashes of an option
 */
export function suggestion(word: string, candidates: readonly string[], before = ""): string {
  const near = nearest(word, candidates);
  if (near !== undefined) return `did you mean "${before}${near}"?`;
  const shown = candidates
    .slice(0, 16)
    .map((candidate) => before + candidate)
    .join(", ");
  return candidates.length > 16 ? `known: ${shown}, ... (${candidates.length} in all)` : `known: ${shown}`;
}

/**
 * Refuses a misspelt option, which JavaScript would ignore: a filter under a wrong name would match everything.
 * @param known every valid name; the type requires all of them
 * @throws UsageError with the nearest name
 */
export function checkNames<T extends object>(
  given: T,
  known: Readonly<Record<keyof T, boolean>>,
  subject: string,
): void {
  const unknown = Object.keys(given).find((name) => !Object.hasOwn(known, name));
  if (unknown !== undefined)
    throw new UsageError(`${subject} has no option "${unknown}"`, suggestion(unknown, Object.keys(known)));
}

/** Levenshtein distance with adjacent transpositions counted once (optimal string alignment). */
function editDistance(a: string, b: string): number {
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, j) => j)];
  const cell = (i: number, j: number): number => rows[i]?.[j] ?? 0;
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    rows.push(row);
    for (let j = 1; j <= b.length; j++) {
      const substitute = cell(i - 1, j - 1) + (a[i - 1] === b[j - 1] ? 0 : 1);
      let least = Math.min(substitute, cell(i - 1, j) + 1, cell(i, j - 1) + 1);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        least = Math.min(least, cell(i - 2, j - 2) + 1);
      row.push(least);
    }
  }
  return cell(a.length, b.length);
}

/** The result of `make`; when it throws a UsageError, undefined or what takes its place. */
export function attempt<T>(make: () => T): T | undefined;
export function attempt<T, R>(make: () => T, refused: (error: UsageError) => R): T | R;
export function attempt(make: () => unknown, refused: (error: UsageError) => unknown = () => undefined): unknown {
  try {
    return make();
  } catch (error) {
    if (error instanceof UsageError) return refused(error);
    throw error;
  }
}

/** The machine fault that `work` throws, if it does. */
export function faultOf(work: () => void): MachineFault | undefined {
  try {
    work();
  } catch (error) {
    if (error instanceof MachineFault) return error;
    throw error;
  }
  return undefined;
}

// ---- commands that messages offer ------------------------------------------------------------------------------------------------

declare const QUOTED: unique symbol;

/** A text that a shell reads as the words it was made of. */
export type CommandLine = string & { readonly [QUOTED]: true };

/** A word, or several, such as an option with its value; none where it is undefined. */
export type Words = string | readonly string[] | undefined;

/** The command line of automap with these words. */
export function automapCommand(...words: readonly Words[]): CommandLine {
  return quotedWords("automap", ...words);
}

/** Words of a command line without its program. */
export function quotedWords(...words: readonly Words[]): CommandLine {
  return words
    .flatMap((word) => word ?? [])
    .map(shellWord)
    .join(" ") as CommandLine;
}
