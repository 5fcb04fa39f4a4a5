/**
 * @file The columns of every table. An entry says all there is to say of one column: how SQL declares it (schema.ts), what it may hold (parse.ts),
 * where its value stands in a record (rows.ts), and how `db show` prints it. A column is a fact of its record (facts.ts) unless it `changes`.
 *
 *     load: { type: "REAL", check: "load BETWEEN 0 AND 1", holds: z.number().min(0).max(1), optional: true, at: "conditions.load" }
 *
 * A column that a later schema adds is one entry more, optional, with that schema's number in `since`.
 */

import { z } from "zod";
import { DTYPES } from "../abstraction/dtype.ts";
import { identifier, named } from "../abstraction/schema.ts";
import { percent } from "../abstraction/text.ts";
import { type DeviceClock, printClock, THROTTLES } from "../abstraction/trial.ts";
import { candidate, LOOPS, levels, STATUSES, THREADS, threads } from "./parse.ts";
import {
  expression,
  extent,
  hash,
  line,
  log,
  notation,
  plainData,
  plainEntries,
  seconds,
  time,
  title,
  word,
} from "./parse-text.ts";
import {
  type CalibrationRecord,
  type EnvironmentRecord,
  type RunRecord,
  type RunStatus,
  type TrialRecord,
  WORKLOAD_NAME,
  type WorkloadRecord,
} from "./record.ts";

export type Table = "environments" | "workloads" | "runs" | "trials" | "calibrations";

export interface Column {
  /** A text where nothing is said; JSON is a text in SQLite and data in records and exports. */
  readonly type?: "INTEGER" | "REAL" | "JSON";
  /** What the schema says of it to people. */
  readonly about?: string;
  /** What it may hold. */
  readonly holds: z.ZodType;
  /** A condition in SQL, for people who write to the file themselves. */
  readonly check?: string;
  /** Where its value stands in a record; under the column's name where nothing is said. */
  readonly at?: string;
  /** Whether it may be empty. */
  readonly optional?: true;
  /** Only trials that worked have it, or only those that failed. */
  readonly of?: "ok" | "failed";
  /** A column that is filled wherever this one is. */
  readonly needs?: string;
  /** The table whose ids it holds. */
  readonly refers?: Table;
  /** It is no fact: it may change. */
  readonly changes?: true;
  /** The schema that added it; the first where nothing is said. */
  readonly since?: number;
  /** How `db show` prints it. */
  readonly shown?: { readonly label: string; readonly text: (value: never) => string };
}

type Keys<T> = T extends unknown ? keyof T & string : never;
type Field<T, K> = T extends unknown ? (K extends keyof T ? NonNullable<T[K]> : never) : never;
/** A field of a record, of a part of it, or one of a pair in a part: `at`, `conditions.load`, `measurement.interval.0`. */
type Place<R> = { [K in Keys<R>]: K | `${K}.${Keys<Field<R, K>>}` | `${K}.${Keys<Field<R, K>>}.${0 | 1}` }[Keys<R>];
type Columns<R> = Readonly<Record<string, Column & { readonly at?: Place<R> }>>;

const environments = {
  target: { holds: line, about: "name of the target description" },
  cpu: { holds: line, about: "model as the machine reports it" },
  cores: { type: "INTEGER", check: "cores > 0", holds: z.int().positive().max(65_536) },
  isa: { type: "JSON", holds: z.array(word).max(1000), about: "sorted feature names" },
  compiler: { holds: line, at: "compiler.path" },
  compiler_version: { holds: line, at: "compiler.version" },
  flags: { type: "JSON", holds: z.array(line).max(1000), at: "compiler.flags", about: "in the order given" },
  kernel: { holds: line, about: "of the operating system" },
  driver: { holds: line, optional: true, about: "of the accelerator, when there is one" },
  node: { holds: line },
  automap: { holds: line },
} as const satisfies Columns<EnvironmentRecord>;

const tensor = z.strictObject({
  dtype: z.enum(DTYPES),
  dims: z.array(identifier).max(LOOPS),
  shape: z.array(extent).max(LOOPS),
  storage: expression("formula"),
  constant: z.boolean(),
});

const extents = named(identifier, extent, LOOPS);
const tensors = named(identifier, tensor);

/** Most computations of a program. */
const PARTS = 256;

const workloads = {
  operator: { holds: title, about: "'equation' for a bare equation" },
  computation: {
    holds: notation,
    about: "computationKey: equal for equal computations, whatever they are called",
  },
  equation: { holds: notation },
  extents: { type: "JSON", holds: extents, about: "of the axes" },
  parameters: {
    type: "JSON",
    holds: named(identifier, z.int()),
    about: "of the operator, {} for a bare equation",
  },
  tensors: {
    type: "JSON",
    holds: tensors,
    about: "types, shapes, layouts: enough to define it again",
  },
  dtype: { holds: word, about: "of the inputs: f16, u8s8" },
  sum: { holds: z.enum(DTYPES), about: "type of the output" },
  points: { type: "REAL", holds: z.number().positive().max(Number.MAX_SAFE_INTEGER), about: "multiply-adds" },
  name: {
    holds: z.string().regex(WORKLOAD_NAME),
    optional: true,
    about: "the user's own, as --name gave it",
  },
  program: {
    type: "JSON",
    holds: z.strictObject({
      parts: z
        .array(z.strictObject({ equation: notation, extents, tensors, names: named(identifier, identifier) }))
        .min(1)
        .max(PARTS),
      stored: z.array(identifier).min(1).max(PARTS),
    }),
    optional: true,
    about: "of several computations in one kernel: each as above, its names of tensors, and what is stored",
  },
} as const satisfies Columns<WorkloadRecord>;

