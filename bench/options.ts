/**
 * @file The options of a script in bench/, read by node's `parseArgs`. `--help` lists them, and a mistake is a sentence.
 *
 *     const { values } = readOptions({ options: { seed: { type: "string", default: "1" } } });
 */

import { basename } from "node:path";
import { type ParseArgsConfig, parseArgs } from "node:util";
import { suggestion } from "../abstraction/error.ts";

/** The options given, or ends the process: after `--help` with 0, after a mistake with 2. */
export function readOptions<T extends ParseArgsConfig>(config: T): ReturnType<typeof parseArgs<T>> {
  const read = optionsIn(config, basename(process.argv[1] ?? "", ".js"));
  if ("parsed" in read) return read.parsed;
  (read.code === 0 ? process.stdout : process.stderr).write(`${read.says}\n`);
  return process.exit(read.code);
}

/** The options of a script, or what to say in their place, and the exit code. */
export function optionsIn<T extends ParseArgsConfig>(
  config: T,
  script: string,
): { readonly parsed: ReturnType<typeof parseArgs<T>> } | { readonly says: string; readonly code: 0 | 2 } {
  const words = config.args ?? process.argv.slice(2);
  if (words.some((word) => word === "--help" || word === "-h")) return { says: helpOf(config, script), code: 0 };
  try {
    return { parsed: parseArgs(config) };
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    const [what = ""] = error.message.split(/\. |\n/, 1);
    const unknown = /^Unknown option '--(.*)'$/.exec(what)?.[1];
    const hint = unknown === undefined ? [] : [`  ${suggestion(unknown, Object.keys(config.options ?? {}), "--")}`];
    return { says: [`${script}: ${what}`, ...hint, `  see: node dist/bench/${script}.js --help`].join("\n"), code: 2 };
  }
}

function helpOf({ options = {}, allowPositionals = false }: ParseArgsConfig, script: string): string {
  const lines = Object.entries(options).map(([name, { type, default: usual }]) => {
    const value = type === "string" ? " <value>" : "";
    return `  --${name}${value}${usual === undefined || usual === false ? "" : `   (default ${String(usual)})`}`;
  });
  return [
    `usage: node dist/bench/${script}.js [options]${allowPositionals ? " [words]" : ""}`,
    ...lines,
    `The head of bench/${script}.ts says what it measures, with examples.`,
  ].join("\n");
}
