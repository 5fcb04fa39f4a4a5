/**
 * @file Float functions in plain arithmetic without branches, so that a compiler can vectorise loops of them.
 *
 *     exp_float(1.0f)      2.7182817f
 *
 * Branches are replaced by selects. exp, log and tanh of floats have the methods and coefficients of the Cephes library (S. Moshier, Methods and
 * Programs for Mathematical Functions, 1989; files expf.c, logf.c, tanhf.c), the error function those of N. Juffa's erff (Stack Overflow 35148198),
 * the logarithm of doubles that of FreeBSD's e_log.c (Sun Microsystems, 1993). {@link FLOAT_ERRORS} bounds their errors;
 * test/codegen/function-errors.deep.test.ts compares each with a wider type over all floats.
 */

import type { DType } from "../abstraction/dtype.ts";
import type { FloatFunction } from "../abstraction/expression.ts";
import { type Code, code } from "../abstraction/source-text.ts";

/**
 * The largest error of each function in units in the last place (denormal results: of the smallest denormal), with fused
 * multiply-adds or without. Infinities, NaN and zeros with their signs are those of the C library. What is missing calls it.
 */
export const FLOAT_ERRORS = {
  f32: { exp: 1.01, log: 0.82, tanh: 1.32, erf: 1.2, pow: 0.51 },
  f64: { exp: 1, log: 0.9 },
} as const satisfies Record<string, Partial<Record<FloatFunction, number>>>;

type InFloats = keyof typeof FLOAT_ERRORS.f32;
type InDoubles = keyof typeof FLOAT_ERRORS.f64;

/** What computes a function of a type in plain arithmetic; undefined where a library does. 16-bit floats are computed as floats. */
export function vectorFunction(name: string, dtype: DType): `${InFloats}_float` | `${InDoubles}_double` | undefined {
  if (dtype === "f64") return isOneOf(name, FLOAT_ERRORS.f64) ? `${name}_double` : undefined;
  return isOneOf(name, FLOAT_ERRORS.f32) ? `${name}_float` : undefined;
}

const isOneOf = <Name extends string>(name: string, all: Readonly<Record<Name, number>>): name is Name =>
  Object.hasOwn(all, name);

