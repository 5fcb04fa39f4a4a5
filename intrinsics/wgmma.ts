/**
 * @file PTX `wgmma.mma_async`: the matrix product of a warpgroup, four warps, with both factors in shared memory, or the first in registers.
 *
 *     wgmma.m64n128k16.f32.f16      c[m,n] += f32(a[m,k]) * f32(b[k,n])       n any multiple of 8 up to 256
 *     a                             shared[64*m + 8*((k/8) ^ (m%8)) + k%8]    rows of 64 k, pieces of 16 bytes permuted by row
 *     a, turned                     shared[64*k + 8*((m/8) ^ (k%8)) + m%8]    rows of 64 m: 16-bit factors only
 *     c                             frag[64*thread + register]                n/2 registers of each of 128 threads
 *     wgmma.m64n128k16.f32.f16.rs   a is held in registers, as mma.sync has it: each of four warps has 16 rows
 *
 * Products of bytes may replace the sums, so that a kernel sums groups and scales them.
 *
 * The instruction reads its factors asynchronously: writes by threads must be published first, and the sums are valid, and registers of factors free, once
 * the instruction has been awaited. Factors may have any layout that a start, two distances and a swizzle describe (abstraction/matrix-view.ts); the storage below is that of
 * a single tile.
 */

import { upTo } from "../abstraction/collections.ts";
import { BYTE_SUM_BITS, type ByteFloat, bytesOf, type DType, isByteFloat } from "../abstraction/dtype.ts";
import { type Intrinsic, type OperandSpec, tableRow } from "../abstraction/intrinsic.ts";
import { matrixCost } from "../abstraction/machine.ts";
import { nvidiaTarget } from "../targets/nvidia.ts";
import { typesOf } from "./lane-forms.ts";

const ROWS = 64;
/** Bytes of a row of either factor: the widest swizzle. */
const SPAN = 128;
const PIECE = 16;
/** Bytes of either factor along the sum. */
const SUM_BYTES = 32;
const THREADS = 128;

/** Descriptors, fences and groups; PTX ISA, Asynchronous Warpgroup Level Matrix Instructions. */
const COMMON = `#ifndef AUTOMAP_WGMMA
#define AUTOMAP_WGMMA
#include <stdint.h>
/* A factor in shared memory as the instruction is told of it. */
template <bool TURNED> struct Matrix { uint64_t bits; };
template <int SPAN, bool TURNED> __device__ inline Matrix<TURNED> matrix_at(const void* start, unsigned leading, unsigned stride) {
  const uint64_t mode = SPAN == 128 ? 1 : SPAN == 64 ? 2 : SPAN == 32 ? 3 : 0;
  const uint64_t fixed = (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32 | mode << 62;
  return {fixed | ((unsigned)__cvta_generic_to_shared(start) >> 4 & 0x3fff)};
}
__device__ inline void publish_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int NEWEST> __device__ inline void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(NEWEST) : "memory"); }
/* A compiler that reads sums ahead of their wait, or keeps them in memory for a loop, makes the products wait for each other. */
template <int N> __device__ inline void wgmma_arrived(float (&c)[N]) {
  #pragma unroll
  for (auto& word : c) asm volatile("" : "+f"(word) :: "memory");
}
template <class T, int N> __device__ inline void wgmma_arrived(T (&c)[N]) {
  #pragma unroll
  for (auto& word : c) asm volatile("" : "+r"(word) :: "memory");
}
template <class T, int N> __device__ inline void load_group_fragment(T (&reg)[N], const void* tile) {
  for (int i = 0; i < N; i++) reg[i] = ((const T*)tile)[N * (threadIdx.x % 128) + i];
}
template <class T, int N> __device__ inline void store_group_fragment(void* tile, const T (&reg)[N]) {
  for (int i = 0; i < N; i++) ((T*)tile)[N * (threadIdx.x % 128) + i] = reg[i];
}
#endif
`;

/** The common part of all widths of an instruction. */
interface WgmmaForm {
  readonly sums: "f32" | "f16" | "s32";
  readonly factors: "f16" | "bf16" | "tf32" | "s8" | "u8" | ByteFloat;
  /** Type of the second factor, where it is another. */
  readonly second?: WgmmaForm["factors"];
  /** Whether the first factor is in registers. */
  readonly held?: true;
}

