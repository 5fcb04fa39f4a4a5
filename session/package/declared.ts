/**
 * @file Checks that an instruction named in a record has the same declaration here as when the record was made.
 *
 *     declaredAs("mine.vpmaddwd", trial.declaration)      the registered instruction, or UsageError: what to register
 *
 * A row of the table that changed makes its records stale, which policies of trust deal with (db/trust.ts). An instruction that somebody
 * declared is known here only as far as it was registered: another declaration would give another kernel than the one that was measured.
 */

import { UsageError } from "../../abstraction/error.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import { declarationHash, shortId } from "../../db/index.ts";
import { intrinsicNamed } from "../../intrinsics/index.ts";
import { ownIntrinsicNamed } from "../../intrinsics/own.ts";

const HOW = "registerIntrinsic(...) in a program, --declare FILE on the command line";

/**
 * The instruction of a record.
 * @param declaration hash of its declaration at the time of the trial; not compared when left out
 * @throws UsageError when no instruction of this name is known, or a registered instruction now has another declaration
 */
export function declaredAs(name: string, declaration?: string): Intrinsic {
  const found = intrinsicNamed(name);
  const hash = declaration === undefined ? "" : ` (declaration ${shortId(declaration)})`;
  if (!found)
    throw new UsageError(
      `no instruction ${name}${hash} is known here: it is not of the table and not registered`,
      `register the declaration it was tuned with: ${HOW}`,
    );
  if (declaration === undefined || !ownIntrinsicNamed(name) || declarationHash(found) === declaration) return found;
  throw new UsageError(
    `${name} is registered with the declaration ${shortId(declarationHash(found))}, and the record was made with ${shortId(declaration)}`,
    `register that declaration: ${HOW}; or tune again with this one`,
  );
}

/** @throws UsageError when an instruction is not the one registered under its name: its records could not be read back */
export function checkKnown(intrinsic: Intrinsic): void {
  const known = intrinsicNamed(intrinsic.name);
  if (known === intrinsic) return;
  if (known && declarationHash(known) === declarationHash(intrinsic)) return;
  throw new UsageError(
    known
      ? `${intrinsic.name} is declared otherwise than the instruction of this name that is known here`
      : `${intrinsic.name} is not registered: its records could not be read again`,
    known ? "give it a name of its own and register it" : "call registerIntrinsic with it first",
  );
}
