/**
 * @file Tables that fit a terminal. A pipe or a file gets every column, and each row on one line.
 *
 *     print(fitted([["workload", "now"], ["conv2d c 64 h 56 w 56 k 64", "61.25 us"]]))     on 23 columns:
 *
 *     workload       now
 *     conv2d c 64 h  61.25 us
 *     56 w 56 k 64
 */

import { type Optional, present } from "../abstraction/collections.ts";
import { type Rows, table, tableWithin, WIDTH } from "../report/text.ts";
import { columnsOf, print, say } from "./output.ts";

/** Columns of the terminal on stdout; undefined for a pipe, a file, and a terminal that reports none. */
function columnsHere(): number | undefined {
  return process.stdout.isTTY ? columnsOf(process.stdout) : undefined;
}

/** The longest line that fits. @param inset spaces that will stand before it */
function roomOn(inset = 0): number {
  return (columnsHere() ?? Number.POSITIVE_INFINITY) - inset;
}

/** A table, with its cells broken over lines where the terminal is too narrow. @param inset spaces that will stand before each line */
export function fitted(rows: readonly Optional<Rows[number]>[], inset = 0): string {
  return tableWithin(present(rows), roomOn(inset));
}

/**
 * A table whose last column holds sentences. They are wrapped at {@link WIDTH} columns in a pipe or a file as well; on a narrower terminal every
 * column gives way. @param inset spaces that will stand before each line
 */
export function worded(rows: Rows, inset = 0): string {
  const room = sentenceRoom(inset);
  return room < WIDTH - inset ? tableWithin(rows, room) : table(rows, room);
}

/** The longest line of a sentence: {@link WIDTH} columns, or those of a narrower terminal. @param inset spaces that will stand before it */
export function sentenceRoom(inset = 0): number {
  return Math.min(roomOn(), WIDTH) - inset;
}

/** A sentence, broken where the terminal is too narrow. A command to paste should not be. */
export function wrapped(sentence: string): string {
  return fitted([[sentence]]);
}

/**
 * Prints a table without the columns for which the terminal has no room, and names these. Cells are broken where that is not enough.
 * @param spared titles of columns that may be left out, in this order
 */
export function printFitted(rows: Rows, spared: readonly string[]): void {
  const left = leftOut(rows, spared, roomOn());
  print(fitted(without(rows, left)));
  sayLeftOut(left);
}

/** The same table as a text to print. The columns that are left out are named at once. @param inset spaces that will stand before each line */
export function fittedSparing(rows: Rows, spared: readonly string[], inset = 0): string {
  const left = leftOut(rows, spared, roomOn(inset));
  sayLeftOut(left);
  return fitted(without(rows, left), inset);
}

function sayLeftOut(left: readonly string[]): void {
  if (left.length > 0)
    say(`automap: no room on ${columnsHere()} columns for ${left.join(", ")}; --json has everything`);
}

function leftOut(rows: Rows, spared: readonly string[], columns: number): string[] {
  const [head = []] = rows;
  const left: string[] = [];
  for (const title of spared) {
    const lines = table(without(rows, left)).split("\n");
    if (lines.every((line) => line.length <= columns)) break;
    if (head.includes(title)) left.push(title);
  }
  return left;
}

/** The rows without the columns of these titles. */
function without(rows: Rows, titles: readonly string[]): string[][] {
  const [head = []] = rows;
  return rows.map((row) => row.filter((_, column) => !titles.includes(head[column] ?? "")));
}
