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

import { appendFileSync, writeFileSync } from "node:fs";
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
  },
});
const COUNT = Number(values.count);
const SECONDS = Number(values.seconds);
const GOAL = 0.8;
const jsonl = `${values.out}.jsonl`;
writeFileSync(jsonl, "");

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

const rows: { readonly form: string; readonly ratio: number; readonly text: string; readonly share: number }[] = [];
const failed: string[] = [];
for (let n = 0; n < COUNT; n++) {
  const { form, tied, whole } = draw(seededRandom(1000 * Number(values.seed) + n));
  const text = `${equationText(tied)}   ${JSON.stringify(Object.fromEntries(tied.axes.map((a) => [a.name, a.extent])))}`;
  const [with_, without] = [await secondsOf(tied, n), await secondsOf(whole, n)];
  if (typeof with_ === "string" || typeof without === "string") {
    failed.push(`${text}: ${typeof with_ === "string" ? with_ : without}`);
    continue;
  }
  const share = usefulPoints(tied) / pointCount(whole);
  const ratio = (share * without) / with_;
  rows.push({ form, ratio, text, share });
  appendFileSync(jsonl, `${JSON.stringify({ form, text, share, seconds: with_, secondsWithout: without, ratio })}\n`);
  process.stderr.write(`${n + 1}/${COUNT}  ${ratio.toFixed(2)}  ${text}\n`);
}

const geomean = (xs: readonly number[]): number => Math.exp(xs.reduce((sum, x) => sum + Math.log(x), 0) / xs.length);
const table = ["all", ...FORMS.map((f) => f.name)].map((form) => {
  const ratios = rows.filter((r) => form === "all" || r.form === form).map((r) => r.ratio);
  const met = ratios.filter((r) => r >= GOAL).length;
  const sorted = [...ratios].sort((x, y) => x - y);
  const at = (q: number): string => (sorted[Math.floor(q * (sorted.length - 1))] ?? Number.NaN).toFixed(2);
  return ratios.length === 0
    ? ""
    : `| ${form} | ${ratios.length} | ${geomean(ratios).toFixed(2)} | ${at(0)} | ${at(0.1)} | ${at(0.5)} | ${met} |`;
});
const worst = [...rows].sort((x, y) => x.ratio - y.ratio).slice(0, 12);
writeFileSync(
  `${values.out}.md`,
  [
    "# What a condition costs",
    "",
    `${cpus()[0]?.model ?? "a CPU"} (${nativeTarget().isa.join(" ")}), one thread, ${SECONDS} s a search, ${COUNT} computations. The rate of useful multiplies over the rate without the condition.`,
    "",
    `    node dist/bench/conditions.js ${process.argv.slice(2).join(" ")}`,
    "",
    `| form | computations | geomean | least | 10 % | median | at least ${GOAL} |`,
    "|---|---|---|---|---|---|---|",
    ...table.filter((line) => line !== ""),
    "",
    "The least:",
    "",
    ...worst.map((r) => `* ${r.ratio.toFixed(2)}   \`${r.text}\`, ${(100 * r.share).toFixed(0)} % of the points`),
    "",
    ...(failed.length > 0 ? ["Not tuned:", "", ...failed.map((f) => `* \`${f}\``), ""] : []),
  ].join("\n"),
);
