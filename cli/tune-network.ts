/**
 * @file `automap tune-network`: tunes the tasks of a network within one time budget.
 *
 *     automap tune-network resnet18 --time 120
 *     automap tune-network model.onnx --dim batch=1 --time 600 --db model.db
 */

import { checkDatabase, DEFAULT_DATABASE } from "../db/index.ts";
import type { Cli } from "./command.ts";
import { checkElsewhere, FLEET_OPTIONS, fleetPlaceOf } from "./fleet-place.ts";
import { DEFAULT_NETWORK_SECONDS, tuneNetworkOptions, tuneNetworkSchema } from "./network-documents.ts";
import { addModel, EXACT, openFor } from "./network-model.ts";
import { say } from "./output.ts";

export function register(command: Cli): void {
  addModel(command)
    .json(tuneNetworkSchema)
    .option("--time <seconds>", `seconds for all tasks together (default ${DEFAULT_NETWORK_SECONDS})`)
    .option("--seed <n>", "seed of the searches (default 1)")
    .option("--threads <n>", "threads of each kernel (default 1)")
    .option(...EXACT)
    .option("--no-transfer", "do not start from the fastest schedules of similar tasks (for comparison)")
    .option("--trust-imported", "also build and measure kernels of records that were not measured here, before others")
    .option("--equal-shares", "give every task the same time, to compare")
    .option("--db <file>", `database of trials (default ${DEFAULT_DATABASE})`)
    .optionsOf(FLEET_OPTIONS)
    .examples(
      [
        "automap tune-network resnet18 --time 120",
        "automap tune-network model.onnx --dim batch=1 --time 600",
        "automap tune-network resnet18 --target cuda --dtype f16 --dim batch=16",
        'automap tune-network resnet18 --fleet redis://queue.lan --fleet-key desk.key --on "isa contains amx_int8"',
      ],
      "A network that was tuned before goes on from its records. Ctrl-C ends it; what was found is kept.",
    )
    .runs(tuneNetworkOptions, async (given, _command, model: string) => {
      checkElsewhere(given.fleet, { target: given.target !== "native" });
      const place = await fleetPlaceOf(given, say);
      try {
        const check = (): void => {
          const notice = checkDatabase(given.db);
          if (notice !== undefined) say(notice);
        };
        const opened = await openFor(model, given, { check, elsewhere: place?.machine });
        return await (await import("./tune-network-run.ts")).tuneOpened(opened, given, place);
      } finally {
        await place?.close();
      }
    });
}
