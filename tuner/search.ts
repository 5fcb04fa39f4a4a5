/**
 * @file The search loop: propose, measure, learn, until a limit or signal ends it. The model, machine, store and clock are arguments, so that
 * tests need none of them.
 *
 *     round 1   8 proposed, 0 known        trial 1   12.1 us   best        trial 2   wrong answer        ...
 *     round 2   8 proposed, 0 known        trial 9   11.8 us   best        ...        stop: no-gain
 *
 * Decisions depend only on the seed, the options and the results. To resume a run that was killed, start it again: it makes the same proposals,
 * the store answers those already measured, and the machine measures the others. A run with a smaller budget of trials is the beginning of one
 * with a larger.
 *
 * The model as a search uses it: evaluated once for each candidate, and scaled to the measurements.
 *
 *     expected = predicted * median over the trials (measured / predicted) where that improves on 1
 *
 * The scaling keeps the predictions of a model that ranks well but is wrong by a factor comparable with measured medians.
 */

import { setImmediate } from "node:timers/promises";
import type { Candidate } from "../abstraction/candidate.ts";
import { isDefined } from "../abstraction/collections.ts";
import { seededRandom } from "../abstraction/random.ts";
import type { Step } from "../abstraction/steps.ts";
import type { Measurement, Prediction } from "../abstraction/trial.ts";
import { commonFactor } from "../perfmodel/correct.ts";
import type { SearchSpace } from "./space.ts";
import { fillOptions, type Search, type Strategy } from "./strategy.ts";
import { contendersOf, finalistsOf, secondsOf, type TrialOf } from "./trials.ts";

export const TUNE_STATUSES = ["trials-spent", "time-spent", "interrupted", "exhausted", "no-gain"] as const;
/**
 * Why a search ended.
 *
 * - `trials-spent`, `time-spent`: the budget
 * - `interrupted`: the signal; the measurement under way was finished
 * - `exhausted`: the strategy has nothing new to propose
 * - `no-gain`: see `EarlyStop`
 */
export type TuneStatus = (typeof TUNE_STATUSES)[number];

/** Earlier trials. The store decides which are valid: a trial from another world (compiler, machine) counts as unknown and is measured again. */
export interface TrialStore<C> {
  known(key: string): Pick<TrialOf<C>, "measurement" | "at"> | undefined;
  /** Called once for each new trial, before it is used. */
  record(trial: TrialOf<C>): void;
  /** All stored candidates, in order; used only by `replay`. */
  recorded(): Iterable<C>;
}

/**
 * A guided strategy is stopped before a round when both hold:
 *
 * - the last `rounds` rounds brought no lower median, and
 * - the proposal expected to be fastest is expected to take more than `(1 + margin)` times the best median.
 */
interface EarlyStop {
  readonly rounds: number;
  /** Negative to require some gain: -0.01 stops when less than 1 % is expected. */
  readonly margin: number;
}

export interface SearchOptions<C> {
  readonly space: SearchSpace<C>;
  /** Fast, and constant until `learn` is called; undefined, or seconds that are not positive and finite, when the model cannot tell. */
  readonly predict: (candidate: C) => Prediction | undefined;
  /**
   * The measurements in order, one for each candidate; undefined for one that there was no time to measure, after which the search ends. An
   * iterable is consumed one by one, and its `return` is called when the search ends early. The results of a promise are recorded when it
   * resolves, or when it is rejected with a {@link CutShort}.
   * @param goal the shortest median so far, in seconds: a kernel that is clearly slower need not be timed to the end
   * @param meanwhile to be called when a core is idle, where that disturbs no measurement; by default it is called before the first answer is taken
   */
  readonly measure: (
    batch: readonly C[],
    goal: number | undefined,
    meanwhile: () => void,
  ) => AsyncIterable<Measurement | undefined> | Promise<readonly Measurement[]>;
  readonly store: TrialStore<C>;
  readonly strategy: Strategy;
  readonly strategyOptions?: Readonly<Record<string, number>>;
  /** Limits. Trials known to the store count; seconds count from the start of this call. Without any limit, the strategy decides. */
  readonly budget: { readonly trials?: number; readonly seconds?: number };
  /** Ends the search for lack of time, whatever the clock says. The same signal should end `measure` early. */
  readonly time?: AbortSignal;
  readonly seed: number;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  readonly signal?: AbortSignal;
  readonly onEvent?: (event: TuneEvent<C>) => void;
  /** Proposals a round. */
  readonly batch?: number;
  /** Corrects the model by all trials so far; called between rounds. */
  readonly learn?: (trials: readonly TrialOf<C>[]) => void;
  readonly earlyStop?: EarlyStop | false;
}

