/**
 * @file Takes trials out for good: the one thing that deletes facts. The best of each computation stays unless it is asked for.
 *
 *     pruneTrials(db, { until: lastYear }, { reason: "older than a year" })     { trials: 12000, runs: 75, ... }
 */

import { type Database, write } from "./open.ts";
import { idsWhere, type TrialFilter } from "./query.ts";
import type { Table } from "./rows.ts";

export interface PruneOptions {
  readonly reason: string;
  /** Also the fastest trial of a computation, environment, thread count and cache state. */
  readonly best?: boolean;
  /** Count, and delete nothing. */
  readonly dry?: boolean;
}

/** Deletes the trials that match, and the runs, workloads and environments that nothing refers to any more. @returns rows deleted, by table */
export function pruneTrials(
  db: Database,
  filter: TrialFilter,
  { reason, best = false, dry = false }: PruneOptions,
): Readonly<Record<Exclude<Table, "calibrations">, number>> {
  let deleted = { trials: 0, runs: 0, workloads: 0, environments: 0 };
  try {
    write(db, "pruning", () => {
      const { sqlite } = db;
      const changes = (sql: string, ...values: readonly string[]): number => sqlite.prepare(sql).run(...values).changes;
      sqlite.prepare("INSERT INTO pruning VALUES (?)").run(reason);
      const kept = best ? "" : "AND id NOT IN (SELECT id FROM best)";
      const ids = JSON.stringify(idsWhere(db, filter));
      deleted = {
        trials: changes(`DELETE FROM trials WHERE id IN (SELECT value FROM json_each(?)) ${kept}`, ids),
        // A search under way has no trials yet.
        runs: changes(
          "DELETE FROM runs WHERE ended IS NOT NULL AND id NOT IN (SELECT run FROM trials WHERE run IS NOT NULL)",
        ),
        workloads: changes(
          "DELETE FROM workloads WHERE id NOT IN (SELECT workload FROM trials) AND id NOT IN (SELECT workload FROM runs)",
        ),
        environments: changes(
          `DELETE FROM environments WHERE id NOT IN (SELECT environment FROM trials)
           AND id NOT IN (SELECT environment FROM runs) AND id NOT IN (SELECT environment FROM calibrations)`,
        ),
      };
      sqlite.exec("DELETE FROM pruning");
      if (dry) throw new OnlyCounted();
    });
  } catch (error) {
    if (!(error instanceof OnlyCounted)) throw error;
  }
  if (!dry) db.sqlite.exec("VACUUM");
  return deleted;
}

/** Ends the transaction of a dry run. */
class OnlyCounted extends Error {}
