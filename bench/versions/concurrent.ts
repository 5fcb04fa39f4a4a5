/**
 * @file Whether concurrent searches affect each other. One search runs alone, then several run in processes of their
 * own, with the same trials and separate databases. At the end one process measures all winners in alternating batches.
 *
 *     npm run bench:concurrent                        one, two and four searches of a 512 cubed product of f32
 *     npm run bench:concurrent -- --at-once 1,8 --trials 60 -- conv2d --dtype u8s8
 *     npm run bench:concurrent -- --out bench/results/concurrent-xeon                writes concurrent-xeon.md too
 *
 * `median` and its 95 % interval (microseconds) come from the finals of each search; `overlaps` compares the interval
 * with the lone search's. `times` is winner / lone winner, in turns. `waited` is the time spent waiting for a core.
 * `load` is the share of processors used by other programs: the median over all trials, and the largest.
 */

import { execFileSync } from "node:child_process";
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import { computationOf, openDatabase, queryTrials, showTrial, type TrialRecord } from "../../db/index.ts";
import { percent } from "../../report/text.ts";
import { explainRun, runChild } from "../../runtime/child.ts";
import { isTie, median, summariseRatio } from "../../runtime/statistics.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { cpuRunner, table } from "../support/frame.ts";
import { readOptions } from "../support/options.ts";

const { values, positionals } = readOptions({
  allowPositionals: true,
  options: {
    "at-once": { type: "string", default: "1,2,4" },
    trials: { type: "string", default: "40" },
    out: { type: "string" },
  },
});
const SUBJECT = ["matmul", "--m", "512", "--n", "512", "--k", "512", "--dtype", "f32"];
const subject = positionals.length > 0 ? positionals : SUBJECT;
const folder = mkdtempSync(join(tmpdir(), "automap-concurrent-"));
const calibrated = join(folder, "calibrated.db");
const main = fileURLToPath(new URL("../../cli/main.js", import.meta.url));

/** Of a search that hangs. */
const MOST_MS = 7_200_000;

type Timed = Extract<Measurement, { readonly status: "ok" }>;

interface Search {
  /** `2 of 4` */
  readonly name: string;
  readonly seconds: number;
  readonly waitedSeconds: number;
  /** Messages about waiting for a core. */
  readonly waits: readonly string[];
  readonly winner: TrialRecord;
  /** The winner's time in the finals of the search. */
  readonly finals: Timed;
  readonly trials: readonly TrialRecord[];
}

async function tune(name: string): Promise<Search> {
  const database = join(folder, `${name.replaceAll(" ", "-")}.db`);
  copyFileSync(calibrated, database);
  const words = ["tune", ...subject, "--trials", values.trials, "--time", "3600", "--db", database, "--json"];
  const run = await runChild([process.execPath, main, ...words], { timeLimitMs: MOST_MS });
  if (run.status !== "ok") throw new Error(`search ${name}: ${explainRun(run)}\n${run.stderr}`);
  return searchOf(name, database, run.stdout, run.stderr);
}

/** @param printed the document of `tune --json` */
function searchOf(name: string, database: string, printed: string, said: string): Search {
  const { best, seconds, waitedSeconds } = JSON.parse(printed) as {
    best: { id: string };
    seconds: number;
    waitedSeconds: number;
  };
  const db = openDatabase(database, { readonly: true });
  const winner = showTrial(db, best.id);
  const trials = queryTrials(db);
  db.close();
  const finals = winner.measurement;
  if (finals.status !== "ok") throw new Error("its winner failed");
  const waits = said.split("\n").filter((line) => line.startsWith("wait"));
  return { name, seconds, waitedSeconds, waits, winner, finals, trials };
}

/** Measures all winners in one process, in alternating batches. */
async function inTurns(searches: readonly Search[]): Promise<readonly Timed[]> {
  const [lone] = searches;
  if (!lone) throw new Error("no search");
  const runner = await cpuRunner({ onWait: (text) => console.error(text) });
  const computation = computationOf(lone.winner.workload);
  const kernels = searches.map(({ winner }): Kernel => kernelFor(computation, winner.candidate));
  const reference = await runner.reference(computation, 1);
  const results = await runner.compareKernels(kernels, reference, { budgetSeconds: 1 });
  await runner.close();
  return results.map((result, i) => {
    if (result.status === "ok") return result;
    throw new Error(`search ${searches[i]?.name}: its winner failed when run again: ${result.log}`);
  });
}

