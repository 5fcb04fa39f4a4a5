/**
 * @file How many kernels a second a search makes where compiling them takes longer than measuring them: at home, and in a fleet with more and more
 * workers that only compile, each on a core of its own.
 *
 *     node dist/bench/fleet/compilers.js                                                    with redis-server of the PATH
 *     node dist/bench/fleet/compilers.js --redis ./redis-server --compilers 0,2 --trials 24 -- --strategy random
 *
 * Every setting begins with empty caches but for the rates of the machine. The first round, in which headers are read and inputs drawn, is not
 * counted. Core 0 measures, core 1 searches, the last has the server and this script. On a machine with fewer cores some share one.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { z } from "zod";
import { sumOf, upTo } from "../../abstraction/collections.ts";
import { openDatabase, queryTrials } from "../../db/index.ts";
import { admit, createFleet } from "../../fleet/members.ts";
import { counted } from "../../report/text.ts";
import { coresHere } from "../../runtime/processor.ts";
import { cpuName, percent, table } from "../support/frame.ts";
import { readOptions } from "../support/options.ts";

const { values, positionals } = readOptions({
  options: {
    redis: { type: "string", default: "redis-server" },
    /** Where the server finds its libraries, if they are not this machine's. */
    libraries: { type: "string" },
    /** Cores of the searches at home; 0 for none. */
    home: { type: "string", default: "1,2" },
    /** How many workers that only compile. */
    compilers: { type: "string", default: "0,1,2,4" },
    /** Kernels of each search. */
    trials: { type: "string", default: "40" },
    /** Seconds that each search may take. */
    time: { type: "string", default: "30" },
    seed: { type: "string", default: "1" },
  },
  allowPositionals: true,
});

/** Computations of a few microseconds. */
const CASES = [
  "matmul --m 64 --n 64 --k 64 --dtype f32",
  "matmul --m 128 --n 128 --k 128 --dtype u8s8",
  "conv2d --c 16 --k 16 --h 14 --w 14 --r 3 --s 3 --dtype u8s8",
];
const MAIN = fileURLToPath(new URL("../../cli/main.js", import.meta.url));
const SAMPLE_MS = 50;

/** One processor of each core, in turn where there are too few. */
const cores = coresHere().flatMap(({ cpus }) => cpus.slice(0, 1));
const coreAt = (i: number): number => cores[i % cores.length] ?? 0;
const MEASURES = coreAt(0);
const SEARCHES = coreAt(1);
const SERVES = coreAt(cores.length - 1);
const COMPILE = upTo(16).map((i) => coreAt(i + 2));

const folder = mkdtempSync(join(tmpdir(), "automap-compilers-"));
const children: ChildProcess[] = [];
/** Processor time of each processor that was not idle, in jiffies, and that of all. */
interface Sample {
  readonly at: number;
  readonly busy: readonly number[];
  readonly all: readonly number[];
}
const samples: Sample[] = [];
/** Kernels a second in the first setting. */
let firstRate: number | undefined;

/** Rounds of one search after its first. */
interface Searched {
  readonly kernels: number;
  readonly seconds: number;
  /** Seconds of the search in each of its activities. */
  readonly parts: ReadonlyMap<string, number>;
  readonly busy: (cpu: number) => number;
}

const TRACE = z.object({
  traceEvents: z.array(z.object({ name: z.string(), dur: z.number(), args: z.object({ round: z.number() }) })),
});
const ROUND = 8;

const sampling = setInterval(() => samples.push(sampled()), SAMPLE_MS);
try {
  await once(started(["taskset", "-cp", String(SERVES), String(process.pid)], {}), "exit");
  process.stderr.write("the rates of this machine\n");
  const warm = join(folder, "warm");
  await automap(["calibrate", "--db", join(folder, "warm.db")], String(MEASURES), warm);

  const rows: string[][] = [];
  for (const count of numbersIn(values.home).filter((one) => one > 0)) {
    const own = [MEASURES, SEARCHES].slice(0, count);
    const setting = `at home, ${counted(count, "core")}`;
    rows.push(await rowOf(setting, own, (words, name) => automap(words, own.join(","), cacheOf(name))));
  }
  const address = await server();
  for (const count of numbersIn(values.compilers)) rows.push(await inFleet(address, count));

  const head = ["setting", "kernels", "kernels/s", "times", "proposing, ms a kernel", "to the first of a round"];
  const shares = ["between others", "searches", "measures", "compile", "busy s of compilers and measuring, a kernel"];
  process.stdout.write(`${cpuName()}, ${cores.length} cores\n\n${table([...head, ...shares], rows).join("\n")}\n`);
} finally {
  clearInterval(sampling);
  for (const child of children) child.kill("SIGKILL");
  rmSync(folder, { recursive: true, force: true });
}

