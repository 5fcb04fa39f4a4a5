/** @file Opens a database while a command uses it, and says what was done to the file. */

import { type Database, type OpenOptions, withDatabase as withOpened } from "../db/index.ts";
import { say } from "./output.ts";

/** As `withDatabase` of db, for commands. */
export function withDatabase<T>(path: string, work: (db: Database) => T, how?: OpenOptions): T {
  const told = (db: Database): T => {
    if (db.notice !== undefined) say(`automap: ${db.notice}`);
    return work(db);
  };
  return withOpened(path, told, how);
}
