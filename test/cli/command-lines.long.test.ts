/** @file Commands that are offered for pasting: a shell makes of them the words that they were made of, whatever these hold. */

import { execFileSync } from "node:child_process";
import { copyFileSync, readdirSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import Sqlite from "better-sqlite3";
import { beforeAll, describe, expect, it } from "vitest";
import { automapCommand, quotedWords } from "../../abstraction/error.ts";
import { declareWords } from "../../cli/declare.ts";
import { targetWords } from "../../cli/network-model.ts";
import {
  beginRun,
  databaseWords,
  endRun,
  exportLines,
  importLines,
  openDatabase,
  recordClock,
  recordTrial,
  showTrial,
} from "../../db/index.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { GraphBuilder } from "../../network/builder.ts";
import type { Graph } from "../../network/graph.ts";
import { lowerGraph } from "../../network/lower.ts";
import { contradictionText } from "../../session/calibrate/contradiction.ts";
import { subjectOf } from "../../session/package/emit.ts";
import { commandLine } from "../support/command-line.ts";
import { recordOnGpu } from "../support/cuda-packages.ts";
import { MACHINE, measured, newTrial, tamper, trial } from "../support/database.ts";
import { readSource, sourceFiles } from "../support/imports.ts";
import { explanationOf } from "../support/message.ts";
import { onnxBytes } from "../support/onnx-bytes.ts";
import { plainCandidate } from "../support/packages.ts";
import { scratchFolder } from "../support/scratch.ts";
import { operation } from "../support/subjects.ts";

const folder = scratchFolder();
const PRINTS_ITS_WORDS = `#!${process.execPath}\nprocess.stdout.write(JSON.stringify(process.argv.slice(2)));\n`;
writeFileSync(join(folder, "automap"), PRINTS_ITS_WORDS, { mode: 0o755 });

/** The words that a shell gives to automap. */
function wordsOf(line: string): unknown {
  const env = { ...process.env, PATH: `${folder}${delimiter}${process.env["PATH"] ?? ""}` };
  return JSON.parse(execFileSync("/bin/sh", ["-c", line], { cwd: folder, env, encoding: "utf8" }));
}

const EVIL = `$(touch x)\`touch y\`;'"\\\n--two  words*~ {a,b} !h #`;

/** A name of a file, of which a part would be run unless it is quoted. */
const NAME = `$(touch x)\`touch y\`;'" a&b *`;
const FILE = join(folder, `${NAME}.db`);
const OTHER = join(folder, `${NAME} other.db`);
const MODEL = join(folder, `${NAME}.onnx`);
const FOLDER = join(folder, NAME);

/** Of the records in the file: one that worked, one that failed, and one that was imported and can be emitted. */
const ids = { worked: "", failed: "", imported: "", run: "" };
const small = operation("conv2d c=16 k=16 h=5 w=5 NHWC", "u8s8");
const SMALL = ["conv2d", "--c", "16", "--k", "16", "--h", "5", "--w", "5", "--dtype", "u8s8", "--layout", "NHWC"];

beforeAll(() => {
  const plain = plainCandidate(small, intrinsicsNamed("avx512.vpdpbusd"));
  if (!plain) throw new Error("nothing maps");
  const theirs = openDatabase(join(folder, "theirs.db"), { key: join(folder, "their.key") });
  const options = {
    strategy: "random",
    threads: 1,
    cache: "warm",
    intrinsics: [plain.candidate.intrinsic],
    kinds: "mappings",
  };
  const workload = { computation: small };
  ids.run = beginRun(theirs, { workload, environment: MACHINE, seed: 1, options, budget: { trials: 1 }, started: 1 });
  ids.imported = recordTrial(theirs, {
    workload,
    environment: MACHINE,
    run: ids.run,
    intrinsic: plain.mapping.intrinsic,
    trial: { candidate: plain.candidate, prediction: undefined, measurement: measured(12), at: 2 },
    conditions: { threads: 1, cache: "warm" },
  });
  endRun(theirs, ids.run, { status: "done", ended: 3 });
  const db = openDatabase(FILE);
  [, ids.worked = ""] = [60, 61].map((microseconds) => recordTrial(db, newTrial(microseconds)));
  ids.failed = recordTrial(db, newTrial(1, { trial: trial({ status: "crashed", log: "signal 11" }, 4) }));
  importLines(db, exportLines(theirs));
  db.close();
  theirs.close();
  const slow = openDatabase(OTHER);
  recordTrial(slow, newTrial(600));
  slow.close();
  const net = new GraphBuilder("net");
  net.output(net.node("MatMul", [net.input("x", [4, 16]), net.constant("w", [16, 16], new Float32Array(256).fill(1))]));
  writeFileSync(MODEL, onnxBytes(net.graph));
});

interface Printed {
  /** Words of automap, or what else prints the command. */
  readonly by: () => readonly string[] | Promise<string> | string;
  /** What stands before the hostile word in the command; and the word. */
  readonly at: readonly [before: string, word: string];
}
const inFile =
  (...words: readonly string[]): (() => readonly string[]) =>
  () => [...words, "--db", FILE];
const DB = ["--db", FILE] as const;
const PRODUCT = "y[i,j] += x[i,k] * w[k,j]";
const PRINTED: Readonly<Record<string, Printed>> = {
  "db show: every sample": { by: () => ["db", "show", ids.worked, ...DB], at: DB },
  "db show: no such record": { by: inFile("db", "show", "ffff"), at: DB },
  "db show: a word that is no id": { by: inFile("db", "show", "ab"), at: DB },
  "db best: what is stale": { by: inFile("db", "best"), at: DB },
  "db export: no such run": { by: inFile("db", "export", "--run", "ffff"), at: DB },
  "db compare: a record without a time": { by: () => ["db", "compare", ids.worked, ids.failed, ...DB], at: DB },
  "explain: the record": { by: () => ["explain", ids.worked, ...DB], at: DB },
  "explain: rates of this machine": { by: () => ["explain", ids.imported, ...DB], at: ["calibrate --db", FILE] },
  "explain: rates of a GPU": {
    by: () => {
      recordOnGpu(FILE, { ...MACHINE, target: "h100", cpu: "NVIDIA H100", driver: "550.54" });
      return [
        "explain",
        "matmul",
        "--m",
        "16",
        "--n",
        "16",
        "--k",
        "32",
        "--dtype",
        "f16",
        ...["--epilogue", "c[m,n] = f16(out[m,n])"],
        "--candidate",
        "best",
        ...DB,
      ];
    },
    at: ["calibrate --target cuda --db", FILE],
  },
  "explain: no record of it": { by: inFile("explain", "matmul", "--candidate", "best"), at: DB },
  "replay: no such run": { by: inFile("replay", "ffff"), at: DB },
  "replay: where it diverges": { by: () => ["replay", ids.run, ...DB], at: ["--sort at --db", FILE] },
  "emit: no such record": { by: inFile("emit", "ffff", "--to", join(folder, "package")), at: DB },
  "tune: how its kernel is used": {
    by: inFile(
      "tune",
      "matmul",
      "--m",
      "8",
      "--n",
      "8",
      "--k",
      "8",
      "--dtype",
      "s16",
      "--intrinsic",
      "portable",
      ...["--trials", "1", "--time", "20"],
    ),
    at: ["--to DIR --db", FILE],
  },
  "emit: nothing of an operator": {
    by: inFile("emit", "matmul", "--trust", "any", "--to", join(folder, "package")),
    at: DB,
  },
  "emit: a record that failed": { by: () => ["emit", ids.failed, "--to", join(folder, "package"), ...DB], at: DB },
  "emit: how it is made again": {
    by: () => ["emit", ids.imported, "--force", "--to", FOLDER, ...DB],
    at: ["--to DIR --db", FILE],
  },
  "emit: how it is proved": {
    by: () => ["emit", ids.imported, "--force", "--to", FOLDER, ...DB],
    at: ["sh", join(FOLDER, "build.sh")],
  },
  "emit: the file of another language": {
    by: () => ["emit", ids.imported, "--to", join(folder, "kernel.cu"), ...DB],
    at: DB,
  },
  "emit: the folder of an imported record": {
    by: () => ["emit", ...SMALL, "--trust", "any", "--to", FOLDER, ...DB],
    at: ["--to", FOLDER],
  },
  "emit: the database of an imported record": {
    by: () => ["emit", ...SMALL, "--trust", "any", "--to", FOLDER, ...DB],
    at: DB,
  },
  "check: a record that is slower": { by: () => ["check", "--baseline", FILE, "--db", OTHER], at: ["--db", OTHER] },
  "a file that is not there": {
    by: () => ["db", "query", "--db", `${FOLDER} none.db`],
    at: ["--db", `${FOLDER} none.db`],
  },
  "a row that somebody changed": {
    by: () => {
      const file = join(folder, `${NAME} damaged.db`);
      copyFileSync(OTHER, file);
      const sqlite = new Sqlite(file);
      tamper(sqlite, "UPDATE trials SET candidate = '{}'");
      sqlite.close();
      return ["db", "query", "--db", file];
    },
    at: ["verify --db", join(folder, `${NAME} damaged.db`)],
  },
  "a trigger that somebody removed": {
    by: () => {
      const file = join(folder, `${NAME} bare.db`);
      copyFileSync(OTHER, file);
      const sqlite = new Sqlite(file);
      sqlite.exec("DROP TRIGGER trials_unchanged");
      sqlite.close();
      return ["db", "query", "--db", file];
    },
    at: ["sqlite3", join(folder, `${NAME} bare.db`)],
  },
  "a clock that is wrong": {
    by: () => {
      const db = openDatabase(join(folder, `${NAME} ahead.db`));
      recordTrial(db, newTrial(100, { trial: trial(measured(100), 2e12) }));
      const said = explanationOf(() => recordClock(db, () => 1.8e12));
      db.close();
      return said;
    },
    at: ["prune --db", join(folder, `${NAME} ahead.db`)],
  },
  "a calibration that is contradicted": {
    by: () => {
      const db = openDatabase(FILE, { readonly: true });
      const bound = { kind: "memory", name: "dram", seconds: 1 } as never;
      const found = { kernels: 1, of: 1, times: 2, bound, trial: showTrial(db, ids.worked), at: 1 };
      db.close();
      return contradictionText(found, FILE);
    },
    at: ["--force --db", FILE],
  },
  "what a package says of itself": {
    by: () => {
      const db = openDatabase(FILE, { readonly: true });
      const { provenance } = subjectOf(showTrial(db, ids.imported), { database: FILE, name: "small" });
      db.close();
      return provenance.join("\n");
    },
    at: ["--name small --db", FILE],
  },
  "network show: tasks that are not tuned": { by: () => ["network", "show", MODEL], at: ["tune-network", MODEL] },
  "network show: sizes that are not known": {
    by: () => {
      const x = { name: "x", type: "f32", shape: [NAME, 4] } as const;
      const node = { name: "act", op: "Relu", inputs: ["x"], outputs: ["y"], attributes: {} };
      return explanationOf(() =>
        lowerGraph({
          name: "n",
          opset: 13,
          inputs: [x],
          outputs: ["y"],
          constants: new Map(),
          nodes: [node],
        } as unknown as Graph),
      );
    },
    at: ["--dim", `${NAME}=1`],
  },
  "map: how a mapping is explained": {
    by: () => ["map", PRODUCT, "--i", "16", "--j", "16", "--k", "16", "--intrinsic", "avx2.fma.f32.broadcast"],
    at: ["explain", PRODUCT],
  },
  "systolic: how a design is drawn": {
    by: () => ["systolic", "y[i] += x[i+k] * w[k]", "--i", "8", "--k", "3"],
    at: ["systolic", "y[i] += x[i+k] * w[k]"],
  },
};

describe("a command to paste", () => {
  it.each([
    ["show a record", ["db", "show", EVIL]],
    ["another database", ["db", "best", ...databaseWords(EVIL)]],
    ["declarations", ["emit", "4f0c", ...declareWords({ declare: [EVIL, "-x"] })]],
    ["a network", ["tune-network", EVIL, ...targetWords({ target: "native", dim: [`${EVIL}=1`], constant: [EVIL] })]],
    ["a leading dash", ["network", "show", "-rf"]],
    ["nothing", ["tune", ""]],
    ["an assignment", ["tune", "A=$HOME"]],
  ] as const)("keeps its words: %s", (_, words) => {
    expect(wordsOf(automapCommand(words))).toEqual(words);
  });

  it.each(Object.entries(PRINTED))(
    "holds a name of any letters where it is printed: %s",
    async (_, { by, at: [before, word] }) => {
      const given = await by();
      const ran = typeof given === "string" ? { out: given, err: "" } : await commandLine(given);
      const text = `${ran.out}${ran.err}`;
      // The command, to the hostile word: what follows it in its line may be prose.
      const quoted = `${before} '${word.replaceAll("'", "'\\''")}'`;
      const end = text.indexOf(quoted);
      expect(end, text).not.toBe(-1);
      const line = text.slice(0, end).split("\n").at(-1) + quoted;
      const begin = [
        ...line.slice(0, -quoted.length + before.length + 1).matchAll(/\b(?:automap (?!map)|sqlite3 |sh )|--dim /g),
      ].at(-1);
      const command = line.slice(begin?.index).replace(/^(?:sqlite3|sh|--dim) /, "automap ");
      expect(wordsOf(command)).toEqual(expect.arrayContaining([word]));
      expect(readdirSync(folder).filter((name) => /^[xy]$/.test(name))).toEqual([]);
    },
  );

  it("may be a part, such as options", () => {
    expect(wordsOf(`automap network show m ${quotedWords(["--dim", `${EVIL}=1`])}`)).toEqual([
      "network",
      "show",
      "m",
      "--dim",
      `${EVIL}=1`,
    ]);
  });

  it("is made by one function: no text holds a command with words that are put in", () => {
    const files = sourceFiles().filter((file) =>
      /^(cli|db|fleet|network|session|runtime|tuner|operators)\//.test(file),
    );
    const command =
      /automap (?:tune|tune-network|network|map|explain|emit|systolic|intrinsic|operator|db|report|replay|check|cache|calibrate|fleet|batch)\b[^`"'\n;:,)]*\$\{/;
    const found = files.flatMap((file) =>
      readSource(file)
        .split("\n")
        .flatMap((line, i) => (command.test(line) && !/^\s*(?:\*|\/)/.test(line) ? [`${file}:${i + 1}`] : [])),
    );
    expect(found).toEqual([]);
  });
});
