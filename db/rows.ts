/**
 * @file Converts records to rows and back. A file is external input: every row passes parse.ts and is compared on reading with what its parts
 * should produce. Nothing is written that could not be read back.
 */

import { z } from "zod";
import { type Candidate, canonicalJson } from "../abstraction/candidate.ts";
import { automapCommand } from "../abstraction/command-line.ts";
import { computationKey, equationText, extentsOf, pointCount, targetOf } from "../abstraction/computation.ts";
import { UsageError } from "../abstraction/error.ts";
import { printExpr } from "../abstraction/expression.ts";
import type { Provenance } from "../abstraction/seal.ts";
import { visible } from "../abstraction/text.ts";
import type { Measurement, Trial } from "../abstraction/trial.ts";
import { databaseWords } from "./default.ts";
import { idOfFacts, type Row, type Table } from "./facts.ts";
import { shortId } from "./identity.ts";
import { calibrationRow, environmentRow, runRow, trialRow, workloadRow } from "./parse.ts";
import { shortened } from "./parse-text.ts";
import { impossibleComputation, impossibleTrial } from "./possible.ts";
import {
  type Conditions,
  computationOf,
  type Environment,
  type EnvironmentRecord,
  type Finals,
  inputTypes,
  type RunRecord,
  type TensorRecord,
  type TrialRecord,
  type Workload,
  type WorkloadRecord,
} from "./record.ts";

/** The schema of each table's rows, and the columns that hold JSON text. */
export const TABLES = {
  environments: { schema: environmentRow, json: ["isa", "flags"] },
  workloads: { schema: workloadRow, json: ["extents", "parameters", "tensors"] },
  runs: { schema: runRow, json: ["options", "budget"] },
  trials: { schema: trialRow, json: ["candidate", "samples", "levels", "affinity"] },
  calibrations: { schema: calibrationRow, json: ["data"] },
} as const satisfies Readonly<Record<Table, { schema: z.ZodType; json: readonly string[] }>>;

/** Most characters of a cell; texts of records are shorter. */
const CELL = 2 ** 22;

/**
 * A row of an untrusted file, read with `safeIntegers`. Integers beyond a number's range become text, bytes become null, and long texts are cut, so
 * that each is refused with a suitable reason.
 */
export function rowHeld(held: object): Row {
  const cell = (value: unknown): string | number | null => {
    if (typeof value === "bigint") return Number.isSafeInteger(Number(value)) ? Number(value) : String(value);
    if (typeof value === "string") return value.slice(0, CELL);
    return typeof value === "number" ? value : null;
  };
  return Object.fromEntries(Object.entries(held).map(([name, value]) => [name, cell(value)]));
}

// ---- From what is given to rows

export function environmentRowOf(environment: Environment): Row {
  const { target, cpu, cores, compiler, kernel, node, automap } = environment;
  const facts = {
    target: visible(target),
    cpu: visible(cpu),
    cores,
    isa: canonicalJson([...new Set(environment.isa)].sort()),
    compiler: compiler.path,
    compiler_version: visible(compiler.version),
    flags: canonicalJson(compiler.flags),
    kernel: visible(kernel),
    driver: environment.driver === undefined ? null : visible(environment.driver),
    node,
    automap,
  };
  return checked(environmentRow, { id: idOfFacts("environments", facts), ...facts }, "environment");
}

export function workloadRowOf({ computation, parameters = {}, name }: Workload): Row {
  const impossible = impossibleComputation(computation);
  if (impossible !== undefined) throw new UsageError(`a workload that cannot be recorded: ${impossible}`);
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
    name: name ?? null,
  };
  return checked(workloadRow, { id: idOfFacts("workloads", facts), ...facts }, "workload");
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
  // Facts in the measurement fill conditions that were not given.
  const { affinity = measurement.ran?.cpus, load = measurement.ran?.load, clock = measurement.clock } = conditions;
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
    affinity: affinity === undefined ? null : canonicalJson(affinity),
    at,
    comparison: finals?.comparison ?? null,
    place: finals?.place ?? null,
    load: load ?? null,
    clock: clock === undefined ? null : canonicalJson(clock),
  };
  return checked(trialRow, { id: idOfFacts("trials", facts), ...facts }, "trial");
}

/** The value of the column `intrinsic`, by which a trial is found. */
export function instructionOf(tried: Candidate): string {
  return tried.intrinsic;
}

export function runRowOf(facts: Row): Row {
  return checked(runRow, { id: idOfFacts("runs", facts), ...facts, ended: null, status: "running" }, "run");
}

function measuredColumns(measurement: Measurement) {
  if (measurement.status !== "ok") {
    const { status, log } = measurement;
    return {
      status,
      log: shortened(visible(log)),
      median: null,
      low: null,
      high: null,
      samples: null,
      instructions: null,
      lost_to: null,
    };
  }
  const { status, median, interval, samples, instructions, lostTo = null } = measurement;
  const [low, high] = interval;
  return { status, log: null, median, low, high, samples: canonicalJson(samples), instructions, lost_to: lostTo };
}

