/**
 * @file The part of a drawn reference that makes outputs of sums: draws what an epilogue reads beside them, computes what
 * it stores, and measures how far off an output may be for sums that may be off.
 *
 *     res[k,p] = max(out[k,p] + bias[k], 0)      out may be off by 1e-6      res is computed for out, out - 1e-6 and out + 1e-6
 */

import { mapValues } from "../abstraction/collections.ts";
import {
  type Computation,
  elementCount,
  inputsOf,
  memoryElements,
  outputOf,
  type Tensor,
  targetOf,
} from "../abstraction/computation.ts";
import { isInteger, rangeOf } from "../abstraction/dtype.ts";
import { isElementwise, partsOf } from "../abstraction/epilogue.ts";
import { type Code, code } from "../abstraction/source-text.ts";
import { copied, heldPlain, heldType, isTurned, placedInput, withoutBorder } from "./drawn-elements.ts";
import { dataName, type Holding, referenceStruct, sharedAxis } from "./reference-source.ts";
import { callsLibrary } from "./size.ts";
import { neverTurns, tensorsBeside } from "./value-facts.ts";

/**
 * Whether the program can apply the epilogue of a computation: it stores each element at its own place, calls no library,
 * reads nothing that the sums read too, and, where sums are not exact, never turns while a sum rises.
 */
export function isFinishedByProgram(computation: Computation, isExact: boolean): boolean {
  const { sum, epilogue, beside } = partsOf(computation);
  if (!epilogue) return true;
  const { value } = epilogue.equation;
  if (beside.length > 0 || !isElementwise(epilogue.equation) || !sharedAxis(epilogue) || callsLibrary(value))
    return false;
  const read = new Set(inputsOf(sum).map(({ name }) => name));
  if (inputsOf(epilogue).some(({ name }) => read.has(name))) return false;
  const types = mapValues(epilogue.tensors, ({ dtype }) => dtype);
  return isExact || neverTurns(value, targetOf(sum).name, types);
}

/** The struct that applies an epilogue to sums of a type, and its instance. */
export function finishStruct(epilogue: Computation, sums: Tensor, lanes: number): Code {
  const hold = (t: Tensor): Holding => ({
    ...heldPlain(t),
    ...(t.name === sums.name && { type: code`Moved<${heldType(sums)}>` }),
  });
  return code`${referenceStruct(code`Finish`, epilogue, hold, lanes)}
static Finish finish;`;
}

/**
 * The statements that make a set's outputs of its sums.
 * @param inputs those that the epilogue reads beside the sums, with their numbers
 * @param fixed inputs whose files already exist
 */
export function finished(
  computation: Computation,
  epilogue: Computation,
  inputs: readonly { readonly tensor: Tensor; readonly i: number }[],
  fixed: ReadonlySet<string>,
): Code[] {
  const sums = targetOf(computation);
  const output = outputOf(computation);
  const count = elementCount(output);
  const type = heldType(output);
  const held = dataName(sums.name);
  const stored = dataName(output.name);
  const extent = sharedAxis(epilogue)?.extent ?? 1;
  const compute = code`in_parts(threads, ${extent}, [](Int first, Int last) { finish.compute_part(first, last); });`;
  const isCopied = isTurned(output);
  return [
    code`const double spread = spread_of(it.${held}.data, ${elementCount(sums)});`,
    ...inputs.flatMap(({ tensor, i }) => [
      ...(fixed.has(tensor.name) ? [] : [drawnBeside(tensor, i, epilogue)]),
      ...kept(tensor),
      ...placedInput("finish", tensor, i, isTurned(tensor) ? withoutBorder(tensor) : undefined),
    ]),
    isCopied ? code`static auto* const results = zeros<${type}>(${count});` : code`auto* const results = answer;`,
    code`finish.${held} = {it.${held}.data, 0};`,
    code`finish.${stored}.data = results;`,
    compute,
    ...(isCopied ? copied("finish", output, output.name, withoutBorder(output)) : []),
    code`double reach = 0;
    if (within > 0) {
      static auto* const ends = zeros<${type}>(${count});
      finish.${stored}.data = ends;
      for (int side = -1; side <= 1; side += 2) {
        finish.${held}.by = side * within;
        ${compute}
        const double apart = furthest(results, ends, ${count});
        reach = apart > reach || is_nan(apart) ? apart : reach;
      }
    }
    report(results, ${count}, reach);`,
  ];
}

/** Memory for the copy of an input, kept from set to set. */
function kept(tensor: Tensor): Code[] {
  if (!isTurned(tensor)) return [];
  const data = code`finish.${dataName(tensor.name)}.data`;
  return [code`if (!${data}) ${data} = zeros<${heldType(tensor)}>(${elementCount(tensor)});`];
}

/** Draws an input of an epilogue into its file, in a size for which the outputs cover the range of their type. */
function drawnBeside(tensor: Tensor, i: number, epilogue: Computation): Code {
  const role = tensorsBeside("/", epilogue).has(tensor.name)
    ? "DIVISOR"
    : tensorsBeside("*", epilogue).has(tensor.name)
      ? "FACTOR"
      : "TERM";
  const { dtype } = targetOf(epilogue);
  const [least, most] = rangeOf(dtype);
  const aim = isInteger(dtype) ? code`${(most - least) / 2}` : code`spread`;
  const ratio = isInteger(dtype) ? code`${aim} / spread` : code`1`;
  return code`in_parts(threads, ${memoryElements(tensor)}, [=](Int first, Int last) { draw_beside(${tensor.dtype}{}, drawn_${i}, first, last, set, mixed(seed + ${i}), ${role}, ${aim}, ${ratio}); });`;
}
