/**
 * @file The data that all matchings of one computation, instruction and binding share: access matrices, the loops that may feed each axis, padding.
 *
 *     conv2d onto amx.tdpbusd, a = in, b = w
 *       feeders   m: n p q     n: k     k: c r s
 *       padding   0: a product with a zero factor adds nothing
 */

import { createHash } from "node:crypto";
import { type BinaryMatrix, bitAt } from "../../abstraction/binary-matrix.ts";
import { memoised, namesOf, volumeOf } from "../../abstraction/collections.ts";
import { type Axis, type Computation, computationKey, identityIn, summedIn } from "../../abstraction/computation.ts";
import { saturate, wrap } from "../../abstraction/dtype.ts";
import { accessesIn, axesIn, type Expr, integerOp, number, readsInIndex } from "../../abstraction/expression.ts";
import { type Intrinsic, operandOf } from "../../abstraction/intrinsic.ts";
import type { Binding, Matching } from "../../abstraction/mapping.ts";
import { dtypesOf, typeOf } from "../../abstraction/typing.ts";
import { intrinsicAccessMatrix, softwareAccessMatrix } from "./access.ts";
import { bindingText, scaleOf } from "./bind.ts";

/** One computation, instruction and binding, with what all their matchings share. */
export interface Problem {
  readonly computation: Computation;
  readonly intrinsic: Intrinsic;
  readonly binding: Binding;
  readonly loops: readonly Axis[];
  readonly axes: readonly Axis[];
  /** Software and intrinsic access matrices. */
  readonly x: BinaryMatrix;
  readonly z: BinaryMatrix;
  /** For each axis of the instruction, the loops that may feed it. */
  readonly feeders: Readonly<Record<string, readonly string[]>>;
  /** Neutral value to pad input operands with; undefined when no value leaves the result unchanged. */
  readonly padding: Expr | undefined;
  /** Digest of computation, instruction and binding; mapping ids grow from it. */
  readonly digest: string;
}

const knownProblems = new WeakMap<Binding, Map<Intrinsic, Problem>>();

/** Cached for all mappings of a binding. */
export function defineProblem(computation: Computation, intrinsic: Intrinsic, binding: Binding): Problem {
  const all = knownProblems.get(binding) ?? new Map<Intrinsic, Problem>();
  knownProblems.set(binding, all);
  const known = all.get(intrinsic);
  if (known?.computation === computation) return known;
  const problem = findProblem(computation, intrinsic, binding);
  all.set(intrinsic, problem);
  return problem;
}

function findProblem(computation: Computation, intrinsic: Intrinsic, binding: Binding): Problem {
  const x = softwareAccessMatrix(computation, intrinsic, binding);
  const z = intrinsicAccessMatrix(intrinsic);
  const loops = computation.axes;
  const axes = intrinsic.computation.axes;
  const sameColumn = (loop: Axis, axis: Axis): boolean =>
    x.rows.every((row) => bitAt(x, row, loop.name) === bitAt(z, row, axis.name));
  const fixed = new Set([
    ...loopsOfReadIndices(computation.equation.value),
    ...loopsOfScale({ computation, intrinsic }),
  ]);
  const feeders = Object.fromEntries(
    axes.map((axis) => [
      axis.name,
      namesOf(loops.filter((loop) => loop.kind === axis.kind && !fixed.has(loop.name) && sameColumn(loop, axis))),
    ]),
  );
  const digest = createHash("sha256")
    .update(`${computationKey(computation)}\n${intrinsic.name}\n${bindingText(binding)}`)
    .digest("hex");
  return { computation, intrinsic, binding, loops, axes, x, z, feeders, padding: paddingOf(intrinsic), digest };
}

/**
 * The loops that an index read from a tensor depends on: `t` of `w[clamp(group[t]),n,k]`. An instruction moves with its
 * loops, and from step to step of these an index may jump.
 */
export const loopsOfReadIndices = memoised(
  (value: Expr): ReadonlySet<string> => new Set(accessesIn(value).flatMap(readsInIndex).flatMap(axesIn)),
);

/** Summed loops by which the scale of a sum moves: an instruction sums only what has one scale. */
export function loopsOfScale({
  computation,
  intrinsic,
}: Pick<Problem, "computation" | "intrinsic">): readonly string[] {
  const scale = scaleOf(computation, intrinsic);
  const moving = new Set(scale && axesIn(scale));
  return namesOf(summedIn(computation.axes)).filter((name) => moving.has(name));
}

/** Product of the extents of the loops that feed an axis; 1 when none does. */
export function fusedExtent({ loops }: Pick<Problem, "loops">, matching: Matching, axis: string): number {
  return volumeOf(loops.filter((l) => matching[axis]?.includes(l.name)));
}

/** Share of multiply slots that padding fills: 1 - product over axes of fused / (tiles * extent). */
export function wasteOf(problem: Pick<Problem, "loops" | "axes">, matching: Matching): number {
  return (
    1 -
    problem.axes.reduce((useful, axis) => {
      const fused = fusedExtent(problem, matching, axis.name);
      return (useful * fused) / (Math.ceil(fused / axis.extent) * axis.extent);
    }, 1)
  );
}

/**
 * The neutral padding: a product with a zero factor adds nothing, a maximum of minus infinity changes nothing. An
 * assignment has none.
 */
function paddingOf(intrinsic: Intrinsic): Expr | undefined {
  if (intrinsic.computation.equation.op === "=") return undefined;
  const inputs = namesOf(intrinsic.operands.slice(1));
  const identity = identityIn(intrinsic.computation);
  const fill = [0, identity].find((candidate) => valueWith(intrinsic, inputs, candidate) === identity);
  return fill === undefined ? undefined : number(fill);
}

/** Whether padding these operands leaves the result unchanged, whatever the others hold. */
export function leavesAlone({ intrinsic, padding }: Problem, filled: readonly string[]): boolean {
  const identity = identityIn(intrinsic.computation);
  return padding?.kind === "number" && valueWith(intrinsic, filled, padding.value) === identity;
}

/**
 * The instruction's result for a value in some operands and any finite values in the others; undefined when it depends
 * on those.
 */
function valueWith(intrinsic: Intrinsic, filled: readonly string[], fill: number): number | undefined {
  const types = dtypesOf(intrinsic.operands);
  const at = (e: Expr): number | undefined => {
    switch (e.kind) {
      case "number":
        return e.value;
      case "access": {
        const { dtype } = operandOf(intrinsic, e.tensor);
        return filled.includes(e.tensor) && wrap(dtype, fill) === fill ? fill : undefined;
      }
      case "cast": {
        const inner = at(e.value);
        return inner === undefined ? undefined : (e.saturate ? saturate : wrap)(e.dtype, inner);
      }
      case "binary": {
        if (e.op === "/" || e.op === "%") return undefined;
        const left = at(e.left);
        const right = at(e.right);
        if (left !== undefined && right !== undefined)
          return wrap(typeOf(e, types) ?? "f64", integerOp(e.op, left, right));
        if (e.op === "*") return left === 0 || right === 0 ? 0 : undefined;
        // For minus infinity and a finite value: addition keeps either side, subtraction only the left one.
        const known = e.op === "+" ? (left ?? right) : left;
        return known === Number.NEGATIVE_INFINITY || known === Number.POSITIVE_INFINITY ? known : undefined;
      }
      default:
        return undefined;
    }
  };
  return at(intrinsic.computation.equation.value);
}
