/**
 * @file What a condition costs: triangles and bands beside the same computations without their condition, by the rate of useful multiplies.
 *
 *     npm run build
 *     node dist/bench/conditions.js                                        200 computations, a few minutes
 *     node dist/bench/conditions.js --count 20 --seconds 4 --out bench/results/conditions-xeon
 *
 * Each computation is drawn at random: attention scores and products whose result is a triangle or a band, and products with a triangular
 * factor, in three types, of 128 to 640 rows. Both are tuned under the same budget, one right after the other, and every kernel is verified.
 * The ratio is (points where the condition holds / time) over (all points / time without it): 1 where a condition costs nothing. A block of
 * results that crosses the edge computes points that nobody needs, so small triangles lose more.
 */

import { appendFileSync, readFileSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { parseArgs } from "node:util";
import { type Computation, defineComputation, equationText, pointCount } from "../abstraction/computation.ts";
import { usefulPoints } from "../abstraction/condition.ts";
import { pick, type Random, randomInteger, seededRandom } from "../abstraction/random.ts";
import { type TuneOutcome, tuneComputation } from "../session/tune.ts";
import { nativeTarget } from "../targets/native.ts";

const { values } = parseArgs({
  options: {
    count: { type: "string", default: "200" },
    seconds: { type: "string", default: "2" },
    seed: { type: "string", default: "1" },
    out: { type: "string", default: "conditions" },
    /** Goes on behind the lines that are there. */
    resume: { type: "boolean", default: false },
  },
});
const COUNT = Number(values.count);
const SECONDS = Number(values.seconds);
const GOAL = 0.8;
const jsonl = `${values.out}.jsonl`;
if (!values.resume) writeFileSync(jsonl, "");

interface Form {
  readonly name: string;
  readonly target: string;
  readonly factors: readonly [string, string];
  /** Conditions, in which `w` stands for a width. */
  readonly ties: readonly string[];
}

const FORMS: readonly Form[] = [
  { name: "scores", target: "c[h,i,j]", factors: ["x[h,i,k]", "y[h,j,k]"], ties: ["j <= i", "j <= i and i - j < w"] },
  {
    name: "product, part of the result",
    target: "c[i,j]",
    factors: ["x[i,k]", "y[k,j]"],
    ties: ["j <= i", "i <= j", "i - j < w and j - i < w"],
  },
  {
    name: "product, triangular factor",
    target: "c[i,j]",
    factors: ["x[i,k]", "y[k,j]"],
    ties: ["k <= i", "k >= i", "i - k < w and k - i < w"],
  },
];
const TYPES = [
  ["f32", "f32", "f32"],
  ["u8", "s8", "s32"],
  ["bf16", "bf16", "f32"],
] as const;

/** @returns the computation, and the same without its condition */
function draw(random: Random): { readonly form: string; readonly tied: Computation; readonly whole: Computation } {
  const { name, target, factors, ties } = pick(random, FORMS);
  const [a, b, sum] = pick(random, TYPES);
  const rows = 32 * randomInteger(random, 4, 20);
  const extents = {
    ...(target.includes("h") && { h: randomInteger(random, 1, 4) }),
    i: rows,
    j: rows,
    k: 32 * randomInteger(random, 2, 12),
  };
  if (name.endsWith("factor")) extents.k = rows;
  const tie = pick(random, ties).replaceAll("w", String(32 * randomInteger(random, 2, 4)));
  const value = factors.map((f) => (a === sum ? f : `${sum}(${f})`)).join(" * ");
  const make = (where: string): Computation =>
    defineComputation({
      name: "product",
      equation: `${target} += ${value}${where}`,
      extents,
      tensors: { x: a, y: { dtype: b, constant: name !== "scores" }, c: sum },
    });
  return { form: name, tied: make(` where ${tie}`), whole: make("") };
}

async function secondsOf(computation: Computation, random: number): Promise<number | string> {
  const outcome: TuneOutcome = await tuneComputation(
    { computation },
    { kinds: "mappings", seconds: SECONDS, seed: random, database: ":memory:" },
  );
  if (outcome.status === "environment") throw new Error(outcome.problem.what);
  if (outcome.status === "nothing-maps") return outcome.refused.map((r) => r.because).join("; ");
  return outcome.best?.measurement.median ?? "no kernel was right";
}

interface Row {
  readonly form: string;
  readonly text: string;
  /** Of the points, where the condition holds. */
  readonly share: number;
  /** A call, with the condition and without. */
  readonly seconds: number;
  readonly secondsWithout: number;
  readonly ratio: number;
}
const lines = readFileSync(jsonl, "utf8").split("\n");
const rows: Row[] = lines.filter((line) => line !== "").map((line) => JSON.parse(line) as Row);
const failed: string[] = [];
for (let n = rows.length; n < COUNT; n++) {
  const { form, tied, whole } = draw(seededRandom(1000 * Number(values.seed) + n));
  const text = `${equationText(tied)}   ${JSON.stringify(Object.fromEntries(tied.axes.map((a) => [a.name, a.extent])))}`;
  const [with_, without] = [await secondsOf(tied, n), await secondsOf(whole, n)];
  if (typeof with_ === "string" || typeof without === "string") {
    failed.push(`${text}: ${typeof with_ === "string" ? with_ : without}`);
    continue;
  }
  const share = usefulPoints(tied) / pointCount(whole);
  const ratio = (share * without) / with_;
  const row = { form, text, share, seconds: with_, secondsWithout: without, ratio };
  rows.push(row);
  appendFileSync(jsonl, `${JSON.stringify(row)}\n`);
  process.stderr.write(`${n + 1}/${COUNT}  ${ratio.toFixed(2)}  ${text}\n`);
}

/** How the equation of a type begins its factors. */
const SUMS: Readonly<Record<string, string>> = { bf16: "+= f32(", u8s8: "+= s32(", f32: "+= x" };
const typeOf = ({ text }: Row): string | undefined => Object.keys(SUMS).find((type) => text.includes(SUMS[type] ?? ""));
const geomean = (xs: readonly number[]): number => Math.exp(xs.reduce((sum, x) => sum + Math.log(x), 0) / xs.length);
const table = ["all", ...FORMS.map((f) => f.name), ...Object.keys(SUMS)].map((form) => {
  const ratios = rows.filter((r) => form === "all" || r.form === form || typeOf(r) === form).map((r) => r.ratio);
  const met = ratios.filter((r) => r >= GOAL).length;
  const sorted = [...ratios].sort((x, y) => x - y);
  const at = (q: number): string => (sorted[Math.floor(q * (sorted.length - 1))] ?? Number.NaN).toFixed(2);
  return ratios.length === 0
    ? ""
    : `| ${form} | ${ratios.length} | ${geomean(ratios).toFixed(2)} | ${at(0)} | ${at(0.1)} | ${at(0.5)} | ${met} |`;
});
const us = (seconds: number): string => (1e6 * seconds).toFixed(1);
const worst = [...rows].sort((x, y) => x.ratio - y.ratio).slice(0, 12);
writeFileSync(
  `${values.out}.md`,
  [
    "# What a condition costs",
    "",
    `${cpus()[0]?.model ?? "a CPU"} (${nativeTarget().isa.join(" ")}), one thread, ${SECONDS} s a search, ${rows.length} computations. The rate of useful multiplies over the rate without the condition.`,
    "",
    `    node dist/bench/conditions.js ${process.argv.slice(2).join(" ")}`,
    "",
    `| form or type | computations | geomean | least | 10 % | median | at least ${GOAL} |`,
    "|---|---|---|---|---|---|---|",
    ...table.filter((line) => line !== ""),
    "",
    "Inputs are packed and results written in full with and without a condition, zeros where it does not hold: what instructions do fast, as AMX",
    "does, is mostly that.",
    "",
    "The least:",
    "",
    ...worst.map(
      (r) =>
        `* ${r.ratio.toFixed(2)}   \`${r.text}\`, ${(100 * r.share).toFixed(0)} % of the points, ${us(r.seconds)} us beside ${us(r.secondsWithout)}`,
    ),
    "",
    ...(failed.length > 0 ? ["Not tuned:", "", ...failed.map((f) => `* \`${f}\``), ""] : []),
  ].join("\n"),
);
