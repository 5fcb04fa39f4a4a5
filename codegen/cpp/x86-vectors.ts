/**
 * @file The two x86 vector instruction sets for lanes of 32 and 64 bits: register contents and operation names. Lanes of
 * 16 bits: word-lanes.ts.
 *
 *     AVX512.call("maskz_loadu", F32, [mask, from])      _mm512_maskz_loadu_ps(mask, from)
 *     AVX2.call("maskz_loadu", F32, [mask, from])        maskz_loadu_lanes(mask, from)      no such instruction: a helper
 *
 * Operations have the names of AVX-512. In both, a mask is a number with one bit per lane.
 *
 * C++ helper functions on AVX2 registers, included in a generated source that calls them, are operations for which
 * only AVX-512 has an instruction.
 *
 *     calledIn([code`@maskz_loadu_lanes(0xf, x)`], AVX2_HELPERS)      the text of `maskz_loadu_lanes`, and of `lane_mask`, which it calls
 *
 * A mask is a number with one bit per lane, as in AVX-512. For a constant mask the compiler builds the vector that AVX2
 * instructions take. Lanes move between the halves of a register by VPERM2I128, and within them by VPALIGNR. Source:
 * Intel SDM vol. 2.
 */

import { bytesOf, type DType, isInteger } from "../../abstraction/dtype.ts";
import { internal } from "../../abstraction/error.ts";
import type { CompareOp } from "../../abstraction/expression.ts";
import { type Code, code, list } from "../../abstraction/source-text.ts";
import type { VectorRegisters } from "../../targets/x86.ts";
import { AVX512_HELPERS, sharedHelpers } from "./avx512-helpers.ts";
import type { Helpers } from "./cpp-helpers.ts";

const MASKS: Helpers = {
  ...sharedHelpers,
  lane_mask: code`/* Expands a bit mask to all bits of each lane. */
static inline __m256i lane_mask(unsigned bits) {
  const __m256i each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)bits), each), each);
}`,
  wide_mask: code`static inline __m256i wide_mask(unsigned bits) { /* for lanes of 64 bits */
  const __m256i each = _mm256_setr_epi64x(1, 2, 4, 8);
  return _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_set1_epi64x(bits), each), each);
}`,
  mask_mov_lanes: code`/* b where the mask bit is set, a elsewhere. */
static inline __m256 mask_mov_lanes(__m256 a, unsigned mask, __m256 b) {
  return _mm256_blendv_ps(a, b, _mm256_castsi256_ps(@lane_mask(mask)));
}
static inline __m256d mask_mov_lanes(__m256d a, unsigned mask, __m256d b) {
  return _mm256_blendv_pd(a, b, _mm256_castsi256_pd(@wide_mask(mask)));
}
static inline __m256i mask_mov_lanes(__m256i a, unsigned mask, __m256i b) { return _mm256_blendv_epi8(a, b, @lane_mask(mask)); }`,
};

