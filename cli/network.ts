/**
 * @file `automap network show|emit|operators`: a network's tasks, its library, and the operators that networks may contain.
 *
 *     automap network show resnet18 --db automap.db
 *     automap network emit model.onnx --dim batch=1 --to model --prove
 *
 * What computes networks is loaded once the model has been read.
 */

import type { Command } from "commander";
import { z } from "zod";
import { DEFAULT_DATABASE } from "../db/index.ts";
import { packageName } from "../package/subject.ts";
import { checkPackageFolder } from "../session/package-folder.ts";
import { commonOptions, emitOptions, emitSchema, operatorsSchema, showSchema } from "./network-documents.ts";
import { addModel, EXACT, openFor } from "./network-model.ts";
import { optionalFlag, parseOptions } from "./options.ts";
import { addJson, type Finish } from "./output.ts";

export function register(network: Command, finish: Finish): void {
  addJson(network.command("operators"), operatorsSchema)
    .summary("the operators of ONNX that networks may have; any other is refused")
    .action(async (raw: unknown) => {
      const { json = false } = parseOptions(z.object({ json: optionalFlag }), raw);
      finish((await import("./network-show.ts")).operators(json));
    });
  addJson(addModel(network.command("show")), showSchema)
    .summary("a network's tasks: equal steps merged, what each maps onto, multiply-adds, parameters")
    .option("--threads <n>", "threads of each kernel (default 1)")
    .option(...EXACT)
    .option("--db <file>", `database of tuned kernels (default ${DEFAULT_DATABASE})`)
    .addHelpText(
      "after",
      "\nExamples:\n  automap network show resnet18\n  automap network show model.onnx --dim batch=1",
    )
    .action(async (model: string, raw: unknown) => {
      const given = parseOptions(commonOptions, raw);
      const opened = await openFor(model, given);
      finish(await (await import("./network-show.ts")).show(opened, given));
    });
  addJson(addModel(network.command("emit")), emitSchema)
    .summary("write a network as one library: header for C, sources, weights, CMake, a program that runs it")
    .option("--to <folder>", "the folder to write")
    .option("--name <name>", "name of files and C functions (default: the file's, or that of a network built here)")
    .option("--threads <n>", "threads of each kernel (default 1)")
    .option(...EXACT)
    .option("--db <file>", `database of tuned kernels (default ${DEFAULT_DATABASE})`)
    .option("--prove", "build it, run it, and compare the output of every step with its equation")
    .option("--verify", "the same as --prove")
    .option("--force", "write into a folder that is not empty")
    .addHelpText(
      "after",
      "\nExample:\n  automap network emit resnet18 --to resnet18 --prove\n  automap network emit resnet18 --target cuda --dtype f16 --to resnet18",
    )
    .action(async (model: string, raw: unknown) => {
      const given = parseOptions(emitOptions, raw);
      if (given.name !== undefined) packageName(given.name, given.name);
      checkPackageFolder(given.to, given.force);
      const opened = await openFor(model, given);
      finish(await (await import("./network-emit.ts")).emit(opened, given));
    });
}
