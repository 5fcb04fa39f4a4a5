/**
 * @file The cost of a condition: triangles and bands beside the same computations without a condition, by the rate of
 * useful multiplies.
 *
 *     npm run build
 *     node dist/bench/conditions.js                                    200 computations, half an hour or more
 *     node dist/bench/conditions.js --count 20 --out bench/results/conditions-xeon
 *
 * On a machine of many cores each core takes a shard, under one calibration, and the files are joined:
 *
 *     node dist/bench/conditions.js --count 0 --database all.db --out none
 *     for n in 0 1 2 3; do taskset -c $((2*n)),$((2*n+1)) \
 *       node dist/bench/conditions.js --shard $n/4 --database all.db --out shard-$n & done; wait
 *     node dist/bench/conditions.js --out bench/results/conditions-xeon shard-*.jsonl
 *
 * Random computations of 128 to 640 rows in three types: attention scores and products whose result is a triangle or a
 * band, and products with a triangular factor, each with two or three conditions and with none. All have the same
 * trials and calibration. Winners are verified, then timed in turns.
 * The ratio is (points where the condition holds / time) over (all points / time without it): 1 means no cost.
 * Beside it stands its largest possible value, computed from the lower bound (bench/conditions-bound.ts), which is
 * measured in turns with the kernels. The command exits with 1 when a kernel beats its bound: then it is no bound.
 */

import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Computation, defineComputation, equationText, pointCount } from "../abstraction/computation.ts";
import { usefulPoints } from "../abstraction/condition.ts";
import { EnvironmentError, UsageError } from "../abstraction/error.ts";
import { pick, type Random, randomInteger, seededRandom } from "../abstraction/random.ts";
import { openDatabase } from "../db/index.ts";
import { INTRINSICS } from "../intrinsics/index.ts";
import { createRunner, type Runner } from "../runtime/measure.ts";
import type { Reference } from "../runtime/verify.ts";
import { environmentOf } from "../session/environment.ts";
import type { TunedKernel } from "../session/finals.ts";
import { calibrationFor } from "../session/predict.ts";
import { tuneComputation } from "../session/tune.ts";
import { nativeTarget } from "../targets/native.ts";
import { type Bound, boundsOn, lesser, type MeasureBound } from "./conditions-bound.ts";
import { mostOf, pageOf, type Row } from "./conditions-report.ts";
import { readOptions } from "./options.ts";

const { values, positionals } = readOptions({
  allowPositionals: true,
  options: {
    count: { type: "string", default: "200" },
    /** Trials of each search. */
    trials: { type: "string", default: "4" },
    /** Limit of each search. */
    seconds: { type: "string", default: "60" },
    seed: { type: "string", default: "1" },
    out: { type: "string", default: "conditions" },
    /** Holds trials and calibration. Default: a temporary file. */
    database: { type: "string" },
    /** `2/8`: every eighth computation, starting with the third. */
    shard: { type: "string", default: "0/1" },
    /** Continues an existing file of results. */
    resume: { type: "boolean", default: false },
  },
});
const COUNT = Number(values.count);
const [SHARD = 0, SHARDS = 1] = values.shard.split("/").map(Number);
if (!(SHARD >= 0 && SHARD < SHARDS)) throw new UsageError(`--shard ${values.shard}: there is none`);
/** Measurements of each winner, in turns with the others; the fastest counts. */
const TURNS = 3;

