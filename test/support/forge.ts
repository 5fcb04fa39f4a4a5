/**
 * @file Records as a stranger would forge them: facts changed at will, every id and every reference made to fit again.
 *
 *     const records = recordsIn(exportLines(db));
 *     forgedLines(records, ({ environment }) => { environment.cpu = "\u001b[2J"; })
 */

import { canonicalJson } from "../../abstraction/candidate.ts";
import { COLUMNS_OF, idOfFacts, kindOf, type Row, TABLE_NAMES } from "../../db/facts.ts";

/** The data of one line. */
export type Line = Record<string, unknown> & { readonly kind: string };

export function recordsIn(lines: Iterable<string>): Line[] {
  return [...lines].map((line) => JSON.parse(line) as Line);
}

/** The lines of records after `change`, with ids that their facts make and references that hold. */
export function forgedLines(records: readonly Line[], change: (record: Line) => void): string[] {
  const renamed = new Map<unknown, string>();
  return records.map((given) => {
    const record = structuredClone(given);
    change(record);
    if (idOf(record) === undefined) return JSON.stringify(record);
    for (const column of ["workload", "environment", "run"])
      if (renamed.has(record[column])) record[column] = renamed.get(record[column]);
    const line = JSON.stringify(record);
    if (line === JSON.stringify(given)) return line;
    const id = idOf(record) ?? "";
    renamed.set(given["id"], id);
    record["id"] = id;
    return JSON.stringify(record);
  });
}

/** The id that an importer computes for a line; undefined for one that is no record. */
export function idOf({ kind, ...data }: Line): string | undefined {
  const table = TABLE_NAMES.find((name) => kindOf(name) === kind);
  if (!table) return undefined;
  const cells = COLUMNS_OF[table].map(({ name, type }) => {
    const value = data[name] ?? null;
    return [name, type === "JSON" && value !== null ? canonicalJson(value) : value];
  });
  return idOfFacts(table, Object.fromEntries(cells) as Row);
}

/** A place in a record: the keys that lead to it. */
export type Path = readonly (string | number)[];

/** Every place of a record that holds a text, and every place whose name is a text that somebody chose. */
export function textsIn(value: unknown, path: Path = []): { readonly path: Path; readonly isName: boolean }[] {
  if (typeof value === "string") return [{ path, isName: false }];
  if (value === null || typeof value !== "object") return [];
  return Object.entries(value).flatMap(([key, inner]) => {
    const below = [...path, Array.isArray(value) ? Number(key) : key];
    const named = Array.isArray(value) || path.length === 0 ? [] : [{ path: below, isName: true }];
    return [...named, ...textsIn(inner, below)];
  });
}

/** Puts a value at a place, or names the place so. */
export function plant(
  record: Line,
  { path, isName }: { readonly path: Path; readonly isName: boolean },
  planted: unknown,
): void {
  const last = path.at(-1);
  let holder: unknown = record;
  for (const key of path.slice(0, -1)) holder = (holder as Record<string, unknown>)[key];
  if (last === undefined || typeof holder !== "object" || holder === null)
    throw new Error(`no place ${path.join(".")}`);
  const entries = holder as Record<string, unknown>;
  if (!isName) entries[last] = planted;
  else {
    const { [last]: value } = entries;
    delete entries[last];
    Object.defineProperty(entries, String(planted), { value, enumerable: true, configurable: true, writable: true });
  }
}
