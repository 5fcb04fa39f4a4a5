/**
 * @file `automap tune-network`: the tasks of a network tuned within one time.
 *
 *     automap tune-network resnet18 --time 120
 *     automap tune-network model.onnx --dim batch=1 --time 600 --db model.db
 */

import type { Command } from "commander";
import { z } from "zod";
import { DEFAULT_DATABASE } from "../db/index.ts";
import { tasksOf } from "../network/tasks.ts";
import { type Share, tuneNetwork } from "../session/tune-network.ts";
import { labelOfTask } from "./network.ts";
import { addModel, modelOptions, openModel } from "./network-model.ts";
import { parseOptions, positiveInteger } from "./options.ts";
import { addJson, documentOf, EXIT, type ExitCode, print, printJson, say } from "./output.ts";

/** Two cores tune ResNet-18 to within a few per cent in about this. */
const DEFAULT_NETWORK_SECONDS = 300;

const options = modelOptions.extend({
  time: positiveInteger("--time").default(DEFAULT_NETWORK_SECONDS),
  seed: z.string().regex(/^\d+$/, "--seed must be a non-negative integer").transform(Number).optional(),
  equalShares: z.boolean().default(false),
  db: z.string().min(1).default(DEFAULT_DATABASE),
  json: z.boolean().optional(),
});

const schema = documentOf({
  network: z.string(),
  seconds: z.number().meta({ description: "of all tuned steps, each by its best kernel" }),
  tasks: z.array(z.strictObject({ task: z.string(), times: z.int(), seconds: z.number().optional() })),
});

export function registerTuneNetwork(command: Command, finish: (code: ExitCode) => void): void {
  addJson(addModel(command), schema)
    .option("--time <seconds>", `seconds for all tasks together (default ${DEFAULT_NETWORK_SECONDS})`)
    .option("--seed <n>", "seed of the searches (default 1)")
    .option("--equal-shares", "give every task the same time, to compare")
    .option("--db <file>", `database of trials (default ${DEFAULT_DATABASE})`)
    .addHelpText(
      "after",
      "\nExamples:\n  automap tune-network resnet18 --time 120\n  automap tune-network model.onnx --dim batch=1 --time 600\n\nA network that was tuned before goes on from its records. Ctrl-C ends it; what was found is kept.",
    )
    .action(async (model: string, raw: unknown) => finish(await run(model, parseOptions(options, raw))));
}

async function run(model: string, given: z.infer<typeof options>): Promise<ExitCode> {
  const { program } = openModel(model, given);
  const stop = new AbortController();
  const onInterrupt = (): void => stop.abort();
  process.once("SIGINT", onInterrupt);
  let problem: Share["outcome"] | undefined;
  try {
    const best = await tuneNetwork(program, {
      ...{ seconds: given.time, database: given.db, equal: given.equalShares, signal: stop.signal },
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
    const seconds = [...best].reduce((sum, [task, each]) => sum + each * task.steps.length, 0);
    const tasks = tasksOf(program).filter(({ multiplyAdds }) => multiplyAdds > 0);
    if (given.json)
      printJson(schema, {
        network: program.name,
        seconds,
        tasks: tasks.map((task) => {
          const [, each] = [...best].find(([other]) => labelOfTask(other) === labelOfTask(task)) ?? [];
          return { task: labelOfTask(task), times: task.steps.length, ...(each !== undefined && { seconds: each }) };
        }),
      });
    else {
      print(`${program.name}: tuned steps take ${(seconds * 1e3).toFixed(2)} ms together`);
      print(`write it   automap network emit ${model} --to DIR --prove --db ${given.db}`);
    }
    return stop.signal.aborted ? EXIT.interrupted : EXIT.ok;
  } finally {
    process.off("SIGINT", onInterrupt);
  }
}

function progressText({ task, place, of, seconds, secondsLeft }: Share): string {
  const time = seconds === undefined ? "no kernel" : `${(seconds * 1e6).toFixed(1)} us`;
  return `task ${place} of ${of}, ${task.steps.length} times: ${time}; ${secondsLeft.toFixed(0)} s left   ${labelOfTask(task)}`;
}
