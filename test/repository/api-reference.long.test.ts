/**
 * @file TypeDoc makes the pages of the API, which the package holds, of automap.ts and entries/: every export says what it is, and so does every option.
 * It takes a type check of its own.
 */

import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { scratchFolder } from "../support/scratch.ts";

const scratch = scratchFolder();
const pages = join(scratch, "pages");
const model = join(scratch, "api.json");

/** Of what TypeDoc writes down, what is asked for here. */
const member = z.object({
  name: z.string(),
  comment: z.unknown().optional(),
  signatures: z.array(z.unknown()).optional(),
});
const exported = z.object({ name: z.string(), children: z.array(member).optional() });
/** A module for each entry. */
const project = z.object({ children: z.array(z.object({ name: z.string(), children: z.array(exported) })) });

describe("the API reference", () => {
  beforeAll(() => {
    // It fails where an export has no comment, or a comment links to what is not exported.
    execFileSync("node_modules/.bin/typedoc", ["--out", pages, "--json", model], { stdio: "pipe" });
  });

  it("has a page for each entry, and for what it exports", () => {
    const names = readdirSync(pages, { recursive: true, encoding: "utf8" });
    expect(names).toEqual(expect.arrayContaining(["automap/functions/tune.md", "automap/network/README.md"]));
  });

  it("describes every option", () => {
    const { children: entries } = project.parse(JSON.parse(readFileSync(model, "utf8")));
    expect(entries.map(({ name }) => name)).toEqual([
      "automap",
      "automap/db",
      "automap/internals",
      "automap/network",
      "automap/systolic",
    ]);
    const options = entries
      .flatMap(({ children }) => children)
      .filter(({ name }) => /(Options|Spec|Filter)$/.test(name));
    expect(options.map(({ name }) => name)).toEqual(expect.arrayContaining(["TuneOptions", "TrialFilter"]));
    const silent = options.flatMap((o) =>
      (o.children ?? []).filter((c) => c.comment === undefined).map((c) => `${o.name}.${c.name}`),
    );
    expect(silent).toEqual([]);
  });
});
