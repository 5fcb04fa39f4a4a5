/** @file The database that commands use by default, and the option that a command to paste needs for any other. */

/** The database of commands that name none. */
export const DEFAULT_DATABASE = "automap.db";

/** `--db other.db` for a command to paste; no words for the default database. */
export function databaseWords(path: string): readonly string[] {
  return path === DEFAULT_DATABASE ? [] : ["--db", path];
}
