/** @file The words a shell offers for the last word of a line. */

import { spawnSync } from "node:child_process";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openDatabase, recordTrial, shortId } from "../../db/index.ts";
import { commandLine } from "../support/command-line.ts";
import { newTrial, workshop } from "../support/database.ts";

const shop = workshop();
const FILE = shop.path("automap.db");
let id = "";
beforeAll(() => {
  const db = openDatabase(FILE);
  id = shortId(recordTrial(db, newTrial(5)));
  db.close();
});
afterAll(() => shop.remove());

async function offered(...line: string[]): Promise<string[]> {
  const { code, out, err } = await commandLine(["completion", "--of", ...line]);
  expect({ code, err }).toEqual({ code: 0, err: "" });
  return out.split("\n").filter((word) => word !== "");
}

describe("a line", () => {
  it.each<[string[], string[]]>([
    [["tu"], ["tune", "tune-network"]],
    [["db", "fa"], ["failures"]],
    [
      ["cache", ""],
      ["show", "clear"],
    ],
    [["tune", "conv2d-w"], []],
    [["tune", "conv2d", "--int"], ["--intrinsic"]],
    [["tune", "conv2d", "--dil"], ["--dilation"]],
    [["tune", "conv2d", "--json", "--js"], ["--json-schema"]],
    [
      ["tune", "conv2d", "--target", "h"],
      ["h100", "h200"],
    ],
    [["tune", "conv2d", "--strategy", "g"], ["genetic"]],
    [["map", "conv2d", "--intrinsic", "amx.tdpbus"], ["amx.tdpbusd"]],
    [["intrinsic", "show", "amx.tdpbuu"], ["amx.tdpbuud"]],
    [["tune", "conv2d", "--to", "ker"], []],
    [["completion", "z"], ["zsh"]],
  ])("of %j is offered %j", async (line, words) => {
    expect(await offered(...line)).toEqual(words);
  });

  it("is offered operators, and ids of the database it names", async () => {
    expect(await offered("tune", "conv2")).toContain("conv2d");
    expect(await offered("emit", "--db", FILE, "")).toEqual([]);
    expect(await offered("db", "show", id.slice(0, 3), "--db")).toEqual(["--db"]);
    expect(await offered("db", "compare", id, "--db", FILE, id.slice(0, 3))).toEqual([id]);
    expect(await offered("db", "query", "--db", shop.path("none.db"), "--name", "")).toEqual([]);
  });
});

describe("the completion script", () => {
  it.each(["bash", "zsh", "fish"])("is valid for %s", async (shell) => {
    const { code, out } = await commandLine(["completion", shell]);
    expect(code).toBe(0);
    expect(out).toContain("automap completion --of");
    const read = spawnSync(shell, ["-n", "-c", out], { encoding: "utf8" });
    if (read.error === undefined) expect(read.stderr).toBe("");
  });
});