/** The same for the same seed, options and measurements, whether the run was resumed or not. */
export interface SearchResult<C> {
  readonly status: TuneStatus;
  /** Trials in the order they were proposed. */
  readonly trials: readonly TrialOf<C>[];
  /** The first finalist; undefined when every run failed. */
  readonly best: TrialOf<C> | undefined;
  /** Trials that tie with the fastest, at most three. */
  readonly finalists: readonly TrialOf<C>[];
  /**
   * The finalists, and trials that may have been measured at a bad moment. Measure them again in alternating batches, and call `finalistsOf`
   * again.
   */
  readonly contenders: readonly TrialOf<C>[];
}

/** What a search does before, between and after its measurements, in order. */
export type TunePhase = "calibrating" | "enumerating" | "drawing" | "writing" | "compiling" | "deciding";

/** How long a search goes on before its finals, as far as that is known. */
export interface TimeLeft {
  /** The least of what the limit of seconds leaves and of what the trials left take at the pace of this call. */
  readonly seconds: number;
  /** Whether the pace decides. Otherwise the limit of seconds does, and the search goes on no longer than that. */
  readonly isEstimate: boolean;
  /** Whether the search ends sooner if nothing faster is expected. */
  readonly mayEndSooner: boolean;
}

/** Events of a running search. */
export type TuneEvent<C = Candidate> =
  | {
      /** Sent by `tune` when its activity changes, and up to several times a second while it goes on. */
      readonly kind: "phase";
      readonly phase: TunePhase;
      /** How far it is, where that is counted: mappings when enumerating, kernels when writing, compiling and deciding. */
      readonly at?: Step;
    }
  | {
      readonly kind: "round";
      /** From 1. */
      readonly round: number;
      readonly proposed: number;
      /** How many of them the store knows. */
      readonly known: number;
      /** The shortest predicted time among the proposals. */
      readonly expectedSeconds: number | undefined;
      /** Undefined without a limit of seconds until the pace is known. */
      readonly left: TimeLeft | undefined;
    }
  | {
      readonly kind: "trial";
      /** From 1. */
      readonly number: number;
      /** The most trials that the limit of trials and the size of the space allow; undefined when neither is known. */
      readonly of: number | undefined;
      readonly trial: TrialOf<C>;
      /** Whether the store knew the result. */
      readonly known: boolean;
      /** Undefined without a limit of seconds until the pace is known. */
      readonly left: TimeLeft | undefined;
    }
  | {
      /** A median lower than all before. Follows its trial. */
      readonly kind: "best";
      readonly number: number;
      readonly trial: TrialOf<C>;
      readonly previous: TrialOf<C> | undefined;
    }
  | {
      readonly kind: "stop";
      readonly status: TuneStatus;
      readonly trials: number;
      /** How many of them this call measured. */
      readonly measured: number;
      readonly seconds: number;
    };

const BATCH = 8;
const EARLY_STOP: EarlyStop = { rounds: 5, margin: 0 };

/** Searches for the fastest candidate. @throws Error for an option out of range, and whatever `predict`, `measure` and `store` throw */
export async function search<C>(options: SearchOptions<C>): Promise<SearchResult<C>> {
  check(options);
  return new Running(options).toTheEnd();
}

/** A search in progress. */
class Running<C> {
  private readonly options: SearchOptions<C>;
  private readonly started: number;
  private readonly model: Expectations<C>;
  private readonly trials: TrialOf<C>[] = [];
  private readonly tried = new Set<string>();
  private leader: TrialOf<C> | undefined;
  private measured = 0;
  private roundsWithoutGain = 0;
  private readonly pace: Pace;
  /** Whether there was no time for a candidate that was proposed. */
  private isCut = false;
  /** What the strategy wants to do while its round is measured. */
  private besides: (() => void) | undefined;
  private failure: { readonly error: unknown } | undefined;

