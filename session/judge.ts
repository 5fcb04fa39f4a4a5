/**
 * @file Kernels for a machine that is not available: ranked by the model, run under an emulator, and recorded as `emulated`, never as measured.
 *
 *     const judged = await judgeByModel({ computation }, { machine: armTargetNamed("neoverse-n1"), database: "automap.db" });
 *     if ("judged" in judged) judged.judged[0]?.measurement      { status: "emulated", log: "every element right ... under qemu-aarch64 7.2" }
 *
 * An Arm CPU is emulated by qemu, an Intel or NVIDIA GPU by headers of ours (emulators.ts).
 */

import { EnvironmentError, type EnvironmentProblem, UsageError } from "../abstraction/error.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import { levelOf, type Target } from "../abstraction/machine.ts";
import type { Measurement } from "../abstraction/trial.ts";
import { beginRun, DEFAULT_DATABASE, endRun, openDatabase, recordTrial } from "../db/index.ts";
import { intrinsicNamed } from "../intrinsics/index.ts";
import { languagesFor, usableIntrinsics } from "./choose.ts";
import { emulatorFor } from "./emulators.ts";
import { writtenKernel } from "./offline.ts";
import { type Expected, enginesOf, type RankInTimeOptions, rankByModelInTime } from "./rank.ts";
import type { Reason } from "./session-space.ts";
import type { TuneSubject } from "./tune.ts";

export interface JudgeOptions extends Omit<RankInTimeOptions, "machine"> {
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

export type JudgeOutcome =
  | { readonly judged: readonly JudgedKernel[]; readonly database: string; readonly emulator: string }
  | { readonly refused: readonly Reason[] }
  | { readonly problem: EnvironmentProblem };

/** Number of kernels that are run by default: those that the model ranks highest. */
export const JUDGED_KERNELS = 4;
/** Candidates drawn for each kernel to run, since some cannot be expressed in the language. */
const DRAWN = 4;

/** @throws UsageError when the file is not an automap database, or more threads are requested than the machine has cores */
export async function judgeByModel(subject: TuneSubject, options: JudgeOptions): Promise<JudgeOutcome> {
  const { machine, onJudged, onDropped, database = DEFAULT_DATABASE, count = JUDGED_KERNELS, ...ranking } = options;
  const { threads = enginesOf(machine), seed = 1, signal } = ranking;
  const { computation, parameters = {}, name, fixed = {} } = subject;
  const offered = options.intrinsics ?? usableIntrinsics(machine);
  const language = languagesFor(machine).find((one) => one === offered[0]?.language) ?? languagesFor(machine)[0];
  const emulator = await emulatorFor(machine, language, { threads, signal });
  if (emulator.status === "environment") return { problem: emulator };
  const { environment } = emulator;
  try {
    const { ranking: ranked } = await rankByModelInTime(computation, { ...ranking, machine, count: DRAWN * count });
    if ("refused" in ranked) return { refused: ranked.refused };
    const db = openDatabase(database);
    try {
      const workload = { computation, parameters, name };
      const run = beginRun(db, {
        ...{ workload, environment, seed, budget: { trials: count }, started: Date.now() },
        options: { strategy: "model", threads, offered: offered.map((i) => i.name), emulated: emulator.name },
      });
      const reference = await emulator.reference(computation, fixed);
      const judged: JudgedKernel[] = [];
      for (const expected of ranked) {
        if (signal?.aborted || judged.length === count) break;
        const { candidate, prediction } = expected;
        const kernel = writtenKernel(computation, expected, machine);
        if (typeof kernel === "string") {
          onDropped?.(kernel);
          continue;
        }
        const measurement = await emulator.judge(kernel, reference);
        const intrinsic = intrinsicNamed(candidate.intrinsic);
        const id = recordTrial(db, {
          ...{ workload, environment, run, conditions: { threads, cache: "warm" } },
          ...(intrinsic && { intrinsic }),
          trial: { candidate, prediction, measurement, at: Date.now() },
        });
        const one = { ...expected, id, kernel, measurement };
        judged.push(one);
        onJudged?.(one);
      }
      endRun(db, run, { status: signal?.aborted ? "interrupted" : "done", ended: Date.now() });
      return { judged, database: db.path, emulator: emulator.name };
    } finally {
      db.close();
    }
  } catch (error) {
    if (error instanceof EnvironmentError) return { problem: error.problem };
    throw error;
  } finally {
    await emulator.close();
  }
}

/** @throws UsageError when more threads are requested than the cores of the unavailable machine */
export function checkCores(machine: Target, threads: number): void {
  const { units } = levelOf(machine, "core");
  if (threads > units) throw new UsageError(`threads ${threads}: ${machine.name} has ${units} cores`);
}
