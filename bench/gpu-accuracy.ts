/**
 * @file How well the GPU model ranks trials that its correction has not seen.
 *
 *     npm run build
 *     node dist/bench/gpu-accuracy.js cuda-random-h100.jsonl.gz               an operator a line
 *     node dist/bench/gpu-accuracy.js cuda-random-h100.jsonl.gz --by case --operators c2d,gmm
 *     node dist/bench/gpu-accuracy.js cuda-random-h100.jsonl.gz --noise       the ranking at given model errors
 *
 * Trials come from cuda-grid.ts, cuda-suite.ts and cuda-random.ts, on one kind of GPU. Their features are those of
 * today's model. Pairs are formed within a case and a file. `alone` is the uncorrected model. `others` is corrected by
 * other operators (five folds, each judged by the other four), `half` also by the first half of the case's own trials,
 * and judged on the second. Recall is of the fastest 40 %. `ceiling` is the ranking by a second measurement: a real one
 * where there is one, else one drawn from the first's interval. `--noise` ranks with normal errors in log time.
 */

import { UsageError } from "../abstraction/error.ts";
import { type Random, seededRandom } from "../abstraction/random.ts";
import { apply, type Correction, fit as fitCorrection, NO_CORRECTION, type Observation } from "../perfmodel/correct.ts";
import { choiceOnGpu, costsOnGpu } from "../session/gpu-kinds.ts";
import { nvidiaTarget } from "../targets/nvidia.ts";
import { evaluateTogether, type Judged } from "../tuner/evaluate.ts";
import { caseNamed } from "./cuda-cases.ts";
import { suiteComputation } from "./cuda-suite-cases.ts";
import { type TimedTrial, timedTrialsIn } from "./cuda-trials.ts";
import { readOptions, wordOf } from "./options.ts";

const { values, positionals: files } = readOptions({
  allowPositionals: true,
  options: {
    target: { type: "string", default: "h100" },
    /** Subject of a line: `operator` or `case`. */
    by: { type: "string", default: "operator" },
    /** Default: all. */
    operators: { type: "string" },
    /** Prints the ranking that models with given errors would reach. */
    noise: { type: "boolean", default: false },
  },
});
const target = nvidiaTarget(values.target);

/** Folds of the operators; each is judged by a correction from the others. */
const FOLDS = 5;
/** Half of the width of a 95 % interval, in standard deviations. */
const HALF_WIDTH = 1.96;
/** Standard deviations of the error in log time, and the number of models drawn for each. */
const NOISES = [0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5];
const MODELS = 20;

/** The two models use some names for different features. */
type Kind = TimedTrial["candidate"]["kind"];
interface Point extends Observation {
  readonly kind: Kind;
  readonly interval: readonly [number, number];
  readonly again: number | undefined;
}
interface Group {
  readonly name: string;
  readonly operator: string;
  readonly points: readonly Point[];
}
type Corrections = Readonly<Record<Kind, Correction>>;

const by = wordOf("by", values.by, ["operator", "case"]);
const groups = files.flatMap(groupsOf);
if (groups.length === 0)
  throw new UsageError("no trials: name files that bench/cuda-suite.ts or bench/cuda-random.ts wrote");
if (values.noise) printNoise();
else print();

function groupsOf(file: string): Group[] {
  const wanted = values.operators?.split(",");
  const byCase = new Map<string, { operator: string; points: Point[] }>();
  for (const trial of timedTrialsIn(file)) {
    const operator = trial.suite?.op ?? trial.case.replace(/-.*/, "");
    const costs = wanted && !wanted.includes(operator) ? undefined : costsIn(trial);
    if (!costs) continue;
    const { median: measuredSeconds, interval = [measuredSeconds, measuredSeconds], again } = trial;
    const group = byCase.get(trial.case) ?? { operator, points: [] };
    group.points.push({ costs, measuredSeconds, kind: trial.candidate.kind, interval, again });
    byCase.set(trial.case, group);
  }
  return [...byCase].map(([name, group]) => ({ name, ...group }));
}

/** The features of a trial; undefined for a schedule that is no longer valid. */
function costsIn({ case: name, suite, candidate }: TimedTrial): Observation["costs"] | undefined {
  try {
    return costsOnGpu(
      choiceOnGpu(suite ? suiteComputation(suite) : caseNamed(name).computation, candidate, target),
      target,
    );
  } catch (error) {
    if (error instanceof UsageError) return undefined;
    throw error;
  }
}

