/**
 * @file Repeats a search from its records: the same space, model, seed and strategy, with every measurement read from the database.
 *
 *     const replay = await replayRun(db, "3f9a1c77");
 *     replay.divergence          undefined: the same candidates in the same order, each with the same prediction to the last bit
 *     replay.trials.length       as many as the run had
 *
 * Nothing is compiled or measured, so a search can be examined on another machine. The replay diverges where automap itself has changed since:
 * another model, another space, another strategy.
 */

import { z } from "zod";
import { CANDIDATE_KINDS, type Candidate, candidateKey } from "../../abstraction/candidate.ts";
import { defined, withName } from "../../abstraction/collections.ts";
import { attempt, UsageError } from "../../abstraction/error.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import { finished } from "../../abstraction/steps.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import {
  computationOf,
  type Database,
  type RunRecord,
  showRun,
  showTrial,
  type TrialRecord,
  trialsOf,
} from "../../db/index.ts";
import { instructionsOf } from "../../intrinsics/index.ts";
import type { Correction } from "../../perfmodel/correct.ts";
import { candidateText, scheduleRows } from "../../report/describe-candidate.ts";
import { isGpu, nativeTarget } from "../../targets/index.ts";
import { type SearchResult, search, type TrialStore, type TuneEvent } from "../../tuner/search.ts";
import { STRATEGIES } from "../../tuner/strategies.ts";
import type { Strategy } from "../../tuner/strategy.ts";
import type { TrialOf } from "../../tuner/trials.ts";
import { calibratedMachine } from "../calibrate/gpu-rates.ts";
import { isRefusals, type Reason, type SessionSpace } from "../kinds/session-space.ts";
import { sessionSpace } from "../kinds/space.ts";
import { declaredAs } from "../package/declared.ts";
import { recordedTarget, storedCalibration } from "../recorded.ts";
import { byCandidate, storeOf } from "./store.ts";
import { carriedFrom, seededBy } from "./transfer.ts";

/** The first decision that differs from the record. */
export interface Divergence {
  /** Number of the trial, from 1. */
  readonly trial: number;
  /** The difference. */
  readonly because: string;
}

/** A search repeated from its records. */
export interface Replay {
  /** The recorded search. */
  readonly run: RunRecord;
  /** The trials it requested, in order. */
  readonly trials: readonly TrialOf<Candidate>[];
  /** How many of them earlier runs had measured. */
  readonly known: number;
  /** The fastest of them by the recorded times. */
  readonly best: SearchResult<Candidate>["best"];
  /** `recorded-end`: every trial of the run was repeated, and the run had ended there. */
  readonly status: SearchResult<Candidate>["status"] | "recorded-end";
  /** Where it diverged from the record; undefined when it did not. */
  readonly divergence: Divergence | undefined;
  /** Facts missing in the record, for which today's values were assumed. */
  readonly assumed: readonly string[];
}

/** Upper limit for candidates a round; no search proposes more. */
const MOST_BATCH = 1024;

const correctionSchema: z.ZodType<Correction> = z.object({
  scale: z.number(),
  overlap: z.number(),
  weights: z.record(z.string(), z.number()),
  ridge: z.number(),
  observations: z.number(),
});

/** Options that a run records. Older runs recorded fewer. */
const optionsSchema = z.looseObject({
  strategy: z.string(),
  threads: z.int().positive(),
  earlyStop: z.boolean().default(true),
  intrinsics: z.array(z.string()).optional(),
  // Before lane designs existed there were only mappings.
  kinds: z.enum(CANDIDATE_KINDS).default("mappings"),
  // Candidates a round, where that depends on the machine.
  batch: z.int().positive().max(MOST_BATCH).optional(),
  // Recorded where kernels were measured with flushed caches.
  cache: z.enum(["warm", "flushed"]).default("warm"),
  // Enumeration steps made within the time limit.
  enumerationCut: z.int().positive().optional(),
  // What records of similar computations taught the model, and those whose schedules were tried first.
  prior: correctionSchema.optional(),
  transferred: z.array(z.string()).optional(),
});
const budgetSchema = z.looseObject({ trials: z.int().positive().optional() });

/**
 * Repeats the search of a run on the recorded measurements, without measuring anything.
 * @param prefix the first characters of the id of the run
 * @param onEvent told what the search would tell
 * @throws UsageError when there is no such run, or its record names something this version does not have
 */
