/**
 * @file Validity of a space-time transform: no two points share a PE and a step, and no value is read before it is
 * computed.
 *
 *     loops (c 16, p 5, q 5), allocation [1 0 1], schedule [0 1 4]
 *     refused: points (0,4,0) and (0,0,1) both run on PE 0 or 1 ...
 *
 * The first is decided exactly: T takes two points to one place when their difference lies in the kernel of T and in
 * the difference box |d_i| <= N_i - 1. That is more than det T != 0, and it is what makes mixed-radix time such as t =
 * p + KP*q legal: its kernel leaves the box.
 */

import { namesOf } from "../../abstraction/collections.ts";
import type { SpaceTime } from "../../abstraction/recurrence.ts";
import { latticePointIn } from "./lattice.ts";
import { type ArrayProblem, extentsOfLoops } from "./problem.ts";
import { dot, isZero, nullSpace, plus, printMatrix, printVector, type Vector } from "./vector.ts";

export const REFUSALS = ["shape", "collision", "backwards", "registers"] as const;

/** Why a transform cannot be used, in one sentence that names the vectors. */
export interface SpaceTimeRefusal {
  readonly rule: (typeof REFUSALS)[number];
  readonly because: string;
  readonly hint?: string;
  /** Two points that collide, or the dependence that runs backwards. */
  readonly vectors: readonly Vector[];
}

/** Why a transform is invalid; undefined if it is valid. */
export function refusalOf(problem: ArrayProblem, spaceTime: SpaceTime): SpaceTimeRefusal | undefined {
  return (
    shapeRefusal(problem, spaceTime) ?? backwardsRefusal(problem, spaceTime) ?? collisionRefusal(problem, spaceTime)
  );
}

/** Requires a row for each dimension of the array and of time, and a column for each loop. */
function shapeRefusal(problem: ArrayProblem, { allocation, schedule }: SpaceTime): SpaceTimeRefusal | undefined {
  const loops = namesOf(problem.loops).join(", ");
  for (const [what, rows] of [
    ["allocation", allocation],
    ["schedule", schedule],
  ] as const) {
    if (rows.length === 0) return { rule: "shape", because: `the ${what} has no row`, vectors: [] };
    const wrong = rows.find((r) => r.length !== problem.loops.length);
    if (wrong)
      return {
        rule: "shape",
        because: `${what} row ${printVector(wrong)} has ${wrong.length} ${wrong.length === 1 ? "entry" : "entries"}, the array has ${problem.loops.length} loops (${loops})`,
        vectors: [wrong],
      };
    const zero = rows.find(isZero);
    if (zero)
      return {
        rule: "shape",
        because: `${what} row ${printVector(zero)} is zero: it tells no points apart`,
        vectors: [zero],
      };
  }
  return undefined;
}

/**
 * Data availability: s.d >= 1 for computed values, s.d >= 0 for values that are only passed on. Only fixed directions
 * can violate it.
 */
function backwardsRefusal({ operands }: ArrayProblem, { schedule }: SpaceTime): SpaceTimeRefusal | undefined {
  for (const { name, role, reuse, order } of operands) {
    if (order === "free") continue;
    for (const d of reuse) {
      const sign = timeSign(schedule, d);
      if (sign > 0 || (sign === 0 && role === "input")) continue;
      const steps = schedule.map((s) => `${printVector(s)}.${printVector(d)} = ${dot(s, d)}`).join(", ");
      const because =
        sign < 0
          ? `the dependence ${printVector(d)} of ${name} runs backwards in time: ${steps}`
          : `the dependence ${printVector(d)} of ${name} takes no time, so its value would be used in the step that makes it: ${steps}`;
      return { rule: "backwards", because, vectors: [d] };
    }
  }
  return undefined;
}

/** Whether every fixed dependence takes time. */
export function keepsOrder({ operands }: Pick<ArrayProblem, "operands">, schedule: readonly Vector[]): boolean {
  return operands.every(
    (o) => o.order === "free" || o.reuse.every((d) => timeSign(schedule, d) >= (o.role === "input" ? 0 : 1)),
  );
}

/** Processor availability: no two points on the same PE at the same step. */
function collisionRefusal(problem: ArrayProblem, spaceTime: SpaceTime): SpaceTimeRefusal | undefined {
  const { allocation, schedule } = spaceTime;
  const difference = collision([...allocation, ...schedule], extentsOfLoops(problem));
  if (!difference) return undefined;
  const first = difference.map((x) => Math.max(0, -x));
  const second = plus(first, difference);
  const at = (rows: readonly Vector[]): string => {
    const values = rows.map((r) => dot(r, first));
    return values.length === 1 ? String(values[0]) : printVector(values);
  };
  return {
    rule: "collision",
    because:
      `points ${printVector(first)} and ${printVector(second)} of (${namesOf(problem.loops).join(",")}) both run on PE ${at(allocation)} at step ${at(schedule)}: ` +
      `T = ${printMatrix([...allocation, ...schedule])} takes their difference ${printVector(difference)} to 0`,
    vectors: [first, second, difference],
  };
}

/**
 * The difference of two points of a box that all rows map to the same value; undefined if the rows distinguish all
 * points.
 */
export function collision(rows: readonly Vector[], extents: Vector): Vector | undefined {
  return latticePointIn(nullSpace(rows, extents.length), extents);
}

/** The sign of a difference in time, the first row slowest. */
export function timeSign(schedule: readonly Vector[], d: Vector): number {
  for (const row of schedule) {
    const steps = dot(row, d);
    if (steps !== 0) return Math.sign(steps);
  }
  return 0;
}
