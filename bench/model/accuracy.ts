/**
 * @file How well the model ranks measured kernels that its correction has not seen.
 *
 *     npm run build
 *     node dist/bench/model/accuracy.js bench/trials/cuda-random-h100.jsonl.gz                    an operator at a time
 *     node dist/bench/model/accuracy.js bench/trials/cuda-random-h100.jsonl.gz --by case --operators c2d,gmm
 *     node dist/bench/model/accuracy.js bench/trials/cuda-*.jsonl.gz --by file --folds 100        trees taught by other operators of all files
 *     node dist/bench/model/accuracy.js bench/trials/cuda-random-h100.jsonl.gz --noise            the ranking at given errors of a model
 *     node dist/bench/model/accuracy.js bench/trials/lane-designs-xeon.jsonl.gz --folds 9         designs on lanes of this machine's cores
 *     node dist/bench/model/accuracy.js bench/trials/cuda-filters-h100.jsonl.gz                   windows on warps, whose model has no parts to correct
 *     node dist/bench/model/accuracy.js --db bench.db --folds 30 --out model-accuracy.md          mappings on cores, a data type at a time
 *
 * The parts of each time are what today's model sees. Pairs are formed within a case and a file. `alone` is the model without a correction. `others`
 * is corrected by other operators: they fall into folds, and each is judged by what the other folds taught; `trees` likewise, where trees correct
 * the model (perfmodel/learnt.ts). `half` also learns from the first half of a case's own trials, and is judged on the second. `again` ranks by a second measurement: a real one where there is one, else one drawn from the
 * first's interval. `distinct` counts only pairs whose 95 % intervals do not overlap; recall is of the fastest 40 %. `--noise` ranks with normal errors
 * in the log of time.
 */

import { writeFileSync } from "node:fs";
import { basename } from "node:path";
import { type Candidate, candidateKey } from "../../abstraction/candidate.ts";
import { groupsOf } from "../../abstraction/collections.ts";
import { internal, UsageError } from "../../abstraction/error.ts";
import { type Random, seededRandom } from "../../abstraction/random.ts";
import { computationOf, type Database, labelOf, openDatabase, queryTrials, type TrialRecord } from "../../db/index.ts";
import { placeArray } from "../../mapper/space-time/lane-array.ts";
import { lowerPlaced } from "../../mapper/space-time/lower-array.ts";
import {
  apply,
  type Correction,
  type Costs,
  fit as fitCorrection,
  NO_CORRECTION,
  type Observation,
} from "../../perfmodel/correct.ts";
import { LEARNT_MODELS, type LearntModel, learnt, type Trees } from "../../perfmodel/learnt.ts";
import { createTerms } from "../../perfmodel/model.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import { vectorCosts } from "../../perfmodel/vectors.ts";
import { usableIntrinsics } from "../../session/kinds/choose.ts";
import { multiplyAddOf } from "../../session/kinds/design-kinds.ts";
import { choiceOnGpu, partsOnGpu } from "../../session/kinds/gpu-kinds.ts";
import { sessionKindOf } from "../../session/kinds/kinds.ts";
import { registersOf } from "../../session/kinds/window-kinds.ts";
import { mappingOf, recordedMachine } from "../../session/recorded.ts";
import { nativeTarget } from "../../targets/native.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { leastLaneBytes } from "../../targets/x86.ts";
import { type RecordedCase, recordedCases } from "../../test/support/recorded-trials.ts";
import { evaluateTogether, type Judged, lossOf } from "../../tuner/evaluate.ts";
import { cpuName, geomean, page, percent, table } from "../support/frame.ts";
import { readOptions, wordOf } from "../support/options.ts";
import { treesOfModels } from "./trees.ts";

const { values, positionals: files } = readOptions({
  allowPositionals: true,
  options: {
    /** Databases of trials on the cores of a machine. */
    db: { type: "string", multiple: true, default: [] },
    /** Cases of a database with fewer trials are left out. */
    least: { type: "string", default: "8" },
    /** Subject of the lines: `operator`, `case` or `file`. */
    by: { type: "string", default: "operator" },
    /** Default: all. */
    operators: { type: "string" },
    /** Each fold of the operators is judged by a correction from the others. */
    folds: { type: "string", default: "5" },
    /** Judges each file by what other files taught of other operators. */
    apart: { type: "boolean", default: false },
    noise: { type: "boolean", default: false },
    out: { type: "string" },
  },
});
const by = wordOf("by", values.by, ["operator", "case", "file"]);
const folds = Number(values.folds);

