/**
 * @file Prints the bounds of an epilogue over a sum that is known only approximately: the interval arithmetic of interval.ts, for references on a
 * device.
 *
 *     max(out, 0) * scale      times<f32>(at_least(out, exactly(0)), exactly(scale))
 *     erf(out)                 widened<f32>(room, __builtin_erf(ends.low), __builtin_erf(ends.high))
 *
 * Each operation is rounded as written, and library functions are known to a few units in the last place. Where nothing is known, as of integers
 * that wrap or of a quotient by an interval around 0, the interval is the range of the type.
 */

import { type DType, epsilonOf, isInteger } from "../abstraction/dtype.ts";
import { accessesIn, type Expr, type FunctionName } from "../abstraction/expression.ts";
import { type Code, code, list } from "../abstraction/source-text.ts";
import { type DTypes, typeOf } from "../abstraction/typing.ts";
import { printIndex, printValue } from "./reference-expressions.ts";
import { callsLibrary, LIBRARY_UNITS } from "./size.ts";

/** The functions that printed intervals call; they require `arithmetic.h`. */
export const INTERVALS = code`struct Ends { double low, high; };
AUTOMAP_FUNCTION inline Ends exactly(double x) { return {x, x}; }
template <class F> AUTOMAP_FUNCTION Ends whole() {
  if constexpr (F::integer) return {double(F::least), double(F::most)};
  else return {-infinity, infinity};
}
/* Both ends as the type holds them; the range of the type if an integer wraps between them, or an end is NaN. */
template <class F> AUTOMAP_FUNCTION Ends within(double low, double high) {
  if (is_nan(low) || is_nan(high)) return whole<F>();
  if constexpr (F::integer) return low >= double(F::least) && high <= double(F::most) ? Ends{low, high} : whole<F>();
  else return {F::wrap(low), F::wrap(high)};
}
template <class F> AUTOMAP_FUNCTION Ends truncated(double low, double high) {
  return F::integer ? within<F>(__builtin_trunc(low), __builtin_trunc(high)) : within<F>(low, high);
}
AUTOMAP_FUNCTION inline Ends at_least(Ends a, Ends b) { return {most(a.low, b.low), most(a.high, b.high)}; }
AUTOMAP_FUNCTION inline Ends at_most(Ends a, Ends b) { return {least(a.low, b.low), least(a.high, b.high)}; }
AUTOMAP_FUNCTION inline Ends either(Ends a, Ends b) { return {least(a.low, b.low), most(a.high, b.high)}; }
AUTOMAP_FUNCTION inline Ends magnitude(Ends a) { return a.low >= 0 ? a : a.high <= 0 ? Ends{-a.high, -a.low} : Ends{0, most(-a.low, a.high)}; }
AUTOMAP_FUNCTION inline Ends corners(double a, double b, double c, double d) { return either(either({a, a}, {b, b}), either({c, c}, {d, d})); }
template <class F> AUTOMAP_FUNCTION Ends cast_to(Ends a) { return truncated<F>(a.low, a.high); }
template <class F> AUTOMAP_FUNCTION Ends clamped_to(Ends a) { return {double(F::saturate(a.low)), double(F::saturate(a.high))}; }
template <class F> AUTOMAP_FUNCTION Ends opposite(Ends a) { return within<F>(-a.high, -a.low); }
template <class F> AUTOMAP_FUNCTION Ends plus(Ends a, Ends b) { return within<F>(a.low + b.low, a.high + b.high); }
template <class F> AUTOMAP_FUNCTION Ends minus(Ends a, Ends b) { return within<F>(a.low - b.high, a.high - b.low); }
template <class F> AUTOMAP_FUNCTION Ends times(Ends a, Ends b) {
  return cast_to<F>(corners(a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high));
}
template <class F> AUTOMAP_FUNCTION Ends over(Ends a, Ends b) {
  if (b.low <= 0 && b.high >= 0) return whole<F>();
  return cast_to<F>(corners(a.low / b.low, a.low / b.high, a.high / b.low, a.high / b.high));
}
template <class F> AUTOMAP_FUNCTION Ends rest(Ends a, Ends b) {
  if (a.low != a.high || b.low != b.high) return whole<F>();
  return cast_to<F>(exactly(__builtin_fmod(a.low, b.low)));
}
template <class F> AUTOMAP_FUNCTION Ends square_of(Ends a) {
  const Ends size = magnitude(a);
  return within<F>(size.low * size.low, size.high * size.high);
}
template <class F> AUTOMAP_FUNCTION Ends widened(double room, double low, double high) {
  return within<F>(low - room * __builtin_fabs(low), high + room * __builtin_fabs(high));
}
/* A sine or cosine, which is known at the lower end and has no slope beyond 1. */
template <class F> AUTOMAP_FUNCTION Ends wave(double room, Ends a, double at_low) {
  const double span = a.high - a.low;
  return widened<F>(room, most(-1, at_low - span), least(1, at_low + span));
}
/* At the corners for a positive base; for a known positive integer exponent also at base 0. */
template <class F> AUTOMAP_FUNCTION Ends power(double room, Ends a, Ends b) {
  const bool is_known = b.low == b.high && (a.low == a.high || (b.low > 0 && b.low == __builtin_floor(b.low)));
  if (!(a.low > 0) && !is_known) return whole<F>();
  const Ends ends = corners(__builtin_pow(a.low, b.low), __builtin_pow(a.low, b.high), __builtin_pow(a.high, b.low), __builtin_pow(a.high, b.high));
  const Ends all = a.low < 0 && a.high > 0 ? either(ends, exactly(0)) : ends;
  return widened<F>(room, all.low, all.high);
}`;

