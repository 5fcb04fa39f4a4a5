/**
 * @file How records become rows and rows records. A file is outside input: every row is checked on the way out, and nothing is
 * written that would not be read back.
 */

import { z } from "zod";
import { type Candidate, canonicalJson, LANE_DATAFLOWS } from "../abstraction/candidate.ts";
import {
  type Computation,
  computationKey,
  equationText,
  extentsOf,
  inputsOf,
  pointCount,
  targetOf,
} from "../abstraction/computation.ts";
import { DTYPES } from "../abstraction/dtype.ts";
import { UsageError } from "../abstraction/error.ts";
import { printExpr } from "../abstraction/expression.ts";
import type { Measurement, MeasurementStatus, Prediction, Trial } from "../abstraction/trial.ts";
import { idOf, shortId } from "./identity.ts";
import type {
  Conditions,
  Environment,
  EnvironmentRecord,
  Finals,
  RunRecord,
  TensorRecord,
  TrialRecord,
  Workload,
  WorkloadRecord,
} from "./record.ts";

/** A row as it stands in its table. */
export type Row = Readonly<Record<string, string | number | null>>;

// ---- What rows may hold

/** A column of JSON text. */
function json<T>(schema: z.ZodType<T>) {
  return z
    .string()
    .transform((text, context): unknown => {
      try {
        return JSON.parse(text);
      } catch {
        context.addIssue("is not JSON");
        return z.NEVER;
      }
    })
    .pipe(schema);
}

const integers = z.record(z.string(), z.number().int());
const time = z.number().int();
const seconds = z.number().positive();

// What a later automap adds to a candidate or a level is kept.
const mapped = z.looseObject({
  kind: z.undefined().optional(),
  intrinsic: z.string(),
  matching: z.record(z.string(), z.array(z.string())),
  operands: z.record(z.string(), z.string()),
  schedule: z.looseObject({
    order: z.array(z.string()),
    block: z.record(z.string(), z.number().int().positive()),
    placement: z.record(z.string(), z.enum(["in-place", "padded", "windowed", "tiled"])),
    spread: z.array(z.string()).optional(),
    within: z.record(z.string(), z.string()).optional(),
    threads: z.number().int().positive(),
  }),
});
const lanes = z.looseObject({
  kind: z.literal("lanes"),
  intrinsic: z.string(),
  schedule: z.looseObject({
    dataflow: z.enum(LANE_DATAFLOWS),
    lanes: z.number().int().positive(),
    rows: z.number().int().positive(),
    vectors: z.number().int().positive(),
    rolled: z.array(z.string()),
    weights: z.enum(["registers", "memory"]),
    streaming: z.boolean(),
    prefetchBytes: z.number().int().nonnegative(),
    borders: z.enum(["peeled", "guarded"]),
    strip: z.number().int().nonnegative(),
    threads: z.number().int().positive(),
  }),
});

/** A candidate that names no kind is a mapping and its schedule. */
const candidate: z.ZodType<Candidate> = z.unknown().transform((given, context): Candidate => {
  const kind = z.looseObject({ kind: z.unknown().optional() }).safeParse(given).data?.kind;
  if (kind !== undefined && kind !== "lanes") {
    context.addIssue({
      code: "custom",
      message: `is of kind ${JSON.stringify(kind)}, which this automap does not know`,
      path: ["kind"],
    });
    return z.NEVER;
  }
  const result = kind === undefined ? mapped.safeParse(given) : lanes.safeParse(given);
  if (result.success) return result.data;
  for (const { message, path } of result.error.issues) context.addIssue({ code: "custom", message, path: [...path] });
  return z.NEVER;
});

const levels: z.ZodType<Prediction["levels"]> = z.array(
  z.looseObject({
    level: z.string(),
    trips: z.number(),
    inner: z.number(),
    read: z.number(),
    write: z.number(),
    bound: z.enum(["inner", "read", "write"]),
  }),
);

const environmentRow = z.object({
  id: z.string(),
  target: z.string(),
  cpu: z.string(),
  cores: z.number().int().positive(),
  isa: json(z.array(z.string())),
  compiler: z.string(),
  compiler_version: z.string(),
  flags: json(z.array(z.string())),
  kernel: z.string(),
  driver: z.string().nullable(),
  node: z.string(),
  automap: z.string(),
});

const workloadRow = z.object({
  id: z.string(),
  operator: z.string(),
  computation: z.string(),
  equation: z.string(),
  extents: json(integers),
  parameters: json(integers),
  tensors: json(
    z.record(
      z.string(),
      z.object({
        dtype: z.enum(DTYPES),
        dims: z.array(z.string()),
        shape: z.array(z.number().int().positive()),
        storage: z.string(),
        constant: z.boolean(),
      }),
    ),
  ),
  dtype: z.string(),
  sum: z.enum(DTYPES),
  points: z.number().positive(),
});

const runRow = z.object({
  id: z.string(),
  workload: z.string(),
  environment: z.string(),
  seed: z.number().int(),
  options: json(z.record(z.string(), z.unknown())),
  budget: json(z.record(z.string(), z.unknown())),
  process: z.number().int(),
  started: time,
  ended: time.nullable(),
  status: z.enum(["running", "done", "interrupted", "failed"]),
});

