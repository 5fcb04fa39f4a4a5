/**
 * @file Bounds of an epilogue over a sum that is known only approximately: interval arithmetic, with each operation
 * rounded as written.
 *
 *     out in [3.4, 3.6]      sat_u8(round(out))      [3, 4]
 *     out in [-1, 2]         max(out, 0) * scale     [-4, 0] where scale is -2
 *
 * Rounding is monotonic, so the rounded ends enclose every result of a kernel that rounds each operation separately.
 * Where an operation is not monotonic (casts that wrap, `%`) the interval is the type's range.
 */

import { evaluateIndex } from "../abstraction/affine.ts";
import { type Computation, elementCount, tensorOf } from "../abstraction/computation.ts";
import { type DType, epsilonOf, isInteger, rangeOf, roundHalfEven, saturate, wrap } from "../abstraction/dtype.ts";
import type { Values } from "../abstraction/evaluate.ts";
import type { BinaryOp, Expr, FunctionName } from "../abstraction/expression.ts";
import { FLOAT_VALUES } from "../abstraction/float-functions.ts";
import type { Inputs } from "../abstraction/interpret.ts";
import { type DTypes, typeOf } from "../abstraction/typing.ts";
import { turn } from "./draw-inputs.ts";
import { callsLibrary, LIBRARY_UNITS } from "./size.ts";

export interface Ends {
  readonly low: Values;
  readonly high: Values;
}

type Interval = readonly [low: number, high: number];
type Point = Readonly<Record<string, number>>;
type Evaluate = (at: Point) => Interval;

/** Elements between two turns of the event loop, in which Ctrl-C is handled: a few hundredths of a second. */
const BOUND_AT_ONCE = 2 ** 16;

/**
 * The interval of every output element of an epilogue. It yields to the event loop now and then.
 * @param epilogue an element-wise computation, as returned by `partsOf`
 * @param uncertain the input known only to lie between the given bounds; the others are exact
 * @param output exact values of the elements that this epilogue does not store
 * @throws the reason of the signal
 */
export async function intervalsOf(
  epilogue: Computation,
  inputs: Inputs,
  uncertain: string,
  ends: Ends,
  output: ArrayLike<number> = [],
  signal?: AbortSignal,
): Promise<Ends> {
  const { equation, axes } = epilogue;
  const { where } = equation;
  const written = tensorOf(epilogue, equation.target.tensor);
  const types: DTypes = Object.fromEntries(Object.values(epilogue.tensors).map((t) => [t.name, t.dtype]));
  const place = placeIn(epilogue, equation.target.tensor, equation.target.index);
  const read = (tensor: string, index: readonly Expr[]): Evaluate => {
    const at = placeIn(epilogue, tensor, index);
    const [low, high] = tensor === uncertain ? [ends.low, ends.high] : [inputs[tensor] ?? [], inputs[tensor] ?? []];
    return (point) => {
      const element = at(point);
      return [low[element] ?? Number.NaN, high[element] ?? Number.NaN];
    };
  };
  const value = compile(equation.value, types, written.dtype, read);
  const low = Float64Array.from({ length: elementCount(written) }, (_, i) => output[i] ?? Number.NaN);
  const high = low.slice();
  const point: Record<string, number> = {};
  const descend = (depth: number): void => {
    const axis = axes[depth];
    if (!axis) {
      if (where !== undefined && evaluateIndex(where, point) === 0) return;
      const at = place(point);
      const [least, most] = value(point);
      low[at] = wrap(written.dtype, least);
      high[at] = wrap(written.dtype, most);
      return;
    }
    for (let i = 0; i < axis.extent; i++) {
      point[axis.name] = i;
      descend(depth + 1);
    }
  };
  const inSlices = async (depth: number): Promise<void> => {
    const axis = axes[depth];
    if (!axis) return descend(depth);
    const inner = axes.slice(depth + 1).reduce((product, { extent }) => product * extent, 1);
    const together = Math.ceil(BOUND_AT_ONCE / inner);
    for (let i = 0; i < axis.extent; i++) {
      point[axis.name] = i;
      if (inner > BOUND_AT_ONCE) await inSlices(depth + 1);
      else {
        if (i % together === 0) await turn(signal);
        descend(depth + 1);
      }
    }
  };
  await inSlices(0);
  return { low, high };
}

/**
 * The same for an epilogue that never falls, or never rises, while the uncertain input rises: its results for both ends, which a compiled program
 * computes much faster. Undefined if nothing is known of the direction, or a result is NaN.
 */
