/**
 * @file Prints vectors whose elements are made of narrower ones in memory.
 *
 *     (f32(element[]) - 8) * s[n,g] of bytes            mul(sub(widened(b_tiles + ...), shared(8)), shared(s[...]))
 *     of half bytes, all lanes with one s[n,g]          picked(b_tiles + ..., mul(sub(numbers, shared(8)), shared(s[...])))
 *
 * What is made of half bytes in the same way in every lane is made of a table of the sixteen numbers, once for all loads that share it.
 */

import type { Extents } from "../../abstraction/affine.ts";
import type { DType } from "../../abstraction/dtype.ts";
import { internal } from "../../abstraction/error.ts";
import { type Access, accessesIn, axesIn, type Expr, number, substitute } from "../../abstraction/expression.ts";
import type { Operand } from "../../abstraction/intrinsic.ts";
import type { MadeElements } from "../../abstraction/loop-nest.ts";
import { type Code, code, filled, tensorName } from "../../abstraction/source-text.ts";
import { halfBytesOf, laneArithmetic, widenedLoad } from "../../targets/registers.ts";
import type { CExpressions } from "../c-expressions.ts";

interface Load {
  readonly operand: Operand;
  /** The type in memory. */
  readonly stored: DType;
  readonly ptr: Code;
}

export function madeValue(made: MadeElements, { operand, stored, ptr }: Load, c: CExpressions, extents: Extents): Code {
  const words = laneArithmetic(operand) ?? internal(`${operand.name} has no arithmetic on lanes`);
  const half = made.halves && halfBytesOf(operand);
  const widened = half ? half.loaded : widenedLoad(operand, stored);
  const load = widened ?? internal(`no load of ${operand.name} widens ${stored}`);
  const isElement = ({ tensor }: Access): boolean => tensor === made.element;
  const differs = ({ index }: Access): boolean => index.some((e) => axesIn(e).includes(made.lane));

  /** @param held the elements; undefined where they are still in memory */
  const vector = (e: Expr, held?: Code): Code => {
    const reads = accessesIn(e);
    const isAlike = !reads.some(differs);
    if (held === undefined && half?.table !== undefined && isAlike && reads.some(isElement))
      return filled(load, { ptr, table: vector(e, half.table) });
    if (isAlike && !reads.some(isElement)) return filled(words.shared, { value: c.value(e, operand.dtype, extents) });
    if (e.kind === "binary" && (e.op === "+" || e.op === "-" || e.op === "*")) {
      const word = words[e.op] ?? internal(`no ${e.op} of lanes of ${operand.name}`);
      return filled(word, { left: vector(e.left, held), right: vector(e.right, held) });
    }
    const [read] = reads;
    if (read === undefined || isElement(read)) return held ?? filled(load, { ptr });
    const first = substitute(read.index[0] ?? number(0), new Map([[made.lane, number(0)]]), "index");
    return filled(words.loaded, { ptr: code`(${tensorName(read.tensor)} + ${c.index(first, extents)})` });
  };
  return vector(made.value);
}
