/**
 * @file Kills searches and corrupts their files, then checks that nothing is lost, no process survives, and the exit code and message are right.
 *
 *     npm run build
 *     node dist/bench/judges/faults.js                                    100 kills, and every fault once
 *     node dist/bench/judges/faults.js --kills 0 --only compiler          the faults whose name holds a word
 *     node dist/bench/judges/faults.js --out bench/results/faults         also writes the page
 *
 * A search is `automap tune` of a product of 16 x 16 x 16, in a folder, a cache and a home of its own. After each:
 *
 * 1. The database is whole, and holds every trial that the search had told. Where the file was taken away, its copy holds them.
 * 2. No process lives on that the search began.
 * 3. The exit code is the one expected, and stderr ends in one sentence with a remedy; no stack trace.
 * 4. The same command, without the fault, ends well, and measures no kernel twice.
 */

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  closeSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { constants, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { candidateKey } from "../../abstraction/candidate.ts";
import { UsageError } from "../../abstraction/error.ts";
import { randomInteger, seededRandom } from "../../abstraction/random.ts";
import { openDatabase, queryTrials } from "../../db/index.ts";
import { table } from "../support/frame.ts";
import { readOptions } from "../support/options.ts";

const { values } = readOptions({
  options: {
    kills: { type: "string", default: "100" },
    /** Only faults whose name holds this. */
    only: { type: "string", default: "" },
    /** No faults. */
    "kills-only": { type: "boolean", default: false },
    seed: { type: "string", default: "1" },
    out: { type: "string" },
  },
});

const AUTOMAP = resolve(import.meta.dirname, "../../cli/main.js");
const random = seededRandom(Number(values.seed));
const scratch = mkdtempSync(join(tmpdir(), "automap-faults-"));
process.once("exit", () => rmSync(scratch, { recursive: true, force: true }));
const TRIALS = 24;
/** The usual search, from its first word that a fault may change. */
const PRODUCT = ["--m", "16", "--n", "16", "--trials", String(TRIALS)];
/** Processes of a search carry this in their environment. */
const MARK = "AUTOMAP_FAULT_NUMBER";
/** How long a process may outlive its search. */
const ORPHAN_MS = 5000;

/** Where one search is: its folder and database, and a file that says what to add to its clock, in milliseconds. */
interface Place {
  readonly folder: string;
  readonly database: string;
  readonly clock: string;
}

interface Fault {
  readonly name: string;
  /** What the compiler does instead of compiling, in a shell where `$out` is the file to write. */
  readonly compiler?: string;
  /** The first call of the compiler that does so. */
  readonly from?: number;
  readonly prepare?: (place: Place) => void;
  /** Done once so many trials were told; 4 unless `after` says otherwise. */
  readonly strike?: (place: Place, search: ChildProcess) => Promise<void> | void;
  readonly after?: number;
  readonly env?: (place: Place) => Record<string, string>;
  /** Instead of those of the usual search. */
  readonly words?: readonly string[];
  /** The exit code; the number of the signal and 128 for a search that was ended by one. */
  readonly code: number;
  /** What stderr says; the end of a search on stdout where none is given. */
  readonly says?: RegExp;
  /** Where the trials are afterwards; the database unless it says otherwise. */
  readonly kept?: (place: Place) => string;
  /** What is undone before the same command is given again. */
  readonly undo?: (place: Place) => void;
}

/** A disk of a size in the folder of a search. Only root may make one. */
function makeDisk({ folder }: Place, kilobytes: number): void {
  mkdirSync(join(folder, "disk"));
  execFileSync("mount", ["-t", "tmpfs", "-o", `size=${kilobytes}k`, "tmpfs", join(folder, "disk")]);
}

/** Fills a disk to its last byte. */
function fill({ folder }: Place): void {
  const rest = openSync(join(folder, "disk/rest"), "w");
  try {
    for (;;) writeSync(rest, Buffer.alloc(512));
  } catch (error) {
    if (!(error instanceof Error) || !error.message.startsWith("ENOSPC")) throw error;
  } finally {
    closeSync(rest);
  }
}
const freeDisk = ({ folder }: Place): void => rmSync(join(folder, "disk/rest"), { force: true });

/** Holds the lock of a database for a time. */
async function lock({ database }: Place, milliseconds: number): Promise<void> {
  const db = openDatabase(database);
  db.sqlite.exec("BEGIN EXCLUSIVE");
  await pause(milliseconds);
  db.sqlite.exec("ROLLBACK");
  db.close();
}

/** The copy that a search made of its database: beside it, or in the folder in which the search ran. */
const rescued = ({ folder }: Place): string => {
  const found = [folder, scratch].flatMap((place) =>
    existsSync(place)
      ? readdirSync(place).flatMap((name) => (/rescued.*\.db$/.test(name) ? [join(place, name)] : []))
      : [],
  );
  const [copy] = found;
  if (copy === undefined || found.length > 1) throw new Error(`${found.length} copies: ${found.join(", ")}`);
  return copy;
};
const shift = ({ clock }: Place, milliseconds: number): void => writeFileSync(clock, String(milliseconds));
const HOUR = 3_600_000;

const FAULTS: readonly Fault[] = [
  { name: "the compiler is not there", env: () => ({ CXX: "/nowhere/g++" }), code: 6, says: /\/nowhere\/g\+\+/ },
  { name: "the compiler always fails", compiler: "echo broken >&2; exit 1", code: 6, says: /broken/ },
  {
    name: "the compiler fails from some call on",
    compiler: "echo broken >&2; exit 1",
    from: 8,
    code: 6,
    says: /broken/,
  },
  { name: "the compiler writes nothing", compiler: "exit 0", code: 6, says: /wrote/ },
  { name: "the compiler writes an empty file", compiler: ': > "$out"; exit 0', from: 8, code: 6, says: /empty/ },
  { name: "the compiler writes no library", compiler: 'echo no >"$out"; exit 0', from: 8, code: 6, says: /./ },
  { name: "the compiler never ends", compiler: "sleep 1000", from: 8, words: [...PRODUCT, "--time", "8"], code: 0 },
  { name: "the compiler floods its output", compiler: "yes | head -c 300000000; exit 1", from: 8, code: 6, says: /./ },
  { name: "the compiler is killed", compiler: "kill -KILL $$", from: 8, code: 6, says: /SIGKILL/ },
  {
    name: "kernels end their process when loaded",
    compiler: `echo '__attribute__((constructor)) static void f() { __builtin_trap(); }' >"$out.h"; set -- -include "$out.h" "$@"`,
    from: 8,
    code: 0,
  },
  {
    name: "kernels never end",
    compiler: `echo '__attribute__((constructor)) static void f() { for (volatile int i = 0; i < 2; ) ; }' >"$out.h"; set -- -include "$out.h" "$@"`,
    from: 14,
    words: [...PRODUCT, "--time", "10"],
    code: 0,
  },
  {
    name: "the database is deleted",
    strike: ({ database }) => rmSync(database),
    code: 6,
    says: /was (deleted|replaced) while/,
    kept: rescued,
  },
  {
    name: "the database is replaced",
    strike: ({ database, folder }) => {
      copyFileSync(TEMPLATE, join(folder, "other"));
      renameSync(join(folder, "other"), database);
    },
    code: 6,
    says: /was (deleted|replaced) while/,
    kept: rescued,
  },
  {
    name: "the folder of the database is deleted",
    strike: ({ folder }) => rmSync(folder, { recursive: true }),
    code: 6,
    says: /./,
    kept: rescued,
  },
  { name: "the database is locked for a while", strike: (place) => lock(place, 4000), code: 0 },
  { name: "the database stays locked", strike: (place) => lock(place, 45_000), code: 6, says: /locked/ },
  {
    name: "the disk of the database fills up",
    prepare: (place) => makeDisk(place, 4000),
    strike: fill,
    code: 6,
    says: /no space left/i,
    undo: freeDisk,
  },
  {
    name: "the disk of scratch files is full",
    prepare: (place) => {
      makeDisk(place, 100);
      fill(place);
    },
    env: ({ folder }) => ({ TMPDIR: join(folder, "disk") }),
    code: 6,
    says: /no space left/i,
    undo: freeDisk,
  },
  {
    name: "the disk of the compile cache is full",
    prepare: (place) => {
      makeDisk(place, 100);
      fill(place);
    },
    env: ({ folder }) => ({ XDG_CACHE_HOME: join(folder, "disk") }),
    code: 6,
    says: /no space left/i,
    undo: freeDisk,
  },
  {
    name: "the folder of scratch files is deleted",
    env: ({ folder }) => ({ TMPDIR: join(folder, "tmp") }),
    prepare: ({ folder }) => mkdirSync(join(folder, "tmp")),
    strike: ({ folder }) => rmSync(join(folder, "tmp"), { recursive: true }),
    code: 0,
  },
  { name: "the clock goes back an hour", strike: (place) => shift(place, -HOUR), code: 0 },
  { name: "the clock goes ten years ahead", strike: (place) => shift(place, 87_600 * HOUR), code: 0 },
  {
    name: "no file can be opened any more",
    strike: (_place, search) => void execFileSync("prlimit", ["--pid", String(search.pid), "--nofile=20:20"]),
    code: 6,
    says: /open files/,
  },
  { name: "compilers get no memory", compiler: "ulimit -v 30000", from: 8, code: 6, says: /memory|cc1plus/ },
  { name: "the tensors do not fit", words: ["--m", "900000", "--n", "900000"], code: 2, says: /memory|need .*TB/ },
  { name: "SIGTERM", strike: (_place, search) => void search.kill("SIGTERM"), code: 130, says: /go on with/ },
  { name: "SIGHUP", strike: (_place, search) => void search.kill("SIGHUP"), code: 129 },
  { name: "SIGINT once", strike: (_place, search) => void search.kill("SIGINT"), code: 130 },
  {
    name: "SIGINT twice",
    strike: async (_place, search) => {
      search.kill("SIGINT");
      await pause(100);
      search.kill("SIGINT");
    },
    code: 130,
    says: /go on with/,
  },
  { name: "nobody reads what it says", strike: (_place, search) => void search.stderr?.destroy(), code: 0 },
];

/** A compiler that all searches call by the same name: what it does is told by the environment. */
const COMPILER = join(scratch, "g++");
writeFileSync(
  COMPILER,
  `#!/bin/bash
for word; do [ "$last" = -o ] && out=$word; last=$word; done
if [ -n "$out" ] && [ -n "$BROKEN" ]; then
  echo >> "$CALLS"
  [ $(wc -l < "$CALLS") -ge "$FROM" ] && eval "$BROKEN"
fi
exec g++ "$@"
`,
);
chmodSync(COMPILER, 0o755);

/** Read by every process of Node: what its clock shows besides the time. */
const CLOCK = join(scratch, "clock.mjs");
writeFileSync(
  CLOCK,
  `import { readFileSync } from "node:fs";
const now = Date.now;
Date.now = () => {
  try { return now() + Number(readFileSync(process.env.CLOCK, "utf8")); } catch { return now(); }
};`,
);

/** A database with this machine's calibration, of which each search gets a copy. */
const TEMPLATE = join(scratch, "template.db");

interface Ended {
  readonly code: number;
  readonly said: string;
  readonly printed: string;
  /** The most trials that it told. */
  readonly told: number;
  readonly orphans: readonly string[];
  /** Whether it ended before the fault. */
  readonly isMissed: boolean;
}

let number = 0;

/** Runs the search, strikes, and waits for its end and for that of all it began. */
async function search(place: Place, fault: Partial<Fault>): Promise<Ended> {
  const mark = `${process.pid}.${number++}`;
  const given = fault.words ?? PRODUCT;
  const words = ["tune", "matmul", "--k", "16", "--dtype", "f32", "-v", "--db", place.database, ...given];
  const line = [AUTOMAP, ...words];
  const env = {
    PATH: process.env["PATH"],
    HOME: scratch,
    XDG_STATE_HOME: join(scratch, "state"),
    // Each compiles for itself.
    XDG_CACHE_HOME: join(scratch, `cache ${number}`),
    CXX: COMPILER,
    BROKEN: fault.compiler ?? "",
    FROM: String(fault.from ?? 1),
    CALLS: join(place.folder, "calls"),
    CLOCK: place.clock,
    NODE_OPTIONS: `--import ${CLOCK}`,
    [MARK]: mark,
    ...fault.env?.(place),
  };
  const child = spawn(process.execPath, line, { env, cwd: scratch });
  let said = "";
  let printed = "";
  let told = 0;
  let struck: Promise<void> | undefined;
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    printed += text;
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    said += text;
    told = Math.max(0, ...[...said.matchAll(/^trial (\d+):.*\n/gm)].map(([, n]) => Number(n)));
    if (told >= (fault.after ?? 4) && fault.strike) struck ??= Promise.resolve(fault.strike(place, child));
  });
  const [code, signal] = await once(child, "exit");
  await struck;
  const isMissed = fault.strike !== undefined && struck === undefined;
  let orphans = marked(mark);
  for (let waited = 0; orphans.length > 0 && waited < ORPHAN_MS; waited += 100) {
    await pause(100);
    orphans = marked(mark);
  }
  return {
    code: typeof code === "number" ? code : 128 + constants.signals[signal as NodeJS.Signals],
    said,
    printed,
    told,
    orphans,
    isMissed,
  };
}

