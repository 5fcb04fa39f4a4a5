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

import { affineForm, type Extents, evaluateIndex } from "../abstraction/affine.ts";
import { conjunctsOf } from "../abstraction/condition.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { axesIn, type Expr, number, substitute } from "../abstraction/expression.ts";
import { type Code, code, join } from "../abstraction/source-text.ts";
import type { CExpressions } from "./c-expressions.ts";
import { maskOf, movedBy } from "./cpp-masked-rows.ts";
import type { Loop, Of } from "./walk.ts";

/** Words of a register, that is, columns. */
const WORDS = 16;
const WORD_BYTES = 4;

/** With fewer words in a row, transposing does not pay. */
const FEWEST = 8;

interface Chain {
  readonly loops: readonly Loop[];
  readonly statement: Of<"scalar">;
}

/** Perfectly nested serial loops around one assignment. */
function chainOf(loop: Loop): Chain | undefined {
  const [only, ...more] = loop.body;
  if (loop.mode !== "serial" || loop.range || more.length > 0) return undefined;
  if (only?.kind === "scalar") return { loops: [loop], statement: only };
  const inner = only?.kind === "loop" ? chainOf(only) : undefined;
  return inner && { ...inner, loops: [loop, ...inner.loops] };
}

/** The line that replaces such loops; undefined for any other loops. */
export function turnedColumns(loop: Loop, c: CExpressions, around: Extents): readonly Code[] | undefined {
  const chain = chainOf(loop);
  const inner = chain?.loops.at(-1);
  if (chain === undefined || inner?.extent !== WORDS || loop.extent < FEWEST) return undefined;
  const { target, op, value, where } = chain.statement.equation;
  const isMasked = value.kind === "select" && value.whenFalse.kind === "number" && value.whenFalse.value === 0;
  const source = isMasked ? value.whenTrue : value;
  if (op !== "=" || where !== undefined || source.kind !== "access") return undefined;
  const dtype = c.dtypes[target.tensor];
  if (dtype === undefined || c.dtypes[source.tensor] !== dtype || bytesOf(dtype) > WORD_BYTES) return undefined;
  const perWord = WORD_BYTES / bytesOf(dtype);
  const within = perWord === 1 ? undefined : chain.loops[1];
  if (chain.loops.length !== (within ? 3 : 2) || (within && within.extent !== perWord)) return undefined;

  // 1. Element q of word k of row n comes from n*pitch + k*perWord + q, and goes to k*row + n*perWord + q.
  const names = chain.loops.map((l) => l.axis);
  const extents = { ...around, ...Object.fromEntries(chain.loops.map((l) => [l.axis, l.extent])) };
  const to = c.placeOf(target, extents);
  const from = c.placeOf(source, extents);
  const form = affineForm(from.at);
  const pitch = form?.terms.get(inner.axis);
  if (to.guards.length > 0 || pitch === undefined || form?.terms.get(loop.axis) !== perWord) return undefined;
  if (within && form.terms.get(within.axis) !== 1) return undefined;
  const moved = movedBy(to.at, names);
  if (axesIn(moved).some((name) => !names.includes(name))) return undefined;
  const place = (k: number, q: number, n: number): number =>
    evaluateIndex(moved, { [loop.axis]: k, ...(within && { [within.axis]: q }), [inner.axis]: n });
  const start = place(0, 0, 0);
  const row = place(1, 0, 0) - start;
  if (row < WORDS * perWord) return undefined;
  for (let k = 0; k < loop.extent; k++)
    for (let q = 0; q < perWord; q++)
      for (let n = 0; n < WORDS; n++) if (place(k, q, n) !== start + k * row + n * perWord + q) return undefined;

  // 2. Only whole rows may be excluded.
  const tests = [...(isMasked ? conjunctsOf(value.condition) : []), ...from.guards];
  const masks: Code[] = [];
  for (const test of tests) {
    const isOfRows = axesIn(test).every((name) => name === inner.axis || !names.includes(name));
    const mask = isOfRows ? maskOf(test, inner.axis, c, extents) : undefined;
    if (mask === undefined) return undefined;
    masks.push(mask);
  }
  const first = new Map(names.map((name) => [name, number(0)]));
  const pointer = (tensor: string, at: Expr): Code =>
    code`${c.tensor(tensor)} + (${c.index(substitute(at, first, "index"), extents)})`;
  const bytes = bytesOf(dtype);
  const mask = masks.length === 0 ? code`~0ull` : join(masks, code` & `);
  return [
    code`@turn_columns(${pointer(target.tensor, to.at)}, ${row * bytes}, ${pointer(source.tensor, from.at)}, ${pitch * bytes}, ${mask}, ${loop.extent});`,
  ];
}