const MOVES: Helpers = {
  lanes_from: code`/* The lanes of low:high that start at lane N. */
template <int BYTES> static inline __m256i bytes_from(__m256i low, __m256i high) {
  if constexpr (BYTES == 0) return low;
  const __m256i middle = _mm256_permute2x128_si256(low, high, 0x21);
  if constexpr (BYTES < 16) return _mm256_alignr_epi8(middle, low, BYTES);
  else return _mm256_alignr_epi8(high, middle, BYTES - 16);
}
template <int N> static inline __m256 lanes_from(__m256 low, __m256 high) {
  return _mm256_castsi256_ps(bytes_from<4 * N>(_mm256_castps_si256(low), _mm256_castps_si256(high)));
}
template <int N> static inline __m256d lanes_from(__m256d low, __m256d high) {
  return _mm256_castsi256_pd(bytes_from<8 * N>(_mm256_castpd_si256(low), _mm256_castpd_si256(high)));
}
template <int N> static inline __m256i lanes_from(__m256i low, __m256i high) { return bytes_from<4 * N>(low, high); }`,
  permutexvar_lanes: code`static inline __m256 permutexvar_lanes(__m256i order, __m256 v) { return _mm256_permutevar8x32_ps(v, order); }
static inline __m256i permutexvar_lanes(__m256i order, __m256i v) { return _mm256_permutevar8x32_epi32(v, order); }
static inline __m256d permutexvar_lanes(__m128i order, __m256d v) { /* words 2n and 2n+1 */
  const __m256i low = _mm256_slli_epi64(_mm256_cvtepi32_epi64(order), 1);
  const __m256i words = _mm256_or_si256(low, _mm256_slli_epi64(_mm256_add_epi64(low, _mm256_set1_epi64x(1)), 32));
  return _mm256_castps_pd(_mm256_permutevar8x32_ps(_mm256_castpd_ps(v), words));
}`,
  lane_of: code`static inline float lane_of(__m256 v, long n) { alignas(32) float lanes[8]; _mm256_store_ps(lanes, v); return lanes[n]; }
static inline double lane_of(__m256d v, long n) { alignas(32) double lanes[4]; _mm256_store_pd(lanes, v); return lanes[n]; }
static inline int32_t lane_of(__m256i v, long n) { alignas(32) int32_t lanes[8]; _mm256_store_si256((__m256i*)lanes, v); return lanes[n]; }`,
  even_lanes: code`/* Every second element; reads nothing beyond the last one. */
static inline __m256 even_lanes(const float* p) {
  const __m256 pairs = _mm256_shuffle_ps(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 7), _MM_SHUFFLE(3, 1, 2, 0));
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(pairs), _MM_SHUFFLE(3, 1, 2, 0)));
}
static inline __m256i even_lanes(const int32_t* p) { return _mm256_castps_si256(even_lanes((const float*)p)); }
static inline __m256d even_lanes(const double* p) {
  return _mm256_permute4x64_pd(_mm256_shuffle_pd(_mm256_loadu_pd(p), _mm256_loadu_pd(p + 3), 0xa), _MM_SHUFFLE(3, 1, 2, 0));
}`,
};

const ARITHMETIC: Helpers = {
  most_lanes: code`static inline __m256 most_lanes(__m256 a, __m256 b) { /* NaN wins */
  return _mm256_blendv_ps(_mm256_max_ps(a, b), a, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}
static inline __m256d most_lanes(__m256d a, __m256d b) {
  return _mm256_blendv_pd(_mm256_max_pd(a, b), a, _mm256_cmp_pd(a, a, _CMP_UNORD_Q));
}
static inline __m256i most_lanes(__m256i a, __m256i b) { return _mm256_max_epi32(a, b); }`,
  least_lanes: code`static inline __m256 least_lanes(__m256 a, __m256 b) { /* NaN wins */
  return _mm256_blendv_ps(_mm256_min_ps(a, b), a, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
}
static inline __m256d least_lanes(__m256d a, __m256d b) {
  return _mm256_blendv_pd(_mm256_min_pd(a, b), a, _mm256_cmp_pd(a, a, _CMP_UNORD_Q));
}
static inline __m256i least_lanes(__m256i a, __m256i b) { return _mm256_min_epi32(a, b); }`,
  compared_lanes: code`template <int OP> static inline unsigned compared_lanes(__m256 a, __m256 b) { return _mm256_movemask_ps(_mm256_cmp_ps(a, b, OP)); }
template <int OP> static inline unsigned compared_lanes(__m256d a, __m256d b) { return _mm256_movemask_pd(_mm256_cmp_pd(a, b, OP)); }
template <int OP> static inline unsigned compared_lanes(__m256i a, __m256i b) { /* OP and 4: the opposite */
  constexpr int kind = OP & 3; /* equal, less, less or equal */
  const __m256i not_all = kind == 0 ? _mm256_cmpeq_epi32(a, b) : kind == 1 ? _mm256_cmpgt_epi32(b, a) : _mm256_cmpgt_epi32(a, b);
  const unsigned mask = _mm256_movemask_ps(_mm256_castsi256_ps(not_all)) ^ (kind == 2 ? 0xff : 0);
  return OP & 4 ? mask ^ 0xff : mask;
}`,
  abs_lanes: code`static inline __m256 abs_lanes(__m256 a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
static inline __m256d abs_lanes(__m256d a) { return _mm256_andnot_pd(_mm256_set1_pd(-0.0), a); }
static inline __m256i abs_lanes(__m256i a) { return _mm256_abs_epi32(a); }`,
};