/** Why a row is not a record: its fields, or parts that do not reproduce it. Undefined when it is one. */
export function problemOf(table: Table, row: Row): string | undefined {
  const [issue] = TABLES[table].schema.safeParse(row).error?.issues ?? [];
  if (issue) return `its field ${issue.path.join(".")}: ${issue.message}`;
  try {
    switch (table) {
      case "environments":
        environmentOf(row, "");
        return undefined;
      case "workloads":
        workloadOf(row, "");
        return undefined;
      case "runs":
        if ((row["status"] === "running") !== (row["ended"] === null)) return "its status and its end disagree";
        return row["ended"] !== null && Number(row["ended"]) < Number(row["started"])
          ? "it ended before it started"
          : undefined;
      case "trials":
      case "calibrations":
        return undefined;
      default:
        return table satisfies never;
    }
  } catch (error) {
    if (error instanceof Damaged) return error.because;
    throw error;
  }
}

/** The same for a trial in its world, including results that cannot have been measured. */
export function problemOfTrial(row: Row, world: Pick<Referred, "workload" | "environment">): string | undefined {
  const facts = trialRow.parse(row);
  return impossibleTrial(facts, world.workload(facts.workload), world.environment(facts.environment));
}

/** Refuses to write a row that could not be read back. @throws UsageError naming the field */
function checked(schema: z.ZodType, row: Row, what: string): Row {
  const result = schema.safeParse(row);
  if (result.success) return row;
  const [issue] = result.error.issues;
  throw new UsageError(`a ${what} that cannot be recorded: ${issue?.message} at ${issue?.path.join(".")}`);
}

// ---- From rows to records

/** A row that is not a record. */
class Damaged extends UsageError {
  readonly because: string;

  constructor(path: string, what: string, row: unknown, because: string) {
    const id = z.object({ id: z.string() }).safeParse(row).data?.id ?? "";
    super(`${path}: ${what} ${visible(shortId(id))} is damaged: ${because}`, {
      hint: `something other than this automap wrote it; ${automapCommand("db", "verify", databaseWords(path))} names every such row, and db merge into a new file takes the others`,
    });
    this.because = because;
  }
}

export function environmentOf(row: unknown, path: string): EnvironmentRecord {
  const {
    compiler,
    compiler_version: version,
    flags,
    driver,
    ...rest
  } = readRow(environmentRow, row, "environment", path);
  const record = { ...rest, compiler: { path: compiler, version, flags }, ...(driver === null ? {} : { driver }) };
  if (!isSame(environmentRowOf(record), row))
    throw new Damaged(path, "environment", row, "its parts do not make the environment it claims to be");
  return record;
}

/** Rebuilds a workload from its parts, to check that it computes what it claims. */
export function workloadOf(row: unknown, path: string): WorkloadRecord {
  const { name, ...rest } = readRow(workloadRow, row, "workload", path);
  const record = { ...rest, name: name ?? undefined };
  try {
    if (!isSame(workloadRowOf({ ...record, computation: computationOf(record) }), row))
      throw new Damaged(path, "workload", row, "its parts do not make the workload it claims to be");
    return record;
  } catch (error) {
    if (error instanceof UsageError && !(error instanceof Damaged))
      throw new Damaged(path, "workload", row, error.message);
    throw error;
  }
}

/** Whether a row equals the one rebuilt from its parts, id included. */
function isSame(made: Row, row: unknown): boolean {
  const held = z.record(z.string(), z.unknown()).parse(row);
  return Object.entries(made).every(([name, value]) => (held[name] ?? null) === value);
}

/** The records to which a trial or a run refers. */
export interface Referred {
  workload(id: string): WorkloadRecord;
  environment(id: string): EnvironmentRecord;
  /** Whether a row was sealed here. */
  provenance(table: "trials" | "runs", row: unknown): Provenance;
}

export function trialOf(row: unknown, world: Referred, path: string): TrialRecord {
  const facts = readRow(trialRow, row, "trial", path);
  const workload = world.workload(facts.workload);
  const environment = world.environment(facts.environment);
  const because = impossibleTrial(facts, workload, environment);
  if (because !== undefined) throw new Damaged(path, "trial", row, because);
  const { predicted, uncorrected, levels: byLevel, affinity, load, clock, comparison, place } = facts;
  const prediction =
    predicted === null || uncorrected === null || byLevel === null
      ? undefined
      : { seconds: predicted, uncorrectedSeconds: uncorrected, levels: byLevel };
  return {
    id: facts.id,
    run: facts.run ?? undefined,
    provenance: world.provenance("trials", row),
    workload,
    environment,
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
            ...(facts.lost_to === null ? {} : { lostTo: facts.lost_to }),
          }
        : { status: facts.status, log: facts.log },
    conditions: {
      threads: facts.threads,
      cache: facts.cache,
      ...(affinity === null ? {} : { affinity }),
      ...(load === null ? {} : { load }),
      ...(clock === null ? {} : { clock }),
    },
    finals: comparison === null ? undefined : { comparison, place: place ?? undefined },
    at: facts.at,
  };
}

export function runOf(row: unknown, world: Referred, path: string): RunRecord {
  const { workload, environment, ended, ...facts } = readRow(runRow, row, "run", path);
  return {
    ...facts,
    provenance: world.provenance("runs", row),
    workload: world.workload(workload),
    environment: world.environment(environment),
    ended: ended ?? undefined,
  };
}

function readRow<T>(schema: z.ZodType<T>, row: unknown, what: string, path: string): T {
  const result = schema.safeParse(row);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  throw new Damaged(path, what, row, `${issue?.path.join(".")}: ${issue?.message}`);
}
