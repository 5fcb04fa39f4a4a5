/**
 * @file Copies rows with excluded elements by one masked load. Elements excluded by a condition or the end of a tensor
 * become zero.
 *
 *     for (long k_inner = 0; k_inner < 64; k_inner++) {
 *       a_edges[64 * m_inner + k_inner] = (64 * k_edge + k_inner <= i ? x[352 * i + 64 * k_edge + k_inner] : 0);
 *     }
 *       ->  _mm512_storeu_si512(a_edges + 64 * m_inner, _mm512_maskz_loadu_epi8(row_below(i - 64 * k_edge + 1), x + 352 * i + 64 * k_edge));
 *
 * A row takes at most one register. g++ would copy it element by element, since excluded elements may be outside of
 * memory.
 */

import { affineForm, type Extents } from "../abstraction/affine.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { axesIn, binary, type CompareOp, type Expr, MIRRORED, number } from "../abstraction/expression.ts";
import { type Code, code, join } from "../abstraction/source-text.ts";
import { maskWhere } from "./avx512-masks.ts";
import type { CExpressions } from "./c-expressions.ts";
import type { CopyLoops } from "./copy-loops.ts";

/** Bytes of a register. */
const ROW_BYTES = 64;

/** With fewer elements a vector does not pay. */
const FEWEST = 8;

/** The line that replaces a loop; undefined if its elements are not contiguous, or if it excludes none. */
export function maskedRow(copied: CopyLoops, c: CExpressions): readonly Code[] | undefined {
  const { loops, extents, dtype, isMasked, to, from, tests, pointers } = copied;
  const [{ axis, extent } = { axis: "", extent: 0 }] = loops;
  const bytes = bytesOf(dtype);
  if (!isMasked || loops.length > 1 || extent < FEWEST || extent * bytes > ROW_BYTES || bytes > 4) return undefined;
  const isRow = ({ at }: { at: Expr }): boolean => affineForm(movedBy(at, [axis]))?.terms.get(axis) === 1;
  if (!isRow(to) || !isRow(from)) return undefined;
  // A row that is excluded as a whole needs no mask.
  if (!tests.some((test) => axesIn(test).includes(axis))) return undefined;
  const mask = masksOf(tests, axis, c, extents);
  if (mask === undefined) return undefined;
  const [destination, origin] = pointers();
  const row = code`_mm512_maskz_loadu_epi${8 * bytes}(${mask}, ${origin})`;
  const stored =
    extent * bytes === ROW_BYTES
      ? code`_mm512_storeu_si512(${destination}, ${row});`
      : code`_mm512_mask_storeu_epi${8 * bytes}(${destination}, @row_below(${extent}), ${row});`;
  return [stored];
}

/** The mask of the row's elements for which all comparisons hold; undefined where {@link maskOf} is. */
export function masksOf(tests: readonly Expr[], lane: string, c: CExpressions, extents: Extents): Code | undefined {
  const masks: Code[] = [];
  for (const test of tests) {
    const mask = maskOf(test, lane, c, extents);
    if (mask === undefined) return undefined;
    masks.push(mask);
  }
  return masks.length === 0 ? code`~0ull` : join(masks, code` & `);
}

/** The terms of a sum that depend on some axes. The other terms may divide. */
export function movedBy(e: Expr, axes: readonly string[]): Expr {
  if (!axesIn(e).some((name) => axes.includes(name))) return number(0);
  if (e.kind !== "binary" || (e.op !== "+" && e.op !== "-")) return e;
  return binary(e.op, movedBy(e.left, axes), movedBy(e.right, axes));
}

/**
 * The mask of the row's elements for which a comparison holds; undefined if they are not the beginning or the end of
 * the row.
 */
function maskOf(test: Expr, lane: string, c: CExpressions, extents: Extents): Code | undefined {
  if (test.kind !== "compare") return undefined;
  if (!axesIn(test).includes(lane)) return code`(${c.condition(test, extents)} ? ~0ull : 0)`;
  const difference = affineForm(binary("-", test.left, test.right));
  const factor = difference?.terms.get(lane);
  if (difference === undefined || (factor !== 1 && factor !== -1)) return undefined;
  // lane op bound
  const op: CompareOp = factor === 1 ? test.op : MIRRORED[test.op];
  const bound = [...difference.terms].reduce<Expr>(
    (sum, [name, coefficient]) =>
      name === lane ? sum : binary("+", sum, binary("*", { kind: "axis", name }, number(-factor * coefficient))),
    number(-factor * difference.constant),
  );
  return op === "==" || op === "!=" ? undefined : maskWhere(op, bound, (e) => code`@row_below(${c.index(e, extents)})`);
}
