/**
 * @file Questions to the database. Filters are joined by "and"; times are milliseconds since 1970.
 *
 *     queryTrials(db, { operator: "conv2d", extents: { c: { min: 64, max: 256 } }, status: "ok", top: 10 })
 *     best(db, { computation, intrinsic: "amx.tdpbusd" })
 */

import { type Computation, computationKey } from "../abstraction/computation.ts";
import { UsageError } from "../abstraction/error.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import type { MeasurementStatus } from "../abstraction/trial.ts";
import { declarationHash, shortId } from "./identity.ts";
import { type Database, read } from "./open.ts";
import {
  type Environment,
  environmentOf,
  environmentRowOf,
  type RunRecord,
  runOf,
  type TrialRecord,
  trialOf,
  type Workload,
  type World,
  workloadOf,
} from "./record.ts";

/** Both ends belong to it; an end left out is open. */
export interface Range {
  readonly min?: number;
  readonly max?: number;
}

/** What trials can be put in order by. */
export const SORTS = ["time", "predicted", "at", "operator", "intrinsic", "status"] as const;
export type Sort = (typeof SORTS)[number];

/** Ties by time, then id. Failures and trials without a prediction come last. */
const ORDER: Readonly<Record<Sort, string>> = {
  time: "median IS NULL, median",
  predicted: "predicted IS NULL, predicted",
  at: "at DESC",
  operator: "operator",
  intrinsic: "intrinsic",
  status: "status",
};

export interface Filter {
  /** Exactly this computation, whatever it is called. */
  readonly computation?: Computation;
  readonly operator?: string;
  /** Types of the inputs, `u8s8`; with the output's type, `f16->f16`, when that matters. */
  readonly dtype?: string;
  readonly intrinsic?: string | readonly string[];
  /** From this instant. */
  readonly since?: number;
  /** Before this instant. */
  readonly until?: number;
  /** By axis or parameter. */
  readonly extents?: Readonly<Record<string, Range>>;
  readonly top?: number;
}

export interface TrialFilter extends Filter {
  readonly status?: MeasurementStatus;
  /** `time` by default: fastest first. */
  readonly sort?: Sort;
}

/** Everything that matches. */
export function queryTrials(db: Database, filter: TrialFilter = {}): TrialRecord[] {
  return read(db, () => {
    const { where, values } = conditionsOf(filter);
    if (filter.status !== undefined) {
      where.push("status = ?");
      values.push(filter.status);
    }
    const rows = db.sqlite
      .prepare(`SELECT * FROM records WHERE ${allOf(where)} ORDER BY ${ORDER[filter.sort ?? "time"]}, at, id LIMIT ?`)
      .all(...values, filter.top ?? -1);
    return trialsOfRows(db, rows);
  });
}

/**
 * For each computation, environment, thread count and cache state the trial with the smallest median among those that match;
 * of equal ones the earliest. Fastest first.
 */
export function best(db: Database, filter: Filter = {}): TrialRecord[] {
  return read(db, () => {
    const { where, values } = conditionsOf(filter);
    const rows = db.sqlite
      .prepare(
        `SELECT * FROM (
           SELECT *, row_number() OVER (PARTITION BY computation, environment, threads, cache ORDER BY median, at, id) AS place
           FROM records WHERE status = 'ok' AND ${allOf(where)}
         ) WHERE place = 1 ORDER BY median, at, id LIMIT ?`,
      )
      .all(...values, filter.top ?? -1);
    return trialsOfRows(db, rows);
  });
}

/** Fields of an environment that can be asked to agree. */
export const ENVIRONMENT_FIELDS = [
  "target",
  "cpu",
  "cores",
  "isa",
  "compiler",
  "compiler_version",
  "flags",
  "kernel",
  "driver",
  "node",
  "automap",
] as const;
export type EnvironmentField = (typeof ENVIRONMENT_FIELDS)[number];

export interface ResumeOptions {
  /** Instructions as declared now: trials of another declaration, or of none of these, are left out. */
  readonly intrinsics?: readonly Intrinsic[];
  /** Only of this run. */
  readonly run?: string;
  /** Fields that must agree; all of them by default. */
  readonly match?: readonly EnvironmentField[];
}

/** What was measured of this computation in this environment, earliest first: a search resumes without measuring it twice. */
export function trialsOf(
  db: Database,
  workload: Workload,
  environment: Environment,
  { intrinsics, run, match = ENVIRONMENT_FIELDS }: ResumeOptions = {},
): TrialRecord[] {
  const world = environmentRowOf(environment);
  const where = ["computation = ?", ...match.map((field) => `${field} IS ?`)];
  const values: (string | number | null)[] = [
    computationKey(workload.computation),
    ...match.map((field) => world[field] ?? null),
  ];
  if (run !== undefined) {
    where.push("run = ?");
    values.push(run);
  }
  if (intrinsics !== undefined) {
    where.push("(intrinsic, declaration) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))");
    values.push(JSON.stringify(intrinsics.map((i) => [i.name, declarationHash(i)])));
  }
  return read(db, () =>
    trialsOfRows(db, db.sqlite.prepare(`SELECT * FROM records WHERE ${allOf(where)} ORDER BY at, id`).all(...values)),
  );
}