const us = (seconds: number): string => (seconds * 1e6).toFixed(2);
const HEAD = "search,seconds,waited s,median us,interval us,width,overlaps,times,load,processors".split(",");

function rowOf(
  { name, seconds, waitedSeconds, finals, trials }: Search,
  lone: Search,
  times: Timed,
  base: Timed,
): string[] {
  const [low, high] = finals.interval;
  const ratio = summariseRatio(times.samples, base.samples, 1);
  const loads = trials.flatMap(({ conditions }) => conditions.load ?? []);
  const processors = new Set(trials.flatMap(({ conditions }) => conditions.affinity ?? []));
  return [
    name,
    seconds.toFixed(1),
    waitedSeconds.toFixed(1),
    us(finals.median),
    `${us(low)} to ${us(high)}`,
    percent((high - low) / finals.median),
    isTie(finals, lone.finals) ? "yes" : "no",
    `${ratio.median.toFixed(3)} (${ratio.interval.map((r) => r.toFixed(3)).join(" to ")})`,
    loads.length === 0 ? "" : `${percent(median(loads))}, ${percent(Math.max(...loads))}`,
    [...processors].sort((a, b) => a - b).join(" "),
  ];
}

/** The results in sentences. */
function conclusions(searches: readonly Search[], lone: Search, results: readonly Timed[], base: Timed): string[] {
  const others = searches.filter((search) => search !== lone);
  const met = others.filter(({ finals }) => isTie(finals, lone.finals)).length;
  const times = results.map(({ samples }) => summariseRatio(samples, base.samples, 1).median);
  const measured = searches.flatMap(({ trials }) => trials).filter(({ measurement }) => measurement.status === "ok");
  const unknown = measured.filter(({ conditions }) => !conditions.affinity).length;
  const silent = searches.filter(({ waits, waitedSeconds }) => waitedSeconds > 5 && waits.length === 0).length;
  return [
    `The intervals of ${met} of ${others.length} winners that were found beside other searches overlap that of the lone winner. In turns the slowest takes ${Math.max(...times).toFixed(3)} times as long as the lone winner.`,
    `${measured.length - unknown} of ${measured.length} measured trials record their processors. ${silent} searches waited for more than 5 s without a word.`,
  ];
}

try {
  // 1. Calibration takes all cores, so it runs once, first, and every database starts with its figures.
  execFileSync(process.execPath, [main, "calibrate", "--db", calibrated], { stdio: ["ignore", "ignore", "inherit"] });
  const searches: Search[] = [];
  for (const count of values["at-once"].split(",").map(Number)) {
    const names = Array.from({ length: count }, (_, i) => `${i + 1} of ${count}`);
    console.error(`${count} at once ...`);
    searches.push(...(await Promise.all(names.map(tune))));
  }
  const [lone] = searches;
  if (!lone) throw new Error("no search");

  // 2. All winners in alternating batches.
  const results = await inTurns(searches);
  const [base] = results;
  if (!base) throw new Error("no result");
  const rows = searches.map((search, i) => rowOf(search, lone, results[i] ?? base, base));

  // 3. The page.
  const { environment } = lone.winner;
  const subjectText = `\`tune ${subject.join(" ")} --trials ${values.trials}\``;
  const about = `${environment.cpu} (${cpus().length} processors), ${environment.compiler.version}, ${new Date().toISOString().slice(0, 10)}; ${subjectText} in each process.`;
  const text = [
    "# Searches that run at once",
    about,
    table(HEAD, rows).join("\n"),
    ...conclusions(searches, lone, results, base),
  ].join("\n\n");
  console.log(text);
  for (const { name, waits } of searches) for (const line of waits) console.log(`${name}: ${line}`);
  if (values.out !== undefined) writeFileSync(`${values.out}.md`, `${text}\n`);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
