/** @file `automap emit` on the command line: which record it takes, what it refuses, and with which exit code. */

import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { EnvironmentError } from "../../abstraction/error.ts";
import { openDatabase, recordTrial } from "../../db/index.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { environmentOf } from "../../session/calibrate/environment.ts";
import { writePackage } from "../../session/package/package-folder.ts";
import { commandLine } from "../support/command-line.ts";
import { candidate, MACHINE, newTrial, trial } from "../support/database.ts";
import { compilerHere } from "../support/here.ts";
import { recordPlain } from "../support/packages.ts";
import { scratchFolder } from "../support/scratch.ts";
import { operation } from "../support/subjects.ts";

const root = scratchFolder();
afterEach(() => vi.unstubAllEnvs());
const at = (name: string): string => join(root, name);

const compiler = await compilerHere();

const small = operation("conv2d c=16 k=16 h=6 w=5 n=1 NHWC", "u8s8");

describe("automap emit", () => {
  let id: string;
  let failed: string;
  beforeAll(() => {
    id = recordPlain(at("t.db"), small, environmentOf({ compiler }));
    const db = openDatabase(at("t.db"));
    failed = recordTrial(db, newTrial(1, { trial: trial({ status: "crashed", log: "signal 11" }, 5, candidate()) }));
    db.close();
    recordPlain(at("elsewhere.db"), small, MACHINE);
  });
  const untyped = "conv2d --c 16 --k 16 --h 6 --w 5 --layout NHWC";
  const shape = `${untyped} --dtype u8s8`;
  const emit = (words: string, file = "t.db"): ReturnType<typeof commandLine> =>
    commandLine(["emit", ...words.split(" ").map((w) => (w.startsWith("@") ? at(w.slice(1)) : w)), "--db", at(file)]);

  it("writes the package of a record and proves it", async () => {
    const { code, out } = await emit(`${id.slice(0, 12)} --to @one --verify`);
    expect({ code, out }).toEqual({
      code: 0,
      out: expect.stringContaining("conv2d tuned: right on random and extreme data"),
    });
    expect(out).toContain(`remake    automap emit ${id.slice(0, 12)} --to DIR --db ${at("t.db")}\n`);
    expect(readFileSync(at("one/conv2d_tuned.cpp"), "utf8")).toContain(`automap emit ${id.slice(0, 12)} --to DIR`);
    expect(JSON.parse(readFileSync(at("one/kernel.json"), "utf8"))).toMatchObject({ schemaVersion: 1, record: id });
  });

  it("finds the best record of an operator in this environment, and says which", async () => {
    const { code, out, err } = await emit(`${shape} --to @two --name conv --json`);
    expect({ code, err }).toEqual({ code: 0, err: expect.stringContaining(`record ${id.slice(0, 12)}`) });
    expect(JSON.parse(out)).toMatchObject({ schemaVersion: 1, name: "conv", record: id });
    expect(readFileSync(at("two/conv.h"), "utf8")).toContain("int conv_run(conv_plan* plan");
  });

  it.each([
    ["an unknown record", "00ff00ff --to @x", 3, "holds no trial 00ff00ff"],
    ["a trial that failed", "FAILED --to @x", 3, "ended as crashed: there is no kernel to use"],
    ["a folder that is not empty", "RECORD --to @full", 2, "full is not empty: it holds README.txt"],
    ["a folder that is a file", "RECORD --to @full/README.txt", 2, "README.txt is a file"],
    ["no folder", "RECORD", 2, "emit needs --to"],
    ["a name that C refuses", "RECORD --to @x --name 3d", 2, '"3d" cannot name a C function'],
    ["a keyword for a name", "RECORD --to @x --name while", 2, '"while" cannot name a C function'],
    ["a shape behind a record", "RECORD --c 64 --to @x", 2, 'unexpected "--c" behind a record'],
    ["an operator that does not exist", "conv9d --to @x", 2, 'unknown operator "conv9d"'],
    [
      "the default types, which were never tuned",
      `${untyped} --to @x`,
      3,
      "there are records of it with --dtype u8s8\n",
    ],
    ["a workload that was never tuned", "matmul --m 4 --to @x", 3, "find one: automap tune matmul --m 4"],
    [
      "threads that were never tuned",
      `${shape} --threads 2 --to @x`,
      3,
      "none measured in this environment with 2 threads",
    ],
    ["a policy that does not exist", `${shape} --trust blindly --to @x`, 2, "--trust is one of exact, isa, any"],
  ])("refuses %s", async (_, words, code, message) => {
    writePackage(at("full"), new Map([["README.txt", "mine"]]), true);
    const ran = await emit(words.replace("RECORD", id.slice(0, 12)).replace("FAILED", failed));
    expect(ran).toEqual({ code, out: "", err: expect.stringContaining(message) });
    expect(existsSync(at("x"))).toBe(false);
  });

  it("writes into a folder that is not empty when told to", async () => {
    writePackage(at("full"), new Map([["README.txt", "mine"]]), true);
    expect(await emit(`${id} --to @full --force`)).toMatchObject({ code: 0 });
    expect(readFileSync(at("full/README.txt"), "utf8")).toBe("mine");
  });

  it("takes a record of another machine only when told to, and names the differing fields", async () => {
    const ran = await emit(`${shape} --to @foreign`, "elsewhere.db");
    expect(ran).toMatchObject({
      code: 3,
      err: expect.stringMatching(/none measured in this environment with one thread: .*cpu.* differ/),
    });
    expect(await emit(`${shape} --to @foreign --trust any`, "elsewhere.db")).toMatchObject({ code: 0 });
  });

  it("refuses the record of a kernel in a language that has no packages", async () => {
    const dot = recordPlain(at("dpas.db"), small, MACHINE, intrinsicsNamed("dpas.8x8.s32.u8s8"));
    expect(await emit(`${dot} --to @x`, "dpas.db")).toMatchObject({
      code: 2,
      err: expect.stringMatching(/is a kernel in CM, of which no packages are written\n {2}.* --to kernel\.cm --db /),
    });
    expect(existsSync(at("x"))).toBe(false);
  });

  it("writes the source of such a record with the program that runs it, and overwrites no file", async () => {
    const dot = recordPlain(at("cm.db"), small, MACHINE, intrinsicsNamed("dpas.8x8.s32.u8s8"));
    expect(await emit(`${dot} --to @k.cu`, "cm.db")).toMatchObject({
      code: 2,
      err: expect.stringMatching(
        /is a kernel in CM, and .*k\.cu is named like a text in CUDA\n {2}.* --to kernel\.cm --db /,
      ),
    });
    writeFileSync(at("k.host.cpp"), "mine");
    expect(await emit(`${dot} --to @k.cm`, "cm.db")).toMatchObject({
      code: 2,
      err: expect.stringContaining("k.host.cpp is there already"),
    });
    expect(existsSync(at("k.cm"))).toBe(false);
    expect(await emit(`${dot} --to @k.cm --force`, "cm.db")).toMatchObject({
      code: 0,
      out: expect.stringMatching(/k\.cm and .*k\.host\.cpp: conv2d.*, measured on /),
    });
    expect(readFileSync(at("k.cm"), "utf8")).toContain("_GENX_MAIN_");
    expect(readFileSync(at("k.host.cpp"), "utf8")).toContain("cm_rt.h");
  });

  it("writes a kernel in CM over no foreign host program, and to a device without one", async () => {
    const systolic = ["systolic", "conv1d-single", "--show", "SBM", "--emit", "cm", "--to"];
    expect(await commandLine([...systolic, at("sbm.cm")])).toMatchObject({ code: 0 });
    expect(await commandLine([...systolic, at("sbm.cm")])).toMatchObject({ code: 0 });
    writeFileSync(at("sbm.host.cpp"), "mine");
    expect(await commandLine([...systolic, at("sbm.cm")])).toMatchObject({
      code: 2,
      err: expect.stringMatching(/would replace .*sbm\.host\.cpp, which automap did not write\n {2}name another file/),
    });
    expect(readFileSync(at("sbm.host.cpp"), "utf8")).toBe("mine");
    expect(await commandLine([...systolic, "/dev/null"])).toMatchObject({ code: 0 });
    expect(existsSync("/dev/null.host.cpp")).toBe(false);
  });

  it("writes the portable code of any equation", async () => {
    const words = [
      "emit",
      "y[i] += f32(x[i+r]) * f32(k[r])",
      "--i",
      "9",
      "--r",
      "3",
      "--portable",
      "--prove",
      "--to",
      at("equation"),
    ];
    expect(await commandLine(words)).toMatchObject({
      code: 0,
      out: expect.stringContaining("equation portable: right"),
    });
  });

  it("writes a given record without a compiler, but cannot prove it or choose one", async () => {
    vi.stubEnv("CXX", "no-such-compiler");
    expect(await emit(`${id} --to @plain`)).toMatchObject({ code: 0 });
    expect(await emit(`${id} --to @unproved --prove`)).toMatchObject({
      code: 6,
      err: expect.stringContaining("written but not proved"),
    });
    expect(await emit(`${shape} --to @x`)).toMatchObject({
      code: 6,
      err: expect.stringContaining("name a record by its id"),
    });
  });
});

