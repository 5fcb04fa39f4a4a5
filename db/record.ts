/**
 * @file The records as the program sees them, and how rows become them. A file is outside input: every row is checked on the way out.
 *
 *     { id, operator: "conv2d", parameters: { c: 64, ... }, equation: "out[n,k,p,q] += ...", dtype: "u8s8", ... }
 */

import { z } from "zod";
import { type Candidate, canonicalJson } from "../abstraction/candidate.ts";
import {
  type Computation,
  computationKey,
  defineComputation,
  equationText,
  extentsOf,
  inputsOf,
  pointCount,
  targetOf,
} from "../abstraction/computation.ts";
import { DTYPES, type DType } from "../abstraction/dtype.ts";
import { UsageError } from "../abstraction/error.ts";
import { printExpr } from "../abstraction/expression.ts";
import type { Measurement, MeasurementStatus, Prediction, Trial } from "../abstraction/trial.ts";
import { idOf, shortId } from "./identity.ts";

/** The world a number holds in, field by field. */
export interface Environment {
  /** Name of the target description. */
  readonly target: string;
  /** Model as the machine reports it. */
  readonly cpu: string;
  readonly cores: number;
  /** Features, in any order. */
  readonly isa: readonly string[];
  readonly compiler: { readonly path: string; readonly version: string; readonly flags: readonly string[] };
  /** Of the operating system: `Linux 6.1.0-18-amd64 x64`. */
  readonly kernel: string;
  /** Of the accelerator, when there is one. */
  readonly driver?: string;
  readonly node: string;
  readonly automap: string;
}

export interface EnvironmentRecord extends Environment {
  readonly id: string;
}

/** What is tuned, and under which name and parameters the user asked for it. */
export interface Workload {
  readonly computation: Computation;
  /** Of the operator; none for a bare equation. */
  readonly parameters?: Readonly<Record<string, number>>;
}

export interface TensorRecord {
  readonly dtype: DType;
  readonly dims: readonly string[];
  readonly shape: readonly number[];
  readonly storage: string;
  readonly constant: boolean;
}

export interface WorkloadRecord {
  readonly id: string;
  /** `equation` for a bare one. */
  readonly operator: string;
  readonly parameters: Readonly<Record<string, number>>;
  /** {@link computationKey}: equal for equal computations, whatever they are called. */
  readonly computation: string;
  readonly equation: string;
  /** Of the axes. */
  readonly extents: Readonly<Record<string, number>>;
  readonly tensors: Readonly<Record<string, TensorRecord>>;
  /** Of the inputs as one word: `f16`, `u8s8`. */
  readonly dtype: string;
  /** Of the output. */
  readonly sum: DType;
  readonly points: number;
}

/** How a candidate was run. */
export interface Conditions {
  readonly threads: number;
  readonly cache: "warm" | "flushed";
  /** Cores it was bound to. */
  readonly affinity?: readonly number[];
}

export interface TrialRecord extends Trial {
  readonly id: string;
  readonly run: string | undefined;
  readonly workload: WorkloadRecord;
  readonly environment: EnvironmentRecord;
  /** Hash of the intrinsic's declaration when it ran. */
  readonly declaration: string | undefined;
  readonly conditions: Conditions;
}

export type RunStatus = "running" | "done" | "interrupted" | "failed";

export interface RunRecord {
  readonly id: string;
  readonly workload: WorkloadRecord;
  readonly environment: EnvironmentRecord;
  readonly seed: number;
  readonly options: Readonly<Record<string, unknown>>;
  readonly budget: Readonly<Record<string, unknown>>;
  /** Process id then. */
  readonly process: number;
  readonly started: number;
  readonly ended: number | undefined;
  /** `running` without a living process: it was killed. */
  readonly status: RunStatus;
}

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
const candidate: z.ZodType<Candidate> = z.looseObject({
  intrinsic: z.string(),
  matching: z.record(z.string(), z.array(z.string())),
  operands: z.record(z.string(), z.string()),
  schedule: z.looseObject({
    order: z.array(z.string()),
    block: z.record(z.string(), z.number().int().positive()),
    placement: z.record(z.string(), z.enum(["in-place", "padded", "tiled"])),
    threads: z.number().int().positive(),
  }),
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
});

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

const trialRow = z.discriminatedUnion("status", [
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
}

export function trialRowOf({ workload, environment, run, declaration, trial, conditions }: TrialFacts): Row {
  const { candidate: tried, prediction, measurement, at } = trial;
  const facts = {
    run: run ?? null,
    workload,
    environment,
    candidate: canonicalJson(tried),
    intrinsic: tried.intrinsic,
    declaration: declaration ?? null,
    ...measuredColumns(measurement),
    predicted: prediction?.seconds ?? null,
    uncorrected: prediction?.uncorrectedSeconds ?? null,
    levels: prediction === undefined ? null : canonicalJson(prediction.levels),
    threads: conditions.threads,
    cache: conditions.cache,
    affinity: conditions.affinity === undefined ? null : canonicalJson(conditions.affinity),
    at,
  };
  return checked(trialRow, { id: idOf(facts), ...facts }, "trial");
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
export interface World {
  workload(id: string): WorkloadRecord;
  environment(id: string): EnvironmentRecord;
}

export function trialOf(row: unknown, world: World, path: string): TrialRecord {
  const facts = readRow(trialRow, row, "trial", path);
  const { predicted, uncorrected, levels: byLevel, affinity } = facts;
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
    conditions: { threads: facts.threads, cache: facts.cache, ...(affinity === null ? {} : { affinity }) },
    at: facts.at,
  };
}

export function runOf(row: unknown, world: World, path: string): RunRecord {
  const { workload, environment, ended, ...facts } = readRow(runRow, row, "run", path);
  return {
    ...facts,
    workload: world.workload(workload),
    environment: world.environment(environment),
    ended: ended ?? undefined,
  };
}

/** The computation a workload records, defined again. @throws UsageError when the record does not hold together */
export function computationOf(workload: WorkloadRecord): Computation {
  const { operator, equation, extents, tensors } = workload;
  const computation = defineComputation({ name: operator, equation, extents, tensors });
  if (computationKey(computation) !== workload.computation)
    throw new UsageError(
      `workload ${shortId(workload.id)} (${operator}): its parts do not make the computation it names`,
      {
        hint: `${computationKey(computation)}, not ${workload.computation}`,
      },
    );
  return computation;
}

/** What a workload is filtered by: the extents of its axes, and the operator's parameters over them. */
export function shapeOf({ extents, parameters }: WorkloadRecord): Readonly<Record<string, number>> {
  return { ...extents, ...parameters };
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
