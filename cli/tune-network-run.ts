/** @file Runs the searches of `automap tune-network`: prints each result, stops at Ctrl-C, and summarises. */

import type { z } from "zod";
import { defined, sumOf } from "../abstraction/collections.ts";
import { automapCommand, EnvironmentError } from "../abstraction/error.ts";
import type { Target } from "../abstraction/machine.ts";
import { environmentDifferences, shortId } from "../db/index.ts";
import type { FleetPlace } from "../fleet/place.ts";
import { counted } from "../report/text.ts";
import { environmentHere } from "../session/network/choices.ts";
import { type Share, type TunedTask, tuneNetwork } from "../session/network/tune-network.ts";
import { labelOfTask } from "../session/report/network-report.ts";
import { isGpu, nativeTarget } from "../targets/index.ts";
import { heardInterrupts } from "./interrupts.ts";
import { type tuneNetworkOptions, tuneNetworkSchema } from "./network-documents.ts";
import { type OpenedFor, targetWords } from "./network-model.ts";
import { EXIT, type ExitCode, print, printJson, say } from "./output.ts";
import { unansweredText } from "./tune-outcome.ts";
import { leftText, networkProgressOf } from "./tune-progress.ts";

export async function tuneOpened(
  { model, gpu, opened: { program } }: OpenedFor,
  given: z.infer<typeof tuneNetworkOptions>,
  place?: FleetPlace,
): Promise<ExitCode> {
  const { signal, end } = heardInterrupts("search");
  const progress = networkProgressOf(given.time);
  let problem: Share["outcome"] | undefined;
  const machine = place?.machine ?? gpu;
  // What a fleet cannot do for one task it cannot do for the next.
  const failed = new AbortController();
  try {
    const tasks = await tuneNetwork(program, {
      seconds: given.time,
      threads: given.threads,
      database: given.db,
      equal: given.equalShares,
      transfer: given.transfer,
      trustImported: given.trustImported,
      exact: given.exact,
      signal: AbortSignal.any([signal, failed.signal]),
      ...defined({ machine, seed: given.seed }),
      ...(place && { beside: besideIn(place), openPlace: () => Promise.resolve({ ...place, close: stayOpen }) }),
      onTasks: (count) =>
        say(
          `${program.name} on ${(machine ?? nativeTarget()).name}: ${counted(count, "task")}, at most ${given.time} s together`,
        ),
      onNotice: say,
      onEvent: progress.hear,
      onShare: (share) => {
        say(progressText(share));
        if (share.outcome.status !== "environment") return;
        problem = share.outcome;
        if (place) failed.abort();
      },
    }).finally(progress.end);
    if (problem?.status === "environment") throw new EnvironmentError(problem.problem);
    const seconds = sumOf(tasks, (each) => (each.seconds ?? 0) * each.task.steps.length);
    const isTuned = tasks.some(({ seconds: each }) => each !== undefined);
    sayLeftOut(tasks, signal.aborted);
    if (given.json)
      printJson(tuneNetworkSchema, {
        network: program.name,
        seconds,
        tasks: tasks.map(({ task, searched, seconds: each, failed }) => ({
          task: labelOfTask(task),
          nodes: task.steps.map(({ nodes }) => nodes[0] ?? ""),
          times: task.steps.length,
          searched,
          ...defined({ seconds: each, failed }),
        })),
      });
    else if (!isTuned) say(`automap: no task of ${program.name} has a kernel yet`);
    else {
      print(`${program.name}: tuned steps take ${(seconds * 1e3).toFixed(2)} ms together`);
      const threads = given.threads === 1 ? [] : ["--threads", String(given.threads)];
      const exact = given.exact ? "--exact" : undefined;
      const apart = place ? await differencesHere(place, gpu) : [];
      const which = place && apart.length > 0 ? ["--environment", shortId(place.id)] : "--verify";
      const written = ["network", "emit", model, "--to", "DIR", which].flat();
      const words = { ...given, target: gpu && place && apart.length === 0 ? "cuda" : given.target };
      if (apart.length > 0)
        print(`its kernels are for the workers, whose environment is not that of this machine (${apart.join(", ")}):`);
      print(`write it   ${automapCommand(written, targetWords(words), threads, exact, ["--db", given.db])}`);
    }
    if (signal.aborted) return EXIT.interrupted;
    return isTuned && tasks.every(({ failed }) => failed === undefined) ? EXIT.ok : EXIT.failed;
  } finally {
    end();
  }
}

/** Fields in which this machine's environment differs from that of a fleet's workers. */
async function differencesHere({ environment }: FleetPlace, gpu: Target | undefined): Promise<readonly string[]> {
  const here = await environmentHere(gpu);
  if (!here) return ["no compiler"];
  return environmentDifferences(environment, here).map(({ field }) => field);
}

/** The place stays open for whoever opened it. */
const stayOpen = (): Promise<void> => Promise.resolve();

/** More searches at once keep no more workers busy: this process proposes and writes the kernels of all. */
const MOST_BESIDE = 4;
/** A search waits for one round at a time, in which several workers have something to do; a GPU is waited for longer. */
const besideIn = ({ machine, workers }: FleetPlace): number =>
  Math.min(MOST_BESIDE, isGpu(machine) ? 2 * workers.length : workers.length);

function progressText({ task, place, of, seconds, secondsLeft, outcome }: Share): string {
  const time = seconds === undefined ? "no kernel" : `${(seconds * 1e6).toFixed(1)} us`;
  const left = leftText({ seconds: secondsLeft, isEstimate: false, mayEndSooner: true });
  return `task ${place} of ${of}, ${task.steps.length} times: ${time}${whyNone(outcome)}${left}   ${labelOfTask(task)}`;
}

/** Why a search has no kernel, where that is known. */
function whyNone(outcome: Share["outcome"]): string {
  if (outcome.status === "failed") return `; its search failed: ${outcome.because}`;
  return "unanswered" in outcome && outcome.unanswered ? `; ${unansweredText(outcome.unanswered)}` : "";
}

/** Names the tasks that the time did not reach. After Ctrl-C, says how many these are and how to go on. */
function sayLeftOut(tasks: readonly TunedTask[], isInterrupted: boolean): void {
  const left = tasks.filter(({ searched }) => !searched);
  if (left.length === 0) return;
  if (isInterrupted) {
    say(
      `interrupted: ${left.length} of ${tasks.length} tasks got no time; the same command goes on from the records of the others`,
    );
    return;
  }
  const lines = left.map(({ task }) => `  ${task.steps.length} times   ${labelOfTask(task)}`);
  say(
    `${left.length} of ${tasks.length} tasks got no time; --time with more seconds reaches them\n${lines.join("\n")}`,
  );
}
