/**
 * @file What a lane kernel leaves open, and which choices fit a sum of taps.
 *
 *     FBS-load   16 lanes   4 rows x 4 vectors   weights in registers   streaming, prefetch 2048 B
 *
 * The dataflows, in the words of space-time mapping (data x, weight w, sum z), on lanes:
 *
 * - `SBM`        data stay, weights are broadcast, partial sums move one lane on for every column of the window (SSAM, Chen et al., SC'19,
 *                listing 1). Of L lanes the first M-1 end without a whole window: blocks overlap by M-1 columns
 * - `FBS-shift`  the sum stays, data move past it by lane shifts; blocks overlap as above
 * - `FBS-load`   the sum stays, and each column of the window is loaded again, one element further on: no lane is lost
 */

import { boundsOf } from "../../abstraction/affine.ts";
import type { LaneDataflow, LaneSchedule } from "../../abstraction/candidate.ts";
import { type Computation, extentsOf } from "../../abstraction/computation.ts";
import { axesIn } from "../../abstraction/expression.ts";
import type { LaneRefusal, TapSum } from "./taps.ts";

/** Where taps reach: what blocks, borders and overlaps follow from. */
export interface Reach {
  /** Least and greatest shift along each dimension of the input. */
  readonly shifts: readonly (readonly [min: number, max: number])[];
  readonly laneDimension: number;
  /** The dimension of the input the rows of a block lie along. */
  readonly rowDimension: number | undefined;
  readonly rowAxis: string | undefined;
  /** M: columns of the window. */
  readonly columns: number;
}

export function reachOf(sum: TapSum): Reach {
  const extents = extentsOf(sum.computation);
  const shifts = sum.input.dims.map((_, d) => {
    const each = sum.taps.map((t) => boundsOf(t.shift[d] ?? { kind: "number", value: 0 }, extents));
    return [Math.min(...each.map(([min]) => min)), Math.max(...each.map(([, max]) => max))] as const;
  });
  const laneDimension = sum.input.dims.length - 1;
  const [min, max] = shifts[laneDimension] ?? [0, 0];
  const above = sum.computation.equation.target.index.at(-2);
  const rowAxis = above?.kind === "axis" ? above.name : undefined;
  const following = sum.follows.flatMap((f, d) => (f !== undefined && f === rowAxis ? [d] : []));
  const isRow = following.length === 1 && !sum.taps.some((t) => t.factor && axesIn(t.factor).includes(rowAxis ?? ""));
  return {
    shifts,
    laneDimension,
    rowDimension: isRow ? following[0] : undefined,
    rowAxis: isRow ? rowAxis : undefined,
    columns: max - min + 1,
  };
}

/** Outputs of one vector that are whole: all lanes when data are loaded, L-M+1 when something moves across them. */
export function outputsOfVector(dataflow: LaneDataflow, lanes: number, columns: number): number {
  return dataflow === "FBS-load" ? lanes : lanes - columns + 1;
}

/** Multiply-adds of one block at most: what is searched has up to 3000, and beyond this a compiler takes minutes. */
const MOST_WRITTEN = 16_384;

/** Why a schedule does not fit, or undefined. */
export function laneScheduleProblem(sum: TapSum, schedule: LaneSchedule): LaneRefusal | undefined {
  const { columns, rowDimension } = reachOf(sum);
  const refuse = (because: string): LaneRefusal => ({ rule: "form", because: `schedule: ${because}` });
  for (const [name, value] of [
    ["lanes", schedule.lanes],
    ["rows", schedule.rows],
    ["vectors", schedule.vectors],
  ] as const)
    if (!Number.isSafeInteger(value) || value < 1) return refuse(`${name} must be a positive integer, got ${value}`);
  const written = sum.taps.length * schedule.rows * schedule.vectors;
  if (written > MOST_WRITTEN)
    return refuse(`a block would be written as ${written} multiply-adds, more than ${MOST_WRITTEN}`);
  const fixed = schedule.rolled.find((name) => !rollable(sum.computation).includes(name));
  if (fixed !== undefined) return refuse(`${fixed} is no summed axis that can stay a loop`);
  if (outputsOfVector(schedule.dataflow, schedule.lanes, columns) < 1)
    return refuse(
      `a window of ${columns} columns leaves none of ${schedule.lanes} lanes whole; load the data instead (FBS-load)`,
    );
  if (schedule.rows > 1 && rowDimension === undefined)
    return refuse(`${schedule.rows} rows, but nothing moves along a row axis`);
  if (schedule.dataflow !== "FBS-load" && sum.rolled.length > 0)
    return refuse(
      `${sum.rolled.join(", ")} stays a loop, but ${schedule.dataflow} moves lanes from tap to tap; unroll it`,
    );
  return undefined;
}

/** Summed axes that may stay loops: those no condition depends on. */
export function rollable(computation: Computation): readonly string[] {
  const { where } = computation.equation;
  const bound = where ? axesIn(where) : [];
  return computation.axes
    .filter((a) => a.kind === "reduce" && a.extent > 1 && !bound.includes(a.name))
    .map((a) => a.name);
}

/** `FBS-load 16 lanes 4x4 registers streaming +2048`: a schedule on one line. */
export function printLaneSchedule(s: LaneSchedule): string {
  return [
    s.dataflow,
    `${s.lanes} lanes`,
    `${s.rows} rows x ${s.vectors} vectors`,
    ...(s.rolled.length > 0 ? [`loop over ${s.rolled.join(",")}`] : []),
    `weights in ${s.weights}`,
    ...(s.streaming ? ["streaming stores"] : []),
    ...(s.prefetchBytes > 0 ? [`prefetch ${s.prefetchBytes} B`] : []),
    ...(s.strip > 0 ? [`strips of ${s.strip}`] : []),
  ].join(", ");
}
