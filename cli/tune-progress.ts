/**
 * @file Progress output of `automap tune`: permanent lines, and on a terminal one status line that shows the current activity.
 *
 *     trial 3: 81.20 us  2847 G operations/s  amx.tdpbusd  m <- q  n <- k  k <- c  ...
 *     round 2: 8 kernels, about 31 s left                                                             where there is no terminal
 *     measuring: kernel 12 of 160 at most, 5 of 8 of round 2, best 81.20 us, 31 s left                in place
 *     time is up after 40.1 s: 33 kernels tried, 25 of them now, 1 failed
 */

import type { Candidate } from "../abstraction/candidate.ts";
import type { Step } from "../abstraction/steps.ts";
import { candidateText } from "../report/describe-candidate.ts";
import { counted, printTime } from "../report/text.ts";
import type { TuneEvent, TunePhase, TuneStatus } from "../tuner/search.ts";
import { say, showStatus, style } from "./output.ts";

/** The reason a search ended, as its last line begins. */
const ENDINGS: Readonly<Record<TuneStatus, string>> = {
  "trials-spent": "all trials made",
  "time-spent": "time is up",
  interrupted: "interrupted",
  exhausted: "nothing left to try",
  "no-gain": "nothing faster is expected",
};

/** The current activity, by the number of kernels it concerns. */
const PHASES: Readonly<Record<TunePhase, (of: number) => string>> = {
  calibrating: () => "looking up the rates of this machine",
  enumerating: () => "enumerating mappings and schedules",
  drawing: () => "drawing inputs, computing what kernels must answer",
  writing: (of) => `writing ${counted(of, "kernel")}`,
  compiling: (of) => `compiling ${counted(of, "kernel")}`,
  deciding: (of) => `finals: measuring ${counted(of, "kernel")} in turns`,
};

function enumeratingText({ done, of, what }: Step): string {
  return `${PHASES.enumerating(0)}: ${done} of ${of} ${what}`;
}

export interface Progress {
  readonly hear: (event: TuneEvent<Candidate>) => void;
  /** Removes the status line. */
  readonly end: () => void;
}

interface ProgressOptions {
  /** Operations of one call. */
  readonly operations: number;
  /** Largest number of kernels. */
  readonly trials: number;
  /** Seconds until the search's time limit. */
  readonly seconds: number;
  readonly verbose?: boolean;
}

const TICK_MS = 1000;
/** Without a status line, long work is reported this often. */
const SAID_MS = 5000;

export function progressOf(options: ProgressOptions): Progress {
  const said = linesOf(options);
  const shown = statusOf(options);
  const timer = setInterval(shown.show, TICK_MS);
  timer.unref();
  return {
    hear: (event) => {
      shown.hear(event);
      said(event);
      shown.show();
    },
    end: () => {
      clearInterval(timer);
      showStatus("");
    },
  };
}

/** The status line. */
function statusOf({ trials, seconds }: ProgressOptions): Pick<Progress, "hear"> & { readonly show: () => void } {
  const until = performance.now() + 1000 * seconds;
  let doing = "";
  let isTimed = true;
  let done = 0;
  let best = "";
  let round = { number: 0, proposed: 0, before: 0 };
  const inRound = (): string => (round.number === 0 ? "" : ` of round ${round.number}`);
  return {
    hear: (event) => {
      switch (event.kind) {
        case "phase":
          doing = `${PHASES[event.phase](event.of ?? 0)}${event.phase === "deciding" ? "" : inRound()}`;
          isTimed = event.phase !== "deciding";
          break;
        case "enumerated":
          doing = enumeratingText(event.at);
          break;
        case "round":
          round = { number: event.round, proposed: event.proposed, before: done };
          break;
        case "trial":
          done = event.number;
          doing = `${event.known ? "measured before" : "measuring"}: kernel ${done} of ${trials} at most, ${done - round.before} of ${round.proposed}${inRound()}`;
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
    show: () => {
      const left = Math.ceil((until - performance.now()) / 1000);
      const time = isTimed ? `, ${left > 0 ? `${left} s left` : "time is up"}` : "";
      showStatus(doing === "" ? "" : doing + best + time);
    },
  };
}

/** Prints a line when a kernel is the fastest so far; without a status line, one line a round. */
function linesOf({ operations, verbose = false }: ProgressOptions): Progress["hear"] {
  const isLive = process.stderr.isTTY === true;
  let failures = 0;
  let next = performance.now() + SAID_MS;
  return (event) => {
    switch (event.kind) {
      case "phase":
        if (event.phase === "deciding" && (event.of ?? 0) > 1 && !isLive)
          say(style("dim", PHASES.deciding(event.of ?? 0)));
        break;
      case "enumerated":
        if (isLive || performance.now() < next) break;
        next = performance.now() + SAID_MS;
        say(style("dim", enumeratingText(event.at)));
        break;
      case "round":
        if (!isLive) say(style("dim", roundText(event)));
        break;
      case "trial":
        if (event.trial.measurement.status !== "ok") {
          failures++;
          if (verbose || (process.env["AUTOMAP_DEBUG"] ?? "") !== "")
            say(`trial ${event.number}: ${event.trial.measurement.status}: ${event.trial.measurement.log}`);
        } else if (verbose)
          say(
            style(
              "dim",
              `trial ${event.number}: ${printTime(event.trial.measurement.median)}  ${candidateText(event.trial.candidate)}`,
            ),
          );
        break;
      case "best": {
        const { measurement, candidate } = event.trial;
        if (measurement.status === "ok") {
          say(
            `trial ${event.number}: ${printTime(measurement.median)}  ${(operations / measurement.median / 1e9).toFixed(0)} G operations/s  ${candidateText(candidate)}`,
          );
        }
        break;
      }
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

/** Results known from the database take no time. */
function roundText({
  round,
  proposed,
  known,
  secondsLeft,
}: Extract<TuneEvent<Candidate>, { readonly kind: "round" }>): string {
  const kernels = `round ${round}: ${counted(proposed, "kernel")}`;
  if (known === proposed) return `${kernels}, all measured before`;
  const before = known === 0 ? "" : `, ${known} of them measured before`;
  return `${kernels}${before}${secondsLeft === undefined ? "" : `, about ${Math.ceil(secondsLeft)} s left`}`;
}
