/**
 * @file Whether searches that run at once spoil each other: one alone, then several in processes of their own, each with its own database
 * and the same budget of trials; at the end all winners in one process, batches in turns.
 *
 *     npm run build
 *     node dist/bench/concurrent.js                                 one, two and four searches of a 512 cubed product of f32
 *     node dist/bench/concurrent.js --at-once 1,8 --trials 60 -- conv2d --dtype u8s8
 *
 * `times` is the winner's time over the lone winner's, in turns. `width` is that of the 95 % interval of its finals, as a share of the
 * median; `load` what other programs took of the processor meanwhile, the median of all trials and the most.
 */

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import type { Kernel } from "../abstraction/kernel.ts";
import { best, computationOf, openDatabase, queryTrials, type TrialRecord } from "../db/index.ts";
import { percent, table } from "../report/text.ts";
import { createRunner } from "../runtime/measure.ts";
import { median, summariseRatio } from "../runtime/statistics.ts";
import { kernelFor } from "../session/kernel.ts";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { "at-once": { type: "string", default: "1,2,4" }, trials: { type: "string", default: "40" } },
});
const SUBJECT = ["matmul", "--m", "512", "--n", "512", "--k", "512", "--dtype", "f32"];
const subject = positionals.length > 0 ? positionals : SUBJECT;
const folder = mkdtempSync(join(tmpdir(), "automap-concurrent-"));
const calibrated = join(folder, "calibrated.db");
const main = fileURLToPath(new URL("../cli/main.js", import.meta.url));

interface Search {
  readonly name: string;
  readonly seconds: number;
  /** What it said of waiting. */
  readonly waits: readonly string[];
  readonly winner: TrialRecord;
  readonly trials: readonly TrialRecord[];
}

function tune(name: string): Promise<Search> {
  const database = join(folder, `${name.replaceAll(" ", "-")}.db`);
  copyFileSync(calibrated, database);
  const words = ["tune", ...subject, "--trials", values.trials, "--time", "3600", "--db", database];
  const begun = performance.now();
  const child: ChildProcess = spawn(process.execPath, [main, ...words], { stdio: ["ignore", "ignore", "pipe"] });
  let said = "";
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    said += text;
  });
  return new Promise((resolve, reject) => {
    child.on("close", (code) => {
      if (code !== 0) {
        reject(new Error(`${name} ended with exit code ${code}:\n${said}`));
        return;
      }
      const db = openDatabase(database, { readonly: true });
      const [winner] = best(db);
      const trials = queryTrials(db);
      db.close();
      if (!winner) throw new Error(`${name} found nothing`);
      const waits = said.split("\n").filter((line) => line.startsWith("wait"));
      resolve({ name, seconds: (performance.now() - begun) / 1000, waits, winner, trials });
    });
  });
}

try {
  // 1. A calibration takes all cores: once, before, and every database begins with it.
  execFileSync(process.execPath, [main, "calibrate", "--db", calibrated], { stdio: ["ignore", "ignore", "inherit"] });
  const searches: Search[] = [];
  for (const count of values["at-once"].split(",").map(Number)) {
    const names = Array.from({ length: count }, (_, i) => `${i + 1} of ${count}`);
    searches.push(...(await Promise.all(names.map(tune))));
  }

  // 2. The winners in turns.
  const made = await createRunner();
  if (made.status === "environment") throw new Error(`${made.what}: ${made.remedy}`);
  const [lone] = searches;
  if (!lone) throw new Error("no search");
  const computation = computationOf(lone.winner.workload);
  const kernels = searches.map(({ winner }): Kernel => kernelFor(computation, winner.candidate));
  const reference = await made.runner.reference(computation, 1);
  const results = await made.runner.compareKernels(kernels, reference, { budgetSeconds: 1 });
  await made.runner.close();

  // 3. What came of it.
  const us = (seconds: number): string => (seconds * 1e6).toFixed(2);
  const rows = searches.map(({ name, seconds, waits, winner, trials }, i) => {
    const own = winner.measurement;
    const [alone, again] = [results[0], results[i]];
    if (own.status !== "ok" || alone?.status !== "ok" || again?.status !== "ok") return [name, "its winner failed"];
    const ratio = summariseRatio(again.samples, alone.samples, 1);
    const loads = trials.flatMap(({ conditions }) => conditions.load ?? []);
    const processors = new Set(trials.flatMap(({ conditions }) => conditions.affinity ?? []));
    const unknown = trials.filter(({ conditions, measurement }) => measurement.status === "ok" && !conditions.affinity);
    return [
      name,
      seconds.toFixed(1),
      us(own.median),
      percent((own.interval[1] - own.interval[0]) / own.median),
      `${ratio.median.toFixed(3)} (${ratio.interval.map((r) => r.toFixed(3)).join(" to ")})`,
      `${percent(median(loads))}, ${percent(Math.max(...loads))}`,
      [...processors].sort((a, b) => a - b).join(" "),
      String(unknown.length),
      String(waits.length),
    ];
  });
  const head = "search,seconds,us,width,times,load,processors,without,said it waited".split(",");
  console.log(
    `${cpus()[0]?.model.trim()}, ${cpus().length} processors; ${subject.join(" ")}, ${values.trials} trials each`,
  );
  console.log(`\n${table([head, ...rows])}\n`);
  for (const { name, waits } of searches) for (const line of waits) console.log(`${name}: ${line}`);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
