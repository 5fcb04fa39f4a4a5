/**
 * @file Dot products of AVX-512 lane by lane: a lane of 32 bits adds products of four bytes, or of two words, to what it holds.
 *
 *     VPDPBUSD      u8 by s8, four products         VPDPWSSD      s16 by s16, two          Source: Intel SDM vol. 2
 */

import type { DType } from "../abstraction/dtype.ts";

/** A dot product of a lane. */
export interface Dot {
  /** Products of one instruction. */
  readonly terms: 2 | 4;
  readonly mnemonic: "vpdpbusd" | "vpdpwssd";
}

/** What a machine needs for them. */
export const DOT_FEATURE = "avx512_vnni";

/** By the types of what is multiplied, in either order. */
export function dotOfTypes(a: DType, b: DType): Dot | undefined {
  const pair = [a, b].toSorted().join(" ");
  if (pair === "s8 u8") return { terms: 4, mnemonic: "vpdpbusd" };
  return pair === "s16 s16" ? { terms: 2, mnemonic: "vpdpwssd" } : undefined;
}
