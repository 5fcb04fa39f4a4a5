/**
 * @file The frame of a command: its options, examples, JSON schema and exit code.
 *
 *     command.json(checkSchema).examples(["automap check --baseline main.db"]).runs(options, check)
 */

import { Command, CommanderError, type Option } from "commander";
import { z } from "zod";
import { UsageError } from "../abstraction/error.ts";
import { EXIT, type ExitCode, print } from "./output.ts";

/** A command of automap's, or a group of them. */
export class Cli extends Command {
  /** What the line ended with; of the outermost command. */
  code: ExitCode = EXIT.ok;

  override createCommand(name?: string): Cli {
    return new Cli(name);
  }

  /** An option with a value is refused when it is given twice, unless it says how its values are gathered. */
  override addOption(option: Option): this {
    const takesValue = option.required || option.optional;
    if (takesValue && option.parseArg === undefined)
      option.argParser((value: string, before: unknown) => {
        if (before !== undefined) throw new UsageError(`${option.long ?? option.flags} is given twice`);
        return value;
      });
    return super.addOption(option);
  }

  /** Adds `--json`, and `--json-schema`, which prints the document's JSON Schema and runs nothing. */
  json(document: z.ZodType): this {
    return this.option("--json", "print a JSON document").schema(
      "--json-schema",
      "print the JSON schema of that document, and do nothing else",
      document,
    );
  }

  /** Adds an option that prints a JSON Schema and runs nothing. */
  schema(option: string, says: string, of: z.ZodType): this {
    return this.option(option, says).on(`option:${option.replace(/^--/, "")}`, () => {
      print(JSON.stringify(z.toJSONSchema(of), undefined, 2));
      throw new CommanderError(EXIT.ok, "automap.schema", "");
    });
  }

  /** Adds options that several commands have. */
  optionsOf(all: readonly (readonly [flags: string, says: string])[]): this {
    for (const option of all) this.option(...option);
    return this;
  }

  /** Lines that are examples, and what help says behind them. */
  examples(lines: readonly string[], ...behind: readonly string[]): this {
    const head = lines.length === 1 ? "Example:" : "Examples:";
    const text = ["", head, ...lines.map((line) => `  ${line}`), ...(behind.length > 0 ? ["", ...behind] : [])];
    return this.addHelpText("after", text.join("\n"));
  }

  /** What the command does, with its options as the schema reads them and its arguments in order. */
  runs<T>(
    options: z.ZodType<T>,
    run: (given: T, command: Cli, ...words: never[]) => ExitCode | Promise<ExitCode>,
  ): this {
    return this.action(async (...all: unknown[]) => {
      const words = all.slice(0, -2) as never[]; // as the command declares its arguments
      const code = await run(parseOptions(options, all.at(-2)), this, ...words);
      let outermost: Command = this;
      while (outermost.parent) outermost = outermost.parent;
      if (outermost instanceof Cli) outermost.code = code;
    });
  }
}

/** Options validated by a schema. A wrong value is a usage error. */
export function parseOptions<T>(schema: z.ZodType<T>, raw: unknown): T {
  const result = schema.safeParse(raw, {
    error: (issue) =>
      issue.code === "too_small" && issue.input === "" ? `--${kebab(issue.path)} needs a value, got ""` : undefined,
  });
  if (!result.success) throw new UsageError(result.error.issues.map((i) => i.message).join("; "));
  return result.data;
}

/** The option that a field of a schema is given as. */
export function kebab(path: readonly PropertyKey[] = []): string {
  return path.join(".").replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}
