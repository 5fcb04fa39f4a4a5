/**
 * @file Rewrites a computation that reads outside its tensors, so that the border becomes part of the inputs.
 *
 *     out[p] += w[r] * in[p + r - 1]      p < 56, r < 3      ->      in[p + r]      in[58]: 0, the 56 elements, 0
 *
 * Without a test of each read, a compiler vectorises the loops; the tests would cost more than the arithmetic.
 */

import { boundsOf, extentsBy, rowMajor } from "../../abstraction/affine.ts";
import { mapValues } from "../../abstraction/collections.ts";
import { type Computation, elementCount, inputsOf, type Tensor, targetOf } from "../../abstraction/computation.ts";
import { rangeOf } from "../../abstraction/dtype.ts";
import { accessesIn, type Expr, identityOf, number, rewrite } from "../../abstraction/expression.ts";

interface Padded {
  readonly computation: Computation;
  /**
   * For each input with a border, the smallest index read along each dimension, 0 or negative. Its memory begins there.
   */
  readonly low: ReadonlyMap<string, readonly number[]>;
}

/**
 * The most that a border may enlarge a tensor. With a larger border, a condition probably excludes most of it, and
 * tests are kept.
 */
const MOST_GROWTH = 2;

/** @param computation without epilogue */
export function padded(computation: Computation): Padded {
  const { equation } = computation;
  const identity = identityOf(equation.op, targetOf(computation).dtype);
  const borders = new Map(
    inputsOf(computation).flatMap((tensor) => {
      const border = borderOf(tensor, computation);
      const [least, most] = rangeOf(tensor.dtype);
      const grown = border?.high.reduce((product, high, d) => product * (high - (border.low[d] ?? 0) + 1), 1);
      const fits =
        identity >= least && identity <= most && grown !== undefined && grown <= MOST_GROWTH * elementCount(tensor);
      return border && fits ? [[tensor.name, border] as const] : [];
    }),
  );
  if (borders.size === 0) return { computation, low: new Map() };
  const shifted = (e: Expr): Expr =>
    rewrite(e, (node) => {
      const low = node.kind === "access" ? borders.get(node.tensor)?.low : undefined;
      if (node.kind !== "access" || !low) return node;
      const index = node.index.map((part, d): Expr => {
        const border = -(low[d] ?? 0);
        return border === 0 ? part : { kind: "binary", op: "+", left: part, right: number(border) };
      });
      return { ...node, index };
    });
  const tensors = mapValues(computation.tensors, (tensor) => {
    const border = borders.get(tensor.name);
    if (!border) return tensor;
    const dims = tensor.dims.map((dim, d) => ({ ...dim, extent: (border.high[d] ?? 0) - (border.low[d] ?? 0) + 1 }));
    return { ...tensor, dims, storage: rowMajor(dims) };
  });
  return {
    computation: { ...computation, tensors, equation: { ...equation, value: shifted(equation.value) } },
    low: new Map([...borders].map(([name, { low }]) => [name, low])),
  };
}

interface Border {
  /**
   * The smallest index read along each dimension, 0 or negative, and the largest, at least that of the last element.
   */
  readonly low: readonly number[];
  readonly high: readonly number[];
}

/** Whether an index of a tensor may be outside, according to the bounds of its parts. */
export function isReachedOutside(tensor: Tensor, computation: Computation): boolean {
  return borderOf(tensor, computation) !== undefined;
}

/** Undefined if nothing outside is read or written. */
function borderOf({ name, dims }: Tensor, { equation, axes }: Computation): Border | undefined {
  const extents = extentsBy(axes);
  const low = dims.map(() => 0);
  const high = dims.map(({ extent }) => extent - 1);
  for (const { tensor, index } of [equation.target, ...accessesIn(equation.value)]) {
    if (tensor !== name) continue;
    index.forEach((part, d) => {
      const [least, most] = boundsOf(part, extents);
      low[d] = Math.min(low[d] ?? 0, least);
      high[d] = Math.max(high[d] ?? 0, most);
    });
  }
  const isOutside = low.some((least) => least < 0) || high.some((most, d) => most >= (dims[d]?.extent ?? 0));
  return isOutside ? { low, high } : undefined;
}
