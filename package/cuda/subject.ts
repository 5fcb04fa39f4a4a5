/**
 * @file The input of a CUDA package's files: the subject, the facts that only a GPU kernel has, and the names.
 *
 *     cudaSubject({ ..., tuned, gpu: { capability: 90 } }).architecture      "90a"
 */

import { entryOf } from "../../abstraction/collections.ts";
import { internal } from "../../abstraction/error.ts";
import type { CudaCall, Kernel } from "../../abstraction/kernel.ts";
import { type Code, code } from "../../abstraction/source-text.ts";
import { capabilityFor } from "../../targets/gpu.ts";
import { architectureName } from "../../targets/nvidia-gpu.ts";
import { type EmitSubject, type GpuFacts, namesOf, type Parameter, parametersOf } from "../subject.ts";

export interface CudaSubject {
  readonly subject: EmitSubject;
  readonly kernel: Kernel;
  readonly call: CudaCall;
  /** Compute capability of the GPU it was measured on, 90 for 9.0, and nvcc's name for that architecture: `90a`. */
  readonly capability: number;
  readonly architecture: string;
  /** Lowest compute capability that has the features the kernel uses, 80 for 8.0. `only` is set when no later one has them. */
  readonly needs: { readonly least: number; readonly only: boolean };
  readonly operator: GpuFacts["operator"];
  readonly parameters: readonly Parameter[];
  /** The package's name, as a prefix for functions and for macros. */
  readonly name: Code;
  readonly upper: Code;
}

/** @throws Error when the tuned kernel is not a CUDA kernel */
export function cudaSubject(subject: EmitSubject): CudaSubject {
  const { tuned, gpu, computation } = subject;
  if (tuned?.call === undefined || gpu === undefined) internal(`${subject.name} is no kernel in CUDA`);
  return {
    subject,
    kernel: tuned,
    call: tuned.call,
    operator: gpu.operator,
    capability: gpu.capability,
    architecture: architectureName(gpu.capability),
    needs: capabilityFor(tuned.features),
    parameters: parametersOf(computation),
    ...namesOf(subject),
  };
}

/** The constant tensors. Public functions take every tensor in call order; the prepare functions take only these. */
export const constantsOf = ({ parameters }: CudaSubject): Parameter[] =>
  parameters.filter((p) => p.role === "constant");

/** `9.0` */
export const capabilityText = (capability: number): string =>
  `${Math.floor(capability / 10)}.${Math.round(capability % 10)}`;

/** Alignment of the workspace in bytes, as cudaMalloc guarantees it. CUDA C++ Programming Guide, Device Memory Accesses. */
export const WORKSPACE_ALIGNMENT = 256;

/** Alignment a tensor needs in bytes; undefined when the alignment of its elements is enough. */
export const alignmentOf = ({ call }: CudaSubject, { tensor }: Parameter): number | undefined =>
  entryOf(call.aligned, tensor.name);

/** Return codes of the package's functions. Numbers beyond the last are CUDA errors. */
export const CODES = [
  ["OK", "ok"],
  ["NULL", "a pointer is null"],
  ["UNSUPPORTED", "this GPU cannot run the kernel"],
  ["WORKSPACE", "the workspace is too small, or begins at no multiple of 256 bytes"],
  ["MISALIGNED", "a tensor begins at an address that the kernel cannot read from: the header has the multiples"],
  ["NOT_PREPARED", "run before prepare: the constants are not there yet"],
] as const;

/** Offset added to a `cudaError_t` when a function returns a CUDA error. */
export const CUDA_ERRORS = 1000;

export const codeOf = ({ upper }: CudaSubject, word: (typeof CODES)[number][0] | "CUDA"): Code =>
  code`${upper}_${word}`;
