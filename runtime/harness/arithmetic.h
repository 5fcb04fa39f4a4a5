/*
 * Arithmetic as in abstraction/interpret.ts: integers are 64-bit and wrapped to their type after every operation;
 * floats are doubles rounded to theirs. Compile without contraction of a*b + c.
 *
 * Templates, because an integer read outside its tensor may be an infinity (the identity of a float maximum) and thus a
 * double. Built-in functions, because parsing the C++ headers would take longer than compiling the rest.
 */

#include <stdint.h>

/* Compilers for devices need to know that functions may run there. */
#ifndef AUTOMAP_FUNCTION
#define AUTOMAP_FUNCTION
#endif

using Int = int64_t;
static constexpr double infinity = __builtin_inf(), not_a_number = __builtin_nan("");

AUTOMAP_FUNCTION inline bool is_finite(double x) { return __builtin_fabs(x) < infinity; }
AUTOMAP_FUNCTION inline bool is_nan(double x) { return x != x; }

/* T is the C++ type. Converting to it keeps the low bits, and shows the compiler that narrower vectors suffice. */
template <class T> struct Integer {
  static constexpr bool integer = true;
  static constexpr bool is_signed = T(-1) < T(0);
  static constexpr int bits = 8 * sizeof(T);
  static constexpr Int least = is_signed ? -(Int(1) << (bits - 1)) : 0;
  static constexpr Int most = is_signed ? (Int(1) << (bits - 1)) - 1 : (Int(1) << bits) - 1;

  AUTOMAP_FUNCTION static Int wrap(Int x) { return Int(T(x)); }
  AUTOMAP_FUNCTION static Int wrap(double x) {
    if (!is_finite(x)) return 0;
    return wrap(__builtin_fabs(x) < 0x1p62 ? Int(x) : Int(__builtin_fmod(x, 0x1p32)));
  }
  AUTOMAP_FUNCTION static Int saturate(Int x) { return x < least ? least : x > most ? most : x; }
  AUTOMAP_FUNCTION static Int saturate(double x) {
    if (is_nan(x)) return 0;
    return x <= least ? least : x >= most ? most : Int(x);
  }
};

/* Significands have fraction_bits + 1 bits; the largest exponent is 1 - min_exponent. */
template <int fraction_bits, int min_exponent> struct Float {
  static constexpr bool integer = false;
  /* The spacing of values at 1. */
  static constexpr double epsilon = 1.0 / (1ull << fraction_bits);
  AUTOMAP_FUNCTION static double rounded(double x) {
    if (!is_finite(x) || x == 0) return x;
    int exponent = __builtin_ilogb(x);
    double spacing = __builtin_ldexp(1, (exponent < min_exponent ? min_exponent : exponent) - fraction_bits);
    return __builtin_nearbyint(x / spacing) * spacing;
  }
  AUTOMAP_FUNCTION static double wrap(double x) {
    if (fraction_bits == 23) return double(float(x));
    if (fraction_bits == 52 || !is_finite(x)) return x;
    double rounded = Float::rounded(x);
    return __builtin_fabs(rounded) >= __builtin_ldexp(1, 2 - min_exponent) ? __builtin_copysign(infinity, x) : rounded;
  }
  template <class T> AUTOMAP_FUNCTION static double saturate(T x) { return wrap(double(x)); }
};

