/**
 * @file The verbs of the public API: search, and what can be asked of a choice, which is a candidate with its computation.
 *
 *     const outcome = await tune(conv2d, { trials: 100, signal, onEvent });
 *     if ("best" in outcome && outcome.best) {
 *       generate(outcome.best).source
 *       predict(outcome.best)?.seconds
 *       emit(outcome.best.id, "conv2d", { database: outcome.database });
 *     }
 */

import { z } from "zod";
import { CANDIDATE_KINDS, type Candidate, isArray, isOnGpu } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import { UsageError } from "../abstraction/error.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import type { Target } from "../abstraction/machine.ts";
import { checkOptions } from "../abstraction/schema.ts";
import type { Prediction } from "../abstraction/trial.ts";
import { DEFAULT_DATABASE, openDatabase, showTrial } from "../db/index.ts";
import { packageFiles } from "../package/index.ts";
import type { Calibration } from "../perfmodel/calibrate.ts";
import { modelTarget } from "../perfmodel/target.ts";
import { isGpu, nativeTarget } from "../targets/index.ts";
import { arrayExpectation } from "./array-space.ts";
import { declaredAs } from "./declared.ts";
import { sealedPackage, subjectOf, writePackage } from "./emit.ts";
import { choiceOnGpu, predictOnGpu } from "./grid-space.ts";
import { kernelFor } from "./kernel.ts";
import { registersOf, vectorSpace } from "./lane-space.ts";
import { predictorFor } from "./predict.ts";
import { mappingOf } from "./recorded.ts";
import { type TuneComputationOptions, type TuneOutcome, type TuneSubject, tuneComputation } from "./tune.ts";

/** A candidate and what it computes: the best of a search, a record, or one of your own. */
export interface Choice {
  /** What it computes. */
  readonly computation: Computation;
  /** How. */
  readonly candidate: Candidate;
  /** The GPU that blocks and warps are laid out for; the first of the table that can run it when left out. */
  readonly machine?: Target;
}

/** What a search may be told; everything has a default. */
export interface TuneOptions extends TuneComputationOptions, Omit<TuneSubject, "computation"> {}

const count = z.int({ error: "must be a whole number" }).positive({ error: "must be positive" });
const callback = z.custom<never>((value) => typeof value === "function", { error: "must be a function" });
const anObject = z.custom<never>((value) => typeof value === "object" && value !== null, {
  error: "must be an object",
});

const tuneOptions = z.strictObject({
  parameters: z.record(z.string(), z.number()).optional(),
  fixed: anObject.optional(),
  name: z.string().optional(),
  intrinsics: z.array(anObject).optional(),
  machine: anObject.optional(),
  trials: count.optional(),
  seconds: z.number({ error: "must be a number of seconds" }).positive({ error: "must be positive" }).optional(),
  within: z.number({ error: "must be a number of seconds" }).positive({ error: "must be positive" }).optional(),
  seed: z.int({ error: "must be a whole number" }).nonnegative().optional(),
  threads: count.optional(),
  kinds: z.enum(CANDIDATE_KINDS, { error: `must be ${CANDIDATE_KINDS.join(", ")}` }).optional(),
  keeps: callback.optional(),
  strategy: z.looseObject({ name: z.string() }, { error: "must be a strategy: one of STRATEGIES" }).optional(),
  transfer: z.boolean().optional(),
  earlyStop: z.boolean().optional(),
  database: z.string().min(1, { error: "must name a file, or :memory:" }).optional(),
  runner: anObject.optional(),
  signal: anObject.optional(),
  onEvent: callback.optional(),
  onNotice: callback.optional(),
} satisfies Record<keyof TuneOptions, z.ZodType>);

/**
 * Searches for the fastest kernel of a computation, on this machine's CPU or on the machine of the options: this CPU with some of its
 * features left out, or the GPU that is here (`localGpu`). Every trial is kept in the database, and a search goes on from what is there.
 * @throws UsageError when an option is unknown or wrong, or this machine lacks a feature of the one asked for: kernels are measured here
 */