  constructor(options: SearchOptions<C>) {
    this.options = options;
    this.started = options.now();
    this.pace = new Pace(this.started);
    this.model = expectationsOf(options.space, options.predict);
  }

  async toTheEnd(): Promise<SearchResult<C>> {
    const { trials, model } = this;
    const status = await this.untilItEnds();
    this.emit({ kind: "stop", status, trials: trials.length, measured: this.measured, seconds: this.elapsed() });
    const finalists = finalistsOf(trials);
    return { status, trials, best: finalists[0], finalists, contenders: contendersOf(trials, model.expected) };
  }

  private async untilItEnds(): Promise<TuneStatus> {
    const { model, trials } = this;
    const {
      space,
      strategy,
      store,
      seed,
      learn,
      strategyOptions = {},
      batch = BATCH,
      earlyStop = EARLY_STOP,
    } = this.options;
    const search: Search<C> = {
      space,
      random: seededRandom(seed),
      batch,
      trials,
      tried: (key) => this.tried.has(key),
      expected: model.expected,
      recorded: () => store.recorded(),
      meanwhile: (work) => {
        this.besides = work;
      },
    };
    let round = 0;
    for (const proposals of strategy.propose(search, fillOptions(strategy, strategyOptions))) {
      // 1. New candidates, unless something ends the search. Signals need a turn of the event loop, which results from the store do not take.
      await setImmediate();
      const spent = this.whySpent();
      // A search has at least one result, however long its first proposals took.
      if (spent && !(spent === "time-spent" && trials.length === 0)) return spent;
      const asked = this.untried(proposals).slice(0, this.trialsLeft());
      if (asked.length === 0) return "exhausted";
      if (asked.length === this.trialsLeft()) this.besides = undefined;
      const expectedSeconds = least(asked.map(({ candidate }) => model.expected(candidate)));
      if (strategy.guided && earlyStop && this.roundsWithoutGain >= earlyStop.rounds) {
        const best = this.leader && secondsOf(this.leader);
        if (best !== undefined && expectedSeconds !== undefined && expectedSeconds > best * (1 + earlyStop.margin))
          return "no-gain";
      }
      const known = asked.filter((question) => question.earlier).length;
      const left = this.timeLeft();
      this.emit({ kind: "round", round: ++round, proposed: asked.length, known, expectedSeconds, left });
      this.pace.begin(asked.length - known);

      // 2. The results, one at a time.
      const before = this.leader;
      for await (const { trial, isKnown, isMeasured } of this.answers(asked)) {
        if (this.failure) throw this.failure.error;
        this.take(trial, isKnown);
        const over = this.whySpent();
        // Results measured together are recorded, whatever ends the search.
        if (over && !isMeasured) return over;
      }
      const ended = this.isCut ? "time-spent" : this.whySpent();
      if (ended && trials.length > 0) return ended;
      this.roundsWithoutGain = this.leader === before ? this.roundsWithoutGain + 1 : 0;

      // 3. The model learns.
      if (learn) {
        learn(trials);
        model.forget();
      }
      model.scaleTo(trials);
    }
    return "exhausted";
  }

  private untried(proposals: readonly C[]): Question<C>[] {
    const fresh = new Map<string, C>();
    for (const candidate of proposals) {
      const key = this.options.space.key(candidate);
      if (!this.tried.has(key) && !fresh.has(key)) fresh.set(key, candidate);
    }
    return [...fresh].map(([key, candidate]) => ({ key, candidate, earlier: this.options.store.known(key) }));
  }

  /** Results from the store or the machine. Ends early only when the machine stops because of the signal or the time. */
  private async *answers(asked: readonly Question<C>[]): AsyncGenerator<Answer<C>> {
    const unknown = asked.filter((question) => !question.earlier).map(({ candidate }) => candidate);
    let machine: AsyncGenerator<Measurement | undefined> | undefined;
    let answered = 0;
    let isMeasured = false;
    try {
      for (const { key, candidate, earlier } of asked) {
        const prediction = this.model.predicted(candidate);
        if (earlier) {
          this.doBesides();
          const { measurement, at } = earlier;
          yield { trial: { key, candidate, prediction, measurement, at }, isKnown: true, isMeasured };
          continue;
        }
        if (!machine) {
          const given = this.options.measure(unknown, this.leader && secondsOf(this.leader), () => this.doBesides());
          machine = inTurn(given);
          isMeasured = !(Symbol.asyncIterator in given);
        }
        const next = await machine.next();
        this.doBesides();
        if (next.done) {
          const over = this.whySpent();
          if (over === "interrupted" || over === "time-spent") return;
          throw new Error(`tune: measure answered ${answered} of ${unknown.length} candidates`);
        }
        answered++;
        if (next.value === undefined) {
          this.isCut = true;
          continue;
        }
        const trial = { key, candidate, prediction, measurement: next.value, at: this.options.now() };
        yield { trial, isKnown: false, isMeasured };
      }
    } finally {
      await machine?.return(undefined);
    }
  }