export async function replayRun(
  db: Database,
  prefix: string,
  onEvent?: (event: TuneEvent<Candidate>) => void,
): Promise<Replay> {
  // 1. The recorded search.
  const run = showRun(db, prefix);
  const {
    strategy: name,
    threads,
    earlyStop,
    intrinsics: names,
    kinds,
    batch,
    enumerationCut,
    cache,
    prior,
    transferred = [],
  } = readPart(optionsSchema, run, "options");
  const target = recordedTarget(run);
  const budget = readPart(budgetSchema, run, "budget");
  const strategy = withName(STRATEGIES, name);
  if (!strategy) throw new UsageError(`run ${run.id} used the strategy "${name}", which this automap has not`);
  const computation = computationOf(run.workload);
  const assumed: string[] = [];
  if (names === undefined) assumed.push("the instructions to choose from: all that its CPU has");
  if (target === undefined) assumed.push("the sizes of the caches: those of this machine");

  // 2. The recorded measurements: its own trials are the machine's answers, and those of earlier runs were known at the start.
  const recorded = trialsOf(db, { computation }, run.environment)
    .filter((t) => t.conditions.threads === threads && t.conditions.cache === cache)
    .filter((t) => t.run === run.id || t.at < run.started);
  const { provenance } = run;
  const own = recorded.filter((t) => t.run === run.id && t.provenance === provenance);
  // A search knows the measurements made on its machine. For an imported run these are the measurements imported with it.
  const answers = new Map(own.map((t) => [candidateKey(t.candidate), t]));
  const earlier = recorded.filter(
    (t) => t.run !== run.id && t.provenance === provenance && !answers.has(candidateKey(t.candidate)),
  );
  const rates = { until: own[0]?.at ?? run.ended, imported: provenance === "imported" };
  const calibration = storedCalibration(db, run.environment, rates)?.calibration;
  if (!calibration && !(target && isGpu(target)))
    assumed.push("the rates of the machine: those of the reference machine, no calibration is stored");

  // 3. The same space and model.
  const enumeration = sessionSpace(computation, {
    intrinsics: intrinsicsOf(names, run, own),
    calibration,
    machine:
      target && isGpu(target)
        ? calibratedMachine(db, run.environment, target, rates).machine
        : (target ?? nativeTarget()),
    threads,
    seed: run.seed,
    kinds,
  });
  const found = finished(enumeration, enumerationCut);
  if (isRefusals(found)) return nothingMaps(run, own, assumed, found);
  found.startFrom(prior);
  const seeds = transferred.flatMap((id) => attempt(() => carriedFrom(showTrial(db, id), found)) ?? []);
  if (seeds.length < transferred.length)
    assumed.push("schedules of near computations: some of their records are not here");
  const space = seededBy(found, seeds);

  // 4. The search.
  const witness = new Witness(own);
  const store = storeOf(earlier);
  const result = await searchAgain({ space, strategy, run, store, budget, earlyStop, batch, witness, onEvent });
  const ended = witness.complete && (result.status === "interrupted" || result.status === "time-spent");
  return {
    run,
    trials: result.trials,
    known: result.trials.filter((t) => store.known(t.key)).length,
    best: result.best,
    status: ended ? "recorded-end" : result.status,
    divergence: witness.divergenceAtEnd(),
    assumed,
  };
}

interface Again {
  readonly space: SessionSpace;
  readonly strategy: Strategy;
  readonly run: RunRecord;
  readonly store: TrialStore<Candidate>;
  readonly budget: z.infer<typeof budgetSchema>;
  readonly earlyStop: boolean;
  readonly batch: number | undefined;
  readonly witness: Witness;
  readonly onEvent: ((event: TuneEvent<Candidate>) => void) | undefined;
}

/** Runs the search with the record instead of the machine. It diverges, and stops, at a candidate that the run never measured. */
function searchAgain({
  space,
  run,
  budget,
  earlyStop,
  batch,
  witness,
  onEvent,
  ...same
}: Again): Promise<SearchResult<Candidate>> {
  const controller = new AbortController();
  return search<Candidate>({
    ...same,
    space,
    seed: run.seed,
    now: () => run.started,
    predict: space.predict,
    learn: space.learn,
    budget: budget.trials === undefined ? {} : { trials: budget.trials },
    ...(!earlyStop && { earlyStop: false as const }),
    ...defined({ batch }),
    signal: controller.signal,
    async *measure(batch): AsyncGenerator<Measurement | undefined> {
      const isCut = witness.endsIn(batch);
      for (const candidate of batch) {
        if (isCut && !witness.has(candidate)) {
          yield undefined;
          continue;
        }
        const measurement = witness.answer(candidate);
        if (!measurement) {
          controller.abort();
          return;
        }
        yield measurement;
      }
    },
    onEvent: (event) => {
      if (event.kind === "trial") witness.compare(event.trial, event.number, event.known);
      onEvent?.(event);
    },
  });
}

