/**
 * @file Error bound for a step computed in another form, such as Winograd's: its result must equal the equation's within the rounding of the
 * larger intermediate values that cancel.
 *
 *     sums of |G w G^T| * |B d B^T|, brought back by |A|      times the roundings on the longest way, times 2^-24
 *
 * The bound of Barabasz, Anderson, Soodhalter and Gregg, Error Analysis and Improving the Accuracy of Winograd Convolution for Deep Neural Networks
 * (ACM TOMS 2020), theorem 3, with each magnitude computed from the actual elements. It is wider than that of the equation itself: by 4 to 100 times
 * for windows of 6 x 6.
 */

import { mapValues } from "../../abstraction/collections.ts";
import { type Computation, targetOf } from "../../abstraction/computation.ts";
import { partsOf } from "../../abstraction/epilogue.ts";
import { internal } from "../../abstraction/error.ts";
import { type Expr, number, rewrite } from "../../abstraction/expression.ts";
import { rootOf, type Step } from "../../network/network.ts";
import type { Value } from "../../network/value.ts";
import { boundOf } from "../../runtime/reference/error-bound.ts";
import { type Expected, expectedOn } from "../../runtime/reference/expected.ts";
import type { ProgramOptions } from "../../runtime/reference/reference-program.ts";
import { evaluatorWith } from "../../runtime/reference/verify.ts";

/** Elements of a value, row-major. */
export type ElementsOf = (value: Value) => Float64Array;

/** @returns undefined for a step computed by its own equation */
export async function expectedOfForm(
  step: Step,
  elementsOf: ElementsOf,
  options: ProgramOptions,
): Promise<Expected | undefined> {
  if (!step.insteadOf) return undefined;
  const { step: own, steps } = step.insteadOf;
  const evaluate = evaluatorWith(options);
  // The transformed filters were rounded once.
  let roundings = 1;
  let epsilon = 0;
  let smallest = 0;
  const sizes = new Map<Value, Float64Array>();
  let last: Float64Array = new Float64Array();
  for (const part of [...steps, step]) {
    const { sum } = partsOf(part.computation);
    const bound = (await boundOf(sum, evaluate)) ?? internal(`${sum.name} does not round`);
    roundings += (bound.terms[0] ?? 1) + bound.operations + 1;
    epsilon = Math.max(epsilon, bound.epsilon);
    smallest = Math.max(smallest, bound.smallest);
    const inputs = Object.fromEntries(
      Object.keys(sum.tensors).flatMap((tensor) => {
        const value = part.reads[tensor];
        if (!value) return [];
        return [[tensor, sizes.get(rootOf(value)) ?? elementsOf(value).map(Math.abs)] as const];
      }),
    );
    last = await evaluate(withoutSigns(sum), inputs);
    sizes.set(part.output, last);
  }
  const inputs = mapValues(own.reads, elementsOf);
  return expectedOn(own.computation, inputs, options, (i) => roundings * (epsilon * (last[i] ?? 0) + smallest));
}

/** The computation with its negative constants made positive, so that terms of nonnegative elements do not cancel. It is evaluated in doubles. */
function withoutSigns(computation: Computation): Computation {
  const { equation, tensors } = computation;
  const absolute = (e: Expr): Expr => (e.kind === "number" && e.value < 0 ? number(-e.value) : e);
  return {
    ...computation,
    name: `${targetOf(computation).name} (sizes)`,
    equation: { ...equation, value: rewrite(equation.value, absolute, "value") },
    tensors: mapValues(tensors, (tensor) => ({ ...tensor, dtype: "f64" as const })),
  };
}
