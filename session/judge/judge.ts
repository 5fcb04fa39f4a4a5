/**
 * @file Kernels for a machine that is not available: ranked by the model, run under an emulator, and recorded as `emulated`, never as measured.
 *
 *     const judged = await judgeByModel({ computation }, { machine: armTargetNamed("neoverse-n1"), database: "automap.db" });
 *     if ("judged" in judged) judged.judged[0]?.measurement      { status: "emulated", log: "every element right ... under qemu-aarch64 7.2" }
 *
 * An Arm CPU is emulated by qemu, an Intel or NVIDIA GPU by headers of ours (emulators.ts).
 */

import { isDefined, namesOf, unique } from "../../abstraction/collections.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { EnvironmentError, type EnvironmentProblem, faultOf, UsageError } from "../../abstraction/error.ts";
import type { Inputs } from "../../abstraction/interpret.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { Kernel, KernelLanguage } from "../../abstraction/kernel.ts";
import type { Target } from "../../abstraction/machine.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import {
  beginRun,
  type Database,
  DEFAULT_DATABASE,
  endRun,
  recordClock,
  recordTrial,
  withDatabase,
} from "../../db/index.ts";
import { intrinsicNamed } from "../../intrinsics/index.ts";
import { isElsewhere } from "../../targets/index.ts";
import { languagesFor, usableIntrinsics } from "../kinds/choose.ts";
import type { Reason } from "../kinds/session-space.ts";
import { type Deadline, deadlineOf, needsLonger, type Unanswered } from "../tune/answers-in-time.ts";
import { checkEmulatedMemory, checkMemory } from "../tune/memory.ts";
import { type Expected, enginesOf, type RankInTimeOptions, rankByModelInTime } from "../tune/rank.ts";
import type { TuneSubject } from "../tune/tune.ts";
import { COUNTED_POOL, offlineCompiler, rankCounted } from "./counted-ranking.ts";
import { type Emulator, emulatorFor } from "./emulators.ts";
import { writtenKernel } from "./offline.ts";

interface JudgeOptions extends Omit<RankInTimeOptions, "machine"> {
  readonly machine: Target;
  /** Path of the database; `:memory:` stores nothing. */
  readonly database?: string;
  /** Called for each kernel. */
  readonly onJudged?: (kernel: JudgedKernel) => void;
  /** Called with the reason when a candidate cannot be expressed in the language. */
  readonly onDropped?: (why: string) => void;
}

/** A kernel that was run where it cannot be timed. */
export interface JudgedKernel extends Expected {
  /** Id of its record. */
  readonly id: string;
  readonly kernel: Kernel;
  readonly measurement: Measurement;
}

type JudgeOutcome =
  | {
      readonly judged: readonly JudgedKernel[];
      readonly database: string;
      readonly emulator: string;
      /** Set when the time was up before all kernels asked for were judged. The one that was being run then has no record. */
      readonly late?: true;
      /** Set when the expected results of kernels were not computed in time, so that none was judged. */
      readonly unanswered?: Unanswered;
    }
  | { readonly refused: readonly Reason[] }
  | { readonly problem: EnvironmentProblem };

/** Number of kernels that are run by default: those that the model ranks highest. */
const JUDGED_KERNELS = 4;
/** Candidates drawn for each kernel to run, since some cannot be expressed in the language. */
const DRAWN = 4;
/** Kernels compiled offline for each kernel to run, where their instructions can be counted. */
const COMPILED = 2;

/**
 * Fewer kernels than asked for where the signal came or `seconds` were over; the one that was being run then has no record. At least one is
 * judged, unless the signal came or its expected results take too long.
 * @throws UsageError when the database is none of automap's, more threads are asked for than the machine has cores, instructions are of several
 * languages, or the tensors are too large
 */