  /** Does the strategy's other work once. Who calls it is not to be told of its errors, but the search is. */
  private doBesides(): void {
    const work = this.besides;
    this.besides = undefined;
    try {
      work?.();
    } catch (error) {
      this.failure = { error };
    }
  }

  private take(trial: TrialOf<C>, known: boolean): void {
    if (!known) {
      this.options.store.record(trial);
      this.measured++;
      this.pace.answered(this.options.now());
    }
    this.trials.push(trial);
    this.tried.add(trial.key);
    const number = this.trials.length;
    this.emit({ kind: "trial", number, of: this.mostTrials(), trial, known, left: this.timeLeft() });
    const seconds = secondsOf(trial);
    const lowest = this.leader && secondsOf(this.leader);
    if (seconds === undefined || (lowest !== undefined && seconds >= lowest)) return;
    this.emit({ kind: "best", number, trial, previous: this.leader });
    this.leader = trial;
  }

  private whySpent(): TuneStatus | undefined {
    const { budget, signal, time } = this.options;
    if (budget.trials !== undefined && this.trials.length >= budget.trials) return "trials-spent";
    if (signal?.aborted) return "interrupted";
    if (time?.aborted || (budget.seconds !== undefined && this.elapsed() >= budget.seconds)) return "time-spent";
    return undefined;
  }

  private trialsLeft(): number {
    return (this.options.budget.trials ?? Number.POSITIVE_INFINITY) - this.trials.length;
  }

  private elapsed(): number {
    return (this.options.now() - this.started) / 1000;
  }

  private mostTrials(): number | undefined {
    const { budget, space } = this.options;
    return least([budget.trials, space.size]);
  }

  private timeLeft(): TimeLeft | undefined {
    const { budget, strategy, batch = BATCH, earlyStop = EARLY_STOP } = this.options;
    const most = this.mostTrials();
    const trials = most === undefined ? undefined : Math.max(0, most - this.trials.length);
    const byTime = budget.seconds === undefined ? undefined : budget.seconds - this.elapsed();
    const byPace = trials === undefined ? undefined : this.pace.secondsFor(trials, this.options.now());
    const seconds = least([byTime, byPace]);
    if (seconds === undefined) return undefined;
    const rounds = this.roundsWithoutGain + (trials ?? Number.POSITIVE_INFINITY) / batch;
    return {
      seconds: Math.max(0, seconds),
      isEstimate: seconds === byPace,
      mayEndSooner: strategy.guided && earlyStop !== false && rounds > earlyStop.rounds,
    };
  }

  private emit(event: TuneEvent<C>): void {
    this.options.onEvent?.(event);
  }
}

/**
 * The pace of a search. A round is proposed, written and compiled before its first result, and then its results follow fast: what is left of it
 * takes the time between two results, and later rounds the time of all that was done, by kernel.
 */
class Pace {
  private readonly started: number;
  private last: number | undefined;
  private answers = 0;
  /** Milliseconds between results of one round, and their number. */
  private between = 0;
  private gaps = 0;
  /** Kernels of this round that have no result yet. */
  private waiting = 0;

  /** @param started by the same clock as the times of results, in milliseconds */
  constructor(started: number) {
    this.started = started;
  }

  /** Begins a round. @param kernels to be measured in it */
  begin(kernels: number): void {
    this.waiting = kernels;
    this.last = undefined;
  }

  answered(now: number): void {
    if (this.last !== undefined) {
      this.between += now - this.last;
      this.gaps++;
    }
    this.last = now;
    this.answers++;
    this.waiting--;
  }

