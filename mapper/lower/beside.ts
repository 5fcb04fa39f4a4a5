/**
 * @file Lowers the additional assignments of an epilogue: output elements that are computed from inputs alone, without
 * sums.
 *
 *     z[b,i*(i-1)/2+j+8] = c[b,i,j] where j < i, z[b,k] = x[b,0,k]
 *
 *       for parallel b_beside in 0..4, k_beside in 0..8
 *         z[b_beside,k_beside] = x[b_beside,0,k_beside]
 */

import type { Dimension } from "../../abstraction/affine.ts";
import { type Computation, identityIn, outputOf } from "../../abstraction/computation.ts";
import { writesAll } from "../../abstraction/elements.ts";
import { partsOf } from "../../abstraction/epilogue.ts";
import { access, axis, type Equation, number, substituteAxes } from "../../abstraction/expression.ts";
import { assignment, type FreshNames, loop, type Statement, scalar } from "../../abstraction/loop-nest.ts";

/** Loops over those elements, and over the elements of the output that no point writes; the outermost divided among threads. */
export function storedBeside(computation: Computation, names: FreshNames): readonly Statement[] {
  const { name, dims } = outputOf(computation);
  const target = access(
    name,
    dims.map((d) => axis(d.name)),
  );
  const cleared = assignment(target, number(identityIn(computation)));
  const isWhole = computation.epilogue !== undefined || writesAll(computation);
  return [
    ...(isWhole ? [] : assignedOver(cleared, dims, (d) => names.fresh(`${d}_clear`))),
    ...partsOf(computation).beside.flatMap(({ equation, axes }) =>
      assignedOver(equation, axes, (a) => names.fresh(`${a}_beside`)),
    ),
  ];
}

/** The same, and a barrier after them if there are any. */
export function storedBefore(computation: Computation, names: FreshNames): readonly Statement[] {
  const beside = storedBeside(computation, names);
  return beside.length > 0 ? [...beside, { kind: "barrier" }] : [];
}

function assignedOver(
  equation: Equation,
  axes: readonly Dimension[],
  counterOf: (axis: string) => string,
): readonly Statement[] {
  const placed = substituteAxes(equation, new Map(axes.map((a) => [a.name, axis(counterOf(a.name))])));
  return axes.reduceRight<readonly Statement[]>(
    (body, a, i) => [loop(counterOf(a.name), a.extent, body, i === 0 ? "parallel" : "serial")],
    [scalar(placed)],
  );
}
