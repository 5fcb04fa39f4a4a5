/**
 * @file Turns command-line words into filters that select records.
 *
 *     --op conv2d --c 64..256 --status ok --since 7d --top 3
 */

import { type Command, Option } from "commander";
import { z } from "zod";
import { defined, namesOf, unique } from "../../abstraction/collections.ts";
import { NotFoundError, suggestion, UsageError } from "../../abstraction/error.ts";
import { printEquation } from "../../abstraction/expression.ts";
import { parseEquation } from "../../abstraction/parse.ts";
import {
  type Database,
  DEFAULT_DATABASE,
  extentsIn,
  type Filter,
  intrinsicsIn,
  namesIn,
  operatorsIn,
  type Range,
  SORTS,
  STATUSES,
  showRun,
  type TrialFilter,
  targetsIn,
  workersIn,
} from "../../db/index.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { parseDataTypes } from "../../operators/data-types.ts";
import { EPILOGUE_NAMES } from "../../operators/epilogue.ts";
import { OPERATORS } from "../../operators/index.ts";
import type { Cli } from "../command.ts";
import { databaseFile, flag, optionalText, optionsOf, positiveInteger, valuesIn } from "../options.ts";
import { say } from "../output.ts";

export const fileOptions = z.object({ db: databaseFile, json: flag });

export const filterOptions = fileOptions.extend({
  op: optionalText,
  name: optionalText,
  dtype: optionalText,
  layout: optionalText,
  epilogue: optionalText,
  threads: positiveInteger.optional(),
  run: optionalText,
  worker: optionalText,
  intrinsic: optionalText,
  target: optionalText,
  since: optionalText,
  until: optionalText,
  limit: positiveInteger.optional(),
});

export const queryOptions = filterOptions.extend({
  status: z.enum(STATUSES, { error: `unknown --status\n  known: ${STATUSES.join(", ")}` }).optional(),
  sort: z.enum(SORTS, { error: `unknown --sort; it is one of ${SORTS.join(", ")}` }).optional(),
  top: positiveInteger.optional(),
  csv: flag,
});

/** @param document the `--json` document; an export has none, since it is lines of JSON already */
export function addFile(command: Cli, document?: z.ZodType): Cli {
  const given = command.option("--db <file>", `the database (default: ${DEFAULT_DATABASE} in this directory)`);
  return document ? given.json(document) : given.addOption(new Option("--json").hideHelp());
}

export function addFilters(command: Cli, document?: z.ZodType): Cli {
  return addFile(command, document)
    .option("--op <operator>", "an operator's name or alias")
    .option("--name <name>", "trials tuned under this --name, and all others of the same computation")
    .option("--dtype <types>", "types of the inputs: f16, u8s8; of the sum or the output too: f16->f16")
    .option("--layout <layout>", "NHWC, NCHW4c ..., or by tensor: in=NHWC,w=KRSC")
    .option("--epilogue <name or equation>", `${EPILOGUE_NAMES.join(", ")}, an equation in quotes, or none`)
    .option("--threads <n>", "threads of a kernel")
    .option("--run <id>", "only trials of this run, given by the first digits of its id")
    .option("--worker <name>", "only trials that this worker of a fleet measured")
    .option("--intrinsic <name>", "an instruction or a family of them")
    .option("--target <name>", "a target as records name it: native")
    .option("--<axis or parameter> <n>", "an extent or a range of them: --c 64, --c 64..256, --c 64.., --c ..256")
    .option("--since <when>", "not before: 2026-11-21, 2026-11-21T09:00, or an age: 7d, 12h, 30m")
    .option("--until <when>", "not after; a date includes the whole day")
    .option("--limit <n>", "at most n records")
    .allowUnknownOption()
    .allowExcessArguments();
}

export function addStatus(command: Cli): Cli {
  return command.option("--status <status>", `only trials that ended so: ${STATUSES.join(", ")}`);
}

/** @throws UsageError for an invalid name, range or time */
export function readFilter(db: Database, given: z.infer<typeof filterOptions>, command: Command): Filter {
  const { op, name, dtype, layout, epilogue, threads, run, worker, intrinsic, target, since, until, limit } = given;
  const now = Date.now();
  const known = operatorsIn(db);
  const filter: Filter = defined({
    operator: op === undefined ? undefined : readOperator(op, known),
    name:
      name === undefined
        ? undefined
        : readHeld(name, namesIn(db), "nothing was tuned under the name", "automap tune --name gives one"),
    dtype: dtype === undefined ? undefined : readTypes(dtype),
    layout: layout === undefined ? undefined : readLayout(layout),
    epilogue: epilogue === undefined ? undefined : readEpilogue(epilogue),
    threads,
    run: run === undefined ? undefined : showRun(db, run).id,
    worker:
      worker === undefined
        ? undefined
        : readHeld(worker, workersIn(db), "no record is of a worker", "it holds no records of a fleet"),
    intrinsic: intrinsic === undefined ? undefined : readInstructions(db, intrinsic),
    target:
      target === undefined
        ? undefined
        : readHeld(target, targetsIn(db), "no record is of a target", "it holds no records yet"),
    since: since === undefined ? undefined : readInstant("--since", since, now).from,
    until: until === undefined ? undefined : readInstant("--until", until, now).to,
    limit,
    extents: readExtents(command, extentsIn(db)),
  });
  if (filter.since !== undefined && filter.until !== undefined && filter.since >= filter.until)
    throw new UsageError(`--since ${since} is not before --until ${until}`);
  if (known.length === 0) say(`automap: ${db.path} holds no trials yet`);
  return filter;
}

