/**
 * @file Converts elements to and from bytes, as each type is stored in memory.
 *
 *     encodeElements("bf16", [1.5])                           C0 3F
 *     decodeElements("f16", Uint8Array.of(0xff, 0x7b))        65504
 */

import type { DType } from "../abstraction/dtype.ts";
import { isShort, shortBits, shortValue } from "../abstraction/short-floats.ts";

/** Typed arrays that hold the types, short floats as their bits. */
const ARRAYS = {
  u8: Uint8Array,
  s8: Int8Array,
  u16: Uint16Array,
  s16: Int16Array,
  u32: Uint32Array,
  s32: Int32Array,
  e4m3: Uint8Array,
  e5m2: Uint8Array,
  f16: Uint16Array,
  bf16: Uint16Array,
  tf32: Float32Array,
  f32: Float32Array,
  f64: Float64Array,
} as const satisfies Record<DType, unknown>;

/** Contiguous elements from values that the type can represent exactly; round them first with `wrap`. */
export function encodeElements(dtype: DType, values: ArrayLike<number>): Uint8Array {
  const held = isShort(dtype) ? Array.from(values, (x) => shortBits(dtype, x)) : values;
  return new Uint8Array(new ARRAYS[dtype](held).buffer);
}

/** The values of contiguous elements. */
export function decodeElements(dtype: DType, bytes: Uint8Array): Float64Array {
  const held = new ARRAYS[dtype](new Uint8Array(bytes).buffer);
  return isShort(dtype) ? Float64Array.from(held, (bits) => shortValue(dtype, bits)) : Float64Array.from(held);
}
