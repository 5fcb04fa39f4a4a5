/**
 * @file Missing native addons, as after npm with --ignore-scripts: exit code 6 with the remedy, and a line of doctor.
 */

import { writeFileSync } from "node:fs";
import { afterAll, expect, it, vi } from "vitest";
import { examineNatives } from "../../session/natives.ts";
import { load } from "../../session/package/load.ts";
import { commandLine } from "../support/command-line.ts";
import { workshop } from "../support/database.ts";

// How the packages behave without their compiled parts.
vi.mock("better-sqlite3", () => {
  class SqliteError extends Error {}
  function Database(): never {
    throw new Error("Could not locate the bindings file. Tried:\n -> build/better_sqlite3.node");
  }
  return { default: Object.assign(Database, { SqliteError }) };
});
vi.mock("koffi", () => {
  throw new Error("Cannot find the native Koffi module; did you bundle it correctly?");
});

const shop = workshop();
afterAll(shop.remove);
const REMEDY = "npm rebuild better-sqlite3";

it("each missing addon is found, with its remedy", async () => {
  expect(await examineNatives()).toMatchObject([
    { subject: "better-sqlite3", status: "missing", remedy: REMEDY },
    { subject: "koffi", status: "missing", remedy: expect.stringContaining("npm rebuild koffi") },
  ]);
});

it.each(["db best", "db query", "report -o page.html", "check --baseline", "replay 3f9a1c77", "explain 3f9a1c77 --db"])(
  "%s ends with exit code 6 when better-sqlite3 is missing",
  async (words) => {
    const file = shop.path("any.db");
    writeFileSync(file, "");
    const all = words.endsWith("--db") || words.endsWith("--baseline") ? [...words.split(" "), file] : words.split(" ");
    const { code, err } = await commandLine(all.includes("--db") ? all : [...all, "--db", file]);
    expect({ code, err }).toEqual({ code: 6, err: expect.stringContaining(REMEDY) });
    expect(err).not.toMatch(/^ +at /m);
  },
);

it("tune ends with exit code 6 when better-sqlite3 is missing", async () => {
  const words = ["tune", "matmul", "--m", "4", "--n", "4", "--k", "4", "--db", shop.path("new.db")];
  expect(await commandLine(words)).toMatchObject({ code: 6, err: expect.stringContaining(REMEDY) });
});

it("load names the missing addon", async () => {
  writeFileSync(shop.path("old.db"), "");
  await expect(load("3f9a1c77", { database: shop.path("old.db") })).rejects.toThrow(
    "better-sqlite3 has no compiled part",
  );
});

it("doctor names both missing addons and continues", async () => {
  const { code, out } = await commandLine(["doctor", "--db", shop.path("any.db")]);
  expect(code).toBe(6);
  expect(out).toContain(REMEDY);
  expect(out).toContain("npm rebuild koffi");
});
