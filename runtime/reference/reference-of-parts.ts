/**
 * @file The reference of a program of several computations: the results that it stores, and the error bound of each.
 *
 *     y0 = x0 - x1      off by its own rounding
 *     y1 = exp(y0)      off by its own rounding, and by as much as exp moves where y0 is off
 *
 * An equation rounds as if what it reads were exact (error-bound.ts); what it reads moves it (deviation.ts).
 */

import { unique } from "../../abstraction/collections.ts";
import {
  type Computation,
  elementCount,
  inputsOf,
  outputOf,
  type Tensor,
  tensorOf,
} from "../../abstraction/computation.ts";
import { partsOf } from "../../abstraction/epilogue.ts";
import { internal, UsageError } from "../../abstraction/error.ts";
import type { Values } from "../../abstraction/evaluate.ts";
import { accessesIn, walk } from "../../abstraction/expression.ts";
import { KEPT, madeBy } from "../../abstraction/program.ts";
import { encodeElements } from "../bytes.ts";
import { deviationOf } from "./deviation.ts";
import { drawInputs } from "./draw-inputs.ts";
import { boundOf, type Evaluate, toleranceOf } from "./error-bound.ts";
import {
  checkedIn,
  evaluatorWith,
  fromMemory,
  inputsOfSizes,
  type Reference,
  type ReferenceOptions,
  type ReferenceSet,
  tells,
  toMemory,
} from "./verify.ts";

/** Integers, and fractions between -1 and 1: larger numbers overflow in functions and squares. */
const SETS = ["exact", "random"] as const;

/** Why the program's results cannot be bounded; undefined where they can. */
export function unboundedIn({ name, program }: Computation): string | undefined {
  const { parts = [] } = program ?? {};
  const made = new Set(parts.map(madeBy));
  const tested = parts.find(({ computation, names }) =>
    [computation.equation, computation.epilogue?.equation]
      .flatMap((equation) => (equation ? [...walk(equation.value)] : []))
      .filter((e) => e.kind === "compare" || (e.kind === "binary" && e.op === "%"))
      .some((e) => accessesIn(e).some((read) => made.has(names[read.tensor] ?? ""))),
  );
  return tested && `${name} tests what it has rounded before`;
}

/** @throws UsageError where wrong results would pass */
export async function referenceOfParts(
  computation: Computation,
  seed: number,
  options: ReferenceOptions,
): Promise<Reference> {
  const because = unboundedIn(computation);
  if (because !== undefined) throw new UsageError(because);
  const output = outputOf(computation);
  const { stored = [] } = computation.program ?? {};
  // Times are taken on inputs of the first sets, which are those of the value that is stored last.
  const tensors = unique([output.name, ...stored]).map((name) => tensorOf(computation, name));
  const sets = new Map(tensors.map((tensor): [Tensor, ReferenceSet[]] => [tensor, []]));
  const made = new Set((computation.program?.parts ?? []).map(madeBy));
  const fixed = Object.fromEntries(
    inputsOf(computation)
      .filter(({ name }) => name === KEPT || made.has(name))
      .map((tensor) => [tensor.name, new Float64Array(elementCount(tensor))]),
  );
  for (const name of SETS) {
    const { signal } = options;
    const inputs = await drawInputs(computation, name, { large: 1, seed, fixed, scale: undefined, signal });
    const known = await valuesOf(computation, inputs, options);
    const held = Object.fromEntries(
      inputsOf(computation).map((tensor) => {
        const memory = toMemory(tensor, inputs[tensor.name] ?? []);
        return [tensor.name, encodeElements(tensor.dtype, memory)];
      }),
    );
    for (const [tensor, own] of sets) {
      const { values, off = values.map(() => 0) } =
        known.get(tensor.name) ?? internal(`nothing makes ${tensor.name}, which is stored`);
      if (!tells(values, off)) continue;
      own.push({
        name,
        ...(tensor !== output && { of: tensor }),
        inputs: held,
        expected: toMemory(tensor, values),
        tolerance: toMemory(tensor, off),
      });
    }
  }
  for (const [{ name }, own] of sets)
    if (own.length === 0)
      throw new UsageError(
        `${computation.name} cannot be verified: rounding of ${name} may differ by as much as the answers do`,
      );
  return { computation, sets: [...sets.values()].flat(), checked: checkedIn(output) };
}

/** What is known of a tensor, row-major. */
interface Known {
  readonly values: Values;
  /** How far each element may be off; left out where all are exact. */
  readonly off?: Values;
}

/** What each computation of a program makes of the program's inputs, by name. */
async function valuesOf(
  computation: Computation,
  inputs: Readonly<Record<string, Float64Array>>,
  options: ReferenceOptions,
): Promise<ReadonlyMap<string, Known>> {
  const evaluate = evaluatorWith(options);
  const known = new Map<string, Known>();
  for (const part of computation.program?.parts ?? []) {
    const { sum, epilogue } = partsOf(part.computation);
    const nameOf = (tensor: string): string => part.names[tensor] ?? `${madeBy(part)}_sum`;
    for (const one of epilogue ? [sum, epilogue] : [sum]) {
      const read = inputsOf(one).map((tensor): [string, Known] => {
        const name = nameOf(tensor.name);
        // Of what the program reads, parts may have other views of the same memory.
        const given = (): Values => fromMemory(tensor, toMemory(tensorOf(computation, name), inputs[name] ?? []));
        return [tensor.name, known.get(name) ?? { values: given() }];
      });
      known.set(nameOf(outputOf(one).name), await computed(one, new Map(read), evaluate));
    }
  }
  return known;
}

/** What an equation makes of what it reads. */
async function computed(one: Computation, read: ReadonlyMap<string, Known>, evaluate: Evaluate): Promise<Known> {
  const { equation, tensors } = one;
  const inputs = Object.fromEntries([...read].map(([name, { values }]) => [name, values]));
  const values = await evaluate(one, inputs);
  const bound = await boundOf(one, evaluate);
  const sizes = bound && (await evaluate(bound.magnitude, inputsOfSizes(bound, inputs)));
  const offs = [...read].flatMap(([name, { off }]) => (off ? [{ name, off, called: `${name}_off` }] : []));
  const moved = deviationOf(equation.value, new Map(offs.map(({ name, called }) => [name, called])));
  if (!bound && !moved) return { values };
  const wide = Object.values(tensors).map((tensor): Tensor => ({ ...tensor, dtype: "f64" }));
  const all = [
    ...wide,
    ...offs.flatMap(({ name, called }) => wide.filter((t) => t.name === name).map((t) => ({ ...t, name: called }))),
  ];
  const op = equation.op === "max=" || equation.op === "min=" ? "max=" : equation.op;
  const handed =
    moved &&
    (await evaluate(
      {
        ...one,
        name: `${one.name} (moved)`,
        equation: { ...equation, op, value: moved },
        tensors: Object.fromEntries(all.map((tensor) => [tensor.name, tensor])),
      },
      { ...inputs, ...Object.fromEntries(offs.map(({ called, off }) => [called, off])) },
    ));
  const off = values.map((value, i) => {
    const own = bound && sizes ? toleranceOf(bound, bound.terms[i] ?? 1, sizes[i] ?? 0, value) : 0;
    return Number.isFinite(value) ? own + (handed?.[i] ?? 0) : 0;
  });
  return { values, off };
}
