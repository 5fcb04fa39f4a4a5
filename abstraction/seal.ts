/**
 * @file Seals that show which records were made here. A measurement by this user on this machine is sealed when it is recorded, with a key that
 * no file of records contains. Records from an import, a merge or a copied file have no seal of this key and count as imported.
 *
 *     const seals = sealsOf();
 *     seals.make("trial 3f9a...")                      "77d0e2a803b1..."
 *     seals.made("trial 3f9a...", "77d0e2a803b1...")   true
 *
 * Kernels of imported records are not built or run without consent, and between two times the one measured here is trusted.
 */

import { createHmac, randomBytes } from "node:crypto";
import { linkSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";

/** Measured by this user on this machine, or imported. */
export type Provenance = "here" | "imported";

export interface Seals {
  /** Path of the key. */
  readonly file: string;
  /** The seal of a record or a package; undefined when there is no key and none can be stored. */
  readonly make: (what: string) => string | undefined;
  /** Whether the key of this machine made a seal. */
  readonly made: (what: string, seal: unknown) => boolean;
}

const KEY_BYTES = 32;

/** @param file path of the key, which is created at the first sealing. By default `~/.local/state/automap/seal.key` */
export function sealsOf(file = defaultFile()): Seals {
  let key: Buffer | undefined;
  const sealOf = (known: Buffer, what: string): string =>
    createHmac("sha256", known).update(what).digest("hex").slice(0, 32);
  return {
    file,
    make: (what) => {
      key ??= readKey(file) ?? makeKey(file);
      return key && sealOf(key, what);
    },
    made: (what, seal) => {
      if (typeof seal !== "string") return false;
      key ??= readKey(file);
      return key !== undefined && sealOf(key, what) === seal;
    },
  };
}

function readKey(file: string): Buffer | undefined {
  try {
    const key = readFileSync(file);
    return key.length === KEY_BYTES ? key : undefined;
  } catch {
    return undefined;
  }
}

/** Several processes may create the key at once. The first to link its draft wins, and all read that one. */
function makeKey(file: string): Buffer | undefined {
  const draft = `${file}.${process.pid}.${randomBytes(4).toString("hex")}`;
  try {
    mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
    writeFileSync(draft, randomBytes(KEY_BYTES), { mode: 0o600, flush: true });
    try {
      linkSync(draft, file);
    } finally {
      rmSync(draft, { force: true });
    }
  } catch {
    // Another process created it, or it cannot be stored; reading shows which.
  }
  return readKey(file);
}

/** The user's state folder on this machine, from the environment. */
function defaultFile(): string {
  return join(process.env["XDG_STATE_HOME"] || join(homedir(), ".local", "state"), "automap", "seal.key");
}
