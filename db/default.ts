/** @file The database that commands use by default, and the option that a command to paste needs for any other. */

import { shellWord } from "../abstraction/text.ts";

/** The database of commands that name none. */
export const DEFAULT_DATABASE = "automap.db";

/** ` --db other.db` for a command to paste; empty for the default database. */
export function databaseOption(path: string): string {
  return path === DEFAULT_DATABASE ? "" : ` --db ${shellWord(path)}`;
}
