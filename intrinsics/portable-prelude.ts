/**
 * @file The C++ that the rows of portable.ts call: vectors of the compiler, and types for which C has no arithmetic.
 *
 *     lanes<float, 4> c = fill_lanes<float, 4>(0);
 *     c = tf32<4>::rounded(tf32<4>::number(c) + x);
 *
 * A kernel contains the parts that its rows call. Each part has an include guard, because a program may use several rows.
 */

function guarded(name: string, text: string): string {
  return `#ifndef AUTOMAP_${name}\n#define AUTOMAP_${name}\n${text}#endif\n`;
}

export const LANES = guarded(
  "LANES",
  `#include <stdint.h>
#include <string.h>
/* N elements side by side: a vector of the compiler's own, which it turns into what the CPU has. */
template <class T, int N> struct Lanes { typedef T type __attribute__((vector_size(N * sizeof(T)))); };
template <class T> struct Lanes<T, 1> { typedef T type; };
template <class T, int N> using lanes = typename Lanes<T, N>::type;

template <class V> static inline V load_lanes(const void* from) {
  V all;
  memcpy(&all, from, sizeof all);
  return all;
}
template <class V> static inline void store_lanes(void* to, V all) { memcpy(to, &all, sizeof all); }
/* x in every lane: x - 0 is x, and -0 stays -0. */
template <class T, int N> static inline lanes<T, N> fill_lanes(T x) { return x - lanes<T, N>{}; }
template <class T, int N> static inline lanes<T, N> same_lanes(const void* from) { return fill_lanes<T, N>(load_lanes<T>(from)); }
`,
);

export const BOUNDS =
  LANES +
  guarded(
    "BOUNDS",
    `/* The larger and the smaller of floats; what is no number stays. */
template <class V> static inline V more(V c, V a) { return (a > c) | (a != a) ? a : c; }
template <class V> static inline V less(V c, V a) { return (a < c) | (a != a) ? a : c; }
`,
  );

export const DOT_BYTES =
  LANES +
  guarded(
    "DOT_BYTES",
    `/* Products of bytes fit 16 bits; those of one lane stand in its two halves. */
template <class P, class S, class A, class B> static inline lanes<int32_t, 4> dot_bytes(lanes<int32_t, 4> c, A a, B b) {
  const auto p = (S)(__builtin_convertvector(a, P) * __builtin_convertvector(b, P));
  return c + (lanes<int32_t, 4>)(p >> 16) + (lanes<int32_t, 4>)(p << 16 >> 16);
}
`,
  );

export const DOT_BF16 =
  LANES +
  guarded(
    "DOT_BF16",
    `/* A bf16 is the upper half of a float; the odd k of a lane is the upper half of its pair. */
static inline lanes<float, 4> dot_bf16(lanes<float, 4> c, lanes<uint16_t, 8> a, lanes<uint16_t, 8> b) {
  const auto x = (lanes<uint32_t, 4>)a, y = (lanes<uint32_t, 4>)b;
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error the rows of bf16 pairs are written for little-endian CPUs
#endif
  c += (lanes<float, 4>)(x << 16) * (lanes<float, 4>)(y << 16);
  return c + (lanes<float, 4>)(x & 0xffff0000u) * (lanes<float, 4>)(y & 0xffff0000u);
}
`,
  );

export const FORMATS =
  BOUNDS +
  guarded(
    "FORMATS",
    `/* Types that C has no arithmetic of are calculated as float and rounded to nearest, ties to even. */
template <class V, class X> static inline V bits_as(X x) { return load_lanes<V>(&x); }
template <class T, int N, class V> static inline lanes<T, N> converted(V x) {
  if constexpr (N == 1) return (T)x;
  else return __builtin_convertvector(x, lanes<T, N>);
}
template <int N> struct bf16 {
  typedef lanes<float, N> numbers;
  typedef lanes<int32_t, N> words;
  typedef lanes<uint16_t, N> held;
  static numbers number(held x) { return bits_as<numbers>(converted<int32_t, N>(x) << 16); }
  static held rounded(numbers x) {
    const words bits = bits_as<words>(x), near = bits + 0x7fff + (bits >> 16 & 1);
    return converted<uint16_t, N>((x != x ? bits | 0x400000 : near) >> 16);
  }
};
template <int N> struct f16 {
  typedef lanes<float, N> numbers;
  typedef lanes<int32_t, N> words;
  typedef lanes<uint16_t, N> held;
  static numbers number(held x) { /* 2^112 moves the exponent; what was infinite or no number stays so */
    const words all = converted<int32_t, N>(x);
    const numbers magnitude = bits_as<numbers>((all & 0x7fff) << 13) * 0x1p112f;
    const words bits = bits_as<words>(magnitude);
    return bits_as<numbers>((bits >= 0x47800000 ? bits | 0x7f800000 : bits) | (all & 0x8000) << 16);
  }
  static held rounded(numbers x) {
    const words sign = bits_as<words>(x) >> 16 & 0x8000, bits = bits_as<words>(x) & 0x7fffffff;
    const words small = bits_as<words>(bits_as<numbers>(bits) + 0.5f) - 0x3f000000;       /* the addition rounds to 2^-24 */
    const words normal = (bits - 0x38000000 + 0xfff + (bits >> 13 & 1)) >> 13;
    const words finite = bits < 0x38800000 ? small : normal;
    const words below = bits >= 0x477ff000 ? words{} + 0x7c00 : finite;                  /* 65520 rounds to infinity */
    return converted<uint16_t, N>(sign | (bits > 0x7f800000 ? words{} + 0x7e00 : below));
  }
};
template <int N> struct tf32 {
  typedef lanes<float, N> numbers;
  typedef lanes<int32_t, N> words;
  typedef numbers held;
  static numbers number(held x) { return x; }
  static held rounded(numbers x) {
    const words bits = bits_as<words>(x), near = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fff;
    return bits_as<held>((bits & 0x7f800000) == 0x7f800000 ? bits : near);
  }
};
template <class F, class V> static inline V add_product(V c, V a, V b) {
  const V product = F::rounded(F::number(a) * F::number(b));
  return F::rounded(F::number(c) + F::number(product));
}
`,
  );

export const BYTE_FORMATS =
  FORMATS +
  guarded(
    "BYTE_FORMATS",
    `/* A float of one byte, as factors: SHIFT more bits of fraction in a float, BIAS of exponents, and FIRST the bits from which it is no finite number. */
template <int N, int SHIFT, int BIAS, int FIRST> struct byte_float {
  typedef lanes<float, N> numbers;
  typedef lanes<int32_t, N> words;
  typedef lanes<uint8_t, N> held;
  static numbers number(held x) {
    const words all = converted<int32_t, N>(x), size = all & 0x7f;
    const numbers magnitude = bits_as<numbers>(size << SHIFT) * bits_as<numbers>(words{} + (127 + BIAS << 23));
    const words bits = bits_as<words>(magnitude);
    return bits_as<numbers>((size >= FIRST ? bits | 0x7f800000 : bits) | (all & 0x80) << 24);
  }
};
template <int N> struct e4m3 : byte_float<N, 20, 120, 0x7f> {};
template <int N> struct e5m2 : byte_float<N, 21, 112, 0x7c> {};
`,
  );
