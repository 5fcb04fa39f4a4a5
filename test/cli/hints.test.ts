/**
 * @file Commands that automap prints to be pasted: each works as printed, with the database and declarations of the
 * command before it.
 */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openDatabase, recordTrial } from "../../db/index.ts";
import type { Compiler } from "../../runtime/compiler.ts";
import { environmentOf } from "../../session/calibrate/environment.ts";
import { commandLine } from "../support/command-line.ts";
import { candidate, MACHINE, newTrial, trial, workshop } from "../support/database.ts";
import { compilerHere } from "../support/here.ts";
import { recordPlain } from "../support/packages.ts";
import { operation } from "../support/subjects.ts";

const shop = workshop();
const FILE = shop.path("a searcher's.db");
const STALE = shop.path("elsewhere.db");
let compiler: Compiler;
let ids = { ok: "", failed: "" };
beforeAll(async () => {
  compiler = await compilerHere();
  const small = operation("conv2d c=16 k=16 h=6 w=5 n=1 NHWC", "u8s8");
  const db = openDatabase(FILE);
  const failed = recordTrial(
    db,
    newTrial(1, { trial: trial({ status: "crashed", log: "signal 11" }, 5, candidate()) }),
  );
  db.close();
  ids = { ok: recordPlain(FILE, small, environmentOf({ compiler })).slice(0, 12), failed: failed.slice(0, 12) };
  recordPlain(STALE, small, MACHINE);
});
afterAll(() => shop.remove());

/** The commands that a line prints, on either stream. */
async function hintsOf(words: readonly string[]): Promise<string[]> {
  const { out, err } = await commandLine(words);
  const said = `${out}\n${err}`.replaceAll(/ {2,}see: .*/g, "");
  const commands = [...said.matchAll(/\bautomap ((?:db )?[a-z]+(?: (?:'(?:[^']|'\\'')*'|[^\s';,)`]+))*)/g)];
  return commands.map(([, words = ""]) =>
    // Prose goes on behind some: "lists them", "has its log".
    words
      .replace(/ (?:lists|has|measures|writes|names|of|was|in) .*$/, "")
      .replace(/ --to (DIR|\S+)/, ` --to ${shop.path("out")}`),
  );
}

describe("a command that is printed as a hint", () => {
  it.each([
    ["of a record that failed", () => ["emit", ids.failed, "--to", shop.path("x"), "--db", FILE], 2],
    ["of a record that is explained", () => ["explain", ids.ok, "--db", FILE], 2],
    ["of two records without a time", () => ["db", "compare", ids.failed, ids.failed, "--db", FILE], 1],
    ["of a kernel that is no CUDA", () => ["emit", ids.ok, "--to", "kernel.cu", "--db", FILE], 1],
    ["of records left out", () => ["db", "best", "--db", STALE], 1],
    ["of a computation without a kernel", () => ["explain", "conv2d", "--candidate", "best", "--db", FILE], 1],
    ["of an id that is none", () => ["db", "show", "ffffffff", "--db", FILE], 1],
    [
      "of mappings with an epilogue",
      () => "map conv2d --dtype u8s8 --epilogue relu --intrinsic amx.tdpbusd".split(" "),
      1,
    ],
  ])("%s works", async (_, words, count) => {
    const hints = await hintsOf(words());
    expect(hints, hints.join("\n")).toHaveLength(count);
    // A calibration takes seconds; the others are cheap.
    for (const hint of hints.filter((words) => !words.startsWith("calibrate")))
      expect({ hint, ...(await commandLine(hint)) }).toMatchObject({ hint, code: 0 });
  });
});
