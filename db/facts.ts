/**
 * @file The facts of a record, whose hash is its id: for each table, a list of columns by version.
 *
 *     trials     1: run workload environment candidate ... at        2: comparison place        3: load        4: clock        5: lost_to
 *
 * A version adds facts to those before it. No fact is removed and none changes its meaning: a changed fact gets a new name. Facts of a later
 * version that are empty are left out of the hash. So
 *
 * - a record written before a version has the id it had;
 * - an id is bound to its version, since the names of the later facts a record holds are hashed with them;
 * - a column that is no fact (what was added beside them, what a newer automap added) changes no id.
 */

import { idOf } from "./identity.ts";

/** A row as it stands in its table. */
export type Row = Readonly<Record<string, string | number | null>>;

/** By table, those that others refer to first; a text a version. */
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

/** Holds on one machine only, and so does not travel in lines. */
export const LOCAL = "seal";

/** What a row says beside its facts, and what may change: how a run ended. */
const BESIDE: Readonly<Partial<Record<Table, readonly string[]>>> = { runs: ["ended", "status"] };

interface Known {
  readonly first: readonly string[];
  readonly later: readonly string[];
  /** What travels in lines: the id, the facts, and what stands beside them. */
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

/** The columns of a table that travel between files. */
export function columnsOf(table: Table): readonly string[] {
  return knownOf(table).columns;
}

/** Whether a column is a fact of a later version: records of earlier ones do not have it. */
export function isLater(table: Table, column: string): boolean {
  return knownOf(table).later.includes(column);
}

/** The id that the facts of a row make. */
export function idOfFacts(table: Table, row: Row): string {
  const { first, later } = knownOf(table);
  const held = later.filter((column) => row[column] !== undefined && row[column] !== null);
  return idOf(Object.fromEntries([...first, ...held].map((column) => [column, row[column] ?? null])));
}

/** Columns in which a row holds something that this automap does not know: perhaps facts of a version to come. */
export function unknownIn(table: Table, row: Row): readonly string[] {
  const { columns } = knownOf(table);
  return Object.keys(row).filter((name) => name !== LOCAL && row[name] !== null && !columns.includes(name));
}
