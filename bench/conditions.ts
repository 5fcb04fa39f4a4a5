/**
 * @file What a condition costs: triangles and bands beside the same computations without their condition, by the rate of useful multiplies.
 *
 *     npm run build
 *     node dist/bench/conditions.js                                        200 computations, an hour or more
 *     node dist/bench/conditions.js --count 20 --out bench/results/conditions-xeon
 *
 * Computations are drawn at random: attention scores and products whose result is a triangle or a band, and products with a triangular
 * factor, in three types, of 128 to 640 rows; each under two or three conditions and without. All are tuned with the same number of trials
 * and one calibration, every kernel is verified, and the winners of a computation are timed in turns, with its conditions and without.
 * The ratio is (points where the condition holds / time) over (all points / time without it): 1 where a condition costs nothing.
 *
 * Beside it stands the most that the ratio can be: with the time no kernel beats (bench/conditions-bound.ts) in place of the time reached.
 * The command fails, exit code 1, when a kernel is faster than that: then it is no bound.
 */

import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { type Computation, defineComputation, equationText, pointCount } from "../abstraction/computation.ts";
import { usefulPoints } from "../abstraction/condition.ts";
import { pick, type Random, randomInteger, seededRandom } from "../abstraction/random.ts";
import { openDatabase } from "../db/index.ts";
import { INTRINSICS } from "../intrinsics/index.ts";
import type { Calibration } from "../perfmodel/calibrate.ts";
import { createRunner, type Runner } from "../runtime/measure.ts";
import type { Reference } from "../runtime/verify.ts";
import { environmentOf } from "../session/environment.ts";
import type { TunedKernel } from "../session/finals.ts";
import { calibrationFor } from "../session/predict.ts";
import { tuneComputation } from "../session/tune.ts";
import { nativeTarget } from "../targets/native.ts";
import { type Bound, issueBound, memoryBounds } from "./conditions-bound.ts";

const { values } = parseArgs({
  options: {
    count: { type: "string", default: "200" },
    /** Of each search. */
    trials: { type: "string", default: "4" },
    seed: { type: "string", default: "1" },
    out: { type: "string", default: "conditions" },
    /** Trials and the calibration; a file of its own, deleted at the end, when left out. */
    database: { type: "string" },
    /** Goes on behind the lines that are there. */
    resume: { type: "boolean", default: false },
  },
});
const COUNT = Number(values.count);
const GOAL = 0.8;
/** A kernel may seem faster than the bound by as much as the clock of the machine moves meanwhile. */
const CLOCK_MOVES = 0.03;
/** Times each winner is measured, in turns with the others; the fastest counts. */
const TURNS = 3;
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

interface Group {
  readonly form: string;
  readonly whole: Computation;
  readonly tied: readonly Computation[];
}

/** @returns a computation without a condition, and under each that its form has */
function draw(random: Random): Group {
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
  const value = factors.map((f) => (a === sum ? f : `${sum}(${f})`)).join(" * ");
  const make = (where: string): Computation =>
    defineComputation({
      name: "product",
      equation: `${target} += ${value}${where}`,
      extents,
      tensors: { x: a, y: { dtype: b, constant: name !== "scores" }, c: sum },
    });
  const width = (): string => String(32 * randomInteger(random, 2, 4));
  const tied = ties.map((tie) => make(` where ${tie.replaceAll("w", width())}`));
  return { form: name, whole: make(""), tied };
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
  readonly bound: Bound;
  readonly boundWithout: Bound;
}

/** The most that the ratio can be, given the time without the condition. */
const mostOf = ({ share, secondsWithout, bound }: Row): number => (share * secondsWithout) / bound.seconds;
/** What the goal asks for is beyond the bound. */
const isBeyond = (row: Row): boolean => row.ratio < GOAL && mostOf(row) < GOAL;

interface Place {
  readonly runner: Runner;
  readonly database: string;
  readonly calibration: Calibration;
  readonly memory: ReturnType<typeof memoryBounds>;
}

async function tuned(computation: Computation, { runner, database }: Place): Promise<TunedKernel | string> {
  // A search closes the runner it is given; this one goes on.
  const shared: Runner = Object.create(runner, { close: { value: () => Promise.resolve() } });
  const budget = { trials: Number(values.trials), seconds: 60, seed: Number(values.seed) };
  const outcome = await tuneComputation({ computation }, { kinds: "mappings", ...budget, database, runner: shared });
  if (outcome.status === "environment") throw new Error(outcome.problem.what);
  if (outcome.status === "nothing-maps") return outcome.refused.map((r) => r.because).join("; ");
  return outcome.best ?? "no kernel was right";
}

