/*
 * Interval arithmetic: what an expression gives where a number is known only to lie between two ends. Needs arithmetic.h, whose functions it
 * overloads, and LIBRARY_UNITS.
 *
 *     out in [3.4, 3.6]      clamped_to<u8>(round_even(out))                      [3, 4]
 *     out in [-1, 2]         multiply<f32>(most(out, exactly(0)), exactly(-2))    [-4, 0]
 *
 * Rounding is monotonic, so the rounded ends enclose every result of a kernel that rounds each operation separately. Where nothing is known, as of
 * integers that wrap or of a quotient by an interval around 0, the interval is the range of the type. Library functions are known to LIBRARY_UNITS
 * units in the last place.
 */

struct Ends { double low, high; };
AUTOMAP_FUNCTION inline Ends exactly(double x) { return {x, x}; }

template <class F> AUTOMAP_FUNCTION Ends whole() {
  if constexpr (F::integer) return {double(F::least), double(F::most)};
  else return {-infinity, infinity};
}
/* Both ends as the type holds them; the range of the type if an integer that is not known wraps between them, or an end is NaN. */
template <class F> AUTOMAP_FUNCTION Ends within(double low, double high) {
  if (is_nan(low) || is_nan(high)) return whole<F>();
  if constexpr (F::integer)
    if (low != high && !(low >= double(F::least) && high <= double(F::most))) return whole<F>();
  return {double(F::wrap(low)), double(F::wrap(high))};
}
AUTOMAP_FUNCTION inline Ends least(Ends a, Ends b) { return {least(a.low, b.low), least(a.high, b.high)}; }
AUTOMAP_FUNCTION inline Ends most(Ends a, Ends b) { return {most(a.low, b.low), most(a.high, b.high)}; }
AUTOMAP_FUNCTION inline Ends either(Ends a, Ends b) { return {least(a.low, b.low), most(a.high, b.high)}; }
AUTOMAP_FUNCTION inline Ends corners(double a, double b, double c, double d) {
  return either(either(exactly(a), exactly(b)), either(exactly(c), exactly(d)));
}
AUTOMAP_FUNCTION inline Ends magnitude(Ends a) {
  return a.low >= 0 ? a : a.high <= 0 ? Ends{-a.high, -a.low} : Ends{0, most(-a.low, a.high)};
}

template <class F> AUTOMAP_FUNCTION Ends cast_to(Ends a) {
  return F::integer ? within<F>(__builtin_trunc(a.low), __builtin_trunc(a.high)) : within<F>(a.low, a.high);
}
template <class F> AUTOMAP_FUNCTION Ends clamped_to(Ends a) { return {double(F::saturate(a.low)), double(F::saturate(a.high))}; }
template <class F> AUTOMAP_FUNCTION Ends negate(Ends a) { return within<F>(-a.high, -a.low); }
template <class F> AUTOMAP_FUNCTION Ends add(Ends a, Ends b) { return within<F>(a.low + b.low, a.high + b.high); }
template <class F> AUTOMAP_FUNCTION Ends subtract(Ends a, Ends b) { return within<F>(a.low - b.high, a.high - b.low); }
template <class F> AUTOMAP_FUNCTION Ends multiply(Ends a, Ends b) {
  /* A double cannot hold every product of two integers. */
  if (F::integer && a.low == a.high && b.low == b.high) return exactly(double(multiply<F>(Int(a.low), Int(b.low))));
  return cast_to<F>(corners(a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high));
}
template <class F> AUTOMAP_FUNCTION Ends divide(Ends a, Ends b) {
  const bool is_known = a.low == a.high && b.low == b.high;
  if (b.low <= 0 && b.high >= 0 && !is_known) return whole<F>();
  return cast_to<F>(corners(a.low / b.low, a.low / b.high, a.high / b.low, a.high / b.high));
}
template <class F> AUTOMAP_FUNCTION Ends remainder_of(Ends a, Ends b) {
  if (a.low != a.high || b.low != b.high) return whole<F>();
  return cast_to<F>(exactly(__builtin_fmod(a.low, b.low)));
}
template <class F> AUTOMAP_FUNCTION Ends absolute(Ends a) { return cast_to<F>(magnitude(a)); }
template <class F> AUTOMAP_FUNCTION Ends square(Ends a) {
  const Ends size = magnitude(a);
  return within<F>(size.low * size.low, size.high * size.high);
}
AUTOMAP_FUNCTION inline Ends round_even(Ends a) { return {round_even(a.low), round_even(a.high)}; }
template <class F> AUTOMAP_FUNCTION Ends floor_of(Ends a) { return {__builtin_floor(a.low), __builtin_floor(a.high)}; }
template <class F> AUTOMAP_FUNCTION Ends ceil_of(Ends a) { return {__builtin_ceil(a.low), __builtin_ceil(a.high)}; }

template <class F> AUTOMAP_FUNCTION Ends widened(double low, double high) {
  const double room = LIBRARY_UNITS * F::epsilon;
  return within<F>(low - room * __builtin_fabs(low), high + room * __builtin_fabs(high));
}
template <class F> AUTOMAP_FUNCTION Ends exp_of(Ends a) { return widened<F>(__builtin_exp(a.low), __builtin_exp(a.high)); }
template <class F> AUTOMAP_FUNCTION Ends log_of(Ends a) { return widened<F>(__builtin_log(a.low), __builtin_log(a.high)); }
template <class F> AUTOMAP_FUNCTION Ends sqrt_of(Ends a) { return widened<F>(__builtin_sqrt(a.low), __builtin_sqrt(a.high)); }
template <class F> AUTOMAP_FUNCTION Ends tanh_of(Ends a) { return widened<F>(__builtin_tanh(a.low), __builtin_tanh(a.high)); }
template <class F> AUTOMAP_FUNCTION Ends erf_of(Ends a) { return widened<F>(__builtin_erf(a.low), __builtin_erf(a.high)); }
template <class F> AUTOMAP_FUNCTION Ends atan_of(Ends a) { return widened<F>(__builtin_atan(a.low), __builtin_atan(a.high)); }
template <class F> AUTOMAP_FUNCTION Ends asinh_of(Ends a) { return widened<F>(__builtin_asinh(a.low), __builtin_asinh(a.high)); }
/* The slope of a sine or cosine is at most 1, and so is its size. */
template <class F> AUTOMAP_FUNCTION Ends wave(Ends a, double at_low) {
  const double span = a.high - a.low;
  return widened<F>(most(-1.0, at_low - span), least(1.0, at_low + span));
}
template <class F> AUTOMAP_FUNCTION Ends sin_of(Ends a) { return wave<F>(a, __builtin_sin(a.low)); }
template <class F> AUTOMAP_FUNCTION Ends cos_of(Ends a) { return wave<F>(a, __builtin_cos(a.low)); }
/* At the corners for a positive base; for a known positive integer exponent also at base 0. */
template <class F> AUTOMAP_FUNCTION Ends pow_of(Ends a, Ends b) {
  const bool is_known = b.low == b.high && (a.low == a.high || (b.low > 0 && b.low == __builtin_floor(b.low)));
  if (!(a.low > 0) && !is_known) return whole<F>();
  const Ends ends = corners(__builtin_pow(a.low, b.low), __builtin_pow(a.low, b.high), __builtin_pow(a.high, b.low), __builtin_pow(a.high, b.high));
  const Ends all = a.low < 0 && a.high > 0 ? either(ends, exactly(0)) : ends;
  return widened<F>(all.low, all.high);
}
