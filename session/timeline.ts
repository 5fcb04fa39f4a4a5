/**
 * @file Where the time of a search goes: the events that it tells, with the time between them, as a trace that Perfetto and chrome://tracing open.
 *
 *     const timeline = timelineOf(Date.now);
 *     await tuneComputation(subject, { onEvent: timeline.hear });
 *     timeline.seconds()        { enumerating: 1.9, proposing: 2.1, writing: 4.8, compiling: 15.2, measuring: 3.3, ... }
 *     timeline.trace()          { "traceEvents": [{ "name": "writing", "ph": "X", "ts": 1900000, "dur": 410000, ... }, ...] }
 *
 * Kernels of a GPU are measured where the last of their round has been compiled, and answered together: both are the round's `compiling`.
 * Source of the format: Trace Event Format (Google, 2016), complete events.
 */

import type { Candidate } from "../abstraction/candidate.ts";
import type { TuneEvent, TunePhase } from "../tuner/search.ts";

/** What a search does at a time: what it tells, and what it does between its answers and its next round. */
export type TimelinePart = TunePhase | "proposing" | "measuring";

/** Microseconds, from the timeline's beginning on. */
interface Bar {
  readonly name: TimelinePart;
  readonly ts: number;
  readonly dur: number;
  readonly args: Readonly<Record<string, unknown>>;
}

export interface Timeline {
  readonly hear: (event: TuneEvent<Candidate>) => void;
  /** Of each part that took any time, in the order they were first done. */
  readonly seconds: () => Readonly<Partial<Record<TimelinePart, number>>>;
  /** JSON. */
  readonly trace: () => string;
}

/** @param now milliseconds, of any beginning */
export function timelineOf(now: () => number): Timeline {
  const begun = now();
  const bars: Bar[] = [];
  let since = begun;
  let [round, doing]: [number, TimelinePart | undefined] = [0, undefined];
  /** What was done until now was this. */
  const end = (name: TimelinePart | undefined, args: Bar["args"] = {}): void => {
    const at = now();
    if (name !== undefined && at > since)
      bars.push({ name, ts: 1000 * (since - begun), dur: 1000 * (at - since), args: { round, ...args } });
    since = at;
  };
  const hear = (event: TuneEvent<Candidate>): void => {
    switch (event.kind) {
      case "phase":
        end(doing);
        doing = event.phase;
        return;
      case "round":
        end(doing);
        round = event.round;
        doing = undefined;
        return;
      case "trial": {
        const { candidate, measurement } = event.trial;
        const { intrinsic } = candidate;
        // The first answer of a round ends what was done for all of them; between one answer and the next a kernel is measured.
        if (doing === "proposing") end("measuring", { trial: event.number, intrinsic, status: measurement.status });
        else end(doing);
        doing = "proposing";
        return;
      }
      case "stop":
        end(doing);
        doing = undefined;
        return;
      case "best":
      case "enumerated":
        return;
      default:
        event satisfies never;
    }
  };
  return {
    hear,
    seconds: () => {
      end(doing);
      const all: Partial<Record<TimelinePart, number>> = {};
      for (const { name, dur } of bars) all[name] = (all[name] ?? 0) + dur / 1e6;
      return all;
    },
    trace: () => {
      end(doing);
      const events = bars.map((bar) => ({ ...bar, ph: "X", cat: "search", pid: 1, tid: 1 }));
      return `${JSON.stringify({ traceEvents: events, displayTimeUnit: "ms" })}\n`;
    },
  };
}
