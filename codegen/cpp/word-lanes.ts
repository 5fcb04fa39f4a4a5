/**
 * @file Lanes of 16 bits: 32 of a ZMM register or 16 of a YMM register for s16, and 32 for f16 by AVX512-FP16.
 *
 *     WORDS_512.call("mullo", S16, [a, b])           _mm512_mullo_epi16(a, b)
 *     HALVES_512.call("fmadd", F16, [a, b, c])       _mm512_fmadd_ph(a, b, c)
 *     HALVES_512.call("set1", F16, [w])              set1_halves(w)      an element in memory is 16 bits: word-helpers.ts
 *
 * Sums of s16 keep the low 16 bits, as sums of s32 keep the low 32. Each multiply-add of f16 is rounded to f16.
 */

import type { DType } from "../../abstraction/dtype.ts";
import { internal, UsageError } from "../../abstraction/error.ts";
import type { Expr } from "../../abstraction/expression.ts";
import { type Code, code, hexadecimal, list } from "../../abstraction/source-text.ts";
import type { LaneContext } from "../lane-printer.ts";
import type { LaneOperation, LanePlace } from "../vector-expressions.ts";
import { X86Lanes } from "./lanes-x86.ts";
import { WORD_HELPERS } from "./word-helpers.ts";
import {
  AVX2,
  AVX512,
  FLOATS_COMPARED,
  type Format,
  INTEGERS_COMPARED,
  type VectorFunction,
  type X86Vectors,
} from "./x86-vectors.ts";

/** The types of 16-bit lanes. */
export type WordType = "s16" | "f16";

/** Operations that are one intrinsic. The others are helpers with the name of the lanes. */
const OF_YMM: ReadonlySet<VectorFunction> = new Set(["set1", "add", "sub", "mullo", "abs"]);
const OF_ZMM: ReadonlySet<VectorFunction> = new Set([
  ...OF_YMM,
  ...(["loadu", "maskz_loadu", "mask_loadu", "storeu", "mask_storeu", "mask_mov", "permutexvar"] as const),
]);
const OF_HALVES: ReadonlySet<VectorFunction> = new Set([
  ...(["add", "sub", "mul", "div", "fmadd", "fnmadd", "fmsub", "abs", "roundscale", "loadu", "storeu"] as const),
]);

/** Vectors of one 16-bit type in the registers of other vectors. */
function vectorsOf(
  dtype: WordType,
  own: Format,
  isOwn: ReadonlySet<VectorFunction>,
): Omit<X86Vectors, "feature" | "zero" | "compared" | "helpers"> {
  return {
    format: (of) => {
      if (of !== dtype) internal(`lanes of ${dtype} hold no ${of}`);
      return own;
    },
    call: (name, { suffix, indices, called }, args) =>
      isOwn.has(name) ? code`${indices}_${name}_${suffix}(${list(args)})` : code`@${name}_${called}(${list(args)})`,
    spread: (lane, { called }, register) => code`@spread_${called}(${register}, ${lane})`,
    listed: (each, { called }) => code`@listed_${called}(${list(each)})`,
  };
}

const S16 = { suffix: "epi16", bytes: 2, called: "words" } as const;

export const WORDS_512: X86Vectors = {
  ...AVX512,
  ...vectorsOf("s16", { ...S16, register: "__m512i", lanes: 32, indices: "_mm512" }, OF_ZMM),
  compared: (op, _, left, right) => code`_mm512_cmp_epi16_mask(${left}, ${right}, ${INTEGERS_COMPARED[op]})`,
  helpers: WORD_HELPERS.words512,
};

export const WORDS_256: X86Vectors = {
  ...AVX2,
  ...vectorsOf("s16", { ...S16, register: "__m256i", lanes: 16, indices: "_mm256" }, OF_YMM),
  compared: (op, _, left, right) => code`@compared_words<${INTEGERS_COMPARED[op]}>(${left}, ${right})`,
  helpers: WORD_HELPERS.words256,
};

export const HALVES_512: X86Vectors = {
  ...AVX512,
  feature: "avx512_fp16",
  ...vectorsOf(
    "f16",
    { register: "__m512h", lanes: 32, suffix: "ph", indices: "_mm512", bytes: 2, called: "halves" },
    OF_HALVES,
  ),
  compared: (op, _, left, right) => code`_mm512_cmp_ph_mask(${left}, ${right}, ${FLOATS_COMPARED[op]})`,
  helpers: WORD_HELPERS.halves512,
};

/** @throws UsageError for f16 in registers of AVX2, which have no arithmetic of it */
export function wordVectors(dtype: WordType, vectors: X86Vectors, name: string): X86Vectors {
  if (dtype === "s16") return vectors.feature === "avx2" ? WORDS_256 : WORDS_512;
  if (vectors.feature !== "avx2") return HALVES_512;
  throw new UsageError(`${name}: lanes of AVX2 do not compute in f16; lanes of AVX512-FP16 do`);
}

/** Statements on lanes of 16 bits. */
export class WordLanes extends X86Lanes {
  protected override operation(op: LaneOperation, args: readonly Code[], dtype: DType): Code {
    const [a] = args;
    // The sign of a zero changes too: -0 - 0 is -0, and -0 - -0 is 0.
    if (op === "negate" && dtype === "f16" && a) return this.call("sub", dtype, this.splat(code`0x8000`, dtype), a);
    return super.operation(op, args, dtype);
  }

  /** No gather loads 16 bits, so elements that are not contiguous are loaded one by one. */
  protected override load(place: LanePlace, context: LaneContext): Code {
    const { dtype } = context;
    if (place.stride === 1 || (place.stride === 2 && this.mask(place.varying, context, true) === undefined))
      return super.load(place, context);
    const each = this.eachElement(place, context, (from) => from, this.c.outside(place.tensor, dtype));
    return this.vectors.listed(each, this.vectors.format(dtype));
  }

  /** Nor does a scatter store them. */
  protected override store(place: LanePlace, where: readonly Expr[], value: Code, context: LaneContext): Code {
    if (place.stride === 1) return super.store(place, where, value, context);
    const { called } = this.vectors.format(context.dtype);
    const mask =
      this.mask([...where, ...place.varying], context, true) ?? hexadecimal(2 ** this.width(context.dtype) - 1);
    const at = this.eachLane(context, (on) => this.c.index(on(place.at), context.extents));
    const to = this.c.tensor(place.tensor);
    return code`${this.guard(place.uniform, context)}@scatter_${called}(${to}, ${mask}, ${value}, ${list(at)});`;
  }
}
