/**
 * @file `automap network show|emit|operators`: a network's tasks, its library, and the operators that networks may contain.
 *
 *     automap network show resnet18 --db automap.db
 *     automap network emit model.onnx --dim batch=1 --to model --verify
 *
 * What computes networks is loaded once the model has been read.
 */

import { z } from "zod";
import { DEFAULT_DATABASE } from "../db/index.ts";
import { packageName } from "../package/subject.ts";
import { checkPackageFolder } from "../session/package/package-folder.ts";
import type { Cli } from "./command.ts";
import { commonOptions, emitOptions, emitSchema, operatorsSchema, showSchema } from "./network-documents.ts";
import { addModel, ENVIRONMENT, EXACT, openForWorld } from "./network-model.ts";
import { flag } from "./options.ts";

export function register(network: Cli): void {
  network.examples(["automap network show resnet18", "automap network emit resnet18 --to resnet18 --verify"]);
  network
    .command("operators")
    .json(operatorsSchema)
    .summary("the operators of ONNX that networks may have; any other is refused")
    .examples(["automap network operators", "automap network operators --json"])
    .runs(z.object({ json: flag }), async ({ json }) => (await import("./network-show.ts")).operators(json));
  addModel(network.command("show"))
    .json(showSchema)
    .summary("a network's tasks: equal steps merged, what each maps onto, multiply-adds, parameters")
    .option("--threads <n>", "threads of each kernel (default 1)")
    .option(...EXACT)
    .option("--db <file>", `database of tuned kernels (default ${DEFAULT_DATABASE})`)
    .option(...ENVIRONMENT)
    .examples(["automap network show resnet18", "automap network show model.onnx --dim batch=1"])
    .runs(commonOptions, async (given, _command, model: string) => {
      const opened = await openForWorld(model, given);
      return (await import("./network-show.ts")).show(opened, given);
    });
  addModel(network.command("emit"))
    .json(emitSchema)
    .summary("write a network as one library: header for C, sources, weights, CMake, a program that runs it")
    .option("--to <folder>", "the folder to write")
    .option("--name <name>", "name of files and C functions (default: the file's, or that of a network built here)")
    .option("--threads <n>", "threads of each kernel (default 1)")
    .option(...EXACT)
    .option("--db <file>", `database of tuned kernels (default ${DEFAULT_DATABASE})`)
    .option(...ENVIRONMENT)
    .option("--prove, --verify", "build it, run it, and compare the output of every step with its equation")
    .option("--force", "write into a folder that is not empty")
    .examples([
      "automap network emit resnet18 --to resnet18 --verify",
      "automap network emit resnet18 --target cuda --dtype f16 --to resnet18",
      "automap network emit resnet18 --environment 9c1f2ab4 --to resnet18",
    ])
    .runs(emitOptions, async (given, _command, model: string) => {
      if (given.name !== undefined) packageName(given.name, given.name);
      checkPackageFolder(given.to, given.force);
      const opened = await openForWorld(model, given);
      return (await import("./network-emit.ts")).emit(opened, given);
    });
}
