/**
 * @file Decides whether a lattice has a nonzero vector whose entries stay below given extents, that is, whether two
 * points of a box can differ by a lattice vector.
 *
 *     latticePointIn([[1, 4, -1]], [16, 5, 5])       (1,4,-1)
 *     latticePointIn([[1, 5, -1]], [2**32, 5, 5])    undefined: no multiple of it fits
 *
 * The work depends on the number of loops, not on their lengths. With each entry scaled by its extent the box is a
 * cube. A reduced basis (Lenstra, Lenstra, Lovasz 1982) begins with a vector at most a constant factor longer than the
 * shortest. Either that vector lies in the cube, or only a limited number of vectors are short enough, and these are
 * enumerated (Fincke, Pohst 1985).
 */

import { sortedBy, sumOf } from "../../abstraction/collections.ts";
import { combination, isZero, nullSpace, plus, scaled, type Vector } from "./vector.ts";

/**
 * Finds a lattice vector inside a box.
 * @param basis independent vectors
 * @param tried is called with each vector that is compared with the extents
 * @returns a vector that fits, near the origin if possible; its first nonzero entry is positive
 */
export function latticePointIn(
  basis: readonly Vector[],
  extents: Vector,
  tried: (v: Vector) => void = () => undefined,
): Vector | undefined {
  const fits = (v: Vector): boolean => {
    tried(v);
    return !isZero(v) && v.every((x, i) => Math.abs(x) < (extents[i] ?? 1));
  };
  const inside = withoutStill(basis, extents);
  if (inside.length === 0) return undefined;
  // 1. Vectors near the origin, which make shorter examples.
  const near = sumsOf(
    reduced(
      inside,
      extents.map(() => 1),
    ),
  ).filter(fits);
  const [nearest] = sortedBy(near, length);
  if (nearest) return turned(nearest);
  // 2. All vectors that can fit.
  const found = firstWithin(reduced(inside, measuresOf(extents)), measuresOf(extents), fits);
  return found && turned(found);
}

/** The sublattice that is 0 along loops of one step. */
function withoutStill(basis: readonly Vector[], extents: Vector): readonly Vector[] {
  const still = extents.flatMap((n, i) => (n === 1 && basis.some((b) => b[i] !== 0) ? [i] : []));
  if (still.length === 0) return basis;
  const coefficients = nullSpace(
    still.map((i) => basis.map((b) => b[i] ?? 0)),
    basis.length,
  );
  return coefficients.map((c) => combination(basis, c));
}

/** Scales the box to a cube of side 1. */
function measuresOf(extents: Vector): Vector {
  return extents.map((n) => 1 / Math.max(1, n - 1));
}

const length = (v: Vector): number => sumOf(v, (x) => Math.abs(x));

function turned(v: Vector): Vector {
  return (v.find((x) => x !== 0) ?? 0) < 0 ? scaled(v, -1) : v;
}

/** Sums and differences of basis vectors, one of each pair of opposites. */
function sumsOf(basis: readonly Vector[]): Vector[] {
  let sums: Vector[] = [];
  // Spread one by one, since a single call would have too many arguments.
  for (const b of basis) sums = [...sums, b, ...sums.flatMap((s) => [plus(s, b), plus(s, scaled(b, -1))])];
  return sums;
}

// ---- Reduction

/** The Lovasz parameter, usually 3/4. */
const LOVASZ = 0.75;
/**
 * A basis of four vectors with entries of nine digits and extents of 2^53 takes fewer rounds. Beyond this, rounding
 * errors make it cycle.
 */
const MOST_ROUNDS = 2000;

/** An LLL-reduced basis of the same lattice, with lengths weighted by the measures. */
function reduced(basis: readonly Vector[], measures: Vector): Vector[] {
  const b = [...basis];
  let at = 1;
  for (let round = 0; at < b.length && round < MOST_ROUNDS; round++) {
    for (let j = at - 1; j >= 0; j--) {
      const times = Math.round(orthogonal(b, measures).shares[at]?.[j] ?? 0);
      if (times !== 0) b[at] = plus(b[at] ?? [], scaled(b[j] ?? [], -times));
    }
    const { shares, squares } = orthogonal(b, measures);
    const share = shares[at]?.[at - 1] ?? 0;
    const here = squares[at] ?? 0;
    const before = squares[at - 1] ?? 0;
    if (here >= (LOVASZ - share * share) * before) at++;
    else {
      [b[at - 1], b[at]] = [b[at] ?? [], b[at - 1] ?? []];
      at = Math.max(1, at - 1);
    }
  }
  return b;
}

interface Orthogonal {
  /** Gram-Schmidt coefficients with respect to earlier directions. */
  readonly shares: readonly Vector[];
  /** Squared lengths of the orthogonalised vectors. */
  readonly squares: Vector;
}

/** Gram-Schmidt orthogonalisation. */
function orthogonal(basis: readonly Vector[], measures: Vector): Orthogonal {
  const directions: number[][] = [];
  const shares: number[][] = [];
  const squares: number[] = [];
  const product = (a: Vector, b: Vector): number => a.reduce((sum, x, i) => sum + x * (b[i] ?? 0), 0);
  for (const v of basis) {
    let rest = v.map((x, i) => x * (measures[i] ?? 1));
    const own: number[] = [];
    for (const [j, direction] of directions.entries()) {
      const share = product(rest, direction) / (squares[j] ?? 1);
      own.push(share);
      rest = rest.map((x, i) => x - share * (direction[i] ?? 0));
    }
    directions.push(rest);
    shares.push(own);
    squares.push(product(rest, rest));
  }
  return { shares, squares };
}

// ---- Search

/** Rounding errors of lengths are far below this. */
const TOLERANCE = 1e-6;

/**
 * The first vector that fits, among all that are no longer than the cube's diagonal. Coefficients near the centre are
 * tried first.
 */
function firstWithin(basis: readonly Vector[], measures: Vector, fits: (v: Vector) => boolean): Vector | undefined {
  const { shares, squares } = orthogonal(basis, measures);
  const radius = measures.length * (1 + TOLERANCE);
  const search = (from: number, coefficients: Vector, used: number): Vector | undefined => {
    if (from < 0) {
      const v = combination(basis, coefficients);
      return fits(v) ? v : undefined;
    }
    let middle = 0;
    for (let j = from + 1; j < basis.length; j++) middle -= (coefficients[j] ?? 0) * (shares[j]?.[from] ?? 0);
    const square = squares[from] ?? 1;
    const reach = Math.sqrt(Math.max(0, radius - used) / square) + TOLERANCE;
    for (const c of outwards(middle, reach)) {
      const chosen = coefficients.map((x, j) => (j === from ? c : x));
      const found = search(from - 1, chosen, used + (c - middle) ** 2 * square);
      if (found) return found;
    }
    return undefined;
  };
  return search(
    basis.length - 1,
    basis.map(() => 0),
    0,
  );
}

/** The integers within `reach` of a number, nearest first. */
function* outwards(middle: number, reach: number): Generator<number> {
  const nearest = Math.round(middle);
  for (let distance = 0; distance <= reach + 1; distance++) {
    if (Math.abs(nearest + distance - middle) <= reach) yield nearest + distance;
    if (distance > 0 && Math.abs(nearest - distance - middle) <= reach) yield nearest - distance;
  }
}
