/**
 * @file The one lowered program: what a mapping becomes, what the interpreter runs and every generator prints.
 *
 *     buffer a_tiles: u8[1024]
 *     for m_outer in 0..4
 *       for k_outer in 0..2
 *         c_tiles[256*m_outer ..] <- tdpbusd(a_tiles[1024*m_outer + 512*k_outer ..], b_tiles[512*k_outer ..])
 *
 * A scalar statement is an equation at the point its loops stand at, so the same notation serves from the operator down to the copy.
 * User tensors are read and written by logical index, outside reads giving the identity; scratch buffers are flat.
 */

import type { DType } from "./dtype.ts";
import { type Equation, printEquation } from "./equation.ts";
import { type Expr, printExpr } from "./expression.ts";
import type { Intrinsic } from "./intrinsic.ts";

/** Scratch memory of a nest, flat, starting at zero. */
export interface Scratch {
  readonly name: string;
  readonly dtype: DType;
  readonly elements: number;
}

export type Statement =
  | { readonly kind: "loop"; readonly axis: string; readonly extent: number; readonly body: readonly Statement[] }
  /** One scalar statement; its axes are bound by the loops around it. */
  | { readonly kind: "scalar"; readonly equation: Equation }
  /** One issue of an instruction on memory tiles that begin at the given elements. */
  | { readonly kind: "issue"; readonly intrinsic: Intrinsic; readonly tiles: Readonly<Record<string, TileAt>> };

/** A tile in a scratch buffer: the element it begins at. */
export interface TileAt {
  readonly buffer: string;
  readonly base: Expr;
}

export interface LoopNest {
  readonly scratch: readonly Scratch[];
  readonly body: readonly Statement[];
}

export const loop = (axis: string, extent: number, body: readonly Statement[]): Statement => ({
  kind: "loop",
  axis,
  extent,
  body,
});

/** Loops around a body, outermost first; loops of one step are kept, so that every axis stays bound. */
export function loops(
  axes: readonly { readonly name: string; readonly extent: number }[],
  body: readonly Statement[],
): readonly Statement[] {
  return axes.reduceRight<readonly Statement[]>((inner, { name, extent }) => [loop(name, extent, inner)], body);
}

/** The nest as text, for `explain` and for tests. */
export function printNest(nest: LoopNest): string {
  const lines = nest.scratch.map((s) => `buffer ${s.name}: ${s.dtype}[${s.elements}]`);
  const visit = (statements: readonly Statement[], depth: number): void => {
    const indent = "  ".repeat(depth);
    for (const s of statements) {
      switch (s.kind) {
        case "loop":
          lines.push(`${indent}for ${s.axis} in 0..${s.extent}`);
          visit(s.body, depth + 1);
          break;
        case "scalar":
          lines.push(`${indent}${printEquation(s.equation)}`);
          break;
        case "issue": {
          const text = (name: string): string => {
            const tile = s.tiles[name];
            return tile ? `${tile.buffer}[${printExpr(tile.base, "formula")} ..]` : "?";
          };
          const [target, ...inputs] = s.intrinsic.operands.map((o) => text(o.name));
          lines.push(`${indent}${target} <- ${s.intrinsic.name}(${inputs.join(", ")})`);
          break;
        }
        default:
          s satisfies never;
      }
    }
  };
  visit(nest.body, 0);
  return lines.join("\n");
}
