/** @file Helper functions of a generated SYCL source: those of C++, with what device code lacks replaced. */

import { code } from "../../abstraction/source-text.ts";
import { C_WORDS, type Shuffle, type Words } from "../c-expressions.ts";
import { CPP_HELPERS, type Helpers, replacedBy } from "../cpp/cpp-helpers.ts";

/** Device code has no memcpy and no _Float16: SYCL 2020, sections 4.17.2 (bit_cast) and 4.14 (half). */
const FORMATS: Helpers = {
  float_of_bits: code`static inline float float_of_bits(uint32_t bits) { return sycl::bit_cast<float>(bits); }`,
  bits_of_float: code`static inline uint32_t bits_of_float(float f) { return sycl::bit_cast<uint32_t>(f); }`,
  to_odd: code`static inline float to_odd(double x) { /* inexact results get an odd last bit, so that rounding them again equals rounding x */
  float f = (float)x;
  int32_t bits = sycl::bit_cast<int32_t>(f);
  if ((double)f != x && x == x) bits = (bits - (sycl::fabs((double)f) > sycl::fabs(x))) | 1;
  return sycl::bit_cast<float>(bits);
}`,
  from_bf16: code`static inline float from_bf16(uint16_t x) { return sycl::bit_cast<float>((uint32_t)x << 16); }`,
  to_bf16: code`static inline uint16_t to_bf16(float f) { /* to nearest, ties to even */
  uint32_t bits = sycl::bit_cast<uint32_t>(f);
  uint32_t near = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  return (uint16_t)(f == f ? near : bits >> 16 | 0x40);
}`,
  from_f16: code`static inline float from_f16(uint16_t x) { return (float)sycl::bit_cast<sycl::half>(x); }`,
  to_f16: code`static inline uint16_t to_f16(float f) { return sycl::bit_cast<uint16_t>(sycl::half(f)); }`,
  to_tf32: code`static inline float to_tf32(float f) { /* 10 bits of fraction, to nearest, ties to even */
  uint32_t bits = sycl::bit_cast<uint32_t>(f);
  if ((bits & 0x7f800000u) != 0x7f800000u) bits = (bits + 0xfffu + (bits >> 13 & 1)) & ~0x1fffu;
  return sycl::bit_cast<float>(bits);
}`,
};
export const SYCL_HELPERS: Helpers = replacedBy(FORMATS, CPP_HELPERS);

/** SYCL 2020, sections 4.17.5, math functions, and 4.17.4, group algorithms. */
export const SYCL_WORDS: Words = {
  ...C_WORDS,
  overflowIsUndefined: true,
  infinity: code`std::numeric_limits<float>::infinity()`,
  library: (name) => code`sycl::${name}`,
  fused: () => code`sycl::fma`,
  shuffled: (how, name, by) => code`sycl::${SHUFFLES[how]}(item.get_sub_group(), ${name}, ${by})`,
};

const SHUFFLES = {
  up: "shift_group_right",
  down: "shift_group_left",
  xor: "permute_group_by_xor",
  from: "select_from_group",
} as const satisfies Record<Shuffle, string>;
