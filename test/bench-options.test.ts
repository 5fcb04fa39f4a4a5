/** @file Scripts of bench/ say their options when asked, and a mistake in a sentence. */

import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { optionsIn } from "../bench/options.ts";

const asked = (...args: string[]) =>
  optionsIn(
    { args, options: { seed: { type: "string", default: "1" }, resume: { type: "boolean", default: false } } },
    "budget",
  );

describe("a script of bench/", () => {
  it("lists its options with --help", () => {
    expect(asked("--seed", "3", "--help")).toMatchInlineSnapshot(`
      {
        "code": 0,
        "says": "usage: node dist/bench/budget.js [options]
        --seed <value>   (default 1)
        --resume
      The head of bench/budget.ts says what it measures, with examples.",
      }
    `);
  });

  it.each([
    [["--sed", "3"], "budget: Unknown option '--sed'\n  did you mean \"--seed\"?"],
    [["--seed"], "budget: Option '--seed <value>' argument missing"],
    [["2"], "budget: Unexpected argument '2'"],
  ])("refuses %j in a sentence", (words, says) => {
    const read = asked(...words);
    expect(read).toMatchObject({ code: 2, says: expect.stringContaining(says) });
    expect("says" in read && read.says.split("\n").at(-1)).toBe("  see: node dist/bench/budget.js --help");
  });

  it("reads its options there and nowhere else", () => {
    const scripts = readdirSync("bench").filter((name) => name.endsWith(".ts") && name !== "options.ts");
    expect(scripts.filter((name) => readFileSync(`bench/${name}`, "utf8").includes("parseArgs"))).toEqual([]);
  });
});
