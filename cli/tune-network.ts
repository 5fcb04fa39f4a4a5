/**
 * @file `automap tune-network`: tunes the tasks of a network within one time budget.
 *
 *     automap tune-network resnet18 --time 120
 *     automap tune-network model.onnx --dim batch=1 --time 600 --db model.db
 */

import type { Command } from "commander";
import { checkDatabase, DEFAULT_DATABASE } from "../db/index.ts";
import { DEFAULT_NETWORK_SECONDS, tuneNetworkOptions, tuneNetworkSchema } from "./network-documents.ts";
import { addModel, EXACT, openFor } from "./network-model.ts";
import { parseOptions } from "./options.ts";
import { addJson, type Finish, say } from "./output.ts";

export function register(command: Command, finish: Finish): void {
  addJson(addModel(command), tuneNetworkSchema)
    .option("--time <seconds>", `seconds for all tasks together (default ${DEFAULT_NETWORK_SECONDS})`)
    .option("--seed <n>", "seed of the searches (default 1)")
    .option("--threads <n>", "threads of each kernel (default 1)")
    .option(...EXACT)
    .option("--no-transfer", "do not start from the fastest schedules of similar tasks (for comparison)")
    .option("--trust-imported", "also build and measure kernels of records that were not measured here, before others")
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
