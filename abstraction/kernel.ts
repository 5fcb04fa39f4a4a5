/**
 * @file A generated program, and what it promises.
 *
 * A C++ kernel is one self-contained source with this C interface; `tensors` are pointers in the order of `arguments`, and behind them at each call one
 * to scratch, of which nothing is kept between calls:
 *
 *     extern "C" unsigned long automap_workspace_bytes(void);                                     64-byte aligned memory it keeps
 *     extern "C" unsigned long automap_scratch_bytes(void);                                       64-byte aligned memory it wants for a call
 *     extern "C" void automap_prepare(void* workspace, const void* const* tensors);               once: packs constants, clears borders
 *     extern "C" int automap_phases(void);                                                        steps of one call, a barrier between
 *     extern "C" void automap_run(void* workspace, void* const* tensors, int phase, int part, int parts);
 *
 * One call of the kernel runs every phase in order; within a phase the parts 0 .. parts-1 may run on different threads.
 *
 * A CUDA kernel deals the parts itself. Pointers are the device's; what a function returns is a `cudaError_t`:
 *
 *     extern "C" unsigned long automap_workspace_bytes(void);
 *     extern "C" int automap_allow(void);                                                         once a device: the shared memory that kernels ask for
 *     extern "C" int automap_prepare(void* workspace, const void* const* tensors, cudaStream_t stream);
 *     extern "C" int automap_launch(void* workspace, void* const* tensors, cudaStream_t stream);
 *
 * An OpenCL C kernel is functions of a workspace and the tensors, which run in order: `automap_prepare` once, then `automap_phase_0` ... at every
 * call, each by as many work-groups as the host likes, one sub-group a work-group; `steps` says how many have something to do.
 *
 * A SYCL kernel submits what it runs; pointers are to unified shared memory that the queue's device reaches, and what a function returns ends last:
 *
 *     extern "C" unsigned long automap_workspace_bytes(void);
 *     extern "C" sycl::event automap_prepare(sycl::queue& queue, void* workspace, const void* const* tensors);
 *     extern "C" sycl::event automap_launch(sycl::queue& queue, void* workspace, void* const* tensors);
 *
 * A CM kernel is functions on buffer surfaces; `launches` tells a host which to run, in order, in how many thread groups.
 */

import type { DType } from "./dtype.ts";
import type { SourceText } from "./source-text.ts";

/** C type of each element in memory; floats of 8 and 16 bits are held as their bits. */
export const C_TYPES = {
  u8: "uint8_t",
  s8: "int8_t",
  u16: "uint16_t",
  s16: "int16_t",
  u32: "uint32_t",
  s32: "int32_t",
  e4m3: "uint8_t",
  e5m2: "uint8_t",
  f16: "uint16_t",
  bf16: "uint16_t",
  tf32: "float",
  f32: "float",
  f64: "double",
} as const satisfies Record<DType, string>;

/** An array that a kernel takes as an argument. */
export interface KernelArgument {
  readonly tensor: string;
  readonly dtype: DType;
  /** Elements of memory, holes of a blocked layout included. */
  readonly elements: number;
  readonly role: "output" | "input" | "constant";
}

/** A function of a CM kernel: its number of thread groups, each of one thread, and the tensors whose surfaces it takes. */
export interface Launch {
  readonly function: string;
  readonly groups: number;
  readonly arguments: readonly string[];
  /** Whether the workspace's surface precedes those of the tensors. */
  readonly workspace?: boolean;
  /** Run once, before the first call. */
  readonly once?: boolean;
}

/** What a caller of a CUDA kernel must know besides its functions. */
export interface CudaCall {
  /** Bytes of the workspace, or 0. Its contents do not matter before a call unless the kernel prepares. */
  readonly workspaceBytes: number;
  /** Whether constants are packed or copied before the first call. Otherwise preparing only calls `automap_allow`. */
  readonly prepares: boolean;
  /** Alignment in bytes of tensors that need more than the size of their elements. */
  readonly aligned: Readonly<Record<string, number>>;
}

/** What a caller of an OpenCL C kernel must know besides its functions. */
interface OpenClCall {
  /** Bytes of the workspace, which must begin zeroed. */
  readonly workspaceBytes: number;
  /** Work-items of a work-group, which is one sub-group; 1 when each work-item works alone. */
  readonly lanes: number;
  /** For each phase, the number of steps dealt to work-groups. */
  readonly steps: readonly number[];
  /** For each phase, its issues of instructions as they are printed; none where a work-item works alone. */
  readonly issues?: readonly PrintedIssues[];
}

/** Instructions that a piece of a kernel's text issues, and the loops around those that it issues repeatedly. */
export interface PrintedIssues {
  /** Issues written here, outside of the loops inside. */
  readonly issues: number;
  readonly loops: readonly PrintedLoop[];
}

export interface PrintedLoop extends PrintedIssues {
  readonly trips: number;
}

/** What a SYCL kernel requires of its device. */
interface SyclCall {
  /** Work-items of a sub-group. */
  readonly lanes: number;
}

/** Languages in which kernels are written. */
export const KERNEL_LANGUAGES = ["c++", "cuda", "cm", "opencl", "sycl"] as const;
/** A language in which kernels are written. */
export type KernelLanguage = (typeof KERNEL_LANGUAGES)[number];

/** The name of each language and the file ending of its sources. */
export const LANGUAGES: Readonly<Record<KernelLanguage, { readonly called: string; readonly ending: string }>> = {
  "c++": { called: "C++", ending: ".cpp" },
  cuda: { called: "CUDA", ending: ".cu" },
  cm: { called: "CM", ending: ".cm" },
  opencl: { called: "OpenCL C", ending: ".cl" },
  sycl: { called: "SYCL", ending: ".sycl.cpp" },
};

/** A generated program, and what it promises. */
export interface Kernel {
  /** What it is written in. */
  readonly language: KernelLanguage;
  /** The whole text, ready to compile. */
  readonly source: SourceText;
  /** ISA features that the compiler must be allowed to use, as its flags name them: `avx512vnni`. */
  readonly features: readonly string[];
  /** Mnemonic that the disassembly must contain, `vpdpbusd`; undefined for the portable fallback. */
  readonly promises: string | undefined;
  /** The output first, then inputs in the order the equation reads them. */
  readonly arguments: readonly KernelArgument[];
  /**
   * C++ only: the program `of` in several texts, which are compiled apart and linked. The units are functions that stand by themselves and are not
   * inlined, so that the code is the same; kernels of a search share them. Another `source` is compiled as it stands.
   */
  readonly apart?: { readonly of: SourceText; readonly main: SourceText; readonly units: readonly SourceText[] };
  /** C++ only: the constants that preparing packs into the workspace; any of them when left out. */
  readonly packs?: readonly string[];
  /** C++ only: bytes of scratch, whose contents do not matter before a call; none when left out. */
  readonly scratchBytes?: number;
  /** C++ only: it computes a form of the equation with fewer products, and is judged within the bound of that (abstraction/winograd.ts). */
  readonly ofForm?: true;
  /** CM only: the functions to launch, in order. */
  readonly launches?: readonly Launch[];
  /** CM only: bytes of a buffer that kernels share and that begins zeroed; none when left out. */
  readonly workspaceBytes?: number;
  /** CUDA only. */
  readonly call?: CudaCall;
  /** OpenCL C only. */
  readonly opencl?: OpenClCall;
  /** SYCL only. */
  readonly sycl?: SyclCall;
}
