/**
 * @file Lanes of narrow elements: loaded into 32-bit lanes, multiplied and added there, and narrowed when they are
 * stored.
 *
 *     A[0,lane] += f32(x[16*b+lane]) * f32(w[q])      ->    A0 = _mm512_fmadd_ps(bf16_lanes(_mm256_loadu_si256(...)), ..., A0);
 *     A[0,lane] + s32(x[lane]) * s32(w[0]) + ...      ->    A0 = byte_dots(A0, byte_windows<19>(x), _mm512_set1_epi32(word_of<4>(w)));
 */

import { affineForm } from "../../abstraction/affine.ts";
import { bytesOf, type DType, isInteger } from "../../abstraction/dtype.ts";
import { type Access, type Expr, minus } from "../../abstraction/expression.ts";
import { type Code, code, list } from "../../abstraction/source-text.ts";
import { dotOfTypes } from "../../targets/x86-dots.ts";
import type { CExpressions } from "../c-expressions.ts";
import type { LaneContext } from "../lane-printer.ts";
import type { LanePlace } from "../vector-expressions.ts";
import { LaneExpressions } from "./lanes-x86.ts";
import { Avx512Rows } from "./rows-avx512.ts";

export class NarrowLanes extends Avx512Rows {
  private readonly dots: boolean;

  /** @param dots whether neighbouring products of integers become dot products */
  constructor(c: CExpressions, dots = false) {
    super(c, (within) => new LaneExpressions(c.computation, within));
    this.dots = dots;
  }

  /** Sums of products are rounded once, as by the fused instruction that the design names. */
  protected override fuses(): boolean {
    return true;
  }

  protected override arithmetic(e: Extract<Expr, { kind: "binary" }>, context: LaneContext): Code {
    return (this.dots ? this.dotted(e, context) : undefined) ?? super.arithmetic(e, context);
  }

  /** `sum + s32(x[i]) * s32(w[0]) + s32(x[i+1]) * s32(w[1])` as one instruction; undefined for other expressions. */
  private dotted(e: Expr, context: LaneContext): Code | undefined {
    const { before, factors } = productsAdded(e);
    if (factors.flat().some((a) => this.registerOf(a) !== undefined)) return undefined;
    const [a, b] = ([0, 1] as const).map((side) =>
      this.neighbours(
        factors.map((f) => f[side]),
        context,
      ),
    );
    const dot = a && b && dotOfTypes(a.dtype, b.dtype);
    if (!a || !b || !dot || factors.length > dot.terms) return undefined;
    const [data, weights] = a.stride === 1 ? [a, b] : [b, a];
    if (data.stride !== 1 || weights.stride !== 0) return undefined;
    const lanes = context.extents[context.axis] ?? this.width("s32");
    const bytes = dot.terms === 4;
    const windows = code`@${bytes ? "byte" : "word"}_windows<${lanes - 1 + factors.length}>(${data.from})`;
    const word = code`_mm512_set1_epi32(@word_of<${factors.length * bytesOf(weights.dtype)}>(${weights.from}))`;
    const [left, right] = data.dtype === "s8" ? [word, windows] : [windows, word];
    return code`@${bytes ? "byte" : "word"}_dots(${this.vector(before, context)}, ${left}, ${right})`;
  }

  /** The first of several elements that are contiguous and inside their tensor. */
  private neighbours(
    all: readonly Access[],
    context: LaneContext,
  ): { readonly dtype: DType; readonly stride: number | undefined; readonly from: Code } | undefined {
    const places = all.map((a) => this.placeOf(a, context));
    const [first] = places;
    const isNext = (place: LanePlace, i: number): boolean => {
      const apart = first && affineForm(minus(place.first, first.first));
      return place.tensor === first?.tensor && apart?.terms.size === 0 && apart.constant === i;
    };
    if (!first || !places.every(isNext) || places.some((p) => p.uniform.length + p.varying.length > 0))
      return undefined;
    const from = this.addresses.at(first.tensor, first.first, context.extents);
    return { dtype: this.dtypeOf(first.tensor), stride: first.stride, from };
  }

  /** No gather loads elements of less than 32 bits, so elements that are not contiguous are loaded one by one. */
  protected override load(place: LanePlace, context: LaneContext): Code {
    const { dtype } = context;
    if (bytesOf(dtype) >= 4 || place.stride === 1) return super.load(place, context);
    if (isInteger(dtype)) {
      const each = this.eachElement(place, context, (from) => code`(int)${from}`, code`0`);
      return code`_mm512_setr_epi32(${list(each)})`;
    }
    const each = this.eachElement(place, context, (from) => code`@from_${dtype}(${from})`, code`0.0f`);
    return code`_mm512_setr_ps(${list(each)})`;
  }
}

/** A sum of products of elements, and the expression it is added to. */
function productsAdded(e: Expr): { readonly before: Expr; readonly factors: readonly (readonly [Access, Access])[] } {
  const factors: (readonly [Access, Access])[] = [];
  let before = e;
  while (before.kind === "binary" && before.op === "+") {
    const product = before.right;
    if (product.kind !== "binary" || product.op !== "*") break;
    const a = widenedElement(product.left);
    const b = widenedElement(product.right);
    if (!a || !b) break;
    factors.unshift([a, b]);
    before = before.left;
  }
  return { before, factors };
}

const widenedElement = (e: Expr): Access | undefined =>
  e.kind === "cast" && e.dtype === "s32" && e.value.kind === "access" ? e.value : undefined;