/** A fold of all lanes, and a fold of the lanes in a mask. */
const fold = (name: "add" | "max" | "min", pair: Code, start: { readonly f: Code; readonly i: Code }): Helpers => {
  const all = (register: Code, type: Code, lanes: number): Code =>
    code`static inline ${type} reduce_${name}_lanes(${register} v) {
  ${type} sum = @lane_of(v, 0);
  for (int n = 1; n < ${lanes}; n++) { const ${type} x = @lane_of(v, n); sum = ${pair}; }
  return sum;
}`;
  const some = (register: Code, type: Code, splat: Code): Code =>
    code`static inline ${type} mask_reduce_${name}_lanes(unsigned mask, ${register} v) { return @reduce_${name}_lanes(@mask_mov_lanes(${splat}, mask, v)); }`;
  const [ps, pd, si] = [
    [code`__m256`, code`float`],
    [code`__m256d`, code`double`],
    [code`__m256i`, code`int32_t`],
  ] as const;
  return {
    [`reduce_${name}_lanes`]: code`${all(...ps, 8)}\n${all(...pd, 4)}\n${all(...si, 8)}`,
    [`mask_reduce_${name}_lanes`]: code`${some(...ps, code`_mm256_set1_ps(${start.f})`)}
${some(...pd, code`_mm256_set1_pd(${start.f})`)}
${some(...si, code`_mm256_set1_epi32(${start.i})`)}`,
  };
};

