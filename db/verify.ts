/**
 * @file Verifies a file: SQLite finds it intact, every id is the hash of its facts, and every record can be parsed.
 *
 *     verifyDatabase(db)     { checked: { trials: 16000, ... }, problems: [{ what: "trial 3f9a1c77d0e2", why: "its facts make the id ..." }] }
 */

import { unique } from "../abstraction/collections.ts";
import { attempt } from "../abstraction/error.ts";
import { type Random, randomInteger } from "../abstraction/random.ts";
import { visible } from "../abstraction/text.ts";
import type { Measurement } from "../abstraction/trial.ts";
import { idOfFacts, kindOf, noRows, type Row, TABLE_NAMES, type Table } from "./facts.ts";
import { shortId } from "./identity.ts";
import { type Database, read } from "./open.ts";
import { type Filter, idsWhere, showTrial } from "./query.ts";
import type { TrialRecord } from "./record.ts";
import { problemOf, problemOfTrial, type Referred, rowHeld, worldIn } from "./rows.ts";

export interface Problem {
  /** `integrity`, `reference`, or a record by its table and id. */
  readonly what: string;
  readonly why: string;
}

/** The result of verifying a database. */
export interface VerifyReport {
  /** Rows looked at, by table. */
  readonly checked: Readonly<Record<Table, number>>;
  readonly problems: readonly Problem[];
}

/** Checks every page and every record without changing anything. */
export function verifyDatabase(db: Database): VerifyReport {
  const checked = noRows();
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

    // 2. Every record: its id, and whether it can be parsed.
    const world = worldIn(db);
    for (const table of TABLE_NAMES)
      for (const held of db.sqlite.prepare<[], object>(`SELECT * FROM ${table}`).safeIntegers().iterate()) {
        const row = rowHeld(held);
        checked[table]++;
        const why = whatIsWrong(table, row, world);
        if (why !== undefined) problems.push({ what: `${kindOf(table)} ${visible(shortId(String(row["id"])))}`, why });
      }
  });
  return { checked, problems };
}

/** The problem with one trial's record; undefined when there is none. */
export function recordProblem(db: Database, id: string): string | undefined {
  const held = read(db, () =>
    db.sqlite.prepare<unknown[], object>("SELECT * FROM trials WHERE id = ?").safeIntegers().get(id),
  );
  return held && whatIsWrong("trials", rowHeld(held), worldIn(db));
}

function whatIsWrong(table: Table, row: Row, world: Referred): string | undefined {
  const id = idOfFacts(table, row);
  if (id !== row["id"]) return `its facts make the id ${shortId(id)}: something changed it`;
  const problem = problemOf(table, row);
  if (problem !== undefined || table !== "trials") return problem;
  // A damaged or missing reference is reported for the record it names.
  return attempt(() => problemOfTrial(row, world));
}

export interface Remeasured {
  readonly trial: TrialRecord;
  readonly again: Measurement;
}

/**
 * Measures a random sample of successful trials again, one after another.
 * @param filters records that one of them names count; include `trusted`, because other machines' times do not apply where it is measured
 * @param imported whether to include imported records, whose kernels are code of unknown authors
 * @param measure function that measures, because db/ does not run kernels
 */
export async function remeasure(
  db: Database,
  options: {
    readonly count: number;
    readonly filters: readonly Filter[];
    readonly random: Random;
    readonly imported?: boolean;
  },
  measure: (trial: TrialRecord) => Promise<Measurement>,
): Promise<Remeasured[]> {
  const { count, filters, random, imported = false } = options;
  const ids = read(db, () => unique(filters.flatMap((filter) => idsWhere(db, { ...filter, status: "ok" })))).sort();
  const found: Remeasured[] = [];
  while (found.length < count && ids.length > 0) {
    const [id] = ids.splice(randomInteger(random, 0, ids.length - 1), 1);
    if (id === undefined) break;
    const trial = showTrial(db, id);
    if (trial.provenance === "here" || imported) found.push({ trial, again: await measure(trial) });
  }
  return found;
}
