/**
 * @file Prints rows of narrow results as two loops that a compiler vectorises with full vectors: computed in 32 bits
 * first, then narrowed.
 *
 *     for (long n_inner = 0; n_inner < 16; n_inner++) {
 *       res[...] = (uint8_t)...;
 *     }                                ->  { int32_t res_wide[16];
 *                                            for (...) res_wide[n_inner] = ...;
 *                                            for (...) res[...] = (uint8_t)(res_wide[n_inner]); }
 *
 * In a single loop g++ uses 16-byte vectors throughout and takes 2 to 3 times as long (requantisation of 14 tiles, g++
 * 12, Xeon with AVX-512, 2026-11-21). With AVX-512, rows are printed by rows-avx512.ts.
 */

import type { Extents } from "../../abstraction/affine.ts";
import { bytesOf, type DType, isInteger } from "../../abstraction/dtype.ts";
import type { Expr } from "../../abstraction/expression.ts";
import { C_TYPES } from "../../abstraction/kernel.ts";
import { type Code, code, tensorName } from "../../abstraction/source-text.ts";
import { typeOf } from "../../abstraction/typing.ts";
import type { CExpressions } from "../c-expressions.ts";
import type { Loop } from "../walk.ts";

/** Shorter rows are not worth two loops; longer ones would need too many cache lines. */
const ROW = { least: 8, most: 64 } as const;

/** The lines that replace a loop; undefined if it does not store computed values of a narrow type. */
export function wideRow({ axis, extent, body }: Loop, c: CExpressions, extents: Extents): Code[] | undefined {
  const [statement] = body;
  if (extent < ROW.least || extent > ROW.most || body.length !== 1 || statement?.kind !== "scalar") return undefined;
  const { target, op, value, where } = statement.equation;
  const dtype = c.dtypes[target.tensor];
  if (op !== "=" || where !== undefined || dtype === undefined || value.kind !== "cast") return undefined;
  const wide = wideOf(value, dtype, c);
  if (wide === undefined) return undefined;
  const { at, guards } = c.place(target, extents);
  if (guards.length > 0) return undefined;
  const name = tensorName(target.tensor).with("_wide");
  const element = code`${name}[${c.axis(axis)}]`;
  const held = c.value(wide.value, wide.dtype, extents);
  const narrow = isInteger(dtype) ? code`(${C_TYPES[dtype]})(${element})` : code`@to_${dtype}(${element})`;
  const each = code`for (long ${c.axis(axis)} = 0; ${c.axis(axis)} < ${extent}; ${c.axis(axis)}++)`;
  return [
    code`{ ${C_TYPES[wide.dtype]} ${name}[${extent}];`,
    code`  ${each} ${element} = ${held};`,
    code`  ${each} ${c.tensor(target.tensor)}[${at}] = ${narrow};`,
    code`}`,
  ];
}

/** The part that is computed in 32 bits, and its type; undefined for values that need no computation. */
function wideOf(
  value: Extract<Expr, { kind: "cast" }>,
  dtype: DType,
  c: CExpressions,
): { readonly value: Expr; readonly dtype: DType } | undefined {
  if (bytesOf(dtype) >= 4 || value.value.kind === "access") return undefined;
  if (isInteger(dtype)) return { value: { kind: "cast", dtype: "s32", saturate: false, value }, dtype: "s32" };
  return dtype === "bf16" && typeOf(value.value, c.dtypes) === "f32" ? { value: value.value, dtype: "f32" } : undefined;
}
