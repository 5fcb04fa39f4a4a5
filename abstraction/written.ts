/**
 * @file Checks that the equations of an epilogue together write each element of the output exactly once.
 *
 *     z[b,i*(i-1)/2+j+128] = bf16(c[b,i,j]) where j < i, z[b,k] = d[b,k]         b 0..31, k 0..127, i and j 0..26: z is 32 x 479
 *
 * Indices that share an axis are examined together, point by point; an index with an axis of its own is treated as a range.
 */

import { boundsOf, type Extents, evaluateIndex, pointsOf, pointsOver, shapeOf } from "./affine.ts";
import { product, sumOf, unique, upTo } from "./collections.ts";
import type { Tensor } from "./computation.ts";
import { conjunctsOf } from "./condition.ts";
import { UsageError } from "./error.ts";
import { type Access, axesIn, type Equation, type Expr, printAccess } from "./expression.ts";
import { spanOf } from "./parse.ts";

/** Largest number of points of indices that share axes; larger ones are refused. */
const MOST_POINTS = 1_000_000;

/** Dimensions whose indices share axes, and the positions written along them. */
interface Group {
  readonly dimensions: readonly number[];
  readonly count: number;
  /** Positions along each dimension, in the order of `dimensions`; undefined for all positions from 0 on. */
  readonly places: readonly ReadonlySet<number>[] | undefined;
}

/**
 * The smallest shape that holds everything that the equations write.
 * @param given shape of the output; the smallest when left out
 * @throws UsageError when an element is written never or several times, or lies outside
 */
export function writtenShape(
  subject: string,
  equations: readonly { readonly equation: Equation; readonly extents: Extents }[],
  given?: readonly number[],
): number[] {
  const fail = (because: string, { target }: Equation): never => {
    throw new UsageError(`${subject}: epilogue: ${because}`, spanOf(target));
  };
  const written = equations.map(({ equation, extents }) => {
    for (const c of conjunctsOf(equation.where))
      if (axesIn(c).length === 0 && evaluateIndex(c, {}) === 0)
        fail(`no element of ${printAccess(equation.target)} is written: its condition never holds`, equation);
    return { equation, groups: groupsOf(equation).map((g) => placesOf(subject, equation, g, extents)) };
  });
  const first = written[0]?.equation.target;
  const rank = first?.index.length ?? 0;
  const shape = upTo(rank).map((d) => Math.max(...written.map(({ groups }) => endsOf(placesAlong(groups, d))[1] + 1)));
  for (const { equation, groups } of written)
    for (const [d, size] of (given ?? shape).entries())
      for (const at of endsOf(placesAlong(groups, d)))
        if (at < 0 || at >= size)
          fail(
            `${printAccess(equation.target)} is written at ${at} of dimension ${d + 1}, which has ${size}`,
            equation,
          );
  const whole = given ?? shape;
  for (const [i, { equation, groups }] of written.entries())
    for (const before of written.slice(0, i))
      if (!shape.some((_, d) => areApart(placesAlong(groups, d), placesAlong(before.groups, d))))
        fail(
          `${printAccess(equation.target)} and ${printAccess(before.equation.target)} write the same elements`,
          equation,
        );
  const points = sumOf(written, ({ groups }) => product(groups.map((g) => g.count)));
  const elements = product(whole);
  if (points !== elements && written[0])
    fail(
      `${points} of the ${elements} elements of ${first?.tensor} are written, of shape ${whole.join(" x ")}`,
      written[0].equation,
    );
  return [...whole];
}

/** Dimensions of a target, grouped by shared axes. */
function groupsOf({ target }: Equation): number[][] {
  const groups: { axes: Set<string>; dimensions: number[] }[] = [];
  for (const [d, e] of target.index.entries()) {
    const axes = axesIn(e);
    const sharing = groups.filter((g) => axes.some((a) => g.axes.has(a)));
    const joined = {
      axes: new Set([...sharing.flatMap((g) => [...g.axes]), ...axes]),
      dimensions: [...sharing.flatMap((g) => g.dimensions), d],
    };
    groups.splice(0, groups.length, ...groups.filter((g) => !sharing.includes(g)), joined);
  }
  return groups.map((g) => g.dimensions);
}

