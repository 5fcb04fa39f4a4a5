/**
 * @file The instructions that users declare in addition to the table. `register.ts` adds them.
 *
 * A record names its instruction, and every reader of records looks the name up here, so that no reader needs an option that a caller could forget.
 * The register belongs to the process, and a name stands for one declaration for the life of the process.
 */

import type { Intrinsic } from "../abstraction/intrinsic.ts";

const own = new Map<string, Intrinsic>();

/** The registered instructions, in the order in which they were registered. */
export function ownIntrinsics(): readonly Intrinsic[] {
  return [...own.values()];
}

/** The registered instruction of this name. */
export function ownIntrinsicNamed(name: string): Intrinsic | undefined {
  return own.get(name);
}

/** Adds an instruction under its name. */
export function keepIntrinsic(intrinsic: Intrinsic): void {
  own.set(intrinsic.name, intrinsic);
}
