/**
 * @file Error bound of a float result, for any order of summation, with or without fused multiply-adds.
 *
 *     boundRule(matmul)      { chain: 512, operations: 1, epsilon: 2 ** -24, ... }
 *
 * `(terms + operations + 1) * (epsilon * sum of |terms| + smallest normal number)`: Higham, Accuracy and Stability,
 * section 4.2.
 */

import { mapValues, product, sumOf } from "../../abstraction/collections.ts";
import { type Axis, type Computation, elementCount, inputsOf, targetOf } from "../../abstraction/computation.ts";
import { dependencesOf, isRecurrent } from "../../abstraction/dependence.ts";
import {
  BYTE_SUM_BITS,
  cutOff,
  type DType,
  epsilonOf,
  floatFormatOf,
  isByteFloat,
  isInteger,
  rangeOf,
} from "../../abstraction/dtype.ts";
import { writesApart } from "../../abstraction/elements.ts";
import type { Values } from "../../abstraction/evaluate.ts";
import { accessesIn, type Equation, type Expr, isFloatFunction, number } from "../../abstraction/expression.ts";
import type { Inputs } from "../../abstraction/interpret.ts";
import type { Time } from "../../abstraction/time.ts";
import { typeOf } from "../../abstraction/typing.ts";
import { callsLibrary, isOfLibrary, magnitudeOf, sizeOf, valueNodes } from "../size.ts";
import { type Growth, growthOf } from "./step-growth.ts";

/** Evaluates a computation on inputs. */
export type Evaluate = (computation: Computation, inputs: Inputs) => Promise<Values> | Values;

/** A bound with the number of terms of each sum. */
export interface Bound extends BoundRule {
  /** The number of terms of each sum. */
  readonly terms: ArrayLike<number>;
}

/** The error bound of a float result: `(terms + operations + 1) * (epsilon * magnitude + smallest)`. */
export interface BoundRule {
  /** The sum of |terms|, computed in f64 from the inputs. */
  readonly magnitude: Computation;
  /** For time steps and recurrences: whether the magnitude is computed from the absolute values of the inputs. */
  readonly absolute: boolean;
  /** For time steps that are linear in the plane: the magnitude follows from the largest element of the first plane. */
  readonly growth?: Growth;
  /** Terms of every sum, or, if several points meet in one element, the computation that counts them. */
  readonly chain: number | Computation;
  /** Operations in one term, each as often as a rounding in its type outweighs one of the sum's: 8192 times for f16 in a sum of f32. */
  readonly operations: number;
  /** Of the sum's type. */
  readonly epsilon: number;
  readonly smallest: number;
  /** The largest sum that cannot overflow. */
  readonly roof: number;
  /** Integers below this are exact. */
  readonly exactBelow: number;
  /**
   * Whether integer inputs give integer results: no division, no fraction in the equation, no function with fractional
   * results.
   */
  readonly integral: boolean;
}

/** Undefined if the result is exact. */
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

/**
 * Undefined if the result is exact: integers that do not come from a float function, and floats that are only moved or
 * compared.
 */
export function boundRule(computation: Computation): BoundRule | undefined {
  const { equation, time } = computation;
  if (time) return boundInTime(computation, time);
  return ruleOf(computation, isRecurrent(equation));
}

/**
 * @param again whether magnitudes are computed from magnitudes, so that only the size of a function's argument is known
 */
function ruleOf(computation: Computation, again: boolean): BoundRule | undefined {
  const { equation } = computation;
  const target = targetOf(computation);
  if (isInteger(target.dtype) && !callsLibrary(equation.value)) return undefined;
  const dtypes = mapValues(computation.tensors, ({ dtype }) => dtype);
  const arithmetic = [...valueNodes(equation.value)].filter(
    (e) =>
      e.kind === "binary" || (e.kind === "call" && (e.fn === "square" || e.fn === "round" || isFloatFunction(e.fn))),
  );
  const sums = equation.op === "+=" || equation.op === "sat+=";
  if (!sums && arithmetic.length === 0) return undefined;
  const casts = [...valueNodes(equation.value)].filter((e) => e.kind === "cast");
  const types = [target.dtype, ...[...arithmetic, ...casts].map((e) => typeOf(e, dtypes) ?? target.dtype)].filter(
    (t) => !isInteger(t),
  );
  const few = sums && multipliesBytes(computation) ? BYTE_SUM_BITS : undefined;
  const unit = Math.max(...types.map(epsilonOf), few === undefined ? 0 : 2 ** -few);
  const ofSum = isInteger(target.dtype) ? unit : epsilonOf(target.dtype);
  const epsilon = few === undefined ? ofSum : Math.max(ofSum, 2 ** -few, cutOff(few));
  const roundings = (e: Expr): number => {
    const dtype = typeOf(e, dtypes) ?? target.dtype;
    return isInteger(dtype) ? 1 : Math.max(1, epsilonOf(dtype) / epsilon);
  };
  const operations = sumOf(arithmetic, roundings) + sumOf(casts.map(roundings).filter((count) => count > 1));
  const chain = writesApart(computation) ? chainLength(computation, operations) : undefined;
  const slack = ((chain ?? 1) + operations + 1) * epsilon;
  return {
    magnitude: inDoubles(computation, again ? magnitudeOf(equation.value) : sizeOf(equation.value, slack)),
    absolute: again,
    chain: chain ?? inDoubles(computation, number(1)),
    operations,
    epsilon,
    smallest: Math.max(...types.map(smallestOf)),
    roof: Math.min(...types.map((t) => rangeOf(t)[1])) / 4,
    exactBelow: 2 / unit,
    integral: [...valueNodes(equation.value)].every((e) =>
      e.kind === "number" ? Number.isInteger(e.value) : !(e.kind === "binary" && e.op === "/") && !isOfLibrary(e),
    ),
  };
}