export async function judgeByModel(subject: TuneSubject, options: JudgeOptions): Promise<JudgeOutcome> {
  const { machine, onJudged, onDropped, database = DEFAULT_DATABASE, count = JUDGED_KERNELS, ...ranking } = options;
  const { threads = enginesOf(machine), seed = 1, signal, seconds } = ranking;
  const { computation, parameters = {}, name, fixed = {} } = subject;
  const offered = options.intrinsics ?? usableIntrinsics(machine);
  const language = languageOf(offered, machine);
  checkJudged(machine, computation);
  const deadline = deadlineOf(signal, seconds);
  const emulator = await emulatorFor(machine, language, { threads, signal: deadline.signal });
  if (emulator.status === "environment") return { problem: emulator };
  const { environment } = emulator;
  const longer = needsLonger(computation, deadline.answers, { fixed });
  const none = { judged: [], database, emulator: emulator.name };
  try {
    if (longer) return { ...none, unanswered: longer };
    const compile = offlineCompiler(machine, language);
    const best = { ...ranking, machine, count: compile ? COUNTED_POOL : DRAWN * count };
    const found = await untilStopped(rankByModelInTime(computation, best), signal);
    if (found === undefined) return none;
    if ("refused" in found.ranking) return { refused: found.ranking.refused };
    const compiling = { most: COMPILED * count, signal: timeToCompile(signal, seconds) };
    const counted = compile && (await rankCounted(computation, found.ranking, machine, { compile, ...compiling }));
    for (const { why } of counted?.dropped ?? []) onDropped?.(why);
    const ranked = (counted?.ranking ?? found.ranking).slice(0, DRAWN * count);
    const judgedIn = async (db: Database): Promise<JudgeOutcome> => {
      const workload = { computation, parameters, name };
      const now = recordClock(db);
      const run = beginRun(db, {
        workload,
        environment,
        seed,
        budget: { trials: count },
        started: now(),
        options: { strategy: "model", threads, offered: namesOf(offered), emulated: emulator.name },
      });
      const judged: JudgedKernel[] = [];
      try {
        for await (const verdict of verdictsOf(ranked, {
          computation,
          fixed,
          machine,
          emulator,
          deadline,
          onDropped,
        })) {
          const { candidate, prediction, measurement } = verdict;
          const intrinsic = intrinsicNamed(candidate.intrinsic);
          const id = recordTrial(db, {
            workload,
            environment,
            run,
            conditions: { threads, cache: "warm" },
            ...(intrinsic && { intrinsic }),
            trial: { candidate, prediction, measurement, at: now() },
          });
          const one = { ...verdict, id };
          judged.push(one);
          onJudged?.(one);
          if (judged.length === count) break;
        }
      } catch (error) {
        // What ended it is told by the error under way.
        faultOf(() => endRun(db, run, { status: "failed", ended: now() }));
        throw error;
      }
      endRun(db, run, { status: signal?.aborted ? "interrupted" : "done", ended: now() });
      const isLate = deadline.isLate() && judged.length < count;
      return {
        judged,
        database: db.path,
        emulator: emulator.name,
        ...(isLate && (judged.length > 0 ? { late: true } : { unanswered: { limit: deadline.answers.limit } })),
      };
    };
    return await withDatabase(database, judgedIn, {});
  } catch (error) {
    if (error instanceof EnvironmentError) return { problem: error.problem };
    throw error;
  } finally {
    deadline.letGo();
    await emulator.close();
  }
}

/** Ends the compilations that a ranking asks for: at the user's signal, or after a quarter of the time. */
function timeToCompile(signal: AbortSignal | undefined, seconds: number | undefined): AbortSignal | undefined {
  const late = seconds === undefined ? undefined : AbortSignal.timeout(Math.ceil(250 * seconds));
  const heard = [signal, late].filter(isDefined);
  return heard.length === 0 ? undefined : AbortSignal.any(heard);
}

/** What kernels are judged with. */
interface Judging extends Pick<JudgeOptions, "machine"> {
  readonly computation: Computation;
  readonly fixed: Inputs;
  readonly emulator: Emulator;
  readonly deadline: Deadline;
  readonly onDropped: JudgeOptions["onDropped"];
}

/** Kernels one after the other, those that the model likes best first, until all are judged or the end has come. */
async function* verdictsOf(
  ranked: readonly Expected[],
  { computation, fixed, machine, emulator, deadline, onDropped }: Judging,
): AsyncGenerator<Omit<JudgedKernel, "id">> {
  const { signal } = deadline;
  const reference = await untilStopped(emulator.reference(computation, fixed), signal);
  if (reference === undefined) return;
  deadline.next("first kernel");
  for (const expected of ranked) {
    if (signal.aborted) return;
    const kernel = writtenKernel(computation, expected, machine);
    if (typeof kernel === "string") {
      onDropped?.(kernel);
      continue;
    }
    const measurement = await untilStopped(emulator.judge(kernel, reference), signal);
    if (measurement === undefined) return;
    deadline.next("other kernels");
    yield { ...expected, kernel, measurement };
  }
}

/** What some work comes to; undefined where it failed after the signal, which is why. */
async function untilStopped<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    if (signal?.aborted) return undefined;
    throw error;
  }
}

/** @throws UsageError for several: the emulator, and what records call it, is that of one language */
function languageOf(offered: readonly Intrinsic[], machine: Target): KernelLanguage {
  const languages = unique(offered.map(({ language }) => language));
  if (languages.length > 1)
    throw new UsageError(
      `instructions of ${languages.join(" and ")}: kernels are judged in one language at a time`,
      "call it once for each language, with the instructions of that language",
    );
  return languagesFor(machine).find((one) => one === languages[0]) ?? languagesFor(machine)[0];
}

/** @throws UsageError for a computation whose tensors are too large for the emulator of a machine */
export function checkJudged(machine: Target, computation: Computation): void {
  // What qemu runs has the files and sizes of what is measured.
  if (isElsewhere(machine)) checkMemory(computation);
  else checkEmulatedMemory(computation);
}
