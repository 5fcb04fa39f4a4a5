/**
 * @file How the threads of a GPU share the rows of a chain of equations.
 *
 *     128 rows of 768 in f16      together 8, lanes 32, column warps 3, pieces 1, row warps 1      a block of three warps for each row
 *     1536 rows of 128 in f16     together 8, lanes 16, column warps 1, pieces 1, row warps 4      eight rows in a block of four warps
 *
 * A thread has `together` neighbouring columns of each of its pieces. Lanes come next, then the warps of a row, then pieces.
 */

import type { WarpChainSchedule } from "../../abstraction/candidate.ts";
import { hasName, upTo } from "../../abstraction/collections.ts";
import { type Computation, extentsOf, outputOf, tensorOf } from "../../abstraction/computation.ts";
import { type Access, accessesOf, axesIn } from "../../abstraction/expression.ts";
import { type ChainPart, type RowChain, storingEquation } from "../../abstraction/row-chain.ts";
import { fusedDimension } from "./dimensions.ts";
import { type GridLimits, runAlong } from "./grid-context.ts";
import { positive } from "./lane-decisions.ts";
import { allSchedules, type ScheduleKind } from "./schedules.ts";

/** A schedule with what follows from it. */
export interface ChainShape extends WarpChainSchedule {
  /** Runs of neighbouring columns of each thread. */
  readonly pieces: number;
}

interface WarpChainContext {
  readonly chain: RowChain;
  readonly limits: GridLimits;
}

/** The most elements that a thread moves at once: 16 bytes of f16. */
const MOST_TOGETHER = 8;
const ROW_WARPS = [1, 2, 4, 8];
/** Registers of a thread other than elements of a row: addresses and sums. */
const OTHER_REGISTERS = 40;
/** Of a thread; with more the compiler would keep some in memory. */
const MOST_REGISTERS = 168;
/** Threads of a row beyond those that it has columns for. */
const MOST_WASTE = 2;

export function shapeOf({ columns }: RowChain, schedule: WarpChainSchedule): ChainShape {
  const { together, lanes, columnWarps } = schedule;
  return { ...schedule, pieces: Math.ceil(columns / (together * lanes * columnWarps)) };
}

/** Halves down to 1. */
export const halvesOf = (most: number): number[] => upTo(Math.log2(most) + 1).map((i) => most / 2 ** i);

function coversFew(chain: RowChain, schedule: WarpChainSchedule): boolean {
  const { together: moved, lanes: shared, columnWarps: warps, pieces } = shapeOf(chain, schedule);
  return moved * shared * warps * pieces < MOST_WASTE * chain.columns;
}

/** In the order in which a fixed rule prefers them where the model sees no difference. */
export const WARP_CHAIN: ScheduleKind<WarpChainSchedule, WarpChainContext> = {
  decisions: {
    together: {
      summary: "Neighbouring columns that a thread moves at once, in each of its pieces of a row.",
      example: "8",
      schema: positive,
      values: ({ chain }) => halvesOf(mostTogether(chain)),
      problem: ({ chain }, schedule) =>
        halvesOf(mostTogether(chain)).includes(schedule.together)
          ? undefined
          : `together: ${schedule.together} columns of ${chain.computation.name} do not lie together`,
    },
    lanes: {
      summary: "Lanes of a warp that share a row; the others have other rows.",
      example: "16",
      schema: positive,
      values: ({ limits }) => halvesOf(limits.lanes),
      problem: ({ limits }, schedule) =>
        halvesOf(limits.lanes).includes(schedule.lanes) ? undefined : `lanes: ${schedule.lanes} are no part of a warp`,
    },
    columnWarps: {
      label: "warps of a row",
      summary: "Warps that share a row. Their sums meet in shared memory.",
      example: "3",
      schema: positive,
      values: ({ limits }) => upTo(limits.threads / limits.lanes).map((i) => i + 1),
      problem: ({ limits }, schedule) =>
        schedule.columnWarps > 1 && schedule.lanes < limits.lanes
          ? "columnWarps: a part of a warp has no others"
          : undefined,
      worthTrying: (context, schedule) =>
        (schedule.columnWarps === 1 || schedule.lanes === context.limits.lanes) && coversFew(context.chain, schedule),
    },
    rowWarps: {
      label: "warps of rows",
      summary: "Rows of warps in a block.",
      example: "4",
      schema: positive,
      values: () => ROW_WARPS,
    },
  },
  problem: ({ chain, limits }, schedule) => {
    const threads = limits.lanes * schedule.columnWarps * schedule.rowWarps;
    const registers = chainRegisters(chain, shapeOf(chain, schedule));
    const fits =
      registers <= MOST_REGISTERS && threads <= limits.threads && threads * registers <= limits.blockRegisters;
    return fits ? undefined : `a block of ${threads} threads with ${registers} registers each does not fit`;
  },
  tries: 200,
};

/** All legal shapes; none if no block holds a row. */
export function chainShapes(chain: RowChain, limits: GridLimits): ChainShape[] {
  return [...allSchedules(WARP_CHAIN, { chain, limits })].map((schedule) => shapeOf(chain, schedule));
}

/** Registers of a thread, as if all its elements were held from first to last. */
export function chainRegisters({ parts }: RowChain, { together, pieces }: ChainShape): number {
  const files = new Set(
    parts.flatMap((part) => [
      ...movingReads(part).map(({ tensor }) => part.names[tensor] ?? tensor),
      ...(part.makes === "each" ? [part.names[outputOf(part.computation).name]] : []),
    ]),
  );
  return OTHER_REGISTERS + files.size * together * pieces;
}

/** The loop whose neighbours are neighbouring columns. */
const innermost = ({ computation, digits }: ChainPart): Computation["axes"][number] | undefined =>
  computation.axes.find(({ name }) => digits[name]?.of === "column" && digits[name]?.stride === 1);

/** What an equation reads for each column. */
export function movingReads(part: ChainPart): Access[] {
  const columns = part.computation.axes.filter(({ name }) => part.digits[name]?.of === "column");
  const own = part.computation.equation.target.tensor;
  return [
    ...accessesOf(part.computation.equation).slice(1),
    ...accessesOf(storingEquation(part.computation)).slice(1),
  ].filter((e) => e.tensor !== own && e.index.some((i) => axesIn(i).some((name) => hasName(columns, name))));
}

/** Neighbouring columns that every access can move at once. */
function mostTogether({ parts }: RowChain): number {
  return parts.reduce((most, part) => {
    const { computation } = part;
    const along = innermost(part);
    if (!along) return most;
    const dimension = fusedDimension([along]);
    const stored = part.makes === "each" ? [storingEquation(computation).target] : [];
    const moved = [...movingReads(part), ...stored];
    return moved.reduce((least, e) => {
      const run = runAlong(e, dimension, (tensor) => tensorOf(computation, tensor), least, {
        extents: extentsOf(computation),
      });
      return Math.max(1, Math.min(least, run));
    }, most);
  }, MOST_TOGETHER);
}
