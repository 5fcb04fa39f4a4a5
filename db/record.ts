/**
 * @file The records as the program sees them: a trial with its environment, a run, a workload.
 *
 *     { id, operator: "conv2d", parameters: { c: 64, ... }, equation: "out[n,k,p,q] += ...", dtype: "u8s8", ... }
 */

import { type Computation, computationKey, defineComputation, inputsOf, targetOf } from "../abstraction/computation.ts";
import type { DType } from "../abstraction/dtype.ts";
import { UsageError } from "../abstraction/error.ts";
import type { DeviceClock, Trial } from "../abstraction/trial.ts";
import { shortId } from "./identity.ts";
import type { Provenance } from "./seal.ts";

/** The world a number holds in, field by field. */
export interface Environment {
  /** Name of the target description. */
  readonly target: string;
  /** Model as the machine reports it. */
  readonly cpu: string;
  /** Processors of the machine. */
  readonly cores: number;
  /** Features, in any order. */
  readonly isa: readonly string[];
  /** What kernels are compiled with. */
  readonly compiler: { readonly path: string; readonly version: string; readonly flags: readonly string[] };
  /** Of the operating system: `Linux 6.1.0-18-amd64 x64`. */
  readonly kernel: string;
  /** Of the accelerator, when there is one. */
  readonly driver?: string;
  /** Version of Node. */
  readonly node: string;
  /** Version of automap. */
  readonly automap: string;
}

export interface EnvironmentRecord extends Environment {
  readonly id: string;
}

/** Names users give: what needs no quotes in a shell and looks like nothing else, `resnet18/layer2.0.conv1`. */
export const WORKLOAD_NAME = /^[A-Za-z0-9_][A-Za-z0-9_.:/+-]{0,79}$/;

/** What is tuned, and under which name and parameters the user asked for it. */
export interface Workload {
  readonly computation: Computation;
  /** Of the operator; none for a bare equation. */
  readonly parameters?: Readonly<Record<string, number>>;
  /** The user's own for it, of the form {@link WORKLOAD_NAME}. */
  readonly name?: string | undefined;
}

export interface TensorRecord {
  readonly dtype: DType;
  readonly dims: readonly string[];
  readonly shape: readonly number[];
  readonly storage: string;
  readonly constant: boolean;
}

/** A computation as the database keeps it. */
export interface WorkloadRecord {
  readonly id: string;
  /** `equation` for a bare one. */
  readonly operator: string;
  readonly parameters: Readonly<Record<string, number>>;
  /** `computationKey`: equal for equal computations, whatever they are called. */
  readonly computation: string;
  readonly equation: string;
  /** Of the axes. */
  readonly extents: Readonly<Record<string, number>>;
  readonly tensors: Readonly<Record<string, TensorRecord>>;
  /** Of the inputs as one word: `f16`, `u8s8`. */
  readonly dtype: string;
  /** Of the output. */
  readonly sum: DType;
  readonly points: number;
  /** The user's own: given to it, or else to another record of the same computation. */
  readonly name?: string | undefined;
}

/** How a candidate was run. */
export interface Conditions {
  readonly threads: number;
  readonly cache: "warm" | "flushed";
  /** Processors its threads were bound to, in their order. */
  readonly affinity?: readonly number[];
  /** Share of the time of these processors that other programs took while it was timed; of several the most. 0 to 1. */
  readonly load?: number;
  /** Of a GPU while it was timed. */
  readonly clock?: DeviceClock;
}

/** Kernels measured in turns, in one process, to decide between them: sample i of each was taken next to sample i of the others. */
export interface Finals {
  /** Equal for the trials that were measured beside each other. */
  readonly comparison: string;
  /** 1 for the winner; undefined for one that failed in them. */
  readonly place: number | undefined;
}

/** A trial as the database keeps it: what ran, where, and what came of it. */
export interface TrialRecord extends Trial {
  /** Hash of its facts. */
  readonly id: string;
  /** Whether this user measured it on this machine; what came from elsewhere is a claim. */
  readonly provenance: Provenance;
  /** The search that measured it; undefined for one that belongs to none. */
  readonly run: string | undefined;
  /** What was computed. */
  readonly workload: WorkloadRecord;
  /** Where. */
  readonly environment: EnvironmentRecord;
  /** The instruction it is found by. */
  readonly intrinsic: string;
  /** Hash of the intrinsic's declaration when it ran. */
  readonly declaration: string | undefined;
  /** Threads, cache state, processors. */
  readonly conditions: Conditions;
  /** Undefined for a kernel measured by itself. */
  readonly finals: Finals | undefined;
}

export type RunStatus = "running" | "done" | "interrupted" | "failed";

/** A search as the database keeps it. */
export interface RunRecord {
  readonly id: string;
  readonly workload: WorkloadRecord;
  readonly environment: EnvironmentRecord;
  readonly seed: number;
  readonly options: Readonly<Record<string, unknown>>;
  readonly budget: Readonly<Record<string, unknown>>;
  /** Process id then. */
  readonly process: number;
  readonly started: number;
  readonly ended: number | undefined;
  /** `running` without a living process: it was killed. */
  readonly status: RunStatus;
}

/** The computation a workload records, defined again. @throws UsageError when the record does not hold together */
export function computationOf(workload: WorkloadRecord): Computation {
  const { operator, equation, extents, tensors } = workload;
  const computation = defineComputation({ name: operator, equation, extents, tensors });
  if (computationKey(computation) !== workload.computation)
    throw new UsageError(
      `workload ${shortId(workload.id)} (${operator}): its parts do not make the computation it names`,
      {
        hint: `${computationKey(computation)}, not ${workload.computation}`,
      },
    );
  return computation;
}

/** What a workload is filtered by: the extents of its axes, and the operator's parameters over them. */
export function shapeOf({ extents, parameters }: WorkloadRecord): Readonly<Record<string, number>> {
  return { ...extents, ...parameters };
}

/** `f16`, `u8s8`: the first two inputs. */
export function inputTypes(computation: Computation): string {
  const [first = targetOf(computation), second = first] = inputsOf(computation);
  return first.dtype === second.dtype ? first.dtype : `${first.dtype}${second.dtype}`;
}