export async function tune(computation: Computation, options: TuneOptions = {}): Promise<TuneOutcome> {
  checkOptions(tuneOptions, options, "tune");
  const { parameters, fixed, name, machine: target = nativeTarget(), ...rest } = options;
  const here = nativeTarget().isa;
  // Which GPU is here is found when it is asked for.
  const lacking = isGpu(target) ? [] : target.isa.filter((feature) => !here.includes(feature));
  if (lacking.length > 0)
    throw new UsageError(
      `this machine lacks ${lacking.join(", ")} of ${target.name}: kernels are measured where they are tuned`,
      {
        hint: "rankByModel ranks candidates without measuring; mappings() works for any instruction of the table",
      },
    );
  return tuneComputation(
    { computation, name, ...(parameters ? { parameters } : {}), ...(fixed ? { fixed } : {}) },
    { ...rest, machine: target },
  );
}

/** The kernel of a choice. @throws UsageError when its mapping or design is no longer valid, or is not of a CPU */
export function generate({ computation, candidate, machine }: Choice): Kernel {
  return kernelFor(computation, candidate, machine);
}

/**
 * What the model expects of a choice, uncorrected; undefined when its schedule cannot be lowered.
 * @param calibration rates of the machine; those of the reference machine when left out
 * @throws UsageError when its mapping is no longer valid
 */
export function predict(
  { computation, candidate }: Choice,
  target: Target = nativeTarget(),
  calibration?: Calibration,
): Prediction | undefined {
  if (isOnGpu(candidate)) {
    const choice = choiceOnGpu(computation, candidate, target);
    return predictOnGpu(choice, choice.machine);
  }
  if (candidate.kind === undefined)
    return predictorFor(calibration, target).predict(mappingOf(computation, candidate), candidate.schedule);
  const vectors = registersOf(declaredAs(candidate.intrinsic));
  if (isArray(candidate)) {
    const seconds = arrayExpectation(computation, candidate.schedule, modelTarget(target, calibration), vectors);
    if (seconds === undefined) return undefined;
    return { seconds, uncorrectedSeconds: seconds, levels: [] };
  }
  const space = vectorSpace(computation, {
    threads: candidate.schedule.threads,
    target: modelTarget(target, calibration),
    vectors,
  });
  if ("rule" in space) return undefined;
  const seconds = space.expectedSeconds(candidate.schedule);
  return Number.isFinite(seconds) ? { seconds, uncorrectedSeconds: seconds, levels: [] } : undefined;
}

/** How a package is written. */
export interface EmitOptions {
  /** The database that holds the record; `automap.db` by default. */
  readonly database?: string;
  /** Of files and C functions; the operator's name by default. */
  readonly name?: string;
  /** Whether a folder that is not empty is written into; false by default. */
  readonly force?: boolean;
}

const emitOptions = z.strictObject({
  database: z.string().optional(),
  name: z.string().optional(),
  force: z.boolean().optional(),
} satisfies Record<keyof EmitOptions, z.ZodType>);

/**
 * Writes the kernel of a record as a package that needs nothing of automap's: sources, header, build script, CMakeLists.txt, a test of
 * every element, and a wrapper for Node or, of a kernel in CUDA, an operator of PyTorch. Nothing is built or run.
 * @param record the first digits of its id
 * @param folder made when it is missing
 * @returns the names of the files
 * @throws UsageError when there is no such record, it is of a failed trial, or the folder is not empty
 */
export function emit(record: string, folder: string, options: EmitOptions = {}): readonly string[] {
  checkOptions(emitOptions, options, "emit");
  const { name, database = DEFAULT_DATABASE } = options;
  const db = openDatabase(database, { readonly: true });
  try {
    const trial = showTrial(db, record);
    const subject = subjectOf(trial, { name, database });
    const files = packageFiles(subject);
    // What was measured elsewhere is not vouched for by this machine's seal.
    writePackage(folder, trial.provenance === "here" ? sealedPackage(subject, files) : files, options.force);
    return [...files.keys()];
  } finally {
    db.close();
  }
}
