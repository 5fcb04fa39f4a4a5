/**
 * @file Enumerates the designs of a computation on an array: transforms with bounded entries, each distinct design
 * once.
 *
 *     enumerateDesigns(conv1d, { bound: 1 })     12 designs of 81 transforms: SBM, BSM, FSM, BFS, FFS, FBS, FSA ...
 *
 * Renaming the PEs of an array changes nothing, so only the space spanned by the rows of P matters (its direction for
 * one row, the projection direction for a plane array). Neither does running all steps in reverse. Of two rows of time,
 * slow before fast, only the first row and the plane of both matter. Designs that a symmetry of the operation maps to
 * each other are all listed, with the same `orbit`.
 *
 * The order in which designs are listed, and their names: the letters of the dataflow, numbered when several
 * share them.
 *
 *     FBS, SBM, FFM, FFM.2, FFM.3 ...
 *
 * Counts transforms without enumerating them, before equal designs are merged.
 *
 *     conv1d, entries in -1 .. 1:  81 transforms, 48 of full rank, 40 unimodular
 *     GEMM, entries in -2 .. 2:    1,953,125 transforms, 1,647,744 of full rank, 135,408 unimodular
 *
 * det T pairs the minors of the rows of P with those of the rows of s, and few minors are different.
 */

import { product, sumOf, upTo } from "../../abstraction/collections.ts";
import { checkNames, UsageError } from "../../abstraction/error.ts";
import type { SpaceTime } from "../../abstraction/recurrence.ts";
import { type ArraySide, arraySide, combine, type Design, type TimeSide, timeSide } from "./design.ts";
import { type ArrayProblem, extentsOfLoops } from "./problem.ts";
import { keepsOrder } from "./validity.ts";
import {
  choices,
  directionsWithin,
  extentOfRow,
  hermiteForm,
  minorsOf,
  primitive,
  scaled,
  unit,
  type Vector,
  vectorsWithin,
} from "./vector.ts";

/** The transforms to enumerate. */
export interface DesignOptions {
  /** Largest entry of a transform. */
  readonly bound: number;
  /** Dimensions of the array. */
  readonly arrayRows: number;
}

/** A design, and its orbit under the symmetries of the operation. */
export interface ListedDesign extends Design {
  readonly orbit: number;
}

/** The designs of a problem. */
export interface DesignSet {
  /** As given. */
  readonly problem: ArrayProblem;
  /** Best first. */
  readonly designs: readonly ListedDesign[];
  /** Transforms without full rank; those that differ only in names are counted once. */
  readonly refused: readonly SpaceTime[];
  /** The number of transforms enumerated, and the number that each rule left. */
  readonly count: TransformCount;
}

/** Dimensions that an array, and time, may have. */
const ROWS: readonly number[] = [1, 2];

/**
 * All designs, named, best first.
 * @throws UsageError for a number of loops that gives the array or time no dimension, or more than two
 */
export function enumerateDesigns(problem: ArrayProblem, options: DesignOptions): DesignSet {
  checkNames(options, { bound: true, arrayRows: true }, "enumerateDesigns");
  const space = designSpace(problem, options);
  const orbits = space.orbits();
  const designs = space.pairs.map(({ array, time }, i) => ({
    ...combine(problem, array.side(), time.side()),
    orbit: orbits[i] ?? i,
  }));
  const { refused } = space;
  const count = countTransforms(problem, options.bound, options.arrayRows);
  return { problem, designs: named(ranked(designs)), refused, count };
}

interface Half<Side> {
  readonly key: string;
  readonly minors: Vector;
  readonly rows: readonly Vector[];
  readonly side: () => Side;
}

interface DesignSpace {
  /** Pairs of full rank, each once. */
  readonly pairs: readonly { readonly array: Half<ArraySide>; readonly time: Half<TimeSide> }[];
  /** Pairs under which some points would collide. */
  readonly refused: readonly SpaceTime[];
  readonly arrays: number;
  readonly times: number;
  /** The orbit of each pair. */
  readonly orbits: () => number[];
}

