/**
 * @file Register reuse of `fragments rolled`: a warp keeps the fragments of a staged image for the next row of taps and fetches only the row below.
 *
 *     8 fragments of a warp, each a row of the image below the other; 9 rows of taps
 *       tap row 0       fetch rows 0..7        product of fragment i and tap row 0: register i
 *       tap row r       fetch row r + 7        product of fragment i and tap row r: register (i + r) % 8
 *
 * 16 fetches instead of 72.
 */

import type { GridSchedule } from "../../abstraction/candidate.ts";
import { boxOf } from "./gather.ts";
import type { GridContext, GridInput } from "./grid-context.ts";
import { fragmentsAlong } from "./tile.ts";

interface Rolled {
  readonly input: GridInput;
  /** Fragments of a warp, one row of the image each. */
  readonly count: number;
  /** Rows of taps, and issues along each of them. */
  readonly taps: number;
  readonly parts: number;
}

/** How fragments stay in registers, or one sentence on why they cannot. */
export function rolledOf(
  context: GridContext,
  schedule: Pick<GridSchedule, "gather" | "tile" | "warps">,
): Rolled | string {
  const { sum, outerSums } = context;
  const box = boxOf(context, schedule);
  if (!box?.inRows) return "rows of taps share fragments only of an image that is staged in rows of 16 bytes";
  const [row, column, ...more] = sum.dimension?.loops ?? [];
  if (!row || !column || more.length > 0 || outerSums.length > 0) return "the sum is not over rows of taps";
  if (column.extent % sum.extent !== 0) return `a row of ${column.extent} taps is no multiple of ${sum.extent}`;
  if (schedule.tile[sum.axis] !== sum.elements) return "rows of taps are in several steps";
  const { input, kept, dims } = box;
  const { extent } = input.kept;
  const [below, inner] = kept.slice(-2);
  if (!inner || inner.count !== extent || !below) return `a fragment is not ${extent} places of one row`;
  const isNext = dims.every(({ form }) => form.terms.get(below.name) === form.terms.get(row.name));
  if (!isNext) return `the next ${below.name} does not read what the next ${row.name} does`;
  const count = fragmentsAlong(input.kept, schedule);
  if (below.count % count !== 0) return `${count} fragments of a warp are not rows of one block of ${below.count}`;
  return { input, count, taps: row.extent, parts: column.extent / sum.extent };
}
