/**
 * @file The forms in which a step can be computed: its own equation, or steps that give the same result in real numbers with fewer multiplications.
 *
 *     formsOf(conv)      [[conv], [windows, products, conv from 4 x 4 products], [windows, products, conv from 6 x 6 products]]
 *
 * Measured times decide which form is fastest (session/network/forms.ts).
 */

import { TRANSFORM_NAMES } from "../abstraction/winograd.ts";
import type { Network, Step } from "./network.ts";
import { winogradSteps } from "./winograd.ts";

/** Steps that together compute one output, which the last of them writes. */
export type Form = readonly Step[];

/** All forms of a step, the step itself first. */
export function formsOf(step: Step): readonly Form[] {
  const others = TRANSFORM_NAMES.flatMap((name) => {
    const steps = winogradSteps(step, name);
    return steps ? [steps] : [];
  });
  return [[step], ...others];
}

/** The program with each step in its chosen form. */
export function inForms(program: Network, chosen: (step: Step) => Form): Network {
  return { ...program, steps: program.steps.flatMap((step) => chosen(step)) };
}
