/**
 * @file `automap db compare` of two runs or two instructions: the best trial of each computation on either side, and what both have.
 *
 *     automap db compare --run 3f9a1c77 --run 77d0e2a8
 *     automap db compare --intrinsic vnni --intrinsic amx --op conv2d
 */

import { z } from "zod";
import { candidateKey } from "../../abstraction/candidate.ts";
import {
  best,
  type Database,
  type Filter,
  labelOf,
  queryTrials,
  shortId,
  showRun,
  type TrialRecord,
} from "../../db/index.ts";
import { counted, printTime } from "../../report/text.ts";
import { median } from "../../runtime/statistics.ts";
import type { TimedRecord } from "../../session/report/report-trials.ts";
import { isTimed } from "../../tuner/trials.ts";
import { documentOf, integer, number, print, printJson, say, text } from "../output.ts";
import { fitted } from "../terminal.ts";
import { summarise, summarySchema } from "./records.ts";
import { checkAlike, differing, type Pair, pairDocument, pairOf, pairSchema } from "./show.ts";

export interface Side {
  readonly label: string;
  readonly filter: Filter;
}

const sidesDocument = documentOf({
  sides: z.tuple([text, text]),
  both: z.array(pairSchema).describe("computations that both have a time of"),
  only: z.tuple([z.array(summarySchema), z.array(summarySchema)]).describe("what only a has, only b"),
  candidates: z
    .strictObject({
      both: integer,
      onlyA: integer,
      onlyB: integer,
      ratio: number.nullable().describe("median of b / a of those that both tried and that worked"),
    })
    .nullable()
    .describe("of two runs; null of two instructions"),
});
export const compareDocument = z.union([pairDocument, sidesDocument]);

/** The two runs as sides. @throws UsageError when they are of different computations */
export function sidesOfRuns(db: Database, prefixes: readonly [string, string]): readonly [Side, Side] {
  const a = showRun(db, prefixes[0]);
  const b = showRun(db, prefixes[1]);
  checkAlike("runs", a, b);
  const side = ({ id }: typeof a): Side => ({ label: `run ${shortId(id)}`, filter: { run: id } });
  return [side(a), side(b)];
}

/** @param isOneWorld whether times may be compared only within the same environment, as for instructions */
export function compareSides(
  db: Database,
  sides: readonly [Side, Side],
  { json, isOneWorld }: { readonly json: boolean; readonly isOneWorld: boolean },
): void {
  const keyOf = ({ workload, conditions, environment }: TrialRecord): string =>
    JSON.stringify([workload.computation, conditions.threads, conditions.cache, isOneWorld ? environment : ""]);
  const [a, b] = sides.map(
    ({ filter }) =>
      new Map(
        best(db, filter, { imported: true }).flatMap((trial) =>
          isTimed(trial) ? [[keyOf(trial), trial] as const] : [],
        ),
      ),
  ) as [Map<string, TimedRecord>, Map<string, TimedRecord>]; // two sides
  const both = [...a].flatMap(([key, left]): Pair[] => {
    const right = b.get(key);
    return right ? [[left, right]] : [];
  });
  const only = [
    [...a].flatMap(([key, trial]) => (b.has(key) ? [] : [trial])),
    [...b].flatMap(([key, trial]) => (a.has(key) ? [] : [trial])),
  ] as const;
  const candidates = isOneWorld ? undefined : sharedCandidates(db, sides);
  if (json)
    printJson(sidesDocument, {
      sides: [sides[0].label, sides[1].label],
      both: both.map(pairOf),
      only: [only[0].map(summarise), only[1].map(summarise)],
      candidates: candidates ?? null,
    });
  else print(describe(sides, both, only, candidates));
  for (const [left, right] of both)
    for (const difference of differing(left, right)) say(`automap: not under the same conditions: ${difference}`);
  if (both.length === 0) say("automap: there is no computation that both have a time of");
}

interface Shared {
  readonly both: number;
  readonly onlyA: number;
  readonly onlyB: number;
  readonly ratio: number | null;
}

function sharedCandidates(db: Database, [a, b]: readonly [Side, Side]): Shared {
  const tried = ({ filter }: Side): Map<string, TrialRecord> =>
    new Map(
      queryTrials(db, filter)
        .filter(({ finals }) => finals === undefined)
        .map((trial) => [candidateKey(trial.candidate), trial]),
    );
  const left = tried(a);
  const right = tried(b);
  const shared = [...left].flatMap(([key, trial]) => {
    const other = right.get(key);
    return other ? [[trial, other] as const] : [];
  });
  const ratios = shared.flatMap(([one, other]) =>
    isTimed(one) && isTimed(other) ? [other.measurement.median / one.measurement.median] : [],
  );
  return {
    both: shared.length,
    onlyA: left.size - shared.length,
    onlyB: right.size - shared.length,
    ratio: ratios.length === 0 ? null : median(ratios),
  };
}

function describe(
  [a, b]: readonly [Side, Side],
  both: readonly Pair[],
  only: readonly [readonly TimedRecord[], readonly TimedRecord[]],
  candidates: Shared | undefined,
): string {
  const size = (us: number): string => `${us < 0 ? "-" : ""}${printTime(Math.abs(us) * 1e-6)}`;
  const timeText = ({ measurement, intrinsic, provenance }: TimedRecord): string =>
    `${printTime(measurement.median)} ${intrinsic}${provenance === "here" ? "" : ", imported"}`;
  const rows = both.map((pair) => {
    const { verdict, difference } = pairOf(pair);
    const share = `${(100 * Math.abs(difference.ratio - 1)).toFixed(1)} %`;
    const [low, high] = difference.interval;
    const [left, right] = pair;
    return [
      labelOf(left.workload),
      timeText(left),
      timeText(right),
      `${size(difference.microseconds)} (${size(low)} to ${size(high)})`,
      verdict === "tie" ? "tie" : `${verdict} is faster, ${share}`,
    ];
  });
  const listed = (name: string, trials: readonly TimedRecord[]): string[][] =>
    trials.length === 0 ? [] : [[`only ${name}`, trials.map(({ workload }) => labelOf(workload)).join("; ")]];
  return [
    fitted([
      ["a", a.label],
      ["b", b.label],
    ]),
    ...(rows.length === 0 ? [] : ["", fitted([["workload", "a", "b", "b - a (95 %)", ""], ...rows])]),
    "",
    fitted([
      ["both", counted(both.length, "computation")],
      ...listed("a", only[0]),
      ...listed("b", only[1]),
      candidates && ["tried", triedText(candidates)],
    ]),
  ].join("\n");
}

function triedText({ both, onlyA, onlyB, ratio }: Shared): string {
  const times = ratio === null ? "" : `, which take ${ratio.toFixed(3)} of a's time in b (median)`;
  return `${counted(both, "candidate")} by both${times}; ${onlyA} by a only, ${onlyB} by b only`;
}
