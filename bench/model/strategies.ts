/**
 * @file Search strategies compared on recorded trials: how many each needs to come within 5 % of the best known time.
 *
 *     automap tune conv2d --strategy random --trials 400 --time 600 --db recorded.db          records a random sample
 *     npm run build
 *     node dist/bench/model/strategies.js --db recorded.db --seeds 20 --out bench/results/strategies.md
 *
 * The space is the recorded candidates of a workload: a mutation moves to a recorded neighbour, a crossover to one
 * between its parents. All answers come from the database, so every machine gives the same table. The model is a
 * search's: calibrated on the recording machine, corrected only by trials seen in this search. `exhaustive` visits
 * candidates in the order of their text, which is unrelated to their speed.
 */

import { writeFileSync } from "node:fs";
import { type Candidate, candidateKey, isMapped, type MappedCandidate } from "../../abstraction/candidate.ts";
import { internal } from "../../abstraction/error.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { pick } from "../../abstraction/random.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import { computationOf, labelOf, openDatabase, queryTrials, type TrialRecord } from "../../db/index.ts";
import { mappingOf, recordedMachine } from "../../session/recorded.ts";
import { learntParts } from "../../session/tune/learner.ts";
import { predictorFor } from "../../session/tune/predict.ts";
import { search } from "../../tuner/search.ts";
import { leavesApart, type SearchSpace } from "../../tuner/space.ts";
import { STRATEGIES } from "../../tuner/strategies.ts";
import type { Strategy } from "../../tuner/strategy.ts";
import type { TrialOf } from "../../tuner/trials.ts";
import { inOrder, secondsOf } from "../../tuner/trials.ts";
import { page, percent, table } from "../support/frame.ts";
import { readOptions } from "../support/options.ts";

const { values } = readOptions({
  options: {
    db: { type: "string", default: "recorded.db" },
    seeds: { type: "string", default: "20" },
    within: { type: "string", default: "0.05" },
    least: { type: "string", default: "40" },
    out: { type: "string" },
  },
});
const SEEDS = Array.from({ length: Number(values.seeds) }, (_, i) => i + 1);
const WITHIN = Number(values.within);
/** Recorded neighbours from which a mutation chooses. */
const NEIGHBOURS = 6;
const COMPARED = STRATEGIES.filter((s) => s.name !== "replay");

const rows: (string | number)[][] = [];
const db = openDatabase(values.db, { readonly: true });
for (const trials of recordedWorkloads()) {
  const [first] = trials;
  const row = first && (await compareOn(first, trials));
  if (row !== undefined) rows.push(row);
}
db.close();
const near = `within ${(100 * WITHIN).toFixed(0)} %`;
const text = page(
  `Trials needed to come ${near} of the best recorded`,
  `Median over ${SEEDS.length} seeds, the middle half in parentheses. "share" is the share of the recorded trials that are ${near}.`,
  ...table(["workload", "recorded", "share", ...COMPARED.map((s) => s.name)], rows),
);
process.stdout.write(text);
if (values.out !== undefined) writeFileSync(values.out, text);

/** The trials of each workload, environment and thread count; of each candidate only the first. */
function recordedWorkloads(): TrialRecord[][] {
  const groups = new Map<string, Map<string, TrialRecord>>();
  for (const trial of queryTrials(db, { sort: "at" }).reverse()) {
    const { workload, environment, conditions, candidate } = trial;
    const group = JSON.stringify([workload.id, environment.id, conditions.threads, conditions.cache]);
    const known = groups.get(group) ?? new Map<string, TrialRecord>();
    groups.set(group, known);
    const key = candidateKey(candidate);
    if (!known.has(key)) known.set(key, trial);
  }
  return [...groups.values()].map((g) => [...g.values()]).filter((g) => g.length >= Number(values.least));
}

