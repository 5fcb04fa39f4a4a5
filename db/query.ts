/**
 * @file Queries of the database. Filters are combined with "and"; times are milliseconds since 1970.
 *
 *     queryTrials(db, { operator: "conv2d", extents: { c: { min: 64, max: 256 } }, status: "ok", limit: 10 })
 */

import { isDefined } from "../abstraction/collections.ts";
import { type Computation, computationKey } from "../abstraction/computation.ts";
import { automapCommand, checkNames, internal, NotFoundError, UsageError } from "../abstraction/error.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import { visible } from "../abstraction/text.ts";
import type { MeasurementStatus } from "../abstraction/trial.ts";
import { databaseWords } from "./default.ts";
import type { Row } from "./facts.ts";
import { strings } from "./held.ts";
import { shortId } from "./identity.ts";
import { type Database, read, statement } from "./open.ts";
import type { CalibrationRecord, Environment, RunRecord, TrialRecord, Workload } from "./record.ts";
import { environmentRowOf, factsOf, problemOf, provenanceOf, runOf, trialsOfRows, worldIn } from "./rows.ts";
import {
  type Condition,
  DECLARED,
  declarationsOf,
  ENVIRONMENT_FIELDS,
  type EnvironmentField,
  type Trust,
  trustedBy,
} from "./trust.ts";
import { type WordFilter, workloadsWhere } from "./words.ts";

/** A range with inclusive ends; an omitted end is open. */
export interface Range {
  readonly min?: number;
  readonly max?: number;
}

/** Sort orders of trials. */
export const SORTS = ["time", "predicted", "at", "operator", "intrinsic", "status"] as const;
export type Sort = (typeof SORTS)[number];

/** Ties are ordered by time, then id. Failures and trials without a prediction come last. */
const ORDER: Readonly<Record<Sort, string>> = {
  time: "median IS NULL, median",
  predicted: "predicted IS NULL, predicted",
  at: "at DESC",
  operator: "operator",
  intrinsic: "intrinsic",
  status: "status",
};

/** Conditions on trials; an empty filter matches all. */
export interface Filter extends WordFilter {
  /** Exactly this computation, under any name. */
  readonly computation?: Computation;
  /** Name of the operator. */
  readonly operator?: string;
  /** Name of the target description. */
  readonly target?: string;
  /** Name of the instruction, or names of several. */
  readonly intrinsic?: string | readonly string[];
  /** From this instant, milliseconds since 1970. */
  readonly since?: number;
  /** Before this instant, milliseconds since 1970. */
  readonly until?: number;
  /** Id of the run that measured it. */
  readonly run?: string;
  /** Threads that the kernel was called with. */
  readonly threads?: number;
  /** The fleet's worker that measured it. */
  readonly worker?: string | undefined;
  /** Ranges by axis or parameter. */
  readonly extents?: Readonly<Record<string, Range>>;
  /** Only trials that were measured here. */
  readonly provenance?: "here" | undefined;
  /** Only trials that this world trusts. */
  readonly trusted?: Trust;
  /** Only trials that this world does not trust. */
  readonly stale?: Trust;
  /** At most this many. */
  readonly limit?: number;
}

/** Conditions on trials, failures included, with their order and number. */
export interface TrialFilter extends Filter {
  /** How the trial ended. */
  readonly status?: MeasurementStatus;
  /** `time` by default: fastest first. */
  readonly sort?: Sort;
  /** At most this many of each computation, in the order requested. */
  readonly top?: number;
}

const FILTER = {
  computation: true,
  operator: true,
  name: true,
  dtype: true,
  layout: true,
  epilogue: true,
  extents: true,
  target: true,
  intrinsic: true,
  since: true,
  until: true,
  run: true,
  threads: true,
  trusted: true,
  stale: true,
  status: true,
  sort: true,
  top: true,
  limit: true,
  provenance: true,
  worker: true,
} as const;

/** Checks the names of a filter, because a misspelt one would match everything. @throws UsageError with the nearest name */
export function checkFilter(filter: TrialFilter): void {
  checkNames(filter, FILTER, "a filter of trials");
  for (const [axis, range] of Object.entries(filter.extents ?? {}))
    checkNames(range, { min: true, max: true }, `extent ${axis} of a filter`);
}

