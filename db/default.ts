/** @file The database that commands use by default, and the option that a command to paste needs for any other. */

import { shellWord } from "../abstraction/text.ts";

/** Where a command looks that names no other. */
export const DEFAULT_DATABASE = "automap.db";

/** ` --db other.db` behind a command to paste; nothing where the command looks there anyway. */
export function databaseOption(path: string): string {
  return path === DEFAULT_DATABASE ? "" : ` --db ${shellWord(path)}`;
}
