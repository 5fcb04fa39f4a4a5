/**
 * @file The facts of a record, whose hash is its id. Empty facts are left out of the hash, so a column that is added changes no id. No fact is
 * removed or changes its meaning; a changed fact gets a new name.
 */

import { idOf } from "./identity.ts";

/** A row of a table. */
export type Row = Readonly<Record<string, string | number | null>>;

/** Facts by table, in order of reference. */
const FACTS = {
  environments: "target cpu cores isa compiler compiler_version flags kernel driver node automap",
  workloads: "operator computation equation extents parameters tensors dtype sum points name",
  runs: "workload environment seed options budget process started",
  trials: `run workload environment candidate intrinsic declaration status log median low high samples instructions
    predicted uncorrected levels threads cache affinity at comparison place load clock lost_to`,
  calibrations: "environment data at",
} as const;
export type Table = keyof typeof FACTS;
export const TABLE_NAMES = Object.keys(FACTS) as readonly Table[]; // its own keys

/** A column that is valid on one machine only and is not exported. */
export const LOCAL = "seal";

/** Columns that are not facts and may change: how a run ended. */
const BESIDE: Readonly<Partial<Record<Table, readonly string[]>>> = { runs: ["ended", "status"] };

const factsOf = (table: Table): readonly string[] => FACTS[table].split(/\s+/);

/** The exported columns of a table: the id, the facts, and the columns beside them. */
export function columnsOf(table: Table): readonly string[] {
  return ["id", ...factsOf(table), ...(BESIDE[table] ?? [])];
}

/** The id of a row's facts. */
export function idOfFacts(table: Table, row: Row): string {
  const held = factsOf(table).filter((column) => row[column] !== undefined && row[column] !== null);
  return idOf(Object.fromEntries(held.map((column) => [column, row[column]])));
}
