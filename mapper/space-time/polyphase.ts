/**
 * @file Splits a loop so that a transform of determinant D fills every place instead of one in D.
 *
 *     k = 2c+q, t = q                            35 PEs x 5 steps, 45.7 % used
 *     q = 2*q_outer + q_phase
 *     k = c+q_outer, t = (q_phase, q_outer)      18 PEs x 6 steps, 74.1 %: the phase is the slowest row of time
 */

import { UsageError } from "../../abstraction/error.ts";
import type { SourceLoop, SpaceTime } from "../../abstraction/recurrence.ts";
import { determinant } from "./reverse.ts";
import { printVector, type Vector } from "./vector.ts";

export interface Polyphase {
  /** The loop that is split, by the absolute determinant: `loop = factor * outer + phase`. */
  readonly loop: string;
  readonly factor: number;
  /** Columns: the loops in their order, the split one standing for its outer part, then the phase. */
  readonly spaceTime: SpaceTime;
}

/**
 * The split of a loop that makes a square transform unimodular.
 * @param loop which loop to split; the first that serves when left out
 * @throws UsageError when the transform is unimodular or not square, or when no loop serves
 */
export function polyphase(loops: readonly SourceLoop[], { allocation, schedule }: SpaceTime, loop?: string): Polyphase {
  const rows = [...allocation, ...schedule];
  const text = rows.map(printVector).join(" ");
  if (rows.length !== loops.length)
    throw new UsageError(
      `polyphase: the transform ${text} is not square: ${rows.length} rows for ${loops.length} loops`,
    );
  const factor = Math.abs(determinant(rows));
  if (factor < 2)
    throw new UsageError(
      `polyphase: the transform ${text} has determinant ${determinant(rows)}; only one beyond 1 needs a split`,
    );
  const folded = (row: Vector, at: number): number[] =>
    row.every((x, i) => i === at || x % factor === 0)
      ? row.map((x, i) => (i === at ? x : x / factor + 0))
      : row.map((x, i) => (i === at ? x * factor : x));
  for (const [at, { name }] of loops.entries()) {
    if (loop !== undefined && name !== loop) continue;
    const [p, s] = [allocation, schedule].map((side) => side.map((row) => folded(row, at)));
    if (!p || !s || Math.abs(determinant([...p, ...s])) !== 1) continue;
    const phase = [...loops.map(() => 0), 1];
    const widen = (row: Vector): number[] => [...row, 0];
    return { loop: name, factor, spaceTime: { allocation: p.map(widen), schedule: [phase, ...s.map(widen)] } };
  }
  throw new UsageError(
    `polyphase: splitting ${loop === undefined ? "no loop" : `loop ${loop}`} by ${factor} makes the transform ${text} unimodular`,
    loop === undefined ? {} : { hint: "leave the loop out to try each" },
  );
}
