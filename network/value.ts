/**
 * @file Values that flow between the nodes of a network: tensors with a type and a shape, some of them known before the run.
 *
 *     f32[1,64,56,56]      held as they are
 *     bool[4]              held as u8: 0 or 1
 *     s64[2]               held as f64: integers up to 2^53, a range that is known for each value (whole.ts)
 */

import { type DType, isInteger, wrap } from "../abstraction/dtype.ts";
import { UsageError } from "../abstraction/error.ts";
import type { ElementType, NumberArray } from "./numbers.ts";

export type { ElementType } from "./numbers.ts";

/** Elements of a tensor that the graph may hold; more has an offset beyond 31 bits. */
export const MOST_ELEMENTS = 2 ** 31 - 1;

/** The least and the largest of some numbers. */
export type Range = readonly [least: number, most: number];

/** A tensor of a network. */
export interface Value {
  /** As the graph calls it, or after the node that makes it. */
  readonly name: string;
  readonly type: ElementType;
  readonly shape: readonly number[];
  /** Its elements, row-major, where they are known before the run. */
  readonly constant?: NumberArray;
  /** The value whose elements it shows under another shape; both lie row-major. */
  readonly of?: Value;
  /** The first of these elements, where it shows only a part of them. */
  readonly from?: number;
  /** The numbers that s64 elements may be where they are known only when the network runs. */
  readonly range?: Range;
}

/** The values behind the tensors that an equation reads, by their names. */
export type Reads = Readonly<Record<string, Value>>;

/** Integers that stand for numbers: `(stored - zero) * scale`. */
export interface Quantised {
  readonly stored: Value;
  /** One number, or one for each place of an axis; a shape without dimensions, or of that axis alone. */
  readonly scale: Value;
  /** Of the type and the shape of `stored` and `scale`; 0 where it is left out. */
  readonly zero: Value | undefined;
  readonly axis?: number;
}

/** The type of the notation that holds such elements; s64 is exact in f64 as long as constants are below 2^53, which is checked. */
export function heldAs(type: ElementType): DType {
  return type === "bool" ? "u8" : type === "s64" ? "f64" : type;
}

/** Whether elements are integers, and not bool. */
export const holdsIntegers = (type: ElementType): boolean => type === "s64" || isInteger(heldAs(type));

/** Whether elements are floats of 32 bits at least. */
export const isWide = (type: ElementType): boolean => type === "f32" || type === "f64";

/** Brings a number to an element type, as a cast does. */
export function toElement(type: ElementType, x: number): number {
  if (type === "bool") return x === 0 ? 0 : 1;
  return type === "s64" ? Math.trunc(x) + 0 : wrap(type, x);
}

/** Elements of a shape. @throws UsageError when there are more than {@link MOST_ELEMENTS}, or a size is no size */
export function elementsOf(shape: readonly number[], subject: string): number {
  let product = 1;
  for (const size of shape) {
    if (!Number.isSafeInteger(size) || size < 0)
      throw new UsageError(`${subject}: ${size} is no size of a dimension`, "sizes are whole numbers");
    product *= size;
    if (product > MOST_ELEMENTS)
      throw new UsageError(
        `${subject}: a tensor of [${shape.join(",")}] has more than ${MOST_ELEMENTS} elements`,
        "offsets have 31 bits; make the batch or the dimension smaller",
      );
  }
  return product;
}

export const isSameShape = (a: readonly number[], b: readonly number[]): boolean =>
  a.length === b.length && a.every((size, d) => size === b[d]);

/** `[1,64,56,56]`, and the text of an index: `[n,c,h,w]` */
export const bracketed = (list: readonly (number | string)[]): string => `[${list.join(",")}]`;

/** `f32[1,64,56,56]` */
export const describeValue = ({ type, shape }: Pick<Value, "type" | "shape">): string => type + bracketed(shape);
