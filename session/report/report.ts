/**
 * @file Gathers the data of a report from a database: the best trials, all trials, the model's accuracy, the roofline, the noise.
 *
 *     const data = gatherReport(db, { operator: "conv2d" }, Date.now());
 *
 * Compares runs of the same workload, of one database or of two: the best each found, how soon, and how far the machines agree on the
 * same kernels.
 *
 *     comparisonsOf({ db, trials }, ...)     [{ label: "conv2d c 64 ...", runs: [{ best: 62.3 us, shared: undefined }, { ..., shared: { count: 5, ratio: 1.01 } }] }]
 */

import { type ArrayPlan, candidateKey, isDesign } from "../../abstraction/candidate.ts";
import { ascending, defined, groupsOf, present, sortedBy, sumOf } from "../../abstraction/collections.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { usefulPoints } from "../../abstraction/condition.ts";
import { partsOf } from "../../abstraction/epilogue.ts";
import { attempt, internal } from "../../abstraction/error.ts";
import { cut } from "../../abstraction/text.ts";
import {
  best,
  computationOf,
  type Database,
  type EnvironmentRecord,
  environmentRows,
  type Filter,
  labelOf,
  queryTrials,
  runsIn,
  shortId,
  showRun,
  type TrialRecord,
  wordsOf,
} from "../../db/index.ts";
import { instructionsOf } from "../../intrinsics/index.ts";
import { mappings } from "../../mapper/match/enumerate.ts";
import { isSteps, stepsOf } from "../../mapper/space-time/steps.ts";
import { tapsOf } from "../../mapper/space-time/taps.ts";
import { candidateRows, decisionValues } from "../../report/describe-candidate.ts";
import { drawTransformSvg } from "../../report/draw-lanes.ts";
import { decisionShares } from "../../report/importance.ts";
import type {
  Accuracy,
  Beside,
  Best,
  ComparedDatabase,
  Comparison,
  Drawing,
  EnvironmentFacts,
  Found,
  Reason,
  ReportData,
  Roof,
  RunBest,
  RunSummary,
  SharedKernels,
  Subject,
  TrialPoint,
} from "../../report/report-data.ts";
import { counted } from "../../report/text.ts";
import { evaluateTogether, judged } from "../../tuner/evaluate.ts";
import { inOrder, isTimed } from "../../tuner/trials.ts";
import { mappingOf } from "../recorded.ts";
import { VERSION } from "../version.ts";
import { nextOfWorkload } from "./next-steps.ts";
import { clockFacts, noiseOf } from "./noise.ts";
import { ceilingsOf, type Roofs, rooflineOf } from "./report-roofline.ts";
import { groupBy, isSearched, type TimedRecord } from "./report-trials.ts";

/** Selects the trials of a report. */
export interface ReportFilter extends Filter {
  /** Only these runs; the others are compared with the first. */
  readonly runs?: readonly string[];
}

/**
 * All data that a report shows of the matching trials.
 * @param now milliseconds since 1970
 * @param other a database to compare with: the runs compared are then the fastest of each
 */
export function gatherReport(db: Database, filter: ReportFilter, now: number, other?: Database): ReportData {
  const { runs, ...every } = filter;
  const asked = runs?.map((run) => ({ ...every, run })) ?? [every];
  const recordedIn = (from: Database): Recorded => {
    const found = sortedBy(
      asked.flatMap((f) => queryTrials(from, { ...f, sort: "at" })),
      (a) => a.at,
    );
    return { db: from, trials: runs === undefined ? withoutClaims(found) : found };
  };
  const here = recordedIn(db);
  const there = other && recordedIn(other);
  const sides = there ? [here, there] : [here];
  const { trials } = here;
  const winners = new Set(asked.flatMap((f) => best(db, f, { imported: true })).map((t) => t.id));
  const environments = [
    ...new Map(sides.flatMap((side) => side.trials).map((t) => [t.environment.id, t.environment])).values(),
  ];
  const indexOf = (e: EnvironmentRecord): number => environments.findIndex((other) => other.id === e.id);
  const ceilings = environments.map((e) => ceilingsOf(db, e));
  const started = new Map(sides.flatMap(startsOf));
  const pointOf = (trial: TrialRecord): TrialPoint => pointFrom(trial, started);
  const groups = groupBy(trials, subjectKey);
  const subjects = groups.map((group) => {
    const [first] = group;
    if (!first) internal("a group of no trials");
    const at = indexOf(first.environment);
    const won = group.filter(isTimed).filter((t) => winners.has(t.id));
    const [winner] = won.sort(
      (a, b) => Number(isImported(a)) - Number(isImported(b)) || a.measurement.median - b.measurement.median,
    );
    return subjectOf(first, group, { winner, environment: at, roofs: ceilings[at]?.roofs, pointOf, file: db.path });
  });
  subjects.sort((a, b) => inOrder(a.subject, b.subject) || inOrder(a.types, b.types) || inOrder(a.label, b.label));
  const noise = noiseOf(trials);
  const known = { runs, indexOf, pointOf };
  return {
    source: db.path,
    filter: filterText(filter),
    madeAt: now,
    version: VERSION,
    subjects,
    accuracy: accuracies(groups.map((group) => group.filter(isSearched))),
    rooflines: ceilings.flatMap((found, i) => {
      const own = groups.filter(([first]) => first && indexOf(first.environment) === i);
      return found && own.length > 0 ? [rooflineOf(i, own, winners, found)] : [];
    }),
    environments: environments.map(environmentFacts),
    noise: { ...noise, facts: [...noise.facts, ...clockFacts(trials)] },
    ...(there
      ? databasesCompared(here, there, known)
      : { comparisons: comparisonsOf(here, known), compared: undefined }),
  };
}

