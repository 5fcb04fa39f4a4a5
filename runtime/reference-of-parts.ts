/**
 * @file The reference of a program of several computations: what it stores last, and how far a kernel may lie from it.
 *
 *     y0 = x0 - x1      off by 2 roundings of |x0| + |x1|
 *     y1 = exp(y0)      off by 4 roundings of exp(y0) and of how far exp moves where y0 is off by as much (size.ts)
 *
 * A value is off by a share of its size. An equation adds its own roundings (error-bound.ts) to the shares of what it reads, and its size follows
 * from theirs.
 */

import { type Computation, elementCount, inputsOf, outputOf, tensorOf } from "../abstraction/computation.ts";
import { partsOf } from "../abstraction/epilogue.ts";
import { UsageError } from "../abstraction/error.ts";
import type { Values } from "../abstraction/evaluate.ts";
import { accessesIn, type Expr, walk } from "../abstraction/expression.ts";
import { KEPT, madeBy } from "../abstraction/program.ts";
import { encodeElements } from "./bytes.ts";
import { drawInputs } from "./draw-inputs.ts";
import { boundRule, type Evaluate } from "./error-bound.ts";
import { sizeOf } from "./size.ts";
import {
  checkedIn,
  evaluatorWith,
  fromMemory,
  type Reference,
  type ReferenceOptions,
  tells,
  toMemory,
} from "./verify.ts";

/** Integers, and fractions between -1 and 1: larger numbers overflow in functions and squares. */
const SETS = ["exact", "random"] as const;

/** Why the program's results cannot be bounded; undefined where they can. */
export function unboundedIn({ name, program }: Computation): string | undefined {
  const { parts = [], stored = [] } = program ?? {};
  if (stored.length > 1) return `${name} stores ${stored.length} values, and one is verified`;
  const made = new Set(parts.map(madeBy));
  const tested = parts.find(({ computation, names }) =>
    [computation.equation, computation.epilogue?.equation]
      .flatMap((equation) => (equation ? [...walk(equation.value)] : []))
      .some((e) => e.kind === "compare" && accessesIn(e).some((read) => made.has(names[read.tensor] ?? ""))),
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
  const sets: Reference["sets"][number][] = [];
  const made = new Set((computation.program?.parts ?? []).map(madeBy));
  const fixed = Object.fromEntries(
    inputsOf(computation)
      .filter(({ name }) => name === KEPT || made.has(name))
      .map((tensor) => [tensor.name, new Float64Array(elementCount(tensor))]),
  );
  for (const name of SETS) {
    const { signal } = options;
    const inputs = await drawInputs(computation, name, { large: 1, seed, fixed, scale: undefined, signal });
    const { values, tolerance } = await valuesOf(computation, inputs, options);
    if (!tells(values, tolerance)) continue;
    sets.push({
      name,
      inputs: Object.fromEntries(
        inputsOf(computation).map((tensor) => {
          const held = toMemory(tensor, inputs[tensor.name] ?? [], () => 0);
          return [tensor.name, encodeElements(tensor.dtype, held)];
        }),
      ),
      expected: toMemory(output, values, () => 0),
      tolerance: toMemory(output, tolerance, () => 0),
    });
  }
  if (sets.length === 0)
    throw new UsageError(`${computation.name} cannot be verified: rounding may differ by as much as the answers do`);
  return { computation, sets, checked: checkedIn(output) };
}

/** What is known of a tensor, row-major. */
interface Known {
  readonly values: Values;
  /** Where it was rounded: a size for each element, and the share of it by which the element may be off. */
  readonly off?: { readonly sizes: Values; readonly share: number } | undefined;
}

/** What a program stores last, by its inputs, row-major. */
export async function valuesOf(
  computation: Computation,
  inputs: Readonly<Record<string, Float64Array>>,
  options: ReferenceOptions,
): Promise<{ readonly values: Values; readonly tolerance: Float64Array }> {
  const evaluate = evaluatorWith(options);
  const known = new Map<string, Known>();
  let last: Known = { values: new Float64Array() };
  for (const part of computation.program?.parts ?? []) {
    const { sum, epilogue } = partsOf(part.computation);
    const made = madeBy(part);
    for (const one of epilogue ? [sum, epilogue] : [sum]) {
      const read = inputsOf(one).map((tensor): [string, Known] => {
        const name = part.names[tensor.name] ?? `${made}_sum`;
        // Of what the program reads, parts may have other views of the same memory.
        const given = (): Values =>
          fromMemory(
            tensor,
            toMemory(tensorOf(computation, name), inputs[name] ?? [], () => 0),
          );
        return [tensor.name, known.get(name) ?? { values: given() }];
      });
      last = await computed(one, new Map(read), evaluate);
      known.set(part.names[outputOf(one).name] ?? `${made}_sum`, last);
    }
  }
  const { values, off } = last;
  const tolerance = Float64Array.from(values, (value, i) =>
    off && Number.isFinite(value) ? off.share * (off.sizes[i] ?? 0) : 0,
  );
  return { values, tolerance };
}

/** What an equation makes of what it reads. */
async function computed(one: Computation, read: ReadonlyMap<string, Known>, evaluate: Evaluate): Promise<Known> {
  const { equation, tensors } = one;
  const inputs = Object.fromEntries([...read].map(([name, { values }]) => [name, values]));
  const values = await evaluate(one, inputs);
  const inexact = new Map([...read].flatMap(([name, { off }]) => (off ? [[name, `${name}_sizes`] as const] : [])));
  const rule = boundRule(one);
  if (rule && typeof rule.chain !== "number") throw new Error(`internal: points of ${one.name} meet in one element`);
  const own = rule ? (Number(rule.chain) + rule.operations + 1) * rule.epsilon : 0;
  const share = readsOf(equation.value).reduce((sum, tensor) => sum + (read.get(tensor)?.off?.share ?? 0), own);
  if (share === 0) return { values };
  const sizes = await evaluate(
    {
      ...one,
      name: `${one.name} (sizes)`,
      equation: {
        ...equation,
        op: equation.op === "=" ? "=" : equation.op === "+=" ? "+=" : "max=",
        value: sizeOf(equation.value, { relative: share, inexact }),
      },
      tensors: Object.fromEntries(
        Object.values(tensors).flatMap((tensor) => {
          const wide = { ...tensor, dtype: "f64" } as const;
          const sizesOfIt = inexact.get(tensor.name);
          return [[tensor.name, wide], ...(sizesOfIt === undefined ? [] : [[sizesOfIt, { ...wide, name: sizesOfIt }]])];
        }),
      ),
    },
    {
      ...inputs,
      ...Object.fromEntries([...read].flatMap(([name, { off }]) => (off ? [[`${name}_sizes`, off.sizes]] : []))),
    },
  );
  const least = rule ? rule.smallest / rule.epsilon : 0;
  return { values, off: { share, sizes: sizes.map((size) => size + least) } };
}

/** Tensors that a value reads, once for each time that an error of theirs counts: a square's counts twice. */
function readsOf(value: Expr): string[] {
  const twice = [...walk(value)].flatMap((e) => (e.kind === "call" && e.fn === "square" ? accessesIn(e) : []));
  return [...accessesIn(value), ...twice].map(({ tensor }) => tensor);
}