/** The matching trials, failures included. @throws UsageError for an unknown filter */
export function queryTrials(db: Database, filter: TrialFilter = {}): TrialRecord[] {
  checkFilter(filter);
  return read(db, () => {
    const found = trialsOfRows(db, rowsWhere(db, filter));
    if (filter.provenance === undefined || found.every(({ provenance }) => provenance === "here")) return found;
    // SQL cannot check seals. All are checked only if one of those found is forged.
    const { limit: _, top: _top, ...every } = filter;
    const sealedHere = rowsWhere(db, every).filter((row) => provenanceOf(db, "trials", row as Row) === "here");
    const ids = new Set(sealedHere.map((row) => String((row as Row)["id"])));
    return trialsOfRows(db, rowsWhere(db, { ...filter, among: ids }));
  });
}

/** Ids of all matching trials, unordered. */
export function idsWhere(db: Database, filter: TrialFilter): string[] {
  const { sql, values } = trialsWhere(db, filter);
  return strings(db, `SELECT id FROM trials WHERE ${sql}`, values);
}

/**
 * Ids of runs that ended without trials and match by workload, target, start and id. Filters that only trials have (status, instruction, threads,
 * trust) match no run.
 */
export function idleRunsWhere(db: Database, filter: TrialFilter): string[] {
  const { status, intrinsic, threads, trusted, stale, run, since, until, target } = filter;
  if ([status, intrinsic, threads, trusted, stale].some((part) => part !== undefined)) return [];
  const workloads = onWorkloads(db, filter);
  const { sql, values } = allOf([
    workloads && within(workloads),
    when("id = ?", run),
    when("started >= ?", since),
    when("started < ?", until),
    onTarget(target),
  ]);
  const idle = "ended IS NOT NULL AND NOT EXISTS (SELECT 1 FROM trials WHERE run = runs.id)";
  return strings(db, `SELECT id FROM runs WHERE ${idle} AND ${sql}`, values);
}

/** Number of matching trials. */
export function countTrials(db: Database, filter: TrialFilter = {}): number {
  checkFilter(filter);
  return read(db, () => {
    const { sql, values } = trialsWhere(db, filter);
    return Number(
      db.sqlite
        .prepare(`SELECT count(*) FROM trials WHERE ${sql}`)
        .pluck()
        .get(...values),
    );
  });
}

/** Ids of the trials to choose from. */
interface Among {
  readonly among?: ReadonlySet<string>;
}

function rowsWhere(db: Database, filter: TrialFilter & Among): unknown[] {
  const { status, sort = "time", limit = -1, top } = filter;
  if (top !== undefined) return firstOfEach(db, filter, top);
  if (sort === "time" && limit > 0 && (status ?? "ok") === "ok") {
    const rows = fastest(db, filter, limit);
    // Failures sort last, so they are needed only when successes do not fill the list.
    if (rows.length === limit || status === "ok") return rows;
  }
  const { sql, values } = trialsWhere(db, filter);
  const failures = status !== undefined && status !== "ok";
  const by =
    sort === "time" && failures
      ? "at, id"
      : `${ORDER[sort].replace("operator", "(SELECT operator FROM workloads WHERE id = workload)")}, at, id`;
  const some = failures ? `status <> 'ok' AND ${sql}` : sql;
  return db.sqlite.prepare(`SELECT * FROM trials WHERE ${some} ORDER BY ${by} LIMIT ?`).all(...values, limit);
}

function firstOfEach(db: Database, filter: TrialFilter & Among, count: number): unknown[] {
  const { sql, values } = trialsWhere(db, filter);
  const { sort = "time", limit = -1 } = filter;
  const key = ORDER[sort];
  return db.sqlite
    .prepare(
      `SELECT trials.* FROM (
         SELECT trials.id AS first, operator, row_number() OVER (PARTITION BY computation ORDER BY ${key}, at, trials.id) AS rank
         FROM trials JOIN workloads ON workloads.id = workload WHERE ${sql}
       ) JOIN trials ON trials.id = first WHERE rank <= ? ORDER BY ${key}, at, trials.id LIMIT ?`,
    )
    .all(...values, count, limit);
}

/** A time range or a set of environments with at most this many trials is read completely. */
const FEW = 20_000;

