/**
 * @file Lanes of narrow elements: loaded into lanes of 32 bits, multiplied and added there, narrowed where they are stored.
 *
 *     A[0,lane] += f32(x[16*b+lane]) * f32(w[q])      ->    A0 = _mm512_fmadd_ps(bf16_lanes(_mm256_loadu_si256(...)), ..., A0);
 */

import { bytesOf, isInteger } from "../abstraction/dtype.ts";
import { number, substitute } from "../abstraction/expression.ts";
import type { LoopNest } from "../abstraction/loop-nest.ts";
import { type Code, code, list } from "../abstraction/source-text.ts";
import { allOf, type CExpressions } from "./c-expressions.ts";
import type { LaneContext } from "./lane-printer.ts";
import { LaneExpressions } from "./lanes-x86.ts";
import { Avx512Rows } from "./rows-avx512.ts";
import type { LanePlace } from "./vector-expressions.ts";

export class NarrowLanes extends Avx512Rows {
  constructor(c: CExpressions, nest: LoopNest) {
    super(c, nest, (within) => new LaneExpressions(c.computation, within));
  }

  /** Sums of products are rounded once, as the instruction that the design names does. */
  protected override fuses(): boolean {
    return true;
  }

  /** No gather reads elements of less than 32 bits: where they do not lie side by side they are read one by one. */
  protected override load(place: LanePlace, context: LaneContext): Code {
    const { dtype, axis: lane, extents } = context;
    if (bytesOf(dtype) >= 4 || place.stride === 1) return super.load(place, context);
    const lanes = this.width(dtype);
    const used = extents[lane] ?? lanes;
    const each = Array.from({ length: lanes }, (_, l) => {
      const at = new Map([[lane, number(Math.min(l, used - 1))]]);
      const guards = place.varying.map((g) => this.c.condition(substitute(g, at, "index"), extents));
      const from = code`${this.c.tensor(place.tensor)}[${this.c.index(substitute(place.at, at, "index"), extents)}]`;
      const value = isInteger(dtype) ? code`(int)${from}` : code`from_${dtype}(${from})`;
      const outside = isInteger(dtype) ? code`0` : code`0.0f`;
      return guards.length === 0 ? value : code`(${allOf(guards)} ? ${value} : ${outside})`;
    });
    return isInteger(dtype) ? code`_mm512_setr_epi32(${list(each)})` : code`_mm512_setr_ps(${list(each)})`;
  }
}
