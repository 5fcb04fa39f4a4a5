/**
 * @file Helper functions of a generated OpenCL C source. C has no templates, so each is printed for the types it is
 * called with.
 *
 *     clamp<int32_t>(x, 0, 255)                 C++
 *     clamp_int32_t(x, 0, 255)                  OpenCL C, with the function beside it
 */

import { type Code, code, identifier, list, skeleton, trustedCode } from "../../abstraction/source-text.ts";
import type { Generic, GenericType, Shuffle, Words } from "../c-expressions.ts";
import { CPP_HELPERS, calledIn, type Helpers, templateOf } from "../cpp/cpp-helpers.ts";

/** OpenCL C's names for the types of generated sources. OpenCL C specification, section 6.3.1. */
const TYPES: Readonly<Record<string, string>> = {
  int8_t: "char",
  uint8_t: "uchar",
  int16_t: "short",
  uint16_t: "ushort",
  int32_t: "int",
  uint32_t: "uint",
  int64_t: "long",
  uint64_t: "ulong",
};

/** Floats of 8 and 16 bits are held as their bits. OpenCL C can load and store them even without arithmetic for them. */
const FORMATS: Helpers = {
  float_of_bits: code`static inline float float_of_bits(uint32_t bits) { return as_float(bits); }`,
  bits_of_float: code`static inline uint32_t bits_of_float(float f) { return as_uint(f); }`,
  to_odd: code`static inline float to_odd(double x) { /* inexact results get an odd last bit, so that rounding them again equals rounding x */
  float f = (float)x; int bits = as_int(f);
  if ((double)f != x && x == x) bits = (bits - (fabs((double)f) > fabs(x))) | 1;
  return as_float(bits);
}`,
  from_bf16: code`static inline float from_bf16(uint16_t x) { return as_float((uint32_t)x << 16); }`,
  to_bf16: code`static inline uint16_t to_bf16(float f) { /* to nearest, ties to even */
  uint32_t bits = as_uint(f);
  uint32_t near = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  return (uint16_t)(f == f ? near : bits >> 16 | 0x40);
}`,
  from_f16: code`static inline float from_f16(uint16_t x) { return vload_half(0, (const half*)&x); }`,
  to_f16: code`static inline uint16_t to_f16(float f) { uint16_t x; vstore_half_rte(f, 0, (half*)&x); return x; }`,
  to_tf32: code`static inline float to_tf32(float f) { /* 10 bits of fraction, to nearest, ties to even */
  uint32_t bits = as_uint(f);
  if ((bits & 0x7f800000u) != 0x7f800000u) bits = (bits + 0xfffu + (bits >> 13 & 1)) & ~0x1fffu;
  return as_float(bits);
}`,
};
const HELPERS: Helpers = { ...CPP_HELPERS, ...FORMATS };

/** Functions that a text calls, by the name of each instantiation. */
export type Generics = Map<string, Code>;

/**
 * The words of OpenCL C. Extensions cl_khr_subgroup_shuffle and cl_khr_subgroup_shuffle_relative.
 * @param generics records the definitions of the functions that are called
 */
export const openClWords = (generics: Generics): Words => ({
  overflowIsUndefined: true,
  infinity: code`INFINITY`,
  library: (name) => code`${name}`,
  called: (name, types, values) => {
    const word = genericName(name, types);
    generics.set(word, genericText(name, types));
    return code`${identifier(word)}(${list(values)})`;
  },
  fused: () => code`fma`,
  shuffled: (how, name, by) => code`${SHUFFLES[how]}(${name}, ${by})`,
});

const SHUFFLES = {
  up: "sub_group_shuffle_up",
  down: "sub_group_shuffle_down",
  xor: "sub_group_shuffle_xor",
  from: "sub_group_shuffle",
} as const satisfies Record<Shuffle, string>;

/** The name of a function of C for these types. */
const genericName = (name: Generic, types: readonly GenericType[]): string => [name, ...types].join("_");

/** The definition of that function: the template with its types filled in. */
function genericText(name: Generic, types: readonly GenericType[]): Code {
  const [, parameters = "", text = ""] = /^template <([^>]*)> ([\s\S]*)$/.exec(skeleton(templateOf(name))) ?? [];
  const words = parameters.split(",").map((p) => p.trim().replace("class ", ""));
  // T(-1) is a cast only in C++.
  const plain = text.replace(/\b([A-Z])\((-?\d)\)/g, "(($1)$2)").replace(` ${name}(`, ` ${genericName(name, types)}(`);
  return trustedCode(
    words.reduce((all, word, i) => all.replace(new RegExp(`\\b${word}\\b`, "g"), types[i] ?? word), plain),
  );
}

/** The functions that a text calls, after typedefs for the types that they use. */
export function openClHelpers(text: readonly Code[], generics: readonly Code[]): Code[] {
  const functions = [...generics, ...calledIn(text, HELPERS)];
  const used = skeleton([...text, ...functions]);
  const types = Object.entries(TYPES).filter(([name]) => new RegExp(`\\b${name}\\b`).test(used));
  return [...types.map(([name, type]) => trustedCode(`typedef ${type} ${name};`)), ...functions];
}
