/**
 * @file The contents of an input's copy: the parts that are written, as loops over ranges. The rest stays zero.
 *
 *     in[n,c,p*2+r-3,q*2+s-3], 224 wide, windowed: q and s lie apart
 *       q 2..110 with s 0..6        nothing outside, nothing tested
 *       q 0 with s 3..6             q 1 with s 1..6             q 111 with s 0..4
 */

import { boundsOf } from "../../abstraction/affine.ts";
import type { Tensor } from "../../abstraction/computation.ts";
import { type Access, axesIn, number, substitute } from "../../abstraction/expression.ts";
import type { PaddedCopy } from "../schedule/reach.ts";
import type { Moved } from "../schedule/within.ts";

/** Some of the values of a loop. */
export interface Range {
  readonly from: number;
  readonly count: number;
}

/** A part of a copy: ranges of the indices it holds, `from` counted in the tensor, and of the loops it lays apart. */
export interface CopyPart {
  readonly held: readonly (PaddedCopy["dims"][number] & { readonly from: number })[];
  readonly apart: readonly (PaddedCopy["apart"][number] & { readonly from: number })[];
}

/**
 * The parts of a copy that are written, none of them twice.
 * @param moved how loops around the copy move it: what they move is written whole, zeros for what is outside this time
 */
export function copyParts(tensor: Tensor, bound: Access, copy: PaddedCopy, moved: Moved): readonly CopyPart[] {
  const held = copy.dims.map((c) => {
    const position = tensor.dims.findIndex((d) => d.name === c.name);
    if (moved.moves(bound.index[position] ?? number(0))) return { ...c, from: c.low };
    const from = Math.max(0, c.low);
    const to = Math.min(tensor.dims[position]?.extent ?? 0, c.low + c.extent);
    return { ...c, from, extent: Math.max(0, to - from) };
  });
  return interiors(tensor, bound, copy, moved)
    .map((ranges) => ({
      held,
      apart: copy.apart.map((l) => {
        const range = ranges.get(l.name);
        return { ...l, from: range?.from ?? 0, extent: range?.count ?? l.extent };
      }),
    }))
    .filter((part) => elementsOf(part) > 0);
}

/** Elements a part writes. */
export function elementsOf({ held, apart }: CopyPart): number {
  return [...held, ...apart].reduce((product, { extent }) => product * extent, 1);
}

type Ranges = ReadonlyMap<string, Range>;

/** Most values of a loop at a border that are written out one by one. */
const EDGE_VALUES = 8;

/**
 * Ranges of the loops that lie apart: of an index that leaves the tensor the first loop is split, so that in one of the ranges nothing is
 * outside. Of the values before and behind it, each leaves out what is outside by itself; where they are many, or more than two loops
 * meet, what is outside is tested.
 */
function interiors(tensor: Tensor, bound: Access, copy: PaddedCopy, moved: Moved): readonly Ranges[] {
  const extents = Object.fromEntries(copy.apart.map((l) => [l.name, l.extent]));
  let all: Ranges[] = [new Map()];
  for (const [i, index] of bound.index.entries()) {
    const [first, second, ...others] = copy.apart.filter((l) => axesIn(index).includes(l.name));
    if (!first || moved.moves(index)) continue;
    const extent = tensor.dims[i]?.extent ?? 0;
    const isInside = (...known: readonly (readonly [string, number])[]): boolean => {
      const values = new Map(known.map(([name, value]) => [name, number(value)]));
      const [min, max] = boundsOf(substitute(index, values, "index"), extents);
      return min >= 0 && max < extent;
    };
    const whole = insideOf(first.extent, (value) => isInside([first.name, value]));
    const end = whole.from + whole.count;
    const sides = [
      { from: 0, count: whole.from },
      { from: end, count: first.extent - end },
    ];
    const each = second !== undefined && others.length === 0 && first.extent - whole.count <= EDGE_VALUES;
    const edges = sides.flatMap((side): Ranges[] => {
      if (!each) return [new Map([[first.name, side]])];
      return Array.from({ length: side.count }, (_, n) => {
        const value = side.from + n;
        const inside = insideOf(second.extent, (other) => isInside([first.name, value], [second.name, other]));
        return new Map([
          [first.name, { from: value, count: 1 }],
          [second.name, inside],
        ]);
      });
    });
    all = all.flatMap((one) => [new Map([[first.name, whole]]), ...edges].map((r): Ranges => new Map([...one, ...r])));
  }
  return all;
}

/** The values of a loop that are inside: one run of them, for an index has one direction. */
function insideOf(extent: number, isInside: (value: number) => boolean): Range {
  let from = 0;
  while (from < extent && !isInside(from)) from++;
  let to = from;
  while (to < extent && isInside(to)) to++;
  return { from, count: to - from };
}