describe("a package that cannot be written completely", () => {
  const files = (last: string): ReadonlyMap<string, string> =>
    new Map([
      ["conv.h", "new"],
      ["cmake/conv.cmake", "new"],
      [last, "no system takes this name"],
    ]);
  const TOO_LONG = "x".repeat(300);

  it("leaves behind none of the folders that it made", () => {
    expect(() => writePackage(at("above/half"), files(TOO_LONG))).toThrow(
      /above\/half cannot be written: the name is too/,
    );
    expect(existsSync(at("above"))).toBe(false);
  });

  it("leaves existing files unchanged", () => {
    mkdirSync(at("there"));
    writeFileSync(at("there/conv.h"), "old");
    expect(() => writePackage(at("there"), files(TOO_LONG), true)).toThrow(EnvironmentError);
    expect(readdirSync(at("there"))).toEqual(["conv.h"]);
    expect(readFileSync(at("there/conv.h"), "utf8")).toBe("old");
    writePackage(at("there"), files("conv.cpp"), true);
    expect(readdirSync(at("there")).sort()).toEqual(["cmake", "conv.cpp", "conv.h"]);
    expect(readFileSync(at("there/conv.h"), "utf8")).toBe("new");
  });
});

describe("an operator without --dtype", () => {
  const words = ["matmul", "--m", "8", "--n", "8", "--k", "8", "--db", at("default.db")];

  it("is not there to be replayed before it is tuned", async () => {
    const { code, out, err } = await commandLine(["tune", ...words, "--strategy", "replay", "--quiet"]);
    expect({ code, out }).toEqual({ code: 1, out: "" });
    expect(err).toMatch(/default\.db holds no trial of this computation to replay/);
    expect(err).not.toContain("the time was up");
  });

  it("is of f32 in every command, and --to - writes nothing but the kernel to standard output", async () => {
    const tuned = await commandLine(["tune", ...words, "--trials", "2", "--to", "-"]);
    expect(tuned).toMatchObject({
      code: 0,
      err: expect.stringMatching(/by default: --dtype f32\n[\s\S]*a call \(95 %/),
    });
    const explained = await commandLine(["explain", ...words, "--candidate", "best"]);
    expect(explained).toMatchObject({ code: 0, out: expect.stringMatching(/matmul m 8 n 8 k 8, f32/) });
    const [, id = ""] = /record {3}automap db show (\w+)/.exec(explained.out) ?? [];
    expect(await commandLine(["emit", ...words, "--to", at("default")])).toMatchObject({ code: 0 });
    expect(readFileSync(at("default/kernel.json"), "utf8")).toContain(id);
    expect(existsSync("-")).toBe(false);
    const file = await commandLine(["tune", ...words, "--trials", "2", "--quiet", "--to", at("k.cpp")]);
    expect(file.code).toBe(0);
    expect(tuned.out).toBe(`${readFileSync(at("k.cpp"), "utf8").trimEnd()}\n`);
    const other = await commandLine(["explain", ...words, "--dtype", "f16", "--candidate", "best"]);
    expect(other).toMatchObject({
      code: 3,
      err: expect.stringContaining("there are records of it with --dtype f32; "),
    });
  });
});
