import { tmpdir } from "node:os";
import { join } from "node:path";
import { defineConfig } from "vitest/config";

/** What tests that replace modules or register instructions change for their whole process. */
const ALONE = ["natives", "own-intrinsics", "examples", "session"].map((name) => `test/${name}.test.ts`);

export default defineConfig({
  test: {
    projects: [
      // Files share what they import: nothing they import keeps state that another could see, and a quarter of the time was importing.
      { extends: true, test: { name: "shared", include: ["test/**/*.test.ts"], exclude: ALONE, isolate: false } },
      { extends: true, test: { name: "alone", include: ALONE } },
    ],
    // What TypeScript becomes is kept for the next run: a tenth of the time was that.
    experimental: { fsModuleCache: true },
    // Tests compile and run native code: more workers than this and their timings disturb each other.
    maxWorkers: 2,
    // Of objects that live for one candidate: collected half as often, a twentieth less time in all.
    execArgv: ["--max-semi-space-size=32"],
    // Nothing may fail because a machine has other work too: these end what hangs.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    expect: { poll: { timeout: 60_000 } },
    env: {
      // What tests measure is sealed with a key of their own.
      XDG_STATE_HOME: join(tmpdir(), "automap-test-state"),
      // What one test compiles another need not, in this run or the next.
      XDG_CACHE_HOME: join(tmpdir(), "automap test cache"),
    },
    reporters: ["default", "./test/support/summary-reporter.ts"],
  },
});
