/**
 * @file Kernels of records that were not measured here. Such a record is code of whoever wrote it: nothing of it is built or run unless the
 * user says so, and then first by the measuring program, in a child process behind guard pages and limits, as every candidate is.
 *
 *     checkConsent(trial, { trustImported: false })        throws UsageError when the record was imported
 *     await checkFenced(trial, compiler)                   { status: "wrong", because: "... its kernel ended as crashed in a process of its own" }
 */

import { defined, sumOf, withName } from "../../abstraction/collections.ts";
import { type Computation, elementCount, pointCount } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { type EnvironmentProblem, internal, UsageError } from "../../abstraction/error.ts";
import type { Inputs } from "../../abstraction/interpret.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import { computationOf, shortId, type TrialRecord } from "../../db/index.ts";
import { OPERATORS } from "../../operators/index.ts";
import { constantValues } from "../../operators/operator.ts";
import type { Compiler } from "../../runtime/compiler.ts";
import type { CoreOptions } from "../../runtime/cores.ts";
import { createRunner, type MeasureOptions, type Runner } from "../../runtime/measure.ts";
import { type CudaRunner, type CudaTiming, createCudaRunner } from "../../runtime/run/cuda.ts";
import { kernelOfRecord } from "../kinds/kernel.ts";

export interface Consent {
  /** Whether kernels of records and packages that this user did not make on this machine may be built and run. */
  readonly trustImported?: boolean;
}

/** @throws UsageError when the record was imported and the user has not allowed its kernel to run */
export function checkConsent(
  { id, provenance }: Pick<TrialRecord, "id" | "provenance">,
  { trustImported = false }: Consent,
): void {
  if (provenance === "here" || trustImported) return;
  throw new UsageError(
    `record ${shortId(id)} was imported, not measured here: its kernel is code of whoever wrote it, and nothing of it is built or run`,
    "if you trust them, say --trust-imported (in TypeScript trustImported: true); else measure it here: automap tune",
  );
}

const INPUT_SEED = 1;

/** Builds the kernel of a record, compares every element with the equation, and times it. */
export async function measureRecorded(
  runner: Runner,
  trial: TrialRecord,
  options?: MeasureOptions,
): Promise<Measurement> {
  const { computation, fixed } = subjectOf(trial);
  const reference = await runner.reference(computation, INPUT_SEED, defined({ fixed }));
  return runner.measure(kernelOfRecord(trial), reference, options);
}

/** The same for a GPU. */
export async function measureRecordedOnGpu(
  runner: CudaRunner,
  trial: TrialRecord,
  timing?: CudaTiming,
): Promise<Measurement> {
  const { computation, fixed } = subjectOf(trial);
  const reference = await runner.reference(computation, INPUT_SEED, defined({ fixed }));
  const [only] = await runner.measureTogether([kernelOfRecord(trial)], reference, timing);
  if (!only) internal("a kernel has no answer");
  return only;
}

/** What a record's kernel computes, and the values of tensors that the operator itself fixes. */
export function subjectOf({ workload }: TrialRecord): {
  readonly computation: Computation;
  readonly fixed: Inputs | undefined;
} {
  const computation = computationOf(workload);
  const operator = withName(OPERATORS, workload.operator);
  return { computation, fixed: operator && constantValues(operator, computation) };
}

/**
 * The largest work an imported record may ask of this machine before it is trusted: about a minute, and an eighth of the memory of a small
 * server.
 */
const MOST_POINTS = 1e11;
const MOST_BYTES = 2 ** 32;
/** One batch is enough: the kernel only has to be right and to terminate. */
const ONCE: MeasureOptions & CudaTiming = { budgetSeconds: 0.001, batches: [1, 1] };

type Fenced =
  | { readonly status: "right" }
  | { readonly status: "wrong"; readonly because: string }
  | EnvironmentProblem;

/**
 * Runs the kernel of an imported record in a separate process before it runs in any other. A kernel that gives wrong results, crashes or hangs
 * is wrong.
 * @param compiler C++ compiler; looked for when left out
 */
export async function checkFenced(
  trial: TrialRecord,
  compiler: Compiler | undefined,
  options: CoreOptions = {},
): Promise<Fenced> {
  const record = `record ${shortId(trial.id)} was imported`;
  const computation = computationOf(trial.workload);
  const points = pointCount(computation);
  const bytes = sumOf(Object.values(computation.tensors), (t) => bytesOf(t.dtype) * elementCount(t));
  if (points > MOST_POINTS || bytes > MOST_BYTES)
    return {
      status: "wrong",
      because: `${record} and is too large to be checked: ${points.toExponential(1)} points, ${bytes.toExponential(1)} bytes`,
    };
  const measured = await measureOnce(trial, compiler, options);
  if (measured.status === "environment" || measured.status === "ok")
    return measured.status === "ok" ? { status: "right" } : measured;
  const because = `${record}, and its kernel ended as ${measured.status} in a process of its own\n${measured.log}`;
  return { status: "wrong", because };
}

/** Measures on a CPU or on this machine's GPU. */
async function measureOnce(
  trial: TrialRecord,
  compiler: Compiler | undefined,
  options: CoreOptions,
): Promise<Measurement | EnvironmentProblem> {
  if (kernelOfRecord(trial).language === "cuda") {
    const made = await createCudaRunner(options.onWait ? { onWait: options.onWait } : {});
    if (made.status === "environment") return made;
    return measureRecordedOnGpu(made.runner, trial, ONCE).finally(() => made.runner.close());
  }
  const made = await createRunner({ ...options, threads: trial.conditions.threads, ...(compiler && { compiler }) });
  if (made.status === "environment") return made;
  return measureRecorded(made.runner, trial, ONCE).finally(() => made.runner.close());
}
