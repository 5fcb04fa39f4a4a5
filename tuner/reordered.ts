/**
 * @file Mappings with the loops of a summed axis fused in another order. The enumeration contains only one order of each set of loops.
 *
 *     conv2d NHWC on 8 channels      k <- c,r,s: 8 bytes lie 2 apart        also k <- r,s,c: 16 bytes lie side by side, 24 elements of a row
 */

import { affineForm } from "../abstraction/affine.ts";
import { targetOf, tensorOf } from "../abstraction/computation.ts";
import type { Mapping } from "../abstraction/mapping.ts";
import { defineProblem } from "../mapper/match/problem.ts";
import { mappingBy } from "../mapper/match/validate.ts";

/** A mapping in another order of the loops of a summed axis. */
interface Reordered {
  readonly order: readonly string[];
  /** Whether it is the order of the inputs in memory. */
  readonly isInMemoryOrder: boolean;
  mapping(): Mapping;
}

/** Every other order of the loops of a summed axis. */
export function reordered(mapping: Mapping): Reordered[] {
  const { computation, intrinsic, binding, matching } = mapping;
  const fused = intrinsic.computation.axes.filter((a) => a.kind === "reduce" && (matching[a.name]?.length ?? 0) > 1);
  if (fused.length === 0) return [];
  const problem = defineProblem(computation, intrinsic, binding);
  const stepsOf = stepsIn(mapping);
  return fused.flatMap((a) => {
    const own = matching[a.name] ?? [];
    const orders = permutations(own).filter((order) => order.some((loop, i) => loop !== own[i]));
    const steps = new Map(own.map((loop) => [loop, stepsOf(loop)]));
    return orders.map((order) => ({
      order,
      isInMemoryOrder: isDescending(order.map((loop) => steps.get(loop) ?? [])),
      // Validity depends only on the sets of loops, not on their order.
      mapping: () => mappingBy(problem, { ...matching, [a.name]: order }),
    }));
  });
}

/** Distance, in elements, that each input moves by with a step of a loop, without constants. */
function stepsIn({ computation, binding }: Mapping): (loop: string) => readonly number[] {
  const inputs = Object.values(binding).flatMap((bound) => {
    if (bound.kind !== "access" || bound.tensor === targetOf(computation).name) return [];
    const { dims, storage, constant } = tensorOf(computation, bound.tensor);
    const form = affineForm(storage);
    if (constant || !form) return [];
    return [
      bound.index.map((e, i) => ({ terms: affineForm(e)?.terms, pitch: form.terms.get(dims[i]?.name ?? "") ?? 0 })),
    ];
  });
  return (loop) => inputs.map((index) => index.reduce((n, { terms, pitch }) => n + (terms?.get(loop) ?? 0) * pitch, 0));
}

/** Whether every loop has larger strides than the next. */
function isDescending(steps: readonly (readonly number[])[]): boolean {
  return steps.every((own, i) => {
    const after = steps[i + 1];
    return (
      after === undefined || (own.length > 0 && own.every((step, at) => Math.abs(step) > Math.abs(after[at] ?? 0)))
    );
  });
}

function permutations<T>(items: readonly T[]): T[][] {
  if (items.length > 4) return [[...items]];
  if (items.length === 0) return [[]];
  return items.flatMap((item, i) => permutations(items.filter((_, j) => j !== i)).map((rest) => [item, ...rest]));
}
