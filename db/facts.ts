/**
 * @file The facts of a record, whose hash is its id: for each table, a list of columns by version.
 *
 *     trials     1: run workload environment candidate ... at        2: comparison place        3: load        4: clock        5: lost_to
 *
 * A version adds facts to the earlier ones. No fact is removed or changes its meaning; a changed fact gets a new name. Empty facts of later versions
 * are left out of the hash. So
 *
 * - a record written before a version keeps its id;
 * - an id is bound to its version, because the names of the later facts that a record holds are hashed too;
 * - a column that is not a fact, such as one added by a newer automap, changes no id.
 */

import { idOf } from "./identity.ts";

/** A row of a table. */
export type Row = Readonly<Record<string, string | number | null>>;

/** Facts by table, in order of reference, with one string per version. */
const FACTS = {
  environments: ["target cpu cores isa compiler compiler_version flags kernel driver node automap"],
  workloads: ["operator computation equation extents parameters tensors dtype sum points", "name"],
  runs: ["workload environment seed options budget process started"],
  trials: [
    `run workload environment candidate intrinsic declaration status log median low high samples
     instructions predicted uncorrected levels threads cache affinity at`,
    "comparison place",
    "load",
    "clock",
    "lost_to",
  ],
  calibrations: ["environment data at"],
} as const satisfies Readonly<Record<string, readonly [first: string, ...later: string[]]>>;
export type Table = keyof typeof FACTS;
export const TABLE_NAMES = Object.keys(FACTS) as readonly Table[]; // its own keys

/** A column that is valid on one machine only and is not exported. */
export const LOCAL = "seal";

/** Columns that are not facts and may change: how a run ended. */
const BESIDE: Readonly<Partial<Record<Table, readonly string[]>>> = { runs: ["ended", "status"] };

interface Known {
  readonly first: readonly string[];
  readonly later: readonly string[];
  /** Exported columns: the id, the facts, and the columns beside them. */
  readonly columns: readonly string[];
}

const KNOWN: ReadonlyMap<Table, Known> = new Map(
  TABLE_NAMES.map((table) => {
    const [first, ...others] = FACTS[table].map((version: string) => version.split(/\s+/));
    const known = { first: first ?? [], later: others.flat() };
    return [table, { ...known, columns: ["id", ...known.first, ...known.later, ...(BESIDE[table] ?? [])] }];
  }),
);

function knownOf(table: Table): Known {
  const known = KNOWN.get(table);
  if (!known) throw new Error(`internal: no table ${table}`);
  return known;
}

/** The exported columns of a table. */
export function columnsOf(table: Table): readonly string[] {
  return knownOf(table).columns;
}

/** Whether a column is a fact of a later version, which earlier records lack. */
export function isLater(table: Table, column: string): boolean {
  return knownOf(table).later.includes(column);
}

/** The id of a row's facts. */
export function idOfFacts(table: Table, row: Row): string {
  const { first, later } = knownOf(table);
  const held = later.filter((column) => row[column] !== undefined && row[column] !== null);
  return idOf(Object.fromEntries([...first, ...held].map((column) => [column, row[column] ?? null])));
}

/** Filled columns that this automap does not know, perhaps facts of a later version. */
export function unknownIn(table: Table, row: Row): readonly string[] {
  const { columns } = knownOf(table);
  return Object.keys(row).filter((name) => name !== LOCAL && row[name] !== null && !columns.includes(name));
}
