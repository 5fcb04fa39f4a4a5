/**
 * @file Describes a candidate in words, for tables and for one line of a log.
 *
 *     avx512.vpdpbusd  n <- k   k <- c
 *     avx512.fma.f32   FBS-load on 16 lanes, 4 rows x 4 vectors
 */

import { type Candidate, isMapped } from "../abstraction/candidate.ts";
import { present } from "../abstraction/collections.ts";
import type { Rewriting } from "../abstraction/computation.ts";
import { type Matching, printMatching } from "../abstraction/mapping.ts";
import { printPairs } from "../mapper/schedule/decision.ts";
import { KINDS, kindOf } from "../mapper/schedule/kinds.ts";
import * as schedules from "../mapper/schedule/schedules.ts";

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
  return isMapped(candidate)
    ? printMatching(candidate.matching, "  ")
    : (kindOf(candidate).place?.(candidate.schedule) ?? "");
}

/** All decisions, each as a name and a text. */
export function scheduleRows(candidate: Candidate): [name: string, text: string][] {
  return schedules.scheduleRows(kindOf(candidate).decisions, candidate.schedule);
}

/** `mapping  n <- k` or `design  SBM on 16 lanes`, then the schedule. */
export function candidateRows(candidate: Candidate): [name: string, text: string][] {
  return present([
    ["instruction", candidate.intrinsic],
    [isMapped(candidate) ? "mapping" : "design", placeText(candidate)],
    isMapped(candidate) && ["operands", printPairs(candidate.operands)],
    isMapped(candidate) && candidate.rewriting && ["loops", REWRITTEN[candidate.rewriting]],
    ...scheduleRows(candidate),
  ]);
}

/**
 * All decisions as values, to compare candidates. A decision made for each axis gives a value for each, `tile m`.
 * Omitted decisions are absent.
 */
export function decisionValues(candidate: Candidate): [name: string, value: string][] {
  const printed = new Map(scheduleRows(candidate));
  return present([
    ["instruction", candidate.intrinsic],
    isMapped(candidate) && ["mapping", matchingText(candidate)],
    isMapped(candidate) && candidate.rewriting && ["loops", candidate.rewriting],
    ...Object.entries(candidate.schedule).flatMap(([name, value]: [string, unknown]): [string, string][] => {
      const label = LABELS.get(name) ?? name;
      if (value === undefined) return [];
      if (Array.isArray(value)) return [[label, value.join(" ") || "none"]];
      if (typeof value === "boolean") return [[label, printed.get(label) ?? String(value)]];
      if (typeof value !== "object" || value === null) return [[label, String(value)]];
      if (name === "transform") return [[label, printed.get(label) ?? ""]];
      return Object.entries(value).map(([axis, chosen]) => [`${label} ${axis}`, String(chosen)]);
    }),
  ]);
}

/** `k<-c m<-q`: the shortest form. */
const matchingText = ({ matching }: Candidate & { readonly matching: Matching }): string =>
  printMatching(matching, " ").replaceAll(" <- ", "<-");

/** Labels of decisions whose key is not descriptive enough. */
const LABELS = new Map(
  Object.values(KINDS).flatMap(({ decisions }) =>
    Object.entries(decisions).map(([name, { label = name }]) => [name, label] as const),
  ),
);

/** The schedule on one line. */
export function scheduleText(candidate: Candidate): string {
  return scheduleRows(candidate)
    .map(([name, text]) => `${name} ${text}`)
    .join("; ");
}
