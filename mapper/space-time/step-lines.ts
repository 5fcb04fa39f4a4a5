/**
 * @file Register reuse of time steps: a block of vectors keeps rows of the previous step in registers if several columns or rows read them.
 *
 *     u[t-1,i,j,k-1] + u[t-1,i,j,k] + u[t-1,i,j,k+1] + u[t-1,i-1,j,k]      row (i,j) is a line; row (i-1,j) is loaded where it is read
 *     rows 2: u[t,i,j,k] and u[t,i+1,j-1,k]                              both read rows (i,j-1) and (i+1,j), so these are lines too
 */

import { affineForm } from "../../abstraction/affine.ts";
import type { StepSchedule } from "../../abstraction/candidate.ts";
import { sumOf, unique } from "../../abstraction/collections.ts";
import { type Access, accessesIn } from "../../abstraction/expression.ts";
import type { Steps } from "./plane.ts";

/** Registers for lines, of the 32 of AVX-512. Sums and other rows need the rest. */
const MOST_LINE_REGISTERS = 20;

/**
 * A line: its offset from the first row of a block along each axis but the last, its columns, and the number of its
 * reads.
 */
interface Line {
  readonly rows: readonly number[];
  readonly columns: readonly number[];
  readonly reads: number;
}

/**
 * The lines of a block of `rows` rows: rows that are read more than once. Empty if rows do not end in zeros, or if
 * there are more lines than registers.
 */
export function linesOf(steps: Steps, { lanes, vectors }: StepSchedule, rows: number): readonly Line[] {
  const lane = steps.axes.at(-1);
  if (lane?.border !== "zero" || lane.reach > lanes) return [];
  const lines = new Map<string, Line>();
  for (const shifts of readsOf(steps).map(shiftsOf))
    for (let row = 0; row < rows; row++) {
      const at = inBlock(shifts, row);
      const { columns, reads } = lines.get(at.join()) ?? { columns: [], reads: 0 };
      lines.set(at.join(), {
        rows: at,
        columns: unique([...columns, shifts.at(-1) ?? 0]),
        reads: reads + 1,
      });
    }
  const several = [...lines.values()].filter(({ columns, reads }) => columns.length > 1 || (rows > 1 && reads > 1));
  const registers = sumOf(several, (line) => registersOf(line, vectors));
  return registers <= MOST_LINE_REGISTERS ? several : [];
}

/** Vectors of a line that a block keeps in registers: one more on each side that is read beyond its own columns. */
export function registersOf({ columns }: Line, vectors: number): number {
  return vectors + (columns.length > 1 ? 2 : 0);
}

/** The reads of the plane in a step. */
export function readsOf({ time }: Steps): readonly Access[] {
  return accessesIn(time.step.equation.value).filter((e) => e.tensor === time.first);
}

/** The offset of a read from the element being computed, along each axis of the plane. */
export function shiftsOf({ index }: Access): readonly number[] {
  return index.map((e) => affineForm(e.kind === "border" ? e.index : e)?.constant ?? 0);
}

/**
 * The row of a read, relative to the first row of a block. Each further row of a block is one plane on and one row
 * back.
 */
export function inBlock(shifts: readonly number[], row: number): readonly number[] {
  return shifts.slice(0, -1).map((shift, d) => (d === 0 ? shift + row : d === 1 ? shift - row : shift));
}

/**
 * Whether a row of a step may overwrite the row of the step before that it is the last to read. That is correct element
 * by element if rows at other positions are read only in the same column, and if no vectors overlap, which holds for
 * rows that end in zeros.
 */
export function overwrites({ axes, time }: Steps): boolean {
  const swept = axes[0]?.reach ?? 0;
  if (axes.length === 1 || swept === 0 || axes.at(-1)?.border !== "zero") return false;
  return time.dependences.every(([, row, ...others]) => row === 0 || others.every((d) => d === 0));
}

/** Rows of a step that the next step has yet to read when it begins a row. */
export function keptRows(steps: Steps): number {
  return 2 * (steps.axes[0]?.reach ?? 0) + (overwrites(steps) ? 0 : 1);
}
