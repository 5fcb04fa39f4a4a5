/**
 * @file The instructions that users of automap declare, beside the table. `register.ts` puts them here.
 *
 * A record names its instruction, and whatever reads records looks the name up: one register serves all of them, and none needs an option
 * that a caller can forget. It belongs to the process, and a name stands for one declaration as long as the process lives.
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

/** Takes an instruction in under its name. */
export function keepIntrinsic(intrinsic: Intrinsic): void {
  own.set(intrinsic.name, intrinsic);
}
