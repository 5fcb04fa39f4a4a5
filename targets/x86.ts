/**
 * @file x86 CPUs: extensions as compilers, Linux and CPUID name them, and the features that instructions require.
 *
 *     avx512_vnni     -mavx2 -mfma -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni     avx512_vnni and the others in /proc/cpuinfo
 *
 * A feature includes more than its own extension: kernels with 512-bit instructions may use all of AVX-512 that servers have. The rates are those of
 * one reference machine, until `automap calibrate` measures them.
 */

import { namesOf, unique, withName } from "../abstraction/collections.ts";
import type { Bandwidth, Family, Feature, Memory, RegisterClass, Target } from "../abstraction/machine.ts";
import { assumed, cited, KIB, MIB } from "./figures.ts";

/** An extension that compilers enable separately. */
export interface Extension {
  /** Its name in compiler flags. */
  readonly name: string;
  /** Its word in /proc/cpuinfo. */
  readonly cpuinfo: string;
  /** Its CPUID bit, for compilers that do not know the extension by name (`__builtin_cpu_supports`). */
  readonly cpuid?: {
    readonly leaf: number;
    readonly subleaf: number;
    readonly register: "EAX" | "EBX" | "ECX" | "EDX";
    readonly bit: number;
  };
  /** The system must enable its state, and each process must request it. */
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

/** Undefined for an extension that no feature uses; compilers know more extensions than these. */
export function extensionNamed(name: string): Extension | undefined {
  return withName(EXTENSIONS, name);
}

function feature(name: string, summary: string, extensions: readonly string[]): Feature {
  return {
    name,
    summary,
    extensions,
    cpuinfo: extensions.map((e) => extensionNamed(e)?.cpuinfo ?? e),
    flags: extensions.map((e) => `-m${e}`),
    source: MANUAL,
  };
}

const AVX2 = ["avx2", "fma"];
/** Extensions of every CPU with AVX-512 except the first Xeon Phi. */
const AVX512 = [...AVX2, "avx512f", "avx512bw", "avx512vl", "avx512dq"];

/** Vector types by element type; `otherwise` covers all integers. */
const vectorTypes = (bits: 128 | 256 | 512): Pick<RegisterClass, "types" | "otherwise" | "cleared"> => ({
  types: { f32: `__m${bits}`, f64: `__m${bits}d`, f16: `__m${bits}h`, bf16: `__m${bits}bh` },
  otherwise: `__m${bits}i`,
  // Assigned, not cleared through a pointer: g++ would keep a register whose address was taken in memory.
  cleared: "{reg} = decltype({reg}){};",
});

export const ZMM = {
  name: "zmm",
  count: 32,
  bytes: 64,
  feature: "avx512f",
  ...vectorTypes(512),
  widened: {
    f32: {
      s8: "_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)({ptr}))))",
      u8: "_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i*)({ptr}))))",
    },
  },
  // A permutation looks at the lowest four bits of each lane. Each number is shifted there from the half of the eight bytes that its lane holds.
  halfBytes: {
    f32: {
      place: { byte: "lane/4 + 4*(lane%2)", half: "lane/2 % 2" },
      loaded:
        "_mm512_permutexvar_ps(_mm512_srlv_epi32(_mm512_broadcastq_epi64(_mm_loadl_epi64((const __m128i*)({ptr}))), _mm512_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28)), {table})",
      table: "_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)",
    },
  },
  arithmetic: {
    f32: {
      "+": "_mm512_add_ps({left}, {right})",
      "-": "_mm512_sub_ps({left}, {right})",
      "*": "_mm512_mul_ps({left}, {right})",
      shared: "_mm512_set1_ps({value})",
      loaded: "_mm512_loadu_ps({ptr})",
    },
  },
  constraint: "v",
  source: "Intel SDM vol. 1, section 15",
} as const satisfies RegisterClass;

export const YMM = {
  name: "ymm",
  count: 16,
  bytes: 32,
  feature: "avx2",
  ...vectorTypes(256),
  widened: {
    f32: {
      s8: "_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)({ptr}))))",
      u8: "_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)({ptr}))))",
    },
  },
  halfBytes: {
    f32: {
      place: { byte: "lane/2", half: "lane%2" },
      loaded:
        "_mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srlv_epi32(_mm256_broadcastd_epi32(_mm_loadu_si32({ptr})), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28)), _mm256_set1_epi32(15)))",
    },
  },
  arithmetic: {
    f32: {
      "+": "_mm256_add_ps({left}, {right})",
      "-": "_mm256_sub_ps({left}, {right})",
      "*": "_mm256_mul_ps({left}, {right})",
      shared: "_mm256_set1_ps({value})",
      loaded: "_mm256_loadu_ps((const float*)({ptr}))",
    },
  },
  constraint: "x",
  source: "Intel SDM vol. 1, section 14; AVX-512VL has 32",
} as const satisfies RegisterClass;

/** The same registers with lanes of 16 bits, where narrow elements otherwise lie in lanes of 32. */
export const ZMM_WORDS = { ...ZMM, laneBytes: 2 } as const;
export const YMM_WORDS = { ...YMM, laneBytes: 2 } as const;

/** Register classes that hold lanes. */
export type VectorRegisters = typeof ZMM | typeof YMM | typeof ZMM_WORDS | typeof YMM_WORDS;

/** Bytes of the narrowest lane. */
export const leastLaneBytes = (vectors: VectorRegisters): 2 | 4 => ("laneBytes" in vectors ? vectors.laneBytes : 4);

const REGISTERS: readonly RegisterClass[] = [
  ZMM,
  YMM,
  { name: "xmm", count: 16, bytes: 16, ...vectorTypes(128), constraint: "x", source: "Intel SDM vol. 1, section 10" },
  {
    name: "zmm8",
    count: 4,
    takes: 8,
    bytes: 512,
    feature: "avx512f",
    otherwise: "eight_vectors",
    // Two neighbours of the eight vectors share 64 bytes.
    halfBytes: {
      s8: { place: { byte: "64*(lane/128) + lane%64", half: "lane/64 % 2" }, loaded: "load_halves({ptr})" },
    },
    arithmetic: {
      s8: {
        "+": "({left} + {right})",
        "-": "({left} - {right})",
        shared: "eight_times(_mm512_set1_epi8({value}))",
        loaded: "load_four_times({ptr})",
        place: { element: "lane/4 % 16" },
      },
    },
    source: "eight registers of 512 bits; intrinsics/avx512-dot.ts declares the type and its functions",
  },
  {
    name: "bytes",
    sizeless: true,
    otherwise: "const void*",
    source: "an address: instructions take their operand from memory",
  },
  {
    // Sixteen rows, as configured in intrinsics/amx.ts.
    name: "tile",
    count: 8,
    bytes: 1024,
    rowBytes: 64,
    feature: "amx_int8",
    numbered: true,
    cleared: "_tile_zero({reg});",
    apart: true,
    source: "Intel SDM vol. 1, section 18",
  },
];

export const X86: Family = {
  name: "x86",
  header: "#include <immintrin.h>\n",
  emulation: "x86.h",
  kernels: true,
  registers: REGISTERS,
  features: [
    feature("avx2", "256-bit integers", AVX2),
    feature("fma", "256-bit fused multiply-adds", AVX2),
    feature("avx_vnni", "256-bit dot products of bytes", [...AVX2, "avxvnni"]),
    feature("avx512f", "512-bit vectors", AVX512),
    feature("avx512_vnni", "512-bit dot products of bytes", [...AVX512, "avx512vnni"]),
    feature("avx512_bf16", "dot products of bf16", [...AVX512, "avx512bf16"]),
    feature("avx512_fp16", "arithmetic on f16", [...AVX512, "avx512fp16"]),
    feature("amx_int8", "matrix products of bytes on tiles", [...AVX512, "amx-tile", "amx-int8"]),
    // Includes avx512bf16, with which vectors round the inputs to bf16.
    feature("amx_bf16", "matrix products of bf16 on tiles", [...AVX512, "avx512bf16", "amx-tile", "amx-bf16"]),
  ],
};

// ---- rates of the reference machine -----------------------------------------------------------------------------------------------

const MEASURED = "measured 2026-11-21 on one of two virtual cores of a Xeon with AVX-512 and AMX at 3.7 GHz";

/** @param read and write: billions of bytes per second that one core gets, including lines that a write fetches first */
function memory(
  name: string,
  at: "socket" | "core",
  bytes: number | undefined,
  [read, write]: readonly [number, number],
): Memory {
  const rate = (gigabytes: number, direction: "read" | "write"): Bandwidth => ({
    value: gigabytes * 1e9,
    per: "second",
    direction,
    of: "core",
    source: MEASURED,
  });
  return {
    name,
    kind: bytes === undefined ? "addressed" : "cache",
    at,
    ...(bytes !== undefined && { bytes: cited(bytes, MEASURED) }),
    bandwidth: [rate(read, "read"), rate(write, "write")],
  };
}

/** The Xeon whose figures replace missing measurements on other machines. */
export const REFERENCE_CPU = {
  name: "reference",
  summary: "a Xeon with AVX-512 and AMX, two virtual cores at 3.7 GHz",
  isa: namesOf(X86.features),
  compilerFlags: unique(X86.features.flatMap((f) => f.flags ?? [])),
  clockHz: cited(3.7e9, MEASURED),
  levels: [
    {
      name: "socket",
      units: 1,
      synchronises: true,
      barrier: { cycles: assumed(2000, "half a microsecond for two cores to meet") },
    },
    { name: "core", units: 2 },
    { name: "vector", units: 1 },
  ],
  memories: [
    {
      ...memory("dram", "socket", undefined, [16.3, 10.3]),
      pageBytes: cited(4096, "the small pages of x86-64"),
    },
    memory("l3", "socket", 32 * MIB, [29.5, 29.6]),
    {
      ...memory("l2", "core", 2 * MIB, [186, 56]),
      streams: cited(32, "Intel Optimization Reference Manual, streamer of the second-level cache"),
    },
    {
      ...memory("l1", "core", 48 * KIB, [403, 258]),
      lines: { bytes: 64, sets: 64, source: "the first level of Golden Cove and Zen 5: 64 sets of 64 bytes" },
    },
  ],
  units: [
    {
      name: "fma",
      at: "core",
      issueCycles: 0.5,
      latencyCycles: 4,
      source:
        "measured 2026-11-21 on one core of a Xeon at 3.7 GHz: 240 G f32 operations a second from registers; " +
        "latency from LLVM's Sapphire Rapids model",
    },
    {
      name: "shuffle",
      at: "core",
      issueCycles: 1,
      latencyCycles: 3,
      source: "LLVM's scheduling model of Sapphire Rapids: valignd and vpermps on port 5",
    },
    {
      name: "load",
      at: "core",
      issueCycles: 0.5,
      latencyCycles: 7,
      source:
        "two vector loads a cycle: Intel Optimization Reference Manual, Golden Cove; AMD Zen 5 Optimization Guide",
    },
    {
      name: "store",
      at: "core",
      issueCycles: 1,
      source: "assumed: one vector store a cycle, what 512-bit stores reach on Golden Cove and Zen 5",
    },
  ],
  rates: [],
  fixed: {
    block: { ...assumed(5, "one mispredicted loop exit in three or four blocks"), per: "cycle" },
  },
  lanes: { name: "avx512", summary: "a core with two AVX-512 units", level: "core", lanes: 16, lanesByBytes: true },
  pipeline: {
    instructionsPerCycle: assumed(6, "the rename width of Golden Cove, below the eight of Zen 5"),
    loopInstructions: assumed(4, "a counter, a fused comparison and branch, two addresses"),
    window: cited(448, "AMD Zen 5 Optimization Guide: retire queue of 448; Golden Cove has 512"),
  },
  scalar: {
    copyByte: assumed(0.03, "32 bytes a cycle"),
    copyRun: assumed(8, "a call of memcpy or the tail of a vector loop"),
    strided: assumed(1, "a load, a store and two addresses an element"),
    indexed: assumed(0.6, "short runs side by side"),
    scattered: assumed(1, "as strided"),
    sideBySide: assumed(0.2, "vectors of eight elements, a load and a store each"),
    operation: assumed(0.5, "two a cycle"),
    vectorOperation: assumed(0.04, "sixteen elements, two in three cycles"),
    digit: assumed(1.5, "a multiplication, shifts and a subtraction"),
    guard: assumed(0.4, "a comparison beside others, well predicted"),
    gatheredLane: cited(0.5, "measured 2026-11-22, fitted to four computations of bench/trials/lane-designs-xeon"),
    scatteredLane: cited(1, "measured 2026-11-22, fitted to four computations of bench/trials/lane-designs-xeon"),
  },
} as const satisfies Target;
