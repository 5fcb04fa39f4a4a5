/**
 * @file Splits the copy of an input into parts that loops over ranges can write. The rest of the copy stays zero.
 *
 *     in[n,c,p*2+r-3,q*2+s-3], 224 wide, windowed: q and s have separate dimensions
 *       q 2..110 with s 0..6        every read is inside: nothing is tested
 *       q 0 with s 3..6             q 1 with s 1..6             q 111 with s 0..4
 */

import { boundsOf, extentsBy } from "../../abstraction/affine.ts";
import { upTo, volumeOf } from "../../abstraction/collections.ts";
import type { Tensor } from "../../abstraction/computation.ts";
import { type Access, axesIn, number, substitute } from "../../abstraction/expression.ts";
import type { PaddedCopy } from "../schedule/reach.ts";
import type { Moved } from "../schedule/within.ts";

/** A range of a loop's values. */
export interface Range {
  readonly from: number;
  readonly count: number;
}

/**
 * A part of a copy: ranges of tensor indices (`held`, with `from` counted in the tensor) and ranges of loops that have
 * their own dimension in the copy (`apart`).
 */
export interface CopyPart {
  readonly held: readonly (PaddedCopy["dims"][number] & { readonly from: number })[];
  readonly apart: readonly (PaddedCopy["apart"][number] & { readonly from: number })[];
}

/**
 * The parts of a copy that are written. They do not overlap.
 * @param moved how loops around the copy shift it. A shifted dimension is written whole, with zeros for what is outside
 * at this step.
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

/** Elements that a part writes. */
export function elementsOf({ held, apart }: CopyPart): number {
  return volumeOf([...held, ...apart]);
}

type Ranges = ReadonlyMap<string, Range>;

/** The most border values of a loop for which a separate range is generated. */
const EDGE_VALUES = 8;

/**
 * Splits the loops of a windowed index that can leave the tensor. In the middle range of the first loop, every read is
 * inside. Each border value gets its own range of the second loop, which excludes the reads outside. If there are more
 * than {@link EDGE_VALUES} border values, or more than two loops in the index, the border ranges stay whole and their
 * reads are tested.
 */
function interiors(tensor: Tensor, bound: Access, copy: PaddedCopy, moved: Moved): readonly Ranges[] {
  const extents = extentsBy(copy.apart);
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
      return upTo(side.count).map((n) => {
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

/** The values of a loop that are inside. An index is monotone, so they form one run. */
function insideOf(extent: number, isInside: (value: number) => boolean): Range {
  let from = 0;
  while (from < extent && !isInside(from)) from++;
  let to = from;
  while (to < extent && isInside(to)) to++;
  return { from, count: to - from };
}
