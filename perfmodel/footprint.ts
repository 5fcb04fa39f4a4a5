/**
 * @file The memory that an operand touches while some loops run: the distinct elements of `base + sum of coefficient * counter`.
 *
 *     64*q (56 steps) + 64*s (3) + c (64)      one run of 58 * 64 elements
 *     64*q (56 steps) + 64*s (3) + c (16)      58 runs of 16 elements, each in lines of its own when elements have 4 bytes
 *     4*p (10 steps) + 3*r (3)                 27 of 30: two terms collide where 4*x = 3*y
 */

import { gcd } from "../abstraction/affine.ts";
import { REFERENCE_CPU } from "../targets/x86.ts";

/** A counter of a loop dimension whose steps change from schedule to schedule. */
export interface Covered {
  /** Number of steps that the inner loops run over. */
  covered: number;
}

/** One summand of an address. */
export interface Term {
  /** Distance between two values of the counter, in elements. */
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

/**
 * The memory one operand touches. `measure` reads the current state of the dimensions and writes its results into the fields, so nothing is
 * allocated.
 */
export interface Footprint {
  /** Distinct bytes. */
  readonly distinct: number;
  /** Bytes of the cache lines they lie in, plus one line for each of several runs: runs straddle lines, and prefetchers overshoot. */
  readonly lines: number;
  /** Bytes of a small cache that the lines take effectively: lines a power of two apart share few sets. */
  readonly crowded: number;
  /** Pages they lie in. A prefetcher follows a run to the end of its page and starts again in the next. */
  readonly pages: number;
  measure(): void;
}

/** Tiles packed in the order in which the loops request them: the memory touched by any inner loops is one run. */
export class RunFootprint implements Footprint {
  distinct = 0;
  lines = 0;
  crowded = 0;
  pages = 0;
  private readonly dimensions: readonly Covered[];
  private readonly tileBytes: number;

  constructor(dimensions: Iterable<Covered>, tileBytes: number) {
    this.dimensions = [...dimensions];
    this.tileBytes = tileBytes;
  }

  measure(): void {
    this.distinct = this.tileBytes;
    for (const d of this.dimensions) this.distinct *= d.covered;
    this.lines = Math.ceil(this.distinct / LINE_BYTES) * LINE_BYTES;
    this.crowded = this.lines;
    this.pages = this.distinct / PAGE_BYTES + 1;
  }
}

/** A term beyond all others: what lies below it is finished. */
const END = term(Number.POSITIVE_INFINITY, undefined, 2);

/**
 * Elements whose address is a sum of terms. Exact while terms nest or at most two overlap, which holds for every affine access with at most two
 * loops an index; otherwise an upper bound.
 */
export class AffineFootprint implements Footprint {
  distinct = 0;
  lines = 0;
  crowded = 0;
  pages = 0;
  private readonly terms: readonly Term[];
  private readonly elementBytes: number;
  private readonly exact: boolean;
  private readonly gathered: boolean;

  /**
   * @param written whether the memory is written. Nothing is then prefetched: runs of whole lines that begin at a line touch no others
   * @param gathered whether vectors gather elements or scatter them: those that lie apart touch a line each
   */
  constructor(terms: readonly Term[], elementBytes: number, { written = false, gathered = false } = {}) {
    // A term run backwards covers the same elements shifted.
    this.terms = [...terms, END]
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
    this.exact = written;
    this.gathered = gathered;
  }

  measure(): void {
    const { elementBytes } = this;
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
        // 2. Its steps are longer than everything below: every step repeats the pattern below elsewhere.
        elements *= count;
        below += span;
        if (unit * elementBytes < PAGE_BYTES) pageSpan += span;
        else apart *= count;
        if (unit * elementBytes < LINE_BYTES) nearSpan += span;
        else {
          far *= count;
          if (!isWhole((unit * elementBytes) / LINE_BYTES)) aligned = false;
          spacing = Math.min(spacing, powerOfTwoIn(unit * elementBytes));
        }
        unit = coefficient;
        count = n;
        span = width;
        dense = true;
      } else {
        // 3. Overlap: x*unit + y*coefficient comes again at x + coefficient/g, y - unit/g.
        const g = isWhole(ratio) ? unit : gcd(unit, coefficient);
        const repeated = dense ? Math.max(0, count - coefficient / g) * Math.max(0, n - unit / g) : 0;
        span += width;
        count = Math.min(count * n - repeated, span / g + 1);
        unit = g;
        dense = count === span / g + 1;
      }
    }
    this.distinct = elements * elementBytes;
    this.pages = apart * ((pageSpan * elementBytes) / PAGE_BYTES + 1);
    const runLines = ((nearSpan + 1) * elementBytes) / LINE_BYTES;
    const run = Math.ceil(runLines);
    if (run !== runLines) aligned = false;
    const isAlone = this.gathered && nearSpan === 0;
    this.lines = (far > 1 && !isAlone && !(this.exact && aligned) ? run + 1 : run) * LINE_BYTES * far;
    // Runs `spacing` bytes apart begin in every (spacing / 64)th set and leave the sets in between empty.
    this.crowded = far > 1 ? this.lines * Math.max(1, spacing / ((isAlone ? run : run + 1) * LINE_BYTES)) : this.lines;
  }
}

const [DRAM, , , L1] = REFERENCE_CPU.memories;
/** Bytes that move together between memory levels. */
export const LINE_BYTES = L1.lines.bytes;
/** Distance in bytes after which lines fall into the same sets again. */
export const SET_BYTES = L1.lines.bytes * L1.lines.sets;
/** Lines of one set. */
export const L1_WAYS = (L1.bytes?.value ?? 0) / SET_BYTES;
const PAGE_BYTES = DRAM.pageBytes.value;

/** Whether one number divides another, given their quotient. `%` of numbers that are not small integers is a call, about twenty times as slow. */
function isWhole(quotient: number): boolean {
  return quotient === Math.floor(quotient);
}

/** The largest power of two that divides a number of bytes, at most {@link SET_BYTES}. */
function powerOfTwoIn(bytes: number): number {
  return Math.min(SET_BYTES, bytes & -bytes);
}
