/** @file How the parts of a report filter and group trials. */

import { groupsOf } from "../abstraction/collections.ts";
import type { TrialRecord } from "../db/index.ts";

type Timed = Extract<TrialRecord["measurement"], { status: "ok" }>;
export type TimedRecord = TrialRecord & { measurement: Timed };

export function isTimed(trial: TrialRecord): trial is TimedRecord {
  return trial.measurement.status === "ok";
}

/** Whether a search requested the trial, rather than measured it again in its finals. */
export function isSearched({ finals }: TrialRecord): boolean {
  return finals === undefined;
}

/** Groups in the order of their first items. */
export function groupBy<T>(items: readonly T[], key: (item: T) => string): T[][] {
  return [...groupsOf(items, key).values()];
}

export function inOrder(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