/** In an order in which each function calls only earlier ones. */
export const FLOAT_HELPERS: Readonly<Record<string, Code>> = {
  multiply_add: code`static inline float multiply_add(float a, float b, float c) { /* rounded once where the processor can */
#if defined(__FMA__) || defined(__AVX512F__) || defined(__ARM_FEATURE_FMA)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}`,
  multiply_add_double: code`static inline double multiply_add_double(double a, double b, double c) { /* as multiply_add */
#if defined(__FMA__) || defined(__AVX512F__) || defined(__ARM_FEATURE_FMA)
  return __builtin_fma(a, b, c);
#else
  return a * b + c;
#endif
}`,
  exp_remainder: code`static inline float exp_remainder(float r) { /* e^r for 2 |r| <= log 2 */
  float p = 1.9875691500e-4f;
  p = @multiply_add(p, r, 1.3981999507e-3f);
  p = @multiply_add(p, r, 8.3334519073e-3f);
  p = @multiply_add(p, r, 4.1665795894e-2f);
  p = @multiply_add(p, r, 1.6666665459e-1f);
  p = @multiply_add(p, r, 5.0000001201e-1f);
  return @multiply_add(p, r * r, r) + 1.0f;
}`,
  exp_float: code`static inline float exp_float(float x) { /* 2^n * e^r: beyond the range of floats infinity or 0, NaN of NaN */
  float c = x > 89.0f ? 89.0f : x;
  c = c < -104.0f ? -104.0f : c;
  /* 1.5 * 2^23 + k has the whole number k in its last bits: here n + 254, and half of n + 254. Shifted into the exponent they are powers of two. */
  const float t = @multiply_add(c, 1.44269504f, 12583166.0f), h = @multiply_add(c, 0.72134752f, 12583039.0f), n = t - 12583166.0f;
  uint32_t whole, half; memcpy(&whole, &t, 4); memcpy(&half, &h, 4);
  const uint32_t first = half << 23, second = (whole - half) << 23;
  float a, b; memcpy(&a, &first, 4); memcpy(&b, &second, 4);
  return @exp_remainder(@multiply_add(n, 2.12194440e-4f, @multiply_add(n, -0.693359375f, c))) * a * b;
}`,
  exp_normal: code`static inline float exp_normal(float x) { /* as exp_float where e^x is a normal number: -87 to 88 */
  const float t = @multiply_add(x, 1.44269504f, 12583039.0f), n = t - 12583039.0f;
  uint32_t whole; memcpy(&whole, &t, 4);
  const uint32_t power = whole << 23;
  float a; memcpy(&a, &power, 4);
  return @exp_remainder(@multiply_add(n, 2.12194440e-4f, @multiply_add(n, -0.693359375f, x))) * a;
}`,
  log_float: code`static inline float log_float(float x) { /* n * log 2 + log m, 0.7 <= m < 1.42 */
  const int tiny = x < 1.17549435e-38f;
  const float scaled = tiny ? x * 8388608.0f : x;
  uint32_t bits; memcpy(&bits, &scaled, 4);
  const uint32_t moved = bits + 0x004afb0du; /* 0x3f800000 - 0x3f3504f3: the exponent rises at sqrt(1/2) */
  const float e = (float)((int32_t)(moved >> 23) - 127) - (tiny ? 23.0f : 0.0f);
  const uint32_t within = (moved & 0x007fffffu) + 0x3f3504f3u;
  float m; memcpy(&m, &within, 4);
  m = m - 1.0f;
  const float z = m * m;
  float p = 7.0376836292e-2f;
  p = @multiply_add(p, m, -1.1514610310e-1f);
  p = @multiply_add(p, m, 1.1676998740e-1f);
  p = @multiply_add(p, m, -1.2420140846e-1f);
  p = @multiply_add(p, m, 1.4249322787e-1f);
  p = @multiply_add(p, m, -1.6668057665e-1f);
  p = @multiply_add(p, m, 2.0000714765e-1f);
  p = @multiply_add(p, m, -2.4999993993e-1f);
  p = @multiply_add(p, m, 3.3333331174e-1f);
  p = m * z * p + -2.12194440e-4f * e - 0.5f * z;
  const float value = m + p + 0.693359375f * e;
  const float infinity = __builtin_inff();
  const float large = x < infinity ? value : x;
  const float below = x < 0 ? infinity - infinity : large;
  return x == 0 ? -infinity : below;
}`,
  tanh_float: code`static inline float tanh_float(float x) {
  const float size = x < 0 ? -x : x, z = x * x;
  float p = -5.70498872745e-3f;
  p = @multiply_add(p, z, 2.06390887954e-2f);
  p = @multiply_add(p, z, -5.37397155531e-2f);
  p = @multiply_add(p, z, 1.33314422036e-1f);
  p = @multiply_add(p, z, -3.33332819422e-1f);
  const float near = x * @multiply_add(p, z, 1.0f);
  const float s = size > 10.0f ? 10.0f : size; /* from there on it is 1 */
  const float far = 1.0f - 2.0f / (@exp_normal(s + s) + 1.0f);
  return size < 0.625f ? near : x < 0 ? -far : far;
}`,
  erf_float: code`static inline float erf_float(float x) { /* near 0 a polynomial, else 1 - e^polynomial: N. Juffa's erff */
  const float size = x < 0 ? -x : x, z = x * x;
  float p = -5.96761703e-4f;
  p = @multiply_add(p, z, 4.99119423e-3f);
  p = @multiply_add(p, z, -2.67681349e-2f);
  p = @multiply_add(p, z, 1.12819925e-1f);
  p = @multiply_add(p, z, -3.76125336e-1f);
  p = @multiply_add(p, z, 1.28379166e-1f);
  const float near = @multiply_add(p, x, x);
  float q = @multiply_add(@multiply_add(-1.72853470e-5f, size, 3.83197126e-4f), z, @multiply_add(-3.88396438e-3f, size, 2.42546219e-2f));
  q = @multiply_add(q, size, -1.06777877e-1f);
  q = @multiply_add(q, size, -6.34846687e-1f);
  q = @multiply_add(q, size, -1.28717512e-1f);
  q = @multiply_add(q, size, -size);
  const float far = 1.0f - @exp_normal(q < -20.0f ? -20.0f : q);
  return size > 0.927734375f ? (x < 0 ? -far : far) : near;
}`,
  exp_double: code`static inline double exp_double(double x) { /* as exp_float */
  double c = x > 710.0 ? 710.0 : x;
  c = c < -746.0 ? -746.0 : c;
  const double t = @multiply_add_double(c, 1.4426950408889634, 6755399441057790.0), h = @multiply_add_double(c, 0.7213475204444817, 6755399441056767.0), n = t - 6755399441057790.0;
  uint64_t whole, half; memcpy(&whole, &t, 8); memcpy(&half, &h, 8);
  const uint64_t first = half << 52, second = (whole - half) << 52;
  double a, b; memcpy(&a, &first, 8); memcpy(&b, &second, 8);
  const double r = @multiply_add_double(n, -1.90821492927058770002e-10, @multiply_add_double(n, -6.93147180369123816490e-01, c));
  double p = 1.6059043836821613e-10;
  p = @multiply_add_double(p, r, 2.0876756987868100e-09);
  p = @multiply_add_double(p, r, 2.5052108385441720e-08);
  p = @multiply_add_double(p, r, 2.7557319223985893e-07);
  p = @multiply_add_double(p, r, 2.7557319223985893e-06);
  p = @multiply_add_double(p, r, 2.4801587301587302e-05);
  p = @multiply_add_double(p, r, 1.9841269841269841e-04);
  p = @multiply_add_double(p, r, 1.3888888888888889e-03);
  p = @multiply_add_double(p, r, 8.3333333333333333e-03);
  p = @multiply_add_double(p, r, 4.1666666666666667e-02);
  p = @multiply_add_double(p, r, 1.6666666666666667e-01);
  p = @multiply_add_double(p, r, 0.5);
  p = @multiply_add_double(p, r * r, r) + 1.0;
  return p * a * b;
}`,
  log_double: code`static inline double log_double(double x) { /* n * log 2 + log m, 0.7 <= m < 1.42 */
  const double scaled = x < 2.2250738585072014e-308 ? x * 18014398509481984.0 : x;
  uint64_t bits; memcpy(&bits, &scaled, 8);
  const uint64_t moved = bits + 0x00095f6198000000u; /* 1 - sqrt(1/2), as bits: the exponent rises at sqrt(1/2) */
  /* The exponent as the last bits of 2^52. */
  const uint64_t exponent = (moved >> 52) | 0x4330000000000000u, within = (moved & 0x000fffffffffffffu) + 0x3fe6a09e68000000u;
  double e, m; memcpy(&e, &exponent, 8); memcpy(&m, &within, 8);
  e = e - (x < 2.2250738585072014e-308 ? 4503599627371573.0 : 4503599627371519.0);
  const double f = m - 1.0, s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
  double p = 1.479819860511658591e-01;
  p = @multiply_add_double(p, z, 1.531383769920937332e-01);
  p = @multiply_add_double(p, z, 1.818357216161805012e-01);
  p = @multiply_add_double(p, z, 2.222219843214978396e-01);
  p = @multiply_add_double(p, z, 2.857142874366239149e-01);
  p = @multiply_add_double(p, z, 3.999999999940941908e-01);
  p = @multiply_add_double(p, z, 6.666666666666735130e-01);
  const double value = e * 6.93147180369123816490e-01 - ((half - (s * (half + z * p) + e * 1.90821492927058770002e-10)) - f);
  const double infinity = __builtin_inf();
  const double large = x < infinity ? value : x;
  const double below = x < 0 ? infinity - infinity : large;
  return x == 0 ? -infinity : below;
}`,
  pow_float: code`static inline float pow_float(float x, float y) { /* 2^(y * log2 |x|) in doubles, rounded once */
  const double size = x < 0 ? -(double)x : (double)x, power = y;
  uint64_t bits; memcpy(&bits, &size, 8);
  const uint64_t moved = bits + 0x00095f6198000000u;
  const uint64_t exponent = ((moved & 0x7fffffffffffffffu) >> 52) | 0x4330000000000000u, within = (moved & 0x000fffffffffffffu) + 0x3fe6a09e68000000u;
  double e, m; memcpy(&e, &exponent, 8); memcpy(&m, &within, 8);
  const double f = m - 1.0, s = f / (2.0 + f), z = s * s;
  double p = 2.0 / 15;
  p = @multiply_add_double(p, z, 2.0 / 13);
  p = @multiply_add_double(p, z, 2.0 / 11);
  p = @multiply_add_double(p, z, 2.0 / 9);
  p = @multiply_add_double(p, z, 2.0 / 7);
  p = @multiply_add_double(p, z, 2.0 / 5);
  p = @multiply_add_double(p, z, 2.0 / 3);
  const double infinity = __builtin_inf();
  const double known = @multiply_add_double(@multiply_add_double(p * z, s, s + s), 1.4426950408889634, e - 4503599627371519.0);
  const double finite = size < infinity ? known : size, logarithm = size == 0 ? -infinity : finite;
  const double product = power * logarithm;
  double c = product > 200.0 ? 200.0 : product;
  c = c < -200.0 ? -200.0 : c;
  const double t = c + 6755399441056767.0, n = t - 6755399441056767.0, r = (c - n) * 0.6931471805599453;
  uint64_t whole; memcpy(&whole, &t, 8);
  const uint64_t scale = whole << 52;
  double a; memcpy(&a, &scale, 8);
  double q = 1.0 / 3628800;
  q = @multiply_add_double(q, r, 1.0 / 362880);
  q = @multiply_add_double(q, r, 1.0 / 40320);
  q = @multiply_add_double(q, r, 1.0 / 5040);
  q = @multiply_add_double(q, r, 1.0 / 720);
  q = @multiply_add_double(q, r, 1.0 / 120);
  q = @multiply_add_double(q, r, 1.0 / 24);
  q = @multiply_add_double(q, r, 1.0 / 6);
  q = @multiply_add_double(q, r, 0.5);
  q = @multiply_add_double(q, r, 1.0);
  q = @multiply_add_double(q, r, 1.0);
  const double magnitude = q * a;
  /* Whole powers of negative numbers keep or lose the sign; others have none. */
  const double halved = 0.5 * power;
  const bool isWhole = __builtin_floor(power) == power, isOdd = isWhole & (__builtin_floor(halved) != halved);
  const float nan = __builtin_inff() - __builtin_inff();
  uint32_t sign; memcpy(&sign, &x, 4);
  const uint32_t turned = isOdd ? sign & 0x80000000u : 0u;
  const float plain = (float)magnitude;
  uint32_t result; memcpy(&result, &plain, 4);
  result |= turned;
  float value; memcpy(&value, &result, 4);
  const float real = (x < 0) & (size < infinity) & !isWhole ? nan : value;
  const bool isOne = (x == 1.0f) | (y == 0.0f) | ((size == 1.0) & (power * power == infinity));
  return isOne ? 1.0f : real;
}`,
};
