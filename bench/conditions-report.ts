/** @file The page of bench/conditions.ts: by form and type how often the goal is met, how often it is beyond the bound, and what lies between. */

import { cpus } from "node:os";
import { nativeTarget } from "../targets/native.ts";
import type { Bound } from "./conditions-bound.ts";

export interface Row {
  readonly form: string;
  readonly text: string;
  /** Of the points, where the condition holds. */
  readonly share: number;
  /** A call, with the condition and without. */
  readonly seconds: number;
  readonly secondsWithout: number;
  readonly ratio: number;
  readonly bound: Bound;
  readonly boundWithout: Bound;
}

export const GOAL = 0.8;
/** A kernel may seem faster than the bound by as much as the clock of the machine moves meanwhile. */
const CLOCK_MOVES = 0.03;
/** Rows told one by one. */
const TOLD = 12;

/** The most that the ratio can be, given the time without the condition. */
export const mostOf = ({ share, secondsWithout, bound }: Row): number => (share * secondsWithout) / bound.seconds;
/** What the goal asks for is beyond the bound. */
const isBeyond = (row: Row): boolean => row.ratio < GOAL && mostOf(row) < GOAL;

/** How the equation of a type begins its factors. */
const SUMS: Readonly<Record<string, string>> = { bf16: "+= f32(", u8s8: "+= s32(", f32: "+= x" };
const typeOf = ({ text }: Row): string | undefined => Object.keys(SUMS).find((type) => text.includes(SUMS[type] ?? ""));
const geomean = (xs: readonly number[]): number => Math.exp(xs.reduce((sum, x) => sum + Math.log(x), 0) / xs.length);
const us = (seconds: number): string => (1e6 * seconds).toFixed(1);

/** @param commands how the rows came about  @returns the page, and the rows that refute their bound */
export function pageOf(
  rows: readonly Row[],
  failed: readonly string[],
  commands: readonly string[],
): { readonly page: string; readonly beaten: readonly Row[] } {
  const beaten = rows.filter(
    (r) =>
      r.seconds < (1 - CLOCK_MOVES) * r.bound.seconds || r.secondsWithout < (1 - CLOCK_MOVES) * r.boundWithout.seconds,
  );
  const worst = rows
    .filter((r) => r.ratio < GOAL && !isBeyond(r))
    .sort((x, y) => x.ratio - y.ratio)
    .slice(0, TOLD);
  const names = ["all", ...new Set(rows.map((r) => r.form)), ...Object.keys(SUMS)];
  const page = [
    "# What a condition costs",
    "",
    `${cpus()[0]?.model ?? "a CPU"} (${nativeTarget().isa.join(" ")}), one thread, ${rows.length} computations. The rate of useful multiplies over the rate without the condition.`,
    "",
    ...commands.slice(0, 2).map((c) => `    ${c}`),
    ...(commands.length > 2 ? [`    ... (${commands.length} in all)`] : []),
    "",
    `| form or type | computations | geomean | least | median | at least ${GOAL} | beyond the bound | between | of the bounds | of the bound | of the bound, without the condition |`,
    "|---|---|---|---|---|---|---|---|---|---|---|",
    ...names.flatMap((name) => {
      const own = rows.filter((r) => name === "all" || r.form === name || typeOf(r) === name);
      return own.length === 0 ? [] : [line(name, own)];
    }),
    "",
    "The bound of a time is the largest of three. Memory: inputs read once, as far as points read them, and the result written once, nothing else,",
    "measured by bench/peers/touch.cpp. Issues: the instruction's tiles in which the condition holds somewhere, times the calibrated cycles between",
    "two issues. Tiles, of AMX: the same bytes and products at once, with the loads and stores of tiles that no kernel does without, measured by",
    "bench/peers/tiles.cpp. The least over all mappings onto all instructions counts. Packing and masks are left out, and that operands come from",
    "beyond the nearest cache more than once.",
    `Beyond the bound are computations whose ratio would stay below ${GOAL} in that time: (share of the points) * (time without) / bound.`,
    '"Of the bounds" is the geometric mean of the ratio of a kernel and one without the condition that both take no longer than their bound;',
    "the last two columns are bound / time.",
    "",
    "The least that are not beyond the bound:",
    "",
    ...worst.map(told),
    "",
    ...(beaten.length > 0 ? ["Faster than their bound, which is then none:", "", ...beaten.map(told), ""] : []),
    ...(failed.length > 0 ? ["Not tuned:", "", ...failed.map((f) => `* \`${f}\``), ""] : []),
  ].join("\n");
  return { page, beaten };
}

function line(name: string, own: readonly Row[]): string {
  const sorted = own.map((r) => r.ratio).sort((x, y) => x - y);
  const at = (q: number): string => (sorted[Math.floor(q * (sorted.length - 1))] ?? Number.NaN).toFixed(2);
  const met = own.filter((r) => r.ratio >= GOAL).length;
  const beyond = own.filter(isBeyond).length;
  const counts = `${met} | ${beyond} | ${own.length - met - beyond}`;
  const bounds = geomean(own.map((r) => (r.share * r.boundWithout.seconds) / r.bound.seconds)).toFixed(2);
  const reached = geomean(own.map((r) => r.bound.seconds / r.seconds)).toFixed(2);
  const without = geomean(own.map((r) => r.boundWithout.seconds / r.secondsWithout)).toFixed(2);
  return `| ${name} | ${own.length} | ${geomean(sorted).toFixed(2)} | ${at(0)} | ${at(0.5)} | ${counts} | ${bounds} | ${reached} | ${without} |`;
}

const parts = ({ memory, issues, tiles, instruction }: Bound): string =>
  `memory ${us(memory)}, ${instruction} ${us(issues)}${tiles === undefined ? "" : `, tiles ${us(tiles)}`}`;

const told = (r: Row): string =>
  `* ${r.ratio.toFixed(2)} of at most ${mostOf(r).toFixed(2)}   \`${r.text}\`, ${(100 * r.share).toFixed(0)} % of the points, ${us(r.seconds)} us (${parts(r.bound)}) beside ${us(r.secondsWithout)} (${parts(r.boundWithout)})`;
