/** @file The folder of a package: checked before the work that fills it, and written whole or not at all. */

import { mkdirSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { EnvironmentError, reasonOf, remedyOf, UsageError } from "../../abstraction/error.ts";

/**
 * Checks that the files of a package can be written, before the work that produces them.
 * @param force whether to write into a folder that already has files
 * @throws UsageError when writing is not allowed; EnvironmentError when it is not possible
 */
export function checkPackageFolder(folder: string, force = false): void {
  inDraft(folder, force, () => false);
}

/**
 * Writes the files of a package. All are written under temporary names first and then renamed, so that a full disk leaves no partial package.
 * @throws UsageError and EnvironmentError as {@link checkPackageFolder}
 */
export function writePackage(folder: string, files: ReadonlyMap<string, string | Uint8Array>, force = false): void {
  inDraft(folder, force, (draft) => {
    for (const [name, text] of files) {
      mkdirSync(dirname(join(draft, name)), { recursive: true });
      writeFileSync(join(draft, name), text);
    }
    for (const name of files.keys()) {
      mkdirSync(dirname(join(folder, name)), { recursive: true });
      renameSync(join(draft, name), join(folder, name));
    }
    return true;
  });
}

/**
 * Creates a temporary folder inside the package's folder. @param write returns whether it wrote the package; if not, folders created for it are
 * removed
 */
function inDraft(folder: string, force: boolean, write: (draft: string) => boolean): void {
  try {
    const held = namesIn(folder);
    if (held.length > 0 && !force)
      throw new UsageError(
        `${folder} is not empty: it holds ${held.slice(0, 3).join(", ")}${held.length > 3 ? " ..." : ""}`,
        "name another folder, or add --force to write into this one",
      );
    const draft = join(folder, `.automap-${process.pid}.part`);
    // The first missing folder: the package's own or one above it.
    const made = mkdirSync(draft, { recursive: true }) ?? draft;
    let written = false;
    try {
      written = write(draft);
    } finally {
      rmSync(written ? draft : made, { recursive: true, force: true });
    }
  } catch (error) {
    if (error instanceof UsageError) throw error;
    throw new EnvironmentError(
      {
        what: `${folder} cannot be written: ${reasonOf(error)}`,
        why: "a package is a folder of files",
        remedy: remedyOf(error),
      },
      error,
    );
  }
}

function namesIn(folder: string): string[] {
  const about = statSync(folder, { throwIfNoEntry: false });
  if (!about) return [];
  if (!about.isDirectory()) throw new UsageError(`${folder} is a file`, "name a folder; it is made when it is missing");
  return readdirSync(folder);
}
