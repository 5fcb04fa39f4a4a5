/**
 * @file `automap tune-network`: tunes the tasks of a network within one time budget.
 *
 *     automap tune-network resnet18 --time 120
 *     automap tune-network model.onnx --dim batch=1 --time 600 --db model.db
 */

import type { Command } from "commander";
import { z } from "zod";
import { checkDatabase, DEFAULT_DATABASE } from "../db/index.ts";
import { addModel, EXACT, modelOptions, openFor } from "./network-model.ts";
import { parseOptions, positiveInteger, wholeNumber } from "./options.ts";
import { addJson, documentOf, type ExitCode, say } from "./output.ts";

/** A choice, not a measurement: the first trials of the 16 tasks of ResNet-18 that are sums of products take about a minute. */
const DEFAULT_NETWORK_SECONDS = 300;

export const tuneNetworkOptions = modelOptions.extend({
  time: positiveInteger("--time").default(DEFAULT_NETWORK_SECONDS),
  seed: wholeNumber("--seed").optional(),
  threads: positiveInteger("--threads").default(1),
  transfer: z.boolean().default(true),
  exact: z.boolean().default(false),
  equalShares: z.boolean().default(false),
  db: z.string().min(1).default(DEFAULT_DATABASE),
  json: z.boolean().optional(),
});

export const tuneNetworkSchema = documentOf({
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
  addJson(addModel(command), tuneNetworkSchema)
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
    .action(async (model: string, raw: unknown) => {
      const given = parseOptions(tuneNetworkOptions, raw);
      const opened = await openFor(model, given, () => {
        const notice = checkDatabase(given.db);
        if (notice !== undefined) say(notice);
      });
      finish(await (await import("./tune-network-run.ts")).tuneOpened(opened, given));
    });
}
