/**
 * @file How well the latency model ranks measured trials that its correction has not seen, by data type.
 *
 *     npm run build
 *     node dist/bench/model-accuracy.js --db bench.db                       prints the table
 *     node dist/bench/model-accuracy.js --db a.db --db b.db --out bench/results/model-accuracy.md
 *
 * Pairs are two different trials of a workload. The correction is fitted without the trials on which it is judged:
 *
 * - `other workloads`: on all other workloads of the type
 * - `first half`: on the first half of the workload's trials, judged on the second: a search that is halfway through
 * - `both`: on the two together: a search that remembers earlier ones
 *
 * `distinct` counts only pairs whose 95 % intervals do not overlap, since no model can rank the others.
 *
 * The second table shows the noise of measurements: for candidates that two searches measured, the earlier time
 * predicts the later one.
 */

import { writeFileSync } from "node:fs";
import { cpus } from "node:os";
import type { MappedCandidate } from "../abstraction/candidate.ts";
import type { Mapping } from "../abstraction/mapping.ts";
import { computationOf, type Database, labelOf, openDatabase, queryTrials, type TrialRecord } from "../db/index.ts";
import type { Costs } from "../perfmodel/correct.ts";
import { apply, type Correction, fit as fitCorrection, NO_CORRECTION } from "../perfmodel/correct.ts";
import { createTerms } from "../perfmodel/model.ts";
import { type ModelTarget, modelTarget } from "../perfmodel/target.ts";
import { mappingOf, recordedMachine } from "../session/recorded.ts";
import { evaluateTogether, type Judged } from "../tuner/evaluate.ts";
import { readOptions } from "./options.ts";

const { values } = readOptions({
  options: {
    db: { type: "string", multiple: true, default: ["bench.db"] },
    out: { type: "string" },
    least: { type: "string", default: "8" },
    verbose: { type: "boolean", default: false },
  },
});

/** Data from which the correction is fitted. */
type Scheme = "uncorrected" | "other workloads" | "first half" | "both";
const SCHEMES: readonly Scheme[] = ["uncorrected", "other workloads", "first half", "both"];

/** A successful trial with its model features. */
interface Point {
  /** Mapping and schedule as text. */
  readonly candidate: string;
  readonly costs: Costs;
  readonly measuredSeconds: number;
  readonly interval: readonly [number, number];
}
interface Group {
  readonly types: string;
  readonly name: string;
  /** In the order of measurement. */
  readonly points: readonly Point[];
}

const groups = values.db.flatMap(readGroups).filter((g) => g.points.length >= Number(values.least));
const kinds = [...new Set(groups.map((g) => g.types))].sort();
const text = report();
process.stdout.write(text);
if (values.out !== undefined) writeFileSync(values.out, text);

function readGroups(file: string): Group[] {
  const db = openDatabase(file, { readonly: true });
  try {
    const byGroup = new Map<string, { types: string; name: string; points: Point[] }>();
    const termsOf = new Map<string, ReturnType<typeof createTerms>>();
    for (const trial of queryTrials(db, { status: "ok", sort: "at" }).reverse()) {
      const { workload, environment, conditions, candidate, measurement, finals } = trial;
      if (measurement.status !== "ok" || candidate.kind !== "mapping" || finals !== undefined) continue;
      const world = JSON.stringify([workload.id, environment.id, conditions.threads]);
      const key = `${world} ${mappingKey(candidate)}`;
      const terms = termsOf.get(key) ?? createTerms(mappingIn(trial), targetOf(db, trial));
      termsOf.set(key, terms);
      const costs = terms(candidate.schedule);
      if (!costs) continue;
      const group = byGroup.get(world) ?? { types: workload.dtype, name: nameOf(trial), points: [] };
      byGroup.set(world, group);
      const { median: measuredSeconds, interval } = measurement;
      group.points.push({
        candidate: `${key} ${JSON.stringify(candidate.schedule)}`,
        costs,
        measuredSeconds,
        interval,
      });
    }
    return [...byGroup.values()];
  } finally {
    db.close();
  }
}

function mappingIn({ workload, candidate }: TrialRecord): Mapping {
  return mappingOf(computationOf(workload), candidate);
}

function targetOf(db: Database, trial: TrialRecord): ModelTarget {
  const { machine, calibration } = recordedMachine(db, trial);
  return modelTarget(machine, calibration);
}

function mappingKey({ intrinsic, matching, operands }: MappedCandidate): string {
  return JSON.stringify([intrinsic, matching, operands]);
}

function nameOf({ workload, conditions }: TrialRecord): string {
  return `${labelOf(workload)}, ${conditions.threads} thread${conditions.threads === 1 ? "" : "s"}`;
}