/* Floats of one byte. What is beyond the largest is infinite, or NaN in a type without infinities, whose largest bits are its only NaN. */
template <int fraction_bits, int min_exponent, int largest, bool infinite> struct ByteFloat {
  using Wide = Float<fraction_bits, min_exponent>;
  static constexpr bool integer = false;
  static constexpr double epsilon = Wide::epsilon;
  AUTOMAP_FUNCTION static double wrap(double x) {
    const double rounded = Wide::rounded(x);
    return __builtin_fabs(rounded) > largest ? (infinite ? __builtin_copysign(infinity, x) : not_a_number) : rounded;
  }
  template <class T> AUTOMAP_FUNCTION static double saturate(T given) {
    const double x = double(given);
    return x > largest ? largest : x < -largest ? -largest : wrap(x);
  }
  AUTOMAP_FUNCTION static double decoded(uint8_t bits) {
    const int exponent = (bits & 0x7f) >> fraction_bits, fraction = bits & ((1 << fraction_bits) - 1);
    const int significand = exponent ? (1 << fraction_bits) + fraction : fraction;
    double size = __builtin_ldexp(double(significand), (exponent ? exponent - 1 : 0) + min_exponent - fraction_bits);
    if (size > largest) size = infinite && fraction == 0 ? infinity : not_a_number;
    return bits & 0x80 ? -size : size;
  }
  /* The bits of a value that is rounded already. */
  AUTOMAP_FUNCTION static uint8_t encoded(double value) {
    const double size = __builtin_fabs(value);
    const uint8_t sign = __builtin_signbit(value) ? 0x80 : 0;
    if (!is_finite(value)) return uint8_t(sign | (infinite && !is_nan(value) ? 0x7f >> fraction_bits << fraction_bits : 0x7f));
    if (size < __builtin_ldexp(1, min_exponent)) return uint8_t(sign | int(__builtin_ldexp(size, fraction_bits - min_exponent)));
    const int exponent = __builtin_ilogb(size);
    return uint8_t(sign | (((exponent - min_exponent) << fraction_bits) + int(__builtin_ldexp(size, fraction_bits - exponent))));
  }
};

using u8 = Integer<uint8_t>;
using s8 = Integer<int8_t>;
using u16 = Integer<uint16_t>;
using s16 = Integer<int16_t>;
using u32 = Integer<uint32_t>;
using s32 = Integer<int32_t>;
using e4m3 = ByteFloat<3, -6, 448, false>;
using e5m2 = ByteFloat<2, -14, 57344, true>;
using f16 = Float<10, -14>;
using bf16 = Float<7, -126>;
using tf32 = Float<10, -126>;
using f32 = Float<23, -126>;
using f64 = Float<52, -1022>;

template <class T> constexpr bool is_int = false;
template <> inline constexpr bool is_int<Int> = true;
template <class A, class B> constexpr bool both_int = is_int<A> && is_int<B>;

template <class F, class A, class B> AUTOMAP_FUNCTION auto add(A a, B b) {
  if constexpr (both_int<A, B>) return F::wrap(a + b);
  else return F::wrap(double(a) + double(b));
}
template <class F, class A, class B> AUTOMAP_FUNCTION auto subtract(A a, B b) {
  if constexpr (both_int<A, B>) return F::wrap(a - b);
  else return F::wrap(double(a) - double(b));
}
template <class F, class A, class B> AUTOMAP_FUNCTION auto multiply(A a, B b) {
  if constexpr (F::integer) return F::wrap(Int(uint64_t(s32::wrap(a)) * uint64_t(s32::wrap(b))));
  else return F::wrap(double(a) * double(b));
}
/* Towards zero for integers; division by 0 wraps to 0. */
template <class F, class A, class B> AUTOMAP_FUNCTION auto divide(A a, B b) {
  if constexpr (F::integer && both_int<A, B>) return b == 0 ? Int(0) : F::wrap(a / b);
  else {
    double quotient = double(a) / double(b);
    return F::wrap(F::integer ? __builtin_trunc(quotient) : quotient);
  }
}
template <class F, class A, class B> AUTOMAP_FUNCTION auto remainder_of(A a, B b) {
  if constexpr (F::integer && both_int<A, B>) return b == 0 ? Int(0) : F::wrap(a % b);
  else return F::wrap(__builtin_fmod(double(a), double(b)));
}
template <class F, class A> AUTOMAP_FUNCTION auto negate(A a) { return F::wrap(-a); }
template <class F, class A> AUTOMAP_FUNCTION auto absolute(A a) { return F::wrap(a < 0 || (a == 0 && __builtin_signbit(double(a))) ? -a : a); }
template <class F, class A> AUTOMAP_FUNCTION auto square(A a) { return multiply<F>(a, a); }
template <class F, class A> AUTOMAP_FUNCTION auto cast_to(A a) { return F::wrap(a); }
template <class F, class A> AUTOMAP_FUNCTION auto clamped_to(A a) { return F::saturate(a); }

