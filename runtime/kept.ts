/**
 * @file Compiled files, kept in a folder from one process to the next. The folder may be shared, or come from elsewhere, so nothing is run, loaded
 * or included from it: what is found there is copied into a folder of this process and used only if its seal holds.
 *
 *     const own = privatePath(entry, "part");                    compile into this
 *     await keep(own, entry)                                     "~/.local/state/automap/run/host-4711-Xb3f/0/5f0c2e.so", and a sealed copy in the cache
 *     await takeKept(entry)                                      the same path; in another process a copy of the entry, or undefined
 *
 * A seal covers the name of an entry, which is a hash of what it was compiled from, and its bytes. It stands behind them in the file. The key is that
 * of records (abstraction/seal.ts): whoever can forge an entry can forge a measurement too. An entry is read once, and the bytes that were hashed
 * are the ones that are written to the private copy; the cache may change at any time.
 */

import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { mkdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { hostname, tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { sealsOf } from "../abstraction/seal.ts";
import { isAlive, touch } from "./cache.ts";

const SEAL_BYTES = 32;
/** The most bytes of fleeting copies. A kernel has 20 kB on a CPU and 1 MB in CUDA, and is used a few dozen others after it was asked for. */
const MOST_FLEETING = 2 ** 30;

/** How long a copy stays: those of kernels and their parts are many and used at once, those of programs and headers serve the whole process. */
export type Stay = "fleeting" | "lasting";

/** Bytes hashed in this process: each entry's once, when it is made or taken. */
export const hashed = { bytes: 0 };

const seals = sealsOf();
let ownFolder: string | undefined;
/** Numbers of the folders that entries lie in. Files that belong together, such as a header and its precompiled form, stay side by side. */
const folders = new Map<string, number>();
/** Copies by entry. */
const copies = new Map<string, string>();
/** Bytes of fleeting copies by entry; the last used is last. */
const fleeting = new Map<string, number>();
let fleetingBytes = 0;
let unique = 0;

/** Where the copy of an entry lies in this process, or what becomes it: a file that no other user can write. */
export function privatePath(entry: string, draft?: string): string {
  const number = folders.get(dirname(entry)) ?? folders.size;
  const folder = join(privateFolder(), String(number));
  if (!folders.has(dirname(entry))) mkdirSync(folder, { recursive: true });
  folders.set(dirname(entry), number);
  return join(folder, draft === undefined ? basename(entry) : `${stem(entry)}.${unique++}${draft}`);
}

/** The copy of an entry for this process; undefined if there is no such entry, or this user did not make it as it is. */
export async function takeKept(entry: string, stay: Stay = "lasting"): Promise<string | undefined> {
  const known = copies.get(entry);
  if (known !== undefined) {
    await touch(entry);
    return remember(entry, known, stay);
  }
  const bytes = await readKept(entry);
  if (bytes === undefined) return undefined;
  const own = privatePath(entry, ".part");
  await writeFile(own, bytes, { mode: 0o700 });
  return claim(own, entry, stay);
}

/** The bytes of an entry, without a copy. */
export async function readKept(entry: string): Promise<Uint8Array | undefined> {
  const file = await readFile(entry).catch(() => undefined);
  if (file === undefined || file.length < SEAL_BYTES) return undefined;
  const bytes = file.subarray(0, -SEAL_BYTES);
  if (!seals.made(nameOf(entry, bytes), file.subarray(-SEAL_BYTES).toString("latin1"))) return undefined;
  await touch(entry);
  return bytes;
}

/**
 * Keeps a private file as an entry. Without a key nothing is kept.
 * @param own a private path, which is renamed
 * @returns the entry's copy for this process
 */
export async function keep(own: string, entry: string, stay: Stay = "lasting"): Promise<string> {
  await keepBytes(await readFile(own), entry);
  return claim(own, entry, stay);
}

/** Keeps bytes that need no copy in this process. Other processes may keep the same entry: the last one renames over an equal file. */
export async function keepBytes(bytes: Uint8Array, entry: string): Promise<void> {
  const seal = seals.make(nameOf(entry, bytes));
  if (seal === undefined) return;
  await mkdir(dirname(entry), { recursive: true });
  const draft = join(dirname(entry), `${stem(entry)}.${process.pid}.${unique++}.part`);
  try {
    await writeFile(draft, [bytes, Buffer.from(seal, "latin1")]);
    await rename(draft, entry);
  } finally {
    await rm(draft, { force: true });
  }
}

/** The name, without its ending, of an entry made from this. */
export const keptName = (workdir: string, made: readonly unknown[]): string =>
  join(workdir, createHash("sha256").update(JSON.stringify(made)).digest("hex").slice(0, 32));

const stem = (entry: string): string => basename(entry).split(".", 1)[0] ?? "";

function nameOf(entry: string, bytes: Uint8Array): string {
  hashed.bytes += bytes.length;
  return `kept ${basename(entry)} ${createHash("sha256").update(bytes).digest("hex")}`;
}

/** Two callers may take one entry at once: both rename equal files. */
async function claim(own: string, entry: string, stay: Stay): Promise<string> {
  const copy = privatePath(entry);
  await rename(own, copy);
  return remember(entry, copy, stay);
}

async function remember(entry: string, copy: string, stay: Stay): Promise<string> {
  copies.set(entry, copy);
  if (stay === "lasting") return copy;
  const bytes = fleeting.get(entry) ?? (await stat(copy)).size;
  if (!fleeting.delete(entry)) fleetingBytes += bytes;
  fleeting.set(entry, bytes);
  const [oldest] = fleeting.keys();
  if (fleetingBytes > MOST_FLEETING && oldest !== undefined && oldest !== entry) await drop(oldest);
  return copy;
}

async function drop(entry: string): Promise<void> {
  const copy = copies.get(entry);
  copies.delete(entry);
  fleetingBytes -= fleeting.get(entry) ?? 0;
  fleeting.delete(entry);
  if (copy !== undefined) await rm(copy, { force: true });
}

/** This process's folder, beside the key of the seals; among temporary files where that place cannot be written. It goes with the process. */
function privateFolder(): string {
  if (ownFolder !== undefined) return ownFolder;
  const made = madeFolder(join(dirname(seals.file), "run")) ?? mkdtempSync(join(tmpdir(), "automap-run-"));
  process.on("exit", () => rmSync(made, { recursive: true, force: true }));
  ownFolder = made;
  return made;
}

function madeFolder(place: string): string | undefined {
  // Machines may share a home, and a process of another one is not known here.
  const ours = `${hostname()}-`;
  try {
    mkdirSync(place, { recursive: true, mode: 0o700 });
    for (const name of readdirSync(place)) {
      const pid = name.startsWith(ours) ? Number.parseInt(name.slice(ours.length), 10) : undefined;
      if (pid !== undefined && !isAlive(pid)) rmSync(join(place, name), { recursive: true, force: true });
    }
    return mkdtempSync(join(place, `${ours}${process.pid}-`));
  } catch {
    return undefined;
  }
}
