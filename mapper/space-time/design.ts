/**
 * @file The cost of a design, computed from its transform alone.
 *
 *     SBM of a 16-tap tile, filter 5     PEs 20   steps 5   outturn 3.2   utilisation 80 %   registers 80, coalesced 60
 *
 * Outturn is results per step; utilisation is points over PE-steps. Registers are counted as in the published table
 * (Systolic Computing on GPUs for Productive Performance, Table 4): a variable that travels s.d steps takes s.d + 1
 * registers a PE, and one without a recurrence takes 1. Coalesced registers let a new value replace the one that was
 * read last, which leaves max(1, s.d).
 */

import { product, sortedBy, sumOf } from "../../abstraction/collections.ts";
import { UsageError } from "../../abstraction/error.ts";
import type { SpaceTime } from "../../abstraction/recurrence.ts";
import { classify, type FlowClass } from "./classify.ts";
import { latticePointIn } from "./lattice.ts";
import {
  type ArrayOperand,
  type ArrayProblem,
  extentsOfLoops,
  type LoopSplit,
  occupiedExtent,
  pointsOfProblem,
} from "./problem.ts";
import { combination, dot, extentOfRow, isZero, nullSpace, plus, printMatrix, scaled, type Vector } from "./vector.ts";

/** A value read at `z - distance`: `steps` later and `hop` PEs further on. */
export interface Dependence {
  readonly distance: Vector;
  /** The direction of reuse that it follows. The distance differs if a sum continues from the far end of a faster loop. */
  readonly along: Vector;
  /** s.d */
  readonly steps: number;
  /** P.d */
  readonly hop: Vector;
}

/** A variable of the recurrence. Without dependences it is loaded or computed anew at each point. */
interface Variable {
  readonly dependences: readonly Dependence[];
}

/** How an operand moves through an array. */
export interface OperandFlow extends FlowClass {
  readonly name: string;
  readonly role: ArrayOperand["role"];
  /** One variable, or for a sum formed in levels one for each level, innermost first. */
  readonly variables: readonly Variable[];
  /** Elements that enter or leave at a boundary. */
  readonly boundary: number;
}

/** A systolic array: where and when each point of a recurrence runs, and what that takes. */
export interface Design {
  /** `SBM`; the second design of the same dataflow is `SBM.2`. */
  readonly name: string;
  /** `SBM` */
  readonly dataflow: string;
  /** The whole class, `S B sm`. It is equal for designs that move all operands in the same way. */
  readonly flowClass: string;
  /** Rows of the allocation and of the schedule. */
  readonly spaceTime: SpaceTime;
  /** The schedule as one row of time: several rows become one number of mixed radix. */
  readonly schedule: Vector;
  /** How each operand moves. */
  readonly flows: readonly OperandFlow[];
  /** Extents of the array; its PEs are their product. */
  readonly shape: readonly number[];
  /** Processing elements. */
  readonly pes: number;
  /** Time steps of one pass. */
  readonly steps: number;
  /** Results per step. */
  readonly outturn: number;
  /** Share of the PEs' steps that compute a point. */
  readonly utilisation: number;
  /** Registers of all PEs together. */
  readonly registers: { readonly plain: number; readonly coalesced: number };
  /** The farthest distance, in PEs, of a single transfer. */
  readonly shuffleDistance: number;
  /** Input elements loaded in one pass. */
  readonly boundaryLoads: number;
  /** In a polyphase form, the loop that was split by phase. */
  readonly split?: LoopSplit;
}

/**
 * Collapses several rows of time into one: t = t_last + extent(last) * (t_before ...).
 * @throws UsageError if an entry exceeds 2^53 and would not be exact
 */
export function collapseSchedule(schedule: readonly Vector[], extents: Vector): number[] {
  let radix = 1;
  let row: number[] = extents.map(() => 0);
  for (const s of schedule.toReversed()) {
    row = plus(row, scaled(s, radix));
    radix *= extentOfRow(s, extents);
  }
  if (!row.every(Number.isSafeInteger))
    throw new UsageError(
      `the schedule ${printMatrix(schedule)} takes more than 2^53 steps as one row of time`,
      "tile the loops: --lanes 16",
    );
  return row;
}

/** The part of a design that its allocation determines; shared by all designs with this allocation. */
export interface ArraySide {
  readonly allocation: readonly Vector[];
  readonly shape: readonly number[];
  readonly pes: number;
  readonly operands: readonly { readonly stay: number; readonly resident: boolean }[];
}