const subjectKey = ({ workload, environment, conditions }: TrialRecord): string =>
  JSON.stringify([workload.computation, environment.id, conditions.threads, conditions.cache]);

/** Without the imported trials of subjects of which something was measured here: times of both in one chart would pass for measured ones. */
function withoutClaims(trials: readonly TrialRecord[]): readonly TrialRecord[] {
  const measured = new Set(trials.filter((t) => isTimed(t) && !isImported(t)).map(subjectKey));
  return trials.filter((t) => !isImported(t) || !measured.has(subjectKey(t)));
}

/** Start times of the trials' runs, milliseconds since 1970. */
function startsOf({ db, trials }: Recorded): (readonly [run: string, started: number])[] {
  const known = new Set(trials.map((t) => t.run));
  return runsIn(db).flatMap(({ run }) => (known.has(run.id) ? [[run.id, run.started] as const] : []));
}

interface SubjectParts {
  readonly winner: TimedRecord | undefined;
  readonly environment: number;
  readonly roofs: Roofs | undefined;
  readonly pointOf: (trial: TrialRecord) => TrialPoint;
  /** The database. */
  readonly file: string;
}

function subjectOf(
  first: TrialRecord,
  group: readonly TrialRecord[],
  { winner, environment, roofs, pointOf, file }: SubjectParts,
): Subject {
  const { workload, conditions } = first;
  const trials = group.filter(isSearched);
  const best = winner && bestOf(winner, roofs?.(winner), group);
  const { verdict, meaning } = noiseOf(group);
  const points = trials.map(pointOf);
  const { subject, shape, types, layout, epilogue, besides } = wordsOf(workload);
  return {
    label: labelOf(workload),
    name: workload.name,
    subject,
    shape,
    types,
    dtype: workload.dtype,
    layout,
    besides,
    epilogue,
    equation: workload.equation,
    threads: conditions.threads,
    cache: conditions.cache,
    environment,
    trials: points,
    best,
    noise: { verdict, meaning },
    next: nextOfWorkload({ trials, winner, verdict, ofRoof: best?.ofRoof, file }),
    accuracy: accuracyOf(labelOf(workload), [trials]),
    decisions: decisionShares(points.flatMap((p) => (p.seconds === undefined ? [] : [{ ...p, seconds: p.seconds }]))),
    failures: reasons(
      trials.flatMap(({ measurement: m }) => (m.status === "ok" ? [] : [{ name: m.status, text: m.log }])),
    ),
    refusals: refusalsOf(first),
  };
}

/** @param started when each run began, by its id */
export function pointFrom(trial: TrialRecord, started: ReadonlyMap<string, number>): TrialPoint {
  const { id, at, run, candidate, measurement, prediction, conditions } = trial;
  const timed = measurement.status === "ok" ? measurement : undefined;
  const begun = run === undefined ? undefined : started.get(run);
  return {
    id,
    at,
    isImported: isImported(trial),
    intrinsic: candidate.intrinsic,
    status: measurement.status,
    seconds: timed?.median,
    interval: timed?.interval,
    predicted: prediction?.seconds,
    uncorrected: prediction?.uncorrectedSeconds,
    run,
    after: begun === undefined ? undefined : Math.max(0, (at - begun) / 1000),
    clock: conditions.clock,
    kind: candidate.kind,
    decisions: decisionValues(candidate),
  };
}

