/**
 * @file Runs a network step by step with the interpreter. This is the oracle for all code generated from it, and it is slow.
 *
 *     await runNetwork(program, { x: values })      Map { "y" => Float64Array }
 */

import { mapValues } from "../abstraction/collections.ts";
import type { Computation } from "../abstraction/computation.ts";
import { internal, UsageError } from "../abstraction/error.ts";
import { type Inputs, interpret } from "../abstraction/interpret.ts";
import { type Network, returnedBy, rootOf, rootsRead, type Step, shownOf } from "./network.ts";
import { describeValue, elementsOf, type Value } from "./value.ts";

/** Computes one step: the interpreter, or a program compiled for it. */
export type Evaluate = (computation: Computation, inputs: Inputs) => Promise<ArrayLike<number>> | ArrayLike<number>;

interface RunOptions {
  readonly evaluate?: Evaluate;
  /** Receives the elements of each step's output, row-major. */
  readonly onStep?: (step: Step, elements: ArrayLike<number>) => void;
}

/**
 * The outputs of a network by name, row-major.
 * @param inputs row-major, by name
 * @throws UsageError when an input is missing or has the wrong number of elements
 */
export async function runNetwork(
  program: Network,
  inputs: Readonly<Record<string, ArrayLike<number>>>,
  { evaluate = interpret, onStep }: RunOptions = {},
): Promise<Map<string, ArrayLike<number>>> {
  const held = new Map<Value, ArrayLike<number>>();
  for (const value of program.inputs) {
    const elements = inputs[value.name];
    const expected = elementsOf(value.shape, value.name);
    if (elements?.length !== expected)
      throw new UsageError(
        `input ${value.name} is ${describeValue(value)}: ${expected} elements, got ${elements?.length ?? "none"}`,
      );
    held.set(value, elements);
  }
  const elementsAt = (value: Value): ArrayLike<number> => {
    if (value.constant) return value.constant;
    const elements = held.get(rootOf(value)) ?? internal(`${value.name} is read before it is computed`);
    return shownOf(elements, value);
  };
  const lastReader = new Map<Value, Step>();
  for (const step of program.steps) for (const value of rootsRead(step)) lastReader.set(value, step);
  const kept = returnedBy(program);
  for (const step of program.steps) {
    const elements = await evaluate(step.computation, mapValues(step.reads, elementsAt));
    held.set(step.output, elements);
    onStep?.(step, elements);
    // Frees values that no later step reads.
    for (const value of rootsRead(step)) if (lastReader.get(value) === step && !kept.has(value)) held.delete(value);
  }
  return new Map(program.outputs.map(({ name, value }) => [name, elementsAt(value)]));
}
