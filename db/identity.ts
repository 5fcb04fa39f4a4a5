/**
 * @file The id of a record: the hash of its canonical JSON. It is the same in every file, so merging two files is a union.
 *
 *     idOf({ seed: 1, pad: 0 }) === idOf({ pad: 0, seed: 1 })
 */

import { createHash } from "node:crypto";
import { canonicalJson } from "../abstraction/candidate.ts";
import { memoised } from "../abstraction/collections.ts";
import type { Intrinsic, IntrinsicSpec, OperandSpec } from "../abstraction/intrinsic.ts";

/** 128 bits of SHA-256 in hexadecimal, so that accidental collisions are impossible in practice. */
export function idOf(data: unknown): string {
  return createHash("sha256").update(canonicalJson(data)).digest("hex").slice(0, 32);
}

/** An id shortened for display: enough to be unique in a file of a million records. */
export function shortId(id: string): string {
  return id.slice(0, 12);
}

/**
 * The fields of a declaration that a record's hash covers: what the instruction computes, what it costs, and its code. Defaults of omitted fields
 * never change, so records of such declarations stay valid. `mnemonic` and `sumBits` affect no kernel and are left out.
 */
const HASHED =
  "name family isa features language scope summary compute extents operands emit prelude setup subnormals cost source".split(
    " ",
  );
const HASHED_OF_OPERANDS = "dtype storage layout dims shape load store clear".split(" ");

function pick(from: IntrinsicSpec | OperandSpec, keys: readonly string[]): Record<string, unknown> {
  return Object.fromEntries(Object.entries(from).filter(([key]) => keys.includes(key)));
}

/** Hash of a declaration. Trials of a declaration with another hash are stale. */
export const declarationHash = ({ declaration }: Intrinsic): string => hashOf(declaration);

/** Declarations never change, so each is hashed once. */
const hashOf = memoised((declaration: IntrinsicSpec): string => {
  const operands = Object.entries(declaration.operands).map(([name, o]) => [name, pick(o, HASHED_OF_OPERANDS)]);
  return idOf({ ...pick(declaration, HASHED), operands: Object.fromEntries(operands) });
});
