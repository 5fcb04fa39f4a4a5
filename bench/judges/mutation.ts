/**
 * @file Asks whether the tests would notice a fault: puts small ones into the sources, one at a time, and runs the tests that reach it.
 *
 *     npm run build
 *     node dist/bench/judges/mutation.js --count 150 --seed 1                    150 mutants over all folders, by their tokens
 *     node dist/bench/judges/mutation.js --at db/seal.ts:53,db/best.ts:88        every mutant of these lines
 *     node dist/bench/judges/mutation.js --jobs 16                               as many runs of tests at once
 *     node dist/bench/judges/mutation.js --out bench/results/mutation            also writes the page
 *
 * 1. Draws mutants (test/support/drawn/source-mutations.ts) that pass the type check of their own file. A change of a type that other
 *    files alone would reject counts as live.
 * 2. Copies the checkout into --folder and puts all mutants into its sources, each behind a switch. No mutant is on yet.
 * 3. Runs every test file by itself once and notes which mutants it reaches, in its own process and in those that it starts.
 *    A file that fails without any mutant is left out.
 * 4. Turns on one mutant at a time and runs the files that reach it until one fails: quick files first, and among them
 *    those that reach the fewest mutants. One that runs ten times as long as before fails. A mutant that no file reaches survives.
 *
 * The same command again continues where it ended; what has been judged is kept in --folder. A test that has changed since
 * is run again, and what it reaches noted again, so after adding tests the same command says which survivors they catch.
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
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative, resolve } from "node:path";
import pLimit from "p-limit";
import ts from "typescript";
import { UsageError } from "../../abstraction/error.ts";
import { seededRandom, shuffled } from "../../abstraction/random.ts";
import { type Mutant, mutantsOf, mutated, switched } from "../../test/support/drawn/source-mutations.ts";
import { readOptions } from "../support/options.ts";

const { values } = readOptions({
  options: {
    count: { type: "string", default: "150" },
    seed: { type: "string", default: "1" },
    /** Lines whose mutants are judged instead: FILE:LINE, with commas between them. */
    at: { type: "string" },
    folder: { type: "string", default: join(tmpdir(), "automap-mutation") },
    /** After this long no further mutant is begun. */
    minutes: { type: "string", default: "600" },
    jobs: { type: "string", default: "1" },
    /** Whether the long test files are left out. */
    quick: { type: "boolean", default: false },
    out: { type: "string" },
  },
});