/** The trial whose id begins so. @throws UsageError when there is none, or more than one */
export function showTrial(db: Database, prefix: string): TrialRecord {
  return read(db, () => {
    const [trial] = trialsOfRows(db, [rowNamed(db, "trials", prefix)]);
    if (!trial) throw new Error("internal: a row became no trial");
    return trial;
  });
}

/** The run whose id begins so. @throws UsageError when there is none, or more than one */
export function showRun(db: Database, prefix: string): RunRecord {
  return read(db, () => runOf(rowNamed(db, "runs", prefix), worldIn(db), db.path));
}

/** The newest calibration of this environment; the caller checks the data. */
export function calibrationOf(
  db: Database,
  environment: Environment,
  match: readonly EnvironmentField[] = ENVIRONMENT_FIELDS,
): { readonly id: string; readonly at: number; readonly data: unknown } | undefined {
  const world = environmentRowOf(environment);
  const row = read(db, () =>
    db.sqlite
      .prepare<unknown[], { id: string; at: number; data: string }>(
        `SELECT calibrations.id, at, data FROM calibrations JOIN environments ON environments.id = environment
         WHERE ${allOf(match.map((field) => `${field} IS ?`))} ORDER BY at DESC, calibrations.id LIMIT 1`,
      )
      .get(...match.map((field) => world[field] ?? null)),
  );
  return row && { id: row.id, at: row.at, data: JSON.parse(row.data) };
}

/** Operators that have workloads here. */
export function operatorsIn(db: Database): string[] {
  return read(db, () => strings(db, "SELECT DISTINCT operator FROM workloads ORDER BY operator"));
}

/** Axes and parameters that workloads here have. */
export function extentsIn(db: Database): string[] {
  return read(db, () =>
    strings(db, "SELECT DISTINCT key FROM workloads, json_each(json_patch(extents, parameters)) ORDER BY key"),
  );
}

function conditionsOf(filter: Filter): { where: string[]; values: (string | number)[] } {
  const where: string[] = [];
  const values: (string | number)[] = [];
  const require = (condition: string, ...bound: readonly (string | number)[]): void => {
    where.push(condition);
    values.push(...bound);
  };
  const { computation, operator, dtype, intrinsic, since, until, extents = {} } = filter;
  if (computation !== undefined) require("computation = ?", computationKey(computation));
  if (operator !== undefined) require("operator = ?", operator);
  if (dtype !== undefined) {
    const [inputs = "", sum] = dtype.split("->");
    require("dtype = ?", inputs);
    if (sum !== undefined) require("sum = ?", sum);
  }
  if (intrinsic !== undefined)
    require("intrinsic IN (SELECT value FROM json_each(?))", JSON.stringify([intrinsic].flat()));
  if (since !== undefined) require("at >= ?", since);
  if (until !== undefined) require("at < ?", until);
  for (const [name, { min, max }] of Object.entries(extents)) {
    const path = `$.${JSON.stringify(name)}`;
    require("json_extract(shape, ?) IS NOT NULL", path);
    if (min !== undefined) require("json_extract(shape, ?) >= ?", path, min);
    if (max !== undefined) require("json_extract(shape, ?) <= ?", path, max);
  }
  return { where, values };
}

function allOf(conditions: readonly string[]): string {
  return conditions.length === 0 ? "1" : conditions.join(" AND ");
}

function strings(db: Database, sql: string): string[] {
  return db.sqlite.prepare(sql).pluck().all().map(String);
}

function trialsOfRows(db: Database, rows: readonly unknown[]): TrialRecord[] {
  const world = worldIn(db);
  return rows.map((row) => trialOf(row, world, db.path));
}

/** Reads each workload and environment once: thousands of trials share a few. */
function worldIn(db: Database): World {
  const remembered = <T>(table: "workloads" | "environments", make: (row: unknown, path: string) => T) => {
    const known = new Map<string, T>();
    return (id: string): T => {
      const found = known.get(id) ?? make(db.sqlite.prepare(`SELECT * FROM ${table} WHERE id = ?`).get(id), db.path);
      known.set(id, found);
      return found;
    };
  };
  return { workload: remembered("workloads", workloadOf), environment: remembered("environments", environmentOf) };
}

function rowNamed(db: Database, table: "trials" | "runs", prefix: string): unknown {
  const what = table === "trials" ? "trial" : "run";
  if (!/^[0-9a-f]{4,32}$/.test(prefix))
    throw new UsageError(`"${prefix}" is not the id of a ${what}`, {
      hint: "an id is 4 to 32 hexadecimal digits; automap db query lists them",
    });
  // Hexadecimal digits sort before "g": the range is the prefix.
  const rows = db.sqlite
    .prepare<unknown[], { id: string }>(`SELECT * FROM ${table} WHERE id >= ? AND id < ? ORDER BY id LIMIT 5`)
    .all(prefix, `${prefix}g`);
  const [row, other] = rows;
  if (!row)
    throw new UsageError(`${db.path} holds no ${what} ${prefix}`, { hint: "automap db query lists what it holds" });
  if (other)
    throw new UsageError(`several ${what}s begin with ${prefix}`, {
      hint: `give more digits: ${rows.map((r) => shortId(r.id)).join(", ")}`,
    });
  return row;
}
