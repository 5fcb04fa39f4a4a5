/**
 * @file Deletes trials. This is the only function that deletes facts. It keeps the best of each computation unless told otherwise.
 *
 *     pruneTrials(db, { until: lastYear }, { reason: "older than a year" })     { trials: 12000, runs: 75, ... }
 */

import { checkNames } from "../abstraction/error.ts";
import { best as bestTrials } from "./best.ts";
import type { Table } from "./facts.ts";
import { compact, type Database, write } from "./open.ts";
import { checkFilter, idleRunsWhere, idsWhere, type TrialFilter } from "./query.ts";

/** The reason for deleting, and what to include. */
export interface PruneOptions {
  /** Recorded with the deletion; required. */
  readonly reason: string;
  /** Also delete the fastest trial of a computation, environment, thread count and cache state. */
  readonly best?: boolean;
  /** Count only; delete nothing. */
  readonly dry?: boolean;
}

/**
 * Deletes matching trials and matching runs without trials, and then the runs, workloads and environments to which nothing refers any more. Records
 * that the filter does not reach stay. @returns rows deleted, by table
 */
export function pruneTrials(
  db: Database,
  filter: TrialFilter,
  options: PruneOptions,
): Readonly<Record<Exclude<Table, "calibrations">, number>> {
  checkFilter(filter);
  checkNames(options, { reason: true, best: true, dry: true }, "pruneTrials");
  const { reason, best = false, dry = false } = options;
  let deleted = { trials: 0, runs: 0, workloads: 0, environments: 0 };
  try {
    write(db, "pruning", () => {
      db.sqlite.prepare("INSERT INTO pruning VALUES (?)").run(reason);
      deleted = prune(db, filter, best);
      db.sqlite.exec("DELETE FROM pruning");
      if (dry) throw new OnlyCounted();
    });
  } catch (error) {
    if (!(error instanceof OnlyCounted)) throw error;
  }
  if (!dry) compact(db);
  return deleted;
}

function prune(db: Database, filter: TrialFilter, best: boolean): Record<Exclude<Table, "calibrations">, number> {
  const { sqlite } = db;
  const take = (table: Table, ids: readonly unknown[], condition = ""): number =>
    sqlite
      .prepare(`DELETE FROM ${table} WHERE id IN (SELECT value FROM json_each(?)) ${condition}`)
      .run(JSON.stringify(ids)).changes;
  const referred = (table: "trials" | "runs", column: string, ids: readonly unknown[]): unknown[] =>
    sqlite
      .prepare(`SELECT DISTINCT ${column} FROM ${table} WHERE id IN (SELECT value FROM json_each(?))`)
      .pluck()
      .all(JSON.stringify(ids));

  // Imported records are kept beside those measured here, and never in their place.
  const kept = new Set(best ? [] : bestTrials(db, {}, { imported: true }).map(({ id }) => id));
  const trials = idsWhere(db, filter).filter((id) => !kept.has(id));
  const runs = [...referred("trials", "run", trials), ...idleRunsWhere(db, filter)];
  const world = (column: "workload" | "environment"): unknown[] => [
    ...referred("trials", column, trials),
    ...referred("runs", column, runs),
  ];
  const workloads = world("workload");
  const environments = world("environment");
  return {
    trials: take("trials", trials),
    // A running search may have no trials yet.
    runs: take("runs", runs, "AND ended IS NOT NULL AND id NOT IN (SELECT run FROM trials WHERE run IS NOT NULL)"),
    workloads: take(
      "workloads",
      workloads,
      "AND id NOT IN (SELECT workload FROM trials) AND id NOT IN (SELECT workload FROM runs)",
    ),
    environments: take(
      "environments",
      environments,
      `AND id NOT IN (SELECT environment FROM trials) AND id NOT IN (SELECT environment FROM runs)
       AND id NOT IN (SELECT environment FROM calibrations)`,
    ),
  };
}

/** Ends the transaction of a dry run. */
class OnlyCounted extends Error {}