const isImported = ({ provenance }: Pick<TrialRecord, "provenance">): boolean => provenance === "imported";

/** @param group the trials of its workload, finals included */
function bestOf(trial: TimedRecord, roof: Roof | undefined, group: readonly TrialRecord[]): Best {
  const { id, workload, candidate, measurement, prediction, conditions } = trial;
  const points = attempt(() => usefulPoints(computationOf(workload))) ?? workload.points;
  const rate = (2 * points) / measurement.median;
  return {
    id,
    isImported: isImported(trial),
    seconds: measurement.median,
    interval: measurement.interval,
    operationsPerSecond: rate,
    // The schedule's rows already describe a design given by its transform.
    candidate: candidateRows(candidate).filter(([name]) => !(isDesign(candidate) && name === "design")),
    predicted: prediction?.seconds,
    levels: prediction?.levels ?? [],
    judged: judgedText(trial, group),
    roof,
    ofRoof: roof && roof.seconds / measurement.median,
    clock: conditions.clock,
    drawing: attempt(
      () => drawingOf(trial),
      ({ message }) => ({ kind: "none" as const, because: message }),
    ),
  };
}

function judgedText({ finals, ...trial }: TimedRecord, group: readonly TrialRecord[]): string {
  if (isImported(trial)) return "measured elsewhere, or so whoever wrote the record says";
  const rivals = group.filter((other) => finals && other.finals?.comparison === finals.comparison).length - 1;
  const won =
    rivals > 0
      ? `, in turns with ${counted(rivals, "other kernel")} in the finals`
      : ", by itself: there were no finals";
  return `every element of its output was compared with the equation; then it was timed here${won}`;
}

/** @throws UsageError for a candidate that is no longer valid */
function drawingOf({ workload, candidate }: TrialRecord): Drawing {
  const computation = computationOf(workload);
  switch (candidate.kind) {
    case "window":
    case "warp-window": {
      const { dataflow, lanes, rolled } = candidate.schedule;
      const taps = tapsOf(computation, rolled);
      if (!taps.ok) return { kind: "none", because: taps.refusal.because };
      return { kind: "lanes", design: { dataflow, lanes, columns: taps.sum.columns } };
    }
    case "steps":
    case "warp-steps": {
      const steps = stepsOf(computation);
      if (!isSteps(steps)) return { kind: "none", because: steps.because };
      // A time step sweeps a window that reaches equally far to both sides.
      const columns = 2 * (steps.axes.at(-1)?.reach ?? 0) + 1;
      return { kind: "lanes", design: { dataflow: "FBS-load", lanes: candidate.schedule.lanes, columns } };
    }
    case "design":
    case "warp-design":
      return arrayDrawing(computation, candidate.schedule);
    case "recurrence":
      return arrayDrawing(computation, { ...candidate.schedule, tile: {} });
    default: {
      const grid = candidate.kind === "grid" ? candidate.schedule : undefined;
      return { kind: "mapping", mapping: mappingOf(computation, candidate), grid };
    }
  }
}

function arrayDrawing(
  computation: Computation,
  { transform, lanes, tile }: Pick<ArrayPlan, "transform" | "lanes" | "tile">,
): Drawing {
  const { sum } = partsOf(computation);
  const array = { sum, transform, lanes, tile };
  if (transform.schedule.every((row) => row.every((x) => x === 0)))
    return {
      kind: "none",
      because: "a prefix takes no steps of time; its lanes are joined by shifts of 1, 2, 4 and so on",
    };
  drawTransformSvg(array); // what cannot be drawn says why
  return { kind: "array", array };
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
  const trials = sumOf(groups, (group) => judged(group).length);
  return { name, trials, corrected: rates("seconds"), uncorrected: rates("uncorrectedSeconds") };
}

// ---- Reasons

function refusalsOf({ workload, environment }: TrialRecord): Reason[] | undefined {
  return attempt(() => {
    const computation = computationOf(workload);
    const refused = instructionsOf(environment).flatMap((row) =>
      mappings(computation, row).refused.map((r) => ({ name: r.rule, text: `${row.name}: ${r.because}` })),
    );
    return reasons(refused);
  });
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
  return cut(line, LONGEST_EXAMPLE);
}

// ---- The world

function environmentFacts(e: EnvironmentRecord): EnvironmentFacts {
  return { name: `${e.cpu}, automap ${e.automap}`, fields: environmentRows(e) };
}

