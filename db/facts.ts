/**
 * @file The facts of a record, whose hash is its id. Empty facts are left out of the hash, so a column that is added changes no id. No fact is
 * removed or changes its meaning; a changed fact gets a new name.
 */

import { COLUMNS, type Column, type Table } from "./columns.ts";
import { idOf } from "./identity.ts";

export type { Table } from "./columns.ts";

/** A row of a table. */
export type Row = Readonly<Record<string, string | number | null>>;

export const TABLE_NAMES = Object.keys(COLUMNS) as readonly Table[]; // its own keys

/** A column that is valid on one machine only and is not exported. */
export const LOCAL = "seal";

export interface NamedColumn extends Column {
  readonly name: string;
}

/** Something of each table. */
export function byTable<T>(make: (table: Table) => T): Record<Table, T> {
  return {
    environments: make("environments"),
    workloads: make("workloads"),
    runs: make("runs"),
    trials: make("trials"),
    calibrations: make("calibrations"),
  };
}

/** The columns of each table, without its id and its seal. */
export const COLUMNS_OF = byTable((table): readonly NamedColumn[] =>
  Object.entries<Column>(COLUMNS[table]).map(([name, column]) => ({ name, ...column })),
);

/** What one row of a table is called. */
export function kindOf(table: Table): string {
  return table.slice(0, -1);
}

/** Numbers of rows by table, none yet. */
export const noRows = (): Record<Table, number> => byTable(() => 0);

/** The id of a row's facts. */
export function idOfFacts(table: Table, row: Row): string {
  const held = COLUMNS_OF[table].filter(({ name, changes }) => !changes && (row[name] ?? null) !== null);
  return idOf(Object.fromEntries(held.map(({ name }) => [name, row[name]])));
}

/** Tables whose rows are sealed. */
export type SealedTable = "runs" | "trials" | "calibrations";

export function isSealedTable(table: Table): table is SealedTable {
  return table === "runs" || table === "trials" || table === "calibrations";
}
