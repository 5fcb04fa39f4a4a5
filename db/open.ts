/**
 * @file Opens the file: recognises it, migrates its schema, and sets the durability of commits.
 *
 *     const db = openDatabase("automap.db");
 *     recordTrial(db, { ... });
 *     db.close();
 *
 * WAL lets readers read while one process writes; `synchronous = FULL` makes a commit survive a power cut, not only a kill.
 */

import { accessSync, constants, existsSync, rmSync, statSync } from "node:fs";
import { dirname } from "node:path";
import Sqlite from "better-sqlite3";
import { memoisedPair } from "../abstraction/collections.ts";
import {
  automapCommand,
  checkNames,
  internal,
  NotFoundError,
  quotedWords,
  reasonOf,
  UsageError,
} from "../abstraction/error.ts";
import { type Seals, sealsOf } from "../abstraction/seal.ts";
import { visible } from "../abstraction/text.ts";
import { databaseWords } from "./default.ts";
import { DatabaseError, explained, isBusy, isFull } from "./error.ts";
import { copyTo, filesOf, freeName, identityOf, MEMORY, Place } from "./place.ts";
import { APPLICATION_ID, MIGRATIONS, UNRELEASED_ID } from "./schema.ts";

/** An open database of trials. */
export interface Database {
  readonly path: string;
  readonly readonly: boolean;
  /** A message for the user: the file was migrated. */
  readonly notice: string | undefined;
  /** How long an operation waits for other processes, in milliseconds. */
  readonly patience: number;
  /** Makes and checks the seals of records measured here. */
  readonly seals: Seals;
  readonly sqlite: Sqlite.Database;
  /** Closes the file, after which the database must not be used. */
  close(): void;
}

/** Options for opening a database. */
export interface OpenOptions {
  /** Open for reading only; the file must exist. */
  readonly readonly?: boolean;
  /** Fail when the file does not exist. */
  readonly existing?: boolean;
  /** How long an operation waits for other processes, in milliseconds. */
  readonly patience?: number;
  /** File of the key that seals records measured here; see `sealsOf`. */
  readonly key?: string;
}

/** Milliseconds. Searches write a row within milliseconds, so only a stuck program holds the lock this long. */
const PATIENCE = 30_000;

/**
 * Opens a database and creates the file if needed; `:memory:` keeps it in memory.
 * @throws UsageError when the file is missing (readonly), not automap's, or cannot be opened; DatabaseError when it is damaged or stays locked
 */
export function openDatabase(path: string, options: OpenOptions = {}): Database {
  checkNames(options, { readonly: true, existing: true, patience: true, key: true }, "openDatabase");
  const { readonly = false, patience = PATIENCE } = options;
  const seals = sealsOf(options.key);
  checkPath(path, readonly, options.existing ?? readonly);
  return patiently(path, patience, "opening it", () => {
    const isNew = !readonly && path !== MEMORY && !existsSync(path);
    const [before] = filesOf(path).map(identityOf);
    const sqlite = new Sqlite(path, { readonly, fileMustExist: readonly, timeout: Math.min(patience, 5000) });
    try {
      // The file may come from someone else, so its schema must not run functions and its cells are checked.
      sqlite.pragma("trusted_schema = OFF");
      sqlite.pragma("cell_size_check = ON");

      // 1. Whose file it is, and its version; nothing is written before that is known.
      const found = recognise(sqlite, path);
      if (found > 0) checkSchema(sqlite, path, found);
      if (readonly && found === 0)
        throw new NotFoundError(`${path} is empty`, "automap tune fills it: automap tune --help");
      if (readonly) {
        const read = handle(sqlite, path, true, patience, seals, undefined);
        return { ...read, close: () => closeTidily(sqlite, path) };
      }

      // 2. Durability of commits.
      const mode = sqlite.pragma("journal_mode = WAL", { simple: true });
      if (mode !== "wal" && path !== MEMORY)
        throw new UsageError(
          `${path}: the file system allows no write-ahead log (journal mode ${String(mode)})`,
          "keep the database in a directory on a local disk",
        );
      sqlite.pragma("synchronous = FULL");

      // 3. Migration of the schema.
      const backup = found === MIGRATIONS.length ? undefined : migrate(sqlite, path, found);
      const notice =
        backup &&
        `${path} was brought from schema ${found} to ${MIGRATIONS.length}; the file as it was is kept in ${backup}`;
      places.set(sqlite, new Place(sqlite, path, before));
      return handle(sqlite, path, false, patience, seals, notice);
    } catch (error) {
      const isUnbegun = isNew && isFull(error) && holdsNothing(sqlite, path);
      sqlite.close();
      if (isUnbegun) for (const end of ["", "-wal", "-shm"]) rmSync(path + end, { force: true });
      throw error;
    }
  });
}

/**
 * Opens and closes an existing database, or checks that one could be created, so that long work does not fail at its end.
 * @returns a message for the user
 * @throws like {@link openDatabase}
 */
