/**
 * @file Records where the time of a search goes, from the search's events and the time between them, as a trace for Perfetto and
 * chrome://tracing.
 *
 *     const timeline = timelineOf(Date.now);
 *     await tuneComputation(subject, { onEvent: timeline.hear });
 *     timeline.seconds()        { enumerating: 1.9, proposing: 2.1, writing: 4.8, compiling: 15.2, measuring: 3.3, ... }
 *     timeline.trace()          { "traceEvents": [{ "name": "writing", "ph": "X", "ts": 1900000, "dur": 410000, ... }, ...] }
 *
 * GPU kernels of a round are measured when the last of them has been compiled, and their results arrive together. The whole round therefore
 * counts as `compiling`. Source of the format: Trace Event Format (Google, 2016), complete events.
 */

import type { Candidate } from "../../abstraction/candidate.ts";
import type { TuneEvent, TunePhase } from "../../tuner/search.ts";

/** The activity of a search: the phase it reports, or what it does between results and the next round. */
type TimelinePart = TunePhase | "proposing" | "measuring";

/** Times in microseconds since the start of the timeline. */
interface Bar {
  readonly name: TimelinePart;
  readonly ts: number;
  readonly dur: number;
  readonly args: Readonly<Record<string, unknown>>;
}

interface Timeline {
  readonly hear: (event: TuneEvent<Candidate>) => void;
  /** Seconds of each activity that took any time, in the order in which they first occurred. */
  readonly seconds: () => Readonly<Partial<Record<TimelinePart, number>>>;
  /** JSON. */
  readonly trace: () => string;
}

/** @param now a clock in milliseconds, from any origin */
export function timelineOf(now: () => number): Timeline {
  const begun = now();
  const bars: Bar[] = [];
  let since = begun;
  let round = 0;
  let doing: TimelinePart | undefined;
  /** Ends the bar of the activity that lasted until now. */
  const end = (name: TimelinePart | undefined, args: Bar["args"] = {}): void => {
    const at = now();
    if (name !== undefined && at > since)
      bars.push({ name, ts: 1000 * (since - begun), dur: 1000 * (at - since), args: { round, ...args } });
    since = at;
  };
  const hear = (event: TuneEvent<Candidate>): void => {
    switch (event.kind) {
      case "phase":
        if (event.phase === doing) return;
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
        // The first result of a round ends the activity that served all its kernels. From then on, the time between two results is spent
        // measuring a kernel.
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
