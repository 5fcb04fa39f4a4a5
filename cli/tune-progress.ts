/**
 * @file What `automap tune` says while it searches.
 *
 *     trial 3: 81.20 us  2847 G operations/s  amx.tdpbusd  m <- q  n <- k  k <- c  ...
 *     round 2: 8 kernels, about 31 s left
 *     time is up after 40.1 s: 33 kernels tried, 25 of them now, 1 failed
 */

import type { Candidate } from "../abstraction/candidate.ts";
import { candidateText } from "../report/describe-candidate.ts";
import { counted, printTime } from "../report/text.ts";
import type { TuneEvent, TuneStatus } from "../tuner/search.ts";
import { say, style } from "./output.ts";

/** Why a search ended, as its last line begins. */
const ENDINGS: Readonly<Record<TuneStatus, string>> = {
  "trials-spent": "all trials made",
  "time-spent": "time is up",
  interrupted: "interrupted",
  exhausted: "nothing left to try",
  "no-gain": "nothing faster is expected",
};

/** A line when a kernel is the fastest so far, and one a round otherwise. @param operations of one call */
export function progressOf(operations: number, verbose = false): (event: TuneEvent<Candidate>) => void {
  let failures = 0;
  return (event) => {
    switch (event.kind) {
      case "round":
        if (event.secondsLeft !== undefined)
          say(
            style(
              "dim",
              `round ${event.round}: ${counted(event.proposed, "kernel")}, about ${Math.ceil(event.secondsLeft)} s left`,
            ),
          );
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
