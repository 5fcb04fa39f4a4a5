/**
 * @file The bits of floats of 8 and 16 bits, which JavaScript has no arrays of.
 *
 *     shortBits("bf16", 1.5)          0x3fc0
 *     shortValue("f16", 0x7bff)       65504
 *     shortValue("e4m3", 0x7e)        448
 */

import { type DType, type FloatFormat, floatFormatOf } from "./dtype.ts";
import { internal } from "./error.ts";

const SHORT = ["e4m3", "e5m2", "f16", "bf16"] as const satisfies readonly DType[];
type ShortFloat = (typeof SHORT)[number];

export const isShort = (dtype: DType | "s64" | "bool"): dtype is ShortFloat =>
  (SHORT as readonly string[]).includes(dtype);

const formatOf = (dtype: ShortFloat): FloatFormat => floatFormatOf(dtype) ?? internal(`${dtype} is no float`);

const WORD = new DataView(new ArrayBuffer(4));

/** The bits of a value that the type can represent exactly; round it first with `wrap`. */
export function shortBits(dtype: ShortFloat, value: number): number {
  const { bits, fractionBits, minExponent, beyond } = formatOf(dtype);
  // The f32 with the same value has eight exponent bits and 23 fraction bits.
  WORD.setFloat32(0, value);
  const wide = WORD.getUint32(0);
  const sign = (wide >>> 31) << (bits - 1);
  const exponent = (wide >>> 23) & 0xff;
  if (exponent === 0xff) {
    const ones = 2 ** (bits - 1) - 1;
    if (Number.isNaN(beyond)) return sign | ones;
    const infinity = ones - (2 ** fractionBits - 1);
    return sign | infinity | (Number.isNaN(value) ? 2 ** (fractionBits - 1) : 0);
  }
  if (exponent < 127 + minExponent) return sign | (Math.abs(value) * 2 ** (fractionBits - minExponent));
  const fraction = (wide >>> (23 - fractionBits)) & (2 ** fractionBits - 1);
  return sign | ((exponent - 126 - minExponent) << fractionBits) | fraction;
}

/** The value of each of a type's bits. */
const known = new Map<ShortFloat, Float32Array>();

function valuesOf(dtype: ShortFloat): Float32Array {
  const { bits, fractionBits, minExponent, max, beyond } = formatOf(dtype);
  const values = new Float32Array(2 ** bits);
  for (let word = 0; word < values.length; word++) {
    const magnitude = word & (2 ** (bits - 1) - 1);
    const exponent = magnitude >> fractionBits;
    const fraction = magnitude & (2 ** fractionBits - 1);
    const significand = exponent === 0 ? fraction : 2 ** fractionBits + fraction;
    const finite = significand * 2 ** (Math.max(exponent, 1) - 1 + minExponent - fractionBits);
    const size = finite <= max ? finite : fraction === 0 ? beyond : Number.NaN;
    values[word] = word === magnitude ? size : -size;
  }
  known.set(dtype, values);
  return values;
}

/** The value that bits mean. */
export function shortValue(dtype: ShortFloat, bits: number): number {
  const values = known.get(dtype) ?? valuesOf(dtype);
  return values[bits & (values.length - 1)] ?? internal("the table has a value for all bits");
}