/** The filter with status, order and the number of trials of each workload. */
export function readTrialFilter(db: Database, given: z.infer<typeof queryOptions>, command: Command): TrialFilter {
  const { status, sort, top } = given;
  return {
    ...readFilter(db, given, command),
    ...defined({ status, sort, top }),
  };
}

/** An instruction of the table, a family or a feature. Another name may still be one in the file. */
export function readInstructions(db: Database, word: string): readonly string[] {
  if (intrinsicsIn(db).includes(word)) return [word];
  return namesOf(intrinsicsNamed(word));
}

/** A word that records hold. @param none the hint where they hold none */
function readHeld(word: string, known: readonly string[], unknown: string, none: string): string {
  if (!known.includes(word))
    throw new NotFoundError(`${unknown} "${word}"`, known.length === 0 ? none : suggestion(word, known));
  return word;
}

const LAYOUT = /^([A-Z]|\d+[a-z])+$/;

function readLayout(text: string): string {
  const [wrong] = text.split(",").filter((part) => !LAYOUT.test(part.replace(/^[A-Za-z_]\w*=/, "")));
  if (wrong !== undefined || (text.includes(",") && !text.split(",").every((part) => part.includes("="))))
    throw new UsageError(
      `--layout: "${wrong ?? text}" is no layout`,
      "for example --layout NHWC, --layout NCHW16c, or by tensor --layout in=NHWC,w=KRSC",
    );
  return text;
}

function readEpilogue(text: string): string {
  const known = [...EPILOGUE_NAMES, "none"];
  if (text.includes("=")) return printEquation(parseEquation(text));
  if (!known.includes(text)) throw new UsageError(`unknown epilogue "${text}"`, suggestion(text, known));
  return text;
}

/** An alias stands for its operator. Another name may still be one in the file. */
export function readOperator(word: string, recorded: readonly string[]): string {
  const operator = OPERATORS.find((o) => o.name === word || o.aliases.includes(word));
  if (operator) return operator.name;
  if (!recorded.includes(word))
    throw new UsageError(`unknown operator "${word}"`, suggestion(word, unique([...recorded, ...namesOf(OPERATORS)])));
  return word;
}

/** The types as records spell them: `s8s8` is `s8`. The output's type counts when it is given. */
export function readTypes(word: string): string {
  const { inputs, sum } = parseDataTypes(word);
  const [first, second] = inputs;
  const types = first === second ? first : `${first}${second}`;
  return word.includes("->") ? `${types}->${sum}` : types;
}

/**
 * `--c 64`, `--c=64..256`, `--c ..256`: what commander does not know are extents.
 * @throws UsageError on anything else, a name included that neither an operator nor a record has
 */
function readExtents(command: Command, recorded: readonly string[]): Record<string, Range> {
  const names = unique([...recorded, ...OPERATORS.flatMap((o) => Object.keys(o.parameters))]);
  const ranges: Record<string, Range> = {};
  const hint = "extents are given as --c 64 or --c 64..256";
  for (const { name, text } of valuesIn(command.args, command, { pattern: /^--([A-Za-z_]\w*)(?:=(.*))?$/, hint })) {
    if (!names.includes(name))
      throw new UsageError(
        `--${name} is no option, and no record has an axis or parameter of that name`,
        suggestion(name, [...optionsOf(command), ...names], "--"),
      );
    if (Object.hasOwn(ranges, name)) throw new UsageError(`--${name} is given twice`);
    if (text === undefined)
      throw new UsageError(`--${name} needs a value, for example --${name} 64 or --${name} 64..256`);
    const [, low, dots, high] = /^(\d*)(?:(\.\.)(\d*))?$/.exec(text) ?? [];
    if ((low ?? "") === "" && (high ?? "") === "")
      throw new UsageError(
        `--${name} must be an extent or a range, got "${text}"`,
        `for example --${name} 64, --${name} 64..256, --${name} 64..`,
      );
    const min = low === "" ? undefined : Number(low);
    const max = dots === undefined ? min : high === "" ? undefined : Number(high);
    if (min !== undefined && max !== undefined && min > max)
      throw new UsageError(`--${name}: the range ${text} is empty`, `--${name} ${max}..${min}`);
    ranges[name] = defined({ min, max });
  }
  return ranges;
}

const MINUTE = 60_000;
const AGES: Readonly<Record<string, number>> = { m: MINUTE, h: 60 * MINUTE, d: 1440 * MINUTE, w: 7 * 1440 * MINUTE };

/** The milliseconds an instant, a day (UTC) or an age begins and ends with. */
function readInstant(option: string, text: string, now: number): { from: number; to: number } {
  const [, count, unit = ""] = /^(\d+)([mhdw])$/.exec(text) ?? [];
  if (count !== undefined) {
    const at = now - Number(count) * (AGES[unit] ?? 0);
    return { from: at, to: at };
  }
  const [, day, clock, zone] =
    /^(\d{4}-\d{2}-\d{2})(T\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?)?(Z|[+-]\d{2}:\d{2})?$/.exec(text) ?? [];
  const from = day === undefined ? Number.NaN : Date.parse(`${day}${clock ?? "T00:00"}${zone ?? "Z"}`);
  if (Number.isNaN(from))
    throw new UsageError(
      `${option}: "${text}" is no time`,
      "for example 2026-11-21, 2026-11-21T09:00 (UTC), or an age: 7d, 12h, 30m",
    );
  return { from, to: clock === undefined ? from + 1440 * MINUTE : from + 1 };
}
