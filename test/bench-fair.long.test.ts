/** What scripts of bench/ do before they compare times: equal outputs, caches that are empty, and leave to come first. */

import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, expect, it, vi } from "vitest";
import { withOwnCache } from "../bench/support/own-cache.ts";
import { differenceOf } from "../bench/support/same-outputs.ts";
import { cacheFolder } from "../runtime/cache.ts";
import { readSource } from "./support/imports.ts";
import { compileProgram } from "./support/program.ts";

const folder = mkdtempSync(join(tmpdir(), "automap-bench-fair-"));
afterAll(() => rmSync(folder, { recursive: true }));
afterEach(() => vi.unstubAllEnvs());

it("searches with an empty cache that holds the calibrations only, and deletes it", async () => {
  const usual = join(folder, "cache");
  vi.stubEnv("XDG_CACHE_HOME", usual);
  for (const what of ["kernels", "calibrations"] as const) {
    mkdirSync(cacheFolder(what), { recursive: true });
    writeFileSync(join(cacheFolder(what), "kept"), what);
  }
  const seen = withOwnCache(async () => {
    const own = cacheFolder("runtime");
    mkdirSync(own);
    return { own, kernels: existsSync(cacheFolder("kernels")), calibrations: readdirSync(cacheFolder("calibrations")) };
  });
  expect(await seen).toMatchObject({ kernels: false, calibrations: ["kept"] });
  expect((await seen).own).not.toContain(usual);
  expect(existsSync((await seen).own)).toBe(false);
  await expect(withOwnCache(() => Promise.reject(new Error("lost")))).rejects.toThrow("lost");
  expect(process.env["XDG_CACHE_HOME"]).toBe(usual);
});

it("is so in the comparison of searches of a stated length", () => {
  const searches = readSource("bench/networks/network-transfer.ts").match(/.*\btuneNetwork\(.*/g) ?? [];
  expect(searches).toHaveLength(1);
  expect(searches[0]).toContain("withOwnCache(() => tuneNetwork(");
});

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

it.each(["network", "network-transfer"])("bench/networks/%s asks for the first place before it searches", (name) => {
  const program = join(folder, name);
  compileProgram(program, [`bench/networks/${name}.ts`]);
  const run = spawnSync(process.execPath, [join(program, `bench/networks/${name}.js`), "--first"], {
    cwd: folder,
    // So there is no chrt.
    env: { PATH: "" },
    encoding: "utf8",
  });
  expect([run.status, run.stderr]).toEqual([2, expect.stringContaining("this process may not come before others")]);
});
