/**
 * @file How far a float result may be off, for any order of summation, with or without fused multiply-adds.
 *
 *     boundRule(matmul)      { chain: 512, operations: 1, epsilon: 2 ** -24, ... }
 *
 * `(terms + operations + 1) * (epsilon * sum of |terms| + smallest normal number)`: Higham, Accuracy and Stability, section 4.2.
 */

import { type Computation, elementCount, extentsOf, inputsOf, targetOf } from "../abstraction/computation.ts";
import { epsilonOf, isInteger, rangeOf } from "../abstraction/dtype.ts";
import { writesApart } from "../abstraction/elements.ts";
import { compileValue, Scope, type Values } from "../abstraction/evaluate.ts";
import { type Access, accessesIn, axesIn, type Expr, number, rewrite } from "../abstraction/expression.ts";
import type { Inputs } from "../abstraction/interpret.ts";
import type { Time } from "../abstraction/time.ts";
import { typeOf } from "../abstraction/typing.ts";

/** Computes a computation on inputs, however it does. */
export type Evaluate = (computation: Computation, inputs: Inputs) => Promise<Values> | Values;

/** The bound of a computation with sums of these lengths. */
export interface Bound extends BoundRule {
  /** Terms of each sum. */
  readonly terms: ArrayLike<number>;
}

/** How far a float result may be off: `(terms + operations + 1) * (epsilon * magnitude + smallest)`. */
export interface BoundRule {
  /** The sum of |terms|, computed in f64 from the absolute values of the inputs. */
  readonly magnitude: Computation;
  /** Of a step that only scales and adds: the magnitude is this times the largest element of the first plane at most, and need not be computed. */
  readonly growth?: number;
  /** Terms of every sum; or, where several points meet in one element, the computation that counts them. */
  readonly chain: number | Computation;
  /** Operations that make one term. */
  readonly operations: number;
  readonly epsilon: number;
  readonly smallest: number;
  /** Largest sum that cannot overflow on the way. */
  readonly roof: number;
  /** Integers below are exact. */
  readonly exactBelow: number;
  /** Integers in, integers out: no division, no fraction written in the equation. */
  readonly integral: boolean;
}

/** Undefined when the result is exact. */
export async function boundOf(computation: Computation, evaluate: Evaluate): Promise<Bound | undefined> {
  const rule = boundRule(computation);
  if (!rule) return undefined;
  const { chain } = rule;
  const terms =
    typeof chain === "number"
      ? new Float64Array(elementCount(targetOf(computation))).fill(chain)
      : await evaluate(chain, zeroInputs(computation));
  return { ...rule, terms };
}

/** Undefined when the result is exact: integers, and floats that are only moved or compared. */
export function boundRule(computation: Computation): BoundRule | undefined {
  const { equation, time } = computation;
  if (time) return boundInTime(computation, time);
  const target = targetOf(computation);
  if (isInteger(target.dtype)) return undefined;
  const dtypes = Object.fromEntries(Object.values(computation.tensors).map((t) => [t.name, t.dtype]));
  const arithmetic = [...valueNodes(equation.value)].filter(
    (e) => e.kind === "binary" || (e.kind === "call" && e.fn === "square") || (e.kind === "call" && e.fn === "round"),
  );
  const sums = equation.op === "+=" || equation.op === "sat+=";
  if (!sums && arithmetic.length === 0) return undefined;
  const casts = [...valueNodes(equation.value)].filter((e) => e.kind === "cast");
  const types = [target.dtype, ...[...arithmetic, ...casts].map((e) => typeOf(e, dtypes) ?? target.dtype)].filter(
    (t) => !isInteger(t),
  );
  const epsilon = Math.max(...types.map(epsilonOf));
  const magnitude = inDoubles(computation, magnitudeOf(equation.value));
  return {
    magnitude,
    chain: writesApart(computation) ? chainLength(computation) : inDoubles(computation, number(1)),
    operations: arithmetic.length,
    epsilon,
    smallest: types.includes("f16") ? 2 ** -24 : 2 ** -126,
    roof: Math.min(...types.map((t) => rangeOf(t)[1])) / 4,
    exactBelow: 2 / epsilon,
    integral: [...valueNodes(equation.value)].every((e) =>
      e.kind === "number" ? Number.isInteger(e.value) : !(e.kind === "binary" && e.op === "/"),
    ),
  };
}

/** What a step is off by goes through all later steps, each of which adds as much: of magnitudes that are stepped through time alike. */
function boundInTime(computation: Computation, time: Time): BoundRule | undefined {
  const rule = boundRule(time.step);
  const growth = growthOf(time);
  return (
    rule && {
      ...rule,
      ...(growth !== undefined && { growth: growth ** time.steps }),
      magnitude: { ...inDoubles(computation, computation.equation.value), time: { ...time, step: rule.magnitude } },
      chain: time.steps * (rule.operations + 1),
    }
  );
}