const BINARY = { "+": "plus", "-": "minus", "*": "times", "/": "over", "%": "rest" } as const;

/** The tensor whose elements are known only to lie in an interval, and the `Ends` that hold the one read. */
export interface Uncertain {
  readonly tensor: string;
  readonly ends: Code;
}

/** The interval of a value as `Ends`. */
export function printEnds(e: Expr, dtypes: DTypes, expected: DType, uncertain: Uncertain): Code {
  const isUncertain = accessesIn(e).some(({ tensor }) => tensor === uncertain.tensor) || callsLibrary(e);
  if (!isUncertain) return code`exactly(double(${printValue(e, dtypes, expected)}))`;
  const dtype = typeOf(e, dtypes) ?? expected;
  const print = (part: Expr): Code => printEnds(part, dtypes, dtype, uncertain);
  switch (e.kind) {
    case "access":
      return uncertain.ends;
    case "cast": {
      const value = printEnds(e.value, dtypes, "f64", uncertain);
      return e.saturate ? code`clamped_to<${e.dtype}>(${value})` : code`cast_to<${e.dtype}>(${value})`;
    }
    case "negate":
      return code`opposite<${dtype}>(${print(e.value)})`;
    case "binary":
      if (e.op === "^") throw new Error(`internal: "^" stands in storage formulas only`);
      return code`${BINARY[e.op]}<${dtype}>(${print(e.left)}, ${print(e.right)})`;
    case "call":
      return printCall(e.fn, e.args.map(print), dtype);
    case "select":
      // The condition of an epilogue compares indices only.
      return code`(${printIndex(e.condition)} ? ${print(e.whenTrue)} : ${print(e.whenFalse)})`;
    case "number":
    case "axis":
    case "border":
    case "compare":
    case "logic":
      throw new Error(`internal: "${e.kind}" reads no sum`);
    default:
      return e satisfies never;
  }
}

function printCall(fn: FunctionName, args: readonly Code[], dtype: DType): Code {
  const [first] = args;
  if (!first) throw new Error(`internal: ${fn} without arguments`);
  const room = code`${LIBRARY_UNITS * epsilonOf(dtype)}`;
  const atBoth = (of: Code): Code => code`([](Ends a) { return Ends{${of}(a.low), ${of}(a.high)}; }(${first}))`;
  switch (fn) {
    case "min":
      return code`at_most(${list(args)})`;
    case "max":
      return code`at_least(${list(args)})`;
    case "abs":
      return code`cast_to<${dtype}>(magnitude(${first}))`;
    case "square":
      return code`square_of<${dtype}>(${first})`;
    case "round":
      return isInteger(dtype) ? first : atBoth(code`round_even`);
    case "floor":
    case "ceil":
      return atBoth(code`__builtin_${fn}`);
    case "exp":
    case "log":
    case "sqrt":
    case "tanh":
    case "erf":
    case "atan":
    case "asinh":
      return code`([](Ends a) { return widened<${dtype}>(${room}, __builtin_${fn}(a.low), __builtin_${fn}(a.high)); }(${first}))`;
    case "sin":
    case "cos":
      return code`([](Ends a) { return wave<${dtype}>(${room}, a, __builtin_${fn}(a.low)); }(${first}))`;
    case "pow":
      return code`power<${dtype}>(${room}, ${list(args)})`;
    default:
      return fn satisfies never;
  }
}
