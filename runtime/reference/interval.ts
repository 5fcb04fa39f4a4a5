/**
 * @file Bounds of an epilogue over a sum that is known only approximately.
 *
 *     out in [3.4, 3.6]      sat_u8(round(out))      [3, 4]
 *
 * Where an epilogue never turns, they are its results at both ends. Elsewhere a program computes them by interval arithmetic
 * (harness/intervals.h).
 */

import { rowMajor } from "../../abstraction/affine.ts";
import { mapValues } from "../../abstraction/collections.ts";
import {
  type Computation,
  elementCount,
  inputsOf,
  type Tensor,
  targetOf,
  tensorOf,
} from "../../abstraction/computation.ts";
import type { Values } from "../../abstraction/evaluate.ts";
import type { Inputs } from "../../abstraction/interpret.ts";
import { apart, code } from "../../abstraction/source-text.ts";
import { callsLibrary, LIBRARY_UNITS } from "../size.ts";
import { programFor, type ReferenceProgram } from "./drawn-source.ts";
import { argumentsOf, counters, pointsOf, resultStruct } from "./reference-bounds.ts";
import { type ProgramOptions, valuesOfProgram } from "./reference-program.ts";
import { dataName, harnessText } from "./reference-source.ts";
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

// ---- the program of the intervals ---------------------------------------------------------------------------------------------

/*
 * Generates the program that computes the interval of every result of an epilogue from those of the sums.
 *
 *     ./ends 2 sums.f64 bias.f64 answer.f64      pairs of a low and a high end; NaN where nothing is stored
 */

/** @param sum the tensor whose file holds pairs */
function endsSource(epilogue: Computation, sum: Tensor): ReferenceProgram {
  const { axes } = epilogue;
  const output = targetOf(epilogue);
  const laid = {
    ...epilogue,
    tensors: mapValues(epilogue.tensors, (tensor) => ({ ...tensor, storage: rowMajor(tensor.dims) })),
  };
  const inputs = inputsOf(epilogue);
  const held = inputs.map((t, i) =>
    t.name === sum.name
      ? code`const Ends* const sums = given<Ends>(files[${i + 2}], ${elementCount(sum)});`
      : code`result.${dataName(t.name)}.data = given<double>(files[${i + 2}], ${elementCount(t)});`,
  );
  const headers = code`static constexpr double LIBRARY_UNITS = ${LIBRARY_UNITS};
${apart(harnessText("intervals.h"))}
`;
  const structs = [
    resultStruct(laid, sum, ({ storage }) => ({ type: code`Plain<double>`, storage })),
    code`static Result result;`,
  ];
  const main = code`${held}
  Ends* const answer = mapped<Ends>(files[${inputs.length + 2}], ${elementCount(output)});
  for (Int i = 0; i < ${elementCount(output)}; i++) answer[i] = {not_a_number, not_a_number};
  in_parts(atoi(files[1]), ${pointsOf(axes)}, [=](Int first, Int last) {
    Result own = result;
    for (Int point = first; point < last; point++) {
      ${counters(axes)}
      const Int place = own.place(${argumentsOf(axes)});
      if (place < 0) continue;
      own.sums = sums[point];
      answer[place] = own.at(${argumentsOf(axes)});
    }
  });`;
  return programFor(epilogue, headers, structs, main);
}
