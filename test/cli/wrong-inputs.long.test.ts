/**
 * @file What careless hands type. Each line is refused in a sentence that names the mistake, with the exit code that belongs to it, before
 * anything is searched, compiled or written; no stack trace, nothing wider than a terminal.
 */

import { spawnSync } from "node:child_process";
import { cpSync, existsSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { commandLine, type Ran } from "../support/command-line.ts";
import { beginCommands, expectRefused, ranLines } from "../support/command-transcript.ts";
import { compileProgram } from "../support/program.ts";
import { RecordedText } from "../support/recorded-text.ts";
import { scratchFolder } from "../support/scratch.ts";
import { inFull } from "../support/slow.ts";
import { playTranscripts } from "../support/transcript.ts";

const scratch = scratchFolder();
const ABSENT = join(scratch, "absent");
/** What the transcript makes before its lines. */
const EMPTY = join(scratch, "empty.db");
const FULL = join(scratch, "full");
const records = new RecordedText(scratch);

/** Lines whose refusal says something of this machine; test/golden/refusals has all others. */
const OF_MACHINE: readonly (readonly [code: number, line: string, says: string | RegExp])[] = [
  [2, "tune conv2d --target gpu", "--target cuda is this machine's GPU"],
  [2, "calibrate --target gpu", "--target cuda is this machine's GPU"],
  [2, "tune conv2d --threads 4000", "processors"],
  [2, "tune conv2d --h 1000000 --w 1000000", /need .*B while .* this machine has/],
  [2, "tune conv2d --h 1000000 --w 1000000 --c 1000000 --k 1000000", "this machine has"],
  [2, "tune-network resnet18 --threads 4000", "processors"],
  [2, "network show resnet18 --threads 4000", "processors"],
  [2, "network emit resnet18 --threads 4000 --to never", "processors"],
  [2, "tune conv2d --language fortran", 'got "fortran"'],
  [
    2,
    "tune conv2d --language cm",
    /no instruction that .* has is reached from cm\n {2}kernels for it are written in c\+\+/,
  ],
  [2, "tune matmul --target neoverse-n1 --threads 4000", "has 64 cores"],
  [2, "calibrate --target dg2", "nothing here measures dg2"],
  [2, "calibrate --target neoverse-n1", "is not this machine"],
  [6, "calibrate --target h100", "no NVIDIA GPU"],
];

function expectRefusal(ran: Ran, code: number, says: string | RegExp): void {
  expect(ran.code).toBe(code);
  expectRefused(ran, ran.err);
  expect(ran.err).toMatch(says);
}

describe("wrong command lines", () => {
  playTranscripts("refusals", () => beginCommands(scratch, records));

  it.each(OF_MACHINE)("with exit code %i: %s", async (code, line, says) => {
    expectRefusal(await commandLine(line), code, says);
  });
});

/** All of the table as processes when tests run in full; a spread of it otherwise. */
const EACH = inFull(1, 60);
/** Of a processor. A refusal takes half a second where nothing else runs. In part of the table, all that is asked is that no search began. */
const MOST_SECONDS = inFull(1, 15);

describe("wrong command lines as processes", () => {
  const program = `node_modules/.cache/automap-wrong-${process.pid}`;
  beforeAll(() => {
    compileProgram(program, ["cli/main.ts"]);
    cpSync("package/files", join(program, "package/files"), { recursive: true });
  });
  afterAll(() => rmSync(program, { recursive: true, force: true }));
  const refusals = readFileSync("test/golden/refusals/lines.txt", "utf8").split(/^(?=[^>])/m);
  const commands = refusals.flatMap((part) => (part.startsWith("$ automap ") ? [part.trimEnd().split("\n")] : []));

  it.each(commands.filter((_, i) => i % EACH === 0))("%s", (line = "", ...made) => {
    // The shell tells what the line took of a processor, behind what the line said.
    const words = records.meant(line).replace("$ automap ", "");
    const { status, stdout, stderr } = spawnSync(
      "bash",
      ["-c", `TIMEFORMAT=$'\\n%U %S'; time ${process.execPath} "$PROGRAM/cli/main.js" ${words}`],
      { encoding: "utf8", env: { ...process.env, PROGRAM: program } },
    );
    const [, err = "", user, system] = /^([\s\S]*)\n(\S+) (\S+)\n$/.exec(stderr) ?? [];
    const ran = { code: status ?? -1, out: stdout, err };
    expect(ranLines(ran, records).map((text) => `> ${text}`.trimEnd())).toEqual(made);
    expect(Number(user) + Number(system)).toBeLessThan(MOST_SECONDS);
  });
});

describe("a command in a wrong environment", () => {
  const tune = `tune matmul --m 8 --n 8 --k 8 --dtype s16 --intrinsic portable --quiet --db ${join(scratch, "new.db")}`;
  afterEach(() => {
    vi.unstubAllEnvs();
    rmSync(join(scratch, "new.db"), { force: true });
  });
  it.each<[Readonly<Record<string, string>>, string, number, string]>([
    [
      { HOME: "/dev/null", XDG_CACHE_HOME: "" },
      tune,
      6,
      "/dev/null/.cache/automap/runtime: a part of the path is no directory",
    ],
    [
      { XDG_CACHE_HOME: "/dev/null/cache" },
      tune,
      6,
      "/dev/null/cache/automap/runtime: a part of the path is no directory",
    ],
    [{ CXX: "/nowhere/g++" }, tune, 6, "/nowhere/g++ is not on the PATH"],
    [{ CXX: "false" }, tune, 6, "false exited with 1"],
    [{ CXX: "true", XDG_CACHE_HOME: FULL }, tune, 6, "true says that it compiled, and wrote no file or an empty one"],
    [{ AUTOMAP_CACHE_LIMIT: "lots" }, "cache show", 2, 'AUTOMAP_CACHE_LIMIT must be a size, got "lots"'],
  ])("%j: %s", async (environment, line, code, says) => {
    for (const [name, value] of Object.entries(environment)) vi.stubEnv(name, value);
    expectRefusal(await commandLine(line), code, says);
    rmSync(join(FULL, "automap"), { recursive: true, force: true });
  });
});

describe("a command without tools on the PATH", () => {
  const database = `--db ${join(scratch, "new.db")}`;
  afterEach(() => vi.unstubAllEnvs());
  it.each([
    [`tune conv2d --quiet ${database}`, "no C++ compiler found"],
    [`calibrate ${database}`, "no C++ compiler found"],
    [`tune-network mi-lstm --time 5 ${database}`, "no C++ compiler found"],
    [`emit conv2d --to ${ABSENT} --db ${EMPTY}`, "no C++ compiler found"],
    [`tune matmul --target cuda --quiet ${database}`, "nvidia-smi"],
    [`calibrate --target cuda ${database}`, "nvidia-smi"],
  ])("%s", async (line, says) => {
    vi.stubEnv("PATH", "");
    vi.stubEnv("CXX", "");
    expectRefusal(await commandLine(line), 6, says);
  });

  it("proves no package, and says that it is written but not proved", async () => {
    vi.stubEnv("PATH", "");
    vi.stubEnv("CXX", "");
    expectRefusal(await commandLine(`emit conv2d --portable --prove --to ${ABSENT}`), 6, "written but not proved");
    rmSync(ABSENT, { recursive: true });
  });
});

it("wrong command lines leave no files behind", () => {
  expect(readdirSync(scratch).sort()).toEqual([
    "empty.db",
    "folder",
    "full",
    "garbage.db",
    "nothing",
    "number.mjs",
    "throws.mjs",
  ]);
  expect(existsSync("automap.db")).toBe(false);
});