const MEMORY: Helpers = {
  loadu_lanes: code`static inline __m256i loadu_lanes(const int32_t* p) { return _mm256_loadu_si256((const __m256i*)p); }`,
  maskz_loadu_lanes: code`static inline __m256 maskz_loadu_lanes(unsigned mask, const float* p) { return _mm256_maskload_ps(p, @lane_mask(mask)); }
static inline __m256d maskz_loadu_lanes(unsigned mask, const double* p) { return _mm256_maskload_pd(p, @wide_mask(mask)); }
static inline __m256i maskz_loadu_lanes(unsigned mask, const int32_t* p) { return _mm256_maskload_epi32((const int*)p, @lane_mask(mask)); }`,
  mask_loadu_lanes: code`/* Lanes without a mask bit come from \`otherwise\`. */
template <class V, class T> static inline V mask_loadu_lanes(V otherwise, unsigned mask, const T* p) {
  return @mask_mov_lanes(otherwise, mask, @maskz_loadu_lanes(mask, p));
}`,
  storeu_lanes: code`static inline void storeu_lanes(int32_t* p, __m256i v) { _mm256_storeu_si256((__m256i*)p, v); }`,
  mask_storeu_lanes: code`static inline void mask_storeu_lanes(float* p, unsigned mask, __m256 v) { _mm256_maskstore_ps(p, @lane_mask(mask), v); }
static inline void mask_storeu_lanes(double* p, unsigned mask, __m256d v) { _mm256_maskstore_pd(p, @wide_mask(mask), v); }
static inline void mask_storeu_lanes(int32_t* p, unsigned mask, __m256i v) { _mm256_maskstore_epi32((int*)p, @lane_mask(mask), v); }`,
  i32gather_lanes: code`/* Elements by their distance from p; their size is that of the type. */
static inline __m256 i32gather_lanes(__m256i at, const float* p, int) { return _mm256_i32gather_ps(p, at, 4); }
static inline __m256d i32gather_lanes(__m128i at, const double* p, int) { return _mm256_i32gather_pd(p, at, 8); }
static inline __m256i i32gather_lanes(__m256i at, const int32_t* p, int) { return _mm256_i32gather_epi32((const int*)p, at, 4); }`,
  mask_i32gather_lanes: code`static inline __m256 mask_i32gather_lanes(__m256 otherwise, unsigned mask, __m256i at, const float* p, int) {
  return _mm256_mask_i32gather_ps(otherwise, p, at, _mm256_castsi256_ps(@lane_mask(mask)), 4);
}
static inline __m256d mask_i32gather_lanes(__m256d otherwise, unsigned mask, __m128i at, const double* p, int) {
  return _mm256_mask_i32gather_pd(otherwise, p, at, _mm256_castsi256_pd(@wide_mask(mask)), 8);
}
static inline __m256i mask_i32gather_lanes(__m256i otherwise, unsigned mask, __m256i at, const int32_t* p, int) {
  return _mm256_mask_i32gather_epi32(otherwise, (const int*)p, at, @lane_mask(mask), 4);
}`,
  mask_i32scatter_lanes: code`/* AVX2 has no scatter instruction, so lanes are stored one by one. */
static inline void mask_i32scatter_lanes(float* p, unsigned mask, __m256i at, __m256 v, int) {
  alignas(32) int32_t n[8]; _mm256_store_si256((__m256i*)n, at);
  for (int l = 0; l < 8; l++) if (mask >> l & 1) p[n[l]] = @lane_of(v, l);
}
static inline void mask_i32scatter_lanes(double* p, unsigned mask, __m128i at, __m256d v, int) {
  alignas(16) int32_t n[4]; _mm_store_si128((__m128i*)n, at);
  for (int l = 0; l < 4; l++) if (mask >> l & 1) p[n[l]] = @lane_of(v, l);
}
static inline void mask_i32scatter_lanes(int32_t* p, unsigned mask, __m256i at, __m256i v, int) {
  alignas(32) int32_t n[8]; _mm256_store_si256((__m256i*)n, at);
  for (int l = 0; l < 8; l++) if (mask >> l & 1) p[n[l]] = @lane_of(v, l);
}`,
  i32scatter_lanes: code`template <class T, class N, class V> static inline void i32scatter_lanes(T* p, N at, V v, int size) { @mask_i32scatter_lanes(p, 0xff, at, v, size); }`,
  stream_lanes: code`/* Bypasses the caches where the address is aligned. */
static inline void stream_lanes(float* p, __m256 v) { if ((uintptr_t)p % 32 == 0) _mm256_stream_ps(p, v); else _mm256_storeu_ps(p, v); }
static inline void stream_lanes(double* p, __m256d v) { if ((uintptr_t)p % 32 == 0) _mm256_stream_pd(p, v); else _mm256_storeu_pd(p, v); }
static inline void stream_lanes(int32_t* p, __m256i v) { if ((uintptr_t)p % 32 == 0) _mm256_stream_si256((__m256i*)p, v); else _mm256_storeu_si256((__m256i*)p, v); }`,
};

const AVX2_HELPERS: Helpers = {
  ...MASKS,
  ...MOVES,
  ...ARITHMETIC,
  ...fold("add", code`sum + x`, { f: code`0`, i: code`0` }),
  ...fold("max", code`sum > x || sum != sum ? sum : x`, { f: code`-__builtin_inff()`, i: code`INT32_MIN` }),
  ...fold("min", code`sum < x || sum != sum ? sum : x`, { f: code`__builtin_inff()`, i: code`INT32_MAX` }),
  ...MEMORY,
};

