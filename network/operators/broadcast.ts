/**
 * @file Broadcasts the operands of element-wise operators as NumPy does.
 *
 *     a f32[8,1,4]  b f32[3,1]      y[i0,i1,i2] = a[i0,i2] + b[i1]
 *
 * Broadcast dimensions of one element are left out, so that the operand is indexed by plain axes and can be fused.
 */

import { internal } from "../../abstraction/error.ts";
import { axesOfRank, type Lowering } from "../lowering.ts";
import { bracketed, isSameShape, type Quantised, type Reads, type Value } from "../value.ts";

/** @throws UsageError when the shapes cannot be broadcast */
export function broadcastShape(node: Lowering, shapes: readonly (readonly number[])[]): number[] {
  const rank = Math.max(0, ...shapes.map((s) => s.length));
  return Array.from({ length: rank }, (_, d) => {
    const sizes = shapes.map((s) => s[d - rank + s.length] ?? 1);
    const size = sizes.find((x) => x !== 1) ?? 1;
    if (sizes.some((x) => x !== 1 && x !== size))
      node.refuse(`shapes ${shapes.map((s) => `${bracketed(s)}`).join(" and ")} cannot be brought together`);
    return size;
  });
}

/** An operand as read at the axes of an output: the text of the access, and its value. */
export interface Operand {
  readonly text: string;
  readonly reads: Reads;
}

/** A constant of one element becomes a number in the equation, unless all are constants: conditions of numbers alone would have to be affine. */
export function operand(
  node: Lowering,
  name: string,
  value: Value,
  { shape, isFolded }: { readonly shape: readonly number[]; readonly isFolded: boolean },
): Operand {
  const [only] = value.constant ?? [];
  if (!isFolded && value.constant?.length === 1 && only !== undefined && Number.isFinite(only))
    return { text: only < 0 || Object.is(only, -0) ? `(${numberText(only)})` : numberText(only), reads: {} };
  const offset = shape.length - value.shape.length;
  const kept = value.shape.flatMap((size, d) => (size === 1 && (shape[d + offset] ?? 1) !== 1 ? [] : [d]));
  const axes = axesOfRank(shape.length);
  const shown = kept.map((d) => value.shape[d] ?? 1);
  const text = `${name}[${kept.map((d) => axes[d + offset]).join(",")}]`;
  const quantised = value.constant ? undefined : node.quantised(value);
  const numbers = quantised && numbersText(text, quantised);
  const read = (numbers === undefined ? value : quantised?.stored) ?? internal("numbers of nothing");
  return {
    text: numbers ?? text,
    reads: { [name]: isSameShape(shown, read.shape) ? read : node.reshaped(read, shown) },
  };
}

/** The dequantised text of an integer operand with one known scale; undefined if its dequantised form is read. */
function numbersText(read: string, { scale, zero, stored }: Quantised): string | undefined {
  const by = scale.constant;
  const from = zero ? zero.constant : [0];
  const [factor, less = 0] = [by?.[0], from?.[0]];
  if (by?.length !== 1 || from?.length !== 1 || factor === undefined || !(factor > 0 && Number.isFinite(factor)))
    return undefined;
  if (stored.type !== "u8" && stored.type !== "s8") return undefined;
  return less === 0
    ? `(f32(${read}) * ${numberText(factor)})`
    : `(f32(s32(${read}) - ${less < 0 ? `(${less})` : less}) * ${numberText(factor)})`;
}

/** A list with an element for each channel, along dimension 1. @param called the list in messages */
export function overChannels(node: Lowering, list: Value, { shape }: Value, called: string): Value {
  const [, channels = 1, ...spatial] = shape;
  if (list.shape.length !== 1 || list.shape[0] !== channels)
    node.refuse(`${called} of ${bracketed(list.shape)} for ${channels} channels`);
  return node.reshaped(list, [channels, ...spatial.map(() => 1)]);
}

/** A number as the notation reads it. */
export const numberText = (x: number): string => (Object.is(x, -0) ? "-0" : String(x));
