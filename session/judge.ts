/**
 * @file Kernels for a CPU that is not at hand: ranked by the model, compiled for it, run under an emulator, kept as `emulated` and never as measured.
 *
 *     const judged = await judgeByModel({ computation }, { machine: armTargetNamed("neoverse-n1"), database: "automap.db" });
 *     if ("judged" in judged) judged.judged[0]?.measurement      { status: "emulated", log: "every element right ... under qemu-aarch64 7.2" }
 */

import { EnvironmentError, type EnvironmentProblem, UsageError } from "../abstraction/error.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import { levelOf, type Target } from "../abstraction/machine.ts";
import type { Measurement } from "../abstraction/trial.ts";
import { beginRun, DEFAULT_DATABASE, type Environment, endRun, openDatabase, recordTrial } from "../db/index.ts";
import { intrinsicNamed } from "../intrinsics/index.ts";
import { kernelFlags } from "../runtime/compiler.ts";
import { type ArmTools, findArmTools } from "../runtime/cross.ts";
import { createRunner, type MeasureOptions } from "../runtime/measure.ts";
import { usableIntrinsics } from "./choose.ts";
import { softwareHere } from "./environment.ts";
import { kernelFor } from "./kernel.ts";
import { type Expected, type RankInTimeOptions, rankByModelInTime } from "./rank.ts";
import type { Reason } from "./session-space.ts";
import type { TuneSubject } from "./tune.ts";

export interface JudgeOptions extends Omit<RankInTimeOptions, "machine"> {
  readonly machine: Target;
  /** Path of the database; `:memory:` keeps nothing. */
  readonly database?: string;
  /** Told of each kernel. */
  readonly onJudged?: (kernel: JudgedKernel) => void;
}

/** A kernel that was run where nothing can be timed. */
export interface JudgedKernel extends Expected {
  /** Of its record. */
  readonly id: string;
  readonly kernel: Kernel;
  readonly measurement: Measurement;
}

export type JudgeOutcome =
  | { readonly judged: readonly JudgedKernel[]; readonly database: string; readonly emulator: string }
  | { readonly refused: readonly Reason[] }
  | { readonly problem: EnvironmentProblem };

/** Under an emulator one call says whether a kernel is right; it takes some hundred times as long as on the processor. */
const ONCE: MeasureOptions = { budgetSeconds: 0, batchSeconds: 1e-9, batches: [1, 1], stepSeconds: 300 };
/** Kernels that are run unless another number is asked for: those that the model likes best. */
export const JUDGED_KERNELS = 4;

/** @throws UsageError when the database is none of automap's, or more threads are asked for than the machine has cores */
export async function judgeByModel(subject: TuneSubject, options: JudgeOptions): Promise<JudgeOutcome> {
  const { machine, onJudged, database = DEFAULT_DATABASE, count = JUDGED_KERNELS, ...ranking } = options;
  const { threads = 1, seed = 1 } = ranking;
  const { computation, parameters = {}, name, fixed } = subject;
  const tools = await findArmTools();
  if (tools.status === "environment") return { problem: tools };
  const { ranking: ranked } = await rankByModelInTime(computation, { ...ranking, machine, count });
  if ("refused" in ranked) return { refused: ranked.refused };
  const db = openDatabase(database);
  try {
    const made = await createRunner({ threads, emulated: tools });
    if (made.status === "environment") return { problem: made };
    const { runner } = made;
    try {
      const environment = emulatedEnvironment(tools, machine);
      const workload = { computation, parameters, name };
      const offered = (options.intrinsics ?? usableIntrinsics(machine)).map((i) => i.name);
      const told = { strategy: "model", threads, offered, emulated: tools.emulatorVersion ?? true };
      const run = beginRun(db, {
        workload,
        environment,
        seed,
        options: told,
        budget: { trials: count },
        started: Date.now(),
      });
      const reference = await runner.reference(computation, 1, fixed ? { fixed } : {});
      const judged: JudgedKernel[] = [];
      for (const expected of ranked) {
        if (ranking.signal?.aborted) break;
        const { candidate, prediction } = expected;
        const kernel = kernelFor(computation, candidate, machine);
        const measurement = await runner.measure(kernel, reference, ONCE);
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
      endRun(db, run, { status: ranking.signal?.aborted ? "interrupted" : "done", ended: Date.now() });
      return { judged, database: db.path, emulator: tools.emulatorVersion ?? machine.name };
    } finally {
      await runner.close();
    }
  } catch (error) {
    if (error instanceof EnvironmentError) return { problem: error.problem };
    throw error;
  } finally {
    db.close();
  }
}

/** @throws UsageError for more threads than a machine that is not at hand has cores */
export function checkCores(machine: Target, threads: number): void {
  const { units } = levelOf(machine, "core");
  if (threads > units) throw new UsageError(`threads ${threads}: ${machine.name} has ${units} cores`);
}

/** An emulated CPU and the tools here: no record of a processor says that it is one. */
function emulatedEnvironment({ compiler, emulatorVersion }: ArmTools, machine: Target): Environment {
  return {
    target: machine.name,
    cpu: emulatorVersion === undefined ? `${machine.name}, not timed` : `${machine.name} under ${emulatorVersion}`,
    cores: levelOf(machine, "core").units,
    isa: machine.isa,
    compiler: { path: compiler.path, version: compiler.version, flags: kernelFlags({ features: [] }) },
    ...softwareHere(),
  };
}
