/**
 * @file Border modes, which keep an index inside: `clamp`, `reflect` and `wrap` around the whole index of a dimension.
 *
 *     y[i] += x[clamp(i+r-1)] * w[r]        x[-1] is x[0]
 *     y[i] += x[reflect(i+r-1)] * w[r]      x[-1] is x[1]: the edge is not repeated
 *     y[i] += x[wrap(i+r-1)] * w[r]         x[-1] is x[n-1]
 *     y[i,j] = table[wrap(ids[i]),j]        the index may be an element: whatever it is, what is read lies inside
 *
 * `borderOp` of expression.ts defines them. The extent they use is that of the tensor's dimension and is filled in here.
 */

import { boundsOf, type Extents } from "./affine.ts";
import { UsageError } from "./error.ts";
import { accessesIn, type Equation, type Expr, printExpr, rewriteReads } from "./expression.ts";

/**
 * The extent of a dimension, from the indices that read it. Plain indices decide it where there are any. Otherwise the
 * reads are taken to cross both borders by the same distance: `clamp(i+r-1)` of 8 outputs and 3 taps runs from -1 to 8,
 * so the extent is 8.
 */
export function reachOf(indices: readonly Expr[], extents: Extents): number {
  const plain = indices.filter((e) => e.kind !== "border");
  if (plain.length > 0) return Math.max(...plain.map((e) => boundsOf(e, extents)[1] + 1), 1);
  const inner = indices.map((e) => (e.kind === "border" ? e.index : e));
  const read = inner.find((e) => e.kind === "access");
  if (read)
    throw new UsageError(
      `an index is read from a tensor, ${printExpr(read)}: give the shape of what it is an index of`,
      "as `shape` of the tensor, or --shape table=1000x16 on the command line",
    );
  const bounds = inner.map((e) => boundsOf(e, extents));
  const least = Math.min(0, ...bounds.map(([min]) => min));
  return Math.max(1, ...bounds.map(([, max]) => max + 1 + least));
}

/** The equation with the dimension's extent written into every border index. */
export function withExtents(
  equation: Equation,
  tensors: Readonly<Record<string, { readonly dims: readonly { readonly extent: number }[] }>>,
): Equation {
  if (accessesIn(equation.value).every((a) => a.index.every((i) => i.kind !== "border"))) return equation;
  const value = rewriteReads(equation.value, (read) => {
    const dims = tensors[read.tensor]?.dims;
    const index = read.index.map((i, d) => (i.kind === "border" ? { ...i, extent: dims?.[d]?.extent } : i));
    return { ...read, index };
  });
  return { ...equation, value };
}
