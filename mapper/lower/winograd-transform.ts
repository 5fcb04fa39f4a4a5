/**
 * @file Lowers one of Winograd's transforms (abstraction/winograd.ts) to loops, one dimension of its windows after the other.
 *
 *     v[x,y,t,c] += B(x,i) * B(y,j) * in[4*t+i,j,c]          36 products for each of 36 elements; B is written out as numbers
 *
 *     ->  for parallel t, for each x, j:    half[x,j,row] = 4*in[4*t,j,row] - 5*in[4*t+2,j,row] + in[4*t+4,j,row]
 *                         for each x, y:    v[x,y,t,row] = 4*half[x,0,row] - 5*half[x,2,row] + half[x,4,row]
 *
 * These are mode products (Kolda and Bader, Tensor Decompositions and Applications, SIAM Review 2009, section 2.5). Terms whose coefficient is 0 are
 * dropped.
 */

import { extentOf, splitRowMajor } from "../../abstraction/affine.ts";
import { upTo, volumeOf } from "../../abstraction/collections.ts";
import { extentsOf, keptIn } from "../../abstraction/computation.ts";
import { allOf } from "../../abstraction/condition.ts";
import { storingAt } from "../../abstraction/epilogue.ts";
import { internal } from "../../abstraction/error.ts";
import {
  type Access,
  access,
  accessesIn,
  accessesOf,
  axis,
  compare,
  type Equation,
  type Expr,
  minus,
  number,
  plus,
  rewrite,
  substitute,
  substituteAxes,
  times,
} from "../../abstraction/expression.ts";
import { assignment, FreshNames, loop, type Scratch, type Statement, scalar } from "../../abstraction/loop-nest.ts";
import type { Matrix, WinogradTransform } from "../../abstraction/winograd.ts";
import { when } from "../match/conditions.ts";
import { divisor } from "./loop-rows.ts";
import type { PlainLoops } from "./loops.ts";

/** Windows side by side where vectors do not divide them. A row of windows and their intermediate results stay in L1. */
const ROW = 64;

/** The steps of a kept axis, or of its windows, that loops around a nest choose: `count` from `first` on, of `of` in all. */
export interface Chosen {
  readonly first: Expr;
  readonly count: number;
  readonly of: number;
}

/**
 * @param lanes windows side by side that are computed together: those of one vector, if vectors divide them. With rows of four vectors a kernel
 *   for 64 channels took 1.09 times as long, and its source is 1.4 times as large (Zen 5, 2026-11-30).
 * @param chosen by kept axis; all steps of the others
 */
export function lowerTransform(
  { computation, matrix, sides, row }: WinogradTransform,
  lanes: number,
  chosen: ReadonlyMap<string, Chosen> = new Map(),
): PlainLoops {
  const extents = extentsOf(computation);
  const names = new FreshNames(computation);
  const inside = new Set<Access>();
  const [source = internal(`${computation.name} reads nothing`)] = accessesIn(computation.equation.value);
  const counter = names.fresh("row");
  const beside = extentOf(row, extents);
  const steps = beside % lanes === 0 ? lanes : Math.min(beside, divisor(beside, ROW) ?? ROW);
  const columns = matrix[0]?.length ?? 0;
  const isSide = (name: string): boolean => sides.some((side) => side.row === name);

  // 1. The value of each loop of the computation in terms of the loops of the nest; for the rows of the matrix, the window.
  const rest = names.fresh("rest");
  const digits = [
    ...keptIn(computation.axes).flatMap(({ name, extent }) => {
      const { count } = chosen.get(name) ?? {};
      if (name === row || (isSide(name) && count === undefined && extent === matrix.length)) return [];
      return [{ name, extent: count ?? (isSide(name) ? Math.ceil(extent / matrix.length) : extent) }];
    }),
    { name: row, extent: Math.ceil(beside / steps) },
  ];
  const places = new Map<string, Expr>(sides.map((side) => [side.row, number(0)]));
  for (const [{ name }, digit] of splitRowMajor(axis(rest), digits))
    places.set(name, plus(chosen.get(name)?.first ?? 0, digit));
  const placeOf = (name: string): Expr => places.get(name) ?? internal(`${computation.name} has no ${name}`);
  const begin = times(placeOf(row), steps);
  places.set(row, plus(begin, axis(counter)));
  const overRow = (equation: Equation): Statement => {
    const over = loop(counter, steps, [scalar(equation)]);
    return beside % steps === 0 ? over : { ...over, range: { from: [], to: [minus(beside, begin)] } };
  };

  // 2. One dimension after the other.
  const half: Scratch = {
    name: names.fresh("half"),
    dtype: "f32",
    elements: matrix.length * columns * steps,
    scope: "local",
  };
  const held = (x: number, j: number): Access => access(half.name, [plus((x * columns + j) * steps, axis(counter))]);
  const read = (i: number, j: number): Access => {
    const window = rewrite(source, (e) => (e.kind === "binary" && e.op === "/" ? e.left : e), "value");
    const at = sides.map(({ column }, d) => [column, number(d === 0 ? i : j)] as const);
    const placed = substitute(window, new Map([...places, ...at]), "value");
    if (placed.kind !== "access") internal("an element stays one");
    inside.add(placed);
    return placed;
  };
  /** Stores an output element, with a test if its window reaches beyond the edge. */
  const stored = (value: Expr, ...at: readonly [number, number]): readonly Statement[] => {
    const kept = sides.map(
      ({ row: name }, d) => [name, plus(times(placeOf(name), matrix.length), at[d] ?? 0)] as const,
    );
    const made = storingAt(computation, computation.equation.target.index, value);
    const whole = substituteAxes(made, new Map([...places, ...kept]));
    for (const element of accessesOf(whole)) inside.add(element);
    const edges = kept.flatMap(([name, index]) => {
      const extent = extentOf(name, extents);
      const windows = chosen.get(name)?.of ?? Math.ceil(extent / matrix.length);
      return windows * matrix.length > extent ? [compare("<", index, extent)] : [];
    });
    return when(allOf(edges), [overRow(whole)]);
  };
  const body = [
    ...matrix.flatMap((factors, x) =>
      upTo(columns).map((j) =>
        overRow(
          assignment(
            held(x, j),
            combined(factors, (i) => read(i, j)),
          ),
        ),
      ),
    ),
    ...matrix.flatMap((_, x) =>
      matrix.flatMap((factors, y) =>
        stored(
          combined(factors, (j) => held(x, j)),
          x,
          y,
        ),
      ),
    ),
  ];
  return {
    nest: { scratch: [half], registers: [], prepare: [], body: [loop(rest, volumeOf(digits), body, "parallel")] },
    inside,
  };
}

/** `4*a - 5*b + c`. Terms with factor 0 are omitted. */
function combined(factors: Matrix[number], termAt: (i: number) => Access): Expr {
  // Begins with a positive term, so that no negation is needed.
  const counted = factors
    .map((factor, i) => ({ factor, i }))
    .filter(({ factor }) => factor !== 0)
    .toSorted((a, b) => Number(b.factor > 0) - Number(a.factor > 0));
  const scaled = (factor: number, i: number): Expr =>
    factor === 1 ? termAt(i) : { kind: "binary", op: "*", left: number(factor), right: termAt(i) };
  return (
    counted.reduce<Expr | undefined>(
      (sum, { factor, i }) =>
        sum === undefined
          ? scaled(factor, i)
          : { kind: "binary", op: factor < 0 ? "-" : "+", left: sum, right: scaled(Math.abs(factor), i) },
      undefined,
    ) ?? number(0)
  );
}
