/**
 * @file One search of `automap tune`: what the words choose, and how it is run.
 *
 *     const chosen = readChosen("conv2d", { c: 64, k: 64 }, given);
 *     const { outcome } = await searchFor({ chosen, intrinsics: chooseIntrinsics(undefined, machine, undefined), machine }, given, { signal });
 */

import type { Extents } from "../abstraction/affine.ts";
import { defined, mapValues, namesOf, unique, withName } from "../abstraction/collections.ts";
import type { Computation } from "../abstraction/computation.ts";
import { suggestion, UsageError } from "../abstraction/error.ts";
import type { Inputs } from "../abstraction/interpret.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import type { KernelLanguage } from "../abstraction/kernel.ts";
import type { Target } from "../abstraction/machine.ts";
import { operationsOf } from "../abstraction/time.ts";
import type { FleetPlace } from "../fleet/place.ts";
import { INTRINSICS, intrinsicsNamed } from "../intrinsics/index.ts";
import { operatorNamed } from "../operators/index.ts";
import { constantValues } from "../operators/operator.ts";
import { checkJudged } from "../session/judge/judge.ts";
import { languagesFor, usableIntrinsics } from "../session/kinds/choose.ts";
import { checkMemory } from "../session/tune/memory.ts";
import { checkCores, checkThreads } from "../session/tune/threads.ts";
import { timelineOf } from "../session/tune/timeline.ts";
import { DEFAULT_TRIALS, secondsFor, type TuneOutcome, tuneComputation } from "../session/tune/tune.ts";
import { isElsewhere, isGpu } from "../targets/index.ts";
import { STRATEGIES } from "../tuner/strategies.ts";
import type { Strategy } from "../tuner/strategy.ts";
import { say } from "./output.ts";
import { defaultTypes, readComputation } from "./subject.ts";
import type { TuneWords } from "./tune.ts";
import { type Among, progressOf } from "./tune-progress.ts";

/** What is to be computed. */
export interface Chosen {
  readonly computation: Computation;
  /** Values of tensors that the operator fixes. */
  readonly fixed: Inputs;
  readonly parameters: Extents;
  /** Options that the user left out, with the values taken: `--dtype f32`, `--c 64`. */
  readonly assumed: readonly string[];
}

/** The computation that the words describe, with what they left out. */
export function readChosen(subject: string, parameters: Extents, given: TuneWords): Chosen {
  const computation = readComputation(subject, parameters, given);
  if (subject.includes("[")) return { computation, fixed: {}, parameters: {}, assumed: [] };
  const operator = operatorNamed(subject);
  const complete = mapValues(operator.parameters, (p, name) => parameters[name] ?? p.default);
  const assumed = [
    ...(given.dtype === undefined ? [`--dtype ${defaultTypes(given.intrinsic)}`] : []),
    ...Object.keys(complete).flatMap((name) => (parameters[name] === undefined ? [`--${name} ${complete[name]}`] : [])),
  ];
  return { computation, fixed: constantValues(operator, computation), parameters: complete, assumed };
}

/** The named instructions. By default, and for a family, those that the machine has, plain C++ included. */
export function chooseIntrinsics(
  name: string | undefined,
  machine: Target,
  language: KernelLanguage | undefined,
): readonly Intrinsic[] {
  const here = usableIntrinsics(machine, language);
  if (here.length === 0 && language !== undefined)
    throw new UsageError(
      `no instruction that ${machine.name} has is reached from ${language}`,
      `kernels for it are written in ${languagesFor(machine).join(", ")}`,
    );
  if (here.length === 0)
    throw new UsageError(
      `no instruction that automap knows runs on ${machine.name}`,
      `those of a GPU begin with ${oldestGpu()}`,
    );
  if (name === undefined || name === "all") return here;
  const named = intrinsicsNamed(name);
  const usable = named.filter((i) => here.includes(i));
  if (usable.length === 0) {
    throw new UsageError(
      `${machine.name} cannot run ${name}: it needs ${unique(named.map((i) => i.isa)).join(" or ")}`,
      "`automap intrinsic list` marks what is here; `automap map` works without the instruction; --target names another machine",
    );
  }
  return usable;
}

/** The lowest compute capability that the table has instructions for. */
function oldestGpu(): string {
  const capabilities = INTRINSICS.flatMap((i) => /^sm_(\d+)$/.exec(i.isa)?.[1] ?? []).map(Number);
  return `sm_${Math.min(...capabilities)}`;
}

/** The strategy that is named; undefined for the usual one. @throws UsageError for one that is not there */
export function strategyOf({ strategy: name }: TuneWords): Strategy | undefined {
  if (name === undefined) return undefined;
  const strategy = withName(STRATEGIES, name);
  if (strategy) return strategy;
  const names = namesOf(STRATEGIES);
  throw new UsageError(`unknown strategy "${name}"`, suggestion(name, names));
}

/** Kernels and seconds at most. */
export function budgetOf({ trials, time }: TuneWords): { readonly trials: number; readonly seconds: number } {
  return { trials: trials ?? DEFAULT_TRIALS, seconds: time ?? secondsFor(trials) };
}

/** @throws UsageError when the machine has fewer processors */
export function checkThreadsOf({ threads = 1 }: TuneWords, machine: Target, isFleet: boolean): void {
  if ((isFleet && !isGpu(machine)) || isElsewhere(machine)) checkCores(machine, threads);
  else checkThreads(machine, threads);
}

/** @throws UsageError for a computation that is too large for this machine */
export function checkHeld(computation: Computation, machine: Target, isJudged: boolean): void {
  if (isJudged) checkJudged(machine, computation);
  else if (!isGpu(machine)) checkMemory(computation);
}

/** Where a search is run, and what its status line says besides. */
interface SearchRun {
  /** The fleet that measures; this machine when undefined. It is closed at the end. */
  readonly place?: FleetPlace | undefined;
  readonly signal: AbortSignal;
  readonly among?: Among | undefined;
}

/** Runs a search, and shows its progress. */
export async function searchFor(
  search: { readonly chosen: Chosen; readonly intrinsics: readonly Intrinsic[]; readonly machine: Target },
  given: TuneWords,
  { place, signal, among }: SearchRun,
): Promise<{
  readonly outcome: TuneOutcome;
  /** Kernels that were measured now. */
  readonly measured: number;
  readonly timeline: ReturnType<typeof timelineOf>;
}> {
  const { chosen, intrinsics, machine } = search;
  const budget = budgetOf(given);
  const progress = given.quiet
    ? undefined
    : progressOf({
        operations: operationsOf(chosen.computation),
        seconds: budget.seconds,
        verbose: given.verbose,
        ...defined({ among }),
      });
  const timeline = timelineOf(Date.now);
  let measured = 0;
  const outcome = await tuneComputation(
    { computation: chosen.computation, parameters: chosen.parameters, fixed: chosen.fixed, name: given.name },
    {
      intrinsics,
      machine,
      signal,
      onEvent: (event) => {
        if (event.kind === "trial" && !event.known) measured++;
        timeline.hear(event);
        progress?.hear(event);
      },
      onNotice: given.quiet ? () => undefined : say,
      ...budget,
      within: budget.seconds,
      ...(place && { openPlace: () => Promise.resolve(place) }),
      ...defined({
        seed: given.seed,
        threads: given.threads,
        kinds: given.kinds,
        database: given.db,
        strategy: strategyOf(given),
      }),
    },
  ).finally(() => progress?.end());
  return { outcome, measured, timeline };
}
