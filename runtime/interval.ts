/**
 * @file Bounds of an epilogue over a sum that is known only approximately.
 *
 *     out in [3.4, 3.6]      sat_u8(round(out))      [3, 4]
 *
 * Where an epilogue never turns, they are its results at both ends. Elsewhere a program computes them by interval arithmetic
 * (harness/intervals.h).
 */

import { type Computation, inputsOf, tensorOf } from "../abstraction/computation.ts";
import { isInteger } from "../abstraction/dtype.ts";
import type { Values } from "../abstraction/evaluate.ts";
import { accessesIn, type Expr } from "../abstraction/expression.ts";
import type { Inputs } from "../abstraction/interpret.ts";
import { type DTypes, typeOf } from "../abstraction/typing.ts";
import { endsSource } from "./reference-ends.ts";
import { type ProgramOptions, valuesOfProgram } from "./reference-program.ts";
import { callsLibrary } from "./size.ts";

export interface Ends {
  readonly low: Values;
  readonly high: Values;
}

/**
 * The interval of every output element of an epilogue; NaN for elements that it does not store.
 * @param epilogue an element-wise computation, as returned by `partsOf`
 * @param uncertain the input known only to lie between the given bounds; the others are exact
 */
export async function intervalsOf(
  epilogue: Computation,
  inputs: Inputs,
  uncertain: string,
  { low, high }: Ends,
  options: ProgramOptions,
): Promise<Ends> {
  const sum = tensorOf(epilogue, uncertain);
  const pairs = new Float64Array(2 * low.length);
  for (const [i, end] of low.entries()) {
    pairs[2 * i] = end;
    pairs[2 * i + 1] = high[i] ?? Number.NaN;
  }
  const all = { ...inputs, [uncertain]: pairs };
  const read = inputsOf(epilogue).map(({ name }) => [name, all[name]] as const);
  const found = await valuesOfProgram(epilogue, endsSource(epilogue, sum), read, options);
  return {
    low: found.filter((_, i) => i % 2 === 0),
    high: found.filter((_, i) => i % 2 === 1),
  };
}

/**
 * The same for an epilogue that never turns: its results for both ends, without compiling a program for few elements. Undefined if nothing is known, or
 * a result is NaN.
 */
export async function endsByDirection(
  epilogue: Computation,
  inputs: Inputs,
  uncertain: string,
  ends: Ends,
  evaluate: (computation: Computation, inputs: Inputs) => Promise<Values> | Values,
): Promise<Ends | undefined> {
  const { value, where } = epilogue.equation;
  const types = Object.fromEntries(Object.values(epilogue.tensors).map((t) => [t.name, t.dtype]));
  if (where !== undefined || callsLibrary(value) || !neverTurns(value, uncertain, types)) return undefined;
  const first = await evaluate(epilogue, { ...inputs, [uncertain]: ends.low });
  const second = await evaluate(epilogue, { ...inputs, [uncertain]: ends.high });
  if (first.some(Number.isNaN) || second.some(Number.isNaN)) return undefined;
  return {
    low: first.map((x, i) => Math.min(x, second[i] ?? x)),
    high: first.map((x, i) => Math.max(x, second[i] ?? x)),
  };
}

/**
 * Whether a value never falls, or never rises, while the element of a tensor rises that it reads once, whatever its other
 * parts are. Then its values for both ends of an interval enclose all between them.
 */
export function neverTurns(e: Expr, tensor: string, types: DTypes): boolean {
  const reads = (part: Expr): boolean => accessesIn(part).some((a) => a.tensor === tensor);
  if (!reads(e)) return true;
  const isOfFloats = (): boolean => !isInteger(typeOf(e, types) ?? "s32");
  switch (e.kind) {
    case "access":
      return true;
    case "negate":
      return isOfFloats() && neverTurns(e.value, tensor, types);
    case "cast":
      // A cast that wraps falls where it wraps.
      return (e.saturate || !isInteger(e.dtype)) && neverTurns(e.value, tensor, types);
    case "binary": {
      const { op, left, right } = e;
      if (reads(left) && reads(right)) return false;
      const isKept = op === "+" || op === "-" || op === "*" || (op === "/" && reads(left));
      return isKept && isOfFloats() && neverTurns(reads(left) ? left : right, tensor, types);
    }
    case "call": {
      const isKept = ["min", "max", "round", "floor", "ceil"].includes(e.fn);
      const [moved, ...more] = e.args.filter(reads);
      return isKept && moved !== undefined && more.length === 0 && neverTurns(moved, tensor, types);
    }
    default:
      return false;
  }
}
