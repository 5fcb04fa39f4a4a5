/**
 * @file Packs sixteen columns of words from rows by transposing them in registers, when a condition or the end of a
 * tensor excludes whole rows.
 *
 *     for (long k_step = 0; k_step < 64; k_step++) {
 *       for (long k_inner = 0; k_inner < 2; k_inner++) {
 *         for (long n_inner = 0; n_inner < 16; n_inner++) {
 *           b_tiles[32 * k_step + 2 * n_inner + k_inner] = (n_inner < 11 ? e[128 * n_inner + 2 * k_step + k_inner] : 0);
 *         }
 *       }
 *     }                                          ->  turn_columns(b_tiles, 64, e, 256, row_below(11), 64);
 *
 * For 4-byte elements there is no loop over the elements of a word.
 */

import { affineForm, evaluateIndex } from "../abstraction/affine.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { axesIn, type Expr } from "../abstraction/expression.ts";
import { type Code, code } from "../abstraction/source-text.ts";
import type { CExpressions } from "./c-expressions.ts";
import type { CopyLoops } from "./copy-loops.ts";
import { masksOf, movedBy } from "./cpp-masked-rows.ts";

/** Words of a register, that is, columns. */
const WORDS = 16;
const WORD_BYTES = 4;

/** With fewer words in a row, transposing does not pay. */
const FEWEST = 8;

/** The line that replaces such loops; undefined for any other loops. */
export function turnedColumns(copied: CopyLoops, c: CExpressions): readonly Code[] | undefined {
  const { loops, extents, dtype, to, from, tests, pointers } = copied;
  const [outer, middle] = loops;
  const inner = loops.at(-1);
  const bytes = bytesOf(dtype);
  if (outer?.mode !== "serial" || outer.extent < FEWEST || inner?.extent !== WORDS || bytes > WORD_BYTES)
    return undefined;
  const perWord = WORD_BYTES / bytes;
  const within = perWord === 1 ? undefined : middle;
  if (loops.length !== (within ? 3 : 2) || (within && within.extent !== perWord)) return undefined;

  // 1. Element q of word k of row n comes from n*pitch + k*perWord + q, and goes to k*row + n*perWord + q.
  const names = loops.map((l) => l.axis);
  const form = affineForm(from.at);
  const pitch = form?.terms.get(inner.axis);
  if (pitch === undefined || form?.terms.get(outer.axis) !== perWord) return undefined;
  if (within && form.terms.get(within.axis) !== 1) return undefined;
  const moved = movedBy(to.at, names);
  if (axesIn(moved).some((name) => !names.includes(name))) return undefined;
  const place = (k: number, q: number, n: number): number =>
    evaluateIndex(moved, { [outer.axis]: k, ...(within && { [within.axis]: q }), [inner.axis]: n });
  const start = place(0, 0, 0);
  const row = place(1, 0, 0) - start;
  if (row < WORDS * perWord) return undefined;
  for (let k = 0; k < outer.extent; k++)
    for (let q = 0; q < perWord; q++)
      for (let n = 0; n < WORDS; n++) if (place(k, q, n) !== start + k * row + n * perWord + q) return undefined;

  // 2. Only whole rows may be excluded.
  const isOfRows = (test: Expr): boolean => axesIn(test).every((name) => name === inner.axis || !names.includes(name));
  const mask = tests.every(isOfRows) ? masksOf(tests, inner.axis, c, extents) : undefined;
  if (mask === undefined) return undefined;
  const [destination, origin] = pointers();
  return [code`@turn_columns(${destination}, ${row * bytes}, ${origin}, ${pitch * bytes}, ${mask}, ${outer.extent});`];
}
