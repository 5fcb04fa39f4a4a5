/**
 * @file The search space of recurrences on lanes: each possible form, with the number of lanes or vectors that run side by side.
 *
 *     const space = recurrentSpace(computation, { threads: 1, target });      a space, or why lanes cannot make the result
 */

import type { RecurrenceSchedule } from "../abstraction/candidate.ts";
import { sortedBy } from "../abstraction/collections.ts";
import type { Computation } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { RECURRENCE_DECISIONS } from "../mapper/schedule/array-decisions.ts";
import { lowerRecurrent } from "../mapper/space-time/lower-recurrent.ts";
import {
  isForm,
  isRecurrentForms,
  leastSkew,
  MOST_REGISTERS,
  type Recurrent,
  recurrentForms,
  recurrentUnder,
  transformOf,
} from "../mapper/space-time/recurrent.ts";
import type { LaneRefusal } from "../mapper/space-time/taps.ts";
import type { ModelTarget } from "../perfmodel/target.ts";
import { vectorSeconds } from "../perfmodel/vectors.ts";
import { ZMM } from "../targets/x86.ts";
import { ListedSpace } from "./listed-space.ts";

/** Vectors of a plane side by side: independent sums hide each other's latency. */
const BESIDE = [1, 2, 4, 8] as const;

/** The space, or why lanes cannot compute the result. */
export function recurrentSpace(
  computation: Computation,
  { threads, target }: { readonly threads: number; readonly target: ModelTarget },
): ListedSpace<RecurrenceSchedule> | LaneRefusal {
  const forms = recurrentForms(computation);
  if (!isRecurrentForms(forms)) return forms;
  const all = forms.flatMap((form) => schedulesOf(form, threads));
  const refused = all.flatMap((schedule) => {
    const form = recurrentUnder(computation, schedule);
    return isForm(form) ? [] : [form];
  });
  const [first] = refused;
  if (first && refused.length === all.length) return first;
  const secondsOf = (schedule: RecurrenceSchedule): number => {
    const form = recurrentUnder(computation, schedule);
    if (!isForm(form)) return Number.POSITIVE_INFINITY;
    return vectorSeconds(lowerRecurrent(form, schedule), computation, { target, threads });
  };
  const ranked = sortedBy(
    all
      .map((schedule) => ({ schedule, seconds: secondsOf(schedule) }))
      .filter(({ seconds }) => Number.isFinite(seconds)),
    (a) => a.seconds,
  );
  return new ListedSpace(
    RECURRENCE_DECISIONS,
    ranked.map((r) => r.schedule),
    secondsOf,
  );
}

function schedulesOf(form: Recurrent, threads: number): RecurrenceSchedule[] {
  const register = ZMM.bytes / bytesOf(form.dtype);
  const base = { beside: {}, threads };
  switch (form.form) {
    case "wavefront":
      return Array.from({ length: MOST_REGISTERS }, (_, n) => n + 1)
        .filter((n) => n !== 3)
        .map((n) => ({ ...base, transform: transformOf(form, leastSkew(form)), lanes: n * register }));
    case "planes": {
      const last = form.inner.at(-1);
      return BESIDE.filter((n) => n === 1 || n * register <= (last?.extent ?? 1)).map((n) => ({
        ...base,
        transform: transformOf(form),
        lanes: register,
        beside: n === 1 || !last ? {} : { [last.name]: n },
      }));
    }
    case "prefix":
      return [{ ...base, transform: transformOf(form), lanes: register }];
    default:
      return form.form satisfies never;
  }
}
