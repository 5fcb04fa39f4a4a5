/**
 * @file Where an open database lies: whether its path still names the open file, and copies of what it holds.
 *
 *     const place = new Place(sqlite, "automap.db", undefined);
 *     place.check("recording a trial")           throws once automap.db was deleted or replaced; all is in automap.rescued.db
 *
 * A deleted file lives as long as it is open, and takes records which nobody can read afterwards.
 */

import { closeSync, existsSync, fsyncSync, openSync, renameSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, format, join, parse } from "node:path";
import type Sqlite from "better-sqlite3";
import { quotedWords, reasonOf } from "../abstraction/error.ts";
import { databaseWords } from "./default.ts";
import { DatabaseError } from "./error.ts";

/** The path of a database that is no file. */
export const MEMORY = ":memory:";

/** The files of a database: itself, its write-ahead log, and the index of that, which its processes share. */
export const filesOf = (path: string): readonly string[] =>
  path === MEMORY ? [] : ["", "-wal", "-shm"].map((end) => path + end);

/** The file that a path names, by device and number; undefined where there is none. */
export function identityOf(path: string): string | undefined {
  // Numbers of files may be larger than those that a double holds.
  const found = statSync(path, { bigint: true, throwIfNoEntry: false });
  return found && `${found.dev} ${found.ino}`;
}

/** The place of a database that is open for writing. */
export class Place {
  private readonly sqlite: Sqlite.Database;
  private readonly path: string;
  private readonly opened: readonly (string | undefined)[];
  /** The copy, once it was needed. */
  private rescued: string | undefined;

  /** @param before the file that the path named before it was opened. @throws DatabaseError if it names another now */
  constructor(sqlite: Sqlite.Database, path: string, before: string | undefined) {
    this.sqlite = sqlite;
    this.path = path;
    // Reading opens the files beside it.
    sqlite.pragma("user_version");
    this.opened = filesOf(path).map(identityOf);
    if (before !== undefined && before !== this.opened[0])
      throw new DatabaseError(
        "moved",
        `${path} was deleted or replaced while it was opened`,
        "run the same command again",
      );
  }

  /**
   * Compares the open files with those that the path names now.
   * @throws DatabaseError naming the copy to which everything was saved
   */
  check(doing: string): void {
    const files = filesOf(this.path);
    const file = files.find((name, i) => this.opened[i] !== undefined && this.opened[i] !== identityOf(name));
    if (file === undefined) return;
    const what = `${file} was ${existsSync(file) ? "replaced" : "deleted"} while ${doing}`;
    throw new DatabaseError("moved", what, this.rescue());
  }

  /** Saves what the open file holds, again if something was added, and says where. */
  private rescue(): string {
    const { sqlite, path } = this;
    // Its folder may be gone too.
    const places = [path, basename(path), join(tmpdir(), basename(path))];
    let failure: unknown;
    for (const copy of this.rescued === undefined ? places.map((at) => freeName(at, "rescued")) : [this.rescued])
      try {
        copyTo(sqlite, copy);
        this.rescued = copy;
        this.dropLogs();
        return `all that it held, and what was measured since, is in ${copy}: move it back, or go on with ${quotedWords(databaseWords(copy))}`;
      } catch (error) {
        failure = error;
      }
    return `what it held could not be saved: ${reasonOf(failure)}`;
  }

  /** Deletes the log and its index where the file itself is gone: another file of this name, as the copy moved back, would be spoilt by them. */
  private dropLogs(): void {
    if (this.opened[0] === identityOf(this.path)) return;
    filesOf(this.path).forEach((name, i) => {
      if (i > 0 && this.opened[i] !== undefined && this.opened[i] === identityOf(name)) rmSync(name);
    });
  }
}

/** `automap.NAME.db` beside `automap.db`, or a name with a number where that is taken. */
export function freeName(path: string, as: string): string {
  const { dir, name, ext } = parse(path);
  const named = (suffix: string): string => format({ dir, name: `${name}.${as}${suffix}`, ext });
  let free = named("");
  for (let i = 2; existsSync(free); i++) free = named(`-${i}`);
  return free;
}

/** Copies a database to a file, whole and synced to disk or not at all. */
export function copyTo(sqlite: Sqlite.Database, copy: string): void {
  const draft = `${copy}.${process.pid}.partial`;
  try {
    sqlite.prepare("VACUUM INTO ?").run(draft);
    const file = openSync(draft, "r+");
    fsyncSync(file);
    closeSync(file);
    renameSync(draft, copy);
  } finally {
    rmSync(draft, { force: true });
  }
}
