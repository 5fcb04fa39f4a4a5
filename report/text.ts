/**
 * @file Lays out text in columns, for terminals and for tests.
 *
 *     table([["a", "=", "in"], ["bias", "=", "w"]])   ->   a     =  in
 *                                                          bias  =  w
 */

export { percent } from "../abstraction/text.ts";

/** The cells of a table, row by row. */
export type Rows = readonly (readonly string[])[];

/** Width at which sentences are wrapped: enough for a table, and narrow enough for a README. */
export const WIDTH = 100;

/**
 * Columns as wide as their widest cell, two spaces apart.
 * @param wrap if given, the last column is wrapped so that no line is longer
 */
export function table(rows: Rows, wrap?: number): string {
  const widths = widthsOf(rows);
  const last = widths.length - 1;
  const room = wrap === undefined ? undefined : wrap - lengthOf([...widths.slice(0, -1), 0]);
  return rows
    .flatMap((r) =>
      beside(
        widths.map((_, j) => (j === last && room !== undefined ? breakWords(r[j] ?? "", room) : [r[j] ?? ""])),
        widths,
      ),
    )
    .join("\n");
}

/** A column is not made narrower than this: the digits of a short id, or a time. */
const NARROWEST = 12;

/**
 * The same within `width`: columns become narrower, and their cells are broken before words, or within words where that is not enough. A line
 * is longer than `width` only if columns of 12 characters are too wide for it. Cells may also have lines of their own.
 */
export function tableWithin(rows: Rows, width: number): string {
  const widths = narrowed(rows, width);
  return rows
    .flatMap((r) =>
      beside(
        widths.map((w, j) => linesWithin(r[j] ?? "", w)),
        widths,
      ),
    )
    .join("\n");
}

/** Widths of columns that fill `width` at most: in proportion as long as all words stay whole, then the widest give way. */
function narrowed(rows: Rows, width: number): number[] {
  const lines = rows.flatMap((r) => {
    const cells = r.map((cell) => cell.split("\n"));
    return Array.from({ length: tallest(cells) }, (_, i) => cells.map((parts) => parts[i] ?? ""));
  });
  const whole = widthsOf(lines);
  if (lengthOf(whole) <= width) return whole;
  const words = whole.map((_, j) =>
    widestOf(
      lines.flatMap((line) => (line[j] ?? "").split(/\s+/)),
      NARROWEST,
    ),
  );
  const widths = [...whole];
  const wide = (j: number): number => widths[j] ?? 0;
  const kept = (j: number): number => wide(j) / (whole[j] ?? 1);
  const narrow = (least: readonly number[], rank: (j: number) => number): void => {
    while (lengthOf(widths) > width) {
      const free = widths.flatMap((w, j) => (w > (least[j] ?? 0) ? [j] : []));
      const [next] = free.sort((a, b) => rank(b) - rank(a));
      if (next === undefined) return;
      widths[next] = wide(next) - 1;
    }
  };
  narrow(words, kept);
  narrow(
    whole.map(() => NARROWEST),
    wide,
  );
  return widths;
}

function widthsOf(rows: Rows): number[] {
  const columns = rows.reduce((most, r) => Math.max(most, r.length), 0);
  return Array.from({ length: columns }, (_, j) => widestOf(rows.map((r) => r[j] ?? "")));
}

const widestOf = (texts: readonly string[], least = 0): number =>
  texts.reduce((most, text) => Math.max(most, shown(text)), least);

/** The length of a line of such columns. */
const lengthOf = (widths: readonly number[]): number => widths.reduce((sum, w) => sum + w, 2 * (widths.length - 1));

/** The lines of a row. A cell may have several. */
function beside(cells: Rows, widths: readonly number[]): string[] {
  return Array.from({ length: tallest(cells) }, (_, i) =>
    cells
      .map((lines, j) => pad(lines[i] ?? "", widths[j] ?? 0))
      .join("  ")
      .trimEnd(),
  );
}

const tallest = (cells: Rows): number => Math.max(1, ...cells.map(({ length }) => length));

