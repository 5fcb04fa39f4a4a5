/** @file Commands that are offered for pasting: a shell makes of them the words that they were made of, whatever these hold. */

import { execFileSync } from "node:child_process";
import { readdirSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { describe, expect, it } from "vitest";
import { automapCommand, quotedWords } from "../abstraction/command-line.ts";
import { declareWords } from "../cli/declare.ts";
import { targetWords } from "../cli/network-model.ts";
import { databaseWords, openDatabase, recordTrial } from "../db/index.ts";
import { commandLine } from "./support/command-line.ts";
import { newTrial } from "./support/database.ts";
import { readSource, sourceFiles } from "./support/imports.ts";
import { scratchFolder } from "./support/scratch.ts";

const folder = scratchFolder();
const PRINTS_ITS_WORDS = `#!${process.execPath}\nprocess.stdout.write(JSON.stringify(process.argv.slice(2)));\n`;
writeFileSync(join(folder, "automap"), PRINTS_ITS_WORDS, { mode: 0o755 });

/** The words that a shell gives to automap. */
function wordsOf(line: string): unknown {
  const env = { ...process.env, PATH: `${folder}${delimiter}${process.env["PATH"] ?? ""}` };
  return JSON.parse(execFileSync("/bin/sh", ["-c", line], { cwd: folder, env, encoding: "utf8" }));
}

const EVIL = `$(touch x)\`touch y\`;'"\\\n--two  words*~ {a,b} !h #`;

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

  it("names a database of any name, wherever a command is printed", async () => {
    const file = join(folder, `$(touch x)\`touch y\`;'" a&b *.db`);
    const db = openDatabase(file);
    const [id = ""] = [60, 61].map((microseconds) => recordTrial(db, newTrial(microseconds)));
    db.close();
    const product = ["matmul", "--m", "8", "--n", "8", "--k", "8", "--dtype", "s16", "--intrinsic", "portable"];
    const lines = [
      ["db", "show", id],
      ["db", "show", "ffff"],
      ["db", "best"],
      ["db", "export", "--run", "x"],
      ["explain", id],
      ["replay", id],
      ["emit", "ffff", "--to", join(folder, "package")],
      ["emit", "matmul", "--to", join(folder, "package")],
      ["tune", ...product, "--trials", "1", "--time", "20"],
    ];
    for (const line of lines) {
      const { out, err } = await commandLine([...line, "--db", file]);
      const printed = [...`${out}${err}`.matchAll(/automap (?:db|emit|explain|replay|tune) .*--db .*/g)];
      expect({ line, commands: printed.length }).toEqual({ line, commands: line[0] === "tune" ? 2 : 1 });
      // What follows a command in its line is more words.
      for (const [command] of printed) expect(wordsOf(command)).toEqual(expect.arrayContaining(["--db", file]));
    }
    expect(readdirSync(folder).filter((name) => /^[xy]$/.test(name))).toEqual([]);
  });

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
    const files = sourceFiles().filter((file) => /^(cli|db|network|session|runtime|tuner|operators)\//.test(file));
    const command =
      /automap (?:tune|tune-network|network|map|explain|emit|systolic|intrinsic|operator|db|report|replay|check|cache|calibrate)\b[^`"'\n;:,)]*\$\{/;
    const found = files.flatMap((file) =>
      readSource(file)
        .split("\n")
        .flatMap((line, i) => (command.test(line) && !/^\s*(?:\*|\/)/.test(line) ? [`${file}:${i + 1}`] : [])),
    );
    expect(found).toEqual([]);
  });
});
