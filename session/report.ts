/**
 * @file Gathers what a report shows from a database: the best, the trials, the model's accuracy, the roofline, the noise.
 *
 *     const data = gatherReport(db, { operator: "conv2d" }, Date.now());
 */

import { usefulPoints } from "../abstraction/condition.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { attempt, UsageError } from "../abstraction/error.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import type { Target } from "../abstraction/machine.ts";
import type { Mapping } from "../abstraction/mapping.ts";
import {
  best,
  computationOf,
  type Database,
  type EnvironmentRecord,
  type Filter,
  labelOf,
  queryTrials,
  type TrialRecord,
  wordsOf,
} from "../db/index.ts";
import { instructionsOf, knownIntrinsics } from "../intrinsics/index.ts";
import { mappings } from "../mapper/match/enumerate.ts";
import type { CalibratedMemory, Calibration } from "../perfmodel/calibrate.ts";
import { neededPoints } from "../perfmodel/roof.ts";
import { candidateRows } from "../report/describe-candidate.ts";
import type {
  Accuracy,
  Best,
  EnvironmentFacts,
  Reason,
  ReportData,
  Roofline,
  RooflinePoint,
  Subject,
  TrialPoint,
} from "../report/report-data.ts";
import { nativeTarget } from "../targets/index.ts";
import { evaluateTogether, judged } from "../tuner/evaluate.ts";
import { boundsOf, contradictionOf, contradictionText } from "./contradiction.ts";
import { noiseOf } from "./noise.ts";
import { mappingOf, recordedMachine, type StoredCalibration, storedCalibration } from "./recorded.ts";
import { VERSION } from "./version.ts";

/** Seconds that a calibration allows a trial, at least. */
type Roofs = (trial: TrialRecord) => number | undefined;
type Timed = Extract<TrialRecord["measurement"], { status: "ok" }>;
type TimedRecord = TrialRecord & { measurement: Timed };

/**
 * Everything a report shows of the trials that match.
 * @param now milliseconds since 1970
 */
export function gatherReport(db: Database, filter: Filter, now: number): ReportData {
  const trials = queryTrials(db, { ...filter, sort: "at" }).reverse();
  const environments = [...new Map(trials.map((t) => [t.environment.id, t.environment])).values()];
  const indexOf = (e: EnvironmentRecord): number => environments.findIndex((other) => other.id === e.id);
  const calibrations = environments.map((e) => storedCalibration(db, e));
  const winners = new Set(best(db, filter).map((t) => t.id));
  const groups = groupBy(trials, ({ workload, environment, conditions }) =>
    JSON.stringify([workload.computation, environment.id, conditions.threads, conditions.cache]),
  );
  const subjects = groups.map((group) => {
    const [first] = group;
    if (!first) throw new Error("internal: a group of no trials");
    const known = calibrations[indexOf(first.environment)];
    return subjectOf(
      first,
      group.filter(isSearched),
      group.filter(isTimed).find((t) => winners.has(t.id)),
      indexOf(first.environment),
      known && roofsOf(db, known.calibration),
    );
  });
  subjects.sort((a, b) => inOrder(a.subject, b.subject) || inOrder(a.types, b.types) || inOrder(a.label, b.label));
  return {
    source: db.path,
    filter: filterText(filter),
    madeAt: now,
    version: VERSION,
    subjects,
    accuracy: accuracies(groups.map((group) => group.filter(isSearched))),
    rooflines: environments.flatMap((e, i): Roofline[] => {
      const stored = calibrations[i];
      const own = groups.filter(([first]) => first?.environment.id === e.id);
      return stored ? [rooflineOf(db, i, own, winners, stored)] : [];
    }),
    environments: environments.map(environmentFacts),
    noise: noiseOf(trials),
  };
}

function subjectOf(
  first: TrialRecord,
  trials: readonly TrialRecord[],
  winner: TimedRecord | undefined,
  environment: number,
  roofs: Roofs | undefined,
): Subject {
  const { workload, conditions } = first;
  const { subject, shape, types, layout, epilogue, besides } = wordsOf(workload);
  return {
    label: labelOf(workload),
    name: workload.name,
    subject,
    shape,
    types,
    layout: [layout, besides].filter((part) => part !== "").join(" "),
    epilogue,
    equation: workload.equation,
    threads: conditions.threads,
    cache: conditions.cache,
    environment,
    trials: trials.map(pointOf),
    best: winner && bestOf(winner, roofs?.(winner)),
    accuracy: accuracyOf(labelOf(workload), [trials]),
    failures: reasons(
      trials.flatMap(({ measurement: m }) => (m.status === "ok" ? [] : [{ name: m.status, text: m.log }])),
    ),
    refusals: refusalsOf(first),
  };
}