async function inFleet(address: string, count: number): Promise<string[]> {
  const name = `fleet-${count}`;
  const keys = join(folder, `${name}-keys`);
  createFleet(keys);
  const desk = admit(keys, "desk", "tuner");
  const worker = (which: string, pin: number, ...words: readonly string[]): Promise<ChildProcess> => {
    const key = admit(keys, which, "worker");
    return readyWorker(["--fleet", address, "--key", key, "--pin", String(pin), ...words], cacheOf(`${name}-${which}`));
  };
  const compiling = COMPILE.slice(0, count);
  const workers = await Promise.all([
    worker("measures", MEASURES, "--compile", "0"),
    ...compiling.map((cpu, i) => worker(`compiles${i}`, cpu, "--measure", "none", "--compile", "1")),
  ]);
  const given = ["--fleet", address, "--fleet-key", desk];
  const row = await rowOf(`fleet, ${count} compile`, [MEASURES, ...compiling], (words) =>
    automap([...words, ...given], String(SEARCHES), join(folder, name)),
  );
  await Promise.all(
    workers.map((child) => {
      child.kill("SIGKILL");
      return once(child, "exit");
    }),
  );
  return row;
}

function numbersIn(list: string): number[] {
  return list.split(",").map(Number);
}

/** Searches all cases in one setting. @param working the processors that compile and measure */
async function rowOf(
  setting: string,
  working: readonly number[],
  tune: (words: readonly string[], name: string) => Promise<void>,
): Promise<string[]> {
  const found: Searched[] = [];
  for (const [i, one] of CASES.entries()) {
    process.stderr.write(`${setting}: ${one}\n`);
    const name = `${setting}-${i}`.replaceAll(/\W+/g, "-");
    const db = join(folder, `${name}.db`);
    const trace = join(folder, `${name}.json`);
    const limits = ["--trials", values.trials, "--time", values.time, "--seed", values.seed];
    await tune(["tune", ...one.split(" "), ...limits, "--db", db, "--trace", trace, "--quiet", ...positionals], name);
    found.push(searched(db, trace));
  }
  const kernels = sumOf(found, (one) => one.kernels);
  const seconds = sumOf(found, (one) => one.seconds);
  const part = (...names: readonly string[]): string =>
    ((1000 * sumOf(found, ({ parts }) => sumOf(names, (name) => parts.get(name) ?? 0))) / kernels).toFixed(0);
  const busy = (cpu: number): number => sumOf(found, (one) => one.busy(cpu));
  const share = (cpus: readonly number[]): string =>
    cpus.length === 0 ? "" : `${percent(sumOf(cpus, busy) / cpus.length / seconds)} %`;
  const rate = kernels / seconds;
  firstRate ??= rate;
  const row = [
    setting,
    String(kernels),
    rate.toFixed(2),
    (rate / firstRate).toFixed(2),
    part("proposing", "writing"),
    part("compiling"),
    part("measuring"),
    share([SEARCHES]),
    share([MEASURES]),
    share(working.slice(1)),
    (sumOf(working, busy) / kernels).toFixed(3),
  ];
  // For whoever waits, or ends it before the table is there.
  process.stderr.write(`${row.join(" | ")}\n`);
  return row;
}

