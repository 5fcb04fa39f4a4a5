/** @file The emulation of CM takes no more than Intel's own headers: what they refuse does not compile here either. */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { type ChildRun, runChild } from "../runtime/child.ts";
import { emulationFolder } from "../runtime/emulation.ts";

const folder = mkdtempSync(join(tmpdir(), "automap-cm-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Compiles a program whose main has these lines. */
async function compiled(before: string, main: string): Promise<ChildRun> {
  const source = join(folder, "program.cpp");
  writeFileSync(source, `#include "cm.h"\n${before}\nint main() {\n${main}\nreturn 0;\n}\n`);
  const flags = ["-std=c++17", "-w", `-I${emulationFolder()}`, "-o", join(folder, "program")];
  return runChild(["g++", ...flags, source], { timeLimitMs: 60_000 });
}

const SCATTERED = `unsigned char memory[64] = {};
SurfaceIndex surface = {memory, 64};
vector<uint, 8> words = 0;`;

describe("what Intel's headers refuse", () => {
  it.each([
    [
      "a length that is an int is not deduced",
      "template <int N> vector<int, N> twice(vector<int, N> a) { return a * 2; }",
      "vector<int, 8> a = 1; twice(a);",
      "no matching function for call to .twice",
    ],
    [
      "scattered reads take no constant offsets",
      "",
      `${SCATTERED} const vector<uint, 8> at = 0; read(surface, 0, at, words.select<8, 1>(0));`,
      "no matching function for call to .read|binding reference|discards qualifiers",
    ],
    [
      "scattered reads take no offsets that an expression gives",
      "",
      `${SCATTERED} vector<uint, 8> at = 0; read(surface, 0, at + 1, words.select<8, 1>(0));`,
      "no matching function for call to .read|cannot bind",
    ],
    [
      "scattered writes take no constant offsets",
      "",
      `${SCATTERED} const vector<uint, 8> at = 0; write(surface, 0, at, words);`,
      "no matching function for call to .write|binding reference|discards qualifiers",
    ],
  ])("does not compile: %s", async (_, before, main, error) => {
    const run = await compiled(before, main);
    expect(run.status).toBe("failed");
    expect(run.stderr).toMatch(new RegExp(error));
  });

  it("compiles as they take it", async () => {
    const run = await compiled(
      "template <uint N> vector<int, N> twice(vector<int, N> a) { return a * 2; }",
      `${SCATTERED} vector<int, 8> a = 1; twice(a); vector<uint, 8> at = 0;
       read(surface, 0, at, words.select<8, 1>(0)); write(surface, 0, at, words);
       read(DWALIGNED(surface), 4, words);`,
    );
    expect(run).toMatchObject({ status: "ok" });
  });
});

it("has group numbers in thread groups only", async () => {
  const run = await compiled(
    "",
    "emulation::run_groups(3, [] { if (cm_group_id(1)) abort(); }); return cm_group_id(0);",
  );
  expect(run.status).toBe("ok");
  const outside = await runChild([join(folder, "program")], { timeLimitMs: 20_000 });
  expect(outside.status).toBe("crashed");
  expect(outside.stderr).toContain("cm_group_id outside thread groups");
});