const trialFacts = z.object({
  id: z.string(),
  run: z.string().nullable(),
  workload: z.string(),
  environment: z.string(),
  candidate: json(candidate),
  intrinsic: z.string(),
  declaration: z.string().nullable(),
  predicted: seconds.nullable(),
  uncorrected: seconds.nullable(),
  levels: json(levels).nullable(),
  threads: z.number().int().positive(),
  cache: z.enum(["warm", "flushed"]),
  affinity: json(z.array(z.number().int().nonnegative())).nullable(),
  at: time,
  comparison: z.string().nullable().default(null),
  place: z.number().int().positive().nullable().default(null),
  load: z.number().min(0).max(1).nullable().default(null),
});

/** Columns of trials that came after the first release. Where they hold nothing, a record is written as it was before, and has the same id. */
export const LATER_COLUMNS: readonly string[] = ["comparison", "place", "load"];

type Failure = Exclude<MeasurementStatus, "ok">;
const failure = z.enum({
  wrong: "wrong",
  "compile-failed": "compile-failed",
  "missing-instruction": "missing-instruction",
  "illegal-instruction": "illegal-instruction",
  crashed: "crashed",
  "timed-out": "timed-out",
  "out-of-memory": "out-of-memory",
  "out-of-bounds": "out-of-bounds",
  "output-flood": "output-flood",
} as const satisfies { [S in Failure]: S });

/** Every status a trial can have. */
export const STATUSES: readonly MeasurementStatus[] = ["ok", ...failure.options];

export const trialRow = z.discriminatedUnion("status", [
  trialFacts.extend({
    status: z.literal("ok"),
    median: seconds,
    low: seconds,
    high: seconds,
    samples: json(z.array(seconds).min(1)),
    instructions: z.number().int().nonnegative(),
  }),
  trialFacts.extend({ status: failure, log: z.string() }),
]);

const calibrationRow = z.object({ id: z.string(), environment: z.string(), data: json(z.unknown()), at: time });

/** Tables, those that others refer to first; what their rows are checked by, and which columns are JSON text. */
export const TABLES = {
  environments: { schema: environmentRow, json: ["isa", "flags"] },
  workloads: { schema: workloadRow, json: ["extents", "parameters", "tensors"] },
  runs: { schema: runRow, json: ["options", "budget"] },
  trials: { schema: trialRow, json: ["candidate", "samples", "levels", "affinity"] },
  calibrations: { schema: calibrationRow, json: ["data"] },
} as const satisfies Readonly<Record<string, { schema: z.ZodType; json: readonly string[] }>>;
export type Table = keyof typeof TABLES;
export const TABLE_NAMES: readonly Table[] = ["environments", "workloads", "runs", "trials", "calibrations"];

/** The id that the facts of a row make. How a run ended is no part of who it is. */
export function idOfFacts(table: Table, row: Row): string {
  const { id: _, ...facts } = row;
  if (table === "runs") {
    const { ended: _ended, status: _status, ...begun } = facts;
    return idOf(begun);
  }
  if (table !== "trials") return idOf(facts);
  return idOf(Object.fromEntries(Object.entries(facts).filter(([c, v]) => v !== null || !LATER_COLUMNS.includes(c))));
}

// ---- From what is given to rows

export function environmentRowOf(environment: Environment): Row {
  const { target, cpu, cores, compiler, kernel, node, automap } = environment;
  const facts = {
    target,
    cpu,
    cores,
    isa: canonicalJson([...new Set(environment.isa)].sort()),
    compiler: compiler.path,
    compiler_version: compiler.version,
    flags: canonicalJson(compiler.flags),
    kernel,
    driver: environment.driver ?? null,
    node,
    automap,
  };
  return checked(environmentRow, { id: idOf(facts), ...facts }, "environment");
}

export function workloadRowOf({ computation, parameters = {} }: Workload): Row {
  const tensors = Object.values(computation.tensors).map((t): [string, TensorRecord] => [
    t.name,
    {
      dtype: t.dtype,
      dims: t.dims.map((d) => d.name),
      shape: t.dims.map((d) => d.extent),
      storage: printExpr(t.storage, "formula"),
      constant: t.constant,
    },
  ]);
  const facts = {
    operator: computation.name,
    computation: computationKey(computation),
    equation: equationText(computation),
    extents: canonicalJson(extentsOf(computation)),
    parameters: canonicalJson(parameters),
    tensors: canonicalJson(Object.fromEntries(tensors)),
    dtype: inputTypes(computation),
    sum: targetOf(computation).dtype,
    points: pointCount(computation),
  };
  return checked(workloadRow, { id: idOf(facts), ...facts }, "workload");
}

export interface TrialFacts {
  readonly workload: string;
  readonly environment: string;
  readonly run: string | undefined;
  readonly declaration: string | undefined;
  readonly trial: Trial;
  readonly conditions: Conditions;
  readonly finals: Finals | undefined;
}