/** Seconds of each winner, measured in turns with the others. */
async function inTurns(winners: readonly TunedKernel[], runner: Runner): Promise<number[]> {
  const references: Reference[] = [];
  for (const { computation } of winners) references.push(await runner.reference(computation, 1));
  const fastest = winners.map(() => Number.POSITIVE_INFINITY);
  for (let turn = 0; turn < TURNS; turn++)
    for (const [i, { kernel }] of winners.entries()) {
      const reference = references[i];
      if (reference === undefined) throw new Error("internal: a winner without a reference");
      const measured = await runner.measure(kernel, reference, { budgetSeconds: 0.05 });
      if (measured.status !== "ok") throw new Error(`a winner is ${measured.status} when it is measured again`);
      fastest[i] = Math.min(fastest[i] ?? Number.POSITIVE_INFINITY, measured.median);
    }
  return fastest;
}

/** The rows of a group that are asked for, and what was not tuned. */
async function rowsOf({ form, whole, tied }: Group, place: Place): Promise<{ rows: Row[]; failed: string[] }> {
  const failed: string[] = [];
  const winners: TunedKernel[] = [];
  for (const computation of [whole, ...tied]) {
    const found = await tuned(computation, place);
    if (typeof found !== "string") winners.push(found);
    else failed.push(`${textOf(computation)}: ${found}`);
  }
  const computations = winners.map((w) => w.computation);
  const [seconds, memory] = [await inTurns(winners, place.runner), await place.memory(computations)];
  const bounds = computations.map((computation, i): Bound => {
    const { issues, instruction } = issueBound(computation, place.calibration);
    const touched = memory[i] ?? 0;
    return { seconds: Math.max(issues, touched), memory: touched, issues, instruction };
  });
  const [secondsWithout, boundWithout] = [seconds[0], bounds[0]];
  if (computations[0] !== whole || secondsWithout === undefined || boundWithout === undefined)
    return { rows: [], failed };
  const rows = computations.slice(1).flatMap((computation, n): Row[] => {
    const [own, bound] = [seconds[n + 1], bounds[n + 1]];
    if (own === undefined || bound === undefined) return [];
    const share = usefulPoints(computation) / pointCount(whole);
    const ratio = (share * secondsWithout) / own;
    return [{ form, text: textOf(computation), share, seconds: own, secondsWithout, ratio, bound, boundWithout }];
  });
  return { rows, failed };
}

const textOf = (c: Computation): string =>
  `${equationText(c)}   ${JSON.stringify(Object.fromEntries(c.axes.map((a) => [a.name, a.extent])))}`;

const lines = readFileSync(jsonl, "utf8").split("\n");
const rows: Row[] = lines.filter((line) => line !== "").map((line) => JSON.parse(line) as Row);
const failed: string[] = [];
const folder = mkdtempSync(join(tmpdir(), "automap-conditions-"));
const made = await createRunner({ threads: 1 });
if (made.status === "environment") throw new Error(made.what);
const { runner } = made;
try {
  const database = values.database ?? join(folder, "conditions.db");
  const db = openDatabase(database);
  const say = (text: string): void => void process.stderr.write(`${text}\n`);
  const calibration = await calibrationFor(db, environmentOf(runner, nativeTarget()), INTRINSICS, runner, say);
  db.close();
  const place: Place = { runner, database, calibration, memory: memoryBounds(folder, runner.cores) };
  const known = new Set(rows.map((r) => r.text));
  for (let n = 0; rows.length < COUNT; n++) {
    const group = draw(seededRandom(1000 * Number(values.seed) + n));
    const open = group.tied.filter((c) => !known.has(textOf(c))).slice(0, COUNT - rows.length);
    if (open.length === 0) continue;
    const found = await rowsOf({ ...group, tied: open }, place);
    failed.push(...found.failed);
    for (const row of found.rows) {
      rows.push(row);
      known.add(row.text);
      appendFileSync(jsonl, `${JSON.stringify(row)}\n`);
      say(`${rows.length}/${COUNT}  ${row.ratio.toFixed(2)} of ${mostOf(row).toFixed(2)}  ${row.text}`);
    }
  }
} finally {
  await runner.close();
  rmSync(folder, { recursive: true, force: true });
}