/** The lines of a text. A line longer than `width` is broken before a word, or within a word that is longer itself. */
function linesWithin(text: string, width: number): string[] {
  return text.split("\n").flatMap((line) => {
    if (shown(line) <= width) return [line];
    const lines: string[] = [];
    for (const word of line.match(/\s*\S+/g) ?? []) {
      const last = lines.at(-1);
      if (last !== undefined && shown(last) + shown(word) <= width) lines[lines.length - 1] = last + word;
      else lines.push(...piecesOf(last === undefined ? word : word.trimStart(), width));
    }
    return lines;
  });
}

/** A word in pieces of `width` characters. */
function piecesOf(word: string, width: number): string[] {
  const pieces = [""];
  for (const [character] of word.matchAll(CHARACTERS)) {
    const last = pieces.at(-1) ?? "";
    if (shown(last) + shown(character) <= width) pieces[pieces.length - 1] = last + character;
    else pieces.push(character);
  }
  return pieces;
}

/** Breaks a sentence at `width` characters, never within parentheses. A longer word gets its own line. Within a line the gaps between words stay. */
function breakWords(text: string, width: number): string[] {
  const words =
    text
      .replaceAll(/\s*\n\s*/g, " ")
      .trim()
      .match(/ *(?:\([^()]*\)\S*|\S+)/g) ?? [];
  const pieces = words.flatMap((word) => (shown(word.trimStart()) > width ? (word.match(/ *\S+/g) ?? []) : [word]));
  const lines: string[] = [];
  for (const word of pieces) {
    const line = lines.at(-1);
    if (line !== undefined && shown(line) + shown(word) <= width) lines[lines.length - 1] = line + word;
    else lines.push(word.trimStart());
  }
  return lines.length === 0 ? [""] : lines;
}

/** Delimiters of colour marks: noncharacters, which no valid text contains. */
export const MARKED = ["\ufdd0", "\ufdd1"] as const;

/** Number of visible characters, without colour marks. */
function shown(text: string): number {
  return text.replaceAll(MARKS, "").length;
}
const MARKS = new RegExp(`${MARKED[0]}\\w*${MARKED[1]}`, "gu");
const CHARACTERS = new RegExp(`${MARKS.source}|.`, "gsu");

function pad(text: string, width: number): string {
  return text + " ".repeat(Math.max(0, width - shown(text)));
}

export function indent(text: string): string {
  return text
    .split("\n")
    .map((line) => (line === "" ? line : `  ${line}`))
    .join("\n");
}

/** `1 kernel`, `3 kernels`. */
export function counted(count: number, noun: string, plural = `${noun}s`): string {
  return `${count} ${Math.abs(count) === 1 ? noun : plural}`;
}

/** Four digits and a unit: `61.23 us`. */
export function printTime(seconds: number): string {
  const units = [
    ["s", 1],
    ["ms", 1e-3],
    ["us", 1e-6],
    ["ns", 1e-9],
  ] as const;
  const [unit, scale] = units.find(([, size]) => seconds >= size) ?? ["ns", 1e-9];
  return `${Number((seconds / scale).toPrecision(4))} ${unit}`;
}

/** `61.2 to 63.4 us`: the unit appears once if both share it. */
export function printInterval(low: number, high: number): string {
  const from = printTime(low);
  const to = printTime(high);
  const unit = to.slice(to.indexOf(" "));
  return `${from.endsWith(unit) ? from.slice(0, -unit.length) : from} to ${to}`;
}

/** `2026-11-21 12:00`, in UTC. */
export function instant(at: number): string {
  return new Date(at).toISOString().slice(0, 16).replace("T", " ");
}

/** A rate in units of 10^9 per second, `15.2 G`, `8000 G`; from ten thousand on in units of 10^12. */
export function rateText(perSecond: number): string {
  const giga = perSecond / 1e9;
  if (giga >= 10_000) return `${(giga / 1000).toPrecision(3)} T`;
  return `${threeDigits(giga)} G`;
}

/** At least three digits, without exponents. */
export function threeDigits(x: number): string {
  return x >= 100 ? x.toFixed(0) : x.toPrecision(3);
}