export function checkDatabase(path: string): string | undefined {
  if (path === MEMORY || !existsSync(path)) {
    checkPath(path, false, false);
    return undefined;
  }
  const db = openDatabase(path);
  db.close();
  return db.notice;
}

/** Where the databases that are open for writing lie. */
const places = new WeakMap<Sqlite.Database, Place>();

/**
 * Runs a transaction that takes the write lock first, so that another writer cannot make it fail half way.
 * @throws DatabaseError if the file was deleted or replaced meanwhile; what was written is then in a copy
 */
export function write<T>(db: Database, doing: string, work: () => T): T {
  if (db.readonly) throw new UsageError(`${db.path} is open for reading only`, "open it without readonly to write");
  const done = patiently(db.path, db.patience, doing, () => db.sqlite.transaction(work).immediate());
  checkPlace(db, doing);
  return done;
}

/** @throws DatabaseError if the file was deleted or replaced since it was opened; what it holds is then in a copy */
export function checkPlace({ sqlite }: Database, doing: string): void {
  places.get(sqlite)?.check(doing);
}

/** Gives the room of deleted rows back to the disk. */
export function compact({ path, patience, sqlite }: Database): void {
  patiently(path, patience, "compacting it", () => sqlite.exec("VACUUM"));
}

/** A prepared statement, cached for each open file. */
export function statement(db: Database, sql: string): Sqlite.Statement<unknown[], unknown> {
  return prepared(db.sqlite, sql);
}
const prepared = memoisedPair((sqlite: Sqlite.Database, sql: string) => sqlite.prepare<unknown[], unknown>(sql));

/** Several reads within one snapshot. */
export function read<T>(db: Database, work: () => T): T {
  return patiently(db.path, db.patience, "reading it", () => db.sqlite.transaction(work).deferred());
}

/** Retries while other processes hold the lock. `work` must have no effect when it throws. */
function patiently<T>(path: string, patience: number, doing: string, work: () => T): T {
  const end = performance.now() + patience;
  for (;;) {
    try {
      return work();
    } catch (error) {
      if (!isBusy(error) || performance.now() >= end) throw explained(error, path, doing);
      sleep(10);
    }
  }
}

function sleep(milliseconds: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, milliseconds);
}

function handle(
  sqlite: Sqlite.Database,
  path: string,
  readonly: boolean,
  patience: number,
  seals: Seals,
  notice: string | undefined,
): Database {
  sqlite.pragma("foreign_keys = ON");
  // In kilobytes: keeps the upper index pages of a million trials in memory.
  sqlite.pragma("cache_size = -65536");
  return { path, readonly, notice, patience, seals, sqlite, close: () => void sqlite.close() };
}

/**
 * Closes a connection that only read. A reader creates a log, or keeps the one of a writer that ended before it, but cannot remove it; the last
 * connection that may write does, where the folder permits.
 */
function closeTidily(sqlite: Sqlite.Database, path: string): void {
  sqlite.close();
  try {
    const last = new Sqlite(path, { fileMustExist: true, timeout: 0 });
    last.pragma("schema_version");
    last.close();
  } catch {
    // Another process uses the file, or the folder is read-only: the files stay and do no harm.
  }
}

/** Distinguishes causes for which SQLite only says "unable to open database file", or waits for ever. */
function checkPath(path: string, readonly: boolean, existing: boolean): void {
  if (path === MEMORY) {
    if (!existing) return;
    throw new UsageError(`${path} is a new database each time, which holds nothing to read`, "name a file");
  }
  // better-sqlite3 would cut these, and take an empty name for a temporary file.
  if (path !== path.trim() || path === "")
    throw new UsageError(`"${path}" is no name for a database`, "name a file, without blanks around it");
  const found = statSync(path, { throwIfNoEntry: false });
  if (found?.isDirectory()) throw new UsageError(`${path} is a directory`, "name a file in it");
  // SQLite would wait for what comes out of a pipe.
  const special = filesOf(path).find((file) => statSync(file, { throwIfNoEntry: false })?.isFile() === false);
  if (special !== undefined)
    throw new UsageError(`${special} is a pipe, a device or the like, not a file`, "name a file");
  if (!found && existing)
    throw new NotFoundError(
      `there is no database at ${path}`,
      `automap tune makes one: ${automapCommand("tune", "conv2d", databaseWords(path))}; or name yours`,
    );
  if (!existsSync(dirname(path)))
    throw new DatabaseError(
      "readonly",
      `${path} cannot be written: there is no directory ${dirname(path)}`,
      "make it first, or name another",
    );
  if (readonly) return;
  try {
    accessSync(found ? path : dirname(path), constants.W_OK);
  } catch (error) {
    const what = found ? `${path} cannot be written` : `${path} cannot be made in ${dirname(path)}`;
    const whose = found ? "its permissions" : "the permissions of the folder";
    throw new DatabaseError("readonly", `${what}: ${reasonOf(error)}`, `change ${whose}, or name another file`);
  }
}

