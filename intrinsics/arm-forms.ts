/**
 * @file What Advanced SIMD and the scalable vectors of Arm have in common: the types of their elements, and the forms of their dot and matrix products.
 *
 *     usdot     c[n] += s32(a[k]) * s32(b[k,n])      u8 by s8; by lane it is SUDOT, with the vector first
 */

import type { IntrinsicSpec } from "../abstraction/intrinsic.ts";

/** Types of elements as the C of Arm writes them. */
export const C = {
  s8: "int8_t",
  u8: "uint8_t",
  s32: "int32_t",
  u32: "uint32_t",
  f16: "float16_t",
  bf16: "bfloat16_t",
  f32: "float",
  f64: "double",
} as const;
export type Element = keyof typeof C;

/** Arithmetic on bf16 treats subnormal factors as zeros. */
export const subnormalsOf = (factors: Element): Pick<IntrinsicSpec, "subnormals"> =>
  factors === "bf16" ? { subnormals: "flushed" } : {};

/** The mnemonic in names of functions, which say equal signs by types alone: `dot`, `usdot`, `bfmmla`. */
export const functionStem = (mnemonic: string): string => mnemonic.replace(/^[su](?=dot|mmla)/, "");

/** Products of narrow factors, summed in 32 bits. */
export interface Products {
  readonly name: string;
  readonly a: "s8" | "u8" | "bf16";
  readonly b: "s8" | "u8" | "bf16";
  readonly sum: "s32" | "u32" | "f32";
}

export interface Dot extends Products {
  readonly family: "dot" | "bfdot";
  /** Feature that it needs beside dot products of equal signs. */
  readonly feature?: "i8mm" | "bf16";
  /** Mnemonic of the by-lane form. */
  readonly byLane: string;
  /** Cycles from one accumulation to the next on the same register. */
  readonly forward: 1 | 2;
}

export const DOTS: readonly Dot[] = [
  { name: "sdot", family: "dot", a: "s8", b: "s8", sum: "s32", byLane: "sdot", forward: 1 },
  { name: "udot", family: "dot", a: "u8", b: "u8", sum: "u32", byLane: "udot", forward: 1 },
  // The signed factor is the vector; the unsigned one is taken by lane.
  { name: "usdot", family: "dot", feature: "i8mm", a: "u8", b: "s8", sum: "s32", byLane: "sudot", forward: 1 },
  { name: "bfdot", family: "bfdot", feature: "bf16", a: "bf16", b: "bf16", sum: "f32", byLane: "bfdot", forward: 2 },
];

/** Matrix products of 2x2 sums in 128 bits. */
export const MATRIX_PRODUCTS: readonly Products[] = [
  { name: "smmla", a: "s8", b: "s8", sum: "s32" },
  { name: "ummla", a: "u8", b: "u8", sum: "u32" },
  { name: "usmmla", a: "u8", b: "s8", sum: "s32" },
  { name: "bfmmla", a: "bf16", b: "bf16", sum: "f32" },
];
