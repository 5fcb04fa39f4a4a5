/**
 * @file Progress output of `automap tune`: permanent lines, and on a terminal one status line that shows the current activity.
 *
 *     trial 3: 81.20 us  2847 G operations/s  amx.tdpbusd  m <- q  n <- k  k <- c  ...
 *     round 2: 8 kernels, about 31 s left or less                                                     where there is no terminal
 *     trial 12 of at most 160, best 81.20 us, about 31 s left or less                                 in place
 *     time is up after 40.1 s: 33 kernels tried, 25 of them now, 1 failed
 */

import type { Candidate } from "../abstraction/candidate.ts";
import type { Step } from "../abstraction/steps.ts";
import { candidateText } from "../report/describe-candidate.ts";
import { counted, printTime } from "../report/text.ts";
import type { TaskPlace } from "../session/network/tune-network.ts";
import type { TimeLeft, TuneEvent, TunePhase, TuneStatus } from "../tuner/search.ts";
import { say, showStatus, style } from "./output.ts";

/** The reason a search ended, as its last line begins. */
const ENDINGS: Readonly<Record<TuneStatus, string>> = {
  "trials-spent": "all trials made",
  "time-spent": "time is up",
  interrupted: "interrupted",
  exhausted: "nothing left to try",
  "no-gain": "nothing faster is expected",
};

/** The current activity, as far as it is counted. */
const PHASES: Readonly<Record<TunePhase, (at: Step | undefined) => string>> = {
  calibrating: () => "calibrating",
  enumerating: (at) => `enumerating mappings and schedules${at ? `: ${at.done} of ${at.of} ${at.what}` : ""}`,
  drawing: () => "drawing inputs, computing what kernels must answer",
  writing: (at) => `writing ${at ? countText(at) : "kernels"}`,
  compiling: (at) => `compiling ${at ? countText(at) : "kernels"}`,
  deciding: (at) => `finals: ${at && at.done < at.of ? `checking ${countText(at)}` : finalsText(at?.of ?? 0)}`,
};

/** The number of the one that is worked on. */
function countText({ done, of, what }: Step): string {
  return `${Math.min(done + 1, of)} of ${of} ${what}`;
}

const finalsText = (kernels: number): string => `measuring ${counted(kernels, "kernel")} in turns`;

/** How long a search goes on, behind a comma: `at most 40 s left`, `about 3 s left`, `about 12 s left or less`. Empty once an estimate is over. */
export function leftText({ seconds, isEstimate, mayEndSooner }: TimeLeft): string {
  if (seconds <= 0) return isEstimate ? "" : ", time is up";
  const text = `, ${isEstimate ? "about" : "at most"} ${Math.ceil(seconds)} s left`;
  return isEstimate && mayEndSooner ? `${text} or less` : text;
}

interface Progress {
  readonly hear: (event: TuneEvent<Candidate>) => void;
  /** Removes the status line. */
  readonly end: () => void;
}

interface ProgressOptions {
  /** Operations of one call. */
  readonly operations: number;
  /** Seconds until the search's time limit. */
  readonly seconds: number;
  readonly verbose?: boolean;
  readonly among?: Among;
}

/** The place of a search among several, for its status line. */
export interface Among {
  /** `layer 3 of 12` */
  readonly place: string;
  /** Seconds that the searches behind it have. */
  readonly secondsBehind: number;
}

const TICK_MS = 1000;
/** Without a status line, long work is reported this often. */
const SAID_MS = 5000;

export function progressOf(options: ProgressOptions): Progress {
  const said = linesOf(options);
  const { seconds, among } = options;
  const activity = activityOf({ seconds, isEstimate: false, mayEndSooner: true }, among?.secondsBehind);
  const shown = ticking(() => {
    const text = activity.text();
    return text === "" || !among ? text : `${among.place}: ${text}`;
  });
  return {
    hear: (event) => {
      activity.hear(event);
      said(event);
      shown.show();
    },
    end: shown.end,
  };
}

/** The status line of the searches for a network's tasks. @param seconds for all tasks together */
export function networkProgressOf(seconds: number): {
  readonly hear: (event: TuneEvent<Candidate>, task: TaskPlace) => void;
  readonly end: () => void;
} {
  const until = performance.now() + 1000 * seconds;
  let text = (): string => "";
  const shown = ticking(() => text());
  const activities = new Map<number, Activity>();
  return {
    hear: (event, { place, of }) => {
      const activity = activities.get(place) ?? activityOf();
      activities.set(place, activity);
      activity.hear(event);
      text = () => {
        const doing = activity.text();
        const left = { seconds: (until - performance.now()) / 1000, isEstimate: false, mayEndSooner: true };
        return doing === "" ? "" : `task ${place} of ${of}: ${doing}${leftText(left)}`;
      };
      shown.show();
    },
    end: shown.end,
  };
}

