/**
 * @file What careless hands type. Each line is refused in a sentence that names the mistake, with the exit code that belongs to it, before
 * anything is searched, compiled or written; no stack trace, nothing wider than a terminal.
 */

import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { openDatabase } from "../db/index.ts";
import { commandLine, type Ran } from "./support/command-line.ts";
import { compileProgram } from "./support/program.ts";
import { scratchFolder } from "./support/scratch.ts";
import { inFull } from "./support/slow.ts";

const scratch = scratchFolder();
const GARBAGE = join(scratch, "garbage.db");
const FOLDER = join(scratch, "folder");
const ABSENT = join(scratch, "absent");
const EMPTY = join(scratch, "empty.db");
const FULL = join(scratch, "full");
const NOTHING = join(scratch, "nothing");
const NUMBER = join(scratch, "number.mjs");
const THROWS = join(scratch, "throws.mjs");
openDatabase(EMPTY).close();
writeFileSync(GARBAGE, "this is no database\n".repeat(200));
writeFileSync(NOTHING, "");
writeFileSync(NUMBER, "export default 5;");
writeFileSync(THROWS, "throw new Error('no instructions today');");
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
    ["conv2d tune", "the command comes first: automap tune"],
    ["--layout NHWC tune conv2d", "the command comes first: automap tune"],
    ["TUNE conv2d", "did you mean tune?"],
    ["best", "did you mean automap db best?"],
    ["show a64661", /did you mean .*automap intrinsic show, .*automap db show/],
    ["tune conv2d -- --layout NHWC", "leave out the -- before it"],
    [`report --db ${EMPTY} -o ${EMPTY}`, /is a database: its records would be lost\n {2}name another file/],
    [`tune conv2d --to ${EMPTY}`, "is a database: its records would be lost"],
    [`tune conv2d --trace ${EMPTY}`, "is a database: its records would be lost"],
    [`explain conv2d --intrinsic amx.tdpbusd --svg ${EMPTY}`, "is a database: its records would be lost"],
    [`check --baseline ${EMPTY} --db ${EMPTY} --junit ${EMPTY}`, "is a database: its records would be lost"],
    ["help foo", 'unknown command "foo"'],
    ["tnue conv2d", "did you mean tune?"],
    ["db bst", "did you mean best?"],
    ["doctor extra", "too many arguments: doctor takes none, got 1"],
    ["version", "did you mean automap --version?"],
    ["-v", "did you mean automap --version?"],
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
    [
      "map conv2d --epilogue gelu",
      /did you mean "relu"\?\n {2}known: relu, bias, .*, bf16\n {2}or an equation, for example "res\[n,k,p,q\] = max\(/,
    ],
    [`map ${MATMUL} --epilogue bias-relu`, '--epilogue "res[i,j] = max(c[i,j] + bias[j], 0)"'],
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
    ["map conv2d --layout NHWC --layout NCHW", "--layout is given twice"],
    ["tune conv2d --trials 5 --trials=5", "--trials is given twice"],
    [`report --db ${EMPTY} -o ${ABSENT} --output ${ABSENT}`, "--output is given twice"],
    ["tune conv2d --json --to -", "both write to standard output"],
    ["systolic conv1d --emit cm --json --to -", "both write to standard output"],
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
    // Networks.
    ["network shw resnet18", "did you mean show?"],
    ["network show", "missing required argument"],
    ["network operators extra", "too many arguments"],
    ["network show resnet19", 'did you mean "resnet18"?'],
    [`network show ${ABSENT}.onnx`, "cannot be read: there is no such file"],
    [`network show ${FOLDER}`, "is no file"],
    [`network show ${GARBAGE}`, "is no ONNX model"],
    [`network show ${NOTHING}`, "holds no network"],
    ["network show resnet18 --dim batch", "has no ="],
    ["network show resnet18 --dim batch=0", "--dim batch=0: a size is a whole number"],
    ["network show resnet18 --dim batch=x", "--dim batch=x: a size is a whole number"],
    ["network show resnet18 --constant x", "has no ="],
    [`network show resnet18 --constant x=${ABSENT}.pb`, "cannot be read: there is no such file"],
    ["network show resnet18 --threads 0", 'got "0"'],
    ["network show resnet18 --thraeds 2", "did you mean --threads?"],
    ["network emit resnet18", "network emit needs --to"],
    ['network emit resnet18 --to ""', "--to must name a folder"],
    [`network emit resnet18 --to ${GARBAGE}`, "is a file"],
    [`network emit resnet18 --to ${FULL}`, "is not empty"],
    [`network emit resnet18 --to ${ABSENT} --name while`, '"while" cannot name a C function'],
    [`network emit resnet18 --to ${ABSENT} --name "a b"`, '"a b" cannot name a C function'],
    ["tune-network", "missing required argument"],
    ["tune-network resnet19", 'did you mean "resnet18"?'],
    [`tune-network ${GARBAGE}`, "is no ONNX model"],
    ["tune-network resnet18 --tme 5", "did you mean --time?"],
    ["tune-network resnet18 --time 0", 'got "0"'],
    ["tune-network resnet18 --seed -1", '--seed must be a whole number, got "-1"'],
    ["tune-network resnet18 --threads 4000", "processors"],
    ["network show resnet18 --threads 4000", "processors"],
    ["network emit resnet18 --threads 4000 --to never", "processors"],
    [`tune-network resnet18 --db ${FOLDER}`, "is a directory"],
    [`tune-network resnet18 --db ${GARBAGE}`, "is not a SQLite database"],
    // Languages and machines.
    ["tune conv2d --language fortran", 'got "fortran"'],
    [
      "tune conv2d --language cm",
      /no instruction that .* has is reached from cm\n {2}kernels for it are written in c\+\+/,
    ],
    ["tune matmul --target dg2 --language cuda --model-only", "kernels for it are written in opencl, cm, sycl"],
    ["tune matmul --target h100 --language c++ --model-only", "kernels for it are written in cuda"],
    ["tune matmul --target neoverse-n1 --threads 4000", "has 64 cores"],
    ["tune matmul --target mali", 'no machine "mali"'],
    ["tune matmul --target sm_9000 --model-only", 'no machine "sm_9000"'],
    ["calibrate --target dg2", "nothing here measures dg2"],
    ["calibrate --target neoverse-n1", "is not this machine"],
    // Declarations of the user's own.
    [`map conv2d --declare ${ABSENT}.mjs`, "there is no file"],
    [`map conv2d --declare ${FOLDER}`, "is a directory"],
    [`map conv2d --declare ${NUMBER}`, "expected object, received number"],
    [`tune conv2d --declare ${THROWS}`, "cannot be loaded: no instructions today"],
    // Options that nothing would come of.
    ["tune conv2d --model-only --trials 5", "--trials is for a search that measures"],
    ["tune conv2d --model-only --strategy random", "--strategy is for a search that measures"],
    [`tune conv2d --model-only --trace ${ABSENT}`, "--trace is for a search that measures"],
    [`tune conv2d --target apple-m1 --trace ${ABSENT}`, "--trace is for a search that measures"],
    [`db verify --seed 2 --db ${EMPTY}`, "--seed is for trials that are measured again"],
    [`db verify --trust-imported --db ${EMPTY}`, "--trust-imported is for trials that are measured again"],
    [`emit conv2d --portable --trust-imported --to ${ABSENT}`, "--trust-imported is for --verify"],
    [`emit ffffff --threads 2 --to ${ABSENT} --db ${EMPTY}`, "--threads chooses among the records of an operator"],
    [`emit ffffff --portable --to ${ABSENT} --db ${EMPTY}`, "--portable is for an operator"],
    [`emit ffffff --c 64 --to ${ABSENT} --db ${EMPTY}`, 'unexpected "--c" behind a record'],
    [`emit ffffff --to ${ABSENT} --db ${EMPTY}`, "holds no trial ffffff"],
    // Caches, completion, the doctor.
    ["cache show extra", "too many arguments"],
    ["cache show --jsn", "did you mean --json?"],
    ["cache clear --all", "unknown option '--all'"],
    ["completion bash zsh", "too many arguments"],
    ["doctor --jsno", "did you mean --json?"],
    ["doctor --db", "argument missing"],
    // Gates, replays, reports.
    [`check --baseline ${EMPTY} --db ${ABSENT}.db`, "there is no database"],
    [`check --baseline ${EMPTY} --db ${EMPTY} --max-regression x`, 'must be a share such as 3% or 0.03, got "x"'],
    [`check --baseline ${EMPTY} --db ${EMPTY} --max-regression 300`, 'must be a share such as 3% or 0.03, got "300"'],
    [`check --baseline ${EMPTY} --db ${EMPTY} --op nope`, 'unknown operator "nope"'],
    [`check --baseline ${EMPTY} --db ${EMPTY} --junit ${FOLDER}`, "is a directory"],
    [`check --baseline ${GARBAGE} --db ${EMPTY}`, /is not a SQLite database\n {2}name another file$/m],
    [`check --baseline ${FOLDER} --db ${EMPTY}`, "is a directory"],
    [`replay zz --db ${EMPTY}`, '"zz" is not the id of a run'],
    [`replay a b --db ${EMPTY}`, "too many arguments"],
    [`replay ffff --db ${FOLDER}`, "is a directory"],
    [`report page.html --db ${EMPTY}`, /unexpected argument "page.html"\n {2}-o names the page/],
    [
      `report --db ${EMPTY} -o ${EMPTY}-wal`,
      /belongs to the database .*: records would be lost\n {2}name another file/,
    ],
    [`report --db ${EMPTY} -o ${FOLDER}`, "is a directory"],
    [`report --db ${EMPTY} --op conv9d -o ${ABSENT}`, 'did you mean "conv1d"?'],
    [`report --db ${EMPTY} --dtype float -o ${ABSENT}`, 'did you mean "f32"?'],
    [`report --db ${EMPTY} --run ffff -o ${ABSENT}`, "holds no run ffff"],
    [`report --db ${EMPTY} --op conv2d -o ${ABSENT}`, "holds no trial that matches: nothing was written"],
    [`report --db ${EMPTY} --dtype f16 -o ${ABSENT}`, "holds no trial that matches: nothing was written"],
    [`report --db ${GARBAGE} -o ${ABSENT}`, "is not a SQLite database"],
    // Questions.
    [`db show zz --db ${EMPTY}`, '"zz" is not the id of a trial'],
    [`db show ffff ffff --db ${EMPTY}`, "too many arguments"],
    [`db query --since yesterday --db ${EMPTY}`, '"yesterday" is no time'],
    [`db query --since 2026-13-45 --db ${EMPTY}`, '"2026-13-45" is no time'],
    [`db query --since 2026-11-02 --until 2026-11-01 --db ${EMPTY}`, "is not before"],
    [`db query --sort speed --db ${EMPTY}`, "unknown --sort"],
    [`db query --c 5..2 --db ${EMPTY}`, "the range 5..2 is empty"],
    [`db query --c 64... --db ${EMPTY}`, 'got "64..."'],
    [`db query --op nope --db ${EMPTY}`, 'unknown operator "nope"'],
    [`db query --dtype float32 --db ${EMPTY}`, 'did you mean "f32"?'],
    [`db query --layout nhwc --db ${EMPTY}`, '"nhwc" is no layout'],
    [`db query --epilogue rleu --db ${EMPTY}`, 'did you mean "relu"?'],
    [`db query --intrinsic vni --db ${EMPTY}`, 'did you mean "vnni"?'],
    [`db query --threads 0 --db ${EMPTY}`, 'got "0"'],
    [`db query --run zz --db ${EMPTY}`, '"zz" is not the id of a run'],
    [`db query --json --csv --db ${EMPTY}`, "exclude each other"],
    [`db query --target h1000 --db ${EMPTY}`, /no record is of a target "h1000"\n {2}it holds no records yet/],
    [`db query --name layer --db ${EMPTY}`, 'nothing was tuned under the name "layer"'],
    [`db query extra --db ${EMPTY}`, 'unexpected argument "extra"'],
    [`db export -o ${FOLDER} --db ${EMPTY}`, "is a directory"],
    [`db export -o ${GARBAGE} --db ${EMPTY}`, "it is there already"],
    [`db export --status nope --db ${EMPTY}`, "unknown --status"],
    [`db export --json --db ${EMPTY}`, "is JSON lines already"],
    [`db export --limit 5 --db ${EMPTY}`, "--limit does not belong to an export"],
    [`db stale --op nope --db ${EMPTY}`, 'unknown operator "nope"'],
    [`db prune --until never --db ${EMPTY}`, '"never" is no time'],
    [`db prune --stale=yes --db ${EMPTY}`, 'did you mean "--stale"?'],
    [`db prune --yes --op nope --db ${EMPTY}`, 'unknown operator "nope"'],
    [`db verify --remeasure 0 --db ${EMPTY}`, "--remeasure must be a positive integer"],
    [`db verify --db ${GARBAGE}`, "is not a SQLite database"],
    [`db failures --since soon --db ${EMPTY}`, '"soon" is no time'],
    [`db failures --db ${ABSENT}.db`, "there is no database"],
    [`db import ${NOTHING} --db ${join(FOLDER, "a.db")}`, "the file to import is empty"],
    [`db merge ${EMPTY} ${EMPTY} --db ${EMPTY}`, "too many arguments"],
    [`db merge ${EMPTY} --db ${FOLDER}`, "is a directory"],
  ],
  6: [
    ["tune matmul --target dg2", "nothing here measures kernels for dg2"],
    ["calibrate --target h100", "no NVIDIA GPU"],
    [`tune-network resnet18 --db ${ABSENT}/a.db`, "there is no directory"],
    [`network emit resnet18 --to ${GARBAGE}/package`, "no directory"],
    [`check --baseline ${EMPTY} --db ${EMPTY} --junit ${ABSENT}/x.xml`, "there is no such file or directory"],
    [`report --db ${EMPTY} -o ${ABSENT}/r.html`, "there is no such file or directory"],
    [`db export -o ${ABSENT}/x.jsonl --db ${EMPTY}`, "there is no such file or directory"],
    [`db merge ${EMPTY} --db ${ABSENT}/a.db`, "there is no directory"],
    [`tune conv2d --trace ${ABSENT}/t.json`, "there is no such file or directory"],
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

/** A line that was refused: the code, nothing on stdout, a sentence that says so and no trace. */
function expectRefused(ran: Ran, code: number, says: string | RegExp): void {
  expect({ code: ran.code, out: ran.out }).toEqual({ code, out: "" });
  expect(ran.err).toMatch(says);
  // Nothing is printed before the mistake is known.
  expect(ran.err).toMatch(/^automap: \S/);
  expect(ran.err).not.toMatch(/^\s+at |internal:|Error:|E[A-Z]{4,}:/m);
  const told = ran.err.trimEnd().split("\n");
  expect(told.length).toBeLessThanOrEqual(5);
  expect(Math.max(...told.map((text) => text.replaceAll(scratch, "").length))).toBeLessThanOrEqual(160);
}

describe.each(Object.entries(LINES))("wrong command lines with exit code %s", (code, lines) => {
  it.each(lines)("%s", async (line, says) => {
    expectRefused(await commandLine(line), Number(code), says);
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
  const all = Object.entries(LINES).flatMap(([code, lines]) => lines.map(([line, says]) => ({ line, says, code })));

  it.each(all.filter((_, i) => i % EACH === 0))("$line", ({ line, says, code }) => {
    // The shell tells what the line took of a processor, behind what the line said.
    const { status, stdout, stderr } = spawnSync(
      "bash",
      ["-c", `TIMEFORMAT=$'\\n%U %S'; time ${process.execPath} "$PROGRAM/cli/main.js" ${line}`],
      { encoding: "utf8", env: { ...process.env, PROGRAM: program } },
    );
    const [, err = "", user, system] = /^([\s\S]*)\n(\S+) (\S+)\n$/.exec(stderr) ?? [];
    expectRefused({ code: status ?? -1, out: stdout, err }, Number(code), says);
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
    expectRefused(await commandLine(line), code, says);
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
    expectRefused(await commandLine(line), 6, says);
  });

  it("proves no package, and says that it is written but not proved", async () => {
    vi.stubEnv("PATH", "");
    vi.stubEnv("CXX", "");
    expectRefused(await commandLine(`emit conv2d --portable --prove --to ${ABSENT}`), 6, "written but not proved");
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
