/**
 * @file Packs a value that differs at one step of a loop: everything is packed with the one value first, then that step
 * is overwritten with the other. When several inputs are concatenated along a loop, each is thus copied directly,
 * without tests inside the loops.
 *
 *     select(j == 0, d[b,k], e[b,j-1,k])      ->      e[b,j-1,k] at every j, of which j = 0 lies outside;  then d[b,k] at j = 0
 */

import type { Dimension } from "../../abstraction/affine.ts";
import { axis, type Expr, number, plus } from "../../abstraction/expression.ts";
import type { Operand } from "../../abstraction/intrinsic.ts";
import type { FreshNames } from "../../abstraction/loop-nest.ts";
import type { LoopDimension } from "../schedule/dimensions.ts";

/** A `select` on one loop counter: the value at step `at` of that loop, and the value at all other steps. */
export interface Chosen {
  readonly dimension: LoopDimension;
  readonly at: number;
  readonly value: Expr;
  readonly otherwise: Expr;
}

/** The parts of such a `select`; undefined for any other value. The loop must be a dimension of its own. */
export function chosenIn(value: Expr, dimensions: readonly LoopDimension[]): Chosen | undefined {
  if (value.kind !== "select" || value.condition.kind !== "compare" || value.condition.op !== "==") return undefined;
  const { left, right } = value.condition;
  if (left.kind !== "axis" || right.kind !== "number") return undefined;
  const dimension = dimensions.find((d) => d.loops.length === 1 && d.loops[0]?.name === left.name);
  if (dimension === undefined || right.value < 0 || right.value >= dimension.extent) return undefined;
  return { dimension, at: right.value, value: value.whenTrue, otherwise: value.whenFalse };
}

/** The position of an element in its tile along each axis of the operand, and the loops over these positions. */
export function tileAxes(
  { dims }: Operand,
  names: FreshNames,
): { readonly inTile: ReadonlyMap<string, Expr>; readonly inner: readonly Dimension[] } {
  const innerName = (name: string): string => names.fresh(`${name}_inner`);
  return {
    inTile: new Map(dims.map((o) => [o.name, o.extent > 1 ? axis(innerName(o.name)) : number(0)])),
    inner: dims.map((o) => ({ name: innerName(o.name), extent: o.extent })),
  };
}

/** Some consecutive steps of a dimension. */
export interface Steps {
  readonly from: Expr;
  readonly count: number;
}

/**
 * Loops over the steps of dimensions and the elements of a tile, and the position they stand for.
 * @param only restricts one dimension to this step
 * @param stepsOf the steps to loop over, where they are not all
 */
export function tileWalk(
  operand: Operand,
  own: readonly LoopDimension[],
  names: FreshNames,
  only?: Pick<Chosen, "at" | "dimension">,
  stepsOf: (d: LoopDimension) => Steps | undefined = () => undefined,
): {
  readonly step: (d: LoopDimension) => Expr;
  readonly within: ReadonlyMap<string, Expr>;
  readonly walk: readonly Dimension[];
} {
  const { inTile, inner } = tileAxes(operand, names);
  const stepName = (d: LoopDimension): string => names.fresh(`${d.name}_step`);
  const step = (d: LoopDimension): Expr =>
    d === only?.dimension ? number(Math.floor(only.at / d.step)) : plus(stepsOf(d)?.from ?? 0, axis(stepName(d)));
  const fixed = only?.dimension.axis;
  const within = new Map(inTile);
  if (only && fixed !== undefined) within.set(fixed, number(only.at % only.dimension.step));
  const steps = own
    .filter((d) => d !== only?.dimension)
    .map((d) => ({ name: stepName(d), extent: stepsOf(d)?.count ?? d.steps }));
  return { step, within, walk: [...steps, ...inner.filter((_, i) => operand.dims[i]?.name !== fixed)] };
}
