/**
 * @file Element types of networks with their numbers in ONNX, and the JavaScript typed array that holds constants of each type.
 *
 *     numbersFor("f16", 4)      Float32Array(4): every f16 is one exactly
 */

import { DTYPES } from "../abstraction/dtype.ts";
import { internal, UsageError } from "../abstraction/error.ts";

/** Element types of a graph: those of the notation, and two that are held in other types (value.ts). */
export const ELEMENT_TYPES = [...DTYPES, "s64", "bool"] as const;
export type ElementType = (typeof ELEMENT_TYPES)[number];

/** TensorProto.DataType numbers of the types that an attribute may name. */
export const NUMBERED_TYPES: Readonly<Record<number, ElementType>> = {
  1: "f32",
  2: "u8",
  3: "s8",
  4: "u16",
  5: "s16",
  6: "s32",
  7: "s64",
  9: "bool",
  10: "f16",
  11: "f64",
  12: "u32",
  16: "bf16",
};

/** ONNX's number of an element type. */
export function numberOfType(type: ElementType): number {
  for (const [number, known] of Object.entries(NUMBERED_TYPES)) if (known === type) return Number(number);
  internal(`ONNX has no ${type}`);
}

/** Elements as numbers. */
export type NumberArray =
  | Uint8Array
  | Int8Array
  | Uint16Array
  | Int16Array
  | Uint32Array
  | Int32Array
  | Float32Array
  | Float64Array;

const ARRAYS = {
  u8: Uint8Array,
  s8: Int8Array,
  u16: Uint16Array,
  s16: Int16Array,
  u32: Uint32Array,
  s32: Int32Array,
  e4m3: Float32Array,
  e5m2: Float32Array,
  f16: Float32Array,
  bf16: Float32Array,
  tf32: Float32Array,
  f32: Float32Array,
  f64: Float64Array,
  s64: Float64Array,
  bool: Uint8Array,
} as const satisfies Record<ElementType, unknown>;

/** Bytes of elements in memory; some types are held wider than they are stored. */
export const bytesHeld = (type: ElementType, elements: number): number => elements * ARRAYS[type].BYTES_PER_ELEMENT;

/** Limit in bytes of one constant. */
const MOST_BYTES = 2 ** 31;

/** @throws UsageError when a constant is larger than the limit */
export function checkBytes(type: ElementType, elements: number, subject: string): void {
  if (bytesHeld(type, elements) > MOST_BYTES)
    throw new UsageError(
      `${subject}: ${elements} elements of ${type} take more than ${MOST_BYTES / 2 ** 30} GiB`,
      "constants are held in memory; keep such a tensor an input of the network",
    );
}

/** An array of zeros. @throws UsageError as {@link checkBytes} does */
export function numbersFor(type: ElementType, elements: number, subject: string): NumberArray {
  checkBytes(type, elements, subject);
  return new ARRAYS[type](elements);
}
