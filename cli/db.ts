/**
 * @file `automap db best|query|show`: what was tried, what it took, and the record behind a number.
 *
 *     automap db best --op conv2d --c 64 --dtype u8s8
 *     automap db query --op conv2d --c 64..256 --status ok --since 7d --top 10
 *     automap db show 3f9a1c77d0e2
 */

import type { Command } from "commander";
import { z } from "zod";
import { suggestion, UsageError } from "../abstraction/error.ts";
import { printMatching } from "../abstraction/mapping.ts";
import type { Measurement } from "../abstraction/trial.ts";
import {
  best,
  type Database,
  extentsIn,
  type Filter,
  openDatabase,
  operatorsIn,
  queryTrials,
  type Range,
  SORTS,
  STATUSES,
  shapeOf,
  shortId,
  showTrial,
  type TrialRecord,
} from "../db/index.ts";
import { intrinsicsNamed } from "../intrinsics/index.ts";
import { parseDataTypes, printDataTypes } from "../operators/data-types.ts";
import { OPERATORS } from "../operators/index.ts";
import { indent, table } from "../report/text.ts";
import { parseOptions } from "./map.ts";
import { EXIT, type ExitCode, print, printJson, say, style } from "./output.ts";

const DEFAULT_FILE = "automap.db";

const fileOptions = z.object({ db: z.string().min(1).default(DEFAULT_FILE), json: z.boolean().optional() });

const filterOptions = fileOptions.extend({
  op: z.string().optional(),
  dtype: z.string().optional(),
  intrinsic: z.string().optional(),
  since: z.string().optional(),
  until: z.string().optional(),
  top: z
    .string()
    .regex(/^[1-9]\d{0,8}$/, { error: "--top must be a positive integer, for example --top 10" })
    .optional(),
});

const queryOptions = filterOptions.extend({
  status: z.enum(STATUSES, { error: `unknown --status; it is one of ${STATUSES.join(", ")}` }).optional(),
  sort: z.enum(SORTS, { error: `unknown --sort; it is one of ${SORTS.join(", ")}` }).optional(),
  csv: z.boolean().optional(),
});

export function registerDb(program: Command, finish: (code: ExitCode) => void): void {
  const db = program.command("db").summary("what was tried: the best, every trial, one record");
  addFilters(db.command("best"))
    .summary("the fastest trial of each computation, environment and thread count")
    .addHelpText("after", "\nExample:\n  automap db best --op conv2d --c 64 --dtype u8s8")
    .action((raw: unknown, command: Command) => finish(runBest(parseOptions(filterOptions, raw), command.args)));
  addFilters(db.command("query"))
    .summary("the trials that match, failures too")
    .option("--status <status>", `only trials that ended so: ${STATUSES.join(", ")}`)
    .option("--sort <key>", `${SORTS.join(", ")} (default: time, fastest first)`)
    .option("--csv", "print comma-separated values")
    .addHelpText(
      "after",
      [
        "",
        "Examples:",
        "  automap db query --op conv2d --c 64..256 --status ok --top 10",
        "  automap db query --intrinsic amx --since 7d --sort at --csv",
      ].join("\n"),
    )
    .action((raw: unknown, command: Command) => finish(runQuery(parseOptions(queryOptions, raw), command.args)));
  addFile(db.command("show"))
    .summary("one record: what ran, where, every sample")
    .argument("<id>", "its first digits, as automap db query prints them")
    .addHelpText("after", "\nExample:\n  automap db show 3f9a1c77d0e2")
    .action((id: string, raw: unknown) => finish(runShow(id, parseOptions(fileOptions, raw))));
}

function addFile(command: Command): Command {
  return command
    .option("--db <file>", `the database (default: ${DEFAULT_FILE} in this directory)`)
    .option("--json", "print a JSON document");
}

function addFilters(command: Command): Command {
  return addFile(command)
    .option("--op <operator>", "an operator's name or alias")
    .option("--dtype <types>", "types of the inputs: f16, u8s8; of the output too: f16->f16")
    .option("--intrinsic <name>", "an instruction or a family of them")
    .option("--<axis or parameter> <n>", "an extent or a range of them: --c 64, --c 64..256, --c 64.., --c ..256")
    .option("--since <when>", "from then on: 2026-11-21, 2026-11-21T09:00, or an age: 7d, 12h, 30m")
    .option("--until <when>", "up to then; a date counts whole")
    .option("--top <n>", "no more than the first n")
    .allowUnknownOption()
    .allowExcessArguments();
}

