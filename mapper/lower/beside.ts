/**
 * @file Lowers the additional assignments of an epilogue: output elements that are computed from inputs alone, without
 * sums.
 *
 *     z[b,i*(i-1)/2+j+8] = c[b,i,j] where j < i, z[b,k] = x[b,0,k]
 *
 *       for parallel b_beside in 0..4, k_beside in 0..8
 *         z[b_beside,k_beside] = x[b_beside,0,k_beside]
 */

import type { Computation } from "../../abstraction/computation.ts";
import { partsOf } from "../../abstraction/epilogue.ts";
import { substituteAxes } from "../../abstraction/equation.ts";
import { axis } from "../../abstraction/expression.ts";
import { loop, type Statement } from "../../abstraction/loop-nest.ts";
import type { FreshNames } from "./names.ts";

/** Loops over those elements, the outermost divided among threads; empty if there are none. */
export function storedBeside(computation: Computation, names: FreshNames): readonly Statement[] {
  return partsOf(computation).beside.flatMap(({ equation, axes }) => {
    const counters = new Map(axes.map((a) => [a.name, names.fresh(`${a.name}_beside`)]));
    const placed = substituteAxes(equation, new Map([...counters].map(([name, counter]) => [name, axis(counter)])));
    return axes.reduceRight<Statement[]>(
      (body, a, i) => [loop(counters.get(a.name) ?? a.name, a.extent, body, i === 0 ? "parallel" : "serial")],
      [{ kind: "scalar", equation: placed }],
    );
  });
}