interface Form {
  readonly name: string;
  readonly target: string;
  readonly factors: readonly [string, string];
  /** Conditions; `w` stands for a width. */
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

/** A computation without a condition, and with each condition of its form. */
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

interface Place {
  readonly runner: Runner;
  readonly database: string;
  readonly boundOf: ReturnType<typeof boundsOn>;
}

async function tuned(computation: Computation, { runner, database }: Place): Promise<TunedKernel | string> {
  // A search closes its runner. This one is shared, so its close does nothing.
  const shared: Runner = Object.create(runner, { close: { value: () => Promise.resolve() } });
  const budget = { trials: Number(values.trials), seconds: Number(values.seconds), seed: Number(values.seed) };
  const outcome = await tuneComputation({ computation }, { kinds: "mappings", ...budget, database, runner: shared });
  if (outcome.status === "environment") throw new EnvironmentError(outcome.problem);
  if (outcome.status === "nothing-maps") return outcome.refused.map((r) => r.because).join("; ");
  return outcome.best ?? "no kernel was right";
}

interface Timed {
  readonly winner: TunedKernel;
  readonly reference: Reference;
  readonly measureBound: MeasureBound;
  /** The least over the turns. */
  seconds: number;
  bound: Bound | undefined;
}

/** Seconds of each winner and of its bound, measured in turns with the others. */
async function inTurns(winners: readonly TunedKernel[], { runner, boundOf }: Place): Promise<readonly Timed[]> {
  const timed: Timed[] = [];
  for (const winner of winners) {
    const reference = await runner.reference(winner.computation, 1);
    const measureBound = boundOf(winner.computation);
    timed.push({ winner, reference, measureBound, seconds: Number.POSITIVE_INFINITY, bound: undefined });
  }
  for (let turn = 0; turn < TURNS; turn++)
    for (const one of timed) {
      const measured = await runner.measure(one.winner.kernel, one.reference, { budgetSeconds: 0.05 });
      if (measured.status !== "ok") throw new Error(`a winner is ${measured.status} when it is measured again`);
      one.seconds = Math.min(one.seconds, measured.median);
      one.bound = lesser(one.bound, await one.measureBound());
    }
  return timed;
}

/** The requested rows of a group, and the computations whose search failed. */
async function rowsOf({ form, whole, tied }: Group, place: Place): Promise<{ rows: Row[]; failed: string[] }> {
  const failed: string[] = [];
  const winners: TunedKernel[] = [];
  for (const computation of [whole, ...tied]) {
    const found = await tuned(computation, place);
    if (typeof found !== "string") winners.push(found);
    else failed.push(`${textOf(computation)}: ${found}`);
  }
  const [without, ...others] = await inTurns(winners, place);
  if (without?.winner.computation !== whole || without.bound === undefined) return { rows: [], failed };
  const { seconds: secondsWithout, bound: boundWithout } = without;
  const rows = others.flatMap(({ winner: { computation }, seconds, bound }): Row[] => {
    if (bound === undefined) return [];
    const share = usefulPoints(computation) / pointCount(whole);
    const ratio = (share * secondsWithout) / seconds;
    return [{ form, text: textOf(computation), share, seconds, secondsWithout, ratio, bound, boundWithout }];
  });
  return { rows, failed };
}

const textOf = (c: Computation): string =>
  `${equationText(c)}   ${JSON.stringify(Object.fromEntries(c.axes.map((a) => [a.name, a.extent])))}`;

/** The requested computations in groups, without duplicates. */
function drawnGroups(): readonly Group[] {
  const groups: Group[] = [];
  const drawn = new Set<string>();
  for (let n = 0; drawn.size < COUNT; n++) {
    const group = draw(seededRandom(1000 * Number(values.seed) + n));
    const tied = group.tied.filter((c) => !drawn.has(textOf(c))).slice(0, COUNT - drawn.size);
    for (const c of tied) drawn.add(textOf(c));
    if (tied.length > 0) groups.push({ ...group, tied });
  }
  return groups;
}

/** A line of the results file. */
type Line = { readonly row: Row } | { readonly failed: string } | { readonly command: string };

function linesOf(file: string): Line[] {
  const texts = readFileSync(file, "utf8").split("\n");
  // Written by this program.
  return texts.filter((text) => text !== "").map((text) => JSON.parse(text) as Line);
}

const jsonl = `${values.out}.jsonl`;
const say = (text: string): void => void process.stderr.write(`${text}\n`);

/** Tunes and times the part of this shard that is not done yet. */
async function measureAll(): Promise<void> {
  const write = (line: Line): void => appendFileSync(jsonl, `${JSON.stringify(line)}\n`);
  if (!values.resume) writeFileSync(jsonl, "");
  write({ command: `node dist/bench/conditions.js ${process.argv.slice(2).join(" ")}` });
  const known = new Set(linesOf(jsonl).flatMap((line) => ("row" in line ? [line.row.text] : [])));
  const folder = mkdtempSync(join(tmpdir(), "automap-conditions-"));
  const made = await createRunner({ threads: 1 });
  if (made.status === "environment") throw new EnvironmentError(made);
  const { runner } = made;
  try {
    const database = values.database ?? join(folder, "conditions.db");
    const db = openDatabase(database);
    const calibration = await calibrationFor(db, environmentOf(runner, nativeTarget()), INTRINSICS, runner, say);
    db.close();
    const place: Place = { runner, database, boundOf: boundsOn(folder, runner.cores, calibration) };
    const groups = drawnGroups().filter((_, n) => n % SHARDS === SHARD);
    for (const [n, group] of groups.entries()) {
      const tied = group.tied.filter((c) => !known.has(textOf(c)));
      if (tied.length === 0) continue;
      const found = await rowsOf({ ...group, tied }, place);
      for (const failed of found.failed) write({ failed });
      for (const row of found.rows) {
        write({ row });
        say(`${n + 1}/${groups.length}  ${row.ratio.toFixed(2)} of ${mostOf(row).toFixed(2)}  ${row.text}`);
      }
    }
  } finally {
    await runner.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

if (positionals.length === 0) await measureAll();
const lines = positionals.length === 0 ? linesOf(jsonl) : positionals.flatMap(linesOf);
if (positionals.length > 0) writeFileSync(jsonl, lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
const rows = lines.flatMap((line) => ("row" in line ? [line.row] : []));
const failed = lines.flatMap((line) => ("failed" in line ? [line.failed] : []));
const commands = lines.flatMap((line) => ("command" in line ? [line.command] : []));
const { page, beaten } = pageOf(rows, failed, commands);
writeFileSync(`${values.out}.md`, page);
if (beaten.length > 0) {
  say(`${beaten.length} kernels are faster than their bound: see ${values.out}.md`);
  process.exitCode = 1;
}