template <class F> AUTOMAP_FUNCTION auto exp_of(double x) { return F::wrap(__builtin_exp(x)); }
template <class F> AUTOMAP_FUNCTION auto log_of(double x) { return F::wrap(__builtin_log(x)); }
template <class F> AUTOMAP_FUNCTION auto sqrt_of(double x) { return F::wrap(__builtin_sqrt(x)); }
template <class F> AUTOMAP_FUNCTION auto tanh_of(double x) { return F::wrap(__builtin_tanh(x)); }
template <class F> AUTOMAP_FUNCTION auto erf_of(double x) { return F::wrap(__builtin_erf(x)); }
template <class F> AUTOMAP_FUNCTION auto sin_of(double x) { return F::wrap(__builtin_sin(x)); }
template <class F> AUTOMAP_FUNCTION auto cos_of(double x) { return F::wrap(__builtin_cos(x)); }
template <class F> AUTOMAP_FUNCTION auto atan_of(double x) { return F::wrap(__builtin_atan(x)); }
template <class F> AUTOMAP_FUNCTION auto asinh_of(double x) { return F::wrap(__builtin_asinh(x)); }
template <class F> AUTOMAP_FUNCTION auto pow_of(double x, double y) { return F::wrap(__builtin_pow(x, y)); }
template <class F> AUTOMAP_FUNCTION auto floor_of(double x) { return F::wrap(__builtin_floor(x)); }
template <class F> AUTOMAP_FUNCTION auto ceil_of(double x) { return F::wrap(__builtin_ceil(x)); }

AUTOMAP_FUNCTION inline Int round_even(Int a) { return a; }
AUTOMAP_FUNCTION inline double round_even(double a) { return __builtin_nearbyint(a); }

/* Like Math.min and Math.max: NaN wins, and -0 is less than 0. */
template <class A, class B> AUTOMAP_FUNCTION auto least(A a, B b) {
  if constexpr (both_int<A, B>) return a < b ? a : b;
  else {
    double x = a, y = b;
    if (is_nan(x) || is_nan(y)) return double(not_a_number);
    return x == y ? (__builtin_signbit(x) ? x : y) : (x < y ? x : y);
  }
}
template <class A, class B> AUTOMAP_FUNCTION auto most(A a, B b) {
  if constexpr (both_int<A, B>) return a > b ? a : b;
  else {
    double x = a, y = b;
    if (is_nan(x) || is_nan(y)) return double(not_a_number);
    return x == y ? (__builtin_signbit(x) ? y : x) : (x > y ? x : y);
  }
}

AUTOMAP_FUNCTION inline Int floor_divide(Int a, Int b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }
AUTOMAP_FUNCTION inline Int floor_remainder(Int a, Int b) { return a - b * floor_divide(a, b); }

/* Clamps an index to a dimension of n elements. */
AUTOMAP_FUNCTION inline Int clamp_index(Int i, Int n) { return i < 0 ? 0 : i < n ? i : n - 1; }
AUTOMAP_FUNCTION inline Int wrap_index(Int i, Int n) { return uint64_t(i) < uint64_t(n) ? i : floor_remainder(i, n); }
AUTOMAP_FUNCTION inline Int reflect_index(Int i, Int n) {
  if (uint64_t(i) < uint64_t(n) || n == 1) return n == 1 ? 0 : i;
  Int at = floor_remainder(i, 2 * n - 2);
  return at < n ? at : 2 * n - 2 - at;
}
