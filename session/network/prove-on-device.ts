/**
 * @file Hands a network's outputs to a GPU for verification: the output of each step, and the inputs that it read, from files that the library wrote.
 *
 *     await judge(leftBy(program, (value) => elements, folder))      [{ status: "right" }, { status: "wrong", said: "2 elements differ ..." }]
 *
 * An input is the file of the step that made it where both see the same memory. Weights, inputs of the network, and values shown in part or under
 * another shape are written anew from their elements.
 */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { inputsOf, outputOf, type Tensor } from "../../abstraction/computation.ts";
import { internal } from "../../abstraction/error.ts";
import { axis, printExpr, substitute } from "../../abstraction/expression.ts";
import type { Network, Step } from "../../network/network.ts";
import type { Value } from "../../network/value.ts";
import { encodeElements } from "../../runtime/bytes.ts";
import { toMemory } from "../../runtime/reference/verify.ts";
import type { Left } from "../../runtime/run/cuda-judge.ts";

/** @param elementsOf the elements of a value, row-major @param folder of the files `step_0.bin` and so on, and for those written here */
export function leftBy(program: Network, elementsOf: (value: Value) => Float64Array, folder: string): readonly Left[] {
  const madeBy = new Map(program.steps.map((step, i) => [step.output, { step, file: join(folder, `step_${i}.bin`) }]));
  const written = new Map<Value, Map<string, string>>();
  let files = 0;
  const fileOf = (value: Value, tensor: Tensor): string => {
    const made = madeBy.get(value);
    const layout = layoutOf(tensor);
    if (made && layoutOf(outputOf(made.step.computation)) === layout) return made.file;
    const known = written.get(value) ?? new Map<string, string>();
    written.set(value, known);
    const file = known.get(layout) ?? join(folder, `read_${files++}.bin`);
    if (!known.has(layout)) {
      writeFileSync(file, encodeElements(tensor.dtype, toMemory(tensor, elementsOf(value))));
      known.set(layout, file);
    }
    return file;
  };
  const inputsRead = ({ computation, reads }: Step): string[] =>
    inputsOf(computation).map((tensor) => {
      const value = reads[tensor.name] ?? internal(`a step reads ${tensor.name}, which is no value`);
      return fileOf(value, tensor);
    });
  return program.steps.map((step, i) => ({
    computation: step.computation,
    output: join(folder, `step_${i}.bin`),
    inputs: inputsRead(step),
  }));
}

/** A text that is the same for tensors with the same bytes in memory, whatever their dimensions are called. */
function layoutOf({ dtype, dims, storage }: Tensor): string {
  const places = new Map(dims.map(({ name }, d) => [name, axis(`d${d}`)] as const));
  return `${dtype}[${dims.map(({ extent }) => extent).join(",")}] ${printExpr(substitute(storage, places))}`;
}
