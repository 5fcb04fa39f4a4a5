/**
 * @file Ends a test run with one line that a script can read, after everything else that is printed:
 *
 *     412 passed, 0 failed, 3 skipped
 *
 * A file that cannot be loaded, a failing hook, an error outside any test and a test that never finished count as failed.
 */

import { writeSync } from "node:fs";
import type { Reporter, SerializedError, TestModule } from "vitest/node";

export interface Counts {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

export default class SummaryReporter implements Reporter {
  private last: Counts | undefined;

  onInit(): void {
    // A run that dies before its end has not passed.
    process.once("exit", () => writeSync(1, `${summary(this.last ?? { passed: 0, failed: 1, skipped: 0 })}\n`));
  }

  onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly SerializedError[]): void {
    const { passed, failed, skipped } = countTests(modules);
    this.last = { passed, failed: failed + unhandledErrors.length, skipped };
  }
}

/** `12 passed, 0 failed`, and what was skipped when something was. */
export function summary({ passed, failed, skipped }: Counts): string {
  return `${passed} passed, ${failed} failed${skipped === 0 ? "" : `, ${skipped} skipped`}`;
}

function countTests(modules: readonly TestModule[]): Counts {
  const counts = { passed: 0, failed: 0, skipped: 0 };
  for (const module of modules) {
    counts.failed += module.errors().length;
    for (const suite of module.children.allSuites()) counts.failed += suite.errors().length;
    for (const test of module.children.allTests()) {
      const { state } = test.result();
      counts[state === "pending" ? "failed" : state]++;
    }
  }
  return counts;
}
