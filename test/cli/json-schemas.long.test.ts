/** @file `--json-schema`: every command with `--json` has it, and real documents are checked against it. */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { commandLine } from "../support/command-line.ts";
import { workshop } from "../support/database.ts";
import { recordSearches } from "../support/searches.ts";

const shop = workshop();
const FILE = shop.path("searches.db");
const PRODUCT = "matmul --m 16 --n 16 --k 16";
const ids = { RUN: "", MAPPED: "", LANES: "", GRID: "" };
beforeAll(async () => {
  [ids.RUN] = recordSearches(FILE);
  const { out } = await commandLine(`db query --status ok --json --db ${FILE}`);
  const { trials } = z
    .object({ trials: z.array(z.object({ id: z.string(), intrinsic: z.string(), operator: z.string() })) })
    .parse(JSON.parse(out));
  const of = (operator: string): string => trials.find((trial) => trial.operator === operator)?.id ?? "none";
  Object.assign(ids, { MAPPED: of("conv2d"), LANES: of("conv1d-single"), GRID: of("matmul") });
  await commandLine(`db export -o ${shop.path("lines.jsonl")} --db ${FILE}`);
});
afterAll(() => shop.remove());

/** What the shell is offered. */
async function offered(line: string): Promise<string[]> {
  return (await commandLine(["completion", "--of", ...line.split(" "), ""])).out
    .split("\n")
    .filter((word) => word !== "");
}

async function optionsOf(command: string): Promise<string[]> {
  const { out } = await commandLine(["completion", "--of", ...command.split(" "), "--js"]);
  return out.split("\n").filter((word) => word !== "");
}

describe("--json-schema", () => {
  it("exists wherever --json does", async () => {
    const names = (await commandLine(["completion", "--of", ""])).out.trim().split("\n");
    const without: string[] = [];
    for (const name of names) {
      const own = await optionsOf(name);
      const commands = own.length > 0 ? [name] : (await offered(name)).map((sub) => `${name} ${sub}`);
      for (const command of commands) {
        const options = own.length > 0 ? own : await optionsOf(command);
        if (options.length === 0) without.push(command);
        else expect(options, command).toEqual(["--json", "--json-schema"]);
      }
    }
    // An export is lines of JSON, a report a page, a completion a script.
    expect(without.filter((command) => !command.startsWith("completion "))).toEqual(["db export"]);
  });

  it.each([
    ["replay", () => `--db ${FILE}`],
    ["replay", () => `${ids.RUN} --db ${FILE}`],
    ["check", () => `--baseline ${FILE} --db ${FILE}`],
    ["tune", () => `${PRODUCT} --dtype s16 --intrinsic portable --model-only --quiet`],
    ["explain", () => "conv2d --intrinsic amx.tdpbusd"],
    ["explain", () => 'conv2d --intrinsic amx.tdpbusd --matching "m=n,k n= k=c"'],
    ["explain", () => `${ids.MAPPED} --db ${FILE}`],
    ["explain", () => `${ids.LANES} --db ${FILE}`],
    ["explain", () => `${ids.GRID} --db ${FILE}`],
    ["intrinsic list", () => "vnni"],
    ["intrinsic show", () => "amx.tdpbusd"],
    ["intrinsic check", () => "toy.2x2x2"],
    ["operator list", () => ""],
    ["operator show", () => "conv2d --layout NHWC"],
    ["systolic", () => "conv1d --stride 2 --bound 2"],
    ["systolic", () => 'conv1d --allocation "1,1" --schedule "0,1"'],
    ["systolic", () => 'conv1d --allocation "1,1" --schedule "1,1"'],
    ["systolic", () => "conv1d --show SBM --emit cuda"],
    ["doctor", () => `--db ${FILE}`],
    ["cache show", () => ""],
    ["fleet init", () => shop.path("fleet")],
    ["fleet admit", () => `${shop.path("fleet")} node3 --role worker`],
    ["batch export", () => `${PRODUCT} --kernels 1 --out ${shop.path("batch")}`],
    ["fleet expel", () => `${shop.path("fleet")} node3`],
    ["emit", () => `${PRODUCT} --portable --to ${shop.path("portable")}`],
    ["emit", () => `${ids.GRID} --to ${shop.path("kernel.cu")} --db ${FILE}`],
    ["db show", () => `${ids.GRID} --db ${FILE}`],
    ["db import", () => `${shop.path("lines.jsonl")} --db ${shop.path("imported.db")}`],
    ["db merge", () => `${FILE} --db ${shop.path("merged.db")}`],
    ["db verify", () => `--db ${FILE}`],
    ["db prune", () => `--status crashed --db ${FILE}`],
  ])("of %s describes its output", async (command, words) => {
    const schema = await commandLine(`${command} --json-schema`);
    expect({ code: schema.code, err: schema.err }).toEqual({ code: 0, err: "" });
    const { out, err } = await commandLine(`${command} ${words()} --json`);
    const read = z.fromJSONSchema(JSON.parse(schema.out));
    expect(() => read.parse(JSON.parse(out)), err).not.toThrow();
    expect(() => read.parse({ schemaVersion: 1, other: [] })).toThrow();
  });
});
