/**
 * @file x86 CPUs: extensions as compilers, Linux and CPUID name them, and the features that instructions ask for.
 *
 *     avx512_vnni     -mavx2 -mfma -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni     avx512_vnni and the others in /proc/cpuinfo
 *
 * A feature is more than its own extension: kernels with 512-bit instructions are written for all of AVX-512 that servers have.
 */

import type { Family, Feature } from "../abstraction/machine.ts";

/** A part of the instruction set that compilers are allowed by itself. */
export interface Extension {
  /** As the compiler's flag names it. */
  readonly name: string;
  /** Its word in /proc/cpuinfo. */
  readonly cpuinfo: string;
  /** The bit that tells of it, where not every compiler knows it by name (`__builtin_cpu_supports`). */
  readonly cpuid?: {
    readonly leaf: number;
    readonly subleaf: number;
    readonly register: "EAX" | "EBX" | "ECX" | "EDX";
    readonly bit: number;
  };
  /** Its state is enabled by the system, and each process must ask for it. */
  readonly asked?: "tiles";
  readonly source: string;
}

type Register = NonNullable<Extension["cpuid"]>["register"];

const MANUAL = "Intel SDM vol. 2, CPUID";
const extension = (name: string, cpuinfo = name): Extension => ({ name, cpuinfo, source: MANUAL });
const byBit = (
  name: string,
  cpuinfo: string,
  [leaf, subleaf, register, bit]: readonly [leaf: number, subleaf: number, register: Register, bit: number],
): Extension => ({ name, cpuinfo, cpuid: { leaf, subleaf, register, bit }, source: MANUAL });

export const EXTENSIONS: readonly Extension[] = [
  extension("avx2"),
  extension("fma"),
  byBit("avxvnni", "avx_vnni", [7, 1, "EAX", 4]),
  extension("avx512f"),
  extension("avx512bw"),
  extension("avx512vl"),
  extension("avx512dq"),
  extension("avx512vnni", "avx512_vnni"),
  byBit("avx512bf16", "avx512_bf16", [7, 1, "EAX", 5]),
  byBit("avx512fp16", "avx512_fp16", [7, 0, "EDX", 23]),
  { ...byBit("amx-tile", "amx_tile", [7, 0, "EDX", 24]), asked: "tiles" },
  byBit("amx-int8", "amx_int8", [7, 0, "EDX", 25]),
  byBit("amx-bf16", "amx_bf16", [7, 0, "EDX", 22]),
];

/** @throws Error for a name that is none */
export function extensionNamed(name: string): Extension {
  const found = EXTENSIONS.find((e) => e.name === name);
  if (!found) throw new Error(`internal: no extension "${name}"`);
  return found;
}

function feature(name: string, summary: string, extensions: readonly string[]): Feature {
  return {
    name,
    summary,
    extensions,
    cpuinfo: extensions.map((e) => extensionNamed(e).cpuinfo),
    flags: extensions.map((e) => `-m${e}`),
    source: MANUAL,
  };
}

const AVX2 = ["avx2", "fma"];
/** What every CPU with AVX-512 but the first Xeon Phi has. */
const AVX512 = [...AVX2, "avx512f", "avx512bw", "avx512vl", "avx512dq"];

export const X86: Family = {
  name: "x86",
  header: "#include <immintrin.h>\n",
  emulation: "x86.h",
  kernels: true,
  features: [
    feature("avx2", "256-bit integers", AVX2),
    feature("fma", "256-bit fused multiply-adds", AVX2),
    feature("avx_vnni", "256-bit dot products of bytes", [...AVX2, "avxvnni"]),
    feature("avx512f", "512-bit vectors", AVX512),
    feature("avx512_vnni", "512-bit dot products of bytes", [...AVX512, "avx512vnni"]),
    feature("avx512_bf16", "dot products of bf16", [...AVX512, "avx512bf16"]),
    feature("avx512_fp16", "arithmetic on f16", [...AVX512, "avx512fp16"]),
    feature("amx_int8", "matrix products of bytes on tiles", [...AVX512, "amx-tile", "amx-int8"]),
    // Its inputs are rounded to bf16 by vectors.
    feature("amx_bf16", "matrix products of bf16 on tiles", [...AVX512, "avx512bf16", "amx-tile", "amx-bf16"]),
  ],
};
