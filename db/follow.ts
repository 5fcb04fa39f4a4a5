/**
 * @file What other processes write into a database, read as it lands.
 *
 *     const following = new Following(db);
 *     following.searches(since, from)   what was searched last, and every search of the same processes
 *     following.news([run.id])          once something was committed: new searches, ends of these, trials in the order in which they landed
 */

import type { Row } from "./facts.ts";
import { type Database, read, statement } from "./open.ts";
import type { RunRecord, TrialRecord } from "./record.ts";
import { type Referred, runOf, trialsOfRows, worldIn } from "./rows.ts";

/** What landed since the last look. */
export interface News {
  /** Searches that began, or ended, as they now are. */
  readonly runs: readonly RunRecord[];
  readonly trials: readonly TrialRecord[];
  /** Whether more landed than is told at once. */
  readonly isMore: boolean;
}

/** Most trials told at once. */
const MOST = 500;

export class Following {
  private readonly db: Database;
  private readonly world: Referred;
  private version: unknown;
  /** The last rows that were told. */
  private run = 0;
  private trial = 0;

  constructor(db: Database) {
    this.db = db;
    this.world = worldIn(db);
  }

  /** Whether another process has committed since the last call. It reads a counter and no table. */
  changed(): boolean {
    const version = this.db.sqlite.pragma("data_version", { simple: true });
    const isNew = version !== this.version;
    this.version = version;
    return isNew;
  }

  /**
   * The searches that have not ended, or ended later than `since`, and all others of their processes; with their trials. From here on there is news.
   * @param from searches that began earlier are left out, milliseconds since 1970: numbers of processes come again
   */
  searches(since: number, from: number): Omit<News, "isMore"> {
    return read(this.db, () => {
      this.run = this.lastOf("runs");
      this.trial = this.lastOf("trials");
      const recent = "SELECT process FROM runs WHERE ended IS NULL OR ended >= ?";
      const sql = `SELECT * FROM runs WHERE started >= ? AND process IN (${recent}) ORDER BY rowid`;
      const runs = this.runsOf(statement(this.db, sql).all(from, since));
      const ids = JSON.stringify(runs.map(({ id }) => id));
      const theirs = "SELECT * FROM trials WHERE run IN (SELECT value FROM json_each(?)) ORDER BY rowid";
      return { runs, trials: trialsOfRows(this.db, statement(this.db, theirs).all(ids), this.world) };
    });
  }

  /** @param unended ids of searches whose ends are asked for */
  news(unended: readonly string[]): News {
    return read(this.db, () => {
      const begun = statement(this.db, "SELECT rowid, * FROM runs WHERE rowid > ? ORDER BY rowid").all(this.run);
      const ended = statement(
        this.db,
        "SELECT rowid, * FROM runs WHERE ended IS NOT NULL AND id IN (SELECT value FROM json_each(?))",
      ).all(JSON.stringify(unended));
      const landed = statement(this.db, "SELECT rowid, * FROM trials WHERE rowid > ? ORDER BY rowid LIMIT ?").all(
        this.trial,
        MOST,
      );
      const runs = this.runsOf([...begun, ...ended]);
      const trials = trialsOfRows(this.db, landed, this.world);
      this.run = numberOf(begun.at(-1)) ?? this.run;
      this.trial = numberOf(landed.at(-1)) ?? this.trial;
      return { runs, trials, isMore: landed.length === MOST };
    });
  }

  private runsOf(rows: readonly unknown[]): RunRecord[] {
    return rows.map((row) => runOf(row, this.world, this.db.path));
  }

  private lastOf(table: "runs" | "trials"): number {
    return numberOf(statement(this.db, `SELECT max(rowid) AS rowid FROM ${table}`).get()) ?? 0;
  }
}

function numberOf(row: unknown): number | undefined {
  const number = (row as Row | undefined)?.["rowid"]; // selected above
  return typeof number === "number" ? number : undefined;
}
