/** @file The progress of `automap tune`: one updated line on a terminal, separate lines elsewhere. */

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Candidate } from "../../abstraction/candidate.ts";
import { print, showStatus } from "../../cli/output.ts";
import { progressOf } from "../../cli/tune-progress.ts";
import type { TuneEvent } from "../../tuner/search.ts";
import { captured } from "../support/command-line.ts";
import { candidate } from "../support/database.ts";
import { took } from "../support/fake-runner.ts";

const trial = { key: "a", candidate: candidate(), prediction: undefined, measurement: took(81.2e-6), at: 1 };
const EVENTS: readonly TuneEvent<Candidate>[] = [
  { kind: "phase", phase: "enumerating" },
  { kind: "phase", phase: "drawing" },
  { kind: "round", round: 1, proposed: 8, known: 0, expectedSeconds: undefined, secondsLeft: 39.2 },
  { kind: "phase", phase: "compiling", of: 8 },
  { kind: "trial", number: 1, trial, known: false, secondsLeft: 39 },
  { kind: "best", number: 1, trial, previous: undefined },
  { kind: "round", round: 2, proposed: 8, known: 8, expectedSeconds: undefined, secondsLeft: 31.5 },
  { kind: "round", round: 3, proposed: 8, known: 3, expectedSeconds: undefined, secondsLeft: 31.5 },
  { kind: "stop", status: "time-spent", trials: 25, measured: 14, seconds: 40.1 },
  { kind: "phase", phase: "deciding", of: 3 },
];

/** What is written while a search is heard, a second between two events. */
async function heard(columns?: number): Promise<string> {
  const { err } = await captured(() => {
    Object.assign(process.stderr, { isTTY: columns !== undefined, columns });
    const progress = progressOf({ operations: 1e9, trials: 160, seconds: 40 });
    for (const event of EVENTS) {
      progress.hear(event);
      vi.advanceTimersByTime(1000);
    }
    progress.end();
    return 0;
  });
  return err;
}

const ERASED = "\r\u001b[2K";
const linesIn = (written: string): string[] =>
  written
    .replaceAll(ERASED, "\n")
    .split("\n")
    .filter((line) => line !== "");

describe("the progress of a search", () => {
  const { isTTY, columns } = process.stderr;
  beforeEach(() => void vi.useFakeTimers({ toFake: ["performance", "setInterval", "clearInterval"] }));
  afterEach(() => {
    vi.useRealTimers();
    Object.assign(process.stderr, { isTTY, columns });
  });

  it("is one line a round without a terminal, which marks rounds measured before", async () => {
    expect(await heard()).toMatchInlineSnapshot(`
      "round 1: 8 kernels, about 40 s left
      trial 1: 81.2 us  12315 G operations/s  avx512.vpdpbusd  n <- k  k <- c
      round 2: 8 kernels, all measured before
      round 3: 8 kernels, 3 of them measured before, about 32 s left
      time is up after 40.1 s: 25 kernels tried, 14 of them now, 0 failed
      finals: measuring 3 kernels in turns
      "
    `);
  });

  it("is one updated line on a terminal: the phase, its progress and the time left", async () => {
    const written = await heard(200);
    const shown = linesIn(written);
    expect(shown.filter((line, i) => line !== shown[i - 1])).toMatchInlineSnapshot(`
      [
        "enumerating mappings and schedules, 40 s left",
        "enumerating mappings and schedules, 39 s left",
        "drawing inputs, computing what kernels must answer, 39 s left",
        "drawing inputs, computing what kernels must answer, 38 s left",
        "drawing inputs, computing what kernels must answer, 37 s left",
        "compiling 8 kernels of round 1, 37 s left",
        "compiling 8 kernels of round 1, 36 s left",
        "measuring: kernel 1 of 160 at most, 1 of 8 of round 1, 36 s left",
        "measuring: kernel 1 of 160 at most, 1 of 8 of round 1, 35 s left",
        "trial 1: 81.2 us  12315 G operations/s  avx512.vpdpbusd  n <- k  k <- c",
        "measuring: kernel 1 of 160 at most, 1 of 8 of round 1, 35 s left",
        "measuring: kernel 1 of 160 at most, 1 of 8 of round 1, best 81.2 us, 35 s left",
        "measuring: kernel 1 of 160 at most, 1 of 8 of round 1, best 81.2 us, 34 s left",
        "measuring: kernel 1 of 160 at most, 1 of 8 of round 1, best 81.2 us, 33 s left",
        "measuring: kernel 1 of 160 at most, 1 of 8 of round 1, best 81.2 us, 32 s left",
        "time is up after 40.1 s: 25 kernels tried, 14 of them now, 0 failed",
        "measuring: kernel 1 of 160 at most, 1 of 8 of round 1, best 81.2 us, 32 s left",
        "finals: measuring 3 kernels in turns, best 81.2 us",
      ]
    `);
    // At the end the line is gone.
    expect(written.endsWith(ERASED)).toBe(true);
    expect(written).not.toContain("round 1:");
  });

  it("never fills a line of the terminal, as a wrapped line cannot be overwritten", async () => {
    const inPlace = linesIn(await heard(40)).filter((line) => !/^(trial|time is up after)/.test(line));
    expect(Math.max(...inPlace.map((line) => line.length))).toBe(39);
  });

  it("is printed in full on a terminal of unknown width", async () => {
    const { err } = await captured(() => {
      Object.assign(process.stderr, { isTTY: true, columns: 0 });
      showStatus("compiling");
      showStatus("");
      return 0;
    });
    expect(err).toBe(`${ERASED}compiling${ERASED}`);
  });

  it("makes room for printed results", async () => {
    const { out, err } = await captured(() => {
      Object.assign(process.stderr, { isTTY: true, columns: 80 });
      showStatus("compiling");
      print("a result");
      showStatus("");
      return 0;
    });
    expect([out, err]).toEqual(["a result\n", `${ERASED}compiling${ERASED}compiling${ERASED}`]);
  });
});