/**
 * The `limit` trials with the smallest medians, without reading all matches. The fastest trial of each workload takes one index step, and only
 * workloads whose fastest is among the `limit` smallest can contribute.
 */
function fastest(db: Database, filter: TrialFilter & Among, limit: number): unknown[] {
  const { intrinsic, ...rest } = filter;
  const { sql, values } = onTrials(db, { ...rest, status: "ok" });
  const where = allOf([onWorkloads(db, filter), activeIn(filter)]);
  const index = sparseIndex(db, filter);
  if (index !== undefined) {
    const all = trialsWhere(db, { ...filter, status: "ok" });
    return db.sqlite
      .prepare(`SELECT * FROM trials INDEXED BY ${index} WHERE ${all.sql} ORDER BY median, at, id LIMIT ?`)
      .all(...all.values, limit);
  }

  // 1. The fastest trial of each workload, or of each workload and requested instruction.
  const named = intrinsic === undefined ? "" : "AND intrinsic = wanted.value";
  const leaders = db.sqlite
    .prepare<unknown[], { workload: string; wanted: string; least: number | null }>(
      `SELECT workloads.id AS workload, wanted.value AS wanted, (
         SELECT median FROM trials WHERE workload = workloads.id ${named} AND ${sql} ORDER BY median LIMIT 1
       ) AS least
       FROM workloads CROSS JOIN json_each(?) AS wanted WHERE ${where.sql} ORDER BY least IS NULL, least`,
    )
    .all(...values, JSON.stringify(intrinsic === undefined ? [""] : [intrinsic].flat()), ...where.values)
    .flatMap(({ workload, wanted, least }) => (least === null ? [] : [{ workload, wanted, least }]));

  // 2. Their trials, up to the last of the `limit` smallest.
  const bound = leaders[limit - 1]?.least ?? Number.MAX_VALUE;
  const among = leaders.filter((l) => l.least <= bound).map((l) => [l.workload, l.wanted]);
  return db.sqlite
    .prepare(
      `SELECT trials.* FROM json_each(?) AS leader CROSS JOIN trials
       WHERE workload = leader.value ->> 0 ${named.replace("wanted.value", "leader.value ->> 1")} AND median <= ? AND ${sql}
       ORDER BY median, at, trials.id LIMIT ?`,
    )
    .all(JSON.stringify(among), bound, ...values, limit);
}

/** Workloads with trials in the time range; one index step each avoids reading the trials of all others. */
function activeIn({ since, until }: Filter): Condition | undefined {
  if (since === undefined && until === undefined) return undefined;
  return {
    sql: "EXISTS (SELECT 1 FROM trials WHERE workload = workloads.id AND at >= ? AND at < ?)",
    values: [since ?? 0, until ?? Number.MAX_SAFE_INTEGER],
  };
}

/** The index for a filter that few trials pass. */
function sparseIndex(db: Database, { since, until, target, trusted }: Filter): string | undefined {
  const isFew = ({ sql, values }: Condition): boolean =>
    Number(
      db.sqlite
        .prepare(`SELECT count(*) FROM (SELECT 1 FROM trials WHERE ${sql} LIMIT ?)`)
        .pluck()
        .get(...values, FEW + 1),
    ) <= FEW;
  if (since !== undefined || until !== undefined) {
    const range = { sql: "at >= ? AND at < ?", values: [since ?? 0, until ?? Number.MAX_SAFE_INTEGER] };
    if (isFew(range)) return "trials_by_time";
  }
  const worlds = allOf([onTarget(target), trusted && trustedBy(db, trusted)?.world]);
  if (worlds.values.length > 0 && isFew(worlds)) return "trials_by_environment";
  return undefined;
}

export interface ResumeOptions {
  /** Instructions as now declared. Trials with another declaration or another instruction are left out. */
  readonly intrinsics?: readonly Intrinsic[];
  /** Only trials of this run. */
  readonly run?: string;
  /** Environment fields that must agree; all by default. */
  readonly match?: readonly EnvironmentField[];
}

/**
 * Trials of this computation in this environment that were measured alone, earliest first, so that a search resumes without measuring them again.
 * Finals are excluded: they follow the search and do not affect its course.
 */
