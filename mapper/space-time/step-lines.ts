/**
 * @file Lines of a step: rows of the step before that blocks of vectors have in registers, as they are read at several columns or by several rows.
 *
 *     u[t-1,i,j,k-1] + u[t-1,i,j,k] + u[t-1,i,j,k+1] + u[t-1,i-1,j,k]      row (i,j) is a line, row (i-1,j) is loaded where it is read
 *     rows 2: u[t,i,j,k] and u[t,i+1,j-1,k]                              both read rows (i,j-1) and (i+1,j): these are lines too
 */

import { affineForm } from "../../abstraction/affine.ts";
import type { LaneSchedule } from "../../abstraction/candidate.ts";
import { type Access, accessesIn } from "../../abstraction/expression.ts";
import type { Steps } from "./plane.ts";

/** Registers that rows in registers may take, of the 32 that AVX-512 has: sums and other rows need some besides. */
const MOST_LINE_REGISTERS = 20;

/** A line: its distance from the first row of a block along each axis but the last, the columns it is read at, and how often it is read. */
interface Line {
  readonly rows: readonly number[];
  readonly columns: readonly number[];
  readonly reads: number;
}

/**
 * Lines of blocks of so many rows: what is read more than once. None where what ends the row is no zero, or where there are too many for the
 * registers.
 */
export function linesOf(steps: Steps, { lanes, vectors }: LaneSchedule, rows: number): readonly Line[] {
  const lane = steps.axes.at(-1);
  if (lane?.border !== "zero" || lane.reach > lanes) return [];
  const lines = new Map<string, Line>();
  for (const shifts of readsOf(steps).map(shiftsOf))
    for (let row = 0; row < rows; row++) {
      const at = inBlock(shifts, row);
      const { columns, reads } = lines.get(at.join()) ?? { columns: [], reads: 0 };
      lines.set(at.join(), {
        rows: at,
        columns: [...new Set([...columns, shifts.at(-1) ?? 0])],
        reads: reads + 1,
      });
    }
  const several = [...lines.values()].filter(({ columns, reads }) => columns.length > 1 || (rows > 1 && reads > 1));
  const registers = several.reduce((sum, line) => sum + registersOf(line, vectors), 0);
  return registers <= MOST_LINE_REGISTERS ? several : [];
}

/** Vectors of a line that a block of so many has in registers: one more at either side, where it is read beside its own column. */
export function registersOf({ columns }: Line, vectors: number): number {
  return vectors + (columns.length > 1 ? 2 : 0);
}

/** Where a step reads the plane. */
export function readsOf({ time }: Steps): readonly Access[] {
  return accessesIn(time.step.equation.value).filter((e) => e.tensor === time.first);
}

/** How far from the element that it makes a read lies, along each axis of the plane. */
export function shiftsOf({ index }: Access): readonly number[] {
  return index.map((e) => affineForm(e.kind === "border" ? e.index : e)?.constant ?? 0);
}

/** The row of a read, from the first row of a block: each further row of a block is one plane on and one row back. */
export function inBlock(shifts: readonly number[], row: number): readonly number[] {
  return shifts.slice(0, -1).map((shift, d) => (d === 0 ? shift + row : d === 1 ? shift - row : shift));
}

/**
 * Whether a row of a step is written over the row of the step before that it is the last to read. Element by element that is right where rows
 * of other places are read in the same column only, and where no vector overlaps its neighbour: zeros end the rows.
 */
export function overwrites({ axes, time }: Steps): boolean {
  const swept = axes[0]?.reach ?? 0;
  if (axes.length === 1 || swept === 0 || axes.at(-1)?.border !== "zero") return false;
  return time.dependences.every(([, row, ...others]) => row === 0 || others.every((d) => d === 0));
}

/** Rows of a step that the next one has yet to read, when it begins a row. */
export function keptRows(steps: Steps): number {
  return 2 * (steps.axes[0]?.reach ?? 0) + (overwrites(steps) ? 0 : 1);
}
