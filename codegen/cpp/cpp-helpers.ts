/**
 * @file C++ helper functions, included in a generated source that calls them: arithmetic of the notation that differs
 * from C's.
 *
 *     calledIn([code`x = @saturate<uint8_t, int32_t>(y, 0.0f, 255.0f);`], CPP_HELPERS)      the text of `saturate`, and nothing else
 *
 * Each computes what abstraction/interpret.ts computes, bit for bit (float functions to within a few units in the last
 * place), and is written so that g++ can vectorise a loop around it.
 */

import { internal } from "../../abstraction/error.ts";
import { apart, askedIn, type Code, code, NOTHING } from "../../abstraction/source-text.ts";
import { FLOAT_HELPERS } from "../float-functions.ts";

/** Functions by name, in an order in which each calls only earlier ones. */
export type Helpers = Readonly<Record<string, Code>>;

/** How a language declares a local function. */
type Inline = "static inline" | "static __device__ inline" | "_GENX_ inline";

const arithmeticOf = (inline: Inline): Helpers => ({
  floor_div: code`${inline} long floor_div(long a, long b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }`,
  floor_mod: code`${inline} long floor_mod(long a, long b) { return a - b * (a >= 0 ? a / b : -((b - 1 - a) / b)); }`,
  one_by_one: code`${inline} long one_by_one(long i) { asm("" : "+r"(i)); return i; } /* keeps the compiler from vectorising the loop */`,
  clamp_index: code`${inline} long clamp_index(long i, long n) { return i < 0 ? 0 : i < n ? i : n - 1; }`,
  wrap_index: code`${inline} long wrap_index(long i, long n) { return i < 0 || i >= n ? (i % n + n) % n : i; }`,
  reflect_index: code`${inline} long reflect_index(long i, long n) {
  if (n == 1) return 0;
  const long period = 2 * n - 2, at = (i % period + period) % period;
  return at < n ? at : period - at;
}`,
  clamp: code`template <class T> ${inline} T clamp(T x, T least, T most) { return x < least ? least : x > most ? most : x; }`,
  at_least: code`template <class T> ${inline} T at_least(T x, T low) { return x < low ? low : x; } /* keeps NaN */`,
  at_most: code`template <class T> ${inline} T at_most(T x, T high) { return x > high ? high : x; } /* keeps NaN */`,
  most: code`template <class T> ${inline} T most(T x, T y) { const T m = x > y ? x : y; return x != x ? x : m; } /* NaN wins */`,
  least: code`template <class T> ${inline} T least(T x, T y) { const T m = x < y ? x : y; return x != x ? x : m; } /* NaN wins */`,
  saturate: code`template <class T, class I, class F> ${inline} T saturate(F x, F low, F high) { /* NaN becomes 0 */
  x = low == 0 || x == x ? x : 0;
  x = x > low ? x : low;
  return (T)(I)(x < high ? x : high);
}`,
  quotient: code`template <class T> ${inline} T quotient(T a, T b) { return b == 0 ? 0 : T(-1) < T(0) && b == T(-1) ? (T)(0u - a) : (T)(a / b); }`,
  remainder: code`template <class T> ${inline} T remainder(T a, T b) { return b == 0 || (T(-1) < T(0) && b == T(-1)) ? 0 : (T)(a % b); }`,
});

/** What differs between the floats of one byte. */
interface ByteFormat {
  readonly name: "e4m3" | "e5m2";
  /** Fraction bits that an f32 has more. */
  readonly shift: 20 | 21;
  /** Bits of the f32 of exponent field 0 of this type. */
  readonly bias: "0x3c000000u" | "0x38000000u";
  /** Bits of the f32 of the smallest normal number. */
  readonly least: "0x3c800000u" | "0x38800000u";
  /** The smallest number. */
  readonly spacing: "0x1p-9f" | "0x1p-16f";
  /** A float with that spacing, and its bits. */
  readonly spaced: readonly ["16384.0f", "0x46800000u"] | readonly ["128.0f", "0x43000000u"];
  /** Bits of the largest f32 that becomes a finite number, and what larger ones become. */
  readonly last: "0x43e80000u" | "0x476fffffu";
  readonly beyond: "0x7f" | "0x7c";
  readonly largest: "448.0f" | "57344.0f";
}

const BYTE_FORMATS: readonly ByteFormat[] = [
  {
    name: "e4m3",
    shift: 20,
    bias: "0x3c000000u",
    least: "0x3c800000u",
    spacing: "0x1p-9f",
    spaced: ["16384.0f", "0x46800000u"],
    last: "0x43e80000u",
    beyond: "0x7f",
    largest: "448.0f",
  },
  {
    name: "e5m2",
    shift: 21,
    bias: "0x38000000u",
    least: "0x38800000u",
    spacing: "0x1p-16f",
    spaced: ["128.0f", "0x43000000u"],
    last: "0x476fffffu",
    beyond: "0x7c",
    largest: "57344.0f",
  },
];

/**
 * Functions of floats of one byte. Floats below the smallest normal number are rounded by adding one whose spacing is theirs. Devices since compute
 * capability 8.9 have instructions: PTX ISA, cvt.
 */
