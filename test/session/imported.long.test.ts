/**
 * @file The third wall: kernels of records and packages from elsewhere are built and run when the user says so, first in a process of their
 * own, and never by anything else that reads a record.
 */

import { chmodSync, cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { UsageError } from "../../abstraction/error.ts";
import {
  beginRun,
  endRun,
  exportLines,
  importLines,
  openDatabase,
  queryTrials,
  recordCalibration,
  recordTrial,
  showTrial,
  type TrialRecord,
} from "../../db/index.ts";
import type { Compiler } from "../../runtime/compiler.ts";
import { environmentOf } from "../../session/calibrate/environment.ts";
import { load } from "../../session/package/load.ts";
import { commandLine } from "../support/command-line.ts";
import { measured } from "../support/database.ts";
import { compilerHere } from "../support/here.ts";
import { compileOnce } from "../support/kept-compiler.ts";
import { plainCandidate } from "../support/packages.ts";
import { scratchFolder } from "../support/scratch.ts";
import { inFull } from "../support/slow.ts";
import { operation } from "../support/subjects.ts";

const root = scratchFolder("automap imported ");
const at = (name: string): string => join(root, name);
compileOnce(inFull([], ["-O1"]));
afterEach(() => vi.unstubAllEnvs());

const conv = operation("conv2d c=16 k=16 h=5 w=5 NHWC", "u8s8");
const HERE = at("here.db");
const IMPORTED = at("imported.db");
let id = "";
let run = "";

beforeAll(async () => {
  const environment = environmentOf({ compiler: await compilerHere() });
  const plain = plainCandidate(conv);
  if (!plain) throw new Error("nothing maps the convolution here");
  const db = openDatabase(HERE);
  const options = { strategy: "random", threads: 1, intrinsics: [plain.candidate.intrinsic], kinds: "mappings" };
  run = beginRun(db, {
    workload: { computation: conv },
    environment,
    seed: 1,
    options,
    budget: { trials: 1 },
    started: 1,
  });
  id = recordTrial(db, {
    workload: { computation: conv },
    environment,
    run,
    intrinsic: plain.mapping.intrinsic,
    trial: { candidate: plain.candidate, prediction: undefined, measurement: measured(12), at: 2 },
    conditions: { threads: 1, cache: "warm" },
  });
  endRun(db, run, { status: "done", ended: 3 });
  const other = openDatabase(IMPORTED);
  importLines(other, exportLines(db));
  db.close();
  other.close();
});

/** A compiler that leaves a file when it is asked to compile anything. */
function telltale(): string {
  const script = at("telltale");
  writeFileSync(
    script,
    `#!/bin/sh\ncase "$*" in *--version*|*-dump*) ;; *) echo "$@" >> "${at("planted")}" ;; esac\nexec g++ "$@"\n`,
  );
  chmodSync(script, 0o755);
  return script;
}
/** Whether anything was compiled since. */
function planted(): boolean {
  const found = existsSync(at("planted"));
  rmSync(at("planted"), { force: true });
  return found;
}

describe("an imported record", () => {
  it("is neither built nor run by load", async () => {
    vi.stubEnv("CXX", telltale());
    const trial = imported();
    for (const source of [id, id.slice(0, 8), trial])
      await expect(load(source, { database: IMPORTED, cache: at("never") })).rejects.toThrow(
        /was imported, not measured here: its kernel is code of whoever wrote it/,
      );
    expect(planted()).toBe(false);
    expect(existsSync(at("never"))).toBe(false);
    await expect(load(id, { database: IMPORTED })).rejects.toThrow(UsageError);
  });

  it.each([
    [
      "emit --prove",
      () => `emit ${id} --to '${at("proved")}' --prove`,
      2,
      /--trust-imported \(in TypeScript trustImported: true\)/,
    ],
    ["emit", () => `emit ${id} --to '${at("written")}'`, 0, /was imported: nothing of it was built or run here/],
    [
      "emit of an operator",
      () => `emit conv2d --c 16 --k 16 --h 5 --w 5 --dtype u8s8 --layout NHWC --trust any --to '${at("operator")}'`,
      3,
      /was imported/,
    ],
    [
      "db verify --remeasure",
      () => "db verify --remeasure 5",
      0,
      /0 trials of exactly this machine can be measured again; --trust-imported/,
    ],
    ["db show", () => `db show ${id}`, 0, /imported/],
    ["db best", () => "db best --trust any", 0, /./],
    ["db query", () => "db query", 0, /./],
    ["db stale", () => "db stale", 0, /./],
    ["explain", () => `explain ${id}`, 0, /./],
    ["report", () => `report -o '${at("report.html")}'`, 0, /./],
    ["replay", () => `replay ${run}`, undefined, /./],
    ["check", () => `check --baseline '${HERE}'`, 3, /missing/],
  ])("is neither built nor run by %s", async (_, line, code, said) => {
    vi.stubEnv("CXX", telltale());
    const words = `${line()} --db '${IMPORTED}'`;
    const ran = await commandLine(words);
    expect(`${ran.out}${ran.err}`).toMatch(said);
    if (code !== undefined) expect(ran.code).toBe(code);
    expect(planted()).toBe(false);
  });

  it("runs in a separate process before it is loaded when the user trusts it", async () => {
    const kernel = await load(id, { database: IMPORTED, trustImported: true, cache: at("cache") });
    const input = new Uint8Array(400).fill(1);
    const weight = new Int8Array(2304).fill(1);
    const out = new Int32Array(400);
    kernel.run(input, weight, out);
    expect(out[(2 * 5 + 2) * 16]).toBe(16 * 9);
    kernel.close();
  });

  it("is not loaded when it crashes that process", async () => {
    // Every kernel this compiler makes kills the process that opens it; the library that load itself makes does not.
    const header = at("deadly.h");
    writeFileSync(header, "#include <signal.h>\n__attribute__((constructor)) static void die() { raise(SIGSEGV); }\n");
    const script = at("deadly");
    const gxx = process.env["CXX"] ?? "g++";
    writeFileSync(
      script,
      `#!/bin/sh\ncase "$*" in *-shared*.cpp*|*.cpp*-shared*) exec ${gxx} -include "${header}" "$@" ;; *) exec ${gxx} "$@" ;; esac\n`,
    );
    chmodSync(script, 0o755);
    const found = await compilerHere();
    const compiler: Compiler = { ...found, command: [script], version: `${found.version} deadly` };
    await expect(
      load(id, { database: IMPORTED, trustImported: true, compiler, cache: at("deadly cache") }),
    ).rejects.toThrow(/was imported, and its kernel ended as crashed in a process of its own/);
    expect(existsSync(at("deadly cache"))).toBe(false);
  });

  it("is built, run and proved by emit and by verify when the user trusts it", async () => {
    const emitted = await commandLine(`emit ${id} --to '${at("trusted")}' --prove --trust-imported --db '${IMPORTED}'`);
    expect(emitted).toMatchObject({ code: 0, out: expect.stringContaining("right") });
    const verified = await commandLine(`db verify --remeasure 1 --trust-imported --json --db '${IMPORTED}'`);
    expect(JSON.parse(verified.out)).toMatchObject({
      problems: [],
      remeasured: [{ id, measurement: { status: "ok" } }],
    });
    // A package proved here counts as one of this machine.
    (await load(at("trusted"), { cache: at("cache") })).close();
  });

  it("does not replace the measurements of a search", async () => {
    const db = openDatabase(at("tuned.db"));
    const other = openDatabase(HERE, { readonly: true });
    importLines(db, exportLines(other));
    // Rates, so that none have to be measured first.
    const data = { machine: "here", clockHz: { median: 3e9, spread: 0 }, memory: {}, intrinsics: {}, scalar: {} };
    recordCalibration(db, { environment: environmentOf({ compiler: await compilerHere() }), data, at: 1 });
    other.close();
    db.close();
    const words =
      "tune conv2d --c 16 --k 16 --h 5 --w 5 --dtype u8s8 --layout NHWC --trials 2 --time 60 --kinds mappings --db";
    const tuned = await commandLine([...words.split(" "), at("tuned.db")]);
    expect(tuned.code).toBe(0);
    expect(tuned.err).toContain("by default: --n 1 --r 3 --s 3 --stride 1 --pad 1 --dilation 1 --groups 1\n");
    const again = openDatabase(at("tuned.db"), { readonly: true });
    const trials = queryTrials(again, {});
    expect(trials.filter((t) => t.provenance === "imported").map((t) => t.id)).toEqual([id]);
    expect(trials.filter((t) => t.provenance === "here").length).toBeGreaterThanOrEqual(2);
    again.close();
  });
});

describe("a record measured here", () => {
  it("is emitted as a package that load takes, until a byte of it changes", async () => {
    expect((await commandLine(`emit ${id} --to '${at("own")}' --db '${HERE}'`)).code).toBe(0);
    (await load(at("own"), { cache: at("cache") })).close();
    for (const [file, change] of [
      ["conv2d_tuned.cpp", (text: string) => `${text}\n__attribute__((constructor)) static void evil() {}\n`],
      ["conv2d.h", (text: string) => `${text}\n`],
      ["kernel.json", (text: string) => text.replace('"threads": 1', '"threads": 2')],
      ["kernel.json", (text: string) => text.replace(/"seal": "\w+"/, `"seal": "${"0".repeat(32)}"`)],
      ["kernel.json", (text: string) => text.replace(/,\s*"seal": "\w+"/, "")],
    ] as const) {
      const folder = mkdtempSync(at("changed "));
      cpSync(at("own"), folder, { recursive: true });
      const text = readFileSync(join(folder, file), "utf8");
      expect(change(text)).not.toBe(text);
      writeFileSync(join(folder, file), change(text));
      await expect(load(folder, { cache: at("cache") })).rejects.toThrow(/was not written here|was changed since/);
    }
  });

  it("is a foreign package on another machine, which load takes only when told to", async () => {
    expect((await commandLine(`emit ${id} --to '${at("given")}' --db '${HERE}'`)).code).toBe(0);
    vi.stubEnv("XDG_STATE_HOME", at("state of another"));
    await expect(load(at("given"), { cache: at("cache") })).rejects.toThrow(/was not written here/);
    (await load(at("given"), { cache: at("cache"), trustImported: true })).close();
  });
});

function imported(): TrialRecord {
  const db = openDatabase(IMPORTED, { readonly: true });
  try {
    return showTrial(db, id);
  } finally {
    db.close();
  }
}