const ROOT = resolve(import.meta.dirname, import.meta.filename.endsWith(".js") ? "../../.." : "../..");
const FOLDER = resolve(values.folder, values.at === undefined ? `${values.seed}-${values.count}` : hashOf(values.at));
const COPY = join(FOLDER, "tree");
const NOT_ROOMS = ["test", "bench", "docs", "examples"];
/** A file may take this many times as long as it did without a mutant, and no less than a minute. */
const PATIENCE = 10;
const LEAST_MS = 60_000;
/** Files of tests that one process runs. */
const FIRST_BATCH = 4;
const BATCH = 25;

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
export default defineConfig({ test: { ...test, projects: ours, setupFiles: ["./mutation-setup.ts"] } });
`;

/** A mutant that was drawn; its place is found again by its text when the source has changed. */
interface Chosen extends Mutant {
  readonly was: string;
}
/** What a test file does without a mutant. */
interface Reach {
  readonly file: string;
  readonly hash: string;
  readonly failed: boolean;
  readonly seconds: number;
  readonly mutants: readonly number[];
}
/** What a test file says of a mutant. */
interface Verdict {
  readonly mutant: number;
  readonly file: string;
  readonly hash: string;
  /** Name of the test that failed; empty when all passed. */
  readonly caught: string;
}

/** So many runs of tests at once. */
const inTurn = pLimit(Number(values.jobs));
let runs = 0;

const until = Date.now() + Number(values.minutes) * 60_000;
mkdirSync(FOLDER, { recursive: true });
const files = execFileSync("git", ["ls-files", "-co", "--exclude-standard"], { cwd: ROOT, encoding: "utf8" })
  .split("\n")
  .filter((file) => file !== "" && existsSync(join(ROOT, file)));
const sources = files.filter((file) => file.endsWith(".ts") && !file.endsWith(".d.ts") && isOfRoom(file));
const textOf = (file: string): string => readFileSync(join(ROOT, file), "utf8");
/** Of a file of the copy, since the checkout may change meanwhile. */
const hashOfCopy = (file: string): string => hashOf(readFileSync(join(COPY, file), "utf8"));

const chosen = readLines<Chosen>("chosen.jsonl");
if (chosen.length === 0) for (const mutant of chooseMutants()) note("chosen.jsonl", keep(chosen, mutant));
const placed = chosen.map((mutant) => placeOf(mutant));
copyTree();
const reaches = new Map(readLines<Reach>("reach.jsonl").map((reach) => [reach.file, reach]));
const verdicts = readLines<Verdict>("verdicts.jsonl");
const tests = files.filter((file) => /^test\/[^/]*\.test\.ts$/.test(file)).sort();
for (const isLong of values.quick ? [false] : [false, true]) {
  const these = tests.filter((file) => isLong === /\.(long|deep)\./.test(file));
  await noteReaches(these);
  // What few files reach is soon judged.
  const filesOf = (mutant: number): number => these.filter((f) => reaches.get(f)?.mutants.includes(mutant)).length;
  const order = [...chosen.keys()].sort((a, b) => filesOf(a) - filesOf(b));
  await inTurn.map(order, (mutant) => judge(mutant, these));
}
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

function readLines<T>(name: string): T[] {
  const file = join(FOLDER, name);
  if (!existsSync(file)) return [];
  const lines = readFileSync(file, "utf8").split("\n").slice(0, -1);
  return lines.map((line) => JSON.parse(line) as T); // only this script writes there
}

function note(name: string, what: unknown): void {
  appendFileSync(join(FOLDER, name), `${JSON.stringify(what)}\n`);
}

function keep<T>(list: T[], item: T): T {
  list.push(item);
  return item;
}

/** Mutants of the given lines, or drawn from each room in proportion to its tokens. */
function* chooseMutants(): Generator<Chosen> {
  const isSound = typeChecker();
  const chosenIn = (file: string): Chosen[] => {
    const source = textOf(file);
    return mutantsOf(file, source).map((mutant) => ({ ...mutant, was: source.slice(mutant.start, mutant.end) }));
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
  const random = seededRandom(Number(values.seed));
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
  writeFileSync(join(COPY, "mutation-switch.mjs"), SWITCH);
  writeFileSync(join(COPY, "mutation-setup.ts"), SETUP);
  writeFileSync(join(COPY, "mutation.config.ts"), CONFIG);
  const inCopy = { cwd: COPY, stdio: "inherit" } as const;
  execFileSync("node", ["node_modules/typescript/lib/tsc.js", "-p", "tsconfig.build.json", "--noCheck"], inCopy);
  execFileSync("node", ["build-assets.mjs"], inCopy);
}

/** Runs test files without mutants, unless that has been done since they last changed. */
async function noteReaches(these: readonly string[]): Promise<void> {
  const left = these.filter((file) => reaches.get(file)?.hash !== hashOfCopy(file));
  const size = Math.min(BATCH, Math.ceil(left.length / Number(values.jobs) / 2));
  await inTurn.map(
    inBatches(left, () => size),
    async (batch) => {
      if (Date.now() > until) return;
      const list = join(FOLDER, `reached-${runs}.txt`);
      writeFileSync(list, "");
      const results = await runTests(batch, { MUTANTS_REACHED: list }, BATCH * LEAST_MS);
      const lines = readFileSync(list, "utf8").split("\n").slice(0, -1);
      const reached = lines.map((line) => line.split(" ")).map(([n, file = ""]) => ({ n: Number(n), file }));
      for (const file of batch) {
        const { failure, seconds } = results.get(file) ?? { failure: "it was not run", seconds: 0 };
        const mutants = [...new Set(reached.filter((r) => r.file === join(COPY, file)).map((r) => r.n))];
        const reach = { file, hash: hashOfCopy(file), failed: failure !== "", seconds, mutants };
        reaches.set(file, reach);
        note("reach.jsonl", reach);
        if (failure !== "") console.error(`${file} fails without any mutant: ${failure}`);
      }
      rmSync(list);
    },
  );
}

/** Runs the test files that reach a mutant and have not passed with it, until one fails. */
async function judge(mutant: number, these: readonly string[]): Promise<void> {
  const isJudged = verdicts.some((v) => v.mutant === mutant && v.caught !== "");
  if (isJudged || !placed[mutant] || equivalence(mutant) !== undefined) return;
  const left = these
    .flatMap((file) => reaches.get(file) ?? [])
    .filter(({ failed, mutants }) => !failed && mutants.includes(mutant))
    .filter(({ file, hash }) => !verdicts.some((v) => v.mutant === mutant && v.file === file && v.hash === hash))
    .sort((a, b) => a.mutants.length - b.mutants.length || a.seconds - b.seconds);
  // A start costs as much as a few files do; most mutants fall to the first few.
  for (const batch of inBatches(left, (nth) => (nth === 0 ? FIRST_BATCH : BATCH))) {
    if (Date.now() > until) return;
    const limit = LEAST_MS + PATIENCE * sum(batch.map(({ seconds }) => seconds)) * 1000;
    const results = await runTests(
      batch.map(({ file }) => file),
      { MUTANT: String(mutant) },
      limit,
    );
    const of = (file: string): string => results.get(file)?.failure ?? "";
    const caught = batch.filter(({ file }) => of(file) !== "");
    for (const { file, hash } of caught.length > 0 ? caught.slice(0, 1) : batch)
      note("verdicts.jsonl", keep(verdicts, { mutant, file, hash, caught: of(file) }));
    if (caught.length > 0) return;
  }
}

function* inBatches<T>(items: readonly T[], sizeOf: (nth: number) => number): Generator<readonly T[]> {
  let at = 0;
  for (let nth = 0; at < items.length; nth++) {
    yield items.slice(at, at + sizeOf(nth));
    at += sizeOf(nth);
  }
}

interface Result {
  /** The first test that failed; empty when all passed. */
  readonly failure: string;
  readonly seconds: number;
}

/** The result of each file that was run. A run that is not over in time has failed, and so has one that ends without a report. */
async function runTests(
  names: readonly string[],
  variables: Readonly<Record<string, string>>,
  ms: number,
): Promise<Map<string, Result>> {
  const run = runs++;
  const report = join(FOLDER, `report-${run}.json`);
  const temporary = join(FOLDER, `tmp-${run}`);
  mkdirSync(temporary, { recursive: true });
  const env = { ...process.env, ...variables, TMPDIR: temporary, NODE_OPTIONS: `--import=${COPY}/mutation-switch.mjs` };
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
  const timer = setTimeout(() => {
    late = true;
    process.kill(-(child.pid ?? 0), "SIGKILL");
  }, ms);
  const [code] = (await once(child, "exit")) as [number | null, string | null]; // Node's documented arguments
  clearTimeout(timer);
  const results = resultsIn(report);
  rmSync(report, { force: true });
  rmSync(temporary, { recursive: true, force: true });
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
    readonly because: string;
  }
  const known = JSON.parse(textOf("bench/suites/equivalent-mutants.json")) as readonly Equivalent[]; // a file of ours
  const one = chosen[mutant];
  return known.find((k) => k.file === one?.file && k.was === one.was && k.text === one.text)?.because;
}

/** A table by room, and every survivor. */
function printed(): string {
  const of = (mutant: number): readonly Verdict[] => verdicts.filter((v) => v.mutant === mutant);
  const stateOf = (mutant: number): "caught" | "survived" | "equivalent" | "gone" => {
    if (equivalence(mutant) !== undefined) return "equivalent";
    if (of(mutant).some((v) => v.caught !== "")) return "caught";
    return placed[mutant] ? "survived" : "gone";
  };
  const lines = ["| folder | mutants | equivalent | caught | survived | caught of live |", "|---|---|---|---|---|---|"];
  const row = (name: string, numbers: readonly number[]): void => {
    const count = (state: string): number => numbers.filter((mutant) => stateOf(mutant) === state).length;
    const [caught, survived] = [count("caught"), count("survived")];
    const share = caught + survived === 0 ? "" : `${Math.round((100 * caught) / (caught + survived))} %`;
    lines.push(
      `| ${name} | ${numbers.length - count("gone")} | ${count("equivalent")} | ${caught} | ${survived} | ${share} |`,
    );
  };
  const numbers = [...chosen.keys()];
  for (const room of new Set(chosen.map((m) => roomOf(m.file))))
    row(
      room,
      numbers.filter((k) => roomOf(chosen[k]?.file ?? "") === room),
    );
  row("all", numbers);
  lines.push("");
  for (const k of numbers.filter((mutant) => stateOf(mutant) === "survived")) {
    const { file = "", line = 0, kind = "", text = "" } = placed[k] ?? {};
    const { was = "" } = chosen[k] ?? {};
    const tried = of(k).length;
    const short = (code: string) => code.replaceAll(/\s+/g, " ").slice(0, 100);
    lines.push(`- ${file}:${line} ${kind}: \`${short(was)}\` -> \`${short(text)}\`, passed by ${tried} files of tests`);
  }
  return `${lines.join("\n")}\n`;
}
