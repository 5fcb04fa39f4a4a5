/**
 * @file How much memory an operand touches while some loops run: the distinct elements of `base + sum of coefficient * counter`.
 *
 *     64*q (56 steps) + 64*s (3) + c (64)      one run of 58 * 64 elements
 *     64*q (56 steps) + 64*s (3) + c (16)      58 runs of 16 elements, each in lines of its own when elements have 4 bytes
 *     4*p (10 steps) + 3*r (3)                 27 of 30: two terms collide where 4*x = 3*y
 */

import { REFERENCE_CPU } from "../targets/x86.ts";

/** A counter of a loop dimension whose steps change from schedule to schedule. */
export interface Covered {
  /** Steps the loops inside run over. */
  covered: number;
}

/** One summand of an address. */
export interface Term {
  /** Elements from one value of the counter to the next. */
  readonly coefficient: number;
  /** The dimension that counts; undefined when the count is always `most`. */
  readonly dimension: Covered | undefined;
  /** Values of the counter: `min(most, ceil(covered * perStep / divisor))`. */
  readonly perStep: number;
  readonly divisor: number;
  readonly most: number;
}

/** A counter that takes `perStep` values a step of its dimension. */
export function term(coefficient: number, dimension: Covered | undefined, perStep: number): Term {
  return { coefficient, dimension, perStep, divisor: 1, most: dimension ? Number.POSITIVE_INFINITY : perStep };
}

/** What one operand touches. `measure` works on the dimensions as they stand and leaves its results in the fields: nothing is allocated. */
export interface Footprint {
  /** Distinct bytes. */
  readonly distinct: number;
  /** Bytes of the cache lines they lie in, with one more for each of several runs: runs straddle, and prefetchers overshoot. */
  readonly lines: number;
  /** What the lines take of a small cache: those a power of two apart share few of its sets. */
  readonly crowded: number;
  /** Pages they lie in: a prefetcher follows a run to the end of its page and starts anew in the next. */
  readonly pages: number;
  measure(): void;
}

/** Tiles packed in the order the loops ask for them: what any inner loops touch is one run. */
export class RunFootprint implements Footprint {
  distinct = 0;
  lines = 0;
  crowded = 0;
  pages = 0;
  private readonly dimensions: readonly Covered[];
  private readonly tileBytes: number;
  private readonly lineBytes: number;

  constructor(dimensions: Iterable<Covered>, tileBytes: number, lineBytes: number) {
    this.dimensions = [...dimensions];
    this.tileBytes = tileBytes;
    this.lineBytes = lineBytes;
  }

  measure(): void {
    this.distinct = this.tileBytes;
    for (const d of this.dimensions) this.distinct *= d.covered;
    this.lines = Math.ceil(this.distinct / this.lineBytes) * this.lineBytes;
    this.crowded = this.lines;
    this.pages = this.distinct / PAGE_BYTES + 1;
  }
}

/**
 * Elements whose address is a sum of terms. Exact while terms nest or no more than two overlap, which holds for every affine access
 * of at most two loops an index; else an upper bound.
 */
export class AffineFootprint implements Footprint {
  distinct = 0;
  lines = 0;
  crowded = 0;
  pages = 0;
  private readonly terms: readonly Term[];
  private readonly elementBytes: number;
  private readonly lineBytes: number;
  private readonly exact: boolean;

  /** @param written nothing is fetched ahead: runs of whole lines that begin at lines touch no others */
  constructor(terms: readonly Term[], elementBytes: number, lineBytes: number, { written = false } = {}) {
    // A term run backwards covers the same elements shifted.
    this.terms = terms
      .filter((t) => t.coefficient !== 0)
      .map(({ coefficient, dimension, perStep, divisor, most }) => ({
        coefficient: Math.abs(coefficient),
        dimension,
        perStep,
        divisor,
        most,
      }))
      .sort((a, b) => a.coefficient - b.coefficient);
    this.elementBytes = elementBytes;
    this.lineBytes = lineBytes;
    this.exact = written;
  }

