/**
 * @file The expected results of a computation on given inputs, such as those of a step within a network, and the
 * tolerance for a kernel.
 *
 *     const { expected, tolerance } = await expectedOn(conv, { in: values, w: weights }, { compiler, workdir })
 */

import { type Computation, targetOf } from "../../abstraction/computation.ts";
import { partsOf } from "../../abstraction/epilogue.ts";
import type { Values } from "../../abstraction/evaluate.ts";
import { boundOfForm, largestInWindows } from "../../abstraction/winograd.ts";
import { boundOf, toleranceOf } from "./error-bound.ts";
import type { ProgramOptions } from "./reference-program.ts";
import { evaluatorWith, finish, inputsOfSizes } from "./verify.ts";

/** Row-major. */
export interface Expected {
  readonly expected: Values;
  readonly tolerance: Float64Array;
}

/**
 * The result of a computation on given inputs, and the tolerance for a kernel.
 * @param isOfForm whether the kernel computes a form of the equation with fewer products (abstraction/winograd.ts)
 */
export async function expectedOn(
  computation: Computation,
  inputs: Readonly<Record<string, Float64Array>>,
  options: ProgramOptions,
  isOfForm = false,
): Promise<Expected> {
  const evaluate = evaluatorWith(options);
  const { sum, epilogue, beside } = partsOf(computation);
  const bound = await boundOf(sum, evaluate);
  const expected = await evaluate(sum, inputs);
  const own = bound && (await evaluate(bound.magnitude, inputsOfSizes(bound, inputs)));
  const form = isOfForm ? boundOfForm(computation) : undefined;
  const sizes = own && form ? largestInWindows(computation, own) : own;
  const tolerance = new Float64Array(expected.length);
  for (const [i, value] of expected.entries())
    if (bound && sizes)
      tolerance[i] = (form?.factor ?? 1) * toleranceOf(bound, bound.terms[i] ?? 1, sizes[i] ?? 0, value);
  return epilogue
    ? finish({ epilogue, beside }, inputs, targetOf(sum).name, { expected, tolerance }, options)
    : { expected, tolerance };
}
