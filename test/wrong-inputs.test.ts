/**
 * @file What careless hands type. Each line is refused in a sentence that names the mistake, with the exit code that belongs to it, before
 * anything is searched, compiled or written; no stack trace, nothing wider than a terminal.
 */

import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, describe, expect, it, vi } from "vitest";
import { openDatabase } from "../db/index.ts";
import { commandLine } from "./support/command-line.ts";

const scratch = mkdtempSync(join(tmpdir(), "automap-wrong-"));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));
const GARBAGE = join(scratch, "garbage.db");
const FOLDER = join(scratch, "folder");
const ABSENT = join(scratch, "absent");
const EMPTY = join(scratch, "empty.db");
const FULL = join(scratch, "full");
openDatabase(EMPTY).close();
writeFileSync(GARBAGE, "this is no database\n".repeat(200));
mkdirSync(FOLDER);
mkdirSync(FULL);
writeFileSync(join(FULL, "mine.txt"), "");

const MATMUL = '"c[i,j] += f32(a[i,k]) * f32(b[k,j])" --i 8 --j 8 --k 8';

/** Lines by exit code, each with what its sentence must say. */
const LINES: Readonly<Record<number, readonly (readonly [line: string, says: string | RegExp])[]>> = {
  2: [
    // Words nobody knows.
    ["foo", "unknown command 'foo'"],
    ["--foo", "unknown option '--foo'"],
    ["help foo", 'unknown command "foo"'],
    ["tnue conv2d", "did you mean tune?"],
    ["db bst", "did you mean best?"],
    ["doctor extra", "too many arguments"],
    ["completion", "missing required argument"],
    ["completion bsh", 'did you mean "bash"?'],
    ["cache clean", "unknown command 'clean'"],
    ["tune conv2d --quiet --verbose", "exclude each other"],
    ["calibrate --foo", "--foo"],
    ["report --to page.html", "--to"],
    ["tune", "missing required argument"],
    ["map", "missing required argument"],
    ["explain", "missing required argument"],
    ["emit", "missing required argument"],
    ["systolic", "missing required argument"],
    ["intrinsic show", "missing required argument"],
    ["operator show", "missing required argument"],
    ["db show", "missing required argument"],
    ["db compare", "compare needs two of one kind"],
    ["db compare a", "compare needs two of one kind"],
    ["db compare --run aaaa", "compare needs two of one kind"],
    ["db compare --run aaaa --run bbbb --intrinsic vnni --intrinsic amx", "compare needs two of one kind"],
    [`db compare --intrinsic vni --intrinsic amx --db ${EMPTY}`, 'did you mean "vnni"?'],
    [`db compare --run aaaa --run bbbb --c 5 --db ${EMPTY}`, 'unexpected argument "--c"'],
    [`db compare --run aaaa --run bbbb --db ${EMPTY}`, "holds no run aaaa"],
    [`db compare zz yy --db ${EMPTY}`, '"zz" is not the id of a trial'],
    [`db best --layers ${ABSENT} --db ${EMPTY}`, "there is no such file"],
    [`db best --layers ${join(FULL, "mine.txt")} --db ${EMPTY}`, "lists nothing"],
    [`db best --layers ${GARBAGE} --db ${EMPTY}`, /"this is no database" in the list: unknown operator "this"/],
    [`db best --layers ${GARBAGE} --name a --db ${EMPTY}`, "exclude each other"],
    [`db failures --status ko --db ${EMPTY}`, "unknown --status"],
    ["db import", "missing required argument"],
    ["db merge", "missing required argument"],
    // Options misspelt or of another command: what they could be is asked, whatever their value.
    ["tune conv2d --intrinsc vnni", 'did you mean "--intrinsic"?'],
    ["tune conv2d --trails 100", 'did you mean "--trials"?'],
    ["tune conv2d --dtpye f16", 'did you mean "--dtype"?'],
    ["tune conv2d --layuot NHWC", 'did you mean "--layout"?'],
    [`tune ${MATMUL} --thraeds 2`, 'did you mean "--threads"?'],
    [`tune ${MATMUL} --z 2`, "--z is no option of automap tune and no axis of the equation"],
    [`map ${MATMUL} --jj 5`, 'did you mean "--j"?'],
    ["map conv2d --zzzzzz 5", "known: --n, --c, --h"],
    [`db query --op conv2d --cc 5 --db ${EMPTY}`, 'did you mean "--c"?'],
    [`db best --csvv --db ${EMPTY}`, 'did you mean "--csv"?'],
    ["tune conv2d -t 5", "an option has two dashes: --target, --trials, --time, --threads, --to"],
    [`db query -t 5 --db ${EMPTY}`, "an option has two dashes: --threads, --target, --top"],
    ["tune conv2d --csv", "--csv is no option of automap tune"],
    ["map conv2d --trials 5", "--trials is no option of automap map"],
    ["explain conv2d --intrinsic amx.tdpbusd --mapping 9", "--mapping is no option of automap explain"],
    ["operator show conv2d --q 3", "--q is no option of automap show and no parameter of conv2d"],
    ["map conv2d -c 5", 'unexpected argument "-c"'],
    ["map conv2d 64", 'unexpected argument "64"'],
    ["tune conv2d matmul", 'unexpected argument "matmul"'],
    [`db prune --keep x --db ${EMPTY}`, "--keep is no option"],
    [`db best --where x --db ${EMPTY}`, "--where is no option"],
    ["db prune --status crashed", "there is no database"],
    // Names.
    ["tune conv2", 'did you mean "conv2d"?'],
    ['tune ""', 'unknown operator ""'],
    ["map constructor", 'unknown operator "constructor"'],
    ["map __proto__", 'unknown operator "__proto__"'],
    ["map conv2d --constructor 5", "--constructor is no option"],
    ["map conv2d --__proto__ 5", "--__proto__ is no option"],
    ["map conv2d --intrinsic constructor", '"constructor"'],
    ["map conv2d --epilogue constructor", 'unknown epilogue "constructor"'],
    ["map conv2d --epilogue rleu", 'did you mean "relu"?'],
    ["map conv2d --intrinsic vni", 'did you mean "vnni"?'],
    ["intrinsic list nope", '"nope"'],
    ["operator show constructor", 'unknown operator "constructor"'],
    ["tune conv2d --strategy genetc", 'did you mean "genetic"?'],
    ["tune conv2d --strategy constructor", 'unknown strategy "constructor"'],
    ["tune conv2d --kinds foo", 'got "foo"'],
    ["tune conv2d --target h1000", 'did you mean "h100"?'],
    ["tune conv2d --target constructor", 'no machine "constructor"'],
    ["tune conv2d --target gpu", "--target cuda is this machine's GPU"],
    ["calibrate --target gpu", "--target cuda is this machine's GPU"],
    [
      "tune conv2d --target sm_50 --model-only",
      /no instruction that automap knows runs on sm_50\n {2}those of a GPU begin with sm_61/,
    ],
    ['tune conv2d --name "a b"', "--name must be"],
    // Types and layouts.
    ["map conv2d --dtype float32", 'did you mean "f32"?'],
    ["map conv2d --dtype int8", 'did you mean "s8"?'],
    ["map conv2d --dtype half", 'did you mean "f16"?'],
    ["map conv2d --dtype fp8", 'unknown data types "fp8"'],
    ["map conv2d --dtype u8s8u8", 'unknown data types "u8s8u8"'],
    ["map conv2d --dtype ,", 'unknown data types ","'],
    ["map conv2d --dtype =", "is not tensor=value"],
    ["map matmul --dtype zz=f16", 'no tensor "zz"'],
    ["map matmul --dtype a=double,b=f64", 'did you mean "f64"?'],
    ["map matmul --dtype __proto__=f16", 'no tensor "__proto__"'],
    ["map matmul --sum single", 'unknown data type "single"'],
    ["map matmul --dtype f16 --sum s32", "integer sum"],
    ["map conv2d --layout NHWCX", '"X"'],
    ["map conv2d --layout NHHC", "NHHC"],
    ["map matmul --layout in=NHWC", 'no tensor "in"'],
    // Numbers.
    ["map conv2d --c 0", "c must be positive"],
    ["map conv2d --c -1", "c must be positive"],
    ["map conv2d --c 1e3", 'got "1e3"'],
    ["map conv2d --c 6.5", 'got "6.5"'],
    ["map conv2d --c 64k", 'got "64k"'],
    ["map conv2d --c=", 'got ""'],
    ["map conv2d --c=5=6", 'got "5=6"'],
    ["map conv2d --c", "--c needs a value"],
    ["map conv2d --c 64 --c 64", "--c is given twice"],
    ["map conv2d --c 99999999999999999999", "too large"],
    ["map conv2d --pad -1", "pad must not be negative"],
    ["map conv2d --stride 0", "stride must be positive"],
    ["map conv2d --r 5000", "does not fit"],
    ["map conv2d --groups 3 --c 64", "groups"],

    ["tune conv2d --trials 0", 'got "0"'],
    ["tune conv2d --time 0", 'got "0"'],
    ["tune conv2d --time abc", 'got "abc"'],
    ["tune conv2d --threads 0", 'got "0"'],
    ["tune conv2d --threads 4000", "processors"],
    ["tune matmul --target h100 --model-only --threads 2", "launched by one thread"],
    ["tune conv2d --seed -1", "--seed"],
    ["tune conv2d --h 1000000 --w 1000000", /need .*B while .* this machine has/],
    ["tune conv2d --h 1000000 --w 1000000 --c 1000000 --k 1000000", "this machine has"],
    ["systolic conv1d --bound x", "--bound"],
    ["intrinsic check virtual --seed x", "--seed"],
    ["db query --limit x", 'got "x"'],
    ["db query --limit -1", 'got "-1"'],
    ["db query --top 0", 'got "0"'],
    // Equations.
    ['map "c[i,j] += a[i,k] * b[k,j]"', "axes i, j, k need extents"],
    ['map "c[i,j] += a[i,k] * b[k,j]" --i 8 --j 8', "axis k needs an extent"],
    ['map "c[i,j] += a[i,k] * b[k,j" --i 8 --j 8 --k 8', 'expected "]"'],
    ['map "c[i,j] = sqaure(a[i,j])" --i 8 --j 8', 'did you mean "square"?'],
    ['map "c[i] += a[i*i]" --i 8', "not affine"],
    ['map "c[i]" --i 8', "equation"],
    ['map "[" --i 8', "equation"],
    // Options that exclude or need one another.
    ["explain conv2d", "explain needs --intrinsic"],
    ["emit conv2d", "emit needs --to"],
    [`emit conv2d --portable --threads 4 --to ${ABSENT}`, "--threads"],
    ["check", "check needs --baseline"],
    ["db verify --remeasure", "argument missing"],
    ["systolic conv1d --to k.cm", "--emit"],
    ["explain conv2d --intrinsic amx.tdpbusd --matching m:n", '"m:n"'],
    // Files that are not what they should be.
    ['tune conv2d --db ""', "--db needs a value"],
    ['tune conv2d --target ""', "--target needs a value"],
    ['report -o ""', "--output needs a value"],
    [`tune conv2d --db ${FOLDER}`, "is a directory"],
    [`tune conv2d --db ${GARBAGE}`, "is not a SQLite database"],
    [`tune conv2d --to ${FOLDER}`, "is a directory"],
    [`tune conv2d --model-only --to ${FOLDER}`, "is a directory"],
    [`db best --db ${ABSENT}.db`, "there is no database"],
    [`db best --db ${GARBAGE}`, "is not a SQLite database"],
    [`report --db ${ABSENT}.db`, "there is no database"],
    [`replay ffffff --db ${ABSENT}.db`, "there is no database"],
    [`replay ffffff --db ${EMPTY}`, /holds no run ffffff\n {2}automap replay --db .* lists them/],
    [`db show ffffff --db ${EMPTY}`, /holds no trial ffffff\n {2}automap db query --db .* lists them/],
    [`check --baseline ${ABSENT}.db`, "there is no database"],
    [`db merge ${ABSENT}.db --db ${join(FOLDER, "a.db")}`, "there is no database"],
    [`db merge ${GARBAGE} --db ${join(FOLDER, "a.db")}`, "is not a SQLite database"],
    [`db import ${FOLDER} --db ${join(FOLDER, "a.db")}`, "is a directory"],
    [`db import ${ABSENT}.jsonl --db ${join(FOLDER, "a.db")}`, "there is no such file"],
    [`db import ${GARBAGE} --db ${join(FOLDER, "a.db")}`, "is not the header of an export"],
    [`systolic ${ABSENT}.ure`, "there is no such file"],
    [`systolic ${GARBAGE}`, "line 1"],
    [`emit conv2d --portable --to ${FULL}`, "is not empty"],
    [`emit conv2d --portable --to ${GARBAGE}`, "is a file"],
  ],
  6: [
    [`tune conv2d --to ${ABSENT}/k.cpp`, "there is no such file or directory"],
    [`tune conv2d --model-only --to ${ABSENT}/k.cpp`, "there is no such file or directory"],
    [`tune conv2d --to ${GARBAGE}/k.cpp`, "no directory"],
    [`tune conv2d --db ${ABSENT}/a.db`, "there is no directory"],
    [`calibrate --db ${ABSENT}/a.db`, "there is no directory"],
    [`explain conv2d --intrinsic amx.tdpbusd --svg ${ABSENT}/a.svg`, "there is no such file or directory"],
    [`systolic conv1d --svg ${ABSENT}/a.svg`, "there is no such file or directory"],
    [`systolic conv1d --emit cm --to ${ABSENT}/a.cm`, "there is no such file or directory"],
    [`emit conv2d --portable --to ${GARBAGE}/package`, "no directory"],
  ],
};