/** The transforms, with those that give the same design merged. */
export function designSpace(problem: ArrayProblem, { bound, arrayRows }: DesignOptions): DesignSpace {
  const loops = problem.loops.length;
  const timeRows = loops - arrayRows;
  if (!ROWS.includes(arrayRows) || !ROWS.includes(timeRows))
    throw new UsageError(
      `${problem.name}: ${loops} loops on an array of ${arrayRows} dimensions leave ${timeRows} rows of time; an array has one or two dimensions, and time one or two rows`,
      "choose arrayRows 1 for two loops, 1 or 2 for three, 2 for four",
    );
  if (!Number.isSafeInteger(bound) || bound < 1)
    throw new UsageError(`${problem.name}: the entries of a transform are bounded by a positive integer, got ${bound}`);
  const directions = directionsWithin(loops, bound);
  const arrays = arraySpaces(problem, directions, arrayRows);
  const times = timeRows === 1 ? singleTimes(problem, directions) : doubleTimes(problem, directions);
  const pairing = pairingOf(loops, arrayRows);
  const pairs: { array: Half<ArraySide>; time: Half<TimeSide> }[] = [];
  const refused: SpaceTime[] = [];
  for (const array of arrays)
    for (const time of times)
      if (pairing(array.minors, time.minors) !== 0) pairs.push({ array, time });
      else refused.push({ allocation: array.rows, schedule: time.rows });
  const orbits = (): number[] => {
    const turns = symmetriesOf(problem);
    // Symmetries act on the halves. The orbit of a pair follows from the images of both halves.
    const moved = (halves: readonly Half<unknown>[], keyOf: (rows: readonly Vector[]) => string): Int32Array[] => {
      const places = new Map(halves.map((h, i) => [h.key, i]));
      return turns.map((turn) => Int32Array.from(halves, (h) => places.get(keyOf(h.rows.map(turn))) ?? 0));
    };
    const arrayMoves = moved(arrays, arrayKey);
    const timeMoves = moved(times, timeKey);
    const arrayAt = new Map(arrays.map((a, i) => [a, i]));
    const timeAt = new Map(times.map((t, i) => [t, i]));
    const numbers = new Map<number, number>();
    return pairs.map(({ array, time }) => {
      const a = arrayAt.get(array) ?? 0;
      const t = timeAt.get(time) ?? 0;
      let least = Number.POSITIVE_INFINITY;
      for (const [g] of turns.entries())
        least = Math.min(least, (arrayMoves[g]?.[a] ?? 0) * times.length + (timeMoves[g]?.[t] ?? 0));
      const number = numbers.get(least) ?? numbers.size;
      numbers.set(least, number);
      return number;
    });
  };
  return { pairs, refused, arrays: arrays.length, times: times.length, orbits };
}

const arrayKey = (rows: readonly Vector[]): string => primitive(minorsOf(rows)).join();
const timeKey = (rows: readonly Vector[]): string =>
  `${primitive(rows[0] ?? []).join()};${primitive(minorsOf(rows)).join()}`;

/** The costs are computed on first use, since counting does not need them. */
function half<Side>(key: string, rows: readonly Vector[], make: () => Side): Half<Side> {
  let made: Side | undefined;
  return {
    key,
    rows,
    minors: minorsOf(rows),
    side: () => {
      made ??= make();
      return made;
    },
  };
}

/** The spaces that rows of P can span, each with the rows that give the smallest array. */
function arraySpaces(problem: ArrayProblem, directions: readonly Vector[], rows: number): Half<ArraySide>[] {
  const extents = extentsOfLoops(problem);
  const sets =
    rows === 1 ? directions.map((d) => [d]) : directions.flatMap((p, i) => directions.slice(0, i).map((q) => [p, q]));
  const best = new Map<string, { rows: readonly Vector[]; cost: number }>();
  for (const set of sets) {
    const minors = minorsOf(set);
    if (minors.every((x) => x === 0)) continue;
    const key = primitive(minors).join();
    const cost = product(set.map((row) => extentOfRow(row, extents)));
    const known = best.get(key);
    if (!known || cost < known.cost) best.set(key, { rows: set.toSorted(bySimplicity), cost });
  }
  return [...best].map(([key, { rows }]) => half(key, rows, () => arraySide(problem, rows)));
}

