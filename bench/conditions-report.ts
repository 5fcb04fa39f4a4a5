/** @file The page of bench/conditions.ts: how often each form and type meets the goal, misses it or cannot reach it. */

import { cpus } from "node:os";
import { nativeTarget } from "../targets/native.ts";
import type { Bound } from "./conditions-bound.ts";

export interface Row {
  readonly form: string;
  readonly text: string;
  /** Share of the points where the condition holds. */
  readonly share: number;
  /** Seconds a call, with the condition and without. */
  readonly seconds: number;
  readonly secondsWithout: number;
  readonly ratio: number;
  readonly bound: Bound;
  readonly boundWithout: Bound;
}

export const GOAL = 0.8;
/** A kernel may seem faster than its bound by this share, because the clock drifts between the two measurements. */
const CLOCK_MOVES = 0.03;
/** Rows listed individually. */
const TOLD = 12;

/** The largest possible ratio, given the time without the condition. */
export const mostOf = ({ share, secondsWithout, bound }: Row): number => (share * secondsWithout) / bound.seconds;
/** The ratio if both kernels reach the same share of their bounds. */
const alikeOf = ({ share, bound, boundWithout }: Row): number => (share * boundWithout.seconds) / bound.seconds;

/** Outcomes of the goal; the first that applies counts. */
const OUTCOMES = [
  { name: `at least ${GOAL}`, holds: (row: Row): boolean => row.ratio >= GOAL },
  { name: "beyond the bound", holds: (row: Row): boolean => mostOf(row) < GOAL },
  { name: "beyond it at equal shares", holds: (row: Row): boolean => alikeOf(row) < GOAL },
  { name: "between", holds: (): boolean => true },
] as const;
const outcomeOf = (row: Row): number => OUTCOMES.findIndex((o) => o.holds(row));

/** The start of the equation's right-hand side, by type. */
const SUMS: Readonly<Record<string, string>> = { bf16: "+= f32(", u8s8: "+= s32(", f32: "+= x" };
const typeOf = ({ text }: Row): string | undefined => Object.keys(SUMS).find((type) => text.includes(SUMS[type] ?? ""));
const geomean = (xs: readonly number[]): number => Math.exp(xs.reduce((sum, x) => sum + Math.log(x), 0) / xs.length);
const us = (seconds: number): string => (1e6 * seconds).toFixed(1);

/** @param commands that made the rows  @returns the page, and the rows that refute their bound */
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
    .filter((r) => outcomeOf(r) === OUTCOMES.length - 1)
    .sort((x, y) => x.ratio / alikeOf(x) - y.ratio / alikeOf(y))
    .slice(0, TOLD);
  // Shards and resumed parts of one search count as one command.
  const searches = [...new Set(commands.map((c) => c.replaceAll(/ --(shard|out) \S+| --resume/g, "")))];
  const names = ["all", ...new Set(rows.map((r) => r.form)), ...Object.keys(SUMS)];
  const page = [
    "# What a condition costs",
    "",
    `${cpus()[0]?.model ?? "a CPU"} (${nativeTarget().isa.join(" ")}), one thread, ${rows.length} computations. The rate of useful multiplies over the rate without the condition.`,
    "",
    ...searches.map((search) => `    ${search}`),
    "",
    ...(searches.length > 1
      ? [
          "Each further command searched again, for longer, the computations that had met neither the goal nor the bound (*between*).",
          "",
        ]
      : []),
    `| form or type | computations | geomean | least | median | ${OUTCOMES.map((o) => o.name).join(" | ")} | of the bounds | of the bound | of the bound, without the condition |`,
    "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ...names.flatMap((name) => {
      const own = rows.filter((r) => name === "all" || r.form === name || typeOf(r) === name);
      return own.length === 0 ? [] : [line(name, own)];
    }),
    "",
    "The bound of a time is the larger of two, both measured in turns with the kernels. Memory: inputs read once, as far as points read them, and",
    "the result written once, nothing else (bench/peers/touch.cpp). Products: the same bytes, and at once the products in which the condition holds",
    "somewhere, of whole tiles or vectors, with the loads, stores and packed tiles that no kernel does without (bench/peers/products.cpp; for other",
    "instructions than AMX and multiply-adds of f32 the issues alone). The least over all mappings onto all instructions counts. Masks are left",
    "out, and that operands come from beyond the nearest cache more than once.",
    "",
    `Beyond the bound are computations whose ratio stays below ${GOAL} even in the time of the bound: (share of the points) * (time without) / bound.`,
    "A condition leaves three things as they are: results are written in full, most inputs are read and packed in full, and a tile that the edge",
    "crosses is computed in full. So its bound falls by less than its points do. What keeps kernels from their bounds, operands from beyond the",
    "nearest cache and work that is not done at once, keeps those with and without a condition from it alike; two that reach the same share of",
    `their bounds have the ratio of the bounds, the column "of the bounds". Where that is below ${GOAL}, a kernel with a condition would have to be`,
    "nearer to its bound than the one without it, and the computation counts as beyond the bound at equal shares: no proof, but the reason.",
    "The last two columns are bound / time. All means are geometric.",
    "",
    "Between, those farthest from the ratio of their bounds:",
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
  const counts = OUTCOMES.map((_, n) => own.filter((r) => outcomeOf(r) === n).length).join(" | ");
  const bounds = geomean(own.map(alikeOf)).toFixed(2);
  const reached = geomean(own.map((r) => r.bound.seconds / r.seconds)).toFixed(2);
  const without = geomean(own.map((r) => r.boundWithout.seconds / r.secondsWithout)).toFixed(2);
  return `| ${name} | ${own.length} | ${geomean(sorted).toFixed(2)} | ${at(0)} | ${at(0.5)} | ${counts} | ${bounds} | ${reached} | ${without} |`;
}

const parts = ({ memory, products, instruction }: Bound): string =>
  `memory ${us(memory)}, ${instruction} ${us(products)}`;

const told = (r: Row): string =>
  `* ${r.ratio.toFixed(2)} of at most ${mostOf(r).toFixed(2)}, at equal shares ${alikeOf(r).toFixed(2)}   \`${r.text}\`, ${(100 * r.share).toFixed(0)} % of the points, ${us(r.seconds)} us (${parts(r.bound)}) beside ${us(r.secondsWithout)} (${parts(r.boundWithout)})`;
