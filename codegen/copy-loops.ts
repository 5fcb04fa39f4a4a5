/**
 * @file Reads loops that only copy elements of one type, for the packing routines of C++.
 *
 *     for k_step, for n_inner: b_tiles[32*k_step + 2*n_inner] = (n_inner < 11 ? e[128*n_inner + 2*k_step] : 0)
 *       ->  loops k_step, n_inner; to b_tiles, from e, conditions n_inner < 11
 */

import type { Extents } from "../abstraction/affine.ts";
import { conjunctsOf } from "../abstraction/condition.ts";
import type { DType } from "../abstraction/dtype.ts";
import { type Expr, number, substitute } from "../abstraction/expression.ts";
import { type Code, code } from "../abstraction/source-text.ts";
import type { CExpressions, Place } from "./c-expressions.ts";
import { extentsIn, type Loop } from "./walk.ts";

export interface CopyLoops {
  /** Perfectly nested, outermost first. */
  readonly loops: readonly Loop[];
  readonly extents: Extents;
  readonly dtype: DType;
  /** Whether a condition excludes elements, besides the ends of the source. */
  readonly isMasked: boolean;
  readonly to: Place;
  readonly from: Place;
  /** Conditions for an element to be copied; a zero is stored elsewhere. */
  readonly tests: readonly Expr[];
  /** The address of the first destination and of the first source. @param moving axes that are at their first step */
  readonly pointers: (moving?: readonly string[]) => readonly [to: Code, from: Code];
}

/** Undefined for loops that do anything but copy elements, of which none is excluded from being written. */
export function copyLoops(loop: Loop, c: CExpressions, around: Extents): CopyLoops | undefined {
  const loops = [loop];
  for (;;) {
    const [only, ...others] = loops.at(-1)?.body ?? [];
    if (only === undefined || others.length > 0) return undefined;
    if (only.kind === "loop" && only.mode === "serial" && !only.range) {
      loops.push(only);
      continue;
    }
    if (only.kind !== "scalar") return undefined;
    const { target, op, value, where } = only.equation;
    const isMasked = value.kind === "select" && value.whenFalse.kind === "number" && value.whenFalse.value === 0;
    const source = isMasked ? value.whenTrue : value;
    const dtype = c.dtypes[target.tensor];
    if (op !== "=" || where !== undefined || source.kind !== "access") return undefined;
    if (dtype === undefined || c.dtypes[source.tensor] !== dtype) return undefined;
    const extents = { ...around, ...extentsIn(loops) };
    const to = c.placeOf(target, extents);
    const from = c.placeOf(source, extents);
    if (to.guards.length > 0) return undefined;
    const tests = [...(isMasked ? conjunctsOf(value.condition) : []), ...from.guards];
    const pointers = (moving: readonly string[] = loops.map((l) => l.axis)): readonly [Code, Code] => {
      const first = new Map(moving.map((name) => [name, number(0)]));
      const pointer = (tensor: string, at: Expr): Code =>
        code`${c.tensor(tensor)} + ${c.index(substitute(at, first, "index"), extents)}`;
      return [pointer(target.tensor, to.at), pointer(source.tensor, from.at)];
    };
    return { loops, extents, dtype, isMasked, to, from, tests, pointers };
  }
}
