/**
 * @file Bounds of an epilogue over a sum that is known only approximately.
 *
 *     out in [3.4, 3.6]      sat_u8(round(out))      [3, 4]
 *
 * Where an epilogue never turns, they are its results at both ends. Elsewhere a program computes them by interval arithmetic
 * (harness/intervals.h).
 */

import { mapValues } from "../abstraction/collections.ts";
import { type Computation, inputsOf, tensorOf } from "../abstraction/computation.ts";
import type { Values } from "../abstraction/evaluate.ts";
import type { Inputs } from "../abstraction/interpret.ts";
import { endsSource } from "./reference-ends.ts";
import { type ProgramOptions, valuesOfProgram } from "./reference-program.ts";
import { callsLibrary } from "./size.ts";
import { neverTurns } from "./value-facts.ts";

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
  const types = mapValues(epilogue.tensors, ({ dtype }) => dtype);
  if (where !== undefined || callsLibrary(value) || !neverTurns(value, uncertain, types)) return undefined;
  const first = await evaluate(epilogue, { ...inputs, [uncertain]: ends.low });
  const second = await evaluate(epilogue, { ...inputs, [uncertain]: ends.high });
  if (first.some(Number.isNaN) || second.some(Number.isNaN)) return undefined;
  return {
    low: first.map((x, i) => Math.min(x, second[i] ?? x)),
    high: first.map((x, i) => Math.max(x, second[i] ?? x)),
  };
}
