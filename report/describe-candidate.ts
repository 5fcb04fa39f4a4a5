/**
 * @file Describes a candidate in words, for tables and for one line of a log.
 *
 *     avx512.vpdpbusd  n <- k   k <- c
 *     avx512.fma.f32   FBS-load on 16 lanes, 4 rows x 4 vectors
 */

import { type Candidate, isArray, isMapped } from "../abstraction/candidate.ts";
import type { Rewriting } from "../abstraction/computation.ts";
import { type Matching, printMatching } from "../abstraction/mapping.ts";
import { ARRAY_DECISIONS, printTransform } from "../mapper/schedule/array-decisions.ts";
import { printPairs } from "../mapper/schedule/decision.ts";
import { GRID_DECISIONS } from "../mapper/schedule/grid-decisions.ts";
import { LANE_DECISIONS } from "../mapper/schedule/lane-decisions.ts";
import { MAPPED_DECISIONS } from "../mapper/schedule/mapped-decisions.ts";
import * as schedules from "../mapper/schedule/schedules.ts";
import { THREAD_DECISIONS } from "../mapper/schedule/thread/decisions.ts";

/** How the mapped loops were rewritten from those of the equation. */
export const REWRITTEN: Readonly<Record<Rewriting["kind"], string>> = {
  phases: "in phases of its strides",
  reversed: "taps counted from the last",
  "bands-8": "runs of 8 results, with bands of the weights",
  "bands-16": "runs of 16 results, with bands of the weights",
  "bands-32": "runs of 32 results, with bands of the weights",
};

/** The candidate on one line, without its schedule. */
export function candidateText(candidate: Candidate): string {
  return `${candidate.intrinsic}  ${placeText(candidate)}`;
}

/** How loops map to the instruction: the matching, or the dataflow on lanes. */
export function placeText(candidate: Candidate): string {
  if (isMapped(candidate)) return printMatching(candidate.matching, "  ");
  if (isArray(candidate)) {
    const { transform, lanes: width, beside } = candidate.schedule;
    return `${printTransform(transform)} on ${width} lanes, beside ${printPairs(beside)}`;
  }
  if (candidate.kind === "loops") return "plain loops";
  const { dataflow, lanes, rows, vectors } = candidate.schedule;
  return `${dataflow} on ${lanes} lanes, ${rows} row${rows === 1 ? "" : "s"} x ${vectors} vector${vectors === 1 ? "" : "s"}`;
}

/** All decisions, each as a name and a text. */
export function scheduleRows(candidate: Candidate): [name: string, text: string][] {
  if (candidate.kind === "grid") return schedules.scheduleRows(GRID_DECISIONS, candidate.schedule);
  if (candidate.kind === "threads") return schedules.scheduleRows(THREAD_DECISIONS, candidate.schedule);
  if (candidate.kind === undefined) return schedules.scheduleRows(MAPPED_DECISIONS, candidate.schedule);
  if (candidate.kind === "loops") return [["threads", String(candidate.schedule.threads)]];
  if (isArray(candidate)) return schedules.scheduleRows(ARRAY_DECISIONS, candidate.schedule);
  return schedules.scheduleRows(LANE_DECISIONS, candidate.schedule);
}

/** `mapping  n <- k` or `design  SBM on 16 lanes`, then the schedule. */
export function candidateRows(candidate: Candidate): [name: string, text: string][] {
  return [
    ["instruction", candidate.intrinsic],
    [isMapped(candidate) ? "mapping" : "design", placeText(candidate)],
    ...(isMapped(candidate) ? [["operands", printPairs(candidate.operands)] as [string, string]] : []),
    ...(isMapped(candidate) && candidate.rewriting
      ? [["loops", REWRITTEN[candidate.rewriting]] as [string, string]]
      : []),
    ...scheduleRows(candidate),
  ];
}

/**
 * All decisions as values, to compare candidates. A decision made for each axis gives a value for each, `tile m`.
 * Omitted decisions are absent.
 */
export function decisionValues(candidate: Candidate): [name: string, value: string][] {
  const printed = new Map(scheduleRows(candidate));
  return [
    ["instruction", candidate.intrinsic],
    ...(isMapped(candidate) ? [["mapping", matchingText(candidate)] as [string, string]] : []),
    ...(isMapped(candidate) && candidate.rewriting ? [["loops", candidate.rewriting] as [string, string]] : []),
    ...Object.entries(candidate.schedule).flatMap(([name, value]: [string, unknown]): [string, string][] => {
      const label = LABELS.get(name) ?? name;
      if (value === undefined) return [];
      if (Array.isArray(value)) return [[label, value.join(" ") || "none"]];
      if (typeof value === "boolean") return [[label, printed.get(label) ?? String(value)]];
      if (typeof value !== "object" || value === null) return [[label, String(value)]];
      if (name === "transform") return [[label, printed.get(label) ?? ""]];
      return Object.entries(value).map(([axis, chosen]) => [`${label} ${axis}`, String(chosen)]);
    }),
  ];
}

/** `k<-c m<-q`: the shortest form. */
const matchingText = ({ matching }: Candidate & { readonly matching: Matching }): string =>
  printMatching(matching, " ").replaceAll(" <- ", "<-");

/** Labels of decisions whose key is not descriptive enough. */
const LABELS = new Map(
  [GRID_DECISIONS, THREAD_DECISIONS, MAPPED_DECISIONS, LANE_DECISIONS, ARRAY_DECISIONS].flatMap((decisions) =>
    Object.values(decisions).map(({ name, label = name }) => [name, label] as const),
  ),
);

/** The schedule on one line. */
export function scheduleText(candidate: Candidate): string {
  return scheduleRows(candidate)
    .map(([name, text]) => `${name} ${text}`)
    .join("; ");
}
