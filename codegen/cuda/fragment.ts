/**
 * @file The elements that each lane of a warp holds: the inverse of an operand's storage formula.
 *
 *     mma.m16n8k16 c      frag[4*(4*(m%8) + n/2) + 2*(m/8) + n%2]
 *     heldElements        [lane/4, 2*(lane%4)], [lane/4, 2*(lane%4)+1], [lane/4+8, 2*(lane%4)], [lane/4+8, 2*(lane%4)+1]
 *
 * A formula `frag[elements*lane + element]` says which lane holds an element of the tile. To move its own elements, a
 * lane needs the inverse. It exists as a formula if every bit of the lane's number adds a fixed offset in the tile.
 */

import { evaluateIndex, pointsOf } from "../../abstraction/affine.ts";
import { memoisedPair, namesOf } from "../../abstraction/collections.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { internal } from "../../abstraction/error.ts";
import { axis, type Expr, number, over, plus, remainder, times } from "../../abstraction/expression.ts";
import {
  type Intrinsic,
  lanesOf,
  type Operand,
  printStorage,
  registerElements,
  sizesOf,
  WARP,
} from "../../abstraction/intrinsic.ts";
import { shortIndex } from "../short-index.ts";

/** Bytes of a 32-bit register of a lane. */
export const WORD = 4;

/** The axis for the number of a lane in its warp or warpgroup. No axis of a computation has this name. */
export const LANE = "$lane";

/**
 * The position in the tile of each element of a lane, in register order: one index for each dimension, over {@link
 * LANE}.
 * @throws Error if the vendor does not document the layout, or if it is not a sum over the bits of the lane
 */
export const heldElements = memoisedPair((intrinsic: Intrinsic, operand: Operand): readonly (readonly Expr[])[] =>
  placesByLane(intrinsic, operand).map((byLane) =>
    operand.dims.map((d, i) =>
      overLanes(
        byLane.map((place) => place[i] ?? 0),
        intrinsic,
        d.name,
      ),
    ),
  ),
);

/** For each element of a lane, its position in the tile on each lane. */
type PlacesByLane = readonly (readonly (readonly number[])[])[];

const placesByLane = memoisedPair((intrinsic: Intrinsic, operand: Operand): PlacesByLane => {
  const { storage, dims, name } = operand;
  if (storage === undefined) internal(`which lane holds what of ${intrinsic.name}.${name} is the vendor's secret`);
  const lanes = lanesOf(intrinsic);
  const elements = registerElements(intrinsic, operand) / lanes;
  const places: number[][][] = Array.from({ length: elements }, () => []);
  const names = namesOf(dims);
  for (const point of pointsOf(names, sizesOf(operand))) {
    const held = evaluateIndex(storage, point);
    const byLane = places[held % elements];
    if (byLane) byLane[Math.floor(held / elements)] = names.map((n) => point[n] ?? 0);
  }
  const held = places.reduce((sum, byLane) => sum + Object.keys(byLane).length, 0);
  if (held !== elements * lanes)
    internal(`${intrinsic.name}: ${name} at ${printStorage(operand)} leaves registers of a lane empty`);
  return places;
});

/** `2*(lane%4)` of [0, 2, 4, 6, 0, 2, ...]. */
function overLanes(values: readonly number[], { name }: Intrinsic, dimension: string): Expr {
  const [origin = 0] = values;
  const bits = [1, 2, 4, 8, 16, 32, 64]
    .filter((bit) => bit < values.length)
    .map((bit) => ({ bit, step: (values[bit] ?? 0) - origin }));
  for (const [lane, value] of values.entries()) {
    const sum = bits.reduce((total, { bit, step }) => total + ((lane & bit) === 0 ? 0 : step), origin);
    if (sum !== value) internal(`${name}: ${dimension} is no sum of the bits of a lane's number`);
  }
  const sum = bits.reduce<Expr>((e, { bit, step }) => {
    const digit = remainder(over(axis(LANE), bit), 2);
    return plus(e, times(step, digit));
  }, number(origin));
  return shortIndex(sum, { [LANE]: values.length });
}

/** Rows, and bytes of a row, in the matrices of `ldmatrix`. */
const ROWS = 8;
const ROW_BYTES = 16;

/** The 8 x 16-byte matrices that make up an operand's registers: one matrix for each 32-bit register of a lane. */
export interface Matrices {
  /** The dimension along which the bytes of a row are contiguous, and the one that counts rows. */
  readonly along: number;
  readonly across: number;
  /** Elements of a row. */
  readonly columns: number;
  /** The position in the tile at which the matrix of each register begins. */
  readonly origins: readonly (readonly number[])[];
}

/**
 * As the PTX ISA defines ldmatrix: the register of lane l holds 32 bits of row l/4, at column l%4. With .trans, for
 * 16-bit elements, row and column are exchanged.
 * @throws Error if the operand's registers have another layout
 */
export function matricesOf(intrinsic: Intrinsic, operand: Operand, transposed: boolean): Matrices {
  const size = bytesOf(operand.dtype);
  const inRegister = 4 / size;
  const places = placesByLane(intrinsic, operand);
  const origins = Array.from({ length: places.length / inRegister }, (_, r) => places[r * inRegister]?.[0] ?? []);
  const fits = (along: number): boolean =>
    places.every((byLane, i) =>
      byLane.every((place, lane) => {
        const origin = origins[Math.floor(i / inRegister)] ?? [];
        const row = Math.floor(lane / 4);
        const column = inRegister * (lane % 4) + (i % inRegister);
        const [wantAlong, wantAcross] = transposed ? [row, column] : [column, row];
        return place.every((at, d) => at - (origin[d] ?? 0) === (d === along ? wantAlong : wantAcross));
      }),
    );
  const along = [0, 1].find(fits);
  const possible = Number.isInteger(inRegister) && (!transposed || size === 2) && operand.dims.length === 2;
  if (along === undefined || !possible)
    internal(`ldmatrix${transposed ? ".trans" : ""} does not fill registers of ${intrinsic.name}.${operand.name}`);
  return { along, across: 1 - along, columns: ROW_BYTES / size, origins };
}

/**
 * The row that a lane supplies to an instruction that loads one, two or four matrices: lanes 0 to 7 give the rows of
 * the first, 8 to 15 those of the second, and so on. Undefined if four matrices do not form a rectangle.
 */
export function rowOfLane(matrices: Matrices, origins: readonly (readonly number[])[]): readonly Expr[] | undefined {
  const [first = [], second = first, third = first, fourth] = origins;
  const step = (to: readonly number[], d: number): number => (to[d] ?? 0) - (first[d] ?? 0);
  if (fourth?.some((at, d) => at - (first[d] ?? 0) !== step(second, d) + step(third, d))) return undefined;
  return first.map((origin, d) => {
    const row = d === matrices.across ? remainder(axis(LANE), ROWS) : number(0);
    const digit = (bit: number): Expr => remainder(over(axis(LANE), bit), 2);
    const moved = plus(times(step(second, d), digit(ROWS)), times(step(third, d), digit(2 * ROWS)));
    return shortIndex(plus(plus(origin, row), moved), { [LANE]: WARP });
  });
}