/** The commands of living processes with this mark. */
function marked(mark: string): string[] {
  return readdirSync("/proc").flatMap((pid) => {
    try {
      if (!/^\d+$/.test(pid) || !readFileSync(`/proc/${pid}/environ`, "latin1").includes(`${MARK}=${mark}\0`))
        return [];
      return [`${pid} ${readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ")}`];
    } catch {
      // It has ended meanwhile, or is a zombie.
      return [];
    }
  });
}

/** What is wrong with a database after a search that told so many trials. @returns its trials too */
function problemsOf(path: string, told: number): { readonly problems: readonly string[]; readonly trials: number } {
  if (!existsSync(path)) return { problems: [`there is no ${path}`], trials: 0 };
  const db = openDatabase(path);
  const whole = db.sqlite.pragma("integrity_check", { simple: true });
  const trials = queryTrials(db, { operator: "matmul", extents: { m: { min: 16 } } });
  db.close();
  const finals = (t: (typeof trials)[number]): boolean => t.finals !== undefined;
  const once = trials.filter((t) => !finals(t));
  const candidates = new Set(once.map((t) => candidateKey(t.candidate)));
  const problems = [
    ...(whole === "ok" ? [] : [`it is not whole: ${String(whole)}`]),
    ...(once.length < told ? [`${told} trials were told, ${once.length} are there`] : []),
    ...(candidates.size < once.length ? [`${once.length - candidates.size} kernels were measured twice`] : []),
  ];
  return { problems, trials: once.length };
}