export function arraySide(problem: ArrayProblem, allocation: readonly Vector[]): ArraySide {
  const extents = extentsOfLoops(problem);
  const shape = allocation.map((row) => extentOfRow(row, extents));
  const kept = nullSpace(allocation, extents.length).length;
  return {
    allocation,
    shape,
    pes: product(shape),
    operands: problem.operands.map((operand) => {
      const { reuse, role, order } = operand;
      const stay = unmoved(operand, allocation, extents);
      // A window of which each PE needs only one element is loaded once. Otherwise its chains would begin on two faces
      // of the box.
      const window = reuse.some((d) => d.filter((x) => x !== 0).length > 1);
      const resident = role === "input" && order === "free" && window && stay === reuse.length && reuse.length === kept;
      return { stay, resident };
    }),
  };
}

/** The part of a design that its schedule determines. */
export interface TimeSide {
  readonly schedule: readonly Vector[];
  readonly row: Vector;
  readonly steps: number;
  readonly operands: readonly {
    readonly broadcast: number;
    readonly variables: readonly TimedVariable[];
    readonly boundary: number;
  }[];
}
export type TimedVariable = readonly Omit<Dependence, "hop">[];

export function timeSide(problem: ArrayProblem, schedule: readonly Vector[]): TimeSide {
  const extents = extentsOfLoops(problem);
  const row = collapseSchedule(schedule, extents);
  return {
    schedule,
    row,
    steps: occupiedExtent(row, problem),
    operands: problem.operands.map((operand) => ({
      broadcast: unmoved(operand, [row], extents),
      variables: operand.role === "input" ? inputVariables(operand, row, extents) : sumVariables(operand, row, extents),
      boundary: chainsOf(operand.reuse, extents),
    })),
  };
}

/**
 * The rank of the lattice vectors that all rows map to 0. A single vector counts only if two points of the box are that
 * far apart. Fixed dependences form no lattice and are counted one by one.
 */
function unmoved({ reuse, order }: ArrayOperand, rows: readonly Vector[], extents: Vector): number {
  if (reuse.length === 0) return 0;
  if (order === "fixed") return reuse.filter((d) => rows.every((row) => dot(row, d) === 0)).length;
  // First in coordinates of the basis, then in those of the loops.
  const still = nullSpace(
    rows.map((row) => reuse.map((d) => dot(row, d))),
    reuse.length,
  ).map((c) => combination(reuse, c));
  if (still.length === 1 && reuse.length > 1) return latticePointIn(still, extents) ? 1 : 0;
  return still.length;
}

/** The vector or its opposite, so that time does not run backwards. Fixed dependences keep their direction. */
function oriented(d: Vector, row: Vector, order: ArrayOperand["order"]): Vector {
  return order === "free" && dot(row, d) < 0 ? scaled(d, -1) : d;
}

/** An input is read from a neighbour that has it earlier. Along s.d = 0 all PEs use the same load. */
function inputVariables({ reuse, order }: ArrayOperand, row: Vector, extents: Vector): TimedVariable[] {
  const dependences = reuse
    .map((d) => oriented(d, row, order))
    .filter((d) => d.every((x, i) => Math.abs(x) < (extents[i] ?? 1)))
    .map((distance) => ({ distance, along: distance, steps: dot(row, distance) }))
    .filter(({ steps }) => steps !== 0);
  return [dependences];
}

/**
 * A sum over several loops. From the fastest loop to the slowest, each extends the chain by the vector from its last
 * point to the next first point, (0,-(KP-1),1), if that takes time. If not, a further level sums the results of the
 * chains. Loops with s.d = 0 are summed within a step and come first.
 */
function sumVariables({ reuse, order }: ArrayOperand, row: Vector, extents: Vector): TimedVariable[] {
  const stepsOf = (d: Vector): number => dot(row, d);
  if (order === "fixed") return [reuse.map((distance) => ({ distance, along: distance, steps: stepsOf(distance) }))];
  const axes = sortedBy(
    reuse.map((d) => oriented(d, row, order)),
    stepsOf,
  );
  const levels = chained(axes, stepsOf, extents);
  return levels.length === 0 ? [[]] : levels;
}

