/**
 * @file Where the elements of images lie between steps: channels last, NHWC, as kernels of convolutions are fastest with.
 *
 *     f32[1,64,56,56]      element at ((n*56 + h)*56 + w)*64 + c
 *
 * Inputs and outputs of the network lie as the user has them, row-major; so does what is shown under another shape. The equations stay what they
 * are: a layout is a storage formula.
 */

import { type Computation, outputOf, type Tensor } from "../abstraction/computation.ts";
import { axis } from "../abstraction/expression.ts";
import { fuseRowMajor } from "../abstraction/layout.ts";
import { type Program, rootOf, type Step } from "./program.ts";
import type { Value } from "./value.ts";

/** The program with the images between its steps in NHWC. */
export function channelsLast(program: Program): Program {
  const fixed = new Set<Value>([...program.inputs, ...program.outputs.map(({ value }) => rootOf(value))]);
  for (const step of program.steps)
    for (const value of Object.values(step.reads)) if (value.of) fixed.add(rootOf(value));
  const turned = (value: Value): boolean => {
    const [, , ...pixels] = value.shape;
    return (
      !fixed.has(rootOf(value)) &&
      value.constant === undefined &&
      value.shape.length === 4 &&
      pixels.some((size) => size > 1)
    );
  };
  return { ...program, steps: program.steps.map((step) => laidOut(step, turned)) };
}

function laidOut(step: Step, turned: (value: Value) => boolean): Step {
  const output = outputOf(step.computation).name;
  const tensors = Object.fromEntries(
    Object.entries(step.computation.tensors).map(([name, tensor]) => {
      const value = name === output ? step.output : step.reads[name];
      return [name, value && turned(value) ? { ...tensor, storage: channelsLastFormula(tensor) } : tensor];
    }),
  );
  const computation: Computation = { ...step.computation, tensors };
  return { ...step, computation };
}

function channelsLastFormula({ dims }: Tensor) {
  const [n, c, ...pixels] = dims;
  if (!n || !c) throw new Error("internal: an image has four dimensions");
  return fuseRowMajor([n, ...pixels, c].map(({ name, extent }) => ({ index: axis(name), extent })));
}