export async function endsByDirection(
  epilogue: Computation,
  inputs: Inputs,
  uncertain: string,
  ends: Ends,
  evaluate: (computation: Computation, inputs: Inputs) => Promise<Values> | Values,
): Promise<Ends | undefined> {
  const { value, where } = epilogue.equation;
  const direction = where === undefined && !callsLibrary(value) ? directionOf(value, uncertain) : undefined;
  if (direction === undefined) return undefined;
  const low = await evaluate(epilogue, { ...inputs, [uncertain]: ends.low });
  const high = await evaluate(epilogue, { ...inputs, [uncertain]: ends.high });
  if (low.some(Number.isNaN) || high.some(Number.isNaN)) return undefined;
  return direction < 0 ? { low: high, high: low } : { low, high };
}

/** 1 if a value never falls while a tensor's elements rise, -1 if it never rises, 0 if it does not read them; undefined if nothing is known. */
export function directionOf(e: Expr, tensor: string): -1 | 0 | 1 | undefined {
  switch (e.kind) {
    case "access":
      return e.tensor === tensor ? 1 : 0;
    case "number":
    case "axis":
      return 0;
    case "cast":
      return isInteger(e.dtype) ? undefined : directionOf(e.value, tensor);
    case "binary":
      if (e.op !== "+" && e.op !== "-") return undefined;
      return together(directionOf(e.left, tensor), directionOf(e.right, tensor), e.op === "-");
    case "call": {
      const [first, second] = e.args;
      if ((e.fn !== "min" && e.fn !== "max") || !first || !second) return undefined;
      return together(directionOf(first, tensor), directionOf(second, tensor));
    }
    default:
      return undefined;
  }
}

type Direction = ReturnType<typeof directionOf>;

/** The direction of a sum, a minimum or a maximum. @param turned whether the second part is subtracted */
function together(a: Direction, b: Direction, turned = false): Direction {
  if (a === undefined || b === undefined) return undefined;
  const second = turned ? (-b as -1 | 0 | 1) : b; // of -1, 0 and 1
  if (a === 0 || second === 0) return a === 0 ? second : a;
  return a === second ? a : undefined;
}

/** Row-major index of an element. An epilogue never reads outside. */
function placeIn(epilogue: Computation, tensor: string, index: readonly Expr[]): (at: Point) => number {
  const { dims } = tensorOf(epilogue, tensor);
  return (at) => index.reduce((sum, e, d) => sum * (dims[d]?.extent ?? 1) + evaluateIndex(e, at), 0);
}

function compile(
  e: Expr,
  types: DTypes,
  expected: DType,
  read: (tensor: string, index: readonly Expr[]) => Evaluate,
): Evaluate {
  const dtype = typeOf(e, types) ?? expected;
  const part = (inner: Expr): Evaluate => compile(inner, types, dtype, read);
  const rounded = ([low, high]: Interval): Interval => within(dtype, low, high);
  switch (e.kind) {
    case "number": {
      const value = isInteger(dtype) && !Number.isInteger(e.value) ? e.value : wrap(dtype, e.value);
      return () => [value, value];
    }
    case "axis":
      return (at) => [at[e.name] ?? 0, at[e.name] ?? 0];
    case "access":
      return read(e.tensor, e.index);
    case "cast": {
      const value = compile(e.value, types, "f64", read);
      const { dtype: to } = e;
      if (e.saturate) {
        return (at) => {
          const [low, high] = value(at);
          return [saturate(to, low), saturate(to, high)];
        };
      }
      return (at) => {
        const [low, high] = value(at);
        return isInteger(to) ? within(to, Math.trunc(low), Math.trunc(high)) : within(to, low, high);
      };
    }
    case "negate": {
      const value = part(e.value);
      return (at) => {
        const [low, high] = value(at);
        return rounded([-high, -low]);
      };
    }
    case "binary": {
      const left = part(e.left);
      const right = part(e.right);
      return (at) => arithmetic(e.op, left(at), right(at), dtype);
    }
    case "call": {
      const [first, second = first] = e.args.map(part);
      if (!first || !second) throw new Error(`internal: ${e.fn} without arguments`);
      return called(e.fn, first, second, dtype);
    }
    case "select": {
      const yes = part(e.whenTrue);
      const no = part(e.whenFalse);
      return (at) => (evaluateIndex(e.condition, at) !== 0 ? yes(at) : no(at));
    }
    case "border":
    case "compare":
    case "logic":
      throw new Error("internal: a condition is not a value");
    default:
      return e satisfies never;
  }
}