/** Half of the width of a 95 % interval, in standard deviations. */
const HALF_WIDTH = 1.96;
/** Numbers of kernels tried, of which the best counts, and how near to the fastest counts as near. */
const TRIED = [1, 8, 16];
const NEAR = 1.1;
/** Standard deviations of the error in log time, and the number of models drawn for each. */
const NOISES = [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5];
const MODELS = 20;

interface Point extends Observation {
  /** Models whose parts have the same names and mean different things are corrected apart. */
  readonly model: string;
  /** The case. */
  readonly of: string;
  readonly interval: readonly [number, number];
  readonly again: number | undefined;
}
interface Group {
  readonly name: string;
  /** What a correction may not have seen. */
  readonly fold: string;
  /** Subjects of lines. */
  readonly operator: string;
  readonly file: string;
  readonly points: readonly Point[];
}
type Corrections = ReadonlyMap<string, Correction>;

const groups = [...files.flatMap(recorded), ...values.db.flatMap(searched)].filter((g) => g.points.length > 0);
if (groups.length === 0) throw new UsageError("no trials: name files of bench/trials, or a database with --db");
const text = values.noise ? noisePage() : rankingPage();
console.log(text);
if (values.out !== undefined) writeFileSync(values.out, text);

// ---- trials

function recorded(file: string): Group[] {
  const wanted = values.operators?.split(",");
  return recordedCases(file)
    .filter(({ operator }) => wanted === undefined || wanted.includes(operator))
    .map(({ name, operator, target, computation, trials }) => ({
      name,
      operator,
      file,
      // The same operator has other names in other files.
      fold: computation.name,
      points: trials.flatMap(({ candidate, median, interval = [median, median], again }): Point[] => {
        const costs = costsOf({ target, computation }, candidate);
        return costs
          ? [{ costs, measuredSeconds: median, model: candidate.kind, of: `${file} ${name}`, interval, again }]
          : [];
      }),
    }));
}

/** The parts of a kernel's time; undefined for a schedule that is no longer legal. */
function costsOf(
  { target, computation }: Pick<RecordedCase, "target" | "computation">,
  candidate: Candidate,
): Costs | undefined {
  try {
    switch (candidate.kind) {
      case "grid":
      case "threads":
        return partsOnGpu(choiceOnGpu(computation, candidate, nvidiaTarget(target)), nvidiaTarget(target));
      case "design": {
        const placed = placeArray(computation, candidate.schedule);
        const multiplyAdd = multiplyAddOf(computation, usableIntrinsics(nativeTarget()));
        if (!placed.ok || !multiplyAdd) return undefined;
        const { schedule } = candidate;
        const vectors = registersOf(multiplyAdd);
        const nest = lowerPlaced(computation, placed.array, schedule.inputs, leastLaneBytes(vectors) === 2);
        return vectorCosts(nest, computation, { ...schedule, target: modelTarget(nativeTarget()), vectors });
      }
      default: {
        const machine = target === "native" ? nativeTarget() : nvidiaTarget(target);
        const predicted = sessionKindOf(candidate).predict(computation, candidate, { machine });
        return predicted && whole(predicted.seconds);
      }
    }
  } catch (error) {
    if (error instanceof UsageError) return undefined;
    throw error;
  }
}

/** Of a model that has no parts. */
function whole(seconds: number): Costs {
  return { terms: [], bounds: [seconds, seconds], traits: [] };
}

/** Mappings that searches measured, by workload, machine and threads, in the order of measurement. */
function searched(file: string): Group[] {
  const db = openDatabase(file, { readonly: true });
  try {
    const all = new Map<string, Omit<Group, "points"> & { readonly points: Map<string, Point> }>();
    const termsOf = new Map<string, ReturnType<typeof createTerms>>();
    for (const trial of queryTrials(db, { status: "ok", sort: "at" }).reverse()) {
      const { workload, environment, conditions, candidate, measurement, finals } = trial;
      if (measurement.status !== "ok" || candidate.kind !== "mapping" || finals !== undefined) continue;
      const world = JSON.stringify([workload.id, environment.id, conditions.threads]);
      const mapping = JSON.stringify([world, candidate.intrinsic, candidate.matching, candidate.operands]);
      const terms = termsOf.get(mapping) ?? termsIn(db, trial);
      termsOf.set(mapping, terms);
      const costs = terms(candidate.schedule);
      if (!costs) continue;
      const name = `${workload.dtype} ${labelOf(workload)}, ${conditions.threads} threads`;
      const group = all.get(world) ?? {
        name,
        operator: workload.dtype,
        file,
        fold: world,
        points: new Map<string, Point>(),
      };
      all.set(world, group);
      const key = candidateKey(candidate);
      const { median, interval } = measurement;
      const first = group.points.get(key);
      if (first) group.points.set(key, { ...first, again: first.again ?? median });
      else
        group.points.set(key, {
          costs,
          measuredSeconds: median,
          model: workload.dtype,
          of: world,
          interval,
          again: undefined,
        });
    }
    const least = Number(values.least);
    return [...all.values()].flatMap((g) => (g.points.size < least ? [] : [{ ...g, points: [...g.points.values()] }]));
  } finally {
    db.close();
  }
}

