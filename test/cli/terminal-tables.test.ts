/** @file Tables on a terminal of 80 columns: however long the names, no line is longer, and what is broken is not cut. */

import { writeFileSync } from "node:fs";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import type { Candidate } from "../../abstraction/candidate.ts";
import { defineComputation } from "../../abstraction/computation.ts";
import { describeReplay } from "../../cli/replay.ts";
import { beginRun, openDatabase, recordTrial, showRun, type Workload } from "../../db/index.ts";
import { MARKED, tableWithin } from "../../report/text.ts";
import type { Replay } from "../../session/tune/replay.ts";
import { widest } from "../support/cli.ts";
import { commandLine } from "../support/command-line.ts";
import { CONV, candidate, MACHINE, measured, newTrial, trial, workshop } from "../support/database.ts";
import { onnx } from "../support/networks.ts";
import { onnxBytes } from "../support/onnx-bytes.ts";

const shop = workshop();
const FILE = shop.path("automap.db");
const BEFORE = shop.path("before.db");
const MODEL = shop.path("model.onnx");

/** Of the longest name that is allowed. */
const NAMED: Workload = { ...CONV, name: `model/${"block".repeat(14)}` };
/** Unnamed, so that its equation is its label. */
const LONG: Workload = {
  computation: defineComputation({
    equation:
      "result_of_the_layer[output_row,output_column] += s32(left_hand_operand[output_row,inner]) * s32(right_hand_operand[inner,output_column])",
    extents: { output_row: 64, output_column: 32, inner: 16 },
    tensors: { left_hand_operand: "u8", right_hand_operand: "s8" },
  }),
};
const WORLD = {
  ...MACHINE,
  cpu: "Testium 9000 of the second socket of a machine whose vendor gives it an uncommonly long name",
  compiler: { ...MACHINE.compiler, flags: Array.from({ length: 20 }, (_, i) => `-fsome-flag=${i}`) },
};
const runs: string[] = [];
const ids: string[] = [];
let fastest = "";

beforeAll(() => {
  for (const [file, factor] of [
    [BEFORE, 1],
    [FILE, 3],
  ] as const) {
    const db = openDatabase(file);
    const environment = factor === 1 ? WORLD : { ...WORLD, automap: "9.9.9", kernel: "Linux 9.9.9", node: "v99.9.9" };
    const { intrinsic: _, ...without } = newTrial(1, { environment });
    for (const seed of [1, 2]) {
      const run = beginRun(db, { workload: LONG, environment, seed, options: {}, budget: {}, started: seed });
      const tried = trial(measured(factor * 10 * seed), seed, candidate(seed));
      const id = recordTrial(db, newTrial(1, { workload: LONG, environment, run, trial: tried }));
      if (file === FILE) {
        runs.push(run);
        ids.push(id);
      }
    }
    recordTrial(db, newTrial(1, { workload: NAMED, environment, trial: trial(measured(factor * 7), 3) }));
    const amx = trial(measured(factor * 5), 4, candidate(1, "amx.tdpbusd"));
    fastest = recordTrial(db, { ...without, workload: LONG, trial: amx });
    const log = `error: ${"a message of the compiler ".repeat(8)}`;
    recordTrial(db, newTrial(1, { environment, trial: trial({ status: "compile-failed", log }, 5, candidate(5)) }));
    db.close();
  }
  const network = onnx("Relu(Gemm<transB=1>(x[4,32], [16,32]{drawn}))");
  const name = `a network with ${"a long name and ".repeat(6)}no end`;
  writeFileSync(MODEL, onnxBytes({ ...network, name }));
});
afterAll(() => shop.remove());

const { stdout } = process;
const was = { isTTY: stdout.isTTY, columns: stdout.columns };
beforeEach(() => {
  vi.stubEnv("NO_COLOR", "1");
  vi.stubEnv("XDG_CACHE_HOME", shop.path("a-folder-for-caches-".repeat(4)));
});
afterEach(() => {
  vi.unstubAllEnvs();
  Object.assign(stdout, was);
});
const onTerminal = (columns: number): void => void Object.assign(stdout, { isTTY: true, columns });

/** Commands to paste are not broken. */
const withoutCommands = (text: string): string =>
  text
    .split("\n")
    .filter((line) => !line.includes("automap "))
    .join("\n");
/** What a text holds, wherever its lines are broken. */
const letters = (text: string): string => [...text.replaceAll(/\s/g, "")].sort().join("");

