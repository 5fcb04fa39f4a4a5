/**
 * @file Kernels a second in a default search, for two builds in alternation, and which build's winner is faster.
 *
 *     npm run build                                              here, and in a checkout of the other version
 *     node dist/bench/versions/kernels-per-second.js --other ../before/dist --rounds 5
 *     node dist/bench/versions/kernels-per-second.js --other ../before/dist -- conv2d --dtype f32        another search
 *
 * Every search is a command with an empty compile cache and a database that holds only the machine's calibration.
 * Three rates come from dividing its kernels by different times:
 *
 *     to the last trial     from the start of the command, so drawing the space and computing the reference count
 *     in rounds             from writing the first kernel to be compiled to the last trial
 *     of the command        to its end, finals included
 *
 * The winners of a round are measured in turns in one process, each compiled from its own build's source.
 */

import { execFileSync } from "node:child_process";
import { copyFileSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { z } from "zod";
import type { Computation } from "../../abstraction/computation.ts";
import { UsageError } from "../../abstraction/error.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import type * as Records from "../../db/index.ts";
import { median, summariseRatio } from "../../runtime/statistics.ts";
import type * as Kernels from "../../session/kinds/kernel.ts";
import { cpuRunner, table, us } from "../support/frame.ts";
import { readOptions } from "../support/options.ts";

const { values, positionals } = readOptions({
  options: {
    other: { type: "string" },
    rounds: { type: "string", default: "5" },
    /** Seed of the first round; later rounds count up. */
    seed: { type: "string", default: "1" },
  },
  allowPositionals: true,
});
if (values.other === undefined) throw new UsageError("--other DIST: the built files of the version to compare with");
const BUILDS = { before: resolve(values.other), now: fileURLToPath(new URL("../..", import.meta.url)) } as const;
type Build = keyof typeof BUILDS;
const SEARCH = positionals.length > 0 ? positionals : ["conv2d"];
const FINAL = { budgetSeconds: 1, batches: [50, 5000] } as const;

interface Searched {
  readonly computation: Computation;
  readonly kernels: number;
  /** From the start of the command to the last trial. */
  readonly seconds: number;
  /** From the first kernel written to the last trial. */
  readonly roundSeconds: number;
  readonly commandSeconds: number;
  /** Processor time of all processes of the command. */
  readonly processorSeconds: number;
  readonly winner: Kernel;
}

const folder = mkdtempSync(join(tmpdir(), "automap-kernels-per-second-"));
const load = <T>(build: Build, file: string): Promise<T> =>
  import(pathToFileURL(join(BUILDS[build], file)).href) as Promise<T>; // the builds have the same names

/** Runs a command of a build. @returns processor seconds of it and its children */
function automap(build: Build, cache: string, words: readonly string[]): number {
  // The shell times its children: Node cannot.
  const script = 'TIMEFORMAT="%U %S"; time "$@" 2>/dev/null >/dev/null';
  const program = [process.execPath, join(BUILDS[build], "cli/main.js")];
  const run = execFileSync("bash", ["-c", `{ ${script}; } 2>&1`, "bash", ...program, ...words], {
    env: { ...process.env, XDG_CACHE_HOME: cache },
    encoding: "utf8",
  });
  return run
    .trim()
    .split(" ")
    .reduce((sum, text) => sum + Number(text), 0);
}

const TRACE = z.object({ traceEvents: z.array(z.object({ name: z.string(), ts: z.number(), dur: z.number() })) });

/** Seconds from the first kernel written to the last measured, from the trace of a search. */
function secondsOfRounds(text: string): number {
  const { traceEvents } = TRACE.parse(JSON.parse(text));
  const written = traceEvents.filter(({ name }) => name === "writing").map(({ ts }) => ts);
  const measured = traceEvents.filter(({ name }) => name === "measuring").map(({ ts, dur }) => ts + dur);
  return (Math.max(...measured) - Math.min(...written)) / 1e6;
}

async function search(build: Build, round: number): Promise<Searched> {
  const database = join(folder, `${build}-${round}.db`);
  const cache = join(folder, `${build}-${round}`);
  copyFileSync(join(folder, `${build}.db`), database);
  const trace = `${database}.trace.json`;
  const words = ["tune", ...SEARCH, "--seed", String(Number(values.seed) + round), "--db", database, "--trace", trace];
  const begun = Date.now();
  const processorSeconds = automap(build, cache, words);
  const commandSeconds = (Date.now() - begun) / 1000;
  const { openDatabase, queryTrials, computationOf } = await load<typeof Records>(build, "db/index.js");
  const { kernelFor } = await load<typeof Kernels>(build, "session/kinds/kernel.js");
  const db = openDatabase(database, { readonly: true });
  const records = queryTrials(db);
  db.close();
  rmSync(cache, { recursive: true, force: true });
  const won = records.find(({ finals }) => finals?.place === 1);
  if (!won) throw new Error(`${build}: a search without a winner`);
  const trials = records.filter(({ finals }) => finals === undefined);
  const computation = computationOf(won.workload);
  return {
    computation,
    kernels: trials.length,
    seconds: (Math.max(...trials.map(({ at }) => at)) - begun) / 1000,
    roundSeconds: secondsOfRounds(readFileSync(trace, "utf8")),
    commandSeconds,
    processorSeconds,
    winner: kernelFor(computation, won.candidate),
  };
}

/** The times of the winners of a round, in turns. */
async function compare(before: Searched, now: Searched): Promise<readonly (readonly number[])[]> {
  const runner = await cpuRunner();
  try {
    const reference = await runner.reference(now.computation, 1);
    const measured = await runner.compareKernels([before.winner, now.winner], reference, FINAL);
    return measured.map((m) => (m.status === "ok" ? m.samples : []));
  } finally {
    await runner.close();
  }
}

/** Columns of both builds. */
const FIGURES: Readonly<Record<string, (s: Searched) => number>> = {
  "a second to the last trial": (s) => s.kernels / s.seconds,
  "in rounds": (s) => s.kernels / s.roundSeconds,
  "of the command": (s) => s.kernels / s.commandSeconds,
  "processor s a kernel": (s) => s.processorSeconds / s.kernels,
};

try {
  for (const build of ["before", "now"] as const)
    automap(build, join(folder, "calibrating"), ["calibrate", "--db", join(folder, `${build}.db`)]);
  const titles = ["kernels", ...Object.keys(FIGURES)].flatMap((what) => [`${what}, before`, "now"]);
  console.log(table(["round", ...titles, "winner, before, us", "now, us", "now / before"], []).join("\n"));
  const rounds: { readonly before: Searched; readonly now: Searched; readonly ratio: number }[] = [];
  for (let round = 0; round < Number(values.rounds); round++) {
    // The build that goes first alternates.
    const order = round % 2 === 0 ? (["before", "now"] as const) : (["now", "before"] as const);
    const found = new Map<Build, Searched>();
    for (const build of order) found.set(build, await search(build, round));
    const before = found.get("before");
    const now = found.get("now");
    if (!before || !now) throw new Error("internal: a build was not run");
    const [a = [], b = []] = await compare(before, now);
    const { median: ratio, interval } = summariseRatio(b, a, 1);
    rounds.push({ before, now, ratio });
    const figures = Object.values(FIGURES).flatMap((of) => [before, now].map((s) => of(s).toFixed(2)));
    const within = interval.map((end) => end.toFixed(3)).join(" to ");
    const winners = [us(median(a)), us(median(b)), `${ratio.toFixed(3)} (${within})`];
    console.log(table([], [[round + 1, before.kernels, now.kernels, ...figures, ...winners]]).at(-1));
  }
  const both = (figure: string): string =>
    (["before", "now"] as const)
      .map((b) => median(rounds.map((r) => FIGURES[figure]?.(r[b]) ?? 0)).toFixed(2))
      .join(" and ");
  const [rate = "", inRounds = ""] = Object.keys(FIGURES);
  console.log(
    `\nMedians of ${rounds.length} rounds: ${both(rate)} kernels a second to the last trial, ${both(inRounds)} in rounds; the winner now takes ${median(rounds.map((r) => r.ratio)).toFixed(3)} of the time.`,
  );
} finally {
  rmSync(folder, { recursive: true, force: true });
}