export function trialRowOf({ workload, environment, run, declaration, trial, conditions, finals }: TrialFacts): Row {
  const { candidate: tried, prediction, measurement, at } = trial;
  const facts = {
    run: run ?? null,
    workload,
    environment,
    candidate: canonicalJson(tried),
    intrinsic: instructionOf(tried),
    declaration: declaration ?? null,
    ...measuredColumns(measurement),
    predicted: prediction?.seconds ?? null,
    uncorrected: prediction?.uncorrectedSeconds ?? null,
    levels: prediction === undefined ? null : canonicalJson(prediction.levels),
    threads: conditions.threads,
    cache: conditions.cache,
    affinity: conditions.affinity === undefined ? null : canonicalJson(conditions.affinity),
    at,
    comparison: finals?.comparison ?? null,
    place: finals?.place ?? null,
    load: conditions.load ?? null,
  };
  return checked(trialRow, { id: idOfFacts("trials", facts), ...facts }, "trial");
}

/** What the column `intrinsic` holds: what a trial is found by. */
export function instructionOf(tried: Candidate): string {
  return tried.intrinsic;
}

export function runRowOf(facts: Row): Row {
  return checked(runRow, { id: idOf(facts), ...facts, ended: null, status: "running" }, "run");
}

function measuredColumns(measurement: Measurement) {
  if (measurement.status !== "ok") {
    const { status, log } = measurement;
    return { status, log, median: null, low: null, high: null, samples: null, instructions: null };
  }
  const { status, median, interval, samples, instructions } = measurement;
  const [low, high] = interval;
  return { status, log: null, median, low, high, samples: canonicalJson(samples), instructions };
}

/** What keeps a row from being read; undefined when nothing does. */
export function problemOf(schema: z.ZodType, row: Row): string | undefined {
  const [issue] = schema.safeParse(row).error?.issues ?? [];
  return issue && `its field ${issue.path.join(".")}: ${issue.message}`;
}

/** What would not be read back is not written. */
function checked(schema: z.ZodType, row: Row, what: string): Row {
  const result = schema.safeParse(row);
  if (!result.success) throw new Error(`a ${what} that cannot be recorded: ${z.prettifyError(result.error)}`);
  return row;
}

// ---- From rows to records

export function environmentOf(row: unknown, path: string): EnvironmentRecord {
  const {
    compiler,
    compiler_version: version,
    flags,
    driver,
    ...rest
  } = readRow(environmentRow, row, "environment", path);
  return { ...rest, compiler: { path: compiler, version, flags }, ...(driver === null ? {} : { driver }) };
}

export function workloadOf(row: unknown, path: string): WorkloadRecord {
  return readRow(workloadRow, row, "workload", path);
}

/** What a trial or a run refers to by id. */
export interface Referred {
  workload(id: string): WorkloadRecord;
  environment(id: string): EnvironmentRecord;
}

export function trialOf(row: unknown, world: Referred, path: string): TrialRecord {
  const facts = readRow(trialRow, row, "trial", path);
  const { predicted, uncorrected, levels: byLevel, affinity, load, comparison, place } = facts;
  const prediction =
    predicted === null || uncorrected === null || byLevel === null
      ? undefined
      : { seconds: predicted, uncorrectedSeconds: uncorrected, levels: byLevel };
  return {
    id: facts.id,
    run: facts.run ?? undefined,
    workload: world.workload(facts.workload),
    environment: world.environment(facts.environment),
    candidate: facts.candidate,
    intrinsic: facts.intrinsic,
    declaration: facts.declaration ?? undefined,
    prediction,
    measurement:
      facts.status === "ok"
        ? {
            status: facts.status,
            samples: facts.samples,
            median: facts.median,
            interval: [facts.low, facts.high],
            instructions: facts.instructions,
          }
        : { status: facts.status, log: facts.log },
    conditions: {
      threads: facts.threads,
      cache: facts.cache,
      ...(affinity === null ? {} : { affinity }),
      ...(load === null ? {} : { load }),
    },
    finals: comparison === null ? undefined : { comparison, place: place ?? undefined },
    at: facts.at,
  };
}

export function runOf(row: unknown, world: Referred, path: string): RunRecord {
  const { workload, environment, ended, ...facts } = readRow(runRow, row, "run", path);
  return {
    ...facts,
    workload: world.workload(workload),
    environment: world.environment(environment),
    ended: ended ?? undefined,
  };
}

/** `f16`, `u8s8`: the first two inputs. */
function inputTypes(computation: Computation): string {
  const [first = targetOf(computation), second = first] = inputsOf(computation);
  return first.dtype === second.dtype ? first.dtype : `${first.dtype}${second.dtype}`;
}

function readRow<T>(schema: z.ZodType<T>, row: unknown, what: string, path: string): T {
  const result = schema.safeParse(row);
  if (result.success) return result.data;
  const name = z.object({ id: z.string() }).safeParse(row);
  const [issue] = result.error.issues;
  throw new UsageError(
    `${path}: ${what} ${name.success ? shortId(name.data.id) : ""} is damaged: ${issue?.path.join(".")}: ${issue?.message}`,
    { hint: "something other than this automap wrote it, or a newer one" },
  );
}
