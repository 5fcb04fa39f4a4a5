/**
 * @file The id of a record: the hash of its canonical JSON. It is the same in every file, so merging two files is a union.
 *
 *     idOf({ seed: 1, pad: 0 }) === idOf({ pad: 0, seed: 1 })
 */

import { createHash } from "node:crypto";
import { canonicalJson } from "../abstraction/candidate.ts";
import type { Intrinsic, IntrinsicSpec, OperandSpec } from "../abstraction/intrinsic.ts";
import { memoised } from "../abstraction/memoised.ts";

/** 128 bits of SHA-256 in hexadecimal: chance never makes two equal. */
export function idOf(data: unknown): string {
  return createHash("sha256").update(canonicalJson(data)).digest("hex").slice(0, 32);
}

/** What an id is shown as: enough to name a record in a file of a million. */
export function shortId(id: string): string {
  return id.slice(0, 12);
}

/**
 * The fields of a declaration that a record's hash covers: what the instruction computes and costs, and how it is written. What a field
 * that is left out stands for never changes, so records of declarations without it stay fresh; `mnemonic` changes no kernel.
 */
const HASHED =
  "name family isa features language scope summary compute extents operands emit prelude setup subnormals cost source".split(
    " ",
  );
const HASHED_OF_OPERANDS = "dtype storage layout dims shape load store clear".split(" ");

function pick(from: IntrinsicSpec | OperandSpec, keys: readonly string[]): Record<string, unknown> {
  return Object.fromEntries(Object.entries(from).filter(([key]) => keys.includes(key)));
}

/** Changes when what is hashed of the declaration does: trials of another declaration are stale. */
export const declarationHash = ({ declaration }: Intrinsic): string => hashOf(declaration);

/** Declarations are never changed: one is hashed once. */
const hashOf = memoised((declaration: IntrinsicSpec): string => {
  const operands = Object.entries(declaration.operands).map(([name, o]) => [name, pick(o, HASHED_OF_OPERANDS)]);
  return idOf({ ...pick(declaration, HASHED), operands: Object.fromEntries(operands) });
});
