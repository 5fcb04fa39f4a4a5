/**
 * @file The forms a step can be computed in: its own equation, or steps that are equal in real numbers and need fewer multiplications.
 *
 *     formsOf(conv)      [[conv], [windows, products, conv from 4 x 4 products], [windows, products, conv from 6 x 6 products]]
 *
 * Measured times decide which of them is fastest (session/forms.ts).
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
