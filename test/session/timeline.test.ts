/** @file The time of each phase of a search, from its events. */

import { expect, it } from "vitest";
import type { Candidate } from "../../abstraction/candidate.ts";
import { timelineOf } from "../../session/tune/timeline.ts";
import type { TuneEvent } from "../../tuner/search.ts";

const trial = (number: number): TuneEvent<Candidate> => {
  const candidate = {
    kind: "mapping",
    intrinsic: "mma",
    matching: {},
    operands: {},
    schedule: {},
  } as unknown as Candidate; // no schedule is looked at
  const measurement = { status: "wrong", log: "" } as const;
  const told = { key: `${number}`, candidate, prediction: undefined, measurement, at: 0 };
  return { kind: "trial", number, trial: told, of: undefined, known: false, left: undefined };
};
const round = (number: number): TuneEvent<Candidate> => ({
  kind: "round",
  round: number,
  proposed: 2,
  known: 0,
  expectedSeconds: undefined,
  left: undefined,
});

it("a timeline assigns every moment of a search to one phase", () => {
  let clock = 500;
  const timeline = timelineOf(() => clock);
  const after = (milliseconds: number, event: TuneEvent<Candidate>): void => {
    clock += milliseconds;
    timeline.hear(event);
  };
  after(0, { kind: "phase", phase: "enumerating" });
  after(1900, { kind: "phase", phase: "drawing" });
  after(100, round(1));
  after(0, { kind: "phase", phase: "writing", at: { what: "kernels", done: 0, of: 2 } });
  after(75, { kind: "phase", phase: "compiling", at: { what: "kernels", done: 0, of: 2 } });
  after(700, { kind: "phase", phase: "compiling", at: { what: "kernels", done: 1, of: 2 } });
  after(1000, trial(1));
  after(300, trial(2));
  after(250, round(2));
  after(0, { kind: "phase", phase: "writing", at: { what: "kernels", done: 0, of: 2 } });
  after(75, { kind: "stop", status: "time-spent", trials: 2, measured: 2, seconds: 4.4 });
  after(0, { kind: "phase", phase: "deciding", at: { what: "kernels", done: 0, of: 1 } });
  clock += 500;

  expect(timeline.seconds()).toEqual({
    enumerating: 1.9,
    drawing: 0.1,
    writing: 0.15,
    compiling: 1.7,
    measuring: 0.3,
    proposing: 0.25,
    deciding: 0.5,
  });
  const { traceEvents } = JSON.parse(timeline.trace());
  // Bars follow one another without a gap.
  const ends = traceEvents.map(({ ts, dur }: { ts: number; dur: number }) => ts + dur);
  expect(traceEvents.map(({ ts }: { ts: number }) => ts)).toEqual([0, ...ends.slice(0, -1)]);
  expect(ends.at(-1)).toBe(1000 * (clock - 500));
  // What is before the first round has round 0.
  expect(traceEvents.map(({ args }: { args: { round: number } }) => args.round)).toEqual([0, 0, 1, 1, 1, 1, 2, 2]);
  expect(traceEvents[4]).toEqual({
    name: "measuring",
    cat: "search",
    ph: "X",
    pid: 1,
    tid: 1,
    ts: 3_775_000,
    dur: 300_000,
    args: { round: 1, trial: 2, intrinsic: "mma", status: "wrong" },
  });
});