/** SQLite's page, of which a file has one as soon as its journal mode is set. */
const FIRST_PAGE_BYTES = 4096;

/** Whether nothing was committed to a file that a full disk did not let begin. Another process may have begun it meanwhile. */
function holdsNothing(sqlite: Sqlite.Database, path: string): boolean {
  try {
    return recognise(sqlite, path) === 0;
  } catch {
    // Without room for the -shm file nothing can be read. Nobody has committed if the log is empty and the file holds no more than its first page.
    const sizeOf = (file: string): number => statSync(file, { throwIfNoEntry: false })?.size ?? 0;
    return sizeOf(`${path}-wal`) === 0 && sizeOf(path) <= FIRST_PAGE_BYTES;
  }
}

/** The version of the schema; 0 for a file without content. @throws UsageError when this automap does not read the file */
function recognise(sqlite: Sqlite.Database, path: string): number {
  // A single statement reads one snapshot, because another process may be creating the file.
  const found =
    sqlite
      .prepare<[], { application: number; version: number; tables: number }>(
        `SELECT application_id AS application, user_version AS version, (SELECT count(*) FROM sqlite_schema) AS tables
       FROM pragma_application_id, pragma_user_version`,
      )
      .get() ?? internal("a pragma has no value");
  const { application, version, tables } = found;
  if (application === UNRELEASED_ID)
    throw new UsageError(
      `${path} was written by automap 0.1, whose records this automap cannot read`,
      "tune again into another file; this one was not touched",
    );
  if (application === APPLICATION_ID && version > MIGRATIONS.length)
    throw new UsageError(
      `${path} was written by a newer automap (schema ${version}, this one reads schemas up to ${MIGRATIONS.length})`,
      "upgrade automap, or name another file; this one was not touched",
    );
  if (application === APPLICATION_ID && version > 0) return version;
  if (application === 0 && version === 0 && tables === 0) return 0;
  throw new UsageError(
    `${path} is a SQLite database, but not one of automap's`,
    "name another file; this one was not touched",
  );
}

/**
 * Checks that our tables and triggers are exactly those of our schema and that there are no other triggers. A view instead of a table could run
 * for ever, a trigger could write what nobody recorded, and without one of ours facts could be changed. Indexes and views that somebody added are
 * ignored, because no query uses them. @throws UsageError naming the object that differs
 */
function checkSchema(sqlite: Sqlite.Database, path: string, version: number): void {
  const held = objectsIn(sqlite);
  const made = madeBy(MIGRATIONS, version);
  const isTrigger = (sql: string): boolean => sql.startsWith("CREATE TRIGGER");
  const differs = ([name, sql]: readonly [string, string]): boolean =>
    held.get(name) !== sql && (sql.startsWith("CREATE TABLE") || isTrigger(sql) || held.has(name));
  const wrong = [...made].find(differs) ?? [...held].find(([name, sql]) => isTrigger(sql) && !made.has(name));
  if (wrong && isTrigger(wrong[1]) && !held.has(wrong[0]))
    throw new UsageError(
      `${path} has no ${wrong[0]}, which keeps its facts from being changed`,
      `something else removed it; if you know what, put it back: ${quotedWords("sqlite3", path, wrong[1])}`,
    );
  if (wrong !== undefined)
    throw new UsageError(
      `${path}: its ${visible(wrong[0])} is not what automap makes of a schema ${version}`,
      "something else wrote this file, so nothing in it is read; name another",
    );
}

/** `trials` and its definition without whitespace; objects that SQLite creates itself are left out. */
function objectsIn(sqlite: Sqlite.Database): Map<string, string> {
  const rows = sqlite
    .prepare<[], { name: string; about: string; sql: string }>(
      "SELECT name, tbl_name AS about, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name",
    )
    .all();
  return new Map(
    rows.map(({ name, about, sql }) => [name === about ? name : `${name} of ${about}`, sql.replaceAll(/\s+/g, " ")]),
  );
}

/** The objects of a file after the first migrations. */
const madeBy = memoisedPair((migrations: readonly string[], count: number): Map<string, string> => {
  const fresh = new Sqlite(MEMORY);
  try {
    for (const sql of migrations.slice(0, count)) fresh.exec(sql);
    return objectsIn(fresh);
  } finally {
    fresh.close();
  }
});

/** Runs the missing migrations in one transaction. @returns the path of the backup, if the file held anything */
function migrate(sqlite: Sqlite.Database, path: string, from: number): string | undefined {
  const backup = from === 0 ? undefined : freeName(path, `v${from}-backup`);
  if (backup !== undefined) copyTo(sqlite, backup);
  sqlite
    .transaction(() => {
      // Another process may have migrated the file in the meantime.
      for (const sql of MIGRATIONS.slice(recognise(sqlite, path))) sqlite.exec(sql);
      sqlite.pragma(`user_version = ${MIGRATIONS.length}`);
      sqlite.pragma(`application_id = ${APPLICATION_ID}`);
    })
    .immediate();
  return backup;
}