// ---- Judging

/** The points of a group to be judged, and a correction that has not seen them. */
function judgedBy(scheme: Scheme, group: Group): { points: readonly Point[]; correction: Correction } {
  const others = groups.filter((g) => g !== group && g.types === group.types).flatMap((g) => g.points);
  const half = group.points.length >> 1;
  const first = group.points.slice(0, half);
  const second = group.points.slice(half);
  switch (scheme) {
    case "uncorrected":
      return { points: group.points, correction: NO_CORRECTION };
    case "other workloads":
      return { points: group.points, correction: fitCorrection(others) };
    case "first half":
      return { points: second, correction: fitCorrection(first) };
    case "both":
      return { points: second, correction: fitCorrection([...others, ...first]) };
    default:
      return scheme satisfies never;
  }
}

interface Score {
  readonly trials: number;
  readonly pairwise: number | undefined;
  readonly distinct: number | undefined;
  readonly recall: number | undefined;
}

function score(scheme: Scheme, of: readonly Group[]): Score {
  const parts = of.map((group) => {
    const { points, correction } = judgedBy(scheme, group);
    return points.map((p) => ({ ...p, predicted: apply(correction, p.costs), measured: p.measuredSeconds }));
  });
  const { count, pairwise, recall } = evaluateTogether(parts);
  let agree = 0;
  let total = 0;
  for (const points of parts)
    for (const a of points)
      for (const b of points) {
        if (a.interval[1] >= b.interval[0]) continue;
        total++;
        if (a.predicted < b.predicted) agree++;
      }
  return { trials: count, pairwise, distinct: total === 0 ? undefined : agree / total, recall };
}

/** Candidates measured twice, with the earlier time as prediction of the later. */
function measuredAgain(of: readonly Group[]): string | undefined {
  const parts = of.map(({ points }) => {
    const first = new Map<string, Point>();
    const again = new Map<string, Judged>();
    for (const point of points) {
      const { candidate, measuredSeconds: measured } = point;
      const earlier = first.get(candidate);
      if (earlier === undefined) first.set(candidate, point);
      else if (!again.has(candidate)) again.set(candidate, { predicted: earlier.measuredSeconds, measured });
    }
    return [...again.values()];
  });
  const { count, pairwise, recall } = evaluateTogether(parts);
  const apart = parts.flat().map((p) => Math.max(p.measured / p.predicted, p.predicted / p.measured));
  apart.sort((a, b) => a - b);
  const [half, most] = [0.5, 0.9].map((q) => apart[Math.floor(q * apart.length)]);
  if (pairwise === undefined || recall === undefined || half === undefined || most === undefined) return undefined;
  const cells = [count, (100 * pairwise).toFixed(1), (100 * recall).toFixed(1), half.toFixed(2), most.toFixed(2)];
  return `| ${of[0]?.types} | ${cells.join(" | ")} |`;
}

function report(): string {
  const share = (value: number | undefined): string => (value === undefined ? "" : (100 * value).toFixed(1));
  const row = (name: string, scheme: Scheme, of: readonly Group[]): string => {
    const { trials, pairwise, distinct, recall } = score(scheme, of);
    return `| ${name} | ${scheme} | ${of.length} | ${trials} | ${share(pairwise)} | ${share(distinct)} | ${share(recall)} |`;
  };
  const head = [
    "| types | correction learnt from | workloads | trials judged | pairwise % | distinct % | recall % |",
    "|---|---|---|---|---|---|---|",
  ];
  const lines = kinds.flatMap((types) =>
    SCHEMES.map((scheme) =>
      row(
        types,
        scheme,
        groups.filter((g) => g.types === types),
      ),
    ),
  );
  const again = kinds.flatMap((types) => measuredAgain(groups.filter((g) => g.types === types)) ?? []);
  const each = values.verbose
    ? ["", ...head, ...groups.flatMap((g) => SCHEMES.map((scheme) => row(`${g.types} ${g.name}`, scheme, [g])))]
    : [];
  return [
    "# How well the model ranks",
    "",
    `${cpus()[0]?.model.trim()}; pairs within a workload, none with itself; recall of the fastest 40 %; distinct: pairs whose intervals do not overlap.`,
    "",
    `    node dist/bench/model-accuracy.js ${process.argv.slice(2).join(" ")}`,
    "",
    ...head,
    ...lines,
    ...each,
    ...(again.length === 0
      ? []
      : [
          "",
          "| types | candidates measured twice | pairwise % | recall % | times apart, half of them | nine of ten |",
          "|---|---|---|---|---|---|",
          ...again,
        ]),
    "",
  ].join("\n");
}
