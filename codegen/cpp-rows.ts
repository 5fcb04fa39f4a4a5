/**
 * @file Loops that only convert a row of a scratch block, as calls of helpers that take 16 elements an instruction.
 *
 *     for (long n_inner = 0; n_inner < 16; n_inner++) {
 *       res[k_outer * 16 + n_inner] = to_bf16(c_results[16 * m_inner + n_inner]);
 *     }                                               ->  round_row(res + k_outer * 16, c_results + 16 * m_inner, 16);
 *
 * A compiler takes a row of 16 narrow elements for vectors of 16 or 32 bytes throughout, half or a quarter of what the wide side fills.
 */

import type { Extents } from "../abstraction/affine.ts";
import { axesIn, type Expr, number, substitute } from "../abstraction/expression.ts";
import type { CExpressions } from "./c-expressions.ts";
import type { Loop } from "./walk.ts";

/** Elements of a full vector of 32-bit numbers. */
const LANES = 16;

/** Helpers of cpp-helpers.ts by what they convert. */
const ROW_HELPERS: Readonly<Record<string, string>> = {
  "f32 to bf16": "round_row",
  "s32 to u8": "narrow_row",
  "s32 to s8": "narrow_row",
};

/** The call that stands for a loop; undefined when the loop does more than convert whole vectors that lie side by side. */
export function rowConversion(
  { axis, extent, body }: Loop,
  c: CExpressions,
  extents: Extents,
): readonly string[] | undefined {
  const [statement] = body;
  if (extent % LANES !== 0 || body.length !== 1 || statement?.kind !== "scalar") return undefined;
  const { target, op, value, where } = statement.equation;
  if (op !== "=" || where !== undefined || value.kind !== "cast" || value.saturate || value.value.kind !== "access")
    return undefined;
  const source = value.value;
  const helper = ROW_HELPERS[`${c.dtypes[source.tensor]} to ${value.dtype}`];
  if (helper === undefined || c.dtypes[target.tensor] !== value.dtype) return undefined;
  const [to, from] = [target, source].map((a) => ({ tensor: a.tensor, ...c.placeOf(a, extents) }));
  if (!to || !from || to.guards.length > 0 || from.guards.length > 0) return undefined;
  if (!isSideBySide(to.at, axis) || !isSideBySide(from.at, axis)) return undefined;
  const pointer = (tensor: string, at: Expr): string =>
    `${tensor} + ${c.index(substitute(at, new Map([[axis, number(0)]]), "index"), extents)}`;
  return [`${helper}(${pointer(to.tensor, to.at)}, ${pointer(from.tensor, from.at)}, ${extent});`];
}

/** Whether an index is a name plus what does not mention it. */
function isSideBySide(index: Expr, name: string): boolean {
  if (index.kind === "axis") return index.name === name;
  if (index.kind !== "binary" || index.op !== "+") return false;
  const [left, right] = [index.left, index.right].map((e) => axesIn(e).includes(name));
  if (left === right) return false;
  return isSideBySide(left ? index.left : index.right, name);
}
