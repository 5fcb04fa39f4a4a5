/**
 * @file A candidate in words: for tables and for one line of a log.
 *
 *     avx512.vpdpbusd  n <- k   k <- c
 *     avx512.fma.f32   FBS-load on 16 lanes, 4 rows x 4 vectors
 */

import { type Candidate, isMapped } from "../abstraction/candidate.ts";
import { printMatching } from "../abstraction/mapping.ts";
import { gridScheduleRows } from "../mapper/schedule/grid.ts";

/** What it is, on one line, without its schedule. */
export function candidateText(candidate: Candidate): string {
  return `${candidate.intrinsic}  ${placeText(candidate)}`;
}

/** How loops meet the instruction: the matching, or the dataflow on lanes. */
export function placeText(candidate: Candidate): string {
  if (isMapped(candidate)) return printMatching(candidate.matching, "  ");
  const { dataflow, lanes, rows, vectors } = candidate.schedule;
  return `${dataflow} on ${lanes} lanes, ${rows} row${rows === 1 ? "" : "s"} x ${vectors} vector${vectors === 1 ? "" : "s"}`;
}

/** Everything it decides, a name and a text each. */
export function scheduleRows(candidate: Candidate): [name: string, text: string][] {
  if (candidate.kind === "grid") return gridScheduleRows(candidate.schedule);
  if (candidate.kind === undefined) {
    const { order, block, placement, spread, within, threads } = candidate.schedule;
    return [
      ["order", order.join(" ")],
      ["block", pairs(block)],
      ["placement", pairs(placement)],
      ...(within ? [["copied within", pairs(within)] as [string, string]] : []),
      ...(spread && spread.length > 0 ? [["spread", spread.join(" ")] as [string, string]] : []),
      ["threads", String(threads)],
    ];
  }
  const { rolled, weights, streaming, prefetchBytes, borders, strip, threads } = candidate.schedule;
  return [
    ["loops kept", rolled.join(" ") || "none"],
    ["weights", `in ${weights}`],
    ["stores", streaming ? "around the caches" : "through the caches"],
    ["prefetch", prefetchBytes === 0 ? "left to the hardware" : `${prefetchBytes} bytes ahead`],
    ["borders", borders],
    ...(strip === 0 ? [] : [["strip", `${strip} row blocks`] as [string, string]]),
    ["threads", String(threads)],
  ];
}

/** `mapping  n <- k` or `design  SBM on 16 lanes`, then the schedule. */
export function candidateRows(candidate: Candidate): [name: string, text: string][] {
  return [
    ["instruction", candidate.intrinsic],
    [isMapped(candidate) ? "mapping" : "design", placeText(candidate)],
    ...(isMapped(candidate) ? [["operands", pairs(candidate.operands)] as [string, string]] : []),
    ...scheduleRows(candidate),
  ];
}

/** The schedule on one line. */
export function scheduleText(candidate: Candidate): string {
  return scheduleRows(candidate)
    .map(([name, text]) => `${name} ${text}`)
    .join("; ");
}

function pairs(of: Readonly<Record<string, unknown>>): string {
  return (
    Object.entries(of)
      .map(([name, value]) => `${name} ${String(value)}`)
      .join(", ") || "none"
  );
}