function termsIn(db: Database, trial: TrialRecord): ReturnType<typeof createTerms> {
  const { machine, calibration } = recordedMachine(db, trial);
  return createTerms(mappingOf(computationOf(trial.workload), trial.candidate), modelTarget(machine, calibration));
}

// ---- judging

function taughtBy(points: readonly Point[], prior?: Corrections): Corrections {
  const models = [...new Set(groups.flatMap((g) => g.points.map((p) => p.model)))];
  const of = (model: string): Correction =>
    fitCorrection(
      points.filter((p) => p.model === model),
      prior?.get(model),
    );
  return new Map(models.map((model) => [model, of(model)]));
}

interface Ranked extends Judged {
  readonly interval: readonly [number, number];
}

function rankingPage(): string {
  const ranked = (corrections: Corrections, points: readonly Point[]): Ranked[] =>
    points.map(({ model, costs, measuredSeconds, interval }) => ({
      predicted: apply(corrections.get(model) ?? NO_CORRECTION, costs),
      measured: measuredSeconds,
      interval,
    }));
  const known = [...new Set(groups.map(({ fold }) => fold))];
  const partOf = ({ fold, file }: Group): string => `${known.indexOf(fold) % folds} ${values.apart ? file : ""}`;
  const isOther = (one: Group, other: Group): boolean =>
    known.indexOf(one.fold) % folds !== known.indexOf(other.fold) % folds && !(values.apart && one.file === other.file);
  const taught = new Map(
    [...groupsOf(groups, partOf)].map(([part, [one]]) => {
      const points = groups.flatMap((other) => (one && isOther(one, other) ? other.points : []));
      return [part, { corrections: taughtBy(points), trees: treesOfModels(points) }];
    }),
  );
  const others = groups.map((group) => taught.get(partOf(group))?.corrections ?? new Map<string, Correction>());
  const withTrees = groups.map((group) => {
    const trees = taught.get(partOf(group))?.trees;
    return group.points.map((point) => learntPoint(point, trees));
  });
  const random = seededRandom(1);
  const twice = groups.some(({ points }) => points.some((p) => p.again !== undefined));
  const isLearnt = [...taught.values()].some(({ trees }) => trees.size > 0);
  const schemes = {
    alone: groups.map(({ points }) => ranked(new Map(), points)),
    others: groups.map(({ points }, g) => ranked(others[g] ?? new Map(), points)),
    ...(isLearnt && { trees: withTrees.map((points) => ranked(new Map(), points)) }),
    half: withTrees.map((points, g) => {
      const middle = points.length >> 1;
      // A search on a GPU does not begin with what others taught the parts.
      const prior = isLearnt ? undefined : others[g];
      return ranked(taughtBy(points.slice(0, middle), prior), points.slice(middle));
    }),
    again: groups.map(({ points }) => measuredAgain(points, twice, random)),
  };
  const rowsOf = (name: string, of: readonly number[]): (string | number)[][] =>
    Object.entries(schemes).map(([scheme, all]) => {
      const parts = of.map((g) => all[g] ?? []);
      const { count, pairwise, recall } = evaluateTogether(parts);
      const ratios = parts.flat().map(({ measured, predicted }) => measured / predicted);
      const at = (share: number): string => (ratios[Math.floor(share * ratios.length)] ?? 0).toFixed(2);
      ratios.sort((a, b) => a - b);
      const off = [0.1, 0.5, 0.9].map(at).join(", ");
      const ranking = [percent(pairwise), percent(distinctPairs(parts)), percent(recall)];
      return [name, scheme, of.length, count, ...ranking, ...TRIED.map((tried) => losses(parts, tried)), off];
    });
  const all = groups.map((_, g) => g);
  const subjectOf = ({ name, operator, file }: Group): string => ({ case: name, operator, file: basename(file) })[by];
  const subjects = groupsOf(all, (g) => subjectOf(groups[g] ?? internal(`group ${g}`)));
  const rows = [...subjects].flatMap(([name, of]) => rowsOf(name, of));
  const first = TRIED.map((tried) => (tried === 1 ? "first choice" : `best of ${tried}`));
  const head = ["", "prediction", "cases", "trials", "pairs %", "distinct %", "recall %", ...first];
  return page(
    "How well the model ranks",
    `Judged on ${cpuName()}; pairs within a case, none with itself; distinct: pairs whose 95 % intervals do not overlap; recall of the fastest 40 %. The first choice, and the best of as many as are ranked first, take so many times as long as the fastest of the case (geomean), and at most 1.1 times in so many % of the cases that have more trials. The last column is what a tenth, half and nine tenths of measured / predicted are below.`,
    ...table([...head, "measured / predicted"], [...rowsOf("all, pairs within a case", all), ...rows]),
  );
}

