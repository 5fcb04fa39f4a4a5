/**
 * @file The records as the program uses them: a trial with its environment, a run, a workload.
 *
 *     { id, operator: "conv2d", parameters: { c: 64, ... }, equation: "out[n,k,p,q] += ...", dtype: "u8s8", ... }
 */

import type { Extents } from "../abstraction/affine.ts";
import { type Computation, computationKey, defineComputation, inputsOf, targetOf } from "../abstraction/computation.ts";
import type { DType } from "../abstraction/dtype.ts";
import { UsageError } from "../abstraction/error.ts";
import { joined, type Part } from "../abstraction/program.ts";
import type { Provenance } from "../abstraction/seal.ts";
import type { DeviceClock, Trial } from "../abstraction/trial.ts";
import { shortId } from "./identity.ts";

/** The Node of an environment in which there was none, as where a batch is measured. */
export const NO_NODE = "none";

/** The environment in which a measurement is valid. */
export interface Environment {
  /** Name of the target description. */
  readonly target: string;
  /** Model as the machine reports it. */
  readonly cpu: string;
  /** Processors of the machine. */
  readonly cores: number;
  /** Features, in any order. */
  readonly isa: readonly string[];
  /** The compiler of the kernels. */
  readonly compiler: { readonly path: string; readonly version: string; readonly flags: readonly string[] };
  /** Operating system: `Linux 6.1.0-18-amd64 x64`. */
  readonly kernel: string;
  /** Driver of the accelerator, if there is one. */
  readonly driver?: string;
  /** Version of Node. */
  readonly node: string;
  /** Version of automap. */
  readonly automap: string;
}

export interface EnvironmentRecord extends Environment {
  readonly id: string;
}

/** Names that users may give: they need no quotes in a shell and cannot be mistaken for anything else, `resnet18/layer2.0.conv1`. */
export const WORKLOAD_NAME = /^[A-Za-z0-9_][A-Za-z0-9_.:/+-]{0,79}$/;

/** The computation that is tuned, with the name and parameters under which the user requested it. */
export interface Workload {
  readonly computation: Computation;
  /** Parameters of the operator; none for a bare equation. */
  readonly parameters?: Extents;
  /** The user's own name for it, of the form {@link WORKLOAD_NAME}. */
  readonly name?: string | undefined;
}

export interface TensorRecord {
  readonly dtype: DType;
  readonly dims: readonly string[];
  readonly shape: readonly number[];
  readonly storage: string;
  readonly constant: boolean;
}

/** A computation as it is written down. */
export interface ComputationRecord {
  readonly equation: string;
  /** Extents of the axes. */
  readonly extents: Extents;
  readonly tensors: Readonly<Record<string, TensorRecord>>;
}

/** A computation in the database. */
export interface WorkloadRecord extends ComputationRecord {
  readonly id: string;
  /** `equation` for a bare equation. */
  readonly operator: string;
  readonly parameters: Extents;
  /** `computationKey`: equal for equal computations under any name. */
  readonly computation: string;
  /** Types of the inputs as one word: `f16`, `u8s8`. */
  readonly dtype: string;
  /** Type of the output. */
  readonly sum: DType;
  readonly points: number;
  /** The user's own name, given to this record or to another of the same computation. */
  readonly name?: string | undefined;
  /** Where one kernel computes several: all of them. */
  readonly program?:
    | {
        readonly parts: readonly (ComputationRecord & Pick<Part, "names">)[];
        readonly stored: readonly string[];
      }
    | undefined;
}

/** How a candidate was run. */
export interface Conditions {
  readonly threads: number;
  readonly cache: "warm" | "flushed";
  /** Processors to which its threads were bound, in order. */
  readonly affinity?: readonly number[];
  /** Share of these processors' time that other programs took during timing, 0 to 1; the largest over several processors. */
  readonly load?: number;
  /** Clock of a GPU during timing. */
  readonly clock?: DeviceClock;
  /** The fleet's worker that measured it, by the name its key was admitted under; left out at home. */
  readonly worker?: string;
}

/** Kernels measured alternately in one process to decide between them: sample i of each was taken next to sample i of the others. */
export interface Finals {
  /** Equal for trials that were measured together. */
  readonly comparison: string;
  /** 1 for the winner; undefined for a kernel that failed. */
  readonly place: number | undefined;
}

/** A trial in the database: the candidate, the environment and the result. */
export interface TrialRecord extends Trial {
  /** Hash of its facts. */
  readonly id: string;
  /** Whether this user measured it on this machine. Imported records are unverified claims. */
  readonly provenance: Provenance;
  /** The search that measured it; undefined when there was none. */
  readonly run: string | undefined;
  /** What was computed. */
  readonly workload: WorkloadRecord;
  /** Where it ran. */
  readonly environment: EnvironmentRecord;
  /** Its instruction, by which queries find it. */
  readonly intrinsic: string;
  /** Hash of the intrinsic's declaration when it ran. */
  readonly declaration: string | undefined;
  /** Threads, cache state, processors. */
  readonly conditions: Conditions;
  /** Undefined for a kernel measured alone. */
  readonly finals: Finals | undefined;
}

export type RunStatus = "running" | "done" | "interrupted" | "failed";

/** A search in the database. */
export interface RunRecord {
  readonly id: string;
  /** Whether it was begun by this user on this machine. */
  readonly provenance: Provenance;
  readonly workload: WorkloadRecord;
  readonly environment: EnvironmentRecord;
  readonly seed: number;
  readonly options: Readonly<Record<string, unknown>>;
  readonly budget: Readonly<Record<string, unknown>>;
  /** Process id at the time. */
  readonly process: number;
  readonly started: number;
  readonly ended: number | undefined;
  /** `running` without a living process means that it was killed. */
  readonly status: RunStatus;
}

export interface CalibrationRecord {
  readonly id: string;
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly provenance: Provenance;
  readonly environment: EnvironmentRecord;
  readonly data: unknown;
}

/** Rebuilds the computation of a workload. @throws UsageError when the record is inconsistent */
export function computationOf(workload: WorkloadRecord): Computation {
  const { operator: name, equation, extents, tensors, program } = workload;
  const computation = program
    ? joined({
        parts: program.parts.map(({ names, ...part }) => ({
          names,
          computation: defineComputation({ name, ...part }),
        })),
        stored: program.stored,
      })
    : defineComputation({ name, equation, extents, tensors });
  if (computationKey(computation) !== workload.computation)
    throw new UsageError(
      `workload ${shortId(workload.id)} (${name}): its parts do not make the computation it names`,
      `${computationKey(computation)}, not ${workload.computation}`,
    );
  return computation;
}

/** What filters compare with: the extents of a workload's axes, overridden by the operator's parameters. */
export function shapeOf({ extents, parameters }: WorkloadRecord): Extents {
  return { ...extents, ...parameters };
}

/** `f16`, `u8s8`: the first two inputs. */
export function inputTypes(computation: Computation): string {
  const [first = targetOf(computation), second = first] = inputsOf(computation);
  return first.dtype === second.dtype ? first.dtype : `${first.dtype}${second.dtype}`;
}
