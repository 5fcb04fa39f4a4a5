/**
 * @file A tile whose instruction holds words of consecutive elements side by side, packed from rows of them: 16 rows of 16 words, turned in
 * registers.
 *
 *     for (long k_inner = 0; k_inner < 64; k_inner++) {
 *       for (long n_inner = 0; n_inner < 16; n_inner++) {
 *         b_tiles[64 * (k_inner / 4) + 4 * n_inner + k_inner % 4] = y[96 * n_inner + k_inner];
 *       }
 *     }                                          ->  turn_words<1>(b_tiles, y, 96, ~0ull);
 *
 * As loops g++ moves the elements one by one: 0.23 ns each, against 0.02 (Xeon with AMX, g++ 12, 2026-11-22).
 */

import { affineForm, type Extents, evaluateIndex } from "../abstraction/affine.ts";
import { conjunctsOf } from "../abstraction/condition.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { axesIn, type Expr, number, substitute } from "../abstraction/expression.ts";
import { type Code, code, join } from "../abstraction/source-text.ts";
import type { CExpressions } from "./c-expressions.ts";
import { maskOf, movedBy } from "./cpp-masked-rows.ts";
import type { Loop } from "./walk.ts";

/** Words of a row, rows, and bytes of a word. */
const WORDS = 16;
const WORD_BYTES = 4;

/** The line that stands for the two loops over a tile; undefined when they do anything else. */
export function turnedTile(loop: Loop, c: CExpressions, around: Extents): readonly Code[] | undefined {
  const [inner] = loop.body;
  if (loop.body.length !== 1 || inner?.kind !== "loop" || inner.mode !== "serial" || inner.range) return undefined;
  const [statement] = inner.body;
  if (inner.body.length !== 1 || statement?.kind !== "scalar" || inner.extent !== WORDS) return undefined;
  const { target, op, value, where } = statement.equation;
  const isMasked = value.kind === "select" && value.whenFalse.kind === "number" && value.whenFalse.value === 0;
  const source = isMasked ? value.whenTrue : value;
  if (op !== "=" || where !== undefined || source.kind !== "access") return undefined;
  const dtype = c.dtypes[target.tensor];
  if (dtype === undefined || c.dtypes[source.tensor] !== dtype) return undefined;
  const bytes = bytesOf(dtype);
  if (bytes >= WORD_BYTES || loop.extent * bytes !== WORDS * WORD_BYTES) return undefined;

  // 1. Places: element k of row n goes to word k/w of the turned rows.
  const extents = { ...around, [loop.axis]: loop.extent, [inner.axis]: inner.extent };
  const [to, from] = [c.placeOf(target, extents), c.placeOf(source, extents)];
  const form = affineForm(from.at);
  const pitch = form?.terms.get(inner.axis);
  if (to.guards.length > 0 || form?.terms.get(loop.axis) !== 1 || pitch === undefined) return undefined;
  const moved = movedBy(to.at, [loop.axis, inner.axis]);
  if (axesIn(moved).some((name) => name !== loop.axis && name !== inner.axis)) return undefined;
  const perWord = WORD_BYTES / bytes;
  const start = evaluateIndex(moved, { [loop.axis]: 0, [inner.axis]: 0 });
  for (let k = 0; k < loop.extent; k++)
    for (let n = 0; n < WORDS; n++) {
      const turned = loop.extent * Math.floor(k / perWord) + perWord * n + (k % perWord);
      if (evaluateIndex(moved, { [loop.axis]: k, [inner.axis]: n }) - start !== turned) return undefined;
    }

  // 2. What is left out is the same in every row.
  const tests = [...(isMasked ? conjunctsOf(value.condition) : []), ...from.guards];
  const masks: Code[] = [];
  for (const test of tests) {
    const mask = axesIn(test).includes(inner.axis) ? undefined : maskOf(test, loop.axis, c, extents);
    if (mask === undefined) return undefined;
    masks.push(mask);
  }
  const first = new Map([loop.axis, inner.axis].map((name) => [name, number(0)]));
  const pointer = (tensor: string, at: Expr): Code =>
    code`${c.tensor(tensor)} + ${c.index(substitute(at, first, "index"), extents)}`;
  const mask = masks.length === 0 ? code`~0ull` : join(masks, code` & `);
  return [
    code`turn_words<${bytes}>(${pointer(target.tensor, to.at)}, ${pointer(source.tensor, from.at)}, ${pitch * bytes}, ${mask});`,
  ];
}
