/**
 * @file What a report advises to do next, from what its records show.
 *
 *     nextOfWorkload({ trials, winner, verdict: "noisy", ofRoof: 0.4, file: "automap.db" })
 *       "The times are noisy: close other programs and run the same search again."
 *       "The kernel is far from its bound. This shows where the model sees the time go:"   automap explain 3f9a1c77d0e2
 */

import { type Optional, present, sortedBy, sumOf } from "../../abstraction/collections.ts";
import { automapCommand } from "../../abstraction/error.ts";
import type { NoiseVerdict } from "../../abstraction/noise.ts";
import { databaseWords, shortId, type TrialRecord } from "../../db/index.ts";
import type { NetworkTask } from "../../report/network-data.ts";
import type { NextStep } from "../../report/report-data.ts";
import { counted } from "../../report/text.ts";
import { isTimed } from "../../tuner/trials.ts";

const NOISY: NextStep = {
  because: "The times are noisy: close other programs and run the same search again.",
  command: undefined,
};

/** With fewer kernels a search has hardly begun. */
const FEW_TRIALS = 8;
/** A search whose best kernel is among this last share of its trials was still finding faster ones. */
const LAST_SHARE = 1 / 3;
/** Shares of the bound: below the first a kernel is far from it, from the second on it is near. */
const FAR = 0.6;
const NEAR = 0.9;

interface Searched {
  /** In the order in which a search requested them. */
  readonly trials: readonly TrialRecord[];
  readonly winner: TrialRecord | undefined;
  readonly verdict: NoiseVerdict;
  /** The bound as a share of the winner's time; undefined where there is no calibration. */
  readonly ofRoof: number | undefined;
  /** The database. */
  readonly file: string;
}

export function nextOfWorkload({ trials, winner, verdict, ofRoof, file }: Searched): NextStep[] {
  const words = databaseWords(file);
  if (!winner)
    return [{ because: "Every trial failed. This tells why:", command: automapCommand("db", "failures", words) }];
  const id = shortId(winner.id);
  return present<NextStep>([
    verdict === "noisy" && NOISY,
    endedEarly(trials),
    ofRoof !== undefined &&
      ofRoof < FAR && {
        because: "The kernel is far from its bound. This shows where the model sees the time go:",
        command: automapCommand("explain", id, words),
      },
    ofRoof !== undefined &&
      ofRoof >= NEAR &&
      ofRoof <= 1 && {
        because: `The kernel is near its bound: with this instruction no other gains more than ${Math.ceil(100 * (1 - ofRoof))} %.`,
        command: undefined,
      },
    {
      because: "This writes the kernel as a package with a test:",
      command: automapCommand("emit", id, "--to", "DIR", words),
    },
  ]);
}

function endedEarly(trials: readonly TrialRecord[]): Optional<NextStep> {
  if (trials.length < FEW_TRIALS)
    return {
      because: `Fewer than ${FEW_TRIALS} kernels were tried: give the search more time with --time.`,
      command: undefined,
    };
  const seconds = trials.map((trial) => (isTimed(trial) ? trial.measurement.median : Number.POSITIVE_INFINITY));
  const found = seconds.indexOf(Math.min(...seconds));
  return (
    found >= (1 - LAST_SHARE) * trials.length && {
      because: "The search was still finding faster kernels when it ended: give it more time with --time.",
      command: undefined,
    }
  );
}

interface Mapped {
  /** The network as commands name it: a file, or one that is built here. */
  readonly model: string;
  readonly tasks: readonly NetworkTask[];
  readonly verdict: NoiseVerdict;
  readonly file: string;
}

export function nextOfNetwork({ model, tasks, verdict, file }: Mapped): NextStep[] {
  const words = databaseWords(file);
  const untuned = sumOf(tasks, ({ time, times }) => (time === "predicted" ? times : 0));
  const takes = ({ seconds = 0, times }: NetworkTask): number => seconds * times;
  const [slowest] = sortedBy(
    tasks.filter(({ time }) => time === "measured"),
    (a) => -takes(a),
  );
  return present<NextStep>([
    verdict === "noisy" && NOISY,
    untuned > 0 && {
      because: `${counted(untuned, "step")} ${untuned === 1 ? "is" : "are"} not tuned. This tunes where it saves most:`,
      command: automapCommand("tune-network", model, words),
    },
    slowest?.record !== undefined && {
      because: "This shows where the model sees the time of the task go that takes most:",
      command: automapCommand("explain", slowest.record, words),
    },
    {
      because: "This writes the network as one C library and checks it:",
      command: automapCommand("network", "emit", model, "--to", "DIR", "--verify", words),
    },
  ]);
}