function taughtBy(points: readonly Point[], prior?: Corrections): Corrections {
  const of = (kind: Kind): Correction =>
    fitCorrection(
      points.filter((p) => p.kind === kind),
      prior?.[kind],
    );
  return { grid: of("grid"), threads: of("threads") };
}

function print(): void {
  const judged = (corrections: Corrections, points: readonly Point[]): Judged[] =>
    points.map(({ kind, costs, measuredSeconds }) => ({
      predicted: apply(corrections[kind], costs),
      measured: measuredSeconds,
    }));
  const uncorrected: Corrections = { grid: NO_CORRECTION, threads: NO_CORRECTION };
  const operators = [...new Set(groups.map(({ operator }) => operator))];
  const foldOf = (operator: string): number => operators.indexOf(operator) % FOLDS;
  const taught = Array.from({ length: FOLDS }, (_, fold) =>
    taughtBy(groups.flatMap(({ operator, points }) => (foldOf(operator) === fold ? [] : points))),
  );
  const others = groups.map(({ operator }) => taught[foldOf(operator)] ?? uncorrected);
  const random = seededRandom(1);
  const twice = groups.some(({ points }) => points.some((p) => p.again !== undefined));
  const schemes = {
    alone: groups.map(({ points }) => judged(uncorrected, points)),
    others: groups.map(({ points }, g) => judged(others[g] ?? uncorrected, points)),
    half: groups.map(({ points }, g) => {
      const middle = points.length >> 1;
      return judged(taughtBy(points.slice(0, middle), others[g]), points.slice(middle));
    }),
    ceiling: groups.map(({ points }) => measuredAgain(points, twice, random)),
  };
  const names = Object.keys(schemes);
  console.log(`| ${by} | trials | ${names.map((name) => `${name}: pairs | recall`).join(" | ")} |`);
  console.log(`|---|---|${"---|---|".repeat(names.length)}`);
  const row = (name: string, of: readonly number[]): void => {
    const count = of.reduce((sum, g) => sum + (groups[g]?.points.length ?? 0), 0);
    const cells = Object.values(schemes).flatMap((all) => {
      const { pairwise, recall } = evaluateTogether(of.map((g) => all[g] ?? []));
      return [pairwise, recall].map((share) => share?.toFixed(3) ?? "");
    });
    console.log(`| ${name} | ${count} | ${cells.join(" | ")} |`);
  };
  const all = groups.map((_, g) => g);
  if (by === "case") for (const g of all) row(groups[g]?.name ?? "", [g]);
  else
    for (const op of operators)
      row(
        op,
        all.filter((g) => groups[g]?.operator === op),
      );
  row("all, pairs within a case", all);
}

/** Prints the ranking of models whose errors are equal everywhere, and the errors of the uncorrected model. */
function printNoise(): void {
  const random = seededRandom(1);
  console.log("| standard deviation | pairs | recall |\n|---|---|---|");
  for (const deviation of NOISES) {
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
      (drawn.reduce((sum, d) => sum + (d[of] ?? 0), 0) / MODELS).toFixed(3);
    console.log(`| ${deviation} | ${mean("pairwise")} | ${mean("recall")} |`);
  }
  // An error common to a whole case changes no rank.
  const errors = groups.flatMap(({ points }) => {
    const logs = points.map(({ costs, measuredSeconds }) => Math.log(measuredSeconds / apply(NO_CORRECTION, costs)));
    const mean = logs.reduce((sum, e) => sum + e, 0) / logs.length;
    return logs.map((e) => e - mean);
  });
  const free = Math.max(1, errors.length - groups.length);
  console.log(`model alone: ${Math.sqrt(errors.reduce((sum, e) => sum + e * e, 0) / free).toFixed(3)}`);
}

/** Trials with a second measurement as their prediction. @param twice keeps only trials really measured twice */
function measuredAgain(points: readonly Point[], twice: boolean, random: Random): Judged[] {
  return points.flatMap(({ measuredSeconds: measured, interval: [low, high], again }) => {
    if (twice) return again === undefined ? [] : [{ predicted: again, measured }];
    const deviation = (high - low) / 2 / HALF_WIDTH;
    return [{ predicted: measured + deviation * normal(random), measured }];
  });
}

/** A normal number, by Box and Muller. */
function normal(random: Random): number {
  return Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
}
