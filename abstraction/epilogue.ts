/**
 * @file Epilogues: an element-wise equation over the sums of a computation, applied where the result is stored.
 *
 *     out[n,k,p,q] += s32(in[n,c,p+r,q+s]) * s32(w[k,c,r,s])
 *     res[n,k,p,q] = sat_u8(round(f32(out[n,k,p,q]) * scale[k] + bias[k]))
 *
 * `out` is the accumulator and never lies in memory: the output is `res`. The axes of an epilogue are the dimensions of `out`,
 * so that k counts all channels even where the equation writes `out[n,g*16+k,p,q]`.
 */

import { affineForm, type Extents } from "./affine.ts";
import type { Axis, Computation, Tensor } from "./computation.ts";
import { accessesOf, axesOf, type Equation, tensorsOf } from "./equation.ts";
import { UsageError } from "./error.ts";
import { type Access, accessesIn, type Expr, number, printAccess, rewrite, substitute } from "./expression.ts";
import { spanOf } from "./parse.ts";

/** What is made of each element before it is stored. */
export interface Epilogue {
  readonly equation: Equation;
  /** What the computation's own equation assigns: held in registers, rounded to its type, and never stored. */
  readonly sum: Tensor;
}

/** The axes of an epilogue: those it reads the sum at, in the order of the sum's dimensions. */
export function elementAxes(epilogue: Equation, sum: string): string[] {
  const read = accessesIn(epilogue.value).find((a) => a.tensor === sum);
  return read?.index.flatMap((e) => (e.kind === "axis" ? [e.name] : [])) ?? [];
}

/** @throws UsageError when it is not element-wise over the target of `equation` */
export function checkEpilogue(subject: string, epilogue: Equation, equation: Equation): void {
  const sum = equation.target.tensor;
  const problem = (because: string, place?: Expr): UsageError =>
    new UsageError(`${subject}: epilogue: ${because}`, (place && spanOf(place)) ?? {});
  if (epilogue.op !== "=") throw problem(`it assigns each element once: "=", not "${epilogue.op}"`);
  if (epilogue.where !== undefined) throw problem("a condition cannot leave out elements; use select(condition, a, b)");
  if (tensorsOf(equation).includes(epilogue.target.tensor))
    throw problem(
      `"${epilogue.target.tensor}" is already a tensor of the equation; name the output otherwise`,
      epilogue.target,
    );
  const reads = accessesIn(epilogue.value);
  if (reads.some((a) => a.tensor === epilogue.target.tensor))
    throw problem(`${epilogue.target.tensor} cannot read itself`, epilogue.target);

  // 1. Where it reads the sum: one element, a plain axis for each dimension.
  const [first, ...others] = reads.filter((a) => a.tensor === sum);
  if (!first) throw problem(`it does not read ${printAccess(equation.target)}`);
  const axes = elementAxes(epilogue, sum);
  const distinct = new Set(axes).size === first.index.length && axes.length === equation.target.index.length;
  const renamed = equation.target.index.some((e, d) => e.kind === "axis" && e.name !== axes[d]);
  if (!distinct || renamed)
    throw problem(`it must read ${sum} at the same element, as ${printAccess(equation.target)}`, first);
  for (const other of others)
    if (printAccess(other) !== printAccess(first))
      throw problem(`it reads ${printAccess(other)} beside ${printAccess(first)}`, other);

  // 2. What it writes and what else it reads: these axes, plain.
  for (const access of accessesOf(epilogue)) {
    const crooked = access.index.find((e) => e.kind !== "axis" || !axes.includes(e.name));
    if (crooked) throw problem(`${printAccess(access)} may be indexed by ${axes.join(", ")} alone`, crooked);
  }
  const stray = axesOf(epilogue).find((name) => !axes.includes(name));
  if (stray !== undefined) throw problem(`it has no axis "${stray}"; its axes are ${axes.join(", ")}`);
  const written = epilogue.target.index.flatMap((e) => (e.kind === "axis" ? [e.name] : []));
  if (written.length !== axes.length || new Set(written).size !== axes.length)
    throw problem(
      `${printAccess(epilogue.target)} must be indexed by each of ${axes.join(", ")} once`,
      epilogue.target,
    );
}

/** @throws UsageError when an element of the sum is computed by no point, or by several */
export function checkEveryElementOnce(subject: string, target: Access, sum: Tensor, axes: readonly Axis[]): void {
  const spatial = axes.filter((a) => a.kind === "spatial");
  const seen = new Set<string>();
  const whole = target.index.every((e, d) => {
    // The digits of a number, smallest first: g*16+k with 16 steps of k.
    const form = affineForm(e);
    if (form?.constant !== 0) return false;
    const digits = spatial
      .filter((a) => form.terms.has(a.name))
      .map((a) => ({ name: a.name, factor: form.terms.get(a.name) ?? 0, extent: a.extent }))
      .sort((a, b) => a.factor - b.factor || a.extent - b.extent);
    let reach = 1;
    for (const { name, factor, extent } of digits) {
      if (seen.has(name) || (factor !== reach && extent > 1)) return false;
      seen.add(name);
      reach *= extent;
    }
    return reach === sum.dims[d]?.extent;
  });
  if (!whole || seen.size !== spatial.length)
    throw new UsageError(`${subject}: epilogue: not every element of ${printAccess(target)} is computed exactly once`);
}

/** The epilogue as the one statement that stores an element: `index` is the element's, `held` stands for what was summed. */
export function epilogueAt({ equation, sum }: Epilogue, index: readonly Expr[], held: Expr): Equation {
  const axes = new Map(elementAxes(equation, sum.name).map((name, d) => [name, index[d] ?? number(0)]));
  const at = (e: Expr): Expr => {
    // Whole, as given: names in the index of `held` are no axes of the epilogue.
    if (e.kind === "access" && e.tensor === sum.name) return held;
    return e.kind === "axis" ? (axes.get(e.name) ?? e) : e;
  };
  return {
    target: { ...equation.target, index: equation.target.index.map((e) => substitute(e, axes, "index")) },
    op: "=",
    value: rewrite(equation.value, at, "value"),
  };
}

/**
 * The sum and what is made of it, each a computation of its own: `epilogue` reads the sum as an input.
 * Without an epilogue the first is the computation itself.
 */
export function partsOf(computation: Computation): {
  readonly sum: Computation;
  readonly epilogue: Computation | undefined;
} {
  const { epilogue, ...rest } = computation;
  if (!epilogue) return { sum: computation, epilogue: undefined };
  const held = { ...computation.tensors, [epilogue.sum.name]: epilogue.sum };
  const only = (equation: Equation): Record<string, Tensor> =>
    Object.fromEntries(
      tensorsOf(equation).flatMap((name) => {
        const tensor = held[name];
        return tensor ? [[name, tensor] as const] : [];
      }),
    );
  const axes = elementAxes(epilogue.equation, epilogue.sum.name).map(
    (name, d): Axis => ({ name, extent: epilogue.sum.dims[d]?.extent ?? 1, kind: "spatial" }),
  );
  return {
    sum: { ...rest, tensors: only(computation.equation) },
    epilogue: {
      name: `${computation.name} (epilogue)`,
      equation: epilogue.equation,
      axes,
      tensors: only(epilogue.equation),
    },
  };
}

/** Extents of an epilogue's axes. */
export function elementExtents(epilogue: Equation, sum: Tensor): Extents {
  return Object.fromEntries(elementAxes(epilogue, sum.name).map((name, d) => [name, sum.dims[d]?.extent ?? 1]));
}