interface Row {
  readonly name: string;
  readonly code: number;
  readonly trials: number;
  readonly sentence: string;
  readonly problems: readonly string[];
}

function newPlace(): Place {
  const folder = mkdtempSync(join(scratch, "search "));
  return { folder, database: join(folder, "automap.db"), clock: join(folder, "clock") };
}

/** Whether a search said what it must: how it failed, or else its result. */
function isSaid({ says, code }: Fault, { said, printed }: Ended): boolean {
  if (says) return says.test(said);
  return code !== 0 || /^record +automap db show/m.test(printed);
}

/** One search under a fault, and the same again without it. */
async function judge(fault: Fault): Promise<Row> {
  const made = newPlace();
  fault.prepare?.(made);
  const onDisk = fault.name === "the disk of the database fills up";
  const place = onDisk ? { ...made, database: join(made.folder, "disk/automap.db") } : made;
  copyFileSync(TEMPLATE, place.database);
  try {
    const first = await search(place, fault);
    const sentence = first.said.split("\n").find((text) => text.startsWith("automap: ")) ?? "";
    const problems = [
      ...(first.isMissed ? ["it ended before the fault"] : []),
      ...(first.code === fault.code ? [] : [`exit code ${first.code}, not ${fault.code}`]),
      ...(isSaid(fault, first) ? [] : ["it does not say so"]),
      ...(/^ {4}at /m.test(first.said) ? ["a stack trace"] : []),
      ...first.orphans.map((command) => `still running: ${command}`),
    ];
    const kept = problemsOf(fault.kept?.(place) ?? place.database, first.told);
    if (problems.length + kept.problems.length > 0) process.stderr.write(first.said + first.printed);
    fault.undo?.(place);
    mkdirSync(place.folder, { recursive: true });
    if (fault.kept) renameSync(fault.kept(place), place.database);
    const again = await search(place, {});
    const after = problemsOf(place.database, Math.max(kept.trials, again.told));
    const wrongAgain = [
      ...(again.code === 0 ? [] : [`the same command again ends with ${again.code}: ${again.said.slice(-400)}`]),
      ...after.problems.map((problem) => `again: ${problem}`),
    ];
    return {
      name: fault.name,
      code: first.code,
      trials: kept.trials,
      sentence,
      problems: [...problems, ...kept.problems, ...wrongAgain],
    };
  } finally {
    if (existsSync(join(place.folder, "disk"))) execFileSync("umount", ["-l", join(place.folder, "disk")]);
    rmSync(place.folder, { recursive: true, force: true });
  }
}

