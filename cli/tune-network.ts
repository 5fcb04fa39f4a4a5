/**
 * @file `automap tune-network`: tunes the tasks of a network within one time budget.
 *
 *     automap tune-network resnet18 --time 120
 *     automap tune-network model.onnx --dim batch=1 --time 600 --db model.db
 */

import type { Command } from "commander";
import { z } from "zod";
import { checkDatabase, DEFAULT_DATABASE } from "../db/index.ts";
import { labelOfTask } from "../session/network-report.ts";
import { type Share, type TunedTask, tuneNetwork } from "../session/tune-network.ts";
import { checkThreads } from "../session/workplace.ts";
import { nativeTarget } from "../targets/index.ts";
import { addModel, EXACT, gpuOf, modelOptions, openOn, targetWords } from "./network-model.ts";
import { parseOptions, positiveInteger, wholeNumber } from "./options.ts";
import { addJson, documentOf, EXIT, type ExitCode, print, printJson, say } from "./output.ts";
import { unansweredText } from "./tune-outcome.ts";

/** A choice, not a measurement: the first trials of the 16 tasks of ResNet-18 that are sums of products take about a minute. */
const DEFAULT_NETWORK_SECONDS = 300;

const options = modelOptions.extend({
  time: positiveInteger("--time").default(DEFAULT_NETWORK_SECONDS),
  seed: wholeNumber("--seed").optional(),
  threads: positiveInteger("--threads").default(1),
  transfer: z.boolean().default(true),
  exact: z.boolean().default(false),
  equalShares: z.boolean().default(false),
  db: z.string().min(1).default(DEFAULT_DATABASE),
  json: z.boolean().optional(),
});

const schema = documentOf({
  network: z.string(),
  seconds: z.number().meta({ description: "of all tuned steps, each by its best kernel" }),
  tasks: z.array(
    z.strictObject({
      task: z.string(),
      nodes: z.array(z.string()).meta({ description: "the first node of each step" }),
      times: z.int(),
      searched: z.boolean().meta({ description: "false where the time ended before its turn, or it needed none" }),
      used: z.boolean().meta({ description: "whether it belongs to the fastest form of its steps" }),
      beaten: z.boolean().meta({ description: "another form of its steps is faster than it could be" }),
      seconds: z.number().optional().meta({ description: "of one call of its best kernel" }),
      failed: z.string().optional().meta({ description: "the error that ended its search" }),
    }),
  ),
});

export function registerTuneNetwork(command: Command, finish: (code: ExitCode) => void): void {
  addJson(addModel(command), schema)
    .option("--time <seconds>", `seconds for all tasks together (default ${DEFAULT_NETWORK_SECONDS})`)
    .option("--seed <n>", "seed of the searches (default 1)")
    .option("--threads <n>", "threads of each kernel (default 1)")
    .option(...EXACT)
    .option("--no-transfer", "do not start from the fastest schedules of similar tasks (for comparison)")
    .option("--equal-shares", "give every task the same time, to compare")
    .option("--db <file>", `database of trials (default ${DEFAULT_DATABASE})`)
    .addHelpText(
      "after",
      "\nExamples:\n  automap tune-network resnet18 --time 120\n  automap tune-network model.onnx --dim batch=1 --time 600\n  automap tune-network resnet18 --target cuda --dtype f16 --dim batch=16\n\nA network that was tuned before goes on from its records. Ctrl-C ends it; what was found is kept.",
    )
    .action(async (model: string, raw: unknown) => finish(await run(model, parseOptions(options, raw))));
}

async function run(model: string, given: z.infer<typeof options>): Promise<ExitCode> {
  // Cheap checks run before a model is read.
  const gpu = await gpuOf(given);
  checkThreads(gpu ?? nativeTarget(), given.threads);
  const notice = checkDatabase(given.db);
  if (notice !== undefined) say(notice);
  const { program } = openOn(model, given, gpu);
  const stop = new AbortController();
  const onInterrupt = (): void => stop.abort();
  process.once("SIGINT", onInterrupt);
  let problem: Share["outcome"] | undefined;
  try {
    const tasks = await tuneNetwork(program, {
      ...{
        seconds: given.time,
        threads: given.threads,
        database: given.db,
        equal: given.equalShares,
        transfer: given.transfer,
        exact: given.exact,
        signal: stop.signal,
      },
      ...(gpu && { machine: gpu }),
      ...(given.seed !== undefined && { seed: given.seed }),
      onShare: (share) => {
        say(progressText(share));
        if (share.outcome.status === "environment") problem = share.outcome;
      },
    });
    if (problem?.status === "environment") {
      say(`automap: ${problem.problem.what}\n  ${problem.problem.why}\n  ${problem.problem.remedy}`);
      return EXIT.environment;
    }
    const seconds = tasks
      .filter(({ used }) => used)
      .reduce((sum, each) => sum + (each.seconds ?? 0) * each.task.steps.length, 0);
    sayLeftOut(tasks);
    if (given.json)
      printJson(schema, {
        ...{ network: program.name, seconds },
        tasks: tasks.map(({ task, searched, used, beaten, seconds: each, failed }) => ({
          task: labelOfTask(task),
          nodes: task.steps.map(({ nodes }) => nodes[0] ?? ""),
          ...{ times: task.steps.length, searched, used, beaten, ...(each !== undefined && { seconds: each }) },
          ...(failed !== undefined && { failed }),
        })),
      });
    else {
      print(`${program.name}: tuned steps take ${(seconds * 1e3).toFixed(2)} ms together`);
      const threads = `${given.threads === 1 ? "" : ` --threads ${given.threads}`}${given.exact ? " --exact" : ""}`;
      print(
        `write it   automap network emit ${model} --to DIR --prove${targetWords(given)}${threads} --db ${given.db}`,
      );
    }
    if (stop.signal.aborted) return EXIT.interrupted;
    return tasks.some(({ failed }) => failed !== undefined) ? EXIT.failed : EXIT.ok;
  } finally {
    process.off("SIGINT", onInterrupt);
  }
}

function progressText({ task, place, of, seconds, secondsLeft, outcome }: Share): string {
  const time = seconds === undefined ? "no kernel" : `${(seconds * 1e6).toFixed(1)} us`;
  return `task ${place} of ${of}, ${task.steps.length} times: ${time}${whyNone(outcome)}; ${secondsLeft.toFixed(0)} s left   ${labelOfTask(task)}`;
}

/** Why a search has no kernel, where that is known. */
function whyNone(outcome: Share["outcome"]): string {
  if (outcome.status === "failed") return `; its search failed: ${outcome.because}`;
  return "unanswered" in outcome && outcome.unanswered ? `; ${unansweredText(outcome.unanswered)}` : "";
}

/** Names the tasks that the time did not reach. */
function sayLeftOut(tasks: readonly TunedTask[]): void {
  const left = tasks.filter(({ searched, beaten }) => !searched && !beaten);
  if (left.length === 0) return;
  const lines = left.map(({ task }) => `  ${task.steps.length} times   ${labelOfTask(task)}`);
  say(
    `${left.length} of ${tasks.length} tasks got no time; --time with more seconds reaches them\n${lines.join("\n")}`,
  );
}