function filterText(filter: ReportFilter): string | undefined {
  const { operator, name, dtype, layout, epilogue, threads, run, runs, since, until } = filter;
  const instant = (at: number): string => new Date(at).toISOString().slice(0, 16);
  const told = defined({
    operator,
    name,
    types: dtype,
    layout,
    epilogue,
    threads,
    run: run && shortId(run),
    runs: runs?.map(shortId).join(" and "),
    since: since === undefined ? undefined : instant(since),
    until: until === undefined ? undefined : instant(until),
  });
  const parts = Object.entries(told).map(([word, value]) => `${word} ${value}`);
  return parts.length === 0 ? undefined : parts.join(", ");
}

// ---- runs of the same workload -----------------------------------------------------------------------------------------------------------

interface Known {
  /** The runs to compare, the reference run first; when left out, all runs by their start. */
  readonly runs: readonly string[] | undefined;
  readonly indexOf: (environment: EnvironmentRecord) => number;
  readonly pointOf: (trial: TrialRecord) => TrialPoint;
}

/** Trials of a database. */
interface Recorded {
  readonly db: Database;
  readonly trials: readonly TrialRecord[];
}

/** Workloads with trials of two or more runs. */
function comparisonsOf({ db, trials }: Recorded, known: Known): Comparison[] {
  return workloadsIn(trials)
    .flatMap(([, own]) => {
      const runs = inTheirOrder(runsOf(own), known.runs);
      return runs.length < 2
        ? []
        : comparisonOf(
            runs.map((trials) => ({ db, trials })),
            known,
          );
    })
    .sort((a, b) => inOrder(a.label, b.label));
}

/** Workloads that two databases have, each by the run whose winner is the fastest. */
function databasesCompared(
  here: Recorded,
  there: Recorded,
  known: Known,
): { readonly comparisons: Comparison[]; readonly compared: ComparedDatabase } {
  const own = fastestRuns(here);
  const others = fastestRuns(there);
  const labelsWithout = (sides: ReadonlyMap<string, Recorded>, other: ReadonlyMap<string, Recorded>): string[] =>
    [...sides]
      .flatMap(([key, { trials }]) => (other.has(key) || !trials[0] ? [] : [labelOf(trials[0].workload)]))
      .sort();
  const comparisons = [...own].flatMap(([key, side]) => {
    const other = others.get(key);
    return other ? comparisonOf([side, other], known) : [];
  });
  return {
    comparisons: comparisons.sort((a, b) => inOrder(a.label, b.label)),
    compared: {
      source: there.db.path,
      onlyHere: labelsWithout(own, others),
      onlyThere: labelsWithout(others, own),
    },
  };
}

/** Of each workload with a time, the trials of the run whose winner is the fastest. */
function fastestRuns({ db, trials }: Recorded): ReadonlyMap<string, Recorded> {
  const fastest = workloadsIn(trials).flatMap(([key, group]) => {
    const [run] = sortedBy(
      runsOf(group).flatMap((own) => {
        const found = bestOfRun(db, own);
        return found ? [{ own, seconds: found.seconds }] : [];
      }),
      (a) => a.seconds,
    );
    return run ? [[key, { db, trials: run.own }] as const] : [];
  });
  return new Map(fastest);
}

/** Trials of runs by workload. The same computation with another number of threads is another workload. */
const workloadsIn = (trials: readonly TrialRecord[]): [key: string, trials: TrialRecord[]][] => [
  ...groupsOf(
    trials.filter(({ run }) => run !== undefined),
    ({ workload, conditions }) => JSON.stringify([workload.computation, conditions.threads, conditions.cache]),
  ),
];

const runsOf = (trials: readonly TrialRecord[]): TrialRecord[][] => groupBy(trials, ({ run = "" }) => run);

/** @param sides runs, the others described relative to the first */
function comparisonOf(sides: readonly Recorded[], known: Known): Comparison[] {
  const [first] = sides;
  const workload = first?.trials[0]?.workload;
  if (!first || !workload) return [];
  const summaries = sides.flatMap((side) => summaryOf(side, known) ?? []);
  const medians = mediansOf(first.trials);
  const runs = summaries.map((run, i): RunSummary => {
    const [reference] = summaries;
    if (i === 0 || !reference) return run;
    const shared = sharedWith(medians, mediansOf(sides[i]?.trials ?? []));
    return { ...run, shared, beside: besideOf(reference, { ...run, shared }) };
  });
  return [{ label: labelOf(workload), dtype: workload.dtype, runs }];
}