/** Follows a replay beside the record and remembers the first difference. */
class Witness {
  private readonly own: readonly TrialRecord[];
  private readonly byKey: ReadonlyMap<string, TrialRecord>;
  private readonly left: Map<string, TrialRecord>;
  /** Trials repeated so far, and how many of them the run measured itself. */
  private gone = 0;
  private asked = 0;
  private divergence: Divergence | undefined;

  constructor(own: readonly TrialRecord[]) {
    // Older runs treated two spellings of one kernel, with a default written out or omitted, as two kernels. Searches now request it once.
    const byKey = byCandidate(own);
    this.own = [...byKey.values()];
    this.byKey = byKey;
    this.left = new Map(this.byKey);
  }

  /** Whether every trial of the run was requested. */
  get complete(): boolean {
    return this.left.size === 0;
  }

  /** Whether all that is left of the record is in this round, so that the run had no time for the other candidates of it. */
  endsIn(batch: readonly Candidate[]): boolean {
    const asked = new Set(batch.map((candidate) => candidateKey(candidate)));
    return this.left.size > 0 && [...this.left.keys()].every((key) => asked.has(key));
  }

  has(candidate: Candidate): boolean {
    return this.byKey.has(candidateKey(candidate));
  }

  /** The run's measurement of a candidate; undefined when it never measured it. */
  answer(candidate: Candidate): Measurement | undefined {
    const key = candidateKey(candidate);
    const found = this.byKey.get(key);
    const next = this.own[this.asked++];
    // Trials recorded in the same millisecond have no order.
    if (found && next && found.at !== next.at)
      this.note(`the run measured ${short(next.candidate)}, the replay asks for ${short(candidate)}`);
    if (!found) {
      if (next) this.note(`the replay asks for ${short(candidate)}, which the run never measured`);
      return undefined;
    }
    this.left.delete(key);
    return found.measurement;
  }

  compare({ key, prediction }: TrialOf<Candidate>, number: number, known: boolean): void {
    this.gone = number;
    const recorded = known ? undefined : this.byKey.get(key);
    if (!recorded) return;
    const was = recorded.prediction?.seconds;
    const is = prediction?.seconds;
    if (was === is || this.divergence) return;
    const said = (seconds: number | undefined): string => (seconds === undefined ? "nothing" : `${seconds} s`);
    this.divergence = {
      trial: number,
      because: `the same candidate, but the model said ${said(was)} then and says ${said(is)} now`,
    };
  }

  /** Detects a search that ended before its record does. */
  divergenceAtEnd(): Divergence | undefined {
    if (this.left.size > 0) this.note(`the replay ends here, the run measured ${this.left.size} more`);
    return this.divergence;
  }

  private note(because: string): void {
    this.divergence ??= { trial: this.gone + 1, because };
  }
}

function short(candidate: Candidate): string {
  const rows = scheduleRows(candidate).map(([name, text]) => `${name} ${text}`);
  return `${candidateText(candidate)} ${rows.join("; ")}`;
}

/** The instructions the search could choose from, with the declarations that its trials recorded. */
function intrinsicsOf(
  names: readonly string[] | undefined,
  run: RunRecord,
  own: readonly TrialRecord[],
): readonly Intrinsic[] {
  if (names === undefined) return instructionsOf(run.environment);
  const declarations = new Map(own.map((t) => [t.intrinsic, t.declaration]));
  return names.map((name) => declaredAs(name, declarations.get(name)));
}

function nothingMaps(
  run: RunRecord,
  own: readonly TrialRecord[],
  assumed: readonly string[],
  refused: readonly Reason[],
): Replay {
  const because = `nothing maps any more: ${refused[0]?.because ?? "no reason given"}`;
  const divergence = own.length === 0 ? undefined : { trial: 1, because };
  return { run, trials: [], known: 0, best: undefined, status: "exhausted", divergence, assumed };
}

function readPart<T>(schema: z.ZodType<T>, run: RunRecord, part: "options" | "budget"): T {
  const result = schema.safeParse(run[part]);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  throw new UsageError(
    `run ${run.id}: its ${part} cannot be read: ${issue?.path.join(".")}: ${issue?.message}`,
    "something other than automap tune wrote it, or a newer automap",
  );
}
