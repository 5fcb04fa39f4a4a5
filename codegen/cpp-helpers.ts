/**
 * @file C++ helper functions, included in a generated source that calls them: arithmetic of the notation that differs
 * from C's.
 *
 *     helpersFor(code`x = saturate<uint8_t, int32_t>(y, 0.0f, 255.0f);`)      the text of `saturate`, and nothing else
 *
 * Each computes what abstraction/interpret.ts computes, bit for bit (float functions to within a few units in the last
 * place), and is written so that g++ can vectorise a loop around it.
 */

import { memoised } from "../abstraction/memoised.ts";
import { apart, type Code, code, skeleton } from "../abstraction/source-text.ts";
import { FLOAT_HELPERS } from "./float-functions.ts";

export interface Helper {
  readonly name: string;
  readonly text: Code;
}

/** How a language declares a local function. */
type Inline = "static inline" | "static __device__ inline" | "_GENX_ inline";

/** In an order in which each helper calls only earlier ones. */
const helpersOf = (inline: Inline): readonly Helper[] => [
  ...arithmeticOf(inline),
  ...formatsOf(inline),
  ...(inline === "static inline" ? FLOAT_HELPERS : []),
];

const arithmeticOf = (inline: Inline): readonly Helper[] => [
  {
    name: "floor_div",
    text: code`${inline} long floor_div(long a, long b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }`,
  },
  {
    name: "floor_mod",
    text: code`${inline} long floor_mod(long a, long b) { return a - b * (a >= 0 ? a / b : -((b - 1 - a) / b)); }`,
  },
  {
    name: "one_by_one",
    text: code`${inline} long one_by_one(long i) { asm("" : "+r"(i)); return i; } /* keeps the compiler from vectorising the loop */`,
  },
  {
    name: "clamp_index",
    text: code`${inline} long clamp_index(long i, long n) { return i < 0 ? 0 : i < n ? i : n - 1; }`,
  },
  {
    name: "wrap_index",
    text: code`${inline} long wrap_index(long i, long n) { return i < 0 || i >= n ? (i % n + n) % n : i; }`,
  },
  {
    name: "reflect_index",
    text: code`${inline} long reflect_index(long i, long n) {
  if (n == 1) return 0;
  const long period = 2 * n - 2, at = (i % period + period) % period;
  return at < n ? at : period - at;
}`,
  },
  {
    name: "clamp",
    text: code`template <class T> ${inline} T clamp(T x, T least, T most) { return x < least ? least : x > most ? most : x; }`,
  },
  {
    name: "at_least",
    text: code`template <class T> ${inline} T at_least(T x, T low) { return x < low ? low : x; } /* keeps NaN */`,
  },
  {
    name: "at_most",
    text: code`template <class T> ${inline} T at_most(T x, T high) { return x > high ? high : x; } /* keeps NaN */`,
  },
  {
    name: "most",
    text: code`template <class T> ${inline} T most(T x, T y) { const T m = x > y ? x : y; return x != x ? x : m; } /* NaN wins */`,
  },
  {
    name: "least",
    text: code`template <class T> ${inline} T least(T x, T y) { const T m = x < y ? x : y; return x != x ? x : m; } /* NaN wins */`,
  },
  {
    name: "saturate",
    text: code`template <class T, class I, class F> ${inline} T saturate(F x, F low, F high) { /* NaN becomes 0 */
  x = low == 0 || x == x ? x : 0;
  x = x > low ? x : low;
  return (T)(I)(x < high ? x : high);
}`,
  },
  {
    name: "quotient",
    text: code`template <class T> ${inline} T quotient(T a, T b) { return b == 0 ? 0 : T(-1) < T(0) && b == T(-1) ? (T)(0u - a) : (T)(a / b); }`,
  },
  {
    name: "remainder",
    text: code`template <class T> ${inline} T remainder(T a, T b) { return b == 0 || (T(-1) < T(0) && b == T(-1)) ? 0 : (T)(a % b); }`,
  },
];

/** 16-bit floats are held as their bits. */
const formatsOf = (inline: Inline): readonly Helper[] => [
  {
    name: "to_odd",
    text: code`${inline} float to_odd(double x) { /* inexact results get an odd last bit, so that rounding them again equals rounding x */
  float f = (float)x; int32_t bits; memcpy(&bits, &f, 4);
  if ((double)f != x && x == x) bits = (bits - (__builtin_fabs((double)f) > __builtin_fabs(x))) | 1;
  memcpy(&f, &bits, 4); return f;
}`,
  },
  {
    name: "from_bf16",
    text: code`${inline} float from_bf16(uint16_t x) { uint32_t bits = (uint32_t)x << 16; float f; memcpy(&f, &bits, 4); return f; }`,
  },
  {
    name: "to_bf16",
    text: code`${inline} uint16_t to_bf16(float f) { /* to nearest, ties to even */
  uint32_t bits; memcpy(&bits, &f, 4);
  uint32_t near = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  return (uint16_t)(f == f ? near : bits >> 16 | 0x40);
}`,
  },
  {
    name: "from_f16",
    text: code`${inline} float from_f16(uint16_t x) { _Float16 h; memcpy(&h, &x, 2); return (float)h; }`,
  },
  {
    name: "to_f16",
    text: code`${inline} uint16_t to_f16(float f) { _Float16 h = (_Float16)f; uint16_t x; memcpy(&x, &h, 2); return x; }`,
  },
  {
    name: "to_tf32",
    text: code`${inline} float to_tf32(float f) { /* 10 bits of fraction, to nearest, ties to even */
  uint32_t bits; memcpy(&bits, &f, 4);
  if ((bits & 0x7f800000u) != 0x7f800000u) bits = (bits + 0xfffu + (bits >> 13 & 1)) & ~0x1fffu;
  memcpy(&f, &bits, 4); return f;
}`,
  },
];

/** The text of a function template. */
export function templateOf(name: string): Code {
  const found = arithmeticOf("static inline").find((h) => h.name === name);
  if (!found) throw new Error(`internal: no helper ${name}`);
  return found.text;
}

/**
 * The helpers that a text calls, directly or through other helpers.
 * @param declared how the language declares them
 * @param except helpers that the language replaces
 */
export function helpersFor(
  text: Code | readonly Code[],
  declared: Inline = "static inline",
  except: ReadonlySet<string> = new Set(),
): Code[] {
  return calledIn(
    text,
    helpersOf(declared).filter((h) => !except.has(h.name)),
  );
}

/**
 * The text of the helpers that a text calls, directly or not. Helpers must be in an order in which each calls only
 * earlier ones.
 */
export function calledIn(text: Code | readonly Code[], helpers: readonly Helper[]): Code[] {
  return helpersCalled(text, helpers).map((h) => apart(h.text));
}

/** As {@link calledIn}, but returns the helpers themselves. */
export function helpersCalled<H extends Helper>(text: Code | readonly Code[], helpers: readonly H[]): H[] {
  const called: H[] = [];
  const words = [wordsCalled(text)];
  for (const helper of [...helpers].reverse()) {
    if (!words.some((known) => known.has(helper.name))) continue;
    called.unshift(helper);
    words.push(wordsCalled(helper.text));
  }
  return called;
}

/** Words before `(` or `<`. Cached, since one text is searched for several lists of helpers. */
const wordsCalled = memoised(
  (text: Code | readonly Code[]): ReadonlySet<string> =>
    new Set(Array.from(skeleton(text).matchAll(/(\w+)[<(]/g), ([, word]) => word ?? "")),
);