/** Shows a text as the status line, again every second. */
function ticking(text: () => string): { readonly show: () => void; readonly end: () => void } {
  const show = (): void => showStatus(text());
  const timer = setInterval(show, TICK_MS);
  timer.unref();
  return {
    show,
    end: () => {
      clearInterval(timer);
      showStatus("");
    },
  };
}

type TrialNews = Extract<TuneEvent<Candidate>, { readonly kind: "trial" | "best" }>;

interface Activity {
  readonly hear: (event: TuneEvent<Candidate>) => void;
  readonly text: () => string;
}

/**
 * What a search does now, the best kernel so far, and the time left.
 * @param atMost the time before the search says it; not shown when left out
 * @param behind seconds of searches that follow
 */
function activityOf(atMost?: TimeLeft, behind = 0): Activity {
  let left = atMost;
  let toldAt = performance.now();
  let doing = "";
  let isTimed = true;
  let inRound = "";
  let best = "";
  const take = (told: TimeLeft | undefined): void => {
    if (!told || !atMost) return;
    left = told;
    toldAt = performance.now();
  };
  return {
    hear: (event) => {
      switch (event.kind) {
        case "phase":
          doing = PHASES[event.phase](event.at);
          // The limit of seconds begins with it.
          if (event.phase === "calibrating") toldAt = performance.now();
          isTimed = event.phase !== "deciding";
          if (event.phase === "writing" || event.phase === "compiling") doing += inRound;
          break;
        case "round":
          inRound = ` of round ${event.round}`;
          take(event.left);
          break;
        case "trial":
          doing = `${trialText(event)}${event.known ? ", measured before" : ""}`;
          take(event.left);
          break;
        case "best":
          if (event.trial.measurement.status === "ok") best = `, best ${printTime(event.trial.measurement.median)}`;
          break;
        case "stop":
          doing = "";
          break;
        default:
          event satisfies never;
      }
    },
    text: () => {
      if (doing === "") return "";
      const since = (performance.now() - toldAt) / 1000;
      return doing + best + (isTimed && left ? leftText({ ...left, seconds: left.seconds - since + behind }) : "");
    },
  };
}

/** Prints a line when a kernel is the fastest so far; without a status line, one line a round. */
function linesOf({ operations, verbose = false }: ProgressOptions): Progress["hear"] {
  const isLive = process.stderr.isTTY === true;
  const lineOf = ({ number, trial: { measurement, candidate } }: TrialNews): string =>
    measurement.status === "ok"
      ? `trial ${number}: ${printTime(measurement.median)}  ${(operations / measurement.median / 1e9).toFixed(0)} G operations/s  ${candidateText(candidate)}`
      : `trial ${number}: ${measurement.status}: ${measurement.log}`;
  let failures = 0;
  let isDeciding = false;
  let next = performance.now() + SAID_MS;
  return (event) => {
    switch (event.kind) {
      case "phase": {
        const isFinals = event.phase === "deciding";
        if (isLive || !event.at || (isFinals ? isDeciding || event.at.of < 2 : performance.now() < next)) break;
        isDeciding = isFinals;
        next = performance.now() + SAID_MS;
        say(style("dim", isFinals ? `finals: ${finalsText(event.at.of)}` : PHASES[event.phase](event.at)));
        break;
      }
      case "round":
        next = performance.now() + SAID_MS;
        if (!isLive) say(style("dim", roundText(event)));
        break;
      case "trial":
        if (event.trial.measurement.status !== "ok") {
          failures++;
          if (verbose || (process.env["AUTOMAP_DEBUG"] ?? "") !== "") say(lineOf(event));
        } else if (verbose) say(style("dim", lineOf(event)));
        if (isLive || performance.now() < next) break;
        next = performance.now() + SAID_MS;
        say(style("dim", trialText(event) + (event.left ? leftText(event.left) : "")));
        break;
      case "best":
        if (!verbose && event.trial.measurement.status === "ok") say(lineOf(event));
        break;
      case "stop":
        say(
          `${ENDINGS[event.status]} after ${event.seconds.toFixed(1)} s: ${counted(event.trials, "kernel")} tried, ${event.measured} of them now, ${failures} failed`,
        );
        break;
      default:
        event satisfies never;
    }
  };
}

type Heard<Kind extends TuneEvent<Candidate>["kind"]> = Extract<TuneEvent<Candidate>, { readonly kind: Kind }>;

function trialText({ number, of, left }: Heard<"trial">): string {
  if (of === undefined) return `trial ${number}`;
  return `trial ${number} of ${left?.mayEndSooner ? "at most " : ""}${of}`;
}

/** Results known from the database take no time. */
function roundText({ round, proposed, known, left }: Heard<"round">): string {
  const kernels = `round ${round}: ${counted(proposed, "kernel")}`;
  if (known === proposed) return `${kernels}, all measured before`;
  const before = known === 0 ? "" : `, ${known} of them measured before`;
  return kernels + before + (left ? leftText(left) : "");
}
