/**
 * @file What the files of a package in CUDA have in common: the subject with the facts that only a kernel on a GPU has, and its words.
 *
 *     cudaSubject({ ..., tuned, gpu: { capability: 90 } }).architecture      "90a"
 */

import type { CudaCall, Kernel } from "../../abstraction/kernel.ts";
import { type Code, code, identifier } from "../../abstraction/source-text.ts";
import { capabilityFor } from "../../targets/gpu.ts";
import { architectureName } from "../../targets/nvidia-gpu.ts";
import { type EmitSubject, type GpuFacts, type Parameter, parametersOf } from "../subject.ts";

export interface CudaSubject {
  readonly subject: EmitSubject;
  readonly kernel: Kernel;
  readonly call: CudaCall;
  /** Of the GPU that it was measured on, 90 for 9.0, and what nvcc calls it: `90a`. */
  readonly capability: number;
  readonly architecture: string;
  /** Least compute capability that has what the kernel uses, 80 for 8.0; `only`, where no later one has. */
  readonly needs: { readonly least: number; readonly only: boolean };
  readonly operator: GpuFacts["operator"];
  readonly parameters: readonly Parameter[];
  /** Of the package, for functions and for macros. */
  readonly name: Code;
  readonly upper: Code;
}

/** @throws Error when the tuned kernel is none in CUDA */
export function cudaSubject(subject: EmitSubject): CudaSubject {
  const { tuned, gpu, computation } = subject;
  if (tuned?.call === undefined || gpu === undefined) throw new Error(`internal: ${subject.name} is no kernel in CUDA`);
  return {
    ...{ subject, kernel: tuned, call: tuned.call, operator: gpu.operator },
    capability: gpu.capability,
    architecture: architectureName(gpu.capability),
    needs: capabilityFor(tuned.features),
    parameters: parametersOf(computation),
    name: identifier(subject.name),
    upper: identifier(subject.name.toUpperCase()),
  };
}

/** Functions of the public interface take every tensor in the order of a call; those that prepare only constants. */
export const constantsOf = ({ parameters }: CudaSubject): Parameter[] =>
  parameters.filter((p) => p.role === "constant");

/** `9.0` */
export const capabilityText = (capability: number): string =>
  `${Math.floor(capability / 10)}.${Math.round(capability % 10)}`;

/** Bytes at whose multiples a workspace begins: what cudaMalloc gives. CUDA C++ Programming Guide, Device Memory Accesses. */
export const WORKSPACE_ALIGNMENT = 256;

/** Bytes at whose multiples a tensor begins; undefined where its elements' own suffice. */
export const alignmentOf = ({ call }: CudaSubject, { tensor }: Parameter): number | undefined =>
  Object.hasOwn(call.aligned, tensor.name) ? call.aligned[tensor.name] : undefined;

/** What functions of the package return. The numbers beyond the last are errors of CUDA. */
export const CODES = [
  ["OK", "ok"],
  ["NULL", "a pointer is null"],
  ["UNSUPPORTED", "this GPU cannot run the kernel"],
  ["WORKSPACE", "the workspace is too small, or begins at no multiple of 256 bytes"],
  ["MISALIGNED", "a tensor begins at an address that the kernel cannot read from: the header has the multiples"],
  ["NOT_PREPARED", "run before prepare: the constants are not there yet"],
] as const;

/** What an error of CUDA is told as: this, plus its `cudaError_t`. */
export const CUDA_ERRORS = 1000;

export const codeOf = ({ upper }: CudaSubject, word: (typeof CODES)[number][0] | "CUDA"): Code =>
  code`${upper}_${word}`;
