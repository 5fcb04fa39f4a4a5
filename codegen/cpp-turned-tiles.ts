/**
 * @file Packs a tile whose instruction needs words of consecutive elements next to each other, by transposing 16 rows
 * of 16 words in registers. Also transposes larger matrices of words.
 *
 *     for (long k_inner = 0; k_inner < 64; k_inner++) {
 *       for (long n_inner = 0; n_inner < 16; n_inner++) {
 *         b_tiles[64 * (k_inner / 4) + 4 * n_inner + k_inner % 4] = y[96 * n_inner + k_inner];
 *       }
 *     }                                          ->  turn_words<1>(b_tiles, y, 96, ~0ull);
 *
 * From plain loops, g++ moves the elements one by one: 0.23 ns each, against 0.02 (Xeon with AMX, g++ 12, 2026-11-22).
 */

import { affineForm, evaluateIndex } from "../abstraction/affine.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { axesIn, type Expr } from "../abstraction/expression.ts";
import { axisName, type Code, code } from "../abstraction/source-text.ts";
import type { CExpressions } from "./c-expressions.ts";
import type { CopyLoops } from "./copy-loops.ts";
import { masksOf, movedBy } from "./cpp-masked-rows.ts";
import type { Loop } from "./walk.ts";

/** With fewer words in a row, transposing does not pay. */
const FEWEST_WORDS = 8;
/**
 * Two rows already beat a gather for each word: conv1 of ResNet in u8s8, which stores blocks of 6 columns, takes 0.80 ms instead of 1.28, with blocks
 * of 4 columns 0.88 instead of 1.60, and of 2 columns 1.34 instead of 2.62 (Zen 4, g++ 12, 2026-11-24).
 */
const FEWEST_ROWS = 2;

/** Words of a row, which is also the number of rows. */
const WORDS = 16;
const WORD_BYTES = 4;

/**
 * The line that replaces two loops that copy rows of words into columns:
 *
 *     for (long k_copy = 0; k_copy < 256; k_copy++) {
 *       for (long j_copy = 0; j_copy < 32; j_copy++) {
 *         y_padded[32 * k_copy + j_copy] = y[256 * j_copy + k_copy];
 *       }
 *     }                                          ->  turn_rows(y_padded, 128, y, 1024, 32, 256);
 *
 * Undefined if the loops do anything else, or exclude elements.
 */
export function turnedRows({
  loops,
  dtype,
  isMasked,
  to,
  from,
  tests,
  pointers,
}: CopyLoops): readonly Code[] | undefined {
  const [loop, inner, ...more] = loops;
  if (!loop || !inner || more.length > 0 || loop.inTurn || isMasked || tests.length > 0) return undefined;
  if (loop.extent < FEWEST_WORDS || inner.extent < FEWEST_ROWS || bytesOf(dtype) !== WORD_BYTES) return undefined;
  const rows = pitchesOf(to.at, loop, inner);
  const columns = pitchesOf(from.at, loop, inner);
  if (rows?.inner !== 1 || columns?.outer !== 1) return undefined;
  // Each thread transposes its share of the words.
  const isDealt = loop.mode === "parallel";
  const [destination, origin] = pointers([...(isDealt ? [] : [loop.axis]), inner.axis]);
  const pitch = (elements: number): number => elements * WORD_BYTES;
  const begin = code`${loop.extent}L * part / parts`;
  const end = code`${loop.extent}L * (part + 1) / parts`;
  const name = axisName(loop.axis);
  const words = isDealt ? code`${end} - ${name}` : code`${loop.extent}`;
  const turned = code`@turn_rows(${destination}, ${pitch(rows.outer)}, ${origin}, ${pitch(columns.inner)}, ${inner.extent}, ${words});`;
  return isDealt ? [code`{ const long ${name} = ${begin}; ${turned} }`] : [turned];
}

/**
 * Elements between two steps of each loop; undefined if they vary, or if a quotient or remainder mixes in other axes.
 */
function pitchesOf(at: Expr, outer: Loop, inner: Loop): { readonly outer: number; readonly inner: number } | undefined {
  const names = [outer.axis, inner.axis];
  const moved = movedBy(at, names);
  if (axesIn(moved).some((name) => !names.includes(name))) {
    const terms = affineForm(moved)?.terms;
    return terms && { outer: terms.get(outer.axis) ?? 0, inner: terms.get(inner.axis) ?? 0 };
  }
  const place = (o: number, i: number): number => evaluateIndex(moved, { [outer.axis]: o, [inner.axis]: i });
  const start = place(0, 0);
  const steps = { outer: place(1, 0) - start, inner: place(0, 1) - start };
  for (let o = 0; o < outer.extent; o++)
    for (let i = 0; i < inner.extent; i++)
      if (place(o, i) !== start + o * steps.outer + i * steps.inner) return undefined;
  return steps;
}

/** The line that replaces the two loops over a tile; undefined if they do anything else. */
export function turnedTile(copied: CopyLoops, c: CExpressions): readonly Code[] | undefined {
  const { loops, extents, dtype, to, from, tests, pointers } = copied;
  const [loop, inner, ...more] = loops;
  if (!loop || inner?.extent !== WORDS || more.length > 0 || loop.mode === "parallel") return undefined;
  const bytes = bytesOf(dtype);
  if (bytes >= WORD_BYTES || loop.extent * bytes !== WORDS * WORD_BYTES) return undefined;

  // 1. Addresses: element k of row n goes to word k/w of the transposed rows.
  const form = affineForm(from.at);
  const pitch = form?.terms.get(inner.axis);
  if (form?.terms.get(loop.axis) !== 1 || pitch === undefined) return undefined;
  const moved = movedBy(to.at, [loop.axis, inner.axis]);
  if (axesIn(moved).some((name) => name !== loop.axis && name !== inner.axis)) return undefined;
  const perWord = WORD_BYTES / bytes;
  const start = evaluateIndex(moved, { [loop.axis]: 0, [inner.axis]: 0 });
  for (let k = 0; k < loop.extent; k++)
    for (let n = 0; n < WORDS; n++) {
      const turned = loop.extent * Math.floor(k / perWord) + perWord * n + (k % perWord);
      if (evaluateIndex(moved, { [loop.axis]: k, [inner.axis]: n }) - start !== turned) return undefined;
    }

  // 2. The same elements must be excluded in every row.
  const isOfColumns = tests.every((test) => !axesIn(test).includes(inner.axis));
  const mask = isOfColumns ? masksOf(tests, loop.axis, c, extents) : undefined;
  if (mask === undefined) return undefined;
  const [destination, origin] = pointers();
  return [code`@turn_words<${bytes}>(${destination}, ${origin}, ${pitch * bytes}, ${mask});`];
}
