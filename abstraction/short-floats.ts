/**
 * @file The bits of floats of 16 bits, which JavaScript has no arrays of.
 *
 *     shortBits("bf16", 1.5)          0x3fc0
 *     shortValue("f16", 0x7bff)       65504
 */

import type { DType } from "./dtype.ts";

export type ShortFloat = "f16" | "bf16";

export const isShort = (dtype: DType | "s64" | "bool"): dtype is ShortFloat => dtype === "f16" || dtype === "bf16";

const WORD = new DataView(new ArrayBuffer(4));

/** The bits of a value that the type can represent exactly; round it first with `wrap`. */
export function shortBits(dtype: ShortFloat, value: number): number {
  WORD.setFloat32(0, value);
  const wide = WORD.getUint32(0);
  if (dtype === "bf16") return wide >>> 16;
  // An f16 has a sign, five exponent bits and ten fraction bits; the f32 with the same value has eight and 23.
  const sign = (wide >>> 16) & 0x8000;
  const exponent = (wide >>> 23) & 0xff;
  if (exponent === 0xff) return sign | 0x7c00 | (Number.isNaN(value) ? 0x200 : 0);
  if (exponent < 127 - 14) return sign | (Math.abs(value) * 2 ** 24);
  return sign | ((exponent - 127 + 15) << 10) | ((wide >>> 13) & 0x3ff);
}

/** The value that bits mean. */
export function shortValue(dtype: ShortFloat, bits: number): number {
  if (dtype === "bf16") {
    WORD.setUint32(0, (bits & 0xffff) << 16);
    return WORD.getFloat32(0);
  }
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0x1f) return fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25));
}
