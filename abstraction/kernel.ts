/**
 * @file A generated program, and what it promises.
 *
 * A C++ kernel is one self-contained source with this C interface; `tensors` are pointers in the order of `arguments`:
 *
 *     extern "C" unsigned long automap_workspace_bytes(void);                                     64-byte aligned memory it wants
 *     extern "C" void automap_prepare(void* workspace, const void* const* tensors);               once: packs constants, clears borders
 *     extern "C" int automap_phases(void);                                                        steps of one call, a barrier between
 *     extern "C" void automap_run(void* workspace, void* const* tensors, int phase, int part, int parts);
 *
 * One call of the kernel runs every phase in order; within a phase the parts 0 .. parts-1 may run on different threads.
 */

import type { DType } from "./dtype.ts";

export interface KernelArgument {
  readonly tensor: string;
  readonly dtype: DType;
  /** Elements of memory, holes of a blocked layout included. */
  readonly elements: number;
  readonly role: "output" | "input" | "constant";
}

export interface Kernel {
  readonly language: "c++";
  readonly source: string;
  /** ISA features the compiler must be allowed, as its flags name them: `avx512vnni`. */
  readonly features: readonly string[];
  /** Mnemonic the disassembly must hold, `vpdpbusd`; undefined for the portable fallback. */
  readonly promises: string | undefined;
  /** The output first, then inputs in the order the equation reads them. */
  readonly arguments: readonly KernelArgument[];
}