/** A kernel with the factor that trees of its model give it. */
function learntPoint(point: Point, trees: ReadonlyMap<LearntModel, Trees> = new Map()): Point {
  const model = LEARNT_MODELS.find((m) => m === point.model);
  const own = model && trees.get(model);
  const { features } = point.costs;
  return own && features ? { ...point, costs: learnt(model, { ...point.costs, features }, own) } : point;
}

/** What trying so many kernels loses: the geomean over cases with more, and the share of these that lose at most a tenth. */
function losses(parts: readonly (readonly Judged[])[], tried: number): string {
  const lost = parts.flatMap((points) => (points.length > tried ? (lossOf(points, tried) ?? []) : []));
  if (lost.length === 0) return "";
  return `${geomean(lost).toFixed(3)}, ${percent(lost.filter((loss) => loss <= NEAR).length / lost.length)}`;
}

function distinctPairs(parts: readonly (readonly Ranked[])[]): number | undefined {
  let agree = 0;
  let total = 0;
  for (const points of parts)
    for (const a of points)
      for (const b of points) {
        if (a.interval[1] >= b.interval[0]) continue;
        total++;
        if (a.predicted < b.predicted) agree++;
      }
  return total === 0 ? undefined : agree / total;
}

/** Trials with a second measurement as their prediction. @param twice keeps only trials really measured twice */
function measuredAgain(points: readonly Point[], twice: boolean, random: Random): Ranked[] {
  return points.flatMap(({ measuredSeconds: measured, interval, again }) => {
    if (twice) return again === undefined ? [] : [{ predicted: again, measured, interval }];
    const deviation = (interval[1] - interval[0]) / 2 / HALF_WIDTH;
    return [{ predicted: measured + deviation * normal(random), measured, interval }];
  });
}

/** The ranking of models whose errors are equal everywhere, and the error of the model alone. */
function noisePage(): string {
  const random = seededRandom(1);
  const rows = NOISES.map((deviation) => {
    const drawn = Array.from({ length: MODELS }, () =>
      evaluateTogether(
        groups.map(({ points }) =>
          points.map(({ measuredSeconds: measured }) => ({
            predicted: measured * Math.exp(deviation * normal(random)),
            measured,
          })),
        ),
      ),
    );
    const mean = (of: "pairwise" | "recall"): string =>
      percent(drawn.reduce((sum, d) => sum + (d[of] ?? 0), 0) / MODELS);
    return [deviation, mean("pairwise"), mean("recall")];
  });
  // An error common to a whole case changes no rank.
  const errors = groups.flatMap(({ points }) => {
    const logs = points.map(({ costs, measuredSeconds }) => Math.log(measuredSeconds / apply(NO_CORRECTION, costs)));
    const mean = logs.reduce((sum, e) => sum + e, 0) / logs.length;
    return logs.map((e) => e - mean);
  });
  const free = Math.max(1, errors.length - groups.length);
  const alone = Math.sqrt(errors.reduce((sum, e) => sum + e * e, 0) / free);
  const lines = table(["standard deviation", "pairs %", "recall %"], rows);
  return [...lines, "", `model alone: ${alone.toFixed(3)}`, ""].join("\n");
}

/** A normal number, by Box and Muller. */
function normal(random: Random): number {
  return Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
}
