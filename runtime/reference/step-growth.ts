/**
 * @file How fast time steps amplify a difference: the rounding error after all steps, derived from one step.
 *
 *     u + 0.125*(left + right + up + down - 4*u)      size as written: 2      a difference grows by |0.5| + 4*|0.125| = 1
 *
 * The rounding error of a step is at most `g * (M*V + C)`, where V is the largest element, M the size of a step of
 * ones, C that of a step of zeros, and g the relative rounding error of its operations. Each later step multiplies a
 * difference by at most L, the sum of |net coefficient| over the elements read, and by L + g*M including its own
 * rounding. After T steps the sum of these is below `T * g * (L + g*M)**(T-1) * (M*(V + T*C) + C)`.
 */

import { compileValue, Scope } from "../../abstraction/evaluate.ts";
import { accessesIn, type Expr, number, printAccess, rewrite } from "../../abstraction/expression.ts";
import type { Time } from "../../abstraction/time.ts";
import { magnitudeOf, valueNodes } from "../size.ts";

/** The magnitude of all steps is at most `factor * V + offset`, where V is the largest element of the first plane. */
interface Line {
  readonly factor: number;
  readonly offset: number;
}

export interface Growth {
  /** If the other tensors hold small integers. */
  readonly whole: Line;
  /** If they hold fractions up to `scale`. */
  readonly drawn: Line;
  /** A power of two. With coefficients from memory up to this, rounding errors stay small beside the results. */
  readonly scale: number;
}

/** The largest of the small integers in an exact set. */
const MOST_WHOLE = 3;
/**
 * The most amplification by coefficients from memory. It leaves five decimal digits of f32 after a thousand operations.
 */
const MOST_AMPLIFIED = 16;
/** Smaller coefficients would be lost beside the others in f32. */
const LEAST_SCALE = 2 ** -20;

/**
 * Undefined if the step is not linear in the plane, or its value depends on the position.
 * @param rounding relative error of the operations of a step
 */
export function growthOf({ step, first, steps }: Time, rounding: number): Growth | undefined {
  const { value } = step.equation;
  const line = (others: number): (Line & { readonly amplified: number }) | undefined => {
    const gain = gainOf(value, first, others);
    const ones = sizeAt(value, (tensor) => (tensor === first ? 1 : others));
    const zeros = sizeAt(value, (tensor) => (tensor === first ? 0 : others));
    if (gain === undefined || !Number.isFinite(ones + zeros)) return undefined;
    const own = gain + rounding * ones;
    const amplified = (zeros > 0 ? Math.max(1, own) : own) ** (steps - 1);
    const finite = (x: number): number => Math.min(x, Number.MAX_VALUE);
    return {
      factor: finite(ones * amplified),
      offset: zeros > 0 ? finite((ones * steps + 1) * zeros * amplified) : 0,
      amplified,
    };
  };
  const whole = line(MOST_WHOLE);
  const most = line(1);
  if (!whole || !most) return undefined;
  for (let scale = 1; scale >= LEAST_SCALE; scale /= 2) {
    const drawn = line(scale);
    if (drawn && drawn.amplified <= MOST_AMPLIFIED) return { whole, drawn, scale };
  }
  return { whole, drawn: most, scale: 1 };
}

/**
 * The size of a value whose elements have sizes by tensor, as of a step on a plane of one value with other tensors of another; NaN if the value depends
 * on the position.
 */
export function sizeAt(value: Expr, sizes: (tensor: string) => number): number {
  const put = rewrite(
    magnitudeOf(value),
    (e) => {
      if (e.kind === "access") return number(sizes(e.tensor));
      return e.kind === "select" ? { kind: "call", fn: "max", args: [e.whenTrue, e.whenFalse] } : e;
    },
    "value",
  );
  if ([...valueNodes(put)].some((e) => e.kind === "axis" || e.kind === "select")) return Number.NaN;
  return compileValue(put, new Scope(new Map(), 0), "f64")(new Int32Array(0));
}

/**
 * The effect of a value on differences: net coefficients of the plane's elements, and the amplification by everything
 * else.
 */
interface Carried {
  readonly net: ReadonlyMap<string, number>;
  readonly more: number;
}

/** The most that a step may enlarge the largest difference between two planes; undefined if it cannot be bounded. */
function gainOf(value: Expr, first: string, others: number): number | undefined {
  const total = ({ net, more }: Carried): number => [...net.values()].reduce((sum, c) => sum + Math.abs(c), more);
  const scaled = ({ net, more }: Carried, by: number): Carried => ({
    net: new Map([...net].map(([read, c]) => [read, c * by])),
    more: more * Math.abs(by),
  });
  const joined = (a: Carried, b: Carried, sign: number): Carried => {
    const net = new Map(a.net);
    for (const [read, c] of b.net) net.set(read, (net.get(read) ?? 0) + sign * c);
    return { net, more: a.more + b.more };
  };
  const largest = (parts: readonly Expr[]): Carried | undefined => {
    const carried = parts.map(carry);
    if (carried.some((c) => c === undefined)) return undefined;
    return { net: new Map(), more: Math.max(...carried.map((c) => (c ? total(c) : 0))) };
  };
  const isFree = (e: Expr): boolean => accessesIn(e).every((a) => a.tensor !== first);
  const times = (part: Expr, by: Expr): Carried | undefined => {
    const carried = carry(part);
    if (!carried) return undefined;
    const known = constantOf(by);
    if (known !== undefined) return scaled(carried, known);
    return { net: new Map(), more: total(carried) * sizeAt(by, () => others) };
  };
  const carry = (e: Expr): Carried | undefined => {
    if (isFree(e)) return { net: new Map(), more: 0 };
    if (e.kind === "access") return { net: new Map([[printAccess(e), 1]]), more: 0 };
    if (e.kind === "select") return largest([e.whenTrue, e.whenFalse]);
    if (e.kind === "call") return e.fn === "max" || e.fn === "min" || e.fn === "abs" ? largest(e.args) : undefined;
    if (e.kind === "negate") {
      const inner = carry(e.value);
      return inner && scaled(inner, -1);
    }
    if (e.kind !== "binary") return undefined;
    if (e.op === "+" || e.op === "-") {
      const left = carry(e.left);
      const right = carry(e.right);
      return left && right && joined(left, right, e.op === "+" ? 1 : -1);
    }
    if (e.op === "*")
      return isFree(e.right) ? times(e.left, e.right) : isFree(e.left) ? times(e.right, e.left) : undefined;
    const divisor = e.op === "/" ? constantOf(e.right) : undefined;
    const dividend = divisor && carry(e.left);
    return dividend && divisor ? scaled(dividend, 1 / divisor) : undefined;
  };
  const carried = carry(value);
  return carried && total(carried);
}

/** The value of a constant expression; undefined if it reads elements or depends on the position. */
function constantOf(e: Expr): number | undefined {
  if (accessesIn(e).length > 0 || [...valueNodes(e)].some((n) => n.kind === "axis" || n.kind === "select"))
    return undefined;
  return compileValue(e, new Scope(new Map(), 0), "f64")(new Int32Array(0));
}