/** A line that is refused: the code, nothing on stdout, a sentence that says so and no trace. */
async function expectRefusal(line: string, code: number, says: string | RegExp): Promise<string> {
  const ran = await commandLine(line);
  expect({ code: ran.code, out: ran.out }).toEqual({ code, out: "" });
  expect(ran.err).toMatch(says);
  expect(ran.err).not.toMatch(/^\s+at |internal:|Error:|E[A-Z]{4,}:/m);
  const told = ran.err.trimEnd().split("\n");
  expect(told.length).toBeLessThanOrEqual(5);
  expect(Math.max(...told.map((text) => text.replaceAll(scratch, "").length))).toBeLessThanOrEqual(160);
  return ran.err;
}

describe.each(Object.entries(LINES))("exit code %s", (code, lines) => {
  it.each(lines)("%s", async (line, says) => {
    // Nothing is announced before what is wrong is known.
    expect(await expectRefusal(line, Number(code), says)).toMatch(/^automap: \S/);
  });
});

describe("where no tool is on the PATH", () => {
  const database = `--db ${join(scratch, "new.db")}`;
  afterEach(() => vi.unstubAllEnvs());
  it.each([
    [`tune conv2d --quiet ${database}`, "no C++ compiler found"],
    [`calibrate ${database}`, "no C++ compiler found"],
    [`emit conv2d --to ${ABSENT} --db ${EMPTY}`, "no C++ compiler found"],
    [`tune matmul --target cuda --quiet ${database}`, "nvidia-smi"],
    [`calibrate --target cuda ${database}`, "nvidia-smi"],
  ])("%s", async (line, says) => {
    vi.stubEnv("PATH", "");
    vi.stubEnv("CXX", "");
    await expectRefusal(line, 6, says);
  });

  it("proves no package, and says that it is written", async () => {
    vi.stubEnv("PATH", "");
    vi.stubEnv("CXX", "");
    await expectRefusal(`emit conv2d --portable --prove --to ${ABSENT}`, 6, "written but not proved");
    rmSync(ABSENT, { recursive: true });
  });
});

it("leaves nothing behind", () => {
  expect(readdirSync(scratch).sort()).toEqual(["empty.db", "folder", "full", "garbage.db"]);
  expect(existsSync("automap.db")).toBe(false);
});
