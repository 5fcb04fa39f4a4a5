/**
 * @file Epilogues: an element-wise equation over the sums of a computation, applied where the result is stored.
 *
 *     out[n,k,p,q] += s32(in[n,c,p+r,q+s]) * s32(w[k,c,r,s])
 *     res[n,k,p,q] = sat_u8(round(f32(out[n,k,p,q]) * scale[k] + bias[k]))
 *
 * `out` is the accumulator and never lies in memory: the output is `res`. The axes of an epilogue are the dimensions of `out`,
 * so that k counts all channels even where the equation writes `out[n,g*16+k,p,q]`.
 *
 *     z[b,i*(i-1)/2+j+8] = bf16(c[b,i,j]) where j < i, z[b,k] = x[b,0,k]
 *
 * A condition leaves out elements of the sum, which then need not be computed. What is stored may lie anywhere, as in the rows of a packed triangle,
 * and what stands behind a comma assigns other elements of the same tensor. Together they write each element once (written.ts).
 */

import { affineForm, type Extents, offendingPart } from "./affine.ts";
import { withName } from "./collections.ts";
import type { Axis, Computation, Tensor } from "./computation.ts";
import { conjunctsOf } from "./condition.ts";
import { UsageError } from "./error.ts";
import {
  type Access,
  accessesIn,
  and,
  axesIn,
  axesOf,
  type Equation,
  type Expr,
  exprsByName,
  plainAxes,
  printAccess,
  printExpr,
  readsOf,
  rewrite,
  substitute,
  substituteAccess,
  substituteEach,
  tensorsOf,
} from "./expression.ts";
import { spanOf } from "./parse.ts";

/** An epilogue and the sum that it reads. */
export interface Epilogue {
  readonly equation: Equation;
  /** The target of the computation's equation: held in registers, rounded to its type, never stored. */
  readonly sum: Tensor;
}

/** The axes of an epilogue: those at which it reads the sum, in the order of the sum's dimensions. */
export function elementAxes(epilogue: Equation, sum: string): string[] {
  const [read] = readsOf(epilogue.value, sum);
  return read ? plainAxes(read) : [];
}

/** @throws UsageError when it is not element-wise over the target of `equation` */
export function checkEpilogue(subject: string, epilogue: Equation, equation: Equation): void {
  const sum = equation.target.tensor;
  const problem = (because: string, place?: Expr): UsageError =>
    new UsageError(`${subject}: epilogue: ${because}`, place && spanOf(place));
  for (const { op } of [epilogue, ...(epilogue.beside ?? [])])
    if (op !== "=") throw problem(`it assigns each element once: "=", not "${op}"`);
  if (tensorsOf(equation).includes(epilogue.target.tensor))
    throw problem(
      `"${epilogue.target.tensor}" is already a tensor of the equation; name the output otherwise`,
      epilogue.target,
    );
  if (readsOf(epilogue.value, epilogue.target.tensor).length > 0)
    throw problem(`${epilogue.target.tensor} cannot read itself`, epilogue.target);

  // 1. Where it reads the sum: one element, a plain axis for each dimension.
  const [first, ...others] = readsOf(epilogue.value, sum);
  if (!first) throw problem(`it does not read ${printAccess(equation.target)}`);
  const axes = elementAxes(epilogue, sum);
  const distinct = new Set(axes).size === first.index.length && axes.length === equation.target.index.length;
  const renamed = equation.target.index.some((e, d) => e.kind === "axis" && e.name !== axes[d]);
  if (!distinct || renamed)
    throw problem(`it must read ${sum} at the same element, as ${printAccess(equation.target)}`, first);
  for (const other of others)
    if (printAccess(other) !== printAccess(first))
      throw problem(`it reads ${printAccess(other)} beside ${printAccess(first)}`, other);

  // 2. Other reads use these axes, plain. The target uses each axis, plain or in an index that tells elements apart.
  for (const access of accessesIn(epilogue.value)) {
    const crooked = access.index.find((e) => e.kind !== "axis" || !axes.includes(e.name));
    if (crooked) throw problem(`${printAccess(access)} may be indexed by ${axes.join(", ")} alone`, crooked);
  }
  const stray = axesOf(epilogue).find((name) => !axes.includes(name));
  if (stray !== undefined) throw problem(`it has no axis "${stray}"; its axes are ${axes.join(", ")}`);
  const missing = axes.find((name) => !axesIn(epilogue.target).includes(name));
  if (missing !== undefined)
    throw problem(`${printAccess(epilogue.target)} must be indexed by each of ${axes.join(", ")}`, epilogue.target);
  checkStored(epilogue.target, problem);
  for (const other of epilogue.beside ?? []) checkBeside(other, epilogue, equation, problem);
}

type ProblemAt = (because: string, place?: Expr) => UsageError;

function checkStored(target: Access, problem: ProblemAt): void {
  for (const e of target.index) {
    const offending =
      e.kind === "border" ? { part: e, because: "only a read has a border" } : offendingPart(e, "stored");
    if (offending) throw problem(`index of ${printAccess(target)}: ${offending.because}`, offending.part);
  }
}

