/**
 * @file Files that a command reads and writes: checked before the work starts, written under a temporary name, then renamed.
 *
 *     checkWritable("--to", "kernel.cpp")                  before a search
 *     writeOutput("--to", "kernel.cpp", source)            after it
 */

import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  openSync,
  readFileSync,
  readSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, extname } from "node:path";
import { attempt, EnvironmentError, reasonOf, remedyOf, UsageError } from "../abstraction/error.ts";
import type { Kernel, KernelLanguage } from "../abstraction/kernel.ts";
import { CM_HOST_HEAD, cmHost } from "../codegen/cm/cm-host.ts";
import { print } from "./output.ts";

/**
 * Checks a file before the work for it starts.
 * @throws EnvironmentError when a file named by an option cannot be written, so that no search is run in vain
 * @throws UsageError for a directory, and for a database and the files of SQLite beside it, whose records would be lost
 */
export function checkWritable(option: string, file: string): void {
  try {
    const found = statSync(file, { throwIfNoEntry: false });
    if (found?.isDirectory()) throw new UsageError(`${option} ${file} is a directory`, "name a file in it");
    const [, database] = /^(.+)-(?:wal|shm|journal)$/.exec(file) ?? [];
    if (database !== undefined && isDatabase(database))
      throw new UsageError(
        `${option} ${file} belongs to the database ${database}: records would be lost`,
        "name another file",
      );
    if (isDatabase(file))
      throw new UsageError(`${option} ${file} is a database: its records would be lost`, "name another file");
    accessSync(found ? file : `${dirname(file)}/.`, constants.W_OK);
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw cannotWrite(option, file, error, "its result would be lost");
  }
}

/** First bytes of every SQLite file (sqlite.org/fileformat.html). */
const DATABASE_HEAD = Buffer.from("SQLite format 3\0");

/** A file that cannot be read may still be replaced, and is taken for no database. */
function isDatabase(file: string): boolean {
  if (!statSync(file, { throwIfNoEntry: false })?.isFile()) return false;
  const head = Buffer.alloc(DATABASE_HEAD.length);
  const handle = attempt(() => openSync(file, "r"));
  if (handle === undefined) return false;
  try {
    readSync(handle, head, 0, head.length, 0);
  } finally {
    closeSync(handle);
  }
  return head.equals(DATABASE_HEAD);
}

/** Writes a whole file, or none if the disk is full or the process is killed. @throws EnvironmentError when it cannot be written */
export function writeOutput(option: string, file: string, text: string): void {
  writeLines(option, file, [text]);
}

/** The file name that stands for standard output. */
export const STDOUT = "-";

/** @throws UsageError when a kernel and a document would both go to standard output */
export function checkOneOutput({ json, to }: { readonly json: boolean; readonly to?: string | undefined }): void {
  if (json && to === STDOUT)
    throw new UsageError("--json and --to - both write to standard output", "name a file with --to");
}

/** The files of a kernel: its source and, for CM, the host program that runs it: `k.cm`, `k.host.cpp`. A pipe or a device gets the source alone. */
export function kernelFiles(file: string, language: KernelLanguage): readonly string[] {
  const beside = language === "cm" && statSync(file, { throwIfNoEntry: false })?.isFile() !== false;
  return beside ? [file, `${file.slice(0, file.length - extname(file).length)}.host.cpp`] : [file];
}

/** @throws EnvironmentError as {@link checkWritable} does; UsageError when a host program would replace a file that is not one */
export function checkKernelFiles(file: string, language: KernelLanguage, force = false): void {
  if (file === STDOUT) return;
  checkWritable("--to", file);
  const [, host] = kernelFiles(file, language);
  if (host === undefined) return;
  checkWritable("--to", host);
  if (!force && existsSync(host) && !readFileSync(host, "utf8").startsWith(CM_HOST_HEAD))
    throw new UsageError(
      `--to ${file}: the program that runs it would replace ${host}, which automap did not write`,
      "name another file, or move that one away",
    );
}

/**
 * Writes the files of a kernel, or its source alone to standard output.
 * @param force whether existing files are replaced
 * @returns their names, joined for a sentence
 */
export function writeKernel(file: string, kernel: Kernel, force = false): string {
  if (file === STDOUT) {
    print(kernel.source.trimEnd());
    return "standard output";
  }
  checkKernelFiles(file, kernel.language, force);
  const [, host] = kernelFiles(file, kernel.language);
  if (host !== undefined) writeOutput("--to", host, cmHost(kernel));
  writeOutput("--to", file, kernel.source);
  return host === undefined ? file : `${file} and ${host}`;
}

/**
 * Writes a text piece by piece, so that it is never held as a whole.
 * @param fresh whether an existing file is refused
 * @returns the number of pieces
 */
export function writeLines(option: string, file: string, pieces: Iterable<string>, fresh = false): number {
  checkWritable(option, file);
  const found = statSync(file, { throwIfNoEntry: false });
  if (found && fresh)
    throw new UsageError(`${option} ${file}: it is there already`, "name a file that is not there yet");
  // A temporary file cannot be created beside a pipe or a device.
  const draft = found?.isFile() === false ? undefined : `${file}.${process.pid}.part`;
  let count = 0;
  try {
    const handle = openSync(draft ?? file, draft === undefined ? "w" : "wx");
    try {
      for (const piece of pieces) {
        writeFileSync(handle, piece);
        count++;
      }
    } finally {
      closeSync(handle);
    }
    if (draft !== undefined) renameSync(draft, file);
    return count;
  } catch (error) {
    if (draft !== undefined) rmSync(draft, { force: true });
    if (error instanceof Error && "syscall" in error)
      throw cannotWrite(option, file, error, "nothing of it was written");
    throw error;
  }
}

function cannotWrite(option: string, file: string, error: unknown, why: string): EnvironmentError {
  const what = `${option} ${file} cannot be written: ${reasonOf(error)}`;
  return new EnvironmentError({ what, why, remedy: remedyOf(error) }, error);
}
