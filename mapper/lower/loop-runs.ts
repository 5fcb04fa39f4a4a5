/**
 * @file Loops that are contiguous in every tensor, and the choice of the loop that becomes the row.
 *
 *     y[n,c,p,q] = x[n,c,p,q] + b[c]       runs  n   c   p,q         the row is p,q: side by side in y and x, one element of b
 */

import { addressOf, affineForm } from "../../abstraction/affine.ts";
import { volumeOf } from "../../abstraction/collections.ts";
import { type Axis, type Computation, type Tensor, tensorOf } from "../../abstraction/computation.ts";
import { epilogueAt } from "../../abstraction/epilogue.ts";
import {
  type Access,
  accessesOf,
  axesIn,
  type Equation,
  type Expr,
  number,
  rewrite,
} from "../../abstraction/expression.ts";

/** Neighbouring loops of one kind that are walked as one, outermost first. */
export interface Run {
  readonly axes: readonly Axis[];
  readonly kind: Axis["kind"];
  readonly extent: number;
}

/** The distance in elements by which a step of each loop moves an access; undefined if it is not constant. */
type Strides = ReadonlyMap<string, number> | undefined;

interface Read {
  readonly access: Access;
  readonly tensor: Tensor;
  readonly strides: Strides;
}

/** What a point computes, and what an epilogue makes of it. */
const equationsOf = ({ equation, epilogue }: Computation): readonly Equation[] =>
  epilogue ? [equation, epilogueAt(epilogue, equation.target.index, number(0))] : [equation];

/** All accesses of a point to memory. With an epilogue, the sum itself is not one. */
function readsOf(computation: Computation): Read[] {
  return equationsOf(computation)
    .flatMap(accessesOf)
    .filter((a) => a.tensor !== computation.epilogue?.sum.name)
    .map((access) => {
      const tensor = tensorOf(computation, access.tensor);
      return { access, tensor, strides: affineForm(addressOf(tensor, access.index))?.terms };
    });
}

export function runsOf(computation: Computation): Run[] {
  const reads = readsOf(computation);
  const apart = axesApart(computation);
  const plain = ({ name, extent }: Axis): boolean =>
    !apart.has(name) &&
    reads.every(({ access, tensor }) =>
      access.index.every(
        (e, d) => !axesIn(e).includes(name) || (e.kind === "axis" && (tensor.dims[d]?.extent ?? 0) >= extent),
      ),
    );
  const follows = (outer: Axis, inner: Axis): boolean =>
    reads.every(
      ({ strides }) => strides && (strides.get(outer.name) ?? 0) === (strides.get(inner.name) ?? 0) * inner.extent,
    );
  const runs: Axis[][] = [];
  for (const a of computation.axes) {
    const last = runs.at(-1);
    const before = last?.at(-1);
    if (last && before && before.kind === a.kind && plain(before) && plain(a) && follows(before, a)) last.push(a);
    else runs.push([a]);
  }
  return runs.map(runOf);
}

export const runOf = (axes: readonly Axis[]): Run => ({
  axes,
  kind: axes[0]?.kind ?? "spatial",
  extent: volumeOf(axes),
});

/** Loops whose counters appear in values or conditions, outside tensor indices. */
function axesApart(computation: Computation): ReadonlySet<string> {
  const bare = (e: Expr): string[] =>
    axesIn(rewrite(e, (node) => (node.kind === "access" ? number(0) : node), "value"));
  return new Set(
    equationsOf(computation).flatMap(({ value, where }) => [...bare(value), ...(where ? axesIn(where) : [])]),
  );
}

/** A run with fewer steps is penalised as a row. */
const SHORT = 8;

/** The run to vectorise as the row: the one along which most tensors are contiguous. */
export function rowAmong(runs: readonly Run[], computation: Computation): Run | undefined {
  const reads = readsOf(computation);
  const costOf = ({ axes, kind, extent }: Run): number => {
    const innermost = axes.at(-1)?.name ?? "";
    const strides = reads.map((r) => (r.strides ? Math.abs(r.strides.get(innermost) ?? 0) : 2));
    // The partial sums of a summed row have to be combined at the end.
    const steps = strides.filter((s) => s > 1).length + (kind === "reduce" ? 1 : 0);
    return steps + (extent < SHORT ? reads.length : 0) - Math.min(extent, 1024) / 2048;
  };
  return runs.toSorted((a, b) => costOf(a) - costOf(b))[0];
}
