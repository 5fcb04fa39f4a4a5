/**
 * @file Options of a script in bench/, parsed by Node's `parseArgs`. `--help` lists them; a mistake is one sentence.
 *
 *     const { values } = readOptions({ options: { seed: { type: "string", default: "1" } } });
 */

import { basename } from "node:path";
import { type ParseArgsConfig, parseArgs } from "node:util";
import { MachineFault, suggestion, UsageError } from "../../abstraction/error.ts";

/** The given options. Ends the process after `--help` (0) or a mistake (2), including mistakes found later. */
export function readOptions<T extends ParseArgsConfig>(config: T): ReturnType<typeof parseArgs<T>> {
  const script = /bench\/(.+)\.js$/.exec(process.argv[1] ?? "")?.[1] ?? "";
  process.on("uncaughtException", (error) => {
    const { says, code } = endingOf(error, script);
    process.stderr.write(`${says}\n`);
    process.exit(code);
  });
  const read = optionsIn(config, script);
  if ("parsed" in read) return read.parsed;
  (read.code === 0 ? process.stdout : process.stderr).write(`${read.says}\n`);
  return process.exit(read.code);
}

/** The options of a script, or a message instead of them with its exit code. */
export function optionsIn<T extends ParseArgsConfig>(
  config: T,
  script: string,
): { readonly parsed: ReturnType<typeof parseArgs<T>> } | { readonly says: string; readonly code: 0 | 2 } {
  const words = config.args ?? process.argv.slice(2);
  if (words.some((word) => word === "--help" || word === "-h")) return { says: helpOf(config, script), code: 0 };
  try {
    const parsed = parseArgs(config);
    const values = new Map<string, unknown>(Object.entries(parsed.values));
    for (const [name, { default: usual }] of Object.entries(config.options ?? {}))
      checkNumbers(name, usual, values.get(name));
    return { parsed };
  } catch (error) {
    if (error instanceof UsageError) return { says: endingOf(error, script).says, code: 2 };
    if (!(error instanceof TypeError)) throw error;
    const [what = ""] = error.message.split(/\. |\n/, 1);
    const unknown = /^Unknown option '--(.*)'$/.exec(what)?.[1];
    const hint = unknown === undefined ? [] : [`  ${suggestion(unknown, Object.keys(config.options ?? {}), "--")}`];
    return {
      says: [`${basename(script)}: ${what}`, ...hint, `  see: node dist/bench/${script}.js --help`].join("\n"),
      code: 2,
    };
  }
}

const NUMBERS = /^\d+(?:\.\d+)?(?:,\d+(?:\.\d+)?)*$/;
const WHOLE = /^\d+(?:,\d+)*$/;
const SHARE = /^\d+\/\d+$/;

/** Checks an option by its default: a number, a list of numbers, or a shard such as 1/1. @throws UsageError */
function checkNumbers(name: string, usual: unknown, given: unknown): void {
  if (typeof usual !== "string" || typeof given !== "string") return;
  const [wanted, form] = WHOLE.test(usual)
    ? ["a whole number", WHOLE]
    : NUMBERS.test(usual)
      ? ["a number", NUMBERS]
      : ["a part of a whole", SHARE];
  if (!form.test(usual)) return;
  if (!form.test(given) || (!usual.includes(",") && given.includes(",")))
    throw new UsageError(
      `--${name} must be ${usual.includes(",") ? "numbers with commas between them" : wanted}, got "${given}"`,
      `for example --${name} ${usual}`,
    );
}

/** The given word. @throws UsageError for a word that is not known */
export function wordOf<T extends string>(name: string, word: string, known: readonly T[]): T {
  const found = known.find((one) => one === word);
  if (found !== undefined) return found;
  throw new UsageError(`--${name}: there is no "${word}"`, suggestion(word, known));
}

/** A caller's mistake or a machine's fault becomes a sentence; a fault of the script keeps its stack trace. */
export function endingOf(error: unknown, script: string): { readonly says: string; readonly code: 1 | 2 | 6 } {
  if (error instanceof UsageError)
    return { says: `${basename(script)}: ${error.explain()}\n  see: node dist/bench/${script}.js --help`, code: 2 };
  // An error about a named file: Node's message is already a sentence.
  if (error instanceof Error && "path" in error && "code" in error)
    return { says: `${basename(script)}: ${error.message}\n  see: node dist/bench/${script}.js --help`, code: 2 };
  if (error instanceof MachineFault) return { says: `${basename(script)}: ${error.message}`, code: 6 };
  return { says: error instanceof Error ? (error.stack ?? error.message) : String(error), code: 1 };
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
