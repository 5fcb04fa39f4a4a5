/**
 * @file Who a record is: the hash of its canonical JSON, the same in every file, so that merging two of them is a union.
 *
 *     idOf({ seed: 1, pad: 0 }) === idOf({ pad: 0, seed: 1 })
 */

import { createHash } from "node:crypto";
import { canonicalJson } from "../abstraction/candidate.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";

/** 128 bits of SHA-256 in hexadecimal: chance never makes two equal. */
export function idOf(data: unknown): string {
  return createHash("sha256").update(canonicalJson(data)).digest("hex").slice(0, 32);
}

/** What an id is shown as: enough to name a record in a file of a million. */
export function shortId(id: string): string {
  return id.slice(0, 12);
}

/** Changes when anything in the declaration does: trials of another declaration are stale. */
export function declarationHash({ declaration }: Intrinsic): string {
  const hash = hashes.get(declaration) ?? idOf(declaration);
  hashes.set(declaration, hash);
  return hash;
}
/** Declarations are never changed: one is hashed once. */
const hashes = new WeakMap<object, string>();