/** An equation beside an epilogue may read only inputs, over axes of the equation. */
function checkBeside(other: Equation, epilogue: Equation, equation: Equation, problem: ProblemAt): void {
  const written = epilogue.target;
  const sum = equation.target.tensor;
  if (other.target.tensor !== written.tensor || other.target.index.length !== written.index.length)
    throw problem(`${printAccess(other.target)} is no element of ${printAccess(written)}`, other.target);
  for (const read of accessesIn(other.value)) {
    if (read.tensor === sum || read.tensor === written.tensor)
      throw problem(`beside the sums ${printAccess(other.target)} is made of inputs alone`, read);
    for (const e of read.index) {
      const offending = e.kind === "border" ? { part: e, because: "it has a border" } : offendingPart(e);
      if (offending) throw problem(`index of ${printAccess(read)}: ${offending.because}`, offending.part);
    }
  }
  checkStored(other.target, problem);
  const known = axesOf(equation);
  const stray = axesOf(other).find((name) => !known.includes(name) || !axesIn(other.target).includes(name));
  if (stray !== undefined)
    throw problem(
      known.includes(stray)
        ? `${printAccess(other.target)} is not indexed by ${stray}, which its value depends on`
        : `the equation has no axis "${stray}"; its axes are ${known.join(", ")}`,
      other.target,
    );
}

/** Whether an epilogue writes each element of the sum at its own place, as most do. */
export function isElementwise({ target, where, beside }: Equation): boolean {
  const axes = plainAxes(target);
  return where === undefined && beside === undefined && new Set(axes).size === target.index.length;
}

/** Why a printer that stores each element of a sum at its own index cannot store this epilogue; undefined when it can. */
export function placedProblem({ epilogue }: Computation): string | undefined {
  if (epilogue === undefined || isElementwise(epilogue.equation)) return undefined;
  return `the epilogue stores ${printAccess(epilogue.equation.target)} at places of its own`;
}

/** Whether a tensor is the output of an epilogue that stores at other places. Such stores were checked to lie inside when it was defined. */
export function storesElsewhere(computation: Computation, tensor: string): boolean {
  return computation.epilogue?.equation.target.tensor === tensor && placedProblem(computation) !== undefined;
}

/** The equation of a sum, restricted to points whose elements its epilogue uses. */
export function needed(equation: Equation, { where, ...epilogue }: Equation): Equation {
  if (where === undefined) return equation;
  const before = conjunctsOf(equation.where);
  const known = new Set(before.map((e) => printExpr(e)));
  const added = kept(equation, { ...epilogue, where }).filter((e) => !known.has(printExpr(e)));
  return { ...equation, where: [...before, ...added].reduce(and) };
}

/** Conditions on the loops of an equation under which its epilogue stores an element. */
export function kept({ target }: Equation, epilogue: Equation): readonly Expr[] {
  if (epilogue.where === undefined) return [];
  const axes = elementAxes(epilogue, target.tensor);
  const places = exprsByName(axes, target.index);
  return substituteEach(conjunctsOf(epilogue.where), places);
}

/** @throws UsageError when an element of the sum is computed by no point, or by several */
export function checkEveryElementOnce(subject: string, target: Access, sum: Tensor, axes: readonly Axis[]): void {
  const spatial = axes.filter((a) => a.kind === "spatial");
  const seen = new Set<string>();
  const whole = target.index.every((e, d) => {
    // Digits of one number, the fastest first: g*16+k with 16 steps of k.
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

/** The epilogue as the one statement that stores an element. `index` is the element's index, and `held` replaces the sum. */
export function epilogueAt({ equation, sum }: Epilogue, index: readonly Expr[], held: Expr): Equation {
  const { where } = equation;
  const axes = exprsByName(elementAxes(equation, sum.name), index);
  const at = (e: Expr): Expr => {
    // Replaced as a whole, because names in the index of `held` are not axes of the epilogue.
    if (e.kind === "access" && e.tensor === sum.name) return held;
    return e.kind === "axis" ? (axes.get(e.name) ?? e) : e;
  };
  return {
    target: substituteAccess(equation.target, axes),
    op: "=",
    value: rewrite(equation.value, at, "value"),
    ...(where !== undefined && { where: substitute(where, axes, "index") }),
  };
}

/** Stores an element of the result, made of a sum by the epilogue if there is one. */
export function storingAt({ equation, epilogue }: Computation, index: readonly Expr[], held: Expr): Equation {
  if (epilogue) return epilogueAt(epilogue, index, held);
  return { target: { ...equation.target, index }, op: "=", value: held };
}

/**
 * The sum, its epilogue and the equations beside it, each as a computation of its own. `epilogue` reads the sum as an input; those in `beside` leave
 * 0 in elements that they do not assign. Without an epilogue the first is the computation itself.
 */
export function partsOf(computation: Computation): {
  readonly sum: Computation;
  readonly epilogue: Computation | undefined;
  readonly beside: readonly Computation[];
} {
  const { epilogue, ...rest } = computation;
  if (!epilogue) return { sum: computation, epilogue: undefined, beside: [] };
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
  const { beside = [], ...equation } = epilogue.equation;
  const name = `${computation.name} (epilogue)`;
  return {
    sum: { ...rest, tensors: only(computation.equation) },
    epilogue: { name, equation, axes, tensors: only(equation) },
    beside: beside.map((other) => ({
      name,
      equation: other,
      tensors: only(other),
      axes: axesIn(other.target).map((a) => ({
        name: a,
        kind: "spatial" as const,
        extent: withName(computation.axes, a)?.extent ?? 1,
      })),
    })),
  };
}

/** Merges the elements that several computations assign to one tensor, row-major; no two assign the same element. */
export function together(first: Float64Array, others: readonly ArrayLike<number>[]): Float64Array {
  return others.length === 0 ? first : first.map((x, i) => others.reduce((sum, other) => sum + (other[i] ?? 0), x));
}

/** Extents of an epilogue's axes. */
export function elementExtents(epilogue: Equation, sum: Tensor): Extents {
  return Object.fromEntries(elementAxes(epilogue, sum.name).map((name, d) => [name, sum.dims[d]?.extent ?? 1]));
}
