/**
 * @file The functions of the public API: search for a kernel, then generate, predict or emit a choice. A choice is a candidate together with its
 * computation.
 *
 *     const outcome = await tune(conv2d, { trials: 100, signal, onEvent });
 *     if ("best" in outcome && outcome.best) {
 *       generate(outcome.best).source
 *       predict(outcome.best)?.seconds
 *       emit(outcome.best.id, "conv2d", { database: outcome.database });
 *     }
 */

import { z } from "zod";
import { CANDIDATE_KINDS, type Candidate } from "../abstraction/candidate.ts";
import { defined } from "../abstraction/collections.ts";
import type { Computation } from "../abstraction/computation.ts";
import { UsageError } from "../abstraction/error.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import type { Target } from "../abstraction/machine.ts";
import { checkOptions } from "../abstraction/schema.ts";
import type { Prediction } from "../abstraction/trial.ts";
import { DEFAULT_DATABASE, showTrial, withDatabase } from "../db/index.ts";
import { packageFiles } from "../package/index.ts";
import type { Calibration } from "../perfmodel/calibrate.ts";
import { isGpu, nativeTarget } from "../targets/index.ts";
import { kernelFor } from "./kinds/kernel.ts";
import { sessionKindOf } from "./kinds/kinds.ts";
import { subjectOf } from "./package/emit.ts";
import { writePackage } from "./package/package-folder.ts";
import { sealedPackage } from "./package/sealed-package.ts";
import { type TuneComputationOptions, type TuneOutcome, type TuneSubject, tuneComputation } from "./tune/tune.ts";

/** A candidate and the computation it implements: the best of a search, a record, or one of your own. */
export interface Choice {
  /** What it computes. */
  readonly computation: Computation;
  /** How it is computed. */
  readonly candidate: Candidate;
  /** The GPU that the blocks and warps are laid out for. When left out, the first GPU of the table that can run the candidate. */
  readonly machine?: Target;
}

/** Options of a search; all have defaults. */
export interface TuneOptions extends Omit<TuneComputationOptions, "openPlace">, Omit<TuneSubject, "computation"> {}

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
  trustImported: z.boolean().optional(),
  cache: z.enum(["warm", "flushed"]).optional(),
  earlyStop: z.boolean().optional(),
  finals: z.boolean().optional(),
  database: z.string().min(1, { error: "must name a file, or :memory:" }).optional(),
  runner: anObject.optional(),
  signal: anObject.optional(),
  onEvent: callback.optional(),
  onNotice: callback.optional(),
} satisfies Record<keyof TuneOptions, z.ZodType>);

/**
 * Searches for the fastest kernel of a computation, on this machine's CPU or on the machine in the options: this CPU with some of its features
 * left out, or the local GPU (`localGpu`). Every trial is stored in the database, and a search resumes from the trials already there.
 * @throws UsageError when an option is unknown or wrong, or this machine lacks a feature of the requested one: kernels are measured here
 */
export async function tune(computation: Computation, options: TuneOptions = {}): Promise<TuneOutcome> {
  checkOptions(tuneOptions, options, "tune");
  const { parameters, fixed, name, machine: target = nativeTarget(), ...rest } = options;
  const here = nativeTarget().isa;
  // The local GPU is detected only when one is requested.
  const lacking = isGpu(target) ? [] : target.isa.filter((feature) => !here.includes(feature));
  if (lacking.length > 0)
    throw new UsageError(
      `this machine lacks ${lacking.join(", ")} of ${target.name}: kernels are measured where they are tuned`,
      "rankByModel ranks candidates without measuring; mappings() works for any instruction of the table",
    );
  return tuneComputation({ computation, name, ...defined({ parameters, fixed }) }, { ...rest, machine: target });
}

/** The kernel of a choice. @throws UsageError when its mapping or design is no longer valid, or no kernel can be generated for its instruction */
export function generate({ computation, candidate, machine }: Choice): Kernel {
  return kernelFor(computation, candidate, machine);
}

/**
 * The model's prediction for a choice, in seconds of a call, without correction; undefined when its schedule cannot be lowered.
 * @param machine this one when left out
 * @param calibration rates of the machine; the reference machine's when left out
 * @throws UsageError when its mapping is no longer valid
 */
export function predict(
  { computation, candidate }: Choice,
  machine: Target = nativeTarget(),
  calibration?: Calibration,
): Prediction | undefined {
  return sessionKindOf(candidate).predict(computation, candidate, { machine, calibration });
}

/** Options for writing a package. */
export interface EmitOptions {
  /** The database that holds the record; `automap.db` by default. */
  readonly database?: string;
  /** Name of the files and C functions; the operator's name by default. */
  readonly name?: string;
  /** Whether to write into a folder that is not empty; false by default. */
  readonly force?: boolean;
}

const emitOptions = z.strictObject({
  database: z.string().optional(),
  name: z.string().optional(),
  force: z.boolean().optional(),
} satisfies Record<keyof EmitOptions, z.ZodType>);

/**
 * Writes the kernel of a record as a package that does not depend on automap: sources, header, build script, CMakeLists.txt, a test that checks
 * every element, and a wrapper for Node, or for a CUDA kernel a PyTorch operator. Nothing is built or run.
 * @param record the first digits of its id
 * @param folder created when it does not exist
 * @returns the names of the files
 * @throws UsageError when there is no such record, the record is of a failed trial, or the folder is not empty
 */
export function emit(record: string, folder: string, options: EmitOptions = {}): readonly string[] {
  checkOptions(emitOptions, options, "emit");
  const { name, database = DEFAULT_DATABASE } = options;
  return withDatabase(database, (db) => {
    const trial = showTrial(db, record);
    const subject = subjectOf(trial, { name, database });
    const files = packageFiles(subject);
    // This machine's seal does not vouch for measurements made elsewhere.
    writePackage(folder, trial.provenance === "here" ? sealedPackage(files) : files, options.force);
    return [...files.keys()];
  });
}
