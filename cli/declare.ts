/**
 * @file `--declare FILE`: adds instructions that the user declares to the table.
 *
 *     automap tune matmul --dtype s16 --declare ./vpmaddwd.mjs --intrinsic mine.vpmaddwd
 *
 * The file is a module that exports declarations. It is code and runs with the rights of the command. It is loaded only because the user names
 * it; no record, package or folder can name one.
 */

import { existsSync, statSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { Command } from "commander";
import { messageOf, NotFoundError, UsageError } from "../abstraction/error.ts";
import { registerDeclarations } from "../intrinsics/register.ts";
import { collect } from "./options.ts";

/** Adds the option to a command, or to each of its subcommands. The declarations are registered before the command runs. */
export function addDeclarations(command: Command): void {
  for (const one of command.commands.length > 0 ? command.commands : [command]) {
    one
      .option(
        "--declare <file>",
        "a JavaScript module, run by this command, that exports declarations of instructions of your own; may be given again",
        collect,
      )
      .hook("preAction", async () => {
        const files: unknown = one.getOptionValue("declare");
        if (Array.isArray(files)) for (const file of files) await declareFrom(String(file));
      });
  }
}

/** `--declare mine.mjs` for a command to paste, one for each file that this command was given. */
export function declareWords({ declare = [] }: { readonly declare?: readonly string[] | undefined }): string[] {
  return declare.flatMap((file) => ["--declare", file]);
}

async function declareFrom(file: string): Promise<void> {
  const path = resolve(file);
  if (!existsSync(path))
    throw new NotFoundError(
      `--declare: there is no file ${file}`,
      "it names a module that exports declarations; --intrinsic names an instruction",
    );
  if (statSync(path).isDirectory()) throw new UsageError(`--declare: ${file} is a directory`, "name a module in it");
  const exports: unknown = await import(pathToFileURL(path).href).catch((error: unknown) => {
    throw new UsageError(
      `--declare: ${file} cannot be loaded: ${messageOf(error)}`,
      "it is an ES module, .mjs or .js: export default { name: ..., compute: ... }",
    );
  });
  registerDeclarations({ ...(exports as object) }, file); // a module is an object
}