describe("tables on a terminal of 80 columns", () => {
  it.each([
    ["check", () => `check --baseline ${BEFORE} --db ${FILE}`],
    ["db show", () => `db show ${ids[0]} --db ${FILE}`],
    ["db compare of runs", () => `db compare --run ${runs[0]} --run ${runs[1]} --db ${FILE}`],
    ["db compare of instructions", () => `db compare --intrinsic vnni --intrinsic amx --db ${FILE}`],
    ["db failures", () => `db failures --db ${FILE}`],
    ["network show", () => `network show ${MODEL} --db ${shop.path("none.db")}`],
    ["network operators", () => "network operators"],
    ["operator list", () => "operator list"],
    ["operator show", () => "operator show conv2d --layout NHWC"],
    ["intrinsic show", () => "intrinsic show amx.tdpbusd"],
    ["map", () => "map matmul --intrinsic wmma.m16n16k16.f32.f16 --why"],
    ["explain of a record", () => `explain ${ids[0]} --db ${FILE}`],
    ["tune --model-only", () => "tune matmul --m 64 --n 64 --k 64 --target neoverse-n1 --model-only"],
  ])("break what is too long and keep all of it: %s", async (_, line) => {
    const piped = await commandLine(line());
    expect(widest(withoutCommands(piped.out)), piped.err).toBeGreaterThan(80);
    onTerminal(80);
    const told = await commandLine(line());
    expect({ code: told.code, err: told.err }).toEqual({ code: piped.code, err: piped.err });
    expect(widest(withoutCommands(told.out)), told.out).toBeLessThanOrEqual(80);
    expect(letters(told.out)).toBe(letters(piped.out));
  });

  it.each([
    ["db best", () => `db best --trust any --db ${FILE}`, () => fastest],
    ["db query", () => `db query --db ${FILE}`, () => ids[0] ?? ""],
    ["replay", () => `replay --db ${FILE}`, () => runs[0] ?? ""],
    ["cache show", () => "cache show", () => "calibrations"],
    ["systolic", () => "systolic conv1d", () => "FSM"],
  ])("leave columns out first, and name them: %s", async (_, line, whole) => {
    expect(widest((await commandLine(line())).out)).toBeGreaterThan(80);
    onTerminal(80);
    const { out, err } = await commandLine(line());
    expect(widest(out), out).toBeLessThanOrEqual(80);
    expect(err).toMatch(/no room on 80 columns for .*; --json has everything\n/);
    expect(out).toContain(whole().slice(0, 12));
  });

  it("keep the ids of two compared records whole on 60 columns", async () => {
    onTerminal(60);
    const { out } = await commandLine(`db compare ${ids[0]} ${ids[1]} --db ${FILE}`);
    expect(widest(out.split("\n\n")[0] ?? ""), out).toBeLessThanOrEqual(60);
    for (const id of ids) expect(out).toContain(` ${id.slice(0, 12)} `);
  });

  it("show what a replay found", () => {
    const db = openDatabase(FILE, { readonly: true });
    const run = showRun(db, runs[0] ?? "");
    db.close();
    const mapped: Candidate = {
      kind: "mapping",
      intrinsic: "avx512.vpdpbusd",
      matching: { n: ["output_column", "output_row"], k: ["inner", "another_axis_of_a_long_name"] },
      operands: { a: "left_hand_operand" },
      schedule: { order: ["output_row"], block: { output_row: 1 }, placement: {}, threads: 1 },
    };
    const found = { key: "a", candidate: mapped, prediction: undefined, measurement: measured(30), at: 1 };
    const replayed: Replay = {
      run,
      trials: [found],
      known: 0,
      best: found,
      status: "recorded-end",
      divergence: { trial: 1, because: "the record has another candidate than ".repeat(4) },
      assumed: ["the number of candidates a round, which the records of older versions do not have, is 8"],
    };
    const piped = describeReplay(replayed, "a.db");
    expect(widest(withoutCommands(piped))).toBeGreaterThan(80);
    onTerminal(80);
    const told = describeReplay(replayed, "a.db");
    expect(widest(withoutCommands(told)), told).toBeLessThanOrEqual(80);
    expect(letters(told)).toBe(letters(piped));
    expect(told).toContain(run.id);
  });
});

describe("a table within a width", () => {
  it("breaks cells before words as long as that is enough, and never what has 12 characters", () => {
    expect(
      tableWithin(
        [
          ["id", "what"],
          ["3f9a1c77d0e2", "three words here"],
        ],
        26,
      ),
    ).toBe(["id            what", "3f9a1c77d0e2  three words", "              here"].join("\n"));
    expect(tableWithin([["a_word_of_thirty_characters_xx", "1"]], 16)).toBe("a_word_of_thi  1\nrty_character\ns_xx");
  });

  it("counts no marks of colour, and keeps the lines that a cell has", () => {
    const [on, off] = ["1", "22"].map((code) => `${MARKED[0]}${code}${MARKED[1]}`);
    const half = "x".repeat(15);
    expect(tableWithin([[`${on}${half}${half}${off}`]], 15)).toBe(`${on}${half}\n${half}${off}`);
    const rows = [
      ["log", "one\n  two"],
      ["b", "c"],
    ];
    expect(tableWithin(rows, Number.POSITIVE_INFINITY)).toBe("log  one\n       two\nb    c");
  });
});