/** A function of intervals. Except for `pow`, `sin` and `cos`, all are monotone, or monotone on either side of 0. */
function called(fn: FunctionName, first: Evaluate, second: Evaluate, dtype: DType): Evaluate {
  const rounded = ([low, high]: Interval): Interval => within(dtype, low, high);
  switch (fn) {
    case "min":
      return both(first, second, Math.min);
    case "max":
      return both(first, second, Math.max);
    case "abs":
      return (at) => rounded(magnitude(first(at)));
    case "square":
      return (at) => {
        const [low, high] = magnitude(first(at));
        return rounded([low * low, high * high]);
      };
    case "round":
      return (at) => {
        const [low, high] = first(at);
        return [roundHalfEven(low), roundHalfEven(high)];
      };
    case "floor":
    case "ceil": {
      const compute = FLOAT_VALUES[fn];
      return (at) => {
        const [low, high] = first(at);
        return [compute(low, 0), compute(high, 0)];
      };
    }
    case "exp":
    case "log":
    case "sqrt":
    case "tanh":
    case "erf":
    case "atan":
    case "asinh": {
      const compute = FLOAT_VALUES[fn];
      return (at) => {
        const [low, high] = first(at);
        return widened(compute(low, 0), compute(high, 0), dtype);
      };
    }
    case "sin":
    case "cos": {
      const compute = FLOAT_VALUES[fn];
      // Their slope is at most 1.
      return (at) => {
        const [low, high] = first(at);
        const there = compute(low, 0);
        return widened(Math.max(-1, there - (high - low)), Math.min(1, there + (high - low)), dtype);
      };
    }
    case "pow":
      return (at) => powers(first(at), second(at), dtype);
    default:
      return fn satisfies never;
  }
}

function both(first: Evaluate, second: Evaluate, choose: (a: number, b: number) => number): Evaluate {
  return (at) => {
    const a = first(at);
    const b = second(at);
    return [choose(a[0], b[0]), choose(a[1], b[1])];
  };
}

/**
 * The bounds of `pow`. For a positive base, or a known base and exponent, they are at the corners; for a known positive
 * integer exponent, also at base 0.
 */
function powers(base: Interval, exponent: Interval, dtype: DType): Interval {
  const isKnown =
    exponent[0] === exponent[1] && (base[0] === base[1] || (Number.isInteger(exponent[0]) && exponent[0] > 0));
  if (!(base[0] > 0) && !isKnown) return whole(dtype);
  const places = base[0] < 0 && base[1] > 0 ? [...base, 0] : base;
  const corners = places.flatMap((x) => exponent.map((y) => x ** y));
  return widened(Math.min(...corners), Math.max(...corners), dtype);
}

function widened(low: number, high: number, dtype: DType): Interval {
  const room = LIBRARY_UNITS * epsilonOf(dtype);
  return within(dtype, low - room * Math.abs(low), high + room * Math.abs(high));
}

function magnitude([low, high]: Interval): Interval {
  if (low >= 0) return [low, high];
  return high <= 0 ? [-high, -low] : [0, Math.max(-low, high)];
}

function arithmetic(op: BinaryOp, a: Interval, b: Interval, dtype: DType): Interval {
  switch (op) {
    case "+":
      return within(dtype, a[0] + b[0], a[1] + b[1]);
    case "-":
      return within(dtype, a[0] - b[1], a[1] - b[0]);
    case "*":
    case "/": {
      if (op === "/" && b[0] <= 0 && b[1] >= 0) return whole(dtype);
      const ends = [a[0], a[1]].flatMap((x) => b.map((y) => (op === "*" ? x * y : x / y)));
      const exact = isInteger(dtype) ? ends.map(Math.trunc) : ends;
      return within(dtype, Math.min(...exact), Math.max(...exact));
    }
    case "%":
      return a[0] === a[1] && b[0] === b[1] ? within(dtype, a[0] % b[0], a[0] % b[0]) : whole(dtype);
    case "^":
      throw new Error(`internal: "^" stands in storage formulas only`);
    default:
      return op satisfies never;
  }
}

/**
 * Both bounds converted to the type; the whole range of the type if an integer wraps between them, or a bound is NaN.
 */
function within(dtype: DType, low: number, high: number): Interval {
  if (Number.isNaN(low) || Number.isNaN(high)) return whole(dtype);
  if (!isInteger(dtype)) return [wrap(dtype, low), wrap(dtype, high)];
  const [min, max] = rangeOf(dtype);
  return low >= min && high <= max ? [low, high] : whole(dtype);
}

function whole(dtype: DType): Interval {
  return isInteger(dtype) ? rangeOf(dtype) : [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY];
}
