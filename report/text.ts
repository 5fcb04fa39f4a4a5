/**
 * @file Lays out text in columns, for terminals and for tests.
 *
 *     table([["a", "=", "in"], ["bias", "=", "w"]])   ->   a     =  in
 *                                                          bias  =  w
 */

import type { DeviceClock } from "../abstraction/trial.ts";

/** Width at which sentences are wrapped: enough for a table, and narrow enough for a README. */
export const WIDTH = 100;

/**
 * Columns as wide as their widest cell, two spaces apart.
 * @param wrap if given, the last column is wrapped so that no line is longer
 */
export function table(rows: readonly (readonly string[])[], wrap?: number): string {
  const columns = Math.max(0, ...rows.map((r) => r.length));
  const widths = Array.from({ length: columns }, (_, j) => Math.max(...rows.map((r) => shown(r[j] ?? ""))));
  const before = widths.slice(0, -1).reduce((sum, w) => sum + w + 2, 0);
  return rows
    .flatMap((r) => {
      const cells = Array.from({ length: columns - 1 }, (_, j) => pad(r[j] ?? "", widths[j] ?? 0));
      const last = r[columns - 1] ?? "";
      const parts = wrap === undefined ? [last] : breakWords(last, wrap - before);
      return parts.map((part, i) => (i === 0 ? [...cells, part].join("  ") : " ".repeat(before) + part).trimEnd());
    })
    .join("\n");
}

/** Breaks a sentence at `width` characters, never within parentheses. A longer word gets its own line. */
function breakWords(text: string, width: number): string[] {
  const pieces = (text.match(/\([^()]*\)\S*|\S+/g) ?? []).flatMap((p) => (shown(p) > width ? p.split(" ") : [p]));
  const lines: string[] = [];
  for (const word of pieces) {
    const line = lines.at(-1);
    if (line !== undefined && shown(line) + 1 + shown(word) <= width) lines[lines.length - 1] = `${line} ${word}`;
    else lines.push(word);
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

function pad(text: string, width: number): string {
  return text + " ".repeat(Math.max(0, width - shown(text)));
}

export function indent(text: string, by = "  "): string {
  return text
    .split("\n")
    .map((line) => (line === "" ? line : by + line))
    .join("\n");
}

/** `6.3 %`; a share that is not 0 is never shown as 0. */
export function percent(share: number): string {
  if (share > 0 && share < 0.0005) return "<0.1 %";
  return `${(100 * share).toFixed(1)} %`;
}

/** `1 kernel`, `3 kernels`. */
export function counted(count: number, noun: string, plural = `${noun}s`): string {
  return `${count} ${count === 1 ? noun : plural}`;
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
  const [from, to] = [printTime(low), printTime(high)];
  const unit = to.slice(to.indexOf(" "));
  return `${from.endsWith(unit) ? from.slice(0, -unit.length) : from} to ${to}`;
}

/** `1 trial`, `3 trials`. */
export function count(n: number, what: string): string {
  return `${n} ${what}${n === 1 ? "" : "s"}`;
}

/** `2026-11-21 12:00`, in UTC. */
export function instant(at: number): string {
  return new Date(at).toISOString().slice(0, 16).replace("T", " ");
}

/** `1755 MHz while it was timed, throttled: power-limit` */
export function printClock({ hertz, throttled }: DeviceClock): string {
  const why = throttled.length === 0 ? "not throttled" : `throttled: ${throttled.join(", ")}`;
  return `${(hertz / 1e6).toFixed(0)} MHz while it was timed, ${why}`;
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