/** How many times as large a step may make the largest element; undefined where that is no number, or depends on other tensors. */
function growthOf({ step, first }: Time): number | undefined {
  const { value } = step.equation;
  if (accessesIn(value).some((a) => a.tensor !== first)) return undefined;
  const size = magnitudeOf(value);
  const over = (plane: number): number => {
    const put = rewrite(size, (e) => (e.kind === "access" ? number(plane) : e), "value");
    return [...valueNodes(put)].some((e) => e.kind === "select" || e.kind === "axis")
      ? Number.NaN
      : compileValue(put, new Scope(new Map(), 0), "f64")(new Int32Array(0));
  };
  const [once, twice] = [over(1), over(2)];
  return twice === 2 * once ? once : undefined;
}

/** Terms of a sum; of a recurrence, the steps that a result may have come through. */
function chainLength(computation: Computation): number {
  const { equation, axes } = computation;
  const extents = extentsOf(computation);
  const reduced = axes.filter((a) => a.kind === "reduce").reduce((product, a) => product * a.extent, 1);
  const steps = new Set(
    accessesIn(equation.value)
      .filter((a) => a.tensor === equation.target.tensor)
      .flatMap((a) => movedAxes(a, equation.target)),
  );
  return [...steps].reduce((product, axis) => product * (extents[axis] ?? 1), reduced);
}

/** Axes of the dimensions in which two accesses differ. */
function movedAxes(a: Access, b: Access): string[] {
  return a.index.flatMap((e, d) => {
    const other = b.index[d];
    return other && JSON.stringify(e) !== JSON.stringify(other) ? axesIn(other) : [];
  });
}

/** The computation with another value, everything in f64; the terms of a maximum or minimum are added up too. */
function inDoubles(computation: Computation, value: Expr): Computation {
  const { equation, tensors } = computation;
  return {
    ...computation,
    name: `${computation.name} (bound)`,
    equation: { ...equation, op: equation.op === "=" ? "=" : "+=", value },
    tensors: Object.fromEntries(Object.entries(tensors).map(([name, t]) => [name, { ...t, dtype: "f64" }])),
  };
}

function zeroInputs(computation: Computation): Record<string, Float64Array> {
  return Object.fromEntries(inputsOf(computation).map((t) => [t.name, new Float64Array(elementCount(t))]));
}

/**
 * An upper bound of the size of a value and of everything on the way to it; inputs are given by their absolute values.
 *
 *     square(in[c,l] - mean[c])      ->      square(in[c,l] + mean[c])
 */
function magnitudeOf(e: Expr): Expr {
  switch (e.kind) {
    case "number":
      return { ...e, value: Math.abs(e.value) };
    case "axis":
    case "access":
      return e;
    case "cast":
      return { ...e, dtype: "f64", saturate: false, value: magnitudeOf(e.value) };
    case "negate":
      return magnitudeOf(e.value);
    case "binary":
      if (e.op === "/") return { ...e, left: magnitudeOf(e.left) };
      if (e.op === "%") return magnitudeOf(e.left);
      return { ...e, op: e.op === "-" ? "+" : e.op, left: magnitudeOf(e.left), right: magnitudeOf(e.right) };
    case "call": {
      const [first, second] = e.args.map(magnitudeOf);
      if (!first) throw new Error(`internal: ${e.fn} without arguments`);
      if (e.fn === "min" || e.fn === "max") return second ? { kind: "call", fn: "max", args: [first, second] } : first;
      if (e.fn === "abs") return first;
      // A value next to a half may round either way.
      if (e.fn === "round") return { kind: "binary", op: "+", left: first, right: number(1) };
      return { ...e, args: [first] };
    }
    case "select":
      return { ...e, whenTrue: magnitudeOf(e.whenTrue), whenFalse: magnitudeOf(e.whenFalse) };
    case "border":
    case "compare":
    case "logic":
      throw new Error("internal: a condition is not a value");
    default:
      return e satisfies never;
  }
}

/** Nodes that compute elements: not those of indices and conditions. */
export function* valueNodes(e: Expr): Generator<Expr> {
  yield e;
  switch (e.kind) {
    case "cast":
    case "negate":
      yield* valueNodes(e.value);
      break;
    case "binary":
      yield* valueNodes(e.left);
      yield* valueNodes(e.right);
      break;
    case "call":
      for (const arg of e.args) yield* valueNodes(arg);
      break;
    case "select":
      yield* valueNodes(e.whenTrue);
      yield* valueNodes(e.whenFalse);
      break;
    case "number":
    case "axis":
    case "access":
    case "border":
    case "compare":
    case "logic":
      break;
    default:
      e satisfies never;
  }
}
