/**
 * @file The parameters of a network's library: how callers give and take elements. Only s64 differs from what steps hold: `int64_t` outside,
 * `double` inside.
 *
 *     borderBytes("s64", [1, -1])      01 00 00 00 00 00 00 00  ff ff ff ff ff ff ff ff
 */

import { C_TYPES } from "../../abstraction/kernel.ts";
import { code, Name } from "../../abstraction/source-text.ts";
import { describeValue, type ElementType, elementsOf, heldAs, type Value } from "../../network/value.ts";
import { decodeElements, encodeElements } from "../../runtime/bytes.ts";
import { ARRAYS } from "../subject.ts";
import { bytesOfValue, type NetworkParts } from "./subject.ts";

const nameOf = (key: string, label: string): Name =>
  new Name("tensor", label.replaceAll(/\W/g, "_").replace(/^(?=[^A-Za-z])/, "v"), key);

/** A pointer parameter of run. */
export interface NetworkParameter {
  readonly name: Name;
  readonly value: Value;
  /** Its name in the graph. */
  readonly label: string;
  readonly isOutput: boolean;
  /** Its position among the inputs, or among the outputs. */
  readonly number: number;
}

/** Parameters of run: the inputs, then the outputs. */
export function parametersOf({ subject: { program } }: NetworkParts): readonly NetworkParameter[] {
  return [
    ...program.inputs.map((value, number) => ({
      name: nameOf(`input ${number}`, value.name),
      value,
      label: value.name,
      isOutput: false,
      number,
    })),
    ...program.outputs.map(({ name, value }, number) => ({
      name: nameOf(`output ${number}`, name),
      value,
      label: name,
      isOutput: true,
      number,
    })),
  ];
}

/** Each parameter in words: `image   input, f32[1,3,224,224], row-major, 602112 bytes`. */
export const aboutParameters = (parts: NetworkParts): string[] =>
  parametersOf(parts).map(({ label, value, isOutput }) => {
    const bits = parts.subject.gpu && value.type === "f16" ? ", elements as their bits" : "";
    return `${label}   ${isOutput ? "output" : "input"}, ${describeValue(value)}, row-major, ${bytesOfValue(value)} bytes${bits}`;
  });

/** Whether a parameter is of int64_t. */
export const isWide = ({ value }: NetworkParameter): boolean => value.type === "s64";

export const countOf = ({ value }: NetworkParameter): number => elementsOf(value.shape, value.name);

/** Brings inputs of int64_t to the doubles that steps read. */
export const WIDENED = code`/* A double holds every integer up to 2^53. Numbers made of those of 32 bits were found to stay below when this file was written. */
static bool widened(double* to, const int64_t* from, unsigned long count) {
  bool fits = true;
  for (unsigned long i = 0; i < count; i++) {
    fits &= from[i] >= INT32_MIN && from[i] <= INT32_MAX;
    to[i] = (double)from[i];
  }
  return fits;
}

`;

/** Brings the doubles that steps wrote to outputs of int64_t. */
export const NARROWED = code`static void narrowed(int64_t* to, const double* from, unsigned long count) {
  for (unsigned long i = 0; i < count; i++)
    to[i] = from[i] >= -9223372036854775808.0 && from[i] < 9223372036854775808.0 ? (int64_t)from[i] : INT64_MIN;
}

`;

/** The element type of a parameter in C. */
export const borderTypeInC = (type: ElementType) => (type === "s64" ? "int64_t" : C_TYPES[heldAs(type)]);

/** Name of the typed array that holds such elements. */
export const borderArray = (type: ElementType): string => (type === "s64" ? "BigInt64Array" : ARRAYS[heldAs(type)]);

/** Elements as a caller gives them, little-endian. @param elements integers below 2^53 for s64 */
export function borderBytes(type: ElementType, elements: ArrayLike<number>): Uint8Array {
  if (type !== "s64") return encodeElements(heldAs(type), elements);
  return new Uint8Array(BigInt64Array.from(Array.from(elements, BigInt)).buffer);
}

/** Elements as a caller takes them. */
export function borderElements(type: ElementType, bytes: Uint8Array): Float64Array {
  if (type !== "s64") return decodeElements(heldAs(type), bytes);
  return Float64Array.from(Array.from(new BigInt64Array(new Uint8Array(bytes).buffer), Number));
}
