/**
 * @file Dot products of AVX-512 within lanes: a lane of 32 bits accumulates products of four bytes, or of two words.
 *
 *     VPDPBUSD      u8 by s8, four products         VPDPWSSD      s16 by s16, two          Source: Intel SDM vol. 2
 */

import type { DType } from "../abstraction/dtype.ts";

/** A dot product within a lane. */
export interface Dot {
  /** Products per instruction. */
  readonly terms: 2 | 4;
  readonly mnemonic: "vpdpbusd" | "vpdpwssd";
}

/** Feature that they require. */
export const DOT_FEATURE = "avx512_vnni";

/** The dot product for two factor types, in either order. */
export function dotOfTypes(a: DType, b: DType): Dot | undefined {
  const pair = [a, b].toSorted().join(" ");
  if (pair === "s8 u8") return { terms: 4, mnemonic: "vpdpbusd" };
  return pair === "s16 s16" ? { terms: 2, mnemonic: "vpdpwssd" } : undefined;
}
