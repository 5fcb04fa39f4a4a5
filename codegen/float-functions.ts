/**
 * @file Float functions in plain arithmetic, so that a compiler can vectorise loops of them.
 *
 *     exp_float(1.0f)      2.7182817f, within 3 units in the last place of the exact value
 *
 * Methods and coefficients are those of the Cephes library (S. Moshier, Methods and Programs for Mathematical
 * Functions, 1989; files expf.c, logf.c, tanhf.c, ndtrf.c), with branches replaced by selects.
 * test/plain-loops.long.test.ts compares all of them with doubles.
 */

import type { FloatFunction } from "../abstraction/expression.ts";
import { type Code, code } from "../abstraction/source-text.ts";

const VECTOR_FUNCTIONS = ["exp", "log", "tanh", "erf"] as const satisfies readonly FloatFunction[];
type VectorFunction = (typeof VECTOR_FUNCTIONS)[number];

export const isVectorFunction = (name: string): name is VectorFunction =>
  VECTOR_FUNCTIONS.some((known) => known === name);

/** In an order in which each function calls only earlier ones. */
export const FLOAT_HELPERS: readonly { readonly name: string; readonly text: Code }[] = [
  {
    name: "multiply_add",
    text: code`static inline float multiply_add(float a, float b, float c) { /* rounded once where the processor can */
#if defined(__FMA__) || defined(__AVX512F__) || defined(__ARM_FEATURE_FMA)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}`,
  },
  {
    name: "exp_float",
    text: code`static inline float exp_float(float x) { /* 2^n * e^r: beyond the range of floats infinity or 0, NaN of NaN */
  float c = x > 89.0f ? 89.0f : x;
  c = c < -104.0f ? -104.0f : c;
  /* 1.5 * 2^23 + k has the whole number k in its last bits: here n + 254, and half of n + 254. Shifted into the exponent they are powers of two. */
  const float t = multiply_add(c, 1.44269504f, 12583166.0f), h = multiply_add(c, 0.72134752f, 12583039.0f), n = t - 12583166.0f;
  uint32_t whole, half; memcpy(&whole, &t, 4); memcpy(&half, &h, 4);
  const uint32_t first = half << 23, second = (whole - half) << 23;
  float a, b; memcpy(&a, &first, 4); memcpy(&b, &second, 4);
  const float r = multiply_add(n, 2.12194440e-4f, multiply_add(n, -0.693359375f, c));
  float p = 1.9875691500e-4f;
  p = multiply_add(p, r, 1.3981999507e-3f);
  p = multiply_add(p, r, 8.3334519073e-3f);
  p = multiply_add(p, r, 4.1665795894e-2f);
  p = multiply_add(p, r, 1.6666665459e-1f);
  p = multiply_add(p, r, 5.0000001201e-1f);
  p = multiply_add(p, r * r, r) + 1.0f;
  return p * a * b;
}`,
  },
  {
    name: "log_float",
    text: code`static inline float log_float(float x) { /* n * log 2 + log m, 0.7 <= m < 1.42 */
  const float scaled = x < 1.17549435e-38f ? x * 8388608.0f : x;
  int32_t bits; memcpy(&bits, &scaled, 4);
  int32_t n = (bits >> 23) - 126;
  bits = (bits & 0x007fffff) | 0x3f000000;
  float m; memcpy(&m, &bits, 4);
  const int32_t low = m < 0.707106781f;
  float e = (float)(n - low - (x < 1.17549435e-38f ? 23 : 0));
  m = low ? m + m - 1.0f : m - 1.0f;
  const float z = m * m;
  float p = 7.0376836292e-2f;
  p = multiply_add(p, m, -1.1514610310e-1f);
  p = multiply_add(p, m, 1.1676998740e-1f);
  p = multiply_add(p, m, -1.2420140846e-1f);
  p = multiply_add(p, m, 1.4249322787e-1f);
  p = multiply_add(p, m, -1.6668057665e-1f);
  p = multiply_add(p, m, 2.0000714765e-1f);
  p = multiply_add(p, m, -2.4999993993e-1f);
  p = multiply_add(p, m, 3.3333331174e-1f);
  p = m * z * p + -2.12194440e-4f * e - 0.5f * z;
  const float value = m + p + 0.693359375f * e;
  const float infinity = __builtin_inff();
  return x == 0 ? -infinity : x < 0 ? infinity - infinity : x < infinity ? value : x;
}`,
  },
  {
    name: "tanh_float",
    text: code`static inline float tanh_float(float x) {
  const float size = x < 0 ? -x : x, z = x * x;
  float p = -5.70498872745e-3f;
  p = multiply_add(p, z, 2.06390887954e-2f);
  p = multiply_add(p, z, -5.37397155531e-2f);
  p = multiply_add(p, z, 1.33314422036e-1f);
  p = multiply_add(p, z, -3.33332819422e-1f);
  const float near = p * z * x + x;
  const float far = 1.0f - 2.0f / (exp_float(size + size) + 1.0f);
  return size < 0.625f ? near : x < 0 ? -far : far;
}`,
  },
  {
    name: "erf_float",
    text: code`static inline float erf_float(float x) {
  const float size = x < 0 ? -x : x, z = x * x;
  float p = 7.853861353153693e-5f;
  p = multiply_add(p, z, -8.010193625184903e-4f);
  p = multiply_add(p, z, 5.188327685732524e-3f);
  p = multiply_add(p, z, -2.685381193529856e-2f);
  p = multiply_add(p, z, 1.128358514861418e-1f);
  p = multiply_add(p, z, -3.761262582423300e-1f);
  p = multiply_add(p, z, 1.128379165726710f);
  const float near = x * p;
  /* Of 1 - erf, which is below half a unit from 4 on. */
  const float s = size < 4.0f ? size : 4.0f, q = 1.0f / (s < 1.0f ? 1.0f : s), y = q * q;
  float a = 2.326819970068386e-2f;
  a = multiply_add(a, y, -1.387039388740657e-1f);
  a = multiply_add(a, y, 3.687424674597105e-1f);
  a = multiply_add(a, y, -5.824733027278666e-1f);
  a = multiply_add(a, y, 6.210004621745983e-1f);
  a = multiply_add(a, y, -4.944515323274145e-1f);
  a = multiply_add(a, y, 3.404879937665872e-1f);
  a = multiply_add(a, y, -2.741127028184656e-1f);
  a = multiply_add(a, y, 5.638259427386472e-1f);
  float b = -1.047766399936249e+1f;
  b = multiply_add(b, y, 1.297719955372516e+1f);
  b = multiply_add(b, y, -7.495518717768503f);
  b = multiply_add(b, y, 2.921019019210786f);
  b = multiply_add(b, y, -1.015265279202700f);
  b = multiply_add(b, y, 4.218463358204948e-1f);
  b = multiply_add(b, y, -2.820767439740514e-1f);
  b = multiply_add(b, y, 5.641895067754075e-1f);
  const float far = 1.0f - exp_float(-s * s) * q * (s < 2.0f ? a : b);
  return size < 1.0f || x != x ? near : x < 0 ? -far : far;
}`,
  },
];
