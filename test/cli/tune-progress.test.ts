/** @file The progress of `automap tune`: one updated line on a terminal, separate lines elsewhere. */

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Candidate } from "../../abstraction/candidate.ts";
import { print, showStatus } from "../../cli/output.ts";
import { networkProgressOf, progressOf } from "../../cli/tune-progress.ts";
import type { TimeLeft, TuneEvent } from "../../tuner/search.ts";
import { captured } from "../support/command-line.ts";
import { candidate } from "../support/database.ts";
import { took } from "../support/fake-runner.ts";

const trial = { key: "a", candidate: candidate(), prediction: undefined, measurement: took(81.2e-6), at: 1 };
const atMost = (seconds: number): TimeLeft => ({ seconds, isEstimate: false, mayEndSooner: true });
const about = (seconds: number): TimeLeft => ({ seconds, isEstimate: true, mayEndSooner: true });
const EVENTS: readonly TuneEvent<Candidate>[] = [
  { kind: "phase", phase: "enumerating" },
  { kind: "phase", phase: "enumerating", at: { what: "mappings", done: 120, of: 400 } },
  { kind: "phase", phase: "drawing" },
  { kind: "round", round: 1, proposed: 8, known: 0, expectedSeconds: undefined, left: atMost(39.2) },
  { kind: "phase", phase: "compiling", at: { what: "kernels", done: 0, of: 8 } },
  { kind: "trial", number: 1, trial, of: 160, known: false, left: atMost(39) },
  { kind: "best", number: 1, trial, previous: undefined },
  { kind: "round", round: 2, proposed: 8, known: 8, expectedSeconds: undefined, left: about(31.5) },
  { kind: "round", round: 3, proposed: 8, known: 3, expectedSeconds: undefined, left: about(31.5) },
  { kind: "stop", status: "time-spent", trials: 25, measured: 14, seconds: 40.1 },
  { kind: "phase", phase: "deciding", at: { what: "kernels", done: 0, of: 3 } },
  { kind: "phase", phase: "deciding", at: { what: "kernels", done: 0, of: 3 } },
  { kind: "phase", phase: "deciding", at: { what: "kernels", done: 1, of: 3 } },
  { kind: "phase", phase: "deciding", at: { what: "kernels", done: 3, of: 3 } },
];