/** Prefers rows that begin with outer loops. */
function bySimplicity(a: Vector, b: Vector): number {
  const lead = (v: Vector): number => v.findIndex((x) => x !== 0);
  return lead(a) - lead(b) || size(a) - size(b);
}
const size = (v: Vector): number => sumOf(v, (x) => Math.abs(x));

/** Schedules of one row, reversed if a fixed dependence requires it. */
function singleTimes(problem: ArrayProblem, directions: readonly Vector[]): Half<TimeSide>[] {
  return directions.flatMap((s) => {
    const way = [[s], [scaled(s, -1)]].find((schedule) => keepsOrder(problem, schedule));
    return way ? [half(timeKey(way), way, () => timeSide(problem, way))] : [];
  });
}

/**
 * Schedules of two rows. The slow row and the plane of both matter; the fast row is chosen so that the collapsed
 * schedule has the fewest steps.
 */
function doubleTimes(problem: ArrayProblem, directions: readonly Vector[]): Half<TimeSide>[] {
  const extents = extentsOfLoops(problem);
  const free = problem.operands.every((o) => o.order === "free");
  return directions.flatMap((slow) => {
    const best = new Map<string, { rows: readonly Vector[]; cost: number }>();
    const ways = free ? [slow] : [slow, scaled(slow, -1)];
    for (const fast of directions) {
      const minors = minorsOf([slow, fast]);
      if (minors.every((x) => x === 0)) continue;
      const key = primitive(minors).join();
      for (const rows of ways.flatMap((w) => [
        [w, fast],
        [w, scaled(fast, -1)],
      ])) {
        if (!free && !keepsOrder(problem, rows)) continue;
        const cost = stepsOf(rows, extents) + size(rows[1] ?? []) / 1024;
        const known = best.get(key);
        if (!known || cost < known.cost) best.set(key, { rows, cost });
      }
    }
    return [...best.values()].map(({ rows }) => half(timeKey(rows), rows, () => timeSide(problem, rows)));
  });
}

function stepsOf([slow = [], fast = []]: readonly Vector[], extents: Vector): number {
  const radix = extentOfRow(fast, extents);
  let sum = 1;
  for (let i = 0; i < extents.length; i++)
    sum += Math.abs(radix * (slow[i] ?? 0) + (fast[i] ?? 0)) * ((extents[i] ?? 1) - 1);
  return sum;
}

/**
 * Permutations and reflections of loops that map each operand's reuse to that of an operand of the same role. A matrix
 * product has all reflections, and m <-> n with a <-> b. A convolution has only z -> -z, and reflections of rows that
 * do not slide along the array.
 */
export function symmetriesOf(problem: ArrayProblem): ((row: Vector) => number[])[] {
  const loops = problem.loops.length;
  const lattice = (o: { role: string; order: string }, vectors: readonly Vector[]): string =>
    `${o.role} ${o.order === "fixed" ? JSON.stringify(vectors) : JSON.stringify(hermiteForm(vectors))}`;
  const all = problem.operands
    .map((o) => lattice(o, o.reuse))
    .sort()
    .join(" ");
  return signedPermutations(loops).filter((turn) => {
    const moved = problem.operands.map((o) => lattice(o, o.reuse.map(turn)));
    return moved.sort().join(" ") === all;
  });
}

function signedPermutations(length: number): ((row: Vector) => number[])[] {
  const permutations = (left: readonly number[]): number[][] =>
    left.length === 0 ? [[]] : left.flatMap((x) => permutations(left.filter((y) => y !== x)).map((p) => [x, ...p]));
  const order = permutations(unit(length, 0).map((_, i) => i));
  return order.flatMap((permutation) =>
    upTo(1 << length).map(
      (signs) =>
        (row: Vector): number[] =>
          permutation.map((from, i) => ((signs >> i) & 1 ? -(row[from] ?? 0) : (row[from] ?? 0)) + 0),
    ),
  );
}

