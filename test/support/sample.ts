/**
 * @file A part of many names, another with each commit: what runs too long to run whole every time.
 *
 *     sampled(files, 6)          a sixth of them: those of this commit, or of AUTOMAP_DEEP
 *     AUTOMAP_DEEP=all           all of them
 */

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";

/** One name in `share` of them, rounded up. All with AUTOMAP_DEEP=all. */
export function sampled(names: readonly string[], share: number): string[] {
  const seed = process.env["AUTOMAP_DEEP"] ?? commit();
  const rank = (name: string): string => createHash("sha256").update(`${seed} ${name}`).digest("hex");
  const drawn = names.toSorted((a, b) => (rank(a) < rank(b) ? -1 : 1));
  return drawn.slice(0, seed === "all" ? names.length : Math.ceil(names.length / share));
}

/** The newest commit, or nothing where this is no clone. */
function commit(): string {
  try {
    return execFileSync("git", ["rev-parse", "HEAD"], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
  } catch {
    return "";
  }
}
