/** @file Scripts of bench/ list their options on request and report a mistake in a sentence. */

import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { describe, expect, it } from "vitest";
import { UsageError } from "../../abstraction/error.ts";
import { gpuCases } from "../../bench/gpu/gpu-cases.ts";
import { endingOf, optionsIn, wordOf } from "../../bench/support/options.ts";
import { readSource, sourceFiles } from "../support/imports.ts";
import { sampled } from "../support/sample.ts";
import { layersNamed } from "../support/suite.ts";

const SIZES = { side: 64, cube: 8, steps: 2, cubeSteps: 2, small: true };
const text = <T extends string>(usual: T) => ({ type: "string", default: usual }) as const;
const OPTIONS = { seed: text("1"), batches: text("1,16"), seconds: text("0.25"), shard: text("0/1") };
const asked = (...args: string[]) =>
  optionsIn({ args, options: { ...OPTIONS, resume: { type: "boolean", default: false } } }, "layers/layers");

const scripts = sourceFiles().filter((name) => name.startsWith("bench/"));

describe("a script of bench/", () => {
  it("lists its options with --help", () => {
    expect(asked("--seed", "3", "--help")).toMatchInlineSnapshot(`
      {
        "code": 0,
        "says": "usage: node dist/bench/layers/layers.js [options]
        --seed <value>   (default 1)
        --batches <value>   (default 1,16)
        --seconds <value>   (default 0.25)
        --shard <value>   (default 0/1)
        --resume
      The head of bench/layers/layers.ts says what it measures, with examples.",
      }
    `);
  });

  it.each([
    [["--sed", "3"], "layers: Unknown option '--sed'\n  did you mean \"--seed\"?"],
    [["--seed"], "layers: Option '--seed <value>' argument missing"],
    [["2"], "layers: Unexpected argument '2'"],
    [["--seed", "x"], 'layers: --seed must be a whole number, got "x"\n  for example --seed 1'],
    [["--seed", "1,2"], 'layers: --seed must be a whole number, got "1,2"'],
    [["--seconds", "soon"], 'layers: --seconds must be a number, got "soon"'],
    [["--batches", "1;2"], 'layers: --batches must be numbers with commas between them, got "1;2"'],
    [["--shard", "2"], 'layers: --shard must be a part of a whole, got "2"'],
  ])("refuses %j with a sentence", (words, says) => {
    const read = asked(...words);
    expect(read).toMatchObject({ code: 2, says: expect.stringContaining(says) });
    expect("says" in read && read.says.split("\n").at(-1)).toBe("  see: node dist/bench/layers/layers.js --help");
  });

  it.each([
    ["a layer", () => layersNamed("c2d,foo"), 'no layer or operator "foo"'],
    ["a case", () => gpuCases("foo", SIZES), 'no case "foo": gemm-SIZE'],
    ["a word", () => wordOf("layout", "lst", ["first", "last"]), 'there is no "lst"\n  did you mean "last"?'],
    ["a file", () => readFileSync("/nowhere/at/all"), "no such file or directory, open '/nowhere/at/all'"],
  ])("refuses a missing %s with a sentence", (_, use, says) => {
    let ending: ReturnType<typeof endingOf> | undefined;
    try {
      use();
    } catch (error) {
      ending = endingOf(error, "layers/layers");
    }
    expect(ending).toMatchObject({ code: 2, says: expect.stringContaining(says) });
    expect(ending?.says).not.toContain("    at ");
  });

  it("prints a stack trace for a fault of its own", () => {
    expect(endingOf(new Error("internal: lost"), "layers/layers")).toMatchObject({
      code: 1,
      says: expect.stringContaining("    at "),
    });
    expect(endingOf(new UsageError("no"), "layers/layers").says).toBe(
      "layers: no\n  see: node dist/bench/layers/layers.js --help",
    );
  });

  /** Options of names, which are looked up before anything is measured. */
  const WORDS = /^(?:by|cases|dataflows|dtype|layout|one|only|ops|report|searches|stencils|target|tools|type|types)$/;
  // Wants `npm run build` behind it.
  const built = scripts.filter((name) => readSource(name).includes("= readOptions("));
  it.runIf(process.env["AUTOMAP_SLOW"] === "1").each(sampled(built, 6))(
    "%s ends with exit code 2 at a wrong number, and without a trace at a wrong word",
    (name) => {
      // Some write files where they are.
      const folder = mkdtempSync(join(tmpdir(), "automap-bench-"));
      const run = (...words: string[]) =>
        spawnSync(process.execPath, [resolve(`dist/${name.replace(/ts$/, "js")}`), ...words], {
          cwd: folder,
          encoding: "utf8",
          timeout: 900_000,
        });
      const said = run("--help").stdout;
      // How numbers are checked does not depend on which they are.
      const number = /^ {2}--(\S+) <value> {3}\(default [\d.,/]+\)$/m.exec(said)?.[1];
      if (number !== undefined) expect(run(`--${number}`, "no-such-word")).toMatchObject({ status: 2 });
      for (const [, option = ""] of said.matchAll(/^ {2}--(\S+) <value>/gm)) {
        if (!WORDS.test(option)) continue;
        const { status, stderr } = run(`--${option}`, "no-such-word");
        expect({ option, refused: status !== null && status !== 0, trace: /^ {4}at /m.test(stderr) }).toEqual({
          option,
          refused: true,
          trace: false,
        });
      }
      rmSync(folder, { recursive: true });
    },
  );

  it("says what a machine lacks, without a trace", () => {
    const traced = /throw new Error\(.*\.what\b/;
    expect(scripts.filter((name) => traced.test(readSource(name)))).toEqual([]);
  });

  it("reads its options there and nowhere else", () => {
    expect(scripts.filter((name) => readSource(name).includes("parseArgs"))).toEqual(["bench/support/options.ts"]);
  });
});