async function compareOn(first: TrialRecord, trials: readonly TrialRecord[]): Promise<(string | number)[] | undefined> {
  const { workload } = first;
  const seconds = trials.flatMap((t) => secondsOf(t) ?? []);
  if (seconds.length === 0) return undefined;
  const goal = Math.min(...seconds) * (1 + WITHIN);
  const space = recordedSpace(trials.map((t) => t.candidate));
  const answers = new Map(trials.map((t) => [candidateKey(t.candidate), t.measurement]));
  const computation = computationOf(workload);
  const found = new Map<string, Mapping>();
  const mapping = (c: Candidate): Mapping => {
    const key = JSON.stringify(isMapped(c) ? [c.intrinsic, c.matching, c.operands] : c);
    const known = found.get(key) ?? mappingOf(computation, c);
    found.set(key, known);
    return known;
  };
  const cells: string[] = [];
  for (const strategy of COMPARED) {
    const needed: number[] = [];
    for (const seed of SEEDS) needed.push(await trialsNeeded(strategy, seed));
    cells.push(summary(needed));
  }
  const share = seconds.filter((s) => s <= goal).length / trials.length;
  return [labelOf(workload), trials.length, `${percent(share)} %`, ...cells];

  async function trialsNeeded(strategy: Strategy, seed: number): Promise<number> {
    const { calibration, machine } = recordedMachine(db, first ?? internal("no trial"));
    const predictor = predictorFor(calibration, machine);
    const model = learntParts<MappedCandidate>(
      (c) => predictor.costs(mapping(c), c.schedule),
      (c, correction) => predictor.predict(mapping(c), c.schedule, { correction }),
    );
    const controller = new AbortController();
    let count = 0;
    await search<Candidate>({
      space,
      strategy,
      seed,
      budget: { trials: trials.length },
      earlyStop: false,
      now: () => 0,
      store: { known: () => undefined, record: () => undefined, recorded: () => [] },
      predict: (c) => (c.kind === "mapping" ? model.predict(c) : undefined),
      learn: (so) => model.learn(so.filter((t): t is TrialOf<MappedCandidate> => t.candidate.kind === "mapping")),
      signal: controller.signal,
      async *measure(batch): AsyncGenerator<Measurement> {
        for (const c of batch) yield answers.get(candidateKey(c)) ?? internal("a candidate that was never recorded");
      },
      onEvent: (event) => {
        if (event.kind !== "trial" || controller.signal.aborted) return;
        count++;
        const time = secondsOf(event.trial);
        if (time !== undefined && time <= goal) controller.abort();
      },
    });
    return count;
  }
}

/** The recorded candidates as a space. A distance is the number of differing leaves; each is computed once. */
function recordedSpace(recorded: readonly Candidate[]): SearchSpace<Candidate> {
  const all = [...recorded].sort((a, b) => inOrder(candidateKey(a), candidateKey(b)));
  const place = new Map(all.map((c, i) => [candidateKey(c), i]));
  const apart = all.map((a) => all.map((b) => leavesApart(a, b)));
  const between = (a: Candidate, b: Candidate): number =>
    apart[place.get(candidateKey(a)) ?? -1]?.[place.get(candidateKey(b)) ?? -1] ?? internal("a stranger");
  const nearest = (distance: (c: Candidate) => number, count: number): Candidate[] =>
    all
      .map((c) => ({ c, far: distance(c) }))
      .sort((a, b) => a.far - b.far)
      .slice(0, count)
      .map(({ c }) => c);
  return {
    size: all.length,
    key: candidateKey,
    random: (random) => pick(random, all),
    mutate: (c, random) =>
      pick(
        random,
        nearest((other) => between(c, other), NEIGHBOURS + 1).filter((other) => other !== c),
      ),
    crossover: (a, b, random) =>
      pick(
        random,
        nearest((c) => Math.max(between(a, c), between(b, c)), NEIGHBOURS),
      ),
    all: () => all,
    distance: between,
  };
}

function summary(needed: readonly number[]): string {
  const sorted = [...needed].sort((a, b) => a - b);
  const at = (share: number): number => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0;
  return `${at(0.5)} (${at(0.25)} to ${at(0.75)})`;
}
