/** @file The windows that stencils.ts measures: the most promising of a space, of several forms and shapes. */

import type { WindowSchedule } from "../../abstraction/candidate.ts";
import type { ListedSpace } from "../../tuner/listed-space.ts";

/** A form may be so many times slower by prediction than the best, and be tried: whether rows come as lines is predicted badly. */
const OTHER_FORM = 1.25;

/**
 * The most promising schedules: a third are the best of each number of rows and planes; a third are their other forms, with
 * lines or without, and the best of other shapes; the rest are variants of the best in their use of memory. Predictions of
 * one shape often tie exactly.
 */
export function rankWindows(space: ListedSpace<WindowSchedule>, count: number): WindowSchedule[] {
  const ranked = [...space.all()]
    .map((schedule) => ({ schedule, seconds: space.expectedSeconds(schedule) }))
    .sort((a, b) => a.seconds - b.seconds);
  const limit = OTHER_FORM * (ranked[0]?.seconds ?? 0);
  const schedules = ranked.map((r) => r.schedule);
  const third = Math.ceil(count / 3);
  // 1. The best of each height.
  const best = distinct(schedules, heightOf).slice(0, third);
  // 2. Their other forms, then the best of other shapes.
  const near = schedules.slice(0, ranked.filter((r) => r.seconds <= limit).length);
  const forms = distinct(near, (s) => `${shapeOf(s)} ${s.lines !== undefined}`);
  const otherForms = best.flatMap((s) => forms.filter((other) => shapeOf(other) === shapeOf(s)));
  const opposite = schedules.filter((s) => (s.lines === undefined) !== (best[0]?.lines === undefined)).slice(0, 1);
  const others = [...new Set([...opposite, ...otherForms, ...distinct(schedules, shapeOf)])].filter(
    (s) => !best.includes(s),
  );
  best.push(...others.slice(0, third));
  // 3. Predictions are least reliable for prefetching, streaming stores, and which columns come from lines.
  const [first] = best;
  const alike = schedules.filter((s) => first && shapeOf(s) === shapeOf(first) && !best.includes(s));
  best.push(...alike.slice(0, Math.max(0, count - best.length)));
  return best.slice(0, count);
}

/** The part of a schedule that says how many outputs of other rows a block has. */
const heightOf = (s: WindowSchedule): string => [s.dataflow, s.rows, s.planes].join();

/** The part that says how many outputs a block has. */
const shapeOf = (s: WindowSchedule): string => [heightOf(s), s.vectors, s.rolled].join();

/** The first schedule of each kind. */
function distinct(schedules: readonly WindowSchedule[], kindOf: (s: WindowSchedule) => string): WindowSchedule[] {
  const kinds = new Map<string, WindowSchedule>();
  for (const s of schedules) if (!kinds.has(kindOf(s))) kinds.set(kindOf(s), s);
  return [...kinds.values()];
}