function pointOf({ id, at, candidate, measurement, prediction }: TrialRecord): TrialPoint {
  const timed = measurement.status === "ok" ? measurement : undefined;
  return {
    id,
    at,
    intrinsic: candidate.intrinsic,
    status: measurement.status,
    seconds: timed?.median,
    interval: timed?.interval,
    predicted: prediction?.seconds,
    uncorrected: prediction?.uncorrectedSeconds,
  };
}

function bestOf(trial: TimedRecord, leastSeconds: number | undefined): Best {
  const { id, workload, candidate, measurement, prediction } = trial;
  const points = attempt(() => usefulPoints(computationOf(workload))) ?? workload.points;
  const rate = (2 * points) / measurement.median;
  return {
    id,
    seconds: measurement.median,
    interval: measurement.interval,
    operationsPerSecond: rate,
    candidate: candidateRows(candidate),
    predicted: prediction?.seconds,
    levels: prediction?.levels ?? [],
    ofRoof: leastSeconds === undefined ? undefined : leastSeconds / measurement.median,
    mapping: drawable(trial),
  };
}

/** The mapping of a record, or why there is none to draw. */
function drawable({ workload, candidate }: TrialRecord): Mapping | string {
  try {
    return mappingOf(computationOf(workload), candidate);
  } catch (error) {
    if (error instanceof UsageError) return error.message;
    throw error;
  }
}

// ---- The model

function accuracies(groups: readonly (readonly TrialRecord[])[]): Accuracy[] {
  const byTypes = groupBy(groups, ([first]) => first?.workload.dtype ?? "");
  const rows = byTypes.map((own) => accuracyOf(own[0]?.[0]?.workload.dtype ?? "", own));
  return rows.length > 1 ? [...rows, accuracyOf("all", groups)] : rows;
}

function accuracyOf(name: string, groups: readonly (readonly TrialRecord[])[]): Accuracy {
  const rates = (which: "seconds" | "uncorrectedSeconds"): Accuracy["corrected"] => {
    const { pairwise, recall } = evaluateTogether(groups.map((trials) => judged(trials, which)));
    return { pairwise, recall };
  };
  const trials = groups.reduce((sum, group) => sum + judged(group).length, 0);
  return { name, trials, corrected: rates("seconds"), uncorrected: rates("uncorrectedSeconds") };
}

// ---- The roofline

function rooflineOf(
  db: Database,
  environment: number,
  groups: readonly (readonly TrialRecord[])[],
  winners: ReadonlySet<string>,
  stored: StoredCalibration,
): Roofline {
  const { calibration: c, at } = stored;
  const trials = groups.flat();
  const used = new Set(trials.map((t) => t.candidate.intrinsic));
  const clock = c.clockHz.median;
  const peaks = knownIntrinsics()
    .filter((row) => used.has(row.name))
    .flatMap((row) => {
      const peak = peakOf(row, c);
      return peak === undefined ? [] : [{ name: row.name, operationsPerSecond: peak }];
    });
  const points = groups.flatMap((own) => {
    const operations = own[0] ? operationsThatCount(own[0]) : 0;
    return own.filter(isTimed).map(
      (t): RooflinePoint => ({
        label: labelOf(t.workload),
        types: t.workload.dtype,
        intensity: operations / bytesMoved(t),
        operationsPerSecond: operations / t.measurement.median / t.conditions.threads,
        best: winners.has(t.id),
      }),
    );
  });
  const contradiction = contradictionOf(
    trials.filter((t) => winners.has(t.id)),
    stored,
    machineOf(db, trials),
  );
  return {
    environment,
    source: `calibrated on ${c.machine}, ${new Date(at).toISOString().slice(0, 10)}, one core at ${(clock / 1e9).toFixed(2)} GHz`,
    peaks,
    bandwidths: levelsOf(c).map(([name, m]) => ({
      name,
      bytesPerSecond: m.readBytesPerCycle.median * clock,
    })),
    contradicted: contradiction && contradictionText(contradiction, db.path),
    points,
  };
}

/** The least time of each trial's bounds; undefined where the instruction's rate is not known. */
function roofsOf(db: Database, calibration: Calibration): Roofs {
  return (trial) => {
    const bounds = attempt(() => boundsOf(trial, calibration, machineOf(db, [trial]))) ?? [];
    return bounds.some((b) => b.kind === "instruction" && b.seconds > 0) ? bounds[0]?.seconds : undefined;
  };
}