/** How the equation of a type begins its factors. */
const SUMS: Readonly<Record<string, string>> = { bf16: "+= f32(", u8s8: "+= s32(", f32: "+= x" };
const typeOf = ({ text }: Row): string | undefined => Object.keys(SUMS).find((type) => text.includes(SUMS[type] ?? ""));
const geomean = (xs: readonly number[]): number => Math.exp(xs.reduce((sum, x) => sum + Math.log(x), 0) / xs.length);
const table = ["all", ...FORMS.map((f) => f.name), ...Object.keys(SUMS)].flatMap((name) => {
  const own = rows.filter((r) => name === "all" || r.form === name || typeOf(r) === name);
  if (own.length === 0) return [];
  const sorted = own.map((r) => r.ratio).sort((x, y) => x - y);
  const at = (q: number): string => (sorted[Math.floor(q * (sorted.length - 1))] ?? Number.NaN).toFixed(2);
  const met = own.filter((r) => r.ratio >= GOAL).length;
  const beyond = own.filter(isBeyond).length;
  const reached = geomean(own.map((r) => r.bound.seconds / r.seconds)).toFixed(2);
  const without = geomean(own.map((r) => r.boundWithout.seconds / r.secondsWithout)).toFixed(2);
  const counts = `${met} | ${beyond} | ${own.length - met - beyond}`;
  return `| ${name} | ${own.length} | ${geomean(sorted).toFixed(2)} | ${at(0)} | ${at(0.5)} | ${counts} | ${reached} | ${without} |`;
});
const us = (seconds: number): string => (1e6 * seconds).toFixed(1);
const told = (r: Row): string =>
  `* ${r.ratio.toFixed(2)} of at most ${mostOf(r).toFixed(2)}   \`${r.text}\`, ${(100 * r.share).toFixed(0)} % of the points, ${us(r.seconds)} us (memory ${us(r.bound.memory)}, ${r.bound.instruction} ${us(r.bound.issues)}) beside ${us(r.secondsWithout)} (${us(r.boundWithout.memory)}, ${us(r.boundWithout.issues)})`;
const worst = rows
  .filter((r) => r.ratio < GOAL && !isBeyond(r))
  .sort((x, y) => x.ratio - y.ratio)
  .slice(0, 12);
const beaten = rows.filter(
  (r) =>
    r.seconds < (1 - CLOCK_MOVES) * r.bound.seconds || r.secondsWithout < (1 - CLOCK_MOVES) * r.boundWithout.seconds,
);
writeFileSync(
  `${values.out}.md`,
  [
    "# What a condition costs",
    "",
    `${cpus()[0]?.model ?? "a CPU"} (${nativeTarget().isa.join(" ")}), one thread, ${values.trials} trials a search, ${rows.length} computations. The rate of useful multiplies over the rate without the condition.`,
    "",
    `    node dist/bench/conditions.js ${process.argv.slice(2).join(" ")}`,
    "",
    `| form or type | computations | geomean | least | median | at least ${GOAL} | beyond the bound | between | of the bound | of the bound, without the condition |`,
    "|---|---|---|---|---|---|---|---|---|---|",
    ...table,
    "",
    "The bound of a time is max(memory, issues). Memory: inputs read once, as far as points read them, and the result written once, nothing else,",
    "measured by bench/peers/touch.cpp. Issues: the instruction's tiles in which the condition holds somewhere, times the calibrated cycles between",
    "two issues; the least over all mappings onto all instructions. Packing, tile loads and masks are left out, so that no kernel takes less.",
    `Beyond the bound are computations whose ratio would stay below ${GOAL} in that time: (share of the points) * (time without) / bound.`,
    "The last two columns are bound / time.",
    "",
    "The least that are not beyond the bound:",
    "",
    ...worst.map(told),
    "",
    ...(beaten.length > 0 ? ["Faster than their bound, which is then none:", "", ...beaten.map(told), ""] : []),
    ...(failed.length > 0 ? ["Not tuned:", "", ...failed.map((f) => `* \`${f}\``), ""] : []),
  ].join("\n"),
);
if (beaten.length > 0) {
  process.stderr.write(`${beaten.length} kernels are faster than their bound: see ${values.out}.md\n`);
  process.exitCode = 1;
}