/** The levels of a sum along vectors, the fastest first. @param stepsOf steps that a distance takes */
export function chained(
  axes: readonly Vector[],
  stepsOf: (distance: Vector) => number,
  extents: Vector,
): TimedVariable[] {
  const levels: TimedVariable[] = [];
  const still: Vector = extents.map(() => 0);
  let back = still;
  for (const along of axes) {
    const level = levels.at(-1);
    const wrapped = plus(along, back);
    const inOneStep = stepsOf(along) === 0;
    const joins = level?.[0] && (inOneStep ? level[0].steps === 0 : level[0].steps > 0 && stepsOf(wrapped) >= 1);
    const distance = joins ? wrapped : along;
    const own = { distance, along, steps: stepsOf(distance) };
    if (level && joins) levels[levels.length - 1] = [...level, own];
    else levels.push([own]);
    back = plus(joins ? back : still, scaled(along, 1 - lengthAlong(along, extents)));
  }
  return levels;
}

/** The number of points of a box in a line along a direction. */
export function lengthAlong(d: Vector, extents: Vector): number {
  return Math.min(
    ...d.map((x, i) => (x === 0 ? Number.POSITIVE_INFINITY : Math.ceil((extents[i] ?? 1) / Math.abs(x)))),
  );
}

/** The design of a valid allocation and schedule. */
export function combine(problem: ArrayProblem, array: ArraySide, time: TimeSide): Omit<Design, "name"> {
  let plain = 0;
  let coalesced = 0;
  let shuffleDistance = 0;
  let boundaryLoads = 0;
  const flows = problem.operands.map((operand, v): OperandFlow => {
    const { stay, resident } = array.operands[v] ?? { stay: 0, resident: false };
    const { broadcast, variables, boundary } = time.operands[v] ?? { broadcast: 0, variables: [], boundary: 0 };
    const { code, letter } = classify(operand.role, { reuse: operand.reuse.length, broadcast, stay });
    const moving = (resident ? [[]] : variables).map(
      (dependences): Variable => ({
        dependences: dependences.map((d) => ({ ...d, hop: array.allocation.map((p) => dot(p, d.distance)) })),
      }),
    );
    for (const { dependences } of moving) {
      const depth = Math.max(0, ...dependences.map((d) => d.steps));
      plain += array.pes * (depth + 1);
      coalesced += array.pes * Math.max(1, depth);
      for (const { steps, hop } of dependences)
        if (steps > 0)
          shuffleDistance = Math.max(
            shuffleDistance,
            sumOf(hop, (x) => Math.abs(x)),
          );
    }
    if (operand.role === "input") boundaryLoads += boundary;
    return { name: operand.name, role: operand.role, code, letter, variables: moving, boundary };
  });
  const points = pointsOfProblem(problem);
  return {
    ...(problem.split ? { split: problem.split } : {}),
    dataflow: flows.map((f) => f.letter).join(""),
    flowClass: flows.map((f) => f.code).join(" "),
    spaceTime: { allocation: array.allocation, schedule: time.schedule },
    schedule: time.row,
    flows,
    shape: array.shape,
    pes: array.pes,
    steps: time.steps,
    outturn: problem.outputs / time.steps,
    utilisation: points / (array.pes * time.steps),
    registers: { plain, coalesced },
    shuffleDistance,
    boundaryLoads,
  };
}

/** The design of one transform. @param name its dataflow when left out */
export function designOf(problem: ArrayProblem, { allocation, schedule }: SpaceTime, name?: string): Design {
  const design = combine(problem, arraySide(problem, allocation), timeSide(problem, schedule));
  return { name: name ?? design.dataflow, ...design };
}

/**
 * The number of points at which chains begin: points of the box without a predecessor along any of the vectors. By
 * inclusion and exclusion.
 */
export function chainsOf(vectors: readonly Vector[], extents: Vector): number {
  const used = vectors.filter((d) => !isZero(d));
  // In exact integers, since the result may be a small difference of large counts.
  let count = 0n;
  for (let subset = 0; subset < 1 << used.length; subset++) {
    const chosen = used.filter((_, i) => (subset >> i) & 1);
    // Points that have a predecessor along every chosen vector form a box.
    const points = extents.reduce((product, extent, i) => {
      const up = Math.max(0, ...chosen.map((d) => d[i] ?? 0));
      const down = Math.max(0, ...chosen.map((d) => -(d[i] ?? 0)));
      return product * BigInt(Math.max(0, extent - up - down));
    }, 1n);
    count += chosen.length % 2 === 0 ? points : -points;
  }
  return Number(count);
}