function byteFormatOf(inline: Inline, format: ByteFormat): Helpers {
  const { name, shift, bias, least, spacing, spaced, last, beyond, largest } = format;
  const normal = code`(((x & 0x7fu) << ${shift}) + ${bias})`;
  const onDevice = (text: Code): readonly Code[] =>
    inline === "static __device__ inline" ? [code`#if __CUDA_ARCH__ >= 890`, text, code`#endif`] : [];
  const converted = code`  uint16_t x; asm("cvt.rn.satfinite.${name}x2.f32 %0, %1, %2;" : "=h"(x) : "f"(0.0f), "f"(f));`;
  return {
    [`from_${name}`]: code`${inline} float from_${name}(uint8_t x) {
${onDevice(code`  uint32_t pair; asm("cvt.rn.f16x2.${name}x2 %0, %1;" : "=r"(pair) : "h"((uint16_t)x));
  float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((uint16_t)pair));
  return f;`)}
  const uint32_t sign = (x & 0x80u) << 24, whole = (x & 0x7fu) < ${beyond} ? 0 : 0x7f800000u;
  const float small = (float)(int)(x & 0x7fu) * ${spacing};
  return @float_of_bits(sign | whole | ((x & 0x7fu) >> ${23 - shift} ? ${normal} : @bits_of_float(small)));
}`,
    [`to_${name}`]: code`${inline} uint8_t to_${name}(float f) { /* to nearest, ties to even */
  const uint32_t all = @bits_of_float(f), size = all & 0x7fffffffu;
${onDevice(code`${converted}
  return (uint8_t)(size > ${last} && size <= 0x7f800000u ? (all >> 24 & 0x80u) | ${beyond}u : x);`)}
  const uint32_t small = @bits_of_float(@float_of_bits(size) + ${spaced[0]}) - ${spaced[1]};
  const uint32_t normal = (size - ${bias} + ((1u << ${shift - 1}) - 1) + (size >> ${shift} & 1)) >> ${shift};
  const uint32_t finite = size < ${least} ? small : normal;
  return (uint8_t)((all >> 24 & 0x80u) | (size > 0x7f800000u ? 0x7fu : size > ${last} ? ${beyond}u : finite));
}`,
    [`sat_to_${name}`]: code`${inline} uint8_t sat_to_${name}(float f) { /* infinities become the largest numbers; keeps NaN */
${onDevice(code`${converted}
  return (uint8_t)x;`)}
  return @to_${name}(f > ${largest} ? ${largest} : f < -${largest} ? -${largest} : f);
}`,
  };
}

/** Floats of 8 and 16 bits are held as their bits. */
const formatsOf = (inline: Inline): Helpers => ({
  float_of_bits: code`${inline} float float_of_bits(uint32_t bits) { float f; memcpy(&f, &bits, 4); return f; }`,
  bits_of_float: code`${inline} uint32_t bits_of_float(float f) { uint32_t bits; memcpy(&bits, &f, 4); return bits; }`,
  to_odd: code`${inline} float to_odd(double x) { /* inexact results get an odd last bit, so that rounding them again equals rounding x */
  float f = (float)x; int32_t bits; memcpy(&bits, &f, 4);
  if ((double)f != x && x == x) bits = (bits - (__builtin_fabs((double)f) > __builtin_fabs(x))) | 1;
  memcpy(&f, &bits, 4); return f;
}`,
  from_bf16: code`${inline} float from_bf16(uint16_t x) { uint32_t bits = (uint32_t)x << 16; float f; memcpy(&f, &bits, 4); return f; }`,
  to_bf16: code`${inline} uint16_t to_bf16(float f) { /* to nearest, ties to even */
  uint32_t bits; memcpy(&bits, &f, 4);
  uint32_t near = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  return (uint16_t)(f == f ? near : bits >> 16 | 0x40);
}`,
  from_f16: code`${inline} float from_f16(uint16_t x) { _Float16 h; memcpy(&h, &x, 2); return (float)h; }`,
  to_f16: code`${inline} uint16_t to_f16(float f) { _Float16 h = (_Float16)f; uint16_t x; memcpy(&x, &h, 2); return x; }`,
  to_tf32: code`${inline} float to_tf32(float f) { /* 10 bits of fraction, to nearest, ties to even */
  uint32_t bits; memcpy(&bits, &f, 4);
  if ((bits & 0x7f800000u) != 0x7f800000u) bits = (bits + 0xfffu + (bits >> 13 & 1)) & ~0x1fffu;
  memcpy(&f, &bits, 4); return f;
}`,
  ...Object.assign({}, ...BYTE_FORMATS.map((format) => byteFormatOf(inline, format))),
});

/** The helpers as a language declares them. */
export const helpersOf = (inline: Inline): Helpers => ({ ...arithmeticOf(inline), ...formatsOf(inline) });

export const CPP_HELPERS: Helpers = { ...helpersOf("static inline"), ...FLOAT_HELPERS };

/** A language's own helpers, and those of others that it does not replace. */
export const replacedBy = (own: Helpers, others: Helpers): Helpers => ({ ...own, ...others, ...own });

/** The text of a function template. */
export function templateOf(name: string): Code {
  return CPP_HELPERS[name] ?? internal(`no helper ${name}`);
}

/** The names of the helpers that texts call, directly or through other helpers. */
export function namesCalled(texts: readonly Code[], helpers: Helpers): string[] {
  const asked = new Set(askedIn(texts));
  const isCalled = ([name, text]: [string, Code]): boolean => {
    if (!asked.has(name)) return false;
    for (const word of askedIn([text])) asked.add(word);
    return true;
  };
  return Object.entries(helpers)
    .reverse()
    .filter(isCalled)
    .map(([name]) => name)
    .reverse();
}

/** The text of the helpers that texts call, directly or through other helpers. */
export function calledIn(texts: readonly Code[], helpers: Helpers): Code[] {
  return namesCalled(texts, helpers).map((name) => apart(helpers[name] ?? NOTHING));
}