export function trialsOf(
  db: Database,
  workload: Workload,
  environment: Environment,
  { intrinsics, run, match = ENVIRONMENT_FIELDS }: ResumeOptions = {},
): TrialRecord[] {
  const { sql, values } = allOf([
    { sql: "computation = ?", values: [computationKey(workload.computation)] },
    ...agreeing(environment, match),
    when("run = ?", run),
    intrinsics && { sql: DECLARED, values: [declarationsOf(intrinsics)] },
  ]);
  // The view `records` is not used, because in a file written by others it may be anything.
  const records =
    "trials JOIN workloads ON workloads.id = trials.workload JOIN environments ON environments.id = trials.environment";
  return read(db, () =>
    trialsOfRows(
      db,
      db.sqlite.prepare(`SELECT trials.* FROM ${records} WHERE ${sql} ORDER BY at, trials.id`).all(...values),
    ).filter(({ finals }) => finals === undefined),
  );
}

/** The trial whose id starts with a prefix. @throws UsageError when there is none, or more than one */
export function showTrial(db: Database, prefix: string): TrialRecord {
  return read(db, () => {
    const [trial] = trialsOfRows(db, [rowNamed(db, "trials", prefix)]);
    if (!trial) internal("a row became no trial");
    return trial;
  });
}

/** The run whose id starts with a prefix. @throws UsageError when there is none, or more than one */
export function showRun(db: Database, prefix: string): RunRecord {
  return read(db, () => runOf(rowNamed(db, "runs", prefix), worldIn(db), db.path));
}

/** Every run, oldest first, with the number of trials that it measured. */
export function runsIn(db: Database): { readonly run: RunRecord; readonly trials: number }[] {
  const counted = "SELECT runs.*, (SELECT count(*) FROM trials WHERE run = runs.id) AS trials FROM runs";
  const world = worldIn(db);
  return read(db, () =>
    statement(db, `${counted} ORDER BY started, id`)
      .all()
      .map((row) => {
        const { trials, ...own } = row as { trials: number }; // counted above
        return { run: runOf(own, world, db.path), trials };
      }),
  );
}

/** Which calibrations to consider. */
export interface CalibrationFilter {
  /** Made no later than this, milliseconds since 1970. */
  readonly until?: number | undefined;
  /** Fields of the environment that must agree; all by default. */
  readonly match?: readonly EnvironmentField[];
  /** Whether an imported one serves where none was measured here. False by default: claimed rates would mislead every search. */
  readonly imported?: boolean;
}

/** The newest calibration of this environment that was measured here. The caller checks the data. */
export function calibrationOf(
  db: Database,
  environment: Environment,
  { until = Number.MAX_SAFE_INTEGER, match = ENVIRONMENT_FIELDS, imported = false }: CalibrationFilter = {},
): Omit<CalibrationRecord, "environment"> | undefined {
  const { sql, values } = allOf([{ sql: "at <= ?", values: [until] }, ...agreeing(environment, match)]);
  const rows = read(db, () =>
    db.sqlite
      .prepare<unknown[], Row>(
        `SELECT calibrations.* FROM calibrations JOIN environments ON environments.id = environment
         WHERE ${sql} ORDER BY seal IS NULL, at DESC, calibrations.id LIMIT ?`,
      )
      .all(...values, NEWEST),
  );
  const found = rows
    .filter((row) => problemOf("calibrations", row) === undefined)
    .map((row) => ({
      ...factsOf("calibrations", row, db.path),
      provenance: provenanceOf(db, "calibrations", row),
    }));
  return found.find((c) => c.provenance === "here") ?? (imported ? found[0] : undefined);
}

/** Most calibrations examined. One is made for a new environment or on request, so there are few. */
const NEWEST = 100;

/** The condition of a filter on a row of `trials`. */
export function trialsWhere(db: Database, filter: TrialFilter & Among): Condition {
  const workloads = onWorkloads(db, filter);
  return allOf([onTrials(db, filter), workloads && within(workloads)]);
}

function within({ sql, values }: Condition): Condition {
  return { sql: `workload IN (SELECT id FROM workloads WHERE ${sql})`, values };
}

