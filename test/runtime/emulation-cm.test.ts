/** @file The emulation of CM takes no more than Intel's own headers: what they refuse does not compile here either. */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { type ChildRun, runChild } from "../../runtime/child.ts";
import { emulationFolder } from "../../runtime/emulation.ts";
import { scratchFolder } from "../support/scratch.ts";

const folder = scratchFolder();

/** Compiles a program whose main has these lines. */
async function compiled(before: string, main: string, program = join(folder, "program")): Promise<ChildRun> {
  const source = join(folder, "program.cpp");
  writeFileSync(source, `#include "cm.h"\n${before}\nint main(int, char** arguments) {\n${main}\nreturn 0;\n}\n`);
  const flags = ["-std=c++17", "-w", `-I${emulationFolder()}`, "-o", program];
  return runChild(["g++", ...flags, source], { timeLimitMs: 900_000 });
}

const SCATTERED = `unsigned char memory[64] = {};
SurfaceIndex surface = {memory, 64};
vector<uint, 8> words = 0;`;

describe("a program that Intel's headers refuse", () => {
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

/** What compiles everywhere and the hardware would answer with something else, or with nothing: each ends the emulation. */
const UNSAID = [
  ["a block at no multiple of four bytes", "cm_load<int, 8>(surface, 2);", "a block that is not aligned"],
  ["a block that lies partly beyond its surface", "cm_load<int, 8>(surface, 36);", "a block beyond the memory"],
  [
    "a block that is stored beyond its surface",
    "vector<int, 8> b = 1; cm_store<int, 8>(surface, 36, b);",
    "a block beyond the memory",
  ],
  ["lanes that read beyond a surface", "at += 64; cm_load<uchar>(surface, at, all);", "an element beyond the memory"],
  [
    "lanes that write beyond a surface",
    "vector<uchar, 16> b = 1; at += 64; cm_store<uchar>(surface, at, b, all);",
    "an element beyond the memory",
  ],
  ["words at odd places", "at = 1; cm_load<ushort>(surface, at, all);", "an element at no multiple of its size"],
  [
    "a region beyond its vector",
    "vector<int, 16> v = 0; int i = 9; v.select<8, 1>(i) = 1;",
    "select() reaches beyond the vector",
  ],
  [
    "a region of a region beyond its vector",
    "vector<int, 16> v = 0; int i = 1; v.format<uchar>().select<64, 1>(i) = 1;",
    "select() reaches beyond the vector",
  ],
  [
    "what was written with no fence",
    "vector<int, 8> b = 1; cm_store<int, 8>(surface, 0, b); cm_load<int, 8>(surface, 4);",
    "no fence between",
  ],
  [
    "shared local memory beyond what was asked for",
    "cm_slm_init(64); cm_slm_alloc(128);",
    "more than cm_slm_init was told",
  ],
  [
    "a second allocation of shared local memory",
    "cm_slm_init(128); cm_slm_alloc(64); cm_slm_alloc(64);",
    "cm_slm_alloc is called once",
  ],
  [
    "more shared local memory than there is",
    "cm_slm_init(65 * 1024);",
    "more shared local memory than a thread group is given",
  ],
  [
    "shared local memory that is not allocated",
    "cm_slm_init(64); cm_load_slm<int, 8>(0);",
    "a block beyond the memory",
  ],
] as const;
const SAID = `all = 0; at += 1000; cm_load<uchar>(surface, at, all);
    vector<int, 8> b = 1; cm_store<int, 8>(surface, 0, b); cm_fence(); cm_load<int, 8>(surface, 4);`;

describe("an operation whose outcome no manual defines", () => {
  const program = join(folder, "unsaid");
  beforeAll(async () => {
    const cases = [...UNSAID.map(([, body]) => body), SAID].map((body, i) => `case ${i}: {${body}} break;`);
    const before = `static unsigned char memory[64];
static void kernel(int which, SurfaceIndex surface) {
  vector<uint, 16> at = 0;
  vector<ushort, 16> all = 1;
  switch (which) {
    ${cases.join("\n    ")}
  }
}`;
    const main = "emulation::run_groups(1, [&] { kernel(atoi(arguments[1]), {memory, sizeof memory}); });";
    const built = await compiled(before, main, program);
    expect(built, built.stderr).toMatchObject({ status: "ok" });
  });
  const ended = (which: number): Promise<ChildRun> => runChild([program, String(which)], { timeLimitMs: 900_000 });

  it.each(UNSAID.map(([what, , message], i) => [what, i, message] as const))("%s", async (_, which, message) => {
    expect((await ended(which)).stderr).toContain(message);
  });

  it("is none of these: lanes that are off, whatever they address, and a load after a fence", async () => {
    expect((await ended(UNSAID.length)).status).toBe("ok");
  });

  it.each([
    ["a block of another number of dwords", "cm_load<int, 5>(surface, 0);", "no such block"],
    ["a block of bytes", "cm_load<uchar, 16>(surface, 0);", "blocks are of dwords"],
    [
      "eight lanes, which Xe-HPC does not take",
      "vector<uint, 8> at = 0; vector<ushort, 8> all = 1; cm_load<int>(surface, at, all);",
      "sixteen lanes",
    ],
    ["a region longer than its vector", "vector<int, 8> v = 0; v.select<8, 2>(0) = 1;", "select\\(\\) stays inside"],
  ])("does not compile: %s", async (_, body, message) => {
    const run = await compiled("", `${SCATTERED} ${body}`);
    expect(run.status).toBe("failed");
    expect(run.stderr).toMatch(new RegExp(message));
  });
});

it("has group numbers in thread groups only", async () => {
  const run = await compiled(
    "",
    "emulation::run_groups(3, [] { if (cm_group_id(1)) abort(); }); return cm_group_id(0);",
  );
  expect(run.status).toBe("ok");
  const outside = await runChild([join(folder, "program")], { timeLimitMs: 900_000 });
  expect(outside.status).toBe("crashed");
  expect(outside.stderr).toContain("cm_group_id outside thread groups");
});
