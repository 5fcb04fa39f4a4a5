/**
 * @file Explains SQLite errors to the user, with what to do about each.
 *
 *     SQLITE_FULL   ->   automap.db: no space left on the device while recording a trial
 *                          nothing of it was written; free some space and run the same command again
 */

import { dirname } from "node:path";
import Sqlite from "better-sqlite3";
import { automapCommand, EnvironmentError, MachineFault, UsageError } from "../abstraction/error.ts";
import { databaseWords } from "./default.ts";

/** A failure of a database: its disk, its locks, its permissions. */
export class DatabaseError extends MachineFault {
  readonly reason: "full" | "locked" | "readonly" | "damaged" | "io" | "moved";

  constructor(reason: DatabaseError["reason"], message: string, hint: string, cause?: unknown) {
    super(`${message}\n  ${hint}`, cause === undefined ? {} : { cause });
    this.name = "DatabaseError";
    this.reason = reason;
  }
}

/** Another connection holds the lock. */
export function isBusy(error: unknown): boolean {
  return error instanceof Sqlite.SqliteError && /^SQLITE_(BUSY|LOCKED)/.test(error.code);
}

/** The disk has no room. */
export function isFull(error: unknown): boolean {
  // The -shm file could not grow: the first write to a full disk.
  return error instanceof Sqlite.SqliteError && /^SQLITE_(FULL|IOERR_SHMSIZE)/.test(error.code);
}

/**
 * The error to show instead of SQLite's; other errors pass unchanged.
 * @param doing the operation, `recording a trial`
 */
export function explained(error: unknown, path: string, doing: string): unknown {
  // better-sqlite3 throws a RangeError for an integer that a number cannot hold.
  if (error instanceof RangeError)
    return new DatabaseError(
      "damaged",
      `${path} holds a number that automap never writes`,
      `${automapCommand("db", "verify", databaseWords(path))} names the row; automap db merge into a new file takes the others`,
      error,
    );
  if (error instanceof Error && /bindings file|NODE_MODULE_VERSION|invalid ELF header/.test(error.message))
    return new EnvironmentError(
      {
        what: "better-sqlite3 has no compiled part for this Node",
        why: "databases are read and written with it; npm leaves it out with --ignore-scripts, and another version of Node needs another",
        remedy: "npm rebuild better-sqlite3",
      },
      error,
    );
  if (!(error instanceof Sqlite.SqliteError)) return error;
  if (isFull(error)) return fullDisk(path, doing, error);
  const said = `${path}: ${error.message} (${error.code}) while ${doing}`;
  // An extended code refines its primary one: SQLITE_READONLY_DBMOVED is an SQLITE_READONLY.
  const code = error.code.split("_", 2).join("_");
  switch (code) {
    case "SQLITE_NOTADB":
      return new UsageError(`${path} is not a SQLite database`, "name another file");
    case "SQLITE_READONLY":
      if (error.code === "SQLITE_READONLY_DIRECTORY")
        return new DatabaseError(
          "readonly",
          `${path} lies in a directory that cannot be written`,
          "even reading needs -wal and -shm files beside it: copy it to a directory of yours",
          error,
        );
      return new DatabaseError(
        "readonly",
        `${path} cannot be written (${error.code}) while ${doing}`,
        "make the file and its directory writable, or name another",
        error,
      );
    case "SQLITE_CANTOPEN":
    case "SQLITE_PERM":
    case "SQLITE_AUTH":
      return new DatabaseError(
        "readonly",
        `${path} cannot be opened`,
        `look at the permissions of the file and of ${dirname(path)}: even reading needs -wal and -shm files beside it`,
        error,
      );
    case "SQLITE_BUSY":
    case "SQLITE_LOCKED":
      return new DatabaseError(
        "locked",
        `${path} stayed locked by another process while ${doing}`,
        "end the program that holds it (lsof names it) and run the same command again",
        error,
      );
    case "SQLITE_CORRUPT":
      return new DatabaseError("damaged", said, `save what can be read: sqlite3 ${path} .recover`, error);
    case "SQLITE_IOERR":
      return new DatabaseError("io", said, "the disk refused; what was committed before is in the file", error);
    default:
      return error;
  }
}

const fullDisk = (path: string, doing: string, error: unknown): DatabaseError =>
  new DatabaseError(
    "full",
    `${path}: no space left on the device while ${doing}`,
    "nothing of it was written; free some space and run the same command again",
    error,
  );