/** The part of a filter that a row of `trials` alone decides. */
function onTrials(db: Database, filter: TrialFilter & Among): Condition {
  const { status, intrinsic, run, threads, worker, provenance, among, since, until, target, trusted, stale } = filter;
  const untrusted = stale ? Object.values(trustedBy(db, stale) ?? {}) : [];
  return allOf([
    // A literal, so that SQLite can use the partial indexes of successful trials.
    status === "ok" ? { sql: "status = 'ok'", values: [] } : when("status = ?", status),
    intrinsic === undefined
      ? undefined
      : { sql: "intrinsic IN (SELECT value FROM json_each(?))", values: [JSON.stringify([intrinsic].flat())] },
    when("run = ?", run),
    when("threads = ?", threads),
    when("worker = ?", worker),
    provenance && { sql: "seal IS NOT NULL", values: [] },
    among && { sql: "trials.id IN (SELECT value FROM json_each(?))", values: [JSON.stringify([...among])] },
    when("at >= ?", since),
    when("at < ?", until),
    onTarget(target),
    ...(trusted ? Object.values(trustedBy(db, trusted) ?? {}) : []),
    stale && (untrusted.length > 0 ? not(allOf(untrusted)) : { sql: "0", values: [] }),
  ]);
}

/** A condition on a value, if there is one. */
function when(sql: string, value: string | number | undefined, ...before: string[]): Condition | undefined {
  return value === undefined ? undefined : { sql, values: [...before, value] };
}

/** That fields of a row's environment are those of this one. */
function agreeing(environment: Environment, fields: readonly EnvironmentField[]): Condition[] {
  const world = environmentRowOf(environment);
  return fields.map((field) => ({ sql: `${field} IS ?`, values: [world[field] ?? null] }));
}

function onTarget(target: string | undefined): Condition | undefined {
  return when("environment IN (SELECT id FROM environments WHERE target = ?)", target);
}

function not({ sql, values }: Condition): Condition {
  return { sql: `NOT (${sql})`, values };
}

/** The part of a filter that a row of `workloads` decides; there are few workloads. */
function onWorkloads(db: Database, filter: Filter): Condition | undefined {
  const { computation, operator, extents = {} } = filter;
  const found = [
    computation && { sql: "computation = ?", values: [computationKey(computation)] },
    when("operator = ?", operator),
    workloadsWhere(db, filter),
    ...Object.entries(extents).map(([name, { min, max }]): Condition => {
      const path = `$.${JSON.stringify(name)}`;
      const shape = "json_extract(json_patch(extents, parameters), ?)";
      return allOf([
        { sql: `${shape} IS NOT NULL`, values: [path] },
        when(`${shape} >= ?`, min, path),
        when(`${shape} <= ?`, max, path),
      ]);
    }),
  ].filter(isDefined);
  return found.length === 0 ? undefined : allOf(found);
}

function allOf(conditions: readonly (Condition | undefined)[]): Condition {
  const given = conditions.filter(isDefined);
  return {
    sql: ["1", ...given.map((c) => c.sql)].join(" AND "),
    values: given.flatMap((c) => c.values),
  };
}

function rowNamed(db: Database, table: "trials" | "runs", prefix: string): unknown {
  const [what, list] = table === "trials" ? ["trial", ["db", "query"]] : ["run", ["replay"]];
  if (!/^[0-9a-f]{4,32}$/.test(prefix))
    throw new UsageError(
      `"${prefix}" is not the id of a ${what}`,
      `an id is 4 to 32 hexadecimal digits; ${automapCommand(list, databaseWords(db.path))} lists them`,
    );
  // Hexadecimal digits sort before "g", so this range selects the prefix.
  const rows = db.sqlite
    .prepare<unknown[], { id: string }>(`SELECT * FROM ${table} WHERE id >= ? AND id < ? ORDER BY id LIMIT 5`)
    .all(prefix, `${prefix}g`);
  const [row, other] = rows;
  if (!row)
    throw new NotFoundError(
      `${db.path} holds no ${what} ${prefix}`,
      `${automapCommand(list, databaseWords(db.path))} lists them`,
    );
  if (other)
    throw new UsageError(
      `several ${what}s begin with ${prefix}`,
      `give more digits: ${rows.map((r) => visible(shortId(r.id))).join(", ")}`,
    );
  return row;
}