function placesOf(
  subject: string,
  { target, where }: Equation,
  dimensions: readonly number[],
  extents: Extents,
): Group {
  const indices = dimensions.map((d): Expr => target.index[d] ?? target);
  const axes = unique(indices.flatMap((e) => axesIn(e)));
  const conditions = conjunctsOf(where);
  const own = conditions.filter((c) => axesIn(c).some((a) => axes.includes(a)));
  const fail = (because: string, place: Expr): never => {
    throw new UsageError(`${subject}: epilogue: ${because}`, spanOf(place));
  };
  const [index] = indices;
  const count = pointsOver(axes, extents);
  if (own.length === 0 && indices.length === 1 && index?.kind === "axis")
    return { dimensions, count, places: undefined };
  const stray = own.find((c) => axesIn(c).some((a) => !axes.includes(a)));
  if (stray) fail(`its condition ties axes of separate dimensions of ${printAccess(target)}`, target);
  if (count > MOST_POINTS)
    fail(`${count} points of ${printAccess(target)} are too many to see whether each element is written once`, target);
  const seen = new Set<string>();
  const places = indices.map(() => new Set<number>());
  for (const point of pointsOf(axes, extents)) {
    if (own.some((c) => evaluateIndex(c, point) === 0)) continue;
    const at = indices.map((e) => evaluateIndex(e, point));
    if (seen.has(at.join())) fail(`several points write one element of ${printAccess(target)}`, target);
    seen.add(at.join());
    for (const [i, place] of at.entries()) places[i]?.add(place);
  }
  return { dimensions, count: seen.size, places };
}

type Places = ReadonlySet<number> | { readonly below: number };

function placesAlong(groups: readonly Group[], dimension: number): Places {
  const group = groups.find((g) => g.dimensions.includes(dimension));
  return group?.places?.[group.dimensions.indexOf(dimension)] ?? { below: group?.count ?? 0 };
}

/** The first and last position. */
function endsOf(places: Places): readonly [number, number] {
  if ("below" in places) return [0, places.below - 1];
  return [...places].reduce(([low, high], at) => [Math.min(low, at), Math.max(high, at)], [0, -1] as readonly [
    number,
    number,
  ]);
}

function areApart(some: Places, others: Places): boolean {
  const [few, more] = "below" in some ? [others, some] : [some, others];
  if ("below" in few) return Math.min(few.below, "below" in more ? more.below : 0) <= 0;
  return [...few].every((at) => ("below" in more ? at < 0 || at >= more.below : !more.has(at)));
}

/** An epilogue reads and writes only inside its tensors; only sums have padding. */
export function checkInside(subject: string, read: Access, tensor: Tensor, extents: Extents): void {
  for (const [d, e] of read.index.entries()) {
    const [min, max] = boundsOf(e, extents);
    const extent = tensor.dims[d]?.extent ?? 0;
    if (read.index.length !== tensor.dims.length || min < 0 || max >= extent)
      throw new UsageError(
        `${subject}: ${printAccess(read)} lies outside ${tensor.name}, of shape ${shapeOf(tensor).join(" x ")}`,
        spanOf(read),
      );
  }
}

/** An epilogue writes every element of its target, so its shape cannot exceed that of the sum. */
export function checkWritten(subject: string, target: Access, { name, dims }: Tensor, extents: Extents): void {
  const sizes = target.index.map((e) => boundsOf(e, extents)[1] + 1);
  const shape = shapeOf({ dims }).join(" x ");
  if (shape !== sizes.join(" x "))
    throw new UsageError(
      `${subject}: epilogue: ${name} has shape ${shape}, and ${sizes.join(" x ")} elements are written`,
      { ...spanOf(target), hint: "give it the shape of the sum" },
    );
}
