/**
 * @file Whether a file can be believed: whole as SQLite sees it, every id the hash of its facts, every record readable.
 *
 *     verifyDatabase(db)     { checked: { trials: 16000, ... }, problems: [{ what: "trial 3f9a1c77d0e2", why: "its facts make the id ..." }] }
 */

import { canonicalJson } from "../abstraction/candidate.ts";
import type { Random } from "../abstraction/random.ts";
import { randomInteger } from "../abstraction/random.ts";
import type { Measurement } from "../abstraction/trial.ts";
import { shortId } from "./identity.ts";
import { type Database, read } from "./open.ts";
import { type Filter, idsWhere, showTrial } from "./query.ts";
import { computationOf, type TrialRecord } from "./record.ts";
import { idOfFacts, problemOf, type Row, TABLE_NAMES, TABLES, type Table, workloadOf } from "./rows.ts";

export interface Problem {
  /** `integrity`, `reference`, or a record by its table and id. */
  readonly what: string;
  readonly why: string;
}

export interface VerifyReport {
  /** Rows looked at, by table. */
  readonly checked: Readonly<Record<Table, number>>;
  readonly problems: readonly Problem[];
}

/** Looks at every page and every record; nothing is changed. */
export function verifyDatabase(db: Database): VerifyReport {
  const checked = { environments: 0, workloads: 0, runs: 0, trials: 0, calibrations: 0 };
  const problems: Problem[] = [];
  read(db, () => {
    // 1. The file as SQLite sees it.
    for (const said of db.sqlite.prepare("PRAGMA integrity_check").pluck().all())
      if (said !== "ok") problems.push({ what: "integrity", why: String(said) });
    for (const row of db.sqlite.prepare<[], Row>("PRAGMA foreign_key_check").all())
      problems.push({
        what: "reference",
        why: `a row of ${row["table"]} refers to one of ${row["parent"]} that is not there`,
      });

    // 2. Every record: its id, and whether it can be read.
    for (const table of TABLE_NAMES)
      for (const row of db.sqlite.prepare<[], Row>(`SELECT * FROM ${table}`).iterate()) {
        checked[table]++;
        const why = whatIsWrong(table, row, db.path);
        if (why !== undefined) problems.push({ what: `${table.slice(0, -1)} ${shortId(String(row["id"]))}`, why });
      }
  });
  return { checked, problems };
}

/** What is wrong with one trial's record; undefined when nothing is. */
export function recordProblem(db: Database, id: string): string | undefined {
  const row = read(db, () => db.sqlite.prepare<unknown[], Row>("SELECT * FROM trials WHERE id = ?").get(id));
  return row && whatIsWrong("trials", row, db.path);
}

function whatIsWrong(table: Table, row: Row, path: string): string | undefined {
  const id = idOfFacts(table, row);
  if (id !== row["id"]) return `its facts make the id ${shortId(id)}: something changed it`;
  const problem = problemOf(TABLES[table].schema, row);
  if (problem !== undefined || table !== "workloads") return problem;
  try {
    computationOf(workloadOf(row, path));
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : canonicalJson(error);
  }
}

export interface Remeasured {
  readonly trial: TrialRecord;
  readonly again: Measurement;
}

/**
 * Measures a random sample of what worked again, one after the other.
 * @param filter which records count; give `trusted`, for another machine's times are no promise here
 * @param measure how; this room has no machine
 */
export async function remeasure(
  db: Database,
  { count, filter, random }: { readonly count: number; readonly filter: Filter; readonly random: Random },
  measure: (trial: TrialRecord) => Promise<Measurement>,
): Promise<Remeasured[]> {
  const ids = read(db, () => idsWhere(db, { ...filter, status: "ok" })).sort();
  const found: Remeasured[] = [];
  while (found.length < count && ids.length > 0) {
    const [id] = ids.splice(randomInteger(random, 0, ids.length - 1), 1);
    if (id === undefined) break;
    const trial = showTrial(db, id);
    found.push({ trial, again: await measure(trial) });
  }
  return found;
}
