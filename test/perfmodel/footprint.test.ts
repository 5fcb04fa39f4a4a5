/** @file The lines and pages of memory that an operand touches. */

import { describe, expect, it } from "vitest";
import { AffineFootprint, LINE_BYTES, term } from "../../perfmodel/footprint.ts";

const BYTES = 4;
const LINE = LINE_BYTES / BYTES;

/** Lines of so many runs of so many elements, so many apart. @param written whether each line is counted as it is */
function linesOf(runs: number, elements: number, apart: number, written: boolean): number {
  const terms = [term(1, undefined, elements), term(apart, undefined, runs)];
  const footprint = new AffineFootprint(terms, BYTES, { written });
  footprint.measure();
  return footprint.lines / LINE_BYTES;
}

describe("the lines of a footprint", () => {
  it("are those of its runs where they are written and each begins and ends with a line", () => {
    expect(linesOf(10, LINE, 2 * LINE, true)).toBe(10);
    expect(linesOf(10, 3 * LINE, 4 * LINE, true)).toBe(30);
  });

  it("are one more for each of several runs that may straddle another", () => {
    expect(linesOf(10, LINE, 2 * LINE, false)).toBe(20);
    expect(linesOf(10, LINE, 2.5 * LINE, true)).toBe(20);
    expect(linesOf(10, LINE - 1, 2 * LINE, true)).toBe(20);
  });

  it("are those of one run, however it is counted", () => {
    for (const written of [false, true]) {
      expect(linesOf(1, LINE, 2 * LINE, written)).toBe(1);
      expect(linesOf(1, LINE + 1, 2 * LINE, written)).toBe(2);
      // Runs that touch are one.
      expect(linesOf(10, LINE, LINE, written)).toBe(10);
    }
  });
});
