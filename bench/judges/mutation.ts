/**
 * @file Asks whether the tests would notice a fault: puts small ones into the sources, one at a time, and runs the tests that reach it.
 *
 *     npm run build
 *     node dist/bench/judges/mutation.js --seeds 1,2 --count 75                  two samples of 75 mutants over all folders, by their tokens
 *     node dist/bench/judges/mutation.js --at db/open.ts:209,db/best.ts:88      every mutant of these lines
 *     node dist/bench/judges/mutation.js --quick                                 no long or deep files
 *     node dist/bench/judges/mutation.js --jobs 16 --minutes 9                   as many runs of tests at once, ended after nine minutes
 *     node dist/bench/judges/mutation.js --state mutants.jsonl                   continues what this file holds, here or on another machine
 *     node dist/bench/judges/mutation.js --out bench/results/mutation            also writes the page
 *
 * 1. Draws mutants (test/support/drawn/source-mutations.ts) that pass the type check of their own file. A change of a type that other
 *    files alone would reject counts as live.
 * 2. Copies the checkout into --folder and puts all mutants into its sources, each behind a switch. No mutant is on yet.
 * 3. Runs every test file by itself once, those that take longest first, and notes which mutants it reaches, in its own process and in those
 *    that it starts. A file that fails without any mutant is left out.
 * 4. Turns on one mutant at a time and runs the files that reach it until one fails: quick files first, then long, then deep ones, and among
 *    them those that reach the fewest mutants. A run that takes much longer than before fails. The file that failed is run again at once without
 *    a mutant, and catches the mutant only if it passes; else it is left out, since it failed for the load of the machine. A mutant that no file
 *    reaches survives.
 *
 * The same command again continues where it ended: mutants, what each file reaches and every verdict are lines of the state, written as soon as
 * they are known. A test that has changed since is run again, and what it reaches noted again, so after adding tests the same command says which
 * survivors they catch. Neither a clone nor a network is needed, and tests see no GPU: several runs at once would disturb each other on it.
 * Mutants that cannot change any result stand in suites/equivalent-mutants.json, each with the reason.
 */

import { execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import {
  appendFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join, relative, resolve } from "node:path";
import pLimit from "p-limit";
import ts from "typescript";
import { UsageError } from "../../abstraction/error.ts";
import { seededRandom, shuffled } from "../../abstraction/random.ts";
import { type Mutant, mutantsOf, mutated, switched } from "../../test/support/drawn/source-mutations.ts";
import { readOptions } from "../support/options.ts";

const { values } = readOptions({
  options: {
    /** Mutants of each sample. */
    count: { type: "string", default: "75" },
    seeds: { type: "string", default: "1,2" },
    /** Lines whose mutants are judged instead: FILE:LINE, with commas between them. */
    at: { type: "string" },
    folder: { type: "string", default: join(tmpdir(), "automap-mutation") },
    /** What is known so far. It stands in --folder unless it is named. */
    state: { type: "string" },
    /** After this long the runs of tests that are not over are given up. */
    minutes: { type: "string", default: "600" },
    jobs: { type: "string", default: "1" },
    /** Whether the long and deep test files are left out. */
    quick: { type: "boolean", default: false },
    out: { type: "string" },
  },
});

const ROOT = resolve(import.meta.dirname, import.meta.filename.endsWith(".js") ? "../../.." : "../..");
/** The asked samples. */
const SAMPLES =
  values.at === undefined ? values.seeds.split(",").map((seed) => `${seed}-${values.count}`) : [values.at];
const FOLDER = resolve(values.folder, values.at === undefined ? SAMPLES.join("-") : hashOf(values.at));
const STATE = values.state === undefined ? join(FOLDER, "state.jsonl") : resolve(values.state);
const COPY = join(FOLDER, "tree");
/** Comes first on the PATH of the tests, with a driver that tells of no GPU. */
const NO_GPU = join(FOLDER, "no-gpu");
const NOT_ROOMS = ["test", "bench", "docs", "examples"];
const NOT_COPIED = /(^|\/)(node_modules|dist|coverage|\.git)(\/|$)/;
/** In this order a mutant meets the test files. */
const KINDS: readonly Kind[] = values.quick ? ["quick"] : ["quick", "long", "deep"];
/** A run may take this many times as long as it did without a mutant, and a minute more. */
const PATIENCE = 3;
const LEAST_MS = 60_000;
/** Beginning a file costs this; a process of its own, about twice this. */
const START_S = 1.5;
/** One process runs files until they take this long, but no more than so many. */
const BATCH_S = 20;
const BATCH = 25;
/** What a file takes of which nothing is known. */
const UNKNOWN_S = { quick: 1, long: 10, deep: 10 };

/** Loaded first by every process of Node: one mutant is on, or those that a test file reaches are written down. */
const SWITCH = `import { appendFileSync } from "node:fs";
const { MUTANT, MUTANTS_REACHED } = process.env;
const on = Number(MUTANT ?? "-1");
const seen = new Set();
globalThis.mutant = (number) => {
  if (MUTANTS_REACHED !== undefined && !seen.has(number)) {
    seen.add(number);
    appendFileSync(MUTANTS_REACHED, number + " " + process.env.MUTANTS_TEST + "\\n");
  }
  return number === on;
};
`;
const SETUP = `import { expect } from "vitest";
process.env["MUTANTS_TEST"] = expect.getState().testPath;
`;
/** What modules do when they are imported counts for each file that imports them, so each is alone while that is noted. */
const CONFIG = `import { defineConfig } from "vitest/config";
import base from "./vitest.config.ts";
const { projects, ...test } = base.test;
const alone = process.env["MUTANTS_REACHED"] !== undefined;
const ours = projects.map((p) => ({ ...p, test: { ...p.test, isolate: alone || p.test.isolate !== false } }));
export default defineConfig({ ...base, test: { ...test, projects: ours, setupFiles: ["./mutation-setup.ts"] } });
`;

/** A mutant that was drawn; its place is found again by its text when the source has changed. */
interface Chosen extends Mutant {
  readonly sample: string;
  readonly was: string;
}
/** What a test file does without a mutant. */
interface Reach {
  readonly file: string;
  readonly hash: string;
  readonly failed: boolean;
  readonly seconds: number;
  readonly mutants: readonly number[];
  /** So many mutants there were when this was noted. */
  readonly of: number;
}
/** What a test file says of a mutant. */
interface Verdict {
  readonly mutant: number;
  readonly file: string;
  readonly hash: string;
  /** Name of the test that failed; empty when all passed. */
  readonly caught: string;
}
/** A line of the state. */
interface Known {
  readonly chosen?: Chosen;
  readonly reach?: Reach;
  readonly verdict?: Verdict;
}
/** Test files that are to judge a mutant in one process. */
interface Task {
  readonly mutant: number;
  readonly kind: Kind;
  /** How many processes judge the mutant before, among those of its kind. */
  readonly nth: number;
  readonly batch: readonly Reach[];
}
type Kind = "quick" | "long" | "deep";

/** So many runs of tests at once. */
const inTurn = pLimit(Number(values.jobs));
let runs = 0;

const until = Date.now() + Number(values.minutes) * 60_000;
mkdirSync(FOLDER, { recursive: true });
const files = readdirSync(ROOT, { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile())
  .map((entry) => relative(ROOT, join(entry.parentPath, entry.name)))
  .filter((file) => !NOT_COPIED.test(file));
const sources = files.filter((file) => file.endsWith(".ts") && !file.endsWith(".d.ts") && isOfRoom(file));
const tests = files.filter((file) => /^test\/.*\.test\.ts$/.test(file) && KINDS.some((kind) => kind === kindOf(file)));
const textOf = (file: string): string => readFileSync(join(ROOT, file), "utf8");

const chosen: Chosen[] = [];
const reaches = new Map<string, Reach>();
const verdicts: Verdict[] = [];
for (const known of readState()) keep(known);
for (const sample of SAMPLES)
  if (!chosen.some((mutant) => mutant.sample === sample))
    for (const mutant of chooseMutants(sample)) note({ chosen: mutant });
const placed = chosen.map((mutant) => placeOf(mutant));
copyTree();
/** Of the files of the copy, since the checkout may change meanwhile. */
const hashes = new Map(tests.map((file) => [file, hashOf(readFileSync(join(COPY, file), "utf8"))]));
await noteReaches();
const tasks = [...chosen.keys()].flatMap((mutant) => [...tasksOf(mutant)]);
tasks.sort((a, b) => KINDS.indexOf(a.kind) - KINDS.indexOf(b.kind) || a.nth - b.nth);
await inTurn.map(tasks, (task) => judge(task));
const page = printed();
console.log(page);
if (values.out !== undefined) writeFileSync(`${values.out}.md`, page);

function isOfRoom(file: string): boolean {
  return file.includes("/") ? !NOT_ROOMS.includes(roomOf(file)) : file === "automap.ts";
}

function roomOf(file: string): string {
  return file.split("/", 1)[0] ?? "";
}

function hashOf(text: string): string {
  return createHash("sha256").update(text).digest("hex").slice(0, 12);
}

function kindOf(file: string): Kind {
  if (file.includes(".deep.")) return "deep";
  return file.includes(".long.") ? "long" : "quick";
}

function readState(): Known[] {
  if (!existsSync(STATE)) return [];
  const lines = readFileSync(STATE, "utf8").split("\n");
  // A run that was killed may have left half a line.
  if (lines.pop() !== "") writeFileSync(STATE, lines.map((line) => `${line}\n`).join(""));
  return lines.map((line) => JSON.parse(line) as Known); // only this script writes there
}

function keep({ chosen: mutant, reach, verdict }: Known): void {
  if (mutant) chosen.push(mutant);
  if (reach) reaches.set(reach.file, reach);
  if (verdict) verdicts.push(verdict);
}

function note(known: Known): void {
  appendFileSync(STATE, `${JSON.stringify(known)}\n`);
  keep(known);
}

/** Mutants of the given lines, or drawn from each room in proportion to its tokens. */
function* chooseMutants(sample: string): Generator<Chosen> {
  const isSound = typeChecker();
  const chosenIn = (file: string): Chosen[] => {
    const source = textOf(file);
    return mutantsOf(file, source).map((mutant) => ({
      ...mutant,
      sample,
      was: source.slice(mutant.start, mutant.end),
    }));
  };
  if (values.at !== undefined) {
    for (const place of values.at.split(",")) {
      const [file = "", line] = place.split(":");
      if (!sources.includes(file)) throw new UsageError(`--at: there is no source file ${file}`);
      yield* chosenIn(file).filter((mutant) => mutant.line === Number(line) && isSound(mutant));
    }
    return;
  }
  const rooms = [...new Set(sources.map(roomOf))].sort();
  const tokens = rooms.map((room) => sum(sources.filter((f) => roomOf(f) === room).map((f) => tokensOf(textOf(f)))));
  const random = seededRandom(Number(sample.split("-")[0]));
  let given = 0;
  let before = 0;
  for (const [k, room] of rooms.entries()) {
    before += tokens[k] ?? 0;
    // Cumulative rounding, so that the counts add up.
    const upTo = Math.round((Number(values.count) * before) / sum(tokens));
    const all = sources.filter((file) => roomOf(file) === room).flatMap(chosenIn);
    for (const mutant of shuffled(random, all)) {
      if (given === upTo) break;
      if (!isSound(mutant)) continue;
      given++;
      yield mutant;
    }
  }
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((a, b) => a + b, 0);
}

function tokensOf(source: string): number {
  const scanner = ts.createScanner(ts.ScriptTarget.ES2023, true, ts.LanguageVariant.Standard, source);
  let count = 0;
  while (scanner.scan() !== ts.SyntaxKind.EndOfFileToken) count++;
  return count;
}

/** Whether the file of a mutant has no errors with it. */
function typeChecker(): (mutant: Mutant) => boolean {
  const { config } = ts.readConfigFile(join(ROOT, "tsconfig.json"), ts.sys.readFile);
  const { options } = ts.parseJsonConfigFileContent(config, ts.sys, ROOT);
  const changed = new Map<string, { readonly text: string; readonly version: number }>();
  let version = 0;
  const service = ts.createLanguageService({
    getCompilationSettings: () => options,
    getScriptFileNames: () => sources.map((file) => join(ROOT, file)),
    getScriptVersion: (file) => String(changed.get(file)?.version ?? 0),
    getScriptSnapshot: (file) => {
      const text = changed.get(file)?.text ?? ts.sys.readFile(file);
      return text === undefined ? undefined : ts.ScriptSnapshot.fromString(text);
    },
    getCurrentDirectory: () => ROOT,
    getDefaultLibFileName: ts.getDefaultLibFilePath,
    fileExists: ts.sys.fileExists,
    readFile: ts.sys.readFile,
    readDirectory: ts.sys.readDirectory,
    directoryExists: ts.sys.directoryExists,
    getDirectories: ts.sys.getDirectories,
  });
  return (mutant) => {
    const file = join(ROOT, mutant.file);
    changed.set(file, { text: mutated(textOf(mutant.file), mutant), version: ++version });
    const found = [...service.getSyntacticDiagnostics(file), ...service.getSemanticDiagnostics(file)];
    changed.set(file, { text: textOf(mutant.file), version: ++version });
    return found.length === 0;
  };
}

/** The mutant in the present source; undefined when that has changed too much. */
function placeOf({ file, line, kind, text, was }: Chosen): Mutant | undefined {
  if (!sources.includes(file)) return undefined;
  const source = textOf(file);
  return mutantsOf(file, source)
    .filter((m) => m.kind === kind && m.text === text && source.slice(m.start, m.end) === was)
    .sort((a, b) => Math.abs(a.line - line) - Math.abs(b.line - line))[0];
}

/** The checkout with all mutants in it, each off, and what its tests need: a build, the switch, and its configuration. */
function copyTree(): void {
  rmSync(COPY, { recursive: true, force: true });
  for (const file of files) {
    mkdirSync(dirname(join(COPY, file)), { recursive: true });
    const own = placed.flatMap((mutant, k) => (mutant?.file === file ? [[k, mutant] as const] : []));
    if (own.length === 0) cpSync(join(ROOT, file), join(COPY, file));
    else writeFileSync(join(COPY, file), switched(textOf(file), own));
  }
  symlinkSync(join(ROOT, "node_modules"), join(COPY, "node_modules"));
  mkdirSync(NO_GPU, { recursive: true });
  writeFileSync(join(NO_GPU, "nvidia-smi"), "#!/bin/sh\nexit 9\n", { mode: 0o755 });
  writeFileSync(join(COPY, "mutation-switch.mjs"), SWITCH);
  writeFileSync(join(COPY, "mutation-setup.ts"), SETUP);
  writeFileSync(join(COPY, "mutation.config.ts"), CONFIG);
  const inCopy = { cwd: COPY, stdio: "inherit" } as const;
  execFileSync("node", ["node_modules/typescript/lib/tsc.js", "-p", "tsconfig.build.json"], inCopy);
  execFileSync("node", ["build-assets.mjs"], inCopy);
}

/** Runs test files without mutants, unless they passed so since they last changed. Those that take longest come first. */
async function noteReaches(): Promise<void> {
  const left = tests
    .filter((file) => !isNoted(file) || reaches.get(file)?.failed)
    .sort((a, b) => secondsOf(b) - secondsOf(a));
  await inTurn.map([...inBatches(left, (file) => secondsOf(file))], async (batch) => {
    const list = join(FOLDER, `reached-${runs}.txt`);
    writeFileSync(list, "");
    const results = await runTests(batch, { MUTANTS_REACHED: list }, 10 * LEAST_MS);
    if (!results) return;
    const lines = readFileSync(list, "utf8").split("\n").slice(0, -1);
    const reached = lines.map((line) => line.split(" ")).map(([n, file = ""]) => ({ n: Number(n), file }));
    for (const file of batch) {
      const { failure, seconds } = results.get(file) ?? { failure: "it was not run", seconds: 0 };
      const mutants = [...new Set(reached.filter((r) => r.file === join(COPY, file)).map((r) => r.n))];
      const hash = hashes.get(file) ?? "";
      note({ reach: { file, hash, failed: failure !== "", seconds, mutants, of: chosen.length } });
      if (failure !== "") console.error(`${file} fails without any mutant: ${failure}`);
    }
    rmSync(list);
  });
}

function isNoted(file: string): boolean {
  const reach = reaches.get(file);
  return reach?.hash === hashes.get(file) && reach?.of === chosen.length;
}

function secondsOf(file: string): number {
  return reaches.get(file)?.seconds ?? UNKNOWN_S[kindOf(file)];
}

/** Files that reach a mutant and have not passed with it. */
function filesFor(mutant: number): Reach[] {
  if (!placed[mutant] || equivalence(mutant) !== undefined || catching(mutant)) return [];
  const passed = new Set(verdicts.filter((v) => v.mutant === mutant).map(({ file, hash }) => `${file} ${hash}`));
  return tests
    .filter((file) => isNoted(file))
    .flatMap((file) => reaches.get(file) ?? [])
    .filter(({ file, hash, failed, mutants }) => !failed && mutants.includes(mutant) && !passed.has(`${file} ${hash}`));
}

/** The verdict of the test file that fails with a mutant. */
function catching(mutant: number): Verdict | undefined {
  return verdicts.find((v) => v.mutant === mutant && v.caught !== "");
}

function* tasksOf(mutant: number): Generator<Task> {
  const all = filesFor(mutant).sort((a, b) => a.mutants.length - b.mutants.length || a.seconds - b.seconds);
  for (const kind of KINDS) {
    const batches = inBatches(
      all.filter(({ file }) => kindOf(file) === kind),
      ({ seconds }) => seconds,
    );
    let nth = 0;
    for (const batch of batches) yield { mutant, kind, nth: nth++, batch };
  }
}

/** Runs test files with a mutant, unless it has been caught meanwhile. */
async function judge({ mutant, batch }: Task): Promise<void> {
  if (catching(mutant)) return;
  const seconds = sum(batch.map((reach) => reach.seconds + START_S));
  const names = batch.map(({ file }) => file);
  const ms = LEAST_MS + PATIENCE * seconds * 1000;
  const results = await runTests(names, { MUTANT: String(mutant) }, ms);
  if (!results) return;
  const of = (file: string): string => results.get(file)?.failure ?? "";
  // After a failure the rest is not run, and a run that does not end fails for all of its files.
  const failing = batch.filter(({ file }) => of(file) !== "");
  const again = failing.map(({ file }) => file);
  const without = failing.length === 0 ? results : await runTests(again, {}, ms);
  if (!without) return;
  const unsteady = failing.filter(({ file }) => without.get(file)?.failure !== "");
  for (const reach of unsteady) {
    note({ reach: { ...reach, failed: true } });
    console.error(
      `${reach.file} fails without any mutant, too: ${without.get(reach.file)?.failure ?? "it was not run"}`,
    );
  }
  if (unsteady.length > 0) return;
  for (const { file, hash } of failing.length > 0 ? failing.slice(0, 1) : batch)
    note({ verdict: { mutant, file, hash, caught: of(file) } });
}

function* inBatches<T>(items: readonly T[], seconds: (item: T) => number): Generator<readonly T[]> {
  let batch: T[] = [];
  let all = 0;
  for (const item of items) {
    const own = seconds(item) + START_S;
    if (batch.length === BATCH || (batch.length > 0 && all + own > BATCH_S)) {
      yield batch;
      batch = [];
      all = 0;
    }
    batch.push(item);
    all += own;
  }
  if (batch.length > 0) yield batch;
}

interface Result {
  /** The first test that failed; empty when all passed. */
  readonly failure: string;
  readonly seconds: number;
}

/**
 * The result of each file that was run. A run that is not over in time has failed, and so has one that ends without a report. Nothing when all
 * time is over, or would be before the run is.
 */
async function runTests(
  names: readonly string[],
  variables: Readonly<Record<string, string>>,
  ms: number,
): Promise<Map<string, Result> | undefined> {
  if (Date.now() + 1000 * sum(names.map((name) => secondsOf(name))) > until) return undefined;
  const run = runs++;
  const report = join(FOLDER, `report-${run}.json`);
  const temporary = join(FOLDER, `tmp-${run}`);
  mkdirSync(temporary, { recursive: true });
  const env = {
    ...process.env,
    ...variables,
    PATH: `${NO_GPU}${delimiter}${process.env["PATH"]}`,
    TMPDIR: temporary,
    NODE_OPTIONS: `--import=${COPY}/mutation-switch.mjs`,
  };
  const bail = variables["MUTANT"] === undefined ? [] : ["--bail=1"];
  const child = spawn(
    process.execPath,
    [
      "node_modules/vitest/vitest.mjs",
      "run",
      "--config=mutation.config.ts",
      "--maxWorkers=1",
      "--reporter=json",
      `--outputFile=${report}`,
      ...bail,
      ...names,
    ],
    // A group of its own, so that what a test has started ends with it.
    { cwd: COPY, env, stdio: "ignore", detached: true },
  );
  let late = false;
  const timer = setTimeout(
    () => {
      late = true;
      process.kill(-(child.pid ?? 0), "SIGKILL");
    },
    Math.min(ms, until - Date.now()),
  );
  const [code] = (await once(child, "exit")) as [number | null, string | null]; // Node's documented arguments
  clearTimeout(timer);
  const results = resultsIn(report);
  rmSync(report, { force: true });
  rmSync(temporary, { recursive: true, force: true });
  if (late && Date.now() >= until) return undefined;
  const isTold = code === 0 || [...results.values()].some(({ failure }) => failure !== "");
  if (isTold && !late) return results;
  const failure = late ? `no end after ${Math.round(ms / 1000)} s` : "the run ended";
  return new Map(names.map((name) => [name, { failure, seconds: 0 }]));
}

/** What Vitest reports, in Jest's format. */
interface Report {
  readonly testResults: readonly {
    readonly name: string;
    readonly status: string;
    readonly message: string;
    readonly startTime: number;
    readonly endTime: number;
    readonly assertionResults: readonly { readonly status: string; readonly fullName: string }[];
  }[];
}

function resultsIn(report: string): Map<string, Result> {
  if (!existsSync(report)) return new Map();
  const { testResults } = JSON.parse(readFileSync(report, "utf8")) as Report; // checked by what it is used for
  return new Map(
    testResults.map(({ name, status, message, startTime, endTime, assertionResults }) => {
      const failed = assertionResults.find((one) => one.status === "failed");
      const failure = status === "passed" ? "" : (failed?.fullName ?? (message || "it failed"));
      return [relative(COPY, name), { failure, seconds: (endTime - startTime) / 1000 }];
    }),
  );
}

/** Why a mutant cannot change any result; undefined when it may. */
function equivalence(mutant: number): string | undefined {
  interface Equivalent extends Pick<Chosen, "file" | "was" | "text"> {
    /** Where the file has more such places: the line. */
    readonly line?: string;
    readonly because: string;
  }
  const known = JSON.parse(textOf("bench/suites/equivalent-mutants.json")) as readonly Equivalent[]; // a file of ours
  const { was } = chosen[mutant] ?? {};
  const place = placed[mutant];
  if (!place) return undefined;
  const line = textOf(place.file).split("\n")[place.line - 1]?.trim();
  return known.find(
    (k) => k.file === place.file && k.was === was && k.text === place.text && (k.line === undefined || k.line === line),
  )?.because;
}

/** What has become of a mutant: `caught by` a kind of files, or one of the other columns of the table. */
function stateOf(mutant: number): string {
  if (equivalence(mutant) !== undefined) return "cannot change a result";
  const verdict = catching(mutant);
  if (verdict) return `caught by ${kindOf(verdict.file)}`;
  if (!placed[mutant]) return "gone";
  return filesFor(mutant).length > 0 || tests.some((file) => !isNoted(file)) ? "not judged to the end" : "survived";
}

/** For each sample a table by room, then every survivor. */
function printed(): string {
  const states = [...chosen.keys()].map((mutant) => stateOf(mutant));
  const columns = [
    "gone",
    "cannot change a result",
    ...KINDS.map((kind) => `caught by ${kind}`),
    "survived",
    "not judged to the end",
  ];
  const lines: string[] = [];
  const row = (name: string, numbers: readonly number[]): void => {
    const count = (state: string): number => numbers.filter((mutant) => states[mutant] === state).length;
    const caught = sum(KINDS.map((kind) => count(`caught by ${kind}`)));
    const judged = caught + count("survived");
    const share = judged === 0 ? "" : `${Math.round((100 * caught) / judged)} %`;
    lines.push(`| ${[name, numbers.length, ...columns.map(count), share].join(" | ")} |`);
  };
  for (const sample of new Set(chosen.map((mutant) => mutant.sample))) {
    const numbers = [...chosen.keys()].filter((mutant) => chosen[mutant]?.sample === sample);
    const roomOfMutant = (mutant: number): string => roomOf(chosen[mutant]?.file ?? "");
    lines.push(`Sample ${sample}`, "", `| folder | mutants | ${columns.join(" | ")} | caught of judged |`);
    lines.push(`|${"---|".repeat(columns.length + 3)}`);
    for (const room of new Set(numbers.map(roomOfMutant)))
      row(
        room,
        numbers.filter((mutant) => roomOfMutant(mutant) === room),
      );
    row("all", numbers);
    lines.push("");
    for (const k of numbers.filter((mutant) => ["survived", "not judged to the end"].includes(states[mutant] ?? ""))) {
      const { file = "", line = 0, kind = "", text = "" } = placed[k] ?? {};
      const { was = "" } = chosen[k] ?? {};
      const tried = verdicts.filter((v) => v.mutant === k).length;
      const short = (code: string) => code.replaceAll(/\s+/g, " ").slice(0, 100);
      lines.push(
        `- ${file}:${line} ${kind}: \`${short(was)}\` -> \`${short(text)}\`, passed by ${tried} files of tests, ${states[k]}`,
      );
    }
    lines.push("");
  }
  const failing = tests.filter((file) => isNoted(file) && reaches.get(file)?.failed);
  if (failing.length > 0) lines.push(`Left out, since they fail without any mutant: ${failing.join(", ")}`);
  return `${lines.join("\n").trimEnd()}\n`;
}
