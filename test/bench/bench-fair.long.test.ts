/** What scripts of bench/ do before they compare times: equal outputs, and leave to come first. */

import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { differenceOf } from "../../bench/support/same-outputs.ts";
import { compileProgram } from "../support/program.ts";

const folder = mkdtempSync(join(tmpdir(), "automap-bench-fair-"));
afterAll(() => rmSync(folder, { recursive: true }));

it.each([
  ["another number", { y: Float32Array.of(1, 2.1) }, /outputs differ by 0\.0999\d* in y, where the largest is 2\.0999/],
  ["NaN", { y: Float32Array.of(1, Number.NaN) }, "outputs differ by NaN"],
  ["fewer elements", { y: Float32Array.of(1) }, "the output y has 2 elements, and 1 of the peer"],
  ["no such output", {}, "the output y has 2 elements, and 0 of the peer"],
])("times no network beside a peer with %s", (_, theirs, says) => {
  const ours = { y: Float32Array.of(1, 2) };
  expect(differenceOf(ours, { y: Float32Array.of(1, 2.0001) }, 1e-4)).toBeCloseTo(5e-5, 6);
  expect(() => differenceOf(ours, theirs, 1e-4)).toThrow(says);
});

it("bench/networks/network.ts asks for the first place before it searches", () => {
  const program = join(folder, "network");
  compileProgram(program, ["bench/networks/network.ts"]);
  const run = spawnSync(process.execPath, [join(program, "bench/networks/network.js"), "--first"], {
    cwd: folder,
    // So there is no chrt.
    env: { PATH: "" },
    encoding: "utf8",
  });
  expect([run.status, run.stderr]).toEqual([2, expect.stringContaining("this process may not come before others")]);
});