  /** Seconds from now on for so many trials, those left of this round included; undefined while the pace is unknown. */
  secondsFor(trials: number, now: number): number | undefined {
    if (trials === 0) return 0;
    const rest = this.last === undefined ? 0 : Math.min(this.waiting, trials);
    if (this.answers === 0 || (rest > 0 && this.gaps === 0)) return undefined;
    const ofRound = rest === 0 ? 0 : (rest * this.between) / this.gaps;
    const perKernel = (now - this.started + ofRound) / (this.answers + rest);
    return (ofRound + (trials - rest) * perKernel) / 1000;
  }
}

interface Question<C> {
  readonly key: string;
  readonly candidate: C;
  readonly earlier: Pick<TrialOf<C>, "measurement" | "at"> | undefined;
}

interface Answer<C> {
  readonly trial: TrialOf<C>;
  /** From the store. */
  readonly isKnown: boolean;
  /** Whether the results of all candidates requested with it have arrived. */
  readonly isMeasured: boolean;
}

async function* inTurn(
  answers: AsyncIterable<Measurement | undefined> | Promise<readonly Measurement[]>,
): AsyncGenerator<Measurement | undefined, undefined> {
  try {
    yield* await answers;
  } catch (error) {
    if (!(error instanceof CutShort)) throw error;
    yield* error.measured;
    throw error.cause;
  }
  return undefined;
}

/** The machine failed while several candidates were measured together. Results before the first missing one are kept. */
export class CutShort extends Error {
  readonly measured: readonly Measurement[];
  override readonly cause: Error;

  constructor(measured: readonly Measurement[], cause: Error) {
    super(cause.message);
    this.measured = measured;
    this.cause = cause;
  }
}

/** The least of those that are known. */
function least(numbers: readonly (number | undefined)[]): number | undefined {
  const known = numbers.filter(isDefined);
  return known.length === 0 ? undefined : Math.min(...known);
}

function check<C>({ budget, batch, seed, earlyStop }: SearchOptions<C>): void {
  const positive = (name: string, value: number | undefined, whole: boolean): void => {
    if (value === undefined || (value > 0 && (!whole || Number.isInteger(value)))) return;
    throw new Error(`tune: ${name} must be a positive ${whole ? "whole " : ""}number, got ${value}`);
  };
  positive("budget.trials", budget.trials, true);
  positive("budget.seconds", budget.seconds, false);
  positive("batch", batch, true);
  if (!Number.isSafeInteger(seed)) throw new Error(`tune: seed must be a whole number, got ${seed}`);
  if (earlyStop) positive("earlyStop.rounds", earlyStop.rounds, true);
  if (earlyStop && !(earlyStop.margin > -1))
    throw new Error(`tune: earlyStop.margin must be above -1, got ${earlyStop.margin}`);
}

interface Expectations<C> {
  /** The model's prediction; undefined when it has none, or its seconds are not positive and finite. */
  predicted(candidate: C): Prediction | undefined;
  /** Its seconds, scaled to the trials. */
  expected(candidate: C): number | undefined;
  /** Scales to these trials. */
  scaleTo(trials: readonly TrialOf<C>[]): void;
  /** Discards cached predictions after the model has learnt. */
  forget(): void;
}

function expectationsOf<C>(space: SearchSpace<C>, predict: (candidate: C) => Prediction | undefined): Expectations<C> {
  const asked = new Map<string, Prediction | undefined>();
  let scale = 1;
  const predicted = (candidate: C): Prediction | undefined => {
    const key = space.key(candidate);
    if (!asked.has(key)) {
      const prediction = predict(candidate);
      asked.set(key, prediction && isDuration(prediction.seconds) ? prediction : undefined);
    }
    return asked.get(key);
  };
  return {
    predicted,
    expected: (candidate) => {
      const seconds = predicted(candidate)?.seconds;
      return seconds === undefined ? undefined : seconds * scale;
    },
    scaleTo: (trials) => {
      const ratios = trials.flatMap((trial) => {
        const measured = secondsOf(trial);
        const seconds = predicted(trial.candidate)?.seconds;
        return measured === undefined || seconds === undefined ? [] : [measured / seconds];
      });
      scale = commonFactor(ratios);
    },
    forget: () => asked.clear(),
  };
}

function isDuration(seconds: number): boolean {
  return seconds > 0 && Number.isFinite(seconds);
}
