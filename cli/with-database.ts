/** @file A database open for reading while a command looks. */

import { type Database, openDatabase } from "../db/index.ts";
import { say } from "./output.ts";

/** What `work` gives; the database is closed behind it, or when what it promises is there. */
export function withDatabase<T>(path: string, work: (db: Database) => T): T {
  const db = openDatabase(path, { readonly: true });
  let promised = false;
  try {
    if (db.notice !== undefined) say(`automap: ${db.notice}`);
    const given = work(db);
    if (!(given instanceof Promise)) return given;
    promised = true;
    return given.finally(() => db.close()) as T; // the same promise
  } finally {
    if (!promised) db.close();
  }
}