const world = {
  workload: { holds: hash, refers: "workloads" },
  environment: { holds: hash, refers: "environments" },
} as const;

const runs = {
  ...world,
  seed: { type: "INTEGER", holds: z.int() },
  options: { type: "JSON", holds: plainEntries },
  budget: { type: "JSON", holds: plainEntries },
  process: {
    type: "INTEGER",
    holds: z
      .int()
      .nonnegative()
      .max(2 ** 32),
  },
  started: { type: "INTEGER", holds: time, about: "milliseconds since 1970, as every time here" },
  ended: { type: "INTEGER", holds: time, optional: true, changes: true },
  status: {
    check: "(status = 'running') = (ended IS NULL)",
    holds: z.enum(["running", "done", "interrupted", "failed"] satisfies RunStatus[]),
    changes: true,
    about: "'running' without a living process: it was killed",
  },
} as const satisfies Columns<RunRecord>;

/** Predicted seconds, including those of candidates too slow to run. */
const expected = z.number().positive().max(1e15);

/** Most batches of one trial; 200 by default. */
const SAMPLES = 10_000;

const trials = {
  run: { holds: hash, refers: "runs", optional: true },
  ...world,
  candidate: { type: "JSON", holds: candidate },
  intrinsic: { holds: word },
  declaration: { holds: hash, optional: true, about: "hash of the intrinsic's declaration then" },
  status: { holds: z.enum(STATUSES), at: "measurement.status" },
  log: { holds: log, of: "failed", at: "measurement.log" },
  median: { type: "REAL", holds: seconds, of: "ok", at: "measurement.median", about: "seconds of one call" },
  low: { type: "REAL", holds: seconds, of: "ok", at: "measurement.interval.0", about: "95 % interval of the median" },
  high: { type: "REAL", holds: seconds, of: "ok", at: "measurement.interval.1" },
  samples: {
    type: "JSON",
    holds: z.array(seconds).min(1).max(SAMPLES),
    of: "ok",
    at: "measurement.samples",
    about: "every raw one, seconds",
  },
  instructions: {
    type: "INTEGER",
    holds: z.int().nonnegative().max(1e9),
    of: "ok",
    at: "measurement.instructions",
    about: "times the promised instruction stands in the disassembly",
  },
  predicted: {
    type: "REAL",
    holds: expected,
    optional: true,
    needs: "uncorrected",
    at: "prediction.seconds",
    about: "seconds",
  },
  uncorrected: {
    type: "REAL",
    holds: expected,
    optional: true,
    needs: "levels",
    at: "prediction.uncorrectedSeconds",
    about: "before the correction learnt from trials",
  },
  levels: {
    type: "JSON",
    holds: levels,
    optional: true,
    needs: "predicted",
    at: "prediction.levels",
    about: "the prediction level by level",
  },
  threads: {
    type: "INTEGER",
    check: "threads > 0",
    holds: threads,
    at: "conditions.threads",
    shown: { label: "threads", text: String },
  },
  cache: {
    check: "cache IN ('warm', 'flushed')",
    holds: z.enum(["warm", "flushed"]),
    at: "conditions.cache",
    shown: { label: "cache", text: String },
  },
  affinity: {
    type: "JSON",
    holds: z.array(z.int().nonnegative().max(65_535)).max(THREADS),
    optional: true,
    at: "conditions.affinity",
    about: "the cores it was bound to",
    shown: { label: "cores", text: (cores: readonly number[]) => cores.join(",") },
  },
  at: { type: "INTEGER", holds: time },
  comparison: {
    holds: word,
    optional: true,
    at: "finals.comparison",
    about: "the finals it was measured in; NULL: measured alone",
  },
  place: {
    type: "INTEGER",
    check: "place > 0",
    holds: z.int().positive().max(1e6),
    optional: true,
    needs: "comparison",
    at: "finals.place",
    about: "1 the winner; NULL: it failed",
  },
  load: {
    type: "REAL",
    check: "load BETWEEN 0 AND 1",
    holds: z.number().min(0).max(1),
    optional: true,
    at: "conditions.load",
    about: "share of its cores' time that others took",
    shown: { label: "others", text: (load: number) => `had ${percent(load)} of these cores' time` },
  },
  clock: {
    type: "JSON",
    holds: z.strictObject({
      hertz: z.number().positive().max(1e12),
      throttled: z.array(z.enum(THROTTLES)).max(THROTTLES.length),
    }),
    optional: true,
    at: "conditions.clock",
    about: "of a GPU while it was timed, and what held it down",
    shown: { label: "clock", text: (clock: DeviceClock) => printClock(clock) },
  },
  lost_to: {
    type: "REAL",
    check: "lost_to > 0 AND median > lost_to",
    holds: z.number().positive(),
    of: "ok",
    optional: true,
    at: "measurement.lostTo",
    about: "seconds; every sample is longer by a margin",
  },
  worker: {
    holds: z.string().regex(/^[a-z0-9][a-z0-9._-]{0,62}$/, { error: "is no name of a worker" }),
    optional: true,
    at: "conditions.worker",
    since: 2,
    about: "of a fleet, that measured it; NULL: measured by this machine itself",
    shown: { label: "worker", text: String },
  },
} as const satisfies Columns<TrialRecord>;

const calibrations = {
  environment: world.environment,
  data: { type: "JSON", holds: plainData },
  at: { type: "INTEGER", holds: time },
} as const satisfies Columns<CalibrationRecord>;

/** The columns of every table besides its id and its seal, tables in order of reference. */
export const COLUMNS = { environments, workloads, runs, trials, calibrations } as const satisfies Readonly<
  Record<Table, Readonly<Record<string, Column>>>
>;