function runBest(given: z.infer<typeof filterOptions>, words: readonly string[]): ExitCode {
  return withDatabase(given.db, (db) => {
    const trials = best(db, readFilter(db, given, words));
    if (given.json) printJson({ trials: trials.map(summarise) });
    else printTrials(trials);
  });
}

function runQuery(given: z.infer<typeof queryOptions>, words: readonly string[]): ExitCode {
  const { status, sort, json, csv } = given;
  if (json && csv) throw new UsageError("--json and --csv exclude each other");
  return withDatabase(given.db, (db) => {
    const filter = readFilter(db, given, words);
    const trials = queryTrials(db, { ...filter, ...(status && { status }), ...(sort && { sort }) });
    if (json) printJson({ trials: trials.map(summarise) });
    else if (csv) print(csvOf(trials.map(summarise)));
    else printTrials(trials);
  });
}

function runShow(id: string, given: z.infer<typeof fileOptions>): ExitCode {
  return withDatabase(given.db, (db) => {
    const trial = showTrial(db, id);
    if (given.json) printJson({ trials: [{ ...summarise(trial), ...details(trial) }] });
    else print(describe(trial));
  });
}

function withDatabase(path: string, work: (db: Database) => void): ExitCode {
  const db = openDatabase(path, { readonly: true });
  try {
    if (db.notice !== undefined) say(`automap: ${db.notice}`);
    work(db);
    return EXIT.ok;
  } finally {
    db.close();
  }
}

// ---- Words to filters

function readFilter(db: Database, given: z.infer<typeof filterOptions>, words: readonly string[]): Filter {
  const { op, dtype, intrinsic, since, until, top } = given;
  const now = Date.now();
  const known = operatorsIn(db);
  const filter: Filter = {
    ...(op === undefined ? {} : { operator: readOperator(op, known) }),
    ...(dtype === undefined ? {} : { dtype: readTypes(dtype) }),
    ...(intrinsic === undefined ? {} : { intrinsic: intrinsicsNamed(intrinsic).map((i) => i.name) }),
    ...(since === undefined ? {} : { since: readInstant("--since", since, now).from }),
    ...(until === undefined ? {} : { until: readInstant("--until", until, now).to }),
    ...(top === undefined ? {} : { top: Number(top) }),
    extents: readExtents(words, extentsIn(db)),
  };
  if (filter.since !== undefined && filter.until !== undefined && filter.since >= filter.until)
    throw new UsageError(`--since ${since} is not before --until ${until}`);
  if (known.length === 0) say(`automap: ${db.path} holds no trials yet`);
  return filter;
}

/** An alias stands for its operator; another name may still be one in the file. */
function readOperator(word: string, recorded: readonly string[]): string {
  const operator = OPERATORS.find((o) => o.name === word || o.aliases.includes(word));
  if (operator) return operator.name;
  if (!recorded.includes(word))
    throw new UsageError(`unknown operator "${word}"`, {
      hint: suggestion(word, [...new Set([...recorded, ...OPERATORS.map((o) => o.name)])]),
    });
  return word;
}

/** The word as records have it: `s8s8` is `s8`. The output's type counts where it was written. */
function readTypes(word: string): string {
  const { inputs, sum } = parseDataTypes(word);
  const [first, second] = inputs;
  const types = first === second ? first : `${first}${second}`;
  return word.includes("->") ? `${types}->${sum}` : types;
}

/**
 * `--c 64`, `--c=64..256`, `--c ..256`: what commander does not know are extents.
 * @throws UsageError on anything else, a name included that neither an operator nor a record has
 */
