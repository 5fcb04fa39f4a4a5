/**
 * @file The search space of recurrences on lanes: each possible form, with the number of lanes or vectors that run side by side.
 *
 *     const space = recurrentSpace(computation, { threads: 1, target });      a space, or why lanes cannot make the result
 */

import { type ArraySchedule, canonicalJson } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { pick } from "../abstraction/random.ts";
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
import { recurrentSeconds } from "../perfmodel/recurrent.ts";
import type { ModelTarget } from "../perfmodel/target.ts";
import { ZMM } from "../targets/x86.ts";
import type { SearchSpace } from "./space.ts";

export interface RecurrentSpace extends SearchSpace<ArraySchedule> {
  readonly size: number;
  /** Schedules by predicted time, shortest first. */
  readonly ranked: readonly { readonly schedule: ArraySchedule; readonly seconds: number }[];
  expectedSeconds(schedule: ArraySchedule): number;
}

/** Vectors of a plane side by side: independent sums hide each other's latency. */
const BESIDE = [1, 2, 4, 8] as const;

/** The space, or why lanes cannot compute the result. */
export function recurrentSpace(
  computation: Computation,
  { threads, target }: { readonly threads: number; readonly target: ModelTarget },
): RecurrentSpace | LaneRefusal {
  const forms = recurrentForms(computation);
  if (!isRecurrentForms(forms)) return forms;
  let refused: LaneRefusal | undefined;
  const ranked = forms
    .flatMap((form) => schedulesOf(form, threads))
    .flatMap((schedule) => {
      const form = recurrentUnder(computation, schedule);
      if (isForm(form)) return [{ schedule, seconds: recurrentSeconds(form, schedule, target) }];
      refused ??= form;
      return [];
    })
    .toSorted((a, b) => a.seconds - b.seconds);
  if (ranked.length === 0 && refused) return refused;
  const schedules = ranked.map((r) => r.schedule);
  const known = new Map(ranked.map(({ schedule, seconds }) => [canonicalJson(schedule), seconds]));
  return {
    ranked,
    size: ranked.length,
    key: canonicalJson,
    expectedSeconds: (schedule) => known.get(canonicalJson(schedule)) ?? Number.POSITIVE_INFINITY,
    random: (random) => pick(random, schedules),
    mutate: (_, random) => pick(random, schedules),
    crossover: (a, b, random) => (random() < 0.5 ? a : b),
    *all() {
      yield* schedules;
    },
  };
}

function schedulesOf(form: Recurrent, threads: number): ArraySchedule[] {
  const register = ZMM.bytes / bytesOf(form.dtype);
  const base = { tile: {}, beside: {}, inputs: "loaded", streaming: false, threads } as const;
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
