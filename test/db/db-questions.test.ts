/** @file Tables of trials on terminals, and the JSON schemas of queries; what these print stands in test/golden/commands/searches.txt. */

import { afterAll, afterEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { widest } from "../support/cli.ts";
import { commandLine } from "../support/command-line.ts";
import { workshop } from "../support/database.ts";
import { RecordedText } from "../support/recorded-text.ts";

const shop = workshop();
const FILE = shop.path("automap.db");
const records = new RecordedText(shop.path(""));
for (const line of [
  "us 100; run a; at 1",
  "us 40; run b; block 3; at 4",
  "compile-failed exit code 1; block 5; run a; at 5",
  "us 20; on amx.tdpbusd; at 8",
  "us 8; of matmul m=128 n=64 k=256 u8s8; name net/head; on amx.tdpbusd; at 9",
])
  records.record(`automap.db ${line}`);
afterAll(() => shop.remove());

async function printed(line: string): Promise<{ out: string; err: string }> {
  const { code, out, err } = await commandLine(`${line} --db ${FILE}`);
  expect({ code, err: code === 0 ? "" : err }).toEqual({ code: 0, err: "" });
  return { out: out.replace(/[0-9a-f]{12}/g, "ID"), err };
}

describe("a table of trials", () => {
  const { stdout } = process;
  const was = { isTTY: stdout.isTTY, columns: stdout.columns };
  afterEach(() => void Object.assign(stdout, was));

  it("fits a terminal and names the columns left out; a pipe gets all columns", async () => {
    const piped = await printed("db query --status ok");
    expect(piped.err).toBe("");
    expect(widest(piped.out)).toBeGreaterThan(100);
    Object.assign(stdout, { isTTY: true, columns: 80 });
    const told = await commandLine(`db query --status ok --db ${FILE}`);
    expect(widest(told.out)).toBeLessThanOrEqual(80);
    expect(told.out).toMatch(/^id .* workload .* shape .* time/);
    expect(told.err).toMatch(/^automap: no room on 80 columns for at \(UTC\), predicted, .*; --json has everything\n$/);
    Object.assign(stdout, { columns: 200 });
    expect((await commandLine(`db query --status ok --db ${FILE}`)).err).toBe("");
  });

  it("has all columns on a terminal of unknown width", async () => {
    const piped = await printed("db query --status ok");
    for (const columns of [0, undefined]) {
      Object.assign(stdout, { isTTY: true, columns });
      expect(await printed("db query --status ok")).toEqual(piped);
    }
  });
});

describe("--json-schema", () => {
  const lines = [
    "db query",
    "db best --trust any",
    "db best --trust any --name net/head,net/head",
    "db stale",
    "db failures",
    "db compare --intrinsic vnni --intrinsic amx",
    "db compare RUNS",
  ];
  it.each(lines)("describes the output of %s --json", async (line) => {
    const [command = ""] = / (?:--|RUNS)/.test(line) ? line.split(/ (?:--|RUNS)/) : [line];
    const schema = await commandLine(`${command} --json-schema`);
    expect(schema.code).toBe(0);
    const { out } = await commandLine(
      `${line.replace("RUNS", records.meant("--run run-0000000a --run run-0000000b"))} --json --db ${FILE}`,
    );
    expect(() => z.fromJSONSchema(JSON.parse(schema.out)).parse(JSON.parse(out))).not.toThrow();
    expect(() => z.fromJSONSchema(JSON.parse(schema.out)).parse({ schemaVersion: 1, other: [] })).toThrow();
  });
});
