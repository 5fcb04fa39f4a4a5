/** @file How the parts of a report filter and group trials. */

import { groupsOf } from "../../abstraction/collections.ts";
import type { TrialRecord } from "../../db/index.ts";
import type { Timed } from "../../tuner/trials.ts";

export type TimedRecord = Timed<TrialRecord>;

/** Whether a search requested the trial, rather than measured it again in its finals. */
export function isSearched({ finals }: TrialRecord): boolean {
  return finals === undefined;
}

/** Groups in the order of their first items. */
export function groupBy<T>(items: readonly T[], key: (item: T) => string): T[][] {
  return [...groupsOf(items, key).values()];
}
