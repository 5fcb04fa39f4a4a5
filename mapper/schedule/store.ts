/**
 * @file Decision `store`: how sums reach the output.
 *
 *     direct     each lane writes the elements it holds
 *     quads      as direct, but four lanes exchange elements so that each writes 16 bytes: for 16-bit results of at
 *                least 32 columns; columns beyond a multiple of 32 are written as in direct
 *     staged     through shared memory, a row of tiles at a time, and from there along the output; the only way for
 *                fragments whose layout the vendor does not document
 *     bulk       parts of a warpgroup's tile through shared memory, from where the copy engine stores them while the next are computed
 */

import { z } from "zod";
import { addressOf, evaluateIndex } from "../../abstraction/affine.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { memoisedBy, sumOf, upTo } from "../../abstraction/collections.ts";
import { type Computation, outputOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { storingEquation } from "../../abstraction/row-chain.ts";
import { mappedLoops } from "./dense-runs.ts";
import { type GridAxis, type GridContext, type GridDecision, runAlong } from "./grid-context.ts";
import { resultForm } from "./views.ts";

/** Lanes that exchange words, and the bytes that each of them writes at once. */
const QUAD = 4;
const WRITTEN_BYTES = 16;

/** Why four lanes cannot exchange their elements; undefined when they can. */
function quadsProblem(context: GridContext): string | undefined {
  const { mapping, team, columns } = context;
  const output = outputOf(mapping.computation);
  if (team !== "warpgroup") return "four lanes exchange what a warpgroup holds";
  if (bytesOf(output.dtype) !== 2) return `four lanes exchange results of 2 bytes, not of ${bytesOf(output.dtype)}`;
  const atOnce = WRITTEN_BYTES / bytesOf(output.dtype);
  if (columns.extent < QUAD * atOnce)
    return `${columns.extent} columns are too few for four lanes to write ${atOnce} each`;
  if (resultsAlong(context, columns, atOnce) < atOnce)
    return `results of ${atOnce} columns are not contiguous in the output`;
  return undefined;
}

/** Why the copy engine cannot store results; undefined when it can. */
function bulkProblem(context: GridContext, { split, taps, transfer }: GridSchedule): string | undefined {
  const never = bulkNever(context);
  if (never !== undefined) return never;
  if (split) return "lanes store split sums";
  if (taps) return "rows of a window have gaps between them, and a copy engine stores whole boxes";
  return transfer === "engine" ? undefined : "a copy engine that stores results also fetches inputs";
}

/** Why the copy engine cannot store results under any schedule. */
function bulkNever(context: GridContext): string | undefined {
  const { mapping, team, limits } = context;
  const { dtype } = outputOf(mapping.computation);
  if (team !== "warpgroup" || !limits.engine) return "a copy engine stores what a warpgroup holds";
  if (bytesOf(dtype) !== 2) return `a copy engine stores results of 2 bytes here, not of ${bytesOf(dtype)}`;
  const form = resultForm(context);
  return typeof form === "string" ? form : undefined;
}

/** The names of the loops that feed an axis. */
const loopsAlong = ({ dimension }: GridAxis): string => dimension?.loops.map((l) => l.name).join() ?? "";

const runs = memoisedBy<Computation, number>();

/**
 * Contiguous elements of the output along an axis, up to `most`, that can be stored together. They may span several
 * loops, such as the rows and columns of an image in NCHW. 0 if neighbours are not contiguous. Cached by loops.
 */
export function resultsAlong({ mapping }: Pick<GridContext, "mapping">, along: GridAxis, most: number): number {
  const { computation } = mapping;
  const loops = mappedLoops(mapping);
  return runs(computation, `${loopsAlong(along)} ${most} ${[...loops.fed].join()}`, () =>
    runAlong(storingEquation(computation).target, along.dimension, () => outputOf(computation), most, loops),
  );
}

/** Whether the output is contiguous along the rows of the instruction, as for pixels in NCHW. */
export const runsAlongRows = (context: GridContext): boolean => resultsAlong(context, context.rows, 1) > 0;

/** Bytes of a sector, the unit in which an NVIDIA GPU writes memory. */
const SECTOR_BYTES = 32;
/**
 * Side of the patch of results that a warp stores together: eight rows, and two columns of each of four lanes (PTX ISA,
 * fragments of m16n8).
 */
const PATCH = 8;
const sectorCounts = memoisedBy<Computation, number>();

/**
 * Bytes of the sectors written, divided by the bytes of the results, if each lane writes the elements it holds: 1 for
 * full sectors, 2 for rows of 16 bytes, 16 if neighbours of 2 bytes are never contiguous. Cached by rows and columns.
 */
export function sectorsOver(context: GridContext): number {
  const { mapping, rows, columns } = context;
  return sectorCounts(mapping.computation, `${loopsAlong(rows)} ${loopsAlong(columns)}`, () => countSectors(context));
}

function countSectors(context: GridContext): number {
  const { mapping, rows, columns } = context;
  const { computation } = mapping;
  const output = outputOf(computation);
  const bytes = bytesOf(output.dtype);
  const place = addressOf(output, storingEquation(computation).target.index);
  const origin = Object.fromEntries(computation.axes.map((a) => [a.name, 0]));
  const counters = ({ dimension }: GridAxis, fused: number): (readonly [string, number])[] =>
    dimension?.loops.map((l, i) => [l.name, Math.floor(fused / (dimension.weights[i] ?? 1)) % l.extent] as const) ?? [];
  const sectorOf = (row: number, column: number): number => {
    const point = { ...origin, ...Object.fromEntries([...counters(rows, row), ...counters(columns, column)]) };
    return Math.floor((evaluateIndex(place, point) * bytes) / SECTOR_BYTES);
  };
  const [down, across] = [rows, columns].map((a) => upTo(Math.min(PATCH, a.elements)));
  // Contiguous pairs are written by one instruction, other pairs by two.
  const pairs = resultsAlong(context, columns, 1) > 0;
  const turns = pairs ? [across] : [0, 1].map((odd) => across?.filter((column) => column % 2 === odd));
  const sectors = sumOf(turns, (some) => new Set(down?.flatMap((r) => some?.map((c) => sectorOf(r, c)))).size);
  return (sectors * SECTOR_BYTES) / ((down?.length ?? 1) * (across?.length ?? 1) * bytes);
}

export const store: GridDecision<"store"> = {
  summary:
    "How sums reach the output: each lane writes the elements it holds (`direct`), four lanes exchange elements to write 16 bytes each (`quads`), or through shared memory, from where lanes (`staged`) or the copy engine (`bulk`) store them.",
  example: "staged",
  schema: z.enum(["direct", "staged", "quads", "bulk"]),
  values: (context) => {
    if (context.target.storage === undefined) return ["staged"];
    return [
      ...(quadsProblem(context) === undefined ? (["quads"] as const) : []),
      ...(["direct", "staged"] as const),
      ...(bulkNever(context) === undefined ? (["bulk"] as const) : []),
    ];
  },
  suits: (context, schedule, value) => value !== "bulk" || bulkProblem(context, schedule) === undefined,
  // Lanes store split sums as they hold them, where the parts meet.
  tidy: (_, schedule) => (schedule.split ? "direct" : schedule.store),
  traits: (schedule) => [`store ${schedule.store}`],
  problem: (context, schedule) => {
    if (schedule.store === "quads") return quadsProblem(context);
    if (schedule.store === "bulk") return bulkProblem(context, schedule);
    const secret = context.intrinsic.operands.find((o) => o.storage === undefined);
    return secret && schedule.store === "direct"
      ? `which lane holds which element of ${secret.name} is not known`
      : undefined;
  },
};