const WGMMA_FORMS: readonly WgmmaForm[] = [
  { sums: "f32", factors: "f16" },
  { sums: "f16", factors: "f16" },
  { sums: "f32", factors: "bf16" },
  { sums: "f32", factors: "tf32" },
  { sums: "s32", factors: "s8" },
  { sums: "s32", factors: "u8" },
  { sums: "f32", factors: "e4m3" },
  { sums: "f32", factors: "e4m3", second: "e5m2" },
  { sums: "f32", factors: "e5m2", second: "e4m3" },
  { sums: "f32", factors: "e5m2" },
  { sums: "f32", factors: "f16", held: true },
  { sums: "f32", factors: "bf16", held: true },
];

/** `f16`, `e4m3e5m2`, `f16.rs` */
const factorsOf = ({ factors, second = factors, held }: WgmmaForm): string =>
  `${typesOf(factors, second)}${held ? ".rs" : ""}`;

/** The widths of a form: multiples of 8 up to 256; for integers, widths above 24 are multiples of 16 (PTX ISA, wgmma.mma_async). */
export function wgmmaWidths({ sums }: WgmmaForm): number[] {
  const widths = upTo(32).map((i) => 8 * (i + 1));
  return sums === "s32" ? widths.filter((n) => n <= 24 || n % 16 === 0) : widths;
}

/** A factor with rows along the sum; for types that the instruction can transpose, also with rows along its kept axis. */
function factor(dtype: DType, kept: "m" | "n", extent: number): OperandSpec {
  const bytes = bytesOf(dtype);
  const row = SPAN / bytes;
  const piece = PIECE / bytes;
  const storage = `shared[${row}*${kept} + ${piece}*((k/${piece}) ^ (${kept}%8)) + k%${piece}]`;
  if (bytes !== 2) return { dtype, storage };
  const column = extent > row ? `${(row * SUM_BYTES) / bytes}*(${kept}/${row}) + ` : "";
  const inRow = extent > row ? `(${kept}%${row})` : kept;
  return {
    dtype,
    storage,
    turned: `shared[${column}${row}*k + ${piece}*((${inRow}/${piece}) ^ (k%8)) + ${kept}%${piece}]`,
  };
}

/** Two elements of 16 bits a register, four registers: rows lane/4 and lane/4 + 8 of a warp's 16, k 0..7, then k 8..15. */
const heldFactor = (dtype: DType): OperandSpec => ({
  dtype,
  storage: "frag[8*(32*(m/16) + 4*(m%8) + (k%8)/2) + 4*(k/8) + 2*((m/8)%2) + k%2]",
  load: "load_group_fragment({reg}, {ptr});",
});
const HELD_WORDS = 4;

/** Sums of a warp's 16 rows: rows lane/4 and lane/4 + 8, columns 2*(lane%4) and the next of every eight. */
function sumsOf(dtype: DType, n: number): OperandSpec {
  return {
    dtype,
    storage: `frag[${n / 2}*(32*(m/16) + 4*(m%8) + (n%8)/2) + 4*(n/8) + 2*((m/8)%2) + n%2]`,
    load: "load_group_fragment({reg}, {ptr});",
    store: "store_group_fragment({ptr}, {reg});",
    clear: "for (auto& word : {reg}) word = 0;",
  };
}

/** The function `wgmma_f32_f16(c, a, b)` of one width. Widths differ in the size of `c`. */
function prelude({ sums, factors, second = factors, held }: WgmmaForm, fn: string, n: number, k: number): string {
  const words = sums === "f16" ? n / 4 : n / 2;
  const [type, letter] = { f32: ["float", "f"], f16: ["unsigned", "r"], s32: ["int", "r"] }[sums];
  const list = (from: number, count: number): string =>
    upTo(count)
      .map((i) => `%${from + i}`)
      .join(",");
  const each = (constraint: string, of: string, count: number): string =>
    upTo(count)
      .map((i) => `"${constraint}"(${of}[${i}])`)
      .join(", ");
  const next = words + (held ? HELD_WORDS : 1);
  const begins = isByteFloat(factors);
  const scales = sums === "s32" ? "" : ", 1, 1";
  const turns = bytesOf(factors) !== 2 ? [] : held ? ["B"] : ["A", "B"];
  const turned = turns.map((_, i) => `, %${next + 1 + i}`).join("");
  const flags = turns.map((o) => `, "n"((int)TURNED_${o})`).join("");
  const [parameters, taken, a, given] = held
    ? [
        "bool TURNED_B",
        `const unsigned (&a)[${HELD_WORDS}]`,
        `{${list(words, HELD_WORDS)}}`,
        each("r", "a", HELD_WORDS),
      ]
    : ["bool TURNED_A, bool TURNED_B", "Matrix<TURNED_A> a", `%${words}`, `"l"(a.bits)`];
  return `${COMMON}template <${parameters}>
__device__ inline void ${fn}(${type} (&c)[${words}], ${taken}, Matrix<TURNED_B> b${begins ? ", unsigned adds = 1" : ""}) {
  asm volatile("{ .reg .pred p; setp.${begins ? `ne.b32 p, %${next + 1}` : "eq.b32 p, 0"}, 0; "
    "wgmma.mma_async.sync.aligned.m${ROWS}n${n}k${k}.${sums}.${factors}.${second} {${list(0, words)}}, ${a}, %${next}, p${scales}${turned}; }"
    : ${each(`+${letter}`, "c", words)}
    : ${given}, "l"(b.bits)${begins ? `, "r"(adds)` : ""}${flags});
}
`;
}

