/**
 * @file The two x86 vector instruction sets for lanes of 32 and 64 bits: register contents and operation names. Lanes of
 * 16 bits: word-lanes.ts.
 *
 *     AVX512.call("maskz_loadu", F32, [mask, from])      _mm512_maskz_loadu_ps(mask, from)
 *     AVX2.call("maskz_loadu", F32, [mask, from])        maskz_loadu_lanes(mask, from)      no such instruction: avx2-helpers.ts
 *
 * Operations have the names of AVX-512. In both, a mask is a number with one bit per lane.
 */

import { bytesOf, type DType, isInteger } from "../../abstraction/dtype.ts";
import { internal } from "../../abstraction/error.ts";
import type { CompareOp } from "../../abstraction/expression.ts";
import { type Code, code, list } from "../../abstraction/source-text.ts";
import type { VectorRegisters } from "../../targets/x86.ts";
import { AVX2_HELPERS } from "./avx2-helpers.ts";
import { AVX512_HELPERS } from "./avx512-helpers.ts";
import type { Helpers } from "./cpp-helpers.ts";

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
