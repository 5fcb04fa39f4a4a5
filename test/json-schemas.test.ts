/** @file `--json-schema` of replay, check and tune: what their documents are held against. Those of a search, of one run, of map and of questions are beside them. */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { commandLine } from "./support/command-line.ts";
import { workshop } from "./support/database.ts";
import { recordSearches } from "./support/searches.ts";

const shop = workshop();
const FILE = shop.path("searches.db");
beforeAll(() => recordSearches(FILE));
afterAll(() => shop.remove());

describe("--json-schema", () => {
  it.each([
    ["replay", () => `replay --db ${FILE}`],
    ["check", () => `check --baseline ${FILE} --db ${FILE}`],
    ["tune", () => "tune matmul --m 16 --n 16 --k 16 --dtype s16 --intrinsic portable --model-only --quiet"],
  ])("of %s tells what it prints", async (command, line) => {
    const schema = await commandLine(`${command} --json-schema`);
    expect({ code: schema.code, err: schema.err }).toEqual({ code: 0, err: "" });
    const { out, err } = await commandLine(`${line()} --json`);
    const read = z.fromJSONSchema(JSON.parse(schema.out));
    expect(() => read.parse(JSON.parse(out)), err).not.toThrow();
    expect(() => read.parse({ schemaVersion: 1, other: [] })).toThrow();
  });
});