export interface Format {
  readonly register: "__m512" | "__m512d" | "__m512i" | "__m512h" | "__m256" | "__m256d" | "__m256i";
  readonly lanes: number;
  /** Suffix of intrinsics: `_mm512_add_ps`. */
  readonly suffix: "ps" | "pd" | "epi32" | "epi16" | "ph";
  /** The prefix for a vector of indices, one per lane. */
  readonly indices: "_mm512" | "_mm256" | "_mm";
  readonly bytes: 2 | 4 | 8;
  /** What helpers call the lanes: `lanes_from`, `most_lanes`. Those of 16 bits have helpers of their own. */
  readonly called: "lanes" | "words" | "halves";
}

type Arithmetic = "add" | "sub" | "mul" | "mullo" | "div" | "fmadd" | "fnmadd" | "fmsub" | "xor" | "abs" | "roundscale";
type Access = "loadu" | "maskz_loadu" | "mask_loadu" | "i32gather" | "mask_i32gather";
type Write = "storeu" | "mask_storeu" | "i32scatter" | "mask_i32scatter";
type Fold = "add" | "max" | "min";
export type VectorFunction =
  | (Arithmetic | Access | Write)
  | ("set1" | "permutexvar" | "mask_mov")
  | (`reduce_${Fold}` | `mask_reduce_${Fold}`);

/** The instructions of a register file. */
export const x86Vectors = ({ name }: VectorRegisters): X86Vectors => (name === "ymm" ? AVX2 : AVX512);

export interface X86Vectors {
  /** The required feature of the machine (targets/x86.ts). */
  readonly feature: "avx512f" | "avx2" | "avx512_fp16";
  format(dtype: DType): Format;
  call(name: VectorFunction, format: Format, args: readonly Code[]): Code;
  /** Broadcasts one lane. */
  spread(lane: number, format: Format, register: Code): Code;
  /** The mask of lanes for which a comparison holds. */
  compared(op: CompareOp, format: Format, left: Code, right: Code): Code;
  /** The vector of these elements, the first in lane 0: integers, which serve as indices of {@link call permutexvar}. */
  listed(each: readonly Code[], format: Format): Code;
  readonly zero: Code;
  /** Conversions between integers and f32. Callers keep values within the range of s32. */
  readonly toFloat?: "_mm512_cvtepi32_ps" | "_mm256_cvtepi32_ps";
  readonly toInteger?: "_mm512_cvttps_epi32" | "_mm256_cvttps_epi32";
  readonly helpers: Helpers;
}

interface Formats {
  readonly f32: Format;
  readonly f64: Format;
  readonly s32: Format;
}

/** @throws Error for a type that lanes cannot hold */
function formatIn(formats: Formats, dtype: DType, narrow: boolean): Format {
  if (dtype === "f32" || dtype === "f64" || dtype === "s32") return formats[dtype];
  // Narrow elements in lanes of 32 bits (rows-avx512.ts); checkType refuses them elsewhere.
  if (narrow && (dtype === "bf16" || dtype === "f16")) return formats.f32;
  if (narrow && isInteger(dtype) && bytesOf(dtype) < 4) return formats.s32;
  internal(`no lanes of ${dtype}`);
}

/** Ordered comparisons, so that NaN is equal to nothing. */
export const FLOATS_COMPARED = {
  "<": "_CMP_LT_OQ",
  "<=": "_CMP_LE_OQ",
  ">": "_CMP_GT_OQ",
  ">=": "_CMP_GE_OQ",
  "==": "_CMP_EQ_OQ",
  "!=": "_CMP_NEQ_UQ",
} as const satisfies Record<CompareOp, string>;
export const INTEGERS_COMPARED = {
  "<": "_MM_CMPINT_LT",
  "<=": "_MM_CMPINT_LE",
  ">": "_MM_CMPINT_NLE",
  ">=": "_MM_CMPINT_NLT",
  "==": "_MM_CMPINT_EQ",
  "!=": "_MM_CMPINT_NE",
} as const satisfies Record<CompareOp, string>;

