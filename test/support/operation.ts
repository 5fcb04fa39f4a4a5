/** @file Operators of the table in the words of the command line: `conv2d n=1 c=64 k=64 h=8 w=8`. */

import type { Computation } from "../../abstraction/computation.ts";
import { type InstantiateOptions, instantiate, operatorNamed, parseDataTypes } from "../../operators/index.ts";

/** `n=1 c=64 n=2` as n 2, c 64: of two values the last holds. */
export const parametersIn = (words: string): Record<string, number> =>
  Object.fromEntries(
    words.split(" ").flatMap((word) => {
      const [name = "", value] = word.split("=");
      return value === undefined ? [] : [[name, Number(value)]];
    }),
  );

/**
 * @param words an operator, and the parameters that differ from its defaults
 * @param types `f16`, `u8s8`, `f16->f16`
 */
export function operation(
  words: string,
  types = "f32",
  more: Omit<InstantiateOptions, "parameters" | "types"> = {},
): Computation {
  const [name = ""] = words.split(" ");
  return instantiate(operatorNamed(name), {
    parameters: parametersIn(words),
    types: parseDataTypes(types),
    ...more,
  });
}
