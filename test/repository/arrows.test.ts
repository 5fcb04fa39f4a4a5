/** @file Holds the arrows between the folders: `abstraction <- tables <- mapper <- perfmodel <- tuner <- cli`. */

import { existsSync } from "node:fs";
import { describe, expect, it } from "vitest";
import {
  cycles,
  type Import,
  importsOf,
  loadedWith,
  readSource,
  sourceFiles,
  statementsBesideReExports,
} from "../support/imports.ts";

const TABLES = ["operators", "intrinsics", "targets"];
/** What a session may see. */
const BELOW = [
  "abstraction",
  ...TABLES,
  "mapper",
  "perfmodel",
  "tuner",
  "network",
  "codegen",
  "runtime",
  "db",
  "report",
  "package",
];
const LIBRARY = [...BELOW, "session"];

/** What each folder may import besides itself; a file at the root is a folder of its own. */
const MAY_SEE: Readonly<Record<string, readonly string[]>> = {
  abstraction: [],
  operators: ["abstraction"],
  intrinsics: ["abstraction", "targets"],
  targets: ["abstraction"],
  mapper: ["abstraction", ...TABLES],
  perfmodel: ["abstraction", ...TABLES, "mapper"],
  tuner: ["abstraction", ...TABLES, "mapper", "perfmodel"],
  network: ["abstraction", "operators"],
  codegen: ["abstraction", "targets"],
  runtime: ["abstraction", "targets"],
  // Of the mapper only the decisions, since records are parsed by them.
  db: ["abstraction", "operators", "mapper"],
  report: ["abstraction", "mapper"],
  package: ["abstraction", "targets", "network", "runtime"],
  session: BELOW,
  // Another place to measure, for a search that knows nothing of it.
  fleet: ["abstraction", "targets", "runtime", "db", "report", "session"],
  cli: [...LIBRARY, "fleet"],
  "automap.ts": LIBRARY,
  entries: LIBRARY,
  // The package, by its name.
  examples: [],
  // Of the tests the cases, recorded trials and random subjects that both need.
  bench: [...LIBRARY, "fleet", "automap.ts", "test"],
  "vitest.config.ts": ["test"],
};

const files = sourceFiles();
const imports = files.flatMap((name) => importsOf(name));
const folderOf = (name: string): string => name.split("/", 1)[0] ?? "";
const isOurs = (name: string): boolean => Object.hasOwn(MAY_SEE, folderOf(name)) || name.endsWith(".ts");

/** Imports that go against an arrow, as `file:line imports file: the rule`. */
function violations(all: readonly Import[]): string[] {
  return all.flatMap(({ from, to, line }) => {
    const here = folderOf(from);
    const there = folderOf(to);
    const allowed = MAY_SEE[here] ?? [];
    if (!isOurs(to) || here === there || allowed.includes(there)) return [];
    return [`${from}:${line} imports ${to}: ${here} may see ${allowed.length === 0 ? "nothing" : allowed.join(", ")}`];
  });
}

describe("the arrows between the folders", () => {
  it("knows every folder that holds sources", () => {
    const unknown = files.map(folderOf).filter((folder) => !Object.hasOwn(MAY_SEE, folder));
    expect([...new Set(unknown)]).toEqual([]);
  });

  it("are respected by every import, those of types included", () => {
    expect(violations(imports)).toEqual([]);
  });

  it("are reported where a sample breaks them", () => {
    const stray = `
      import type { Mapping } from "../mapper/mapping.ts";
      export { main } from "../cli/main.ts";
      import { Matrix } from "ml-matrix";
      import { number } from "./expression.ts";
      const later = await import("../db/open.ts");`;
    expect(violations(importsOf("abstraction/stray.ts", stray))).toEqual([
      "abstraction/stray.ts:2 imports mapper/mapping.ts: abstraction may see nothing",
      "abstraction/stray.ts:3 imports cli/main.ts: abstraction may see nothing",
      "abstraction/stray.ts:6 imports db/open.ts: abstraction may see nothing",
    ]);
  });

  it("point at files that exist", () => {
    expect(imports.filter(({ to }) => to.endsWith(".ts") && !existsSync(to))).toEqual([]);
  });
});