/** What is written while a search is heard, a second between two events. */
async function heard(columns?: number, verbose = false): Promise<string> {
  const { err } = await captured(() => {
    Object.assign(process.stderr, { isTTY: columns !== undefined, columns });
    const progress = progressOf({ operations: 1e9, seconds: 40, verbose });
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
      "round 1: 8 kernels, at most 40 s left
      trial 1: 81.2 us  12315 G operations/s  avx512.vpdpbusd  n <- k  k <- c
      round 2: 8 kernels, all measured before
      round 3: 8 kernels, 3 of them measured before, about 32 s left or less
      time is up after 40.1 s: 25 kernels tried, 14 of them now, 0 failed
      finals: measuring 3 kernels in turns
      "
    `);
  });

  it("has every kernel once when all are asked for", async () => {
    const lines = linesIn(await heard(undefined, true));
    expect(lines.filter((line) => line.startsWith("trial 1"))).toEqual([
      "trial 1: 81.2 us  12315 G operations/s  avx512.vpdpbusd  n <- k  k <- c",
    ]);
  });

  it("is one updated line on a terminal: the phase, its progress and the time left", async () => {
    const written = await heard(200);
    const shown = linesIn(written);
    expect(shown.filter((line, i) => line !== shown[i - 1])).toMatchInlineSnapshot(`
      [
        "enumerating mappings and schedules, at most 40 s left",
        "enumerating mappings and schedules, at most 39 s left",
        "enumerating mappings and schedules: 120 of 400 mappings, at most 39 s left",
        "enumerating mappings and schedules: 120 of 400 mappings, at most 38 s left",
        "drawing inputs, computing what kernels must answer, at most 38 s left",
        "drawing inputs, computing what kernels must answer, at most 37 s left",
        "drawing inputs, computing what kernels must answer, at most 40 s left",
        "drawing inputs, computing what kernels must answer, at most 39 s left",
        "compiling 1 of 8 kernels of round 1, at most 39 s left",
        "compiling 1 of 8 kernels of round 1, at most 38 s left",
        "trial 1 of at most 160, at most 39 s left",
        "trial 1 of at most 160, at most 38 s left",
        "trial 1: 81.2 us  12315 G operations/s  avx512.vpdpbusd  n <- k  k <- c",
        "trial 1 of at most 160, at most 38 s left",
        "trial 1 of at most 160, best 81.2 us, at most 38 s left",
        "trial 1 of at most 160, best 81.2 us, at most 37 s left",
        "trial 1 of at most 160, best 81.2 us, about 32 s left or less",
        "trial 1 of at most 160, best 81.2 us, about 31 s left or less",
        "trial 1 of at most 160, best 81.2 us, about 32 s left or less",
        "trial 1 of at most 160, best 81.2 us, about 31 s left or less",
        "time is up after 40.1 s: 25 kernels tried, 14 of them now, 0 failed",
        "trial 1 of at most 160, best 81.2 us, about 31 s left or less",
        "finals: checking 1 of 3 kernels, best 81.2 us",
        "finals: checking 2 of 3 kernels, best 81.2 us",
        "finals: measuring 3 kernels in turns, best 81.2 us",
      ]
    `);
    // At the end the line is gone.
    expect(written.endsWith(ERASED)).toBe(true);
    expect(written).not.toContain("round 1:");
  });

  it("says the place of a search among several, and the time left for all of them", async () => {
    const { err } = await captured(() => {
      Object.assign(process.stderr, { isTTY: true, columns: 200 });
      const among = { place: "layer 3 of 12", secondsBehind: 100 };
      const progress = progressOf({ operations: 1e9, seconds: 40, among });
      for (const event of EVENTS.slice(0, 6)) progress.hear(event);
      progress.end();
      return 0;
    });
    const shown = linesIn(err);
    expect(shown.at(0)).toBe("layer 3 of 12: enumerating mappings and schedules, at most 140 s left");
    expect(shown.at(-1)).toBe("layer 3 of 12: trial 1 of at most 160, at most 139 s left");
  });

  it("is one updated line for a network, which says the task and the time left for all", async () => {
    const task = undefined as never; // it is not shown
    const { err } = await captured(() => {
      Object.assign(process.stderr, { isTTY: true, columns: 200 });
      const progress = networkProgressOf(60);
      const hear = (place: number, ...events: readonly TuneEvent<Candidate>[]): void => {
        for (const event of events) {
          vi.advanceTimersByTime(500);
          progress.hear(event, { task, place, of: 20 });
        }
      };
      hear(3, ...EVENTS.slice(2, 7));
      hear(4, { kind: "phase", phase: "calibrating" });
      progress.end();
      return 0;
    });
    const shown = linesIn(err);
    expect(shown.filter((line, i) => line !== shown[i - 1])).toMatchInlineSnapshot(`
      [
        "task 3 of 20: drawing inputs, computing what kernels must answer, at most 60 s left",
        "task 3 of 20: drawing inputs, computing what kernels must answer, at most 59 s left",
        "task 3 of 20: compiling 1 of 8 kernels of round 1, at most 59 s left",
        "task 3 of 20: compiling 1 of 8 kernels of round 1, at most 58 s left",
        "task 3 of 20: trial 1 of at most 160, at most 58 s left",
        "task 3 of 20: trial 1 of at most 160, best 81.2 us, at most 58 s left",
        "task 3 of 20: trial 1 of at most 160, best 81.2 us, at most 57 s left",
        "task 4 of 20: calibrating, at most 57 s left",
      ]
    `);
    expect(err.endsWith(ERASED)).toBe(true);
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
