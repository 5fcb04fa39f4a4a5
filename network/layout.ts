/**
 * @file Chooses the memory layout of images between steps: channels last (NHWC), with which convolution kernels are fastest.
 *
 *     f32[1,64,56,56]      element at ((n*56 + h)*56 + w)*64 + c
 *
 * Inputs and outputs of the network stay row-major, as the user has them, and so do values that are reshaped. The equations do not change: a
 * layout is a storage formula.
 */

import { fuseRowMajor } from "../abstraction/affine.ts";
import { addTo, mapValues } from "../abstraction/collections.ts";
import { type Computation, outputOf, type Tensor } from "../abstraction/computation.ts";
import { internal } from "../abstraction/error.ts";
import { accessesIn, axis } from "../abstraction/expression.ts";
import { type Network, returnedBy, rootOf, type Step } from "./network.ts";
import { multiplyAddsOf } from "./tasks.ts";
import type { Value } from "./value.ts";

/**
 * The program with the images between its steps in NHWC.
 * @param filters whether constant filters get their channels innermost too, KRSC, for kernels that pack nothing ahead of the run
 */
export function channelsLast(program: Network, filters = false): Network {
  const fixed = new Set<Value>([...program.inputs, ...returnedBy(program)]);
  for (const { computation, reads, output } of program.steps) {
    for (const value of Object.values(reads)) if (value.of) fixed.add(rootOf(value));
    if (outputOf(computation).dims.length !== output.shape.length) fixed.add(output);
  }
  const turned = (value: Value): boolean => {
    const [, , ...pixels] = value.shape;
    return (
      !fixed.has(rootOf(value)) &&
      value.constant === undefined &&
      value.shape.length === 4 &&
      pixels.some((size) => size > 1)
    );
  };
  const images = imagesIn(program);
  const isTurned = (value: Value): boolean => images.has(value) && turned(value);
  return { ...program, steps: program.steps.map((step) => laidOut(step, isTurned, filters)) };
}

/**
 * Images: values that convolutions and pooling read or write, and values computed from these without products. Attention heads have four dimensions
 * too but are no images.
 */
function imagesIn({ steps }: Network): ReadonlySet<Value> {
  const beside = new Map<Value, Value[]>();
  const images = new Set<Value>();
  for (const { ops, computation, reads, output } of steps) {
    const four = [output, ...Object.values(reads)].filter(({ shape, constant }) => shape.length === 4 && !constant);
    if (ops.some((op) => /Conv|Pool/.test(op))) for (const value of four) images.add(value);
    else if (multiplyAddsOf(computation) === 0) for (const value of four) addTo(beside, value, ...four);
  }
  // A set is walked in the order in which it grows.
  for (const image of images) for (const value of beside.get(image) ?? []) images.add(value);
  return images;
}

function laidOut(step: Step, turned: (value: Value) => boolean, filters: boolean): Step {
  const output = outputOf(step.computation).name;
  const read = new Set(accessesIn(step.computation.equation.value).map((a) => a.tensor));
  const laid = (name: string, tensor: Tensor): Tensor["storage"] => {
    const value = name === output ? step.output : step.reads[name];
    if (value && turned(value)) return channelsLastFormula(tensor);
    const isFilter = filters && value?.constant !== undefined && read.has(name) && multiplyAddsOf(step.computation) > 0;
    return isFilter ? filterFormula(tensor, step) : tensor.storage;
  };
  const tensors = mapValues(step.computation.tensors, (tensor, name) => ({ ...tensor, storage: laid(name, tensor) }));
  const computation: Computation = { ...step.computation, tensors };
  return { ...step, computation };
}

/** Storage of a filter: KCRS as KRSC, and a depthwise one, KRS, as RSK. */
function filterFormula(tensor: Tensor, { operator }: Step): Tensor["storage"] {
  const { dims, storage } = tensor;
  if (dims.length === 4) return channelsLastFormula(tensor);
  const [channel, ...pixels] = dims;
  if (operator?.name !== "depthwise-conv2d" || !channel) return storage;
  return fuseRowMajor([...pixels, channel].map(({ name, extent }) => ({ index: axis(name), extent })));
}

function channelsLastFormula({ dims }: Tensor) {
  const [n, c, ...pixels] = dims;
  if (!n || !c) internal("an image has four dimensions");
  return fuseRowMajor([n, ...pixels, c].map(({ name, extent }) => ({ index: axis(name), extent })));
}
