/** @file The projects of tests: quick, long and deep, and those that run alone because they replace modules or register instructions. */

import { readdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { defineConfig } from "vitest/config";
import { sampled } from "./test/support/sample.ts";

/** Tests that replace modules or register instructions, which would reach other files of their process. */
const ALONE = "test/*/{db-column,natives,own-intrinsics,examples,session}";
const QUICK = "test/**/*.test.ts";
const LONG = "test/**/*.long.test.ts";
const DEEP = "test/**/*.deep.test.ts";

/**
 * The deep files of this run: a sixth, another with each commit. All of them with AUTOMAP_DEEP=all, in their long form (AUTOMAP_SLOW=1), and
 * where files are named.
 */
function deepFiles(): string[] {
  const files = readdirSync("test", { recursive: true, encoding: "utf8" }).flatMap((file) =>
    file.endsWith(".deep.test.ts") ? [`test/${file}`] : [],
  );
  const isNamed = process.argv.slice(2).some((word) => word.includes(".test.ts"));
  return isNamed || process.env["AUTOMAP_SLOW"] === "1" ? files : sampled(files, 6);
}

export default defineConfig({
  resolve: {
    // Examples import the package by its name, which would be what was built before.
    alias: [
      { find: /^automap$/, replacement: resolve(import.meta.dirname, "automap.ts") },
      { find: /^automap\/(.*)$/, replacement: resolve(import.meta.dirname, "entries/$1.ts") },
    ],
  },
  test: {
    projects: [
      // Files share what they import: nothing they import keeps state that another could see, and a quarter of the time was importing.
      {
        extends: true,
        test: { name: "quick", include: [QUICK], exclude: [LONG, DEEP, `${ALONE}.test.ts`], isolate: false },
      },
      { extends: true, test: { name: "quick alone", include: [`${ALONE}.test.ts`] } },
      { extends: true, test: { name: "long", include: [LONG], exclude: [`${ALONE}.long.test.ts`], isolate: false } },
      { extends: true, test: { name: "deep", include: deepFiles(), isolate: false } },
      { extends: true, test: { name: "long alone", include: [`${ALONE}.long.test.ts`] } },
    ],
    // Transpiled TypeScript is cached between runs, which saves a tenth of the time.
    experimental: { fsModuleCache: true },
    // Three on two cores, since many tests wait: for servers, browsers and time limits.
    maxWorkers: 3,
    // Of objects that live for one candidate: collected half as often, a twentieth less time in all.
    execArgv: ["--max-semi-space-size=32"],
    // Nothing may fail because a machine has other work too: these end what hangs.
    testTimeout: 900_000,
    hookTimeout: 900_000,
    expect: { poll: { timeout: 600_000 } },
    env: {
      // What tests measure is sealed with a key of their own.
      XDG_STATE_HOME: join(tmpdir(), "automap-test-state"),
      // What one test compiles another need not, in this run or the next.
      XDG_CACHE_HOME: join(tmpdir(), "automap test cache"),
    },
    reporters: ["default", "./test/support/summary-reporter.ts"],
  },
});
