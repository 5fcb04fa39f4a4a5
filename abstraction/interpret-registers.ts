/**
 * @file The contents of instruction registers and lane vectors while a nest is interpreted.
 */

import { isInteger, wrap } from "./dtype.ts";
import type { Buffer, Registers } from "./evaluate.ts";
import { identityOf } from "./expression.ts";
import { type Intrinsic, operandOf } from "./intrinsic.ts";
import type { VectorFile } from "./loop-nest.ts";
import { tilePlaces, tileRowElements } from "./memory-tile.ts";

/** Registers that all hold 0. */
export function registersOf(intrinsic: Intrinsic, operandName: string, count: number): Registers {
  const operand = operandOf(intrinsic, operandName);
  const places = tilePlaces(intrinsic, operandName);
  const row = tileRowElements(operand);
  return {
    tiles: Array.from({ length: count }, () => new Float64Array(places.length)),
    rows: places.map((at) => Math.floor(at / row)),
    columns: places.map((at) => at % row),
    identity: identityOf(intrinsic.computation.equation.op, operand.dtype),
  };
}

/** Integers have no NaN: this value, which tests do not use, marks an unknown element. */
const UNKNOWN_INTEGER = 0x5bad_5bad;

export function vectorsOf({ dtype, lanes, count }: VectorFile): Buffer & { readonly unknown: number } {
  const unknown = isInteger(dtype) ? wrap(dtype, UNKNOWN_INTEGER) : Number.NaN;
  return { values: new Float64Array(count * lanes), shape: [count, lanes], dtype, unknown };
}
