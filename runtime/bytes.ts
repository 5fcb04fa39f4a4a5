/**
 * @file Converts elements to and from bytes, little-endian, as each type is stored in memory.
 *
 *     encodeElement("bf16", view, 0, 1.5)      C0 3F
 *     decodeElement("f16", view, 0)            exactly the number the bits mean
 */

import { bytesOf, type DType } from "../abstraction/dtype.ts";

/** Writes a value that the type can represent exactly; round it first with `wrap`. */
export function encodeElement(dtype: DType, view: DataView, byte: number, value: number): void {
  switch (dtype) {
    case "u8":
      view.setUint8(byte, value);
      break;
    case "s8":
      view.setInt8(byte, value);
      break;
    case "u16":
      view.setUint16(byte, value, true);
      break;
    case "s16":
      view.setInt16(byte, value, true);
      break;
    case "u32":
      view.setUint32(byte, value, true);
      break;
    case "s32":
      view.setInt32(byte, value, true);
      break;
    case "f16":
      view.setUint16(byte, halfBits(value), true);
      break;
    case "bf16":
      // A bf16 is the upper half of the f32 with the same value.
      view.setUint16(byte, floatBits(value) >>> 16, true);
      break;
    case "tf32":
    case "f32":
      view.setFloat32(byte, value, true);
      break;
    case "f64":
      view.setFloat64(byte, value, true);
      break;
    default:
      dtype satisfies never;
  }
}

export function decodeElement(dtype: DType, view: DataView, byte: number): number {
  switch (dtype) {
    case "u8":
      return view.getUint8(byte);
    case "s8":
      return view.getInt8(byte);
    case "u16":
      return view.getUint16(byte, true);
    case "s16":
      return view.getInt16(byte, true);
    case "u32":
      return view.getUint32(byte, true);
    case "s32":
      return view.getInt32(byte, true);
    case "f16":
      return halfValue(view.getUint16(byte, true));
    case "bf16":
      return floatValue(view.getUint16(byte, true) << 16);
    case "tf32":
    case "f32":
      return view.getFloat32(byte, true);
    case "f64":
      return view.getFloat64(byte, true);
    default:
      return dtype satisfies never;
  }
}

/** The bytes of an array's elements, contiguous. */
export function encodeElements(dtype: DType, values: ArrayLike<number>): Uint8Array {
  const asStored = LITTLE_ENDIAN ? ARRAYS[dtype] : undefined;
  if (asStored) return new Uint8Array(new asStored(values).buffer);
  const size = bytesOf(dtype);
  const bytes = new Uint8Array(values.length * size);
  const view = new DataView(bytes.buffer);
  for (let i = 0; i < values.length; i++) encodeElement(dtype, view, i * size, values[i] ?? 0);
  return bytes;
}

/** Typed arrays that convert as `encodeElement` does; undefined if JavaScript has none. */
const ARRAYS = {
  u8: Uint8Array,
  s8: Int8Array,
  u16: Uint16Array,
  s16: Int16Array,
  u32: Uint32Array,
  s32: Int32Array,
  f16: undefined,
  bf16: undefined,
  tf32: Float32Array,
  f32: Float32Array,
  f64: Float64Array,
} as const;

/** The values of contiguous elements. */
export function decodeElements(dtype: DType, bytes: Uint8Array): Float64Array {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const size = bytesOf(dtype);
  return Float64Array.from({ length: bytes.byteLength / size }, (_, i) => decodeElement(dtype, view, i * size));
}

/** Whether typed arrays on this machine have the byte order of the files. */
const LITTLE_ENDIAN = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1;

const scratch = new DataView(new ArrayBuffer(4));

function floatBits(value: number): number {
  scratch.setFloat32(0, value);
  return scratch.getUint32(0);
}

function floatValue(bits: number): number {
  scratch.setUint32(0, bits >>> 0);
  return scratch.getFloat32(0);
}

/** An f16 has a sign, five exponent bits and ten fraction bits; the f32 with the same value has eight and 23. */
function halfBits(value: number): number {
  const wide = floatBits(value);
  const sign = (wide >>> 16) & 0x8000;
  const exponent = (wide >>> 23) & 0xff;
  if (exponent === 0xff) return sign | 0x7c00 | (Number.isNaN(value) ? 0x200 : 0);
  if (exponent < 127 - 14) return sign | (Math.abs(value) * 2 ** 24);
  return sign | ((exponent - 127 + 15) << 10) | ((wide >>> 13) & 0x3ff);
}

function halfValue(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 0x1f) return fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  return sign * (1024 + fraction) * 2 ** (exponent - 25);
}
