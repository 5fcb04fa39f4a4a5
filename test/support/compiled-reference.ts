/** @file The compiled reference of random computations beside the interpreter. */

import { expect } from "vitest";
import { type Computation, computationKey, inputsOf } from "../../abstraction/computation.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { decodeElements } from "../../runtime/bytes.ts";
import type { Runner } from "../../runtime/measure.ts";
import { interpretCompiled } from "../../runtime/reference/reference-program.ts";
import { fromMemory, type ReferenceSet } from "../../runtime/reference/verify.ts";

/** @param draw a computation and its inputs, of the i-th of `count` */
export async function expectInterpreted(
  { compiler, workdir }: Runner,
  count: number,
  draw: (i: number) => readonly [Computation, Record<string, Float64Array>],
): Promise<void> {
  for (let i = 0; i < count; i++) {
    const [computation, inputs] = draw(i);
    const compiled = await interpretCompiled(computation, inputs, { compiler, workdir });
    expect(
      [...compiled].map((x) => x + 0),
      computationKey(computation),
    ).toEqual([...interpret(computation, inputs)].map((x) => x + 0));
  }
}

/** The numbers of a set's inputs, row-major. */
export const valuesOf = (computation: Computation, set: ReferenceSet): Record<string, Float64Array> =>
  Object.fromEntries(
    inputsOf(computation).map((t) => [
      t.name,
      fromMemory(t, decodeElements(t.dtype, set.inputs[t.name] ?? new Uint8Array())),
    ]),
  );