describe("imports", () => {
  it("form no ring among the files that a program loads", () => {
    expect(cycles(imports)).toEqual([]);
  });

  // Nouns speak of one another; a command and what it says are of its words; what a bench writes is its cases'.
  it("form no ring among types either, so that a reader of a candidate never goes back up", () => {
    const followed = imports.filter(({ from }) => !["abstraction", "cli", "bench"].includes(folderOf(from)));
    expect(cycles(followed.map((i) => ({ ...i, erased: false })))).toEqual([]);
  });

  it("are reported where samples form a ring", () => {
    const edge = (from: string, to: string, erased = false): Import => ({ from, to, line: 1, erased, deferred: false });
    expect(cycles([edge("a", "b"), edge("b", "c"), edge("c", "a"), edge("c", "d"), edge("d", "c", true)])).toEqual([
      "a -> b -> c -> a",
    ]);
  });

  it("reach the packages of a fleet's server when one is opened, or for their types", () => {
    const drivers = imports.filter(({ to }) => ["bullmq", "ioredis", "pg"].includes(to));
    expect(
      drivers.filter(
        ({ from, erased, deferred }) => !["fleet", "cli"].includes(folderOf(from)) || !(erased || deferred),
      ),
    ).toEqual([]);
    expect(new Set(drivers.map(({ to }) => to)).size).toBe(3);
  });

  it("reach better-sqlite3 from db and genetic-js from one file of the tuner only", () => {
    const importers = (name: string): string[] => imports.filter(({ to }) => to === name).map(({ from }) => from);
    expect(importers("better-sqlite3").filter((name) => folderOf(name) !== "db")).toEqual([]);
    const genetic = new Set(importers("genetic-js"));
    expect(genetic.size).toBeLessThanOrEqual(1);
    expect([...genetic].filter((name) => folderOf(name) !== "tuner")).toEqual([]);
  });
});

/** Statements of SQL as they begin, in capitals as the folder writes them. */
const SQL = /\b(SELECT .+ FROM|INSERT (OR \w+ )?INTO|UPDATE \w+ SET|DELETE FROM|CREATE TABLE|PRAGMA \w+)\b/;

/** Files that a command line loads before it is looked at; 7 when this was written. */
const FEW = 10;

describe("the command line", () => {
  it("loads few files before it knows which command is asked for, and nothing compiled", () => {
    const loaded = loadedWith(imports, "cli/main.ts");
    expect(loaded.filter((name) => name.endsWith(".ts")).length, loaded.join(" ")).toBeLessThan(FEW);
    expect(loaded.filter((name) => !name.endsWith(".ts") && !name.startsWith("node:"))).toEqual(["commander", "zod"]);
  });

  it("loads no search to complete a word", () => {
    const loaded = loadedWith(imports, "cli/main.ts", "cli/completion.ts");
    expect(loaded.filter((name) => /^(?:codegen|perfmodel|runtime|package)\//.test(name))).toEqual([]);
  });
});

describe("SQL", () => {
  it("is written in db/ only, and where a fleet keeps its queues", () => {
    const strangers = files.filter((name) => folderOf(name) !== "db" && SQL.test(readSource(name)));
    expect(strangers).toEqual(["fleet/postgres.ts"]);
    expect(files.filter((name) => folderOf(name) === "db" && SQL.test(readSource(name))).length).toBeGreaterThan(5);
  });
});

describe("automap.ts and entries/", () => {
  it("re-export and do nothing else", () => {
    const entries = files.filter((name) => name === "automap.ts" || folderOf(name) === "entries");
    expect(entries).toHaveLength(5);
    expect(entries.flatMap((name) => statementsBesideReExports(name))).toEqual([]);
    const text = 'export { tune } from "./tuner/tune.ts";\nexport const version = "1";';
    expect(statementsBesideReExports("automap.ts", text)).toEqual(['export const version = "1";']);
  });
});
