/**
 * @file `automap db failures`: failed trials by reason.
 *
 *     count  status          reason                                           instructions  latest
 *     12     compile-failed  error: inlining failed in call to '_mm512_...'   avx512.vnni   3f9a1c77d0e2
 *
 * Two failures have the same reason when they have the same status and their logs begin alike, ignoring file names and all numbers except
 * signals.
 */

import { z } from "zod";
import { sortedBy, unique } from "../../abstraction/collections.ts";
import { type Database, queryTrials, shortId, type TrialFilter, type TrialRecord } from "../../db/index.ts";
import { tableWithin } from "../../report/text.ts";
import { documentOf, integer, print, printJson, say, text, texts } from "../output.ts";
import { sentenceRoom } from "../terminal.ts";

export const failuresDocument = documentOf({
  failures: z.array(
    z.strictObject({
      status: text.describe("how they ended"),
      reason: text.describe("what their logs begin with; # is a number"),
      count: integer,
      imported: integer.describe("how many of them were imported"),
      intrinsics: texts,
      workloads: integer.describe("of so many computations"),
      latest: text.describe("id of the latest"),
    }),
  ),
});

interface Reason {
  readonly status: string;
  readonly reason: string;
  readonly trials: readonly TrialRecord[];
}

export function printFailures(db: Database, filter: TrialFilter, json: boolean): void {
  const reasons = reasonsOf(queryTrials(db, { ...filter, sort: "at" }));
  if (json) {
    printJson(failuresDocument, {
      failures: reasons.map(({ status, reason, trials }) => ({
        status,
        reason,
        count: trials.length,
        imported: importedOf(trials),
        intrinsics: intrinsicsOf(trials),
        workloads: new Set(trials.map(({ workload }) => workload.computation)).size,
        latest: trials[0]?.id ?? "",
      })),
    });
    return;
  }
  if (reasons.length === 0) {
    say("automap: no trial that matches failed");
    return;
  }
  const rows = reasons.map(({ status, reason, trials }) => {
    const [first = "", ...others] = intrinsicsOf(trials);
    const instructions = others.length === 0 ? first : `${first} and ${others.length} more`;
    const imported = importedOf(trials);
    const count = imported === 0 ? String(trials.length) : `${trials.length}, ${imported} imported`;
    return [count, status, shortId(trials[0]?.id ?? ""), instructions, reason];
  });
  const head = ["count", "status", "latest", "instructions", "reason"];
  print(tableWithin([head, ...rows], sentenceRoom()));
}

const importedOf = (trials: readonly TrialRecord[]): number =>
  trials.filter(({ provenance }) => provenance === "imported").length;

/** Reasons with the most failures first; within each, the latest trial first. */
function reasonsOf(trials: readonly TrialRecord[]): Reason[] {
  const groups = new Map<string, Reason>();
  for (const trial of trials) {
    const { measurement } = trial;
    if (measurement.status === "ok" || measurement.status === "emulated") continue;
    const { status } = measurement;
    const reason = reasonIn(measurement.log);
    const key = `${status}\n${reason}`;
    groups.set(key, { status, reason, trials: [...(groups.get(key)?.trials ?? []), trial] });
  }
  return sortedBy(groups.values(), (a) => -a.trials.length);
}

const LONGEST = 160;

/** The first line that names an error, else the first line, without the parts that differ between kernels. */
function reasonIn(log: string): string {
  const lines = log.split("\n").filter((line) => line.trim() !== "");
  const line = lines.find((text) => /\b(?:error|Error)\b/.test(text)) ?? lines[0] ?? "no log";
  return line
    .trim()
    .replaceAll(/\S*\/\S+/g, "FILE")
    .replace(/^\S+?:\d+:(?:\d+:)?\s*/, "")
    .replaceAll(/(?<!signal |[\w.])-?(?:0x[0-9a-f]+|\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?!\w)/gi, "#")
    .slice(0, LONGEST);
}

function intrinsicsOf(trials: readonly TrialRecord[]): string[] {
  return unique(trials.map(({ intrinsic }) => intrinsic));
}