/** Whether tensor cores may sum products of floats of one byte, with few bits. */
function multipliesBytes({ equation, tensors }: Computation): boolean {
  const factors = accessesIn(equation.value);
  return factors.filter(({ tensor }) => isByteFloat(tensors[tensor]?.dtype ?? "f32")).length > 1;
}

/** The spacing of subnormal numbers; the smallest normal number where some hardware has no subnormals. */
function smallestOf(dtype: DType): number {
  const { minExponent = -126, fractionBits = 0 } = floatFormatOf(dtype) ?? {};
  return minExponent <= -126 ? 2 ** -126 : 2 ** (minExponent - fractionBits);
}

/**
 * The error of a step passes through all later steps, each of which adds its own. So magnitudes are stepped through
 * time as well.
 */
function boundInTime(computation: Computation, time: Time): BoundRule | undefined {
  const rule = ruleOf(time.step, true);
  const growth = rule && growthOf(time, (rule.operations + 1) * rule.epsilon);
  return (
    rule && {
      ...rule,
      ...(growth && { growth }),
      magnitude: { ...inDoubles(computation, computation.equation.value), time: { ...time, step: rule.magnitude } },
      chain: time.steps * (rule.operations + 1),
    }
  );
}
/** Terms of a sum, or, for a recurrence, operations on the longest path to a result. */
function chainLength({ equation, axes }: Computation, operations: number): number {
  const extentsIn = (kind: Axis["kind"]): number[] => axes.filter((a) => a.kind === kind).map((a) => a.extent);
  const reduced = product(extentsIn("reduce"));
  if (!isRecurrent(equation)) return reduced;
  const along = extentsIn("spatial");
  const distances = dependencesOf(equation).map((d) => d.distance);
  // Each step of a path advances along an axis on which every read moves; otherwise along some axis on which no read
  // moves forward.
  const left = along.filter((_, d) => distances.every((v) => typeof v[d] === "number" && v[d] >= 1));
  const backwards = distances.every((v) => v.every((d) => d !== "*" && d >= 0));
  const moved = along.filter((_, d) => distances.some((v) => v[d] !== 0));
  const longest = Math.min(product(moved), ...left, ...(backwards ? [sumOf(moved)] : []));
  return longest * ((joinsBySize(equation) ? 1 : reduced) + operations);
}

/** Whether one of several values is chosen, rather than added. */
const joinsBySize = ({ op }: Equation): boolean => op === "max=" || op === "min=";

/** The computation with another value, all in f64. Terms of a maximum or minimum are added up too. */
function inDoubles(computation: Computation, value: Expr): Computation {
  const { equation, tensors } = computation;
  // A recurrence must not add up: it would count more at every step than any path to a result contains.
  const op = equation.op === "=" ? "=" : joinsBySize(equation) && isRecurrent(equation) ? "max=" : "+=";
  return {
    ...computation,
    name: `${computation.name} (bound)`,
    equation: { ...equation, op, value },
    tensors: mapValues(tensors, (tensor) => ({ ...tensor, dtype: "f64" })),
  };
}

/**
 * The tolerance of a sum of terms whose sizes add up to `size`; 0 if the sum is not finite.
 * @param isExact whether all inputs are small integers
 */
export function toleranceOf(
  { operations, epsilon, smallest, integral, exactBelow }: BoundRule,
  terms: number,
  size: number,
  sum: number,
  isExact = false,
): number {
  if (!Number.isFinite(sum) || (isExact && integral && size <= exactBelow && Number.isInteger(sum))) return 0;
  return (terms + operations + 1) * (epsilon * size + smallest);
}

function zeroInputs(computation: Computation): Record<string, Float64Array> {
  return Object.fromEntries(inputsOf(computation).map((t) => [t.name, new Float64Array(elementCount(t))]));
}