/** Searches killed at any instant, each until it has ended by itself. */
async function judgeKills(count: number): Promise<Row> {
  const problems: string[] = [];
  let kills = 0;
  let trials = 0;
  while (kills < count) {
    const place = newPlace();
    copyFileSync(TEMPLATE, place.database);
    for (let isKilled = true; isKilled; ) {
      const isLeft = kills >= count;
      const after = randomInteger(random, 0, TRIALS);
      const wait = randomInteger(random, 0, 400);
      const kill = async (_place: Place, child: ChildProcess): Promise<void> => {
        await pause(wait);
        child.kill("SIGKILL");
      };
      const ended = await search(place, isLeft ? {} : { after, strike: kill });
      isKilled = ended.code === 137;
      if (isKilled) kills++;
      const kept = problemsOf(place.database, ended.told);
      trials = Math.max(trials, kept.trials);
      problems.push(...kept.problems, ...ended.orphans.map((command) => `still running: ${command}`));
      if (!isKilled && ended.code !== 0) problems.push(`exit code ${ended.code}: ${ended.said.slice(-400)}`);
    }
    rmSync(place.folder, { recursive: true, force: true });
  }
  return { name: `${kills} kills`, code: 137, trials, sentence: "", problems };
}

const judged = values["kills-only"] ? [] : FAULTS.filter(({ name }) => name.includes(values.only));
if (judged.length === 0 && !values["kills-only"])
  throw new UsageError(
    `--only: no fault has "${values.only}" in its name`,
    `the faults: ${FAULTS.map(({ name }) => name).join(", ")}`,
  );