/** With fewer kernels in common nothing is said about the machine. */
const FEWEST_SHARED = 3;

/** The best of a run beside that of the reference run: how much, whether that is noise, and whether the machine explains it. */
export function besideOf(
  reference: Pick<RunSummary, "best" | "noise">,
  { best, noise, shared }: Pick<RunSummary, "best" | "noise" | "shared">,
): Beside | undefined {
  if (!best || !reference.best) return undefined;
  const low = reference.best.interval[0] / best.interval[1];
  const high = reference.best.interval[1] / best.interval[0];
  const verdict = low > 1 ? "faster" : high < 1 ? "slower" : "tie";
  const noisy = reference.noise === "noisy" || noise === "noisy";
  if (verdict === "tie")
    return {
      verdict,
      says: `no difference beyond noise: the intervals overlap${noisy ? ", and times are noisy" : ""}`,
      isSure: !noisy,
    };
  const size =
    verdict === "faster"
      ? `${low.toFixed(3)} to ${high.toFixed(3)} times as fast`
      : `${(1 / high).toFixed(3)} to ${(1 / low).toFixed(3)} times as slow`;
  const isMachine =
    shared !== undefined && shared.count >= FEWEST_SHARED && low * shared.ratio <= 1 && high * shared.ratio >= 1;
  const doubts = present([
    noisy &&
      `${reference.noise === noise ? "both runs are" : noise === "noisy" ? "this run is" : "the first run is"} noisy`,
    isMachine && "the same kernels differ as much, so the machine explains it",
  ]);
  return {
    verdict,
    says: doubts.length === 0 ? size : `${size}, but ${doubts.join(", and ")}`,
    isSure: doubts.length === 0,
  };
}

function inTheirOrder(runs: TrialRecord[][], asked: readonly string[] | undefined): TrialRecord[][] {
  if (asked === undefined) return runs;
  const placeOf = ([first]: readonly TrialRecord[]): number => asked.indexOf(first?.run ?? "");
  return sortedBy(runs, placeOf);
}

function summaryOf({ db, trials: group }: Recorded, { indexOf, pointOf }: Known): RunSummary | undefined {
  const [first] = group;
  if (first?.run === undefined) return undefined;
  const run = showRun(db, first.run);
  const strategy = run.options["strategy"];
  const trials = group.filter(isSearched).map(pointOf);
  return {
    id: run.id,
    source: db.path,
    environment: indexOf(first.environment),
    started: run.started,
    isImported: run.provenance === "imported",
    status: run.status,
    seed: run.seed,
    strategy: typeof strategy === "string" ? strategy : "",
    threads: first.conditions.threads,
    trials,
    failed: trials.filter(({ seconds }) => seconds === undefined).length,
    best: bestOfRun(db, group),
    found: foundIn(trials),
    noise: noiseOf(group).verdict,
    shared: undefined,
    beside: undefined,
  };
}

function foundIn(trials: readonly TrialPoint[]): Found | undefined {
  const least = Math.min(...trials.map(({ seconds = Number.POSITIVE_INFINITY }) => seconds));
  const place = trials.findIndex(({ seconds }) => seconds === least);
  return place < 0 ? undefined : { trial: place + 1, after: trials[place]?.after };
}

function bestOfRun(db: Database, group: readonly TrialRecord[]): RunBest | undefined {
  const run = group[0]?.run;
  const own = new Map(group.filter(isTimed).map((t) => [t.id, t]));
  const [winner] = (run === undefined ? [] : best(db, { run }, { imported: true })).flatMap(
    ({ id }) => own.get(id) ?? [],
  );
  return (
    winner && {
      id: winner.id,
      seconds: winner.measurement.median,
      interval: winner.measurement.interval,
      decisions: decisionValues(winner.candidate),
    }
  );
}

/** Seconds of each kernel, from its first measurement. */
function mediansOf(group: readonly TrialRecord[]): ReadonlyMap<string, number> {
  const timed = group.filter(isSearched).filter(isTimed);
  return new Map(timed.toReversed().map((t) => [candidateKey(t.candidate), t.measurement.median]));
}

function sharedWith(
  reference: ReadonlyMap<string, number>,
  own: ReadonlyMap<string, number>,
): SharedKernels | undefined {
  const ratios = ascending(
    [...own].flatMap(([key, seconds]) => {
      const before = reference.get(key);
      return before === undefined ? [] : [seconds / before];
    }),
  );
  const ratio = ratios[ratios.length >> 1];
  return ratio === undefined ? undefined : { count: ratios.length, ratio };
}
