/**
 * @file Cached rows that others refer to: thousands of trials share a few workloads and environments. It also tells whether a row was sealed on
 * this machine.
 */

import { remembered } from "../abstraction/collections.ts";
import { automapCommand } from "../abstraction/command-line.ts";
import { UsageError } from "../abstraction/error.ts";
import type { Provenance } from "../abstraction/seal.ts";
import { databaseWords } from "./default.ts";
import { idOfFacts, type Row, type SealedTable, type Table } from "./facts.ts";
import type { Database } from "./open.ts";
import type { TrialRecord, WorkloadRecord } from "./record.ts";
import { environmentOf, type Referred, trialOf, workloadOf } from "./rows.ts";

export function worldIn(db: Database): Referred {
  const kept = <T>(table: "workloads" | "environments", make: (row: unknown, path: string) => T) => {
    const known = new Map<string, T>();
    return (id: string): T => remembered(known, id, () => make(rowOf(db, table, id), db.path));
  };
  /** A name given to one record of a computation applies to all records of it in this file. */
  const named = (row: unknown, path: string): WorkloadRecord => {
    const workload = workloadOf(row, path);
    if (workload.name !== undefined) return workload;
    const sql = "SELECT * FROM workloads WHERE computation = ? AND name IS NOT NULL ORDER BY id LIMIT 1";
    const same = db.sqlite.prepare(sql).get(workload.computation);
    return same === undefined ? workload : { ...workload, name: workloadOf(same, path).name };
  };
  return {
    workload: kept("workloads", named),
    environment: kept("environments", environmentOf),
    provenance: (table, row) => provenanceOf(db, table, row as Row),
  };
}

function rowOf(db: Database, table: Table, id: string): unknown {
  const row = db.sqlite.prepare(`SELECT * FROM ${table} WHERE id = ?`).get(id);
  if (row === undefined)
    throw new UsageError(
      `${db.path}: a row refers to one of ${table} that is not there`,
      `${automapCommand("db", "verify", databaseWords(db.path))} names every such row`,
    );
  return row;
}

export function trialsOfRows(db: Database, rows: readonly unknown[]): TrialRecord[] {
  const world = worldIn(db);
  return rows.map((row) => trialOf(row, world, db.path));
}

/** The text that is sealed: the content of a row, so that a seal copied from another row does not match; of a run also how it ended. */
function sealedText(table: SealedTable, row: Row): string {
  const facts = `${table} ${idOfFacts(table, row)}`;
  return table === "runs" ? `${facts} ${String(row["status"])} ${String(row["ended"] ?? "")}` : facts;
}

/** A row with the seal of this machine: only for what this program itself measured or did. */
export function sealed(db: Database, table: SealedTable, row: Row): Row {
  return { ...row, seal: db.seals.make(sealedText(table, row)) ?? null };
}

/** Whether a row was sealed with the key of this machine. */
export function provenanceOf(db: Database, table: SealedTable, row: Row): Provenance {
  const { seal } = row;
  return typeof seal === "string" && db.seals.made(sealedText(table, row), seal) ? "here" : "imported";
}