/** Its caches decide what has to be read from where. */
function machineOf(db: Database, [trial]: readonly TrialRecord[]): Target {
  return trial ? recordedMachine(db, trial).machine : nativeTarget();
}

/** A multiply and an add counted as two, products with padding left out where they can be counted. */
function operationsThatCount({ workload }: TrialRecord): number {
  return 2 * (attempt(() => neededPoints(computationOf(workload))) || workload.points);
}

/** Operations a second of one core that does nothing but issue the instruction. */
function peakOf(row: Intrinsic, { intrinsics, clockHz }: Calibration): number | undefined {
  const timing = intrinsics[row.name];
  const operations = 2 * row.computation.axes.reduce((product, axis) => product * axis.extent, 1);
  return timing && (operations * clockHz.median) / timing.issueCycles.median;
}

/** Innermost first. */
function levelsOf({ memory }: Calibration): [string, CalibratedMemory][] {
  return Object.entries(memory).sort(([, a], [, b]) => a.footprintBytes - b.footprintBytes);
}

/** Each tensor's elements once. */
function bytesMoved({ workload }: TrialRecord): number {
  return Object.values(workload.tensors).reduce(
    (sum, { dtype, shape }) => sum + bytesOf(dtype) * shape.reduce((n, extent) => n * extent, 1),
    0,
  );
}

// ---- Reasons

function refusalsOf({ workload, environment }: TrialRecord): Reason[] | undefined {
  try {
    const computation = computationOf(workload);
    const refused = instructionsOf(environment).flatMap((row) =>
      mappings(computation, row).refused.map((r) => ({ name: r.rule, text: `${row.name}: ${r.because}` })),
    );
    return reasons(refused);
  } catch (error) {
    if (error instanceof UsageError) return undefined;
    throw error;
  }
}

/** The most frequent first. */
function reasons(all: readonly { readonly name: string; readonly text: string }[]): Reason[] {
  return groupBy(all, ({ name }) => name)
    .map((own) => ({ name: own[0]?.name ?? "", count: own.length, example: firstLine(own[0]?.text ?? "") }))
    .sort((a, b) => b.count - a.count || inOrder(a.name, b.name));
}

const LONGEST_EXAMPLE = 200;

function firstLine(text: string): string {
  const [line = ""] = text.trim().split("\n", 1);
  return line.length > LONGEST_EXAMPLE ? `${line.slice(0, LONGEST_EXAMPLE - 1)}…` : line;
}

// ---- The world

function environmentFacts(e: EnvironmentRecord): EnvironmentFacts {
  const { compiler } = e;
  const fields: readonly (readonly [string, string])[] = [
    ["CPU", `${e.cpu}, ${e.cores} cores`],
    ["target", e.target],
    ["instruction sets", [...e.isa].sort().join(" ")],
    ["compiler", `${compiler.path} ${compiler.version}`],
    ["flags", compiler.flags.join(" ")],
    ["kernel", e.kernel],
    ["driver", e.driver ?? ""],
    ["Node", e.node],
    ["automap", e.automap],
  ];
  return { name: `${e.cpu}, automap ${e.automap}`, fields: fields.filter(([, value]) => value !== "") };
}

function filterText(filter: Filter): string | undefined {
  const { operator, name, dtype, layout, epilogue, threads, run, since, until } = filter;
  const instant = (at: number): string => new Date(at).toISOString().slice(0, 16);
  const parts = [
    ...(operator === undefined ? [] : [`operator ${operator}`]),
    ...(name === undefined ? [] : [`name ${name}`]),
    ...(dtype === undefined ? [] : [`types ${dtype}`]),
    ...(layout === undefined ? [] : [`layout ${layout}`]),
    ...(epilogue === undefined ? [] : [`epilogue ${epilogue}`]),
    ...(threads === undefined ? [] : [`threads ${threads}`]),
    ...(run === undefined ? [] : [`run ${run.slice(0, 12)}`]),
    ...(since === undefined ? [] : [`since ${instant(since)}`]),
    ...(until === undefined ? [] : [`until ${instant(until)}`]),
  ];
  return parts.length === 0 ? undefined : parts.join(", ");
}

/** What a search asked for, not what was measured again in its finals. */
function isSearched({ finals }: TrialRecord): boolean {
  return finals === undefined;
}

function isTimed(trial: TrialRecord): trial is TimedRecord {
  return trial.measurement.status === "ok";
}

function groupBy<T>(items: readonly T[], key: (item: T) => string): T[][] {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const k = key(item);
    const group = groups.get(k);
    if (group) group.push(item);
    else groups.set(k, [item]);
  }
  return [...groups.values()];
}

function inOrder(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