  measure(): void {
    const { elementBytes, lineBytes } = this;
    // The group being built: `count` places within `span`, multiples of `unit`; all of them when `dense`.
    let unit = 1;
    let count = 1;
    let span = 0;
    let dense = true;
    // Finished groups lie inside one step of the group being built.
    let elements = 1;
    let below = 0;
    let nearSpan = 0;
    let far = 1;
    let pageSpan = 0;
    let apart = 1;
    let aligned = true;
    let spacing = SET_BYTES;
    for (const { coefficient, dimension, perStep, divisor, most } of this.terms) {
      const n = dimension === undefined ? most : Math.min(most, Math.ceil((dimension.covered * perStep) / divisor));
      if (n <= 1) continue;
      const width = coefficient * (n - 1);
      const ratio = coefficient / unit;
      if (dense && count > 1 && ratio <= count && isWhole(ratio)) {
        // 1. The term continues the run: 64 of 1, then 56 of 64.
        count += ratio * (n - 1);
        span += width;
      } else if (count === 1 || coefficient > span + below) {
        // 2. Its steps are longer than all below: every step repeats what is below elsewhere.
        elements *= count;
        below += span;
        if (unit * elementBytes < PAGE_BYTES) pageSpan += span;
        else apart *= count;
        if (unit * elementBytes < lineBytes) nearSpan += span;
        else {
          far *= count;
          if (!isWhole((unit * elementBytes) / lineBytes)) aligned = false;
          spacing = Math.min(spacing, powerOfTwoIn(unit * elementBytes));
        }
        unit = coefficient;
        count = n;
        span = width;
        dense = true;
      } else {
        // 3. Overlap: x*unit + y*coefficient comes again at x + coefficient/g, y - unit/g.
        const g = isWhole(ratio) ? unit : greatestCommonDivisor(unit, coefficient);
        const repeated = dense ? Math.max(0, count - coefficient / g) * Math.max(0, n - unit / g) : 0;
        span += width;
        count = Math.min(count * n - repeated, span / g + 1);
        unit = g;
        dense = count === span / g + 1;
      }
    }
    elements *= count;
    if (unit * elementBytes < PAGE_BYTES) pageSpan += span;
    else apart *= count;
    if (unit * elementBytes < lineBytes) nearSpan += span;
    else {
      far *= count;
      if (!isWhole((unit * elementBytes) / lineBytes)) aligned = false;
      spacing = Math.min(spacing, powerOfTwoIn(unit * elementBytes));
    }
    this.distinct = elements * elementBytes;
    this.pages = apart * ((pageSpan * elementBytes) / PAGE_BYTES + 1);
    const runLines = ((nearSpan + 1) * elementBytes) / lineBytes;
    const run = Math.ceil(runLines);
    if (run !== runLines) aligned = false;
    this.lines = (far > 1 && !(this.exact && aligned) ? run + 1 : run) * lineBytes * far;
    // Runs `spacing` bytes apart begin in every (spacing / 64)th set and leave the sets between empty.
    this.crowded = far > 1 ? this.lines * Math.max(1, spacing / ((run + 1) * lineBytes)) : this.lines;
  }
}

const [DRAM, , , L1] = REFERENCE_CPU.memories;
/** Bytes that move together between levels of memory. */
export const LINE_BYTES = L1.lines.bytes;
/** Bytes after which lines fall into the same sets again. */
export const SET_BYTES = L1.lines.bytes * L1.lines.sets;
/** Lines of one set. */
export const L1_WAYS = (L1.bytes?.value ?? 0) / SET_BYTES;
const PAGE_BYTES = DRAM.pageBytes.value;

/** Whether one number divides another, given their quotient: `%` of numbers that are no small integers is a call, some twenty times as slow. */
function isWhole(quotient: number): boolean {
  return quotient === Math.floor(quotient);
}

/** The largest power of two that divides a number of bytes, at most {@link SET_BYTES}. */
function powerOfTwoIn(bytes: number): number {
  return Math.min(SET_BYTES, bytes & -bytes);
}

export function greatestCommonDivisor(a: number, b: number): number {
  let [x, y] = [Math.abs(a), Math.abs(b)];
  while (y > 0) [x, y] = [y, x % y];
  return x;
}