const COMPUTE = {
  f32: "c[m,n] += f32(a[m,k]) * f32(b[k,n])",
  f16: "c[m,n] += a[m,k] * b[k,n]",
  s32: "c[m,n] += s32(a[m,k]) * s32(b[k,n])",
} as const;

/** The row of one width. @param n one of {@link wgmmaWidths} */
export function wgmma(form: WgmmaForm, n: number): Intrinsic {
  const { sums, factors, second = factors, held } = form;
  const k = SUM_BYTES / bytesOf(factors);
  const fn = `wgmma_${sums}_${factorsOf(form)}`.replace(".", "_");
  const extents = { m: ROWS, n, k };
  const cost = matrixCost(nvidiaTarget("h100"), "wgmma", factors, extents);
  return tableRow({
    name: `wgmma.m${ROWS}n${n}k${k}.${sums}.${factorsOf(form)}`,
    family: "wgmma",
    isa: "sm_90a",
    features: ["wgmma"],
    language: "cuda",
    scope: "warpgroup",
    summary: `A ${ROWS}x${n}x${k} matrix product of ${THREADS} threads on ${held ? "registers and shared memory" : "shared memory"}: ${second === factors ? factors : `${factors} and ${second}`} factors, ${sums} sums.`,
    compute: COMPUTE[sums],
    extents,
    operands: {
      a: held ? heldFactor(factors) : factor(factors, "m", ROWS),
      b: factor(second, "n", n),
      c: sumsOf(sums, n),
    },
    emit: `${fn}({c}, {a}, {b});`,
    ...(isByteFloat(factors) && { begin: `${fn}({c}, {a}, {b}, 0);` }),
    asynchronous: {
      publish: "publish_shared();",
      fence: "wgmma_fence();",
      commit: "wgmma_commit();",
      wait: "wgmma_wait<{pending}>();",
      arrived: "wgmma_arrived({reg});",
    },
    mnemonic: sums === "s32" ? "IGMMA" : isByteFloat(factors) ? "QGMMA" : "HGMMA",
    ...(isByteFloat(factors) && { sumBits: BYTE_SUM_BITS }),
    prelude: prelude(form, fn, n, k),
    ...(cost && { cost }),
    source: "PTX ISA, wgmma.mma_async: register fragments and shared memory layouts",
  });
}

const known = new Map<string, Intrinsic>();

/** Returns the same object for a row at every call. */
function knownRow(form: WgmmaForm, n: number): Intrinsic {
  const key = `${form.sums} ${factorsOf(form)} ${n}`;
  const row = known.get(key) ?? wgmma(form, n);
  known.set(key, row);
  return row;
}

/** Widths that the table lists; others are found by name. */
const LISTED = [8, 64, 256];

export const WGMMA: readonly Intrinsic[] = WGMMA_FORMS.flatMap((form) =>
  LISTED.filter((n) => wgmmaWidths(form).includes(n)).map((n) => knownRow(form, n)),
);

/** All rows that a search tries. */
export const searchedWgmma = (): readonly Intrinsic[] =>
  WGMMA_FORMS.flatMap((form) => wgmmaWidths(form).map((n) => knownRow(form, n)));

const NAME = /^wgmma\.m64n(\d+)k\d+\.(\w+)\.(\w+(?:\.rs)?)$/;

/** The row of this name, listed or not; undefined where there is no such instruction. */
export function wgmmaNamed(name: string): Intrinsic | undefined {
  const [, n = "", sums, factors] = NAME.exec(name) ?? [];
  const form = WGMMA_FORMS.find((f) => f.sums === sums && factorsOf(f) === factors);
  if (!form || !wgmmaWidths(form).includes(Number(n))) return undefined;
  const row = knownRow(form, Number(n));
  return row.name === name ? row : undefined;
}
