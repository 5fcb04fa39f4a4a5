/**
 * @file Ways to compute a step: by its own equation, or by steps that are equal to it in real numbers and take fewer multiplications.
 *
 *     formsOf(conv)      [[conv], [windows, products, conv from 4 x 4 products], [windows, products, conv from 6 x 6 products]]
 *
 * Which of them is fastest is a matter of measured times (session/forms.ts).
 */

import type { Program, Step } from "./program.ts";
import { TRANSFORM_NAMES, winogradSteps } from "./winograd.ts";

/** Steps that make one output; the last of them makes it. */
export type Form = readonly Step[];

/** The step itself first. */
export function formsOf(step: Step): readonly Form[] {
  const others = TRANSFORM_NAMES.flatMap((name) => {
    const steps = winogradSteps(step, name);
    return steps ? [steps] : [];
  });
  return [[step], ...others];
}

/** The program with each step in the form that is chosen for it. */
export function inForms(program: Program, chosen: (step: Step) => Form): Program {
  return { ...program, steps: program.steps.flatMap((step) => chosen(step)) };
}