const WIDE: Formats = {
  f32: { register: "__m512", lanes: 16, suffix: "ps", indices: "_mm512", bytes: 4, called: "lanes" },
  f64: { register: "__m512d", lanes: 8, suffix: "pd", indices: "_mm256", bytes: 8, called: "lanes" },
  s32: { register: "__m512i", lanes: 16, suffix: "epi32", indices: "_mm512", bytes: 4, called: "lanes" },
};

export const AVX512: X86Vectors = {
  feature: "avx512f",
  format: (dtype) => formatIn(WIDE, dtype, true),
  call: (name, { suffix, register }, args) => {
    const all = list(args);
    if (register === "__m512i" && name === "loadu") return code`_mm512_loadu_si512(${all})`;
    if (register === "__m512i" && name === "storeu") return code`_mm512_storeu_si512(${all})`;
    const [order, ...rest] = args;
    if (name === "permutexvar" && suffix === "pd" && order)
      return code`_mm512_permutexvar_pd(_mm512_cvtepi32_epi64(${order}), ${list(rest)})`;
    return code`_mm512_${name}_${suffix}(${all})`;
  },
  spread: (lane, { suffix, bytes }, register) =>
    code`_mm512_permutexvar_${suffix}(_mm512_set1_epi${bytes === 8 ? 64 : 32}(${lane}), ${register})`,
  compared: (op, { suffix }, left, right) =>
    suffix === "epi32"
      ? code`_mm512_cmp_epi32_mask(${left}, ${right}, ${INTEGERS_COMPARED[op]})`
      : code`_mm512_cmp_${suffix}_mask(${left}, ${right}, ${FLOATS_COMPARED[op]})`,
  listed: (each, { indices }) => code`${indices}_setr_epi32(${list(each)})`,
  zero: code`_mm512_setzero_si512()`,
  toFloat: "_mm512_cvtepi32_ps",
  toInteger: "_mm512_cvttps_epi32",
  helpers: AVX512_HELPERS,
};

const NARROW: Formats = {
  f32: { register: "__m256", lanes: 8, suffix: "ps", indices: "_mm256", bytes: 4, called: "lanes" },
  f64: { register: "__m256d", lanes: 4, suffix: "pd", indices: "_mm", bytes: 8, called: "lanes" },
  s32: { register: "__m256i", lanes: 8, suffix: "epi32", indices: "_mm256", bytes: 4, called: "lanes" },
};

/** Operations for which AVX2 and FMA have an instruction, on all lane types or only on floats. */
const OF_ALL: ReadonlySet<VectorFunction> = new Set(["set1", "add", "sub", "mullo"]);
const OF_FLOATS: ReadonlySet<VectorFunction> = new Set([
  ...(["loadu", "storeu", "mul", "div", "fmadd", "fnmadd", "fmsub", "xor"] as const),
]);

export const AVX2: X86Vectors = {
  feature: "avx2",
  format: (dtype) => formatIn(NARROW, dtype, false),
  call: (name, { suffix }, args) => {
    const all = list(args);
    if (name === "roundscale") return code`_mm256_round_${suffix}(${all})`;
    const native = OF_ALL.has(name) || (suffix !== "epi32" && OF_FLOATS.has(name));
    return native ? code`_mm256_${name}_${suffix}(${all})` : code`@${name}_lanes(${all})`;
  },
  spread: (lane, { indices }, register) => code`@permutexvar_lanes(${indices}_set1_epi32(${lane}), ${register})`,
  compared: (op, { suffix }, left, right) =>
    suffix === "epi32"
      ? code`@compared_lanes<${INTEGERS_COMPARED[op]}>(${left}, ${right})`
      : code`@compared_lanes<${FLOATS_COMPARED[op]}>(${left}, ${right})`,
  listed: (each, { indices }) => code`${indices}_setr_epi32(${list(each)})`,
  zero: code`_mm256_setzero_si256()`,
  toFloat: "_mm256_cvtepi32_ps",
  toInteger: "_mm256_cvttps_epi32",
  helpers: AVX2_HELPERS,
};