/** Whether two transforms give the same design. */
export function sameDesign(a: SpaceTime, b: SpaceTime): boolean {
  return arrayKey(a.allocation) === arrayKey(b.allocation) && timeKey(a.schedule) === timeKey(b.schedule);
}

// ---- order and names ----------------------------------------------------------------------------------------------------------------------

/** Sorts by results per step, then by idle PEs, registers, length of shifts, and size and sign of entries. */
function ranked<D extends Omit<Design, "name">>(designs: readonly D[]): D[] {
  const entries = (d: D): number =>
    sumOf([...d.spaceTime.allocation, ...d.spaceTime.schedule].flat(), (x) => (x < 0 ? 0.5 - x : x));
  return designs
    .map((d) => ({ d, entries: entries(d) }))
    .sort(
      (a, b) =>
        a.d.steps - b.d.steps ||
        b.d.utilisation - a.d.utilisation ||
        a.d.registers.coalesced - b.d.registers.coalesced ||
        a.d.registers.plain - b.d.registers.plain ||
        a.d.shuffleDistance - b.d.shuffleDistance ||
        a.entries - b.entries,
    )
    .map(({ d }) => d);
}

/** Names in the order of the list. */
function named<D extends Omit<Design, "name">>(designs: readonly D[]): (D & { readonly name: string })[] {
  const seen = new Map<string, number>();
  return designs.map((d) => {
    const count = (seen.get(d.dataflow) ?? 0) + 1;
    seen.set(d.dataflow, count);
    return { ...d, name: count === 1 ? d.dataflow : `${d.dataflow}.${count}` };
  });
}

// ---- counts without enumeration -----------------------------------------------------------------------------------------------------------

interface TransformCount {
  /** Matrices with bounded entries. */
  readonly candidates: number;
  /** Of full rank, with no fixed dependence backwards. */
  readonly valid: number;
  readonly unimodular: number;
}

export function countTransforms(problem: ArrayProblem, bound: number, arrayRows: number): TransformCount {
  const loops = problem.loops.length;
  const pair = pairingOf(loops, arrayRows);
  const arrays = minorsWithin(loops, arrayRows, bound, () => true);
  const times = minorsWithin(loops, loops - arrayRows, bound, (schedule) => keepsOrder(problem, schedule));
  let valid = 0;
  let unimodular = 0;
  for (const a of arrays)
    for (const t of times) {
      const det = pair(a.minors, t.minors);
      if (det !== 0) valid += a.count * t.count;
      if (det === 1 || det === -1) unimodular += a.count * t.count;
    }
  return { candidates: (2 * bound + 1) ** (loops * loops), valid, unimodular };
}

/** The minors that so many bounded rows can have, each with how many choices of rows have them. */
function minorsWithin(
  length: number,
  rows: number,
  bound: number,
  keep: (rows: readonly Vector[]) => boolean,
): { minors: Vector; count: number }[] {
  const vectors = vectorsWithin(length, bound);
  const found = new Map<string, { minors: Vector; count: number }>();
  const choose = (chosen: readonly Vector[]): void => {
    if (chosen.length < rows) {
      for (const v of vectors) choose([...chosen, v]);
      return;
    }
    if (!keep(chosen)) return;
    const minors = minorsOf(chosen);
    const known = found.get(minors.join());
    if (known) known.count++;
    else found.set(minors.join(), { minors, count: 1 });
  };
  choose([]);
  return [...found.values()];
}

/** The determinant of rows on rows from their minors (Laplace's expansion), up to what all pairs share: its sign. */
function pairingOf(length: number, rows: number): (above: Vector, below: Vector) => number {
  const below = choices(length, length - rows);
  const terms = choices(length, rows).map((columns, i) => {
    const others = upTo(length).filter((c) => !columns.includes(c));
    return {
      above: i,
      below: below.findIndex((c) => c.every((x, j) => x === others[j])),
      sign: sumOf(columns) % 2 === 0 ? 1 : -1,
    };
  });
  return (a, b) => {
    let sum = 0;
    for (const t of terms) sum += t.sign * (a[t.above] ?? 0) * (b[t.below] ?? 0);
    return sum;
  };
}