function readExtents(words: readonly string[], recorded: readonly string[]): Record<string, Range> {
  const names = [...new Set([...recorded, ...OPERATORS.flatMap((o) => Object.keys(o.parameters))])];
  const ranges: Record<string, Range> = {};
  for (let i = 0; i < words.length; i++) {
    const word = words[i] ?? "";
    const [, name, attached] = /^--([A-Za-z_]\w*)(?:=(.*))?$/.exec(word) ?? [];
    if (name === undefined)
      throw new UsageError(`unexpected argument "${word}"`, { hint: "extents are given as --c 64 or --c 64..256" });
    if (!names.includes(name))
      throw new UsageError(`--${name} is no option, and no record has an axis or parameter of that name`, {
        hint: suggestion(name, [...Object.keys(queryOptions.shape), ...names]),
      });
    if (Object.hasOwn(ranges, name)) throw new UsageError(`--${name} is given twice`);
    const text = attached ?? words[++i];
    if (text === undefined)
      throw new UsageError(`--${name} needs a value, for example --${name} 64 or --${name} 64..256`);
    const [, low, dots, high] = /^(\d*)(?:(\.\.)(\d*))?$/.exec(text) ?? [];
    if ((low ?? "") === "" && (high ?? "") === "")
      throw new UsageError(`--${name} must be an extent or a range, got "${text}"`, {
        hint: `for example --${name} 64, --${name} 64..256, --${name} 64..`,
      });
    const min = low === "" ? undefined : Number(low);
    const max = dots === undefined ? min : high === "" ? undefined : Number(high);
    if (min !== undefined && max !== undefined && min > max)
      throw new UsageError(`--${name}: the range ${text} is empty`, { hint: `--${name} ${max}..${min}` });
    ranges[name] = { ...(min === undefined ? {} : { min }), ...(max === undefined ? {} : { max }) };
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
    throw new UsageError(`${option}: "${text}" is no time`, {
      hint: "for example 2026-11-21, 2026-11-21T09:00 (UTC), or an age: 7d, 12h, 30m",
    });
  return { from, to: clock === undefined ? from + 1440 * MINUTE : from + 1 };
}

// ---- Records to text

interface Summary {
  readonly id: string;
  readonly operator: string;
  readonly shape: Readonly<Record<string, number>>;
  readonly dtype: string;
  readonly target: string;
  readonly intrinsic: string;
  readonly status: string;
  readonly microseconds: number | null;
  readonly predictedMicroseconds: number | null;
  readonly at: string;
}

function summarise(trial: TrialRecord): Summary {
  const { id, workload, environment, candidate, measurement, prediction, at } = trial;
  return {
    id,
    operator: workload.operator,
    shape: shapeOf(workload),
    dtype: typesOf(trial),
    target: environment.target,
    intrinsic: candidate.intrinsic,
    status: measurement.status,
    microseconds: measurement.status === "ok" ? microseconds(measurement.median) : null,
    predictedMicroseconds: prediction === undefined ? null : microseconds(prediction.seconds),
    at: new Date(at).toISOString(),
  };
}

/** What `--dtype` reads: the output's type is written where it is not the usual one. */
function typesOf({ workload }: TrialRecord): string {
  return printDataTypes(parseDataTypes(workload.dtype, workload.sum));
}

/** To the picosecond: what lies below is the noise of the conversion. */
function microseconds(seconds: number): number {
  return Number((seconds * 1e6).toFixed(6));
}

function details({
  run,
  workload,
  environment,
  candidate,
  declaration,
  measurement,
  prediction,
  conditions,
}: TrialRecord) {
  return { run: run ?? null, workload, environment, candidate, declaration, measurement, prediction, conditions };
}

function csvOf(trials: readonly Summary[]): string {
  const columns = [
    "id",
    "operator",
    "shape",
    "dtype",
    "target",
    "intrinsic",
    "status",
    "microseconds",
    "predictedMicroseconds",
    "at",
  ] as const satisfies (keyof Summary)[];
  const cell = (value: Summary[keyof Summary]): string => {
    const text = value === null ? "" : typeof value === "object" ? printShape(value) : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns.join(","), ...trials.map((t) => columns.map((c) => cell(t[c])).join(","))].join("\n");
}

function printTrials(trials: readonly TrialRecord[]): void {
  if (trials.length === 0) {
    say("automap: no trial matches");
    return;
  }
  const rows = trials.map((trial) => {
    const { id, operator, dtype, target, intrinsic, status, at } = summarise(trial);
    const { workload, conditions, measurement, prediction } = trial;
    return [
      shortId(id),
      operator,
      printShape(withoutOnes(Object.keys(workload.parameters).length > 0 ? workload.parameters : workload.extents)),
      dtype,
      target,
      String(conditions.threads),
      intrinsic,
      measurement.status === "ok" ? printTime(measurement.median) : status,
      prediction === undefined ? "" : printTime(prediction.seconds),
      at.slice(0, 16),
    ];
  });
  const head = [
    "id",
    "operator",
    "shape",
    "types",
    "target",
    "threads",
    "instruction",
    "time",
    "predicted",
    "at (UTC)",
  ];
  print(table([head, ...rows]));
}

function describe(trial: TrialRecord): string {
  const { id, run, workload, environment, candidate, declaration, measurement, prediction, conditions, at } = trial;
  const { order, block, placement } = candidate.schedule;
  const { compiler } = environment;
  const pairs = (of: Readonly<Record<string, unknown>>): string =>
    Object.entries(of)
      .map(([name, value]) => `${name} ${String(value)}`)
      .join("  ");
  const section = (title: string, rows: readonly (readonly string[])[]): string =>
    `${title}\n${indent(table(rows.filter(([, text]) => text !== "")))}`;
  return [
    `${style("bold", `trial ${id}`)}   ${new Date(at).toISOString()}${run === undefined ? "" : `   run ${shortId(run)}`}`,
    section("workload", [
      ["operator", workload.operator],
      ["equation", workload.equation],
      ["extents", printShape(workload.extents)],
      ["parameters", printShape(workload.parameters)],
      ["types", typesOf(trial)],
    ]),
    section("candidate", [
      [
        "instruction",
        `${candidate.intrinsic}${declaration === undefined ? "" : ` (declaration ${shortId(declaration)})`}`,
      ],
      ["matching", printMatching(candidate.matching)],
      ["operands", pairs(candidate.operands)],
      ["order", order.join(" ")],
      ["block", pairs(block)],
      ["placement", pairs(placement)],
    ]),
    section("environment", [
      ["target", environment.target],
      ["cpu", `${environment.cpu}, ${environment.cores} cores`],
      ["isa", environment.isa.join(" ")],
      ["compiler", `${compiler.path} ${compiler.version}`],
      ["flags", compiler.flags.join(" ")],
      ["kernel", environment.kernel],
      ["driver", environment.driver ?? ""],
      ["node", environment.node],
      ["automap", environment.automap],
    ]),
    section("conditions", [
      ["threads", String(conditions.threads)],
      ["cache", conditions.cache],
      ["cores", conditions.affinity?.join(",") ?? ""],
    ]),
    section("measured", measuredRows(measurement)),
    ...(prediction === undefined
      ? []
      : [
          section("predicted", [
            ["time", printTime(prediction.seconds)],
            ["uncorrected", printTime(prediction.uncorrectedSeconds)],
            ...prediction.levels.map((l) => [
              l.level,
              `${l.trips} trips   inner ${l.inner}   read ${l.read}   write ${l.write}   bound by ${l.bound}`,
            ]),
          ]),
        ]),
    style("dim", `every sample: automap db show ${shortId(id)} --json`),
  ].join("\n\n");
}

function measuredRows(measurement: Measurement): string[][] {
  if (measurement.status !== "ok")
    return [
      ["status", style("red", measurement.status)],
      ["log", measurement.log.trimEnd().replaceAll("\n", `\n${" ".repeat(8)}`)],
    ];
  const { median, interval, samples, instructions } = measurement;
  return [
    ["status", "ok"],
    ["median", `${printTime(median)}   95 % within ${printTime(interval[0])} to ${printTime(interval[1])}`],
    ["samples", `${samples.length}, ${printTime(Math.min(...samples))} to ${printTime(Math.max(...samples))}`],
    ["instruction", `${instructions} in the disassembly`],
  ];
}

/** A table has no room for what is usual: one image, one group, steps of one. */
function withoutOnes(shape: Readonly<Record<string, number>>): Record<string, number> {
  return Object.fromEntries(Object.entries(shape).filter(([, value]) => value !== 1));
}

/** `c 64  h 56`. */
function printShape(shape: Readonly<Record<string, number>>): string {
  return Object.entries(shape)
    .map(([name, value]) => `${name} ${value}`)
    .join("  ");
}

/** Four digits: `61.23 us`. */
function printTime(seconds: number): string {
  const units = [
    ["s", 1],
    ["ms", 1e-3],
    ["us", 1e-6],
    ["ns", 1e-9],
  ] as const;
  const [unit, scale] = units.find(([, size]) => seconds >= size) ?? ["ns", 1e-9];
  return `${Number((seconds / scale).toPrecision(4))} ${unit}`;
}