/** Reads what a search recorded of itself after its first round. */
function searched(file: string, trace: string): Searched {
  const db = openDatabase(file, { readonly: true });
  const times = queryTrials(db)
    .filter(({ finals }) => !finals)
    .map(({ at }) => at)
    .sort((a, b) => a - b);
  db.close();
  const from = times[ROUND - 1] ?? Number.NaN;
  const to = times.at(-1) ?? Number.NaN;
  const { traceEvents } = TRACE.parse(JSON.parse(readFileSync(trace, "utf8")));
  const parts = new Map<string, number>();
  for (const { name, dur, args } of traceEvents)
    if (args.round > 1) parts.set(name, (parts.get(name) ?? 0) + dur / 1e6);
  const within = samples.filter(({ at }) => at >= from && at <= to);
  const [first] = within;
  const last = within.at(-1);
  const busy = (cpu: number): number => {
    const spent = (last?.busy[cpu] ?? 0) - (first?.busy[cpu] ?? 0);
    const all = (last?.all[cpu] ?? 0) - (first?.all[cpu] ?? 0);
    return all === 0 ? 0 : ((spent / all) * (to - from)) / 1000;
  };
  return { kernels: times.length - ROUND, seconds: (to - from) / 1000, parts, busy };
}

function sampled(): Sample {
  const lines = readFileSync("/proc/stat", "utf8").match(/^cpu\d+ .*$/gm) ?? [];
  const busy: number[] = [];
  const all: number[] = [];
  for (const line of lines) {
    const [cpu = "", ...times] = line.split(" ");
    const [user = 0, nice = 0, system = 0, idle = 0, waiting = 0] = times.map(Number);
    const index = Number(cpu.slice("cpu".length));
    busy[index] = user + nice + system;
    all[index] = user + nice + system + idle + waiting;
  }
  return { at: Date.now(), busy, all };
}

/** A cache of its own that knows the rates of the machine. */
function cacheOf(name: string): string {
  const cache = join(folder, name);
  const rates = join("automap", "calibrations");
  cpSync(join(folder, "warm", rates), join(cache, rates), { recursive: true });
  return cache;
}

/** Runs a command on some processors to its end. */
async function automap(words: readonly string[], cpus: string, cache: string): Promise<void> {
  const pinned = ["taskset", "-c", cpus, process.execPath, MAIN, ...words];
  const [code] = await once(started(pinned, { XDG_CACHE_HOME: cache }), "exit");
  if (code !== 0) throw new Error(`automap ${words.join(" ")}: ${code}`);
}

/** A worker, once it takes jobs. */
async function readyWorker(words: readonly string[], cache: string): Promise<ChildProcess> {
  const child = started([process.execPath, MAIN, "worker", ...words], { XDG_CACHE_HOME: cache }, "pipe");
  let said = "";
  await new Promise<void>((resolve, reject) => {
    child.stderr?.on("data", (text) => {
      said += text;
      if (said.includes("Ctrl-C ends it")) resolve();
    });
    child.once("exit", () => reject(new Error(`a worker ended: ${said}`)));
  });
  return child;
}

/** Redis. @returns its address */
async function server(): Promise<string> {
  const free = createServer().listen(0, "127.0.0.1");
  await once(free, "listening");
  const address = free.address();
  const port = address !== null && typeof address === "object" ? address.port : 0;
  free.close();
  const words = ["--port", String(port), "--bind", "127.0.0.1", "--dir", folder, "--save", ""];
  const child = started([values.redis, ...words], { LD_LIBRARY_PATH: values.libraries }, "pipe");
  child.stderr?.pipe(process.stderr);
  await new Promise<void>((resolve, reject) => {
    child.stdout?.on("data", (text) => {
      if (String(text).includes("Ready to accept connections")) resolve();
    });
    child.once("exit", () => reject(new Error(`${values.redis} ended`)));
  });
  return `redis://127.0.0.1:${port}`;
}

function started(
  [program = "", ...words]: readonly string[],
  variables: NodeJS.ProcessEnv,
  output: "ignore" | "pipe" = "ignore",
): ChildProcess {
  const env = Object.fromEntries(
    Object.entries({ ...process.env, ...variables }).filter(([, value]) => value !== undefined),
  );
  const child = spawn(program, words, { env, stdio: ["ignore", output, output === "pipe" ? "pipe" : "inherit"] });
  children.push(child);
  return child;
}
