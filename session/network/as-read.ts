/**
 * @file Compares a library's outputs with those of the network as it was read: each node by its own equations, before operators are fused,
 * constants divided, or layouts chosen.
 *
 *     const wanted = await outputsAsRead(plain, inputs, { compiler, workdir });
 *     differenceAsRead(plain, wanted, outputs)      "y: element 3 is 4.1, and the nodes as they were read give 2.5"
 *
 * A step is held to its equation within the bound of its rounding elsewhere (prove-network.ts); what made the equation wrong is found here. Roundings of
 * all steps add up, so the bound is a share of the largest number of an output.
 */

import { setImmediate } from "node:timers/promises";
import { mapValues } from "../../abstraction/collections.ts";
import { type Network, rootOf } from "../../network/network.ts";
import { runNetwork } from "../../network/run.ts";
import type { Value } from "../../network/value.ts";
import type { ProgramOptions } from "../../runtime/reference/reference-program.ts";
import { evaluatorWith } from "../../runtime/reference/verify.ts";

/** From here on a number is a mask, which says nothing of the size of the others. */
const MASK = 1e30;

/** Allowed error as a share of the output's largest number. Rounding 8-bit integers either way changed the output of resnet18-u8s8 by 0.0075. */
const TOLERANCE = 0.03;

/** The outputs of the nodes by name, row-major. Other work of the process goes on between nodes. */
export function outputsAsRead(
  plain: Network,
  inputs: Readonly<Record<string, Float64Array>>,
  options: ProgramOptions,
): Promise<ReadonlyMap<string, ArrayLike<number>>> {
  const evaluate = evaluatorWith(options);
  return runNetwork(plain, inputs, {
    evaluate: async (computation, reads) => {
      await setImmediate();
      return evaluate(
        computation,
        mapValues(reads, (values) => Float64Array.from(values)),
      );
    },
  });
}

/**
 * @param plain every node, given by its equations
 * @param wanted the outputs of these
 * @param outputs the library's results, row-major, in the order of the network's outputs
 * @returns the first element that differs; undefined when none does
 */
export function differenceAsRead(
  plain: Network,
  wanted: ReadonlyMap<string, ArrayLike<number>>,
  outputs: readonly ArrayLike<number>[],
): { readonly output: string; readonly said: string } | undefined {
  for (const [i, { name, value }] of plain.outputs.entries()) {
    const said = isPlace(value) ? undefined : differenceOf(wanted.get(name) ?? [], outputs[i] ?? []);
    if (said !== undefined) return { output: name, said };
  }
  return undefined;
}

/** Whether rounding may change the value to any other: indices and booleans have no meaningful distance. */
const isPlace = (value: Value): boolean => ["s64", "bool"].includes(rootOf(value).type);

function differenceOf(wanted: ArrayLike<number>, got: ArrayLike<number>): string | undefined {
  let largest = 0;
  for (let e = 0; e < wanted.length; e++)
    if (Math.abs(wanted[e] ?? MASK) < MASK) largest = Math.max(largest, Math.abs(wanted[e] ?? 0));
  for (let e = 0; e < wanted.length; e++) {
    const [made = Number.NaN, given = Number.NaN] = [got[e], wanted[e]];
    // When the sum of a rounding may overflow, one order of summation may overflow and another not.
    const bound = TOLERANCE * (Math.abs(given) < MASK ? largest : Math.abs(given));
    if (!Number.isFinite(given) || Math.abs(made - given) <= bound) continue;
    return `element ${e} is ${made}, and the nodes as they were read give ${given}`;
  }
  return undefined;
}
