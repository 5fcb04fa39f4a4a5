/** @file Commands that are offered for pasting: a shell makes of them the words that they were made of, whatever these hold. */

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { automapCommand, quotedWords } from "../abstraction/command-line.ts";
import { declareWords } from "../cli/declare.ts";
import { targetWords } from "../cli/network-model.ts";
import { databaseWords } from "../db/index.ts";
import { readSource, sourceFiles } from "./support/imports.ts";

const folder = mkdtempSync(join(tmpdir(), "automap-lines-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
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
