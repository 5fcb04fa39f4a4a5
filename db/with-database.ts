/** @file Opens a database while something uses it: for reading, unless it says otherwise. */

import { type Database, type OpenOptions, openDatabase } from "./open.ts";

/** Returns the result of `work`. The database is closed afterwards, or when the promise that `work` returned settles. */
export function withDatabase<T>(path: string, work: (db: Database) => T, how: OpenOptions = { readonly: true }): T {
  const db = openDatabase(path, how);
  let promised = false;
  try {
    const given = work(db);
    if (!(given instanceof Promise)) return given;
    promised = true;
    return given.finally(() => db.close()) as T; // the same promise
  } finally {
    if (!promised) db.close();
  }
}