const calibrated = await search(
  { ...newPlace(), database: TEMPLATE },
  { words: ["--m", "8", "--n", "8", "--trials", "1"] },
);
if (calibrated.code !== 0) throw new Error(`a search without a fault fails: ${calibrated.said}`);
const rows: Row[] = [];
for (const fault of judged) {
  const row = await judge(fault);
  rows.push(row);
  process.stdout.write(
    `${row.problems.length === 0 ? "right" : "WRONG"}  ${row.name}: ${row.problems.join("; ") || row.sentence}\n`,
  );
}
const kills = await judgeKills(Number(values.kills));
process.stdout.write(
  `${kills.problems.length === 0 ? "right" : "WRONG"}  ${kills.name}: ${kills.problems.join("; ")}\n`,
);
const wrong = [...rows, kills].filter(({ problems }) => problems.length > 0);
if (values.out !== undefined) writeFileSync(`${values.out}.md`, pageOf());
process.exitCode = wrong.length === 0 ? 0 : 1;

function pageOf(): string {
  const lines = [...rows, kills].map(({ name, code, trials, sentence, problems }) => [
    name,
    code,
    trials,
    sentence.replaceAll(scratch, "..."),
    problems.join("; "),
  ]);
  return `# Searches that are killed, and faults under them

    node dist/bench/judges/faults.js --kills ${values.kills} --seed ${values.seed}

After each: the database is whole and holds every trial that the search had told, no process that it began lives on, the exit code is
the one below, and the same command without the fault ends well and measures no kernel twice. ${rows.length - wrong.length} of ${rows.length} faults and
${kills.name} ended so.

${table(["fault", "exit code", "trials kept", "what the command says", "wrong"], lines).join("\n")}
`;
}
