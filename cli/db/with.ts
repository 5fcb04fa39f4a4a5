/** @file A database open for reading while a command looks. */

import { type Database, openDatabase } from "../../db/index.ts";
import { EXIT, type ExitCode, say } from "../output.ts";

export function withDatabase(path: string, work: (db: Database) => void): ExitCode {
  const db = openDatabase(path, { readonly: true });
  try {
    if (db.notice !== undefined) say(`automap: ${db.notice}`);
    work(db);
    return EXIT.ok;
  } finally {
    db.close();
  }
}
