/**
 * @file The table of instructions, and how users name them.
 *
 *     intrinsicsNamed("amx.tdpbusd")      that row
 *     intrinsicsNamed("vnni")             a family: VPDPBUSD and VPDPBUSDS in every width
 *     intrinsicsNamed("avx512")           a table of this folder
 *     intrinsicsNamed("avx512_vnni")      what a feature gives
 *
 * A row is a literal in the file of its instruction set, or made from one by a factory of rows that are alike. What it asks for, its registers and
 * its unit are in targets/, which also says what a change touches. Every row is executed against its own equation (`runtime/conformance.ts`).
 */

import { byName, namesOf } from "../abstraction/collections.ts";
import { suggestion, UsageError } from "../abstraction/error.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import { AMX } from "./amx.ts";
import { ARM } from "./arm.ts";
import { AVX2, avx2Vpmulld, avx2Vpmullw } from "./avx2.ts";
import { AVX512_FMA, avx512FmaBf16, avx512Vpmulld, avx512Vpmullw } from "./avx512.ts";
import { AVX512_DOT, avx512Vpdpwssd } from "./avx512-dot.ts";
import { AVX512_INNER } from "./avx512-inner.ts";
import { CM } from "./cm.ts";
import { CUDA, cudaFmaF16, cudaMadS32 } from "./cuda.ts";
import { THREADS } from "./cuda-threads.ts";
import { DPAS } from "./dpas.ts";
import { DPAS_OPENCL } from "./dpas-opencl.ts";
import { LOOPS } from "./loops.ts";
import { MALI } from "./mali.ts";
import { MMA } from "./mma.ts";
import { OPENCL_ROWS } from "./opencl.ts";
import { GEN9_ROWS, MALI_LANES } from "./opencl-lanes.ts";
import { ownIntrinsicNamed, ownIntrinsics } from "./own.ts";
import { PORTABLE } from "./portable.ts";
import { AVX2_SIGNED, AVX512_SIGNED } from "./signed-bytes.ts";
import { SVE } from "./sve.ts";
import { SYCL_ROWS } from "./sycl.ts";
import { THREAD } from "./thread.ts";
import { VIRTUAL } from "./virtual.ts";
import { WGMMA, wgmmaNamed } from "./wgmma.ts";
import { WMMA } from "./wmma.ts";

/** The rows of each file of this folder. */
export const INTRINSIC_TABLES: Readonly<Record<string, readonly Intrinsic[]>> = {
  avx2: [...AVX2, ...AVX2_SIGNED],
  avx512: [...AVX512_FMA, ...AVX512_DOT, ...AVX512_SIGNED, avx512FmaBf16, avx512Vpdpwssd, ...AVX512_INNER],
  amx: AMX,
  wmma: WMMA,
  mma: MMA,
  wgmma: WGMMA,
  cuda: [...CUDA, ...THREADS],
  dpas: [...DPAS, ...DPAS_OPENCL],
  cm: CM,
  arm: ARM,
  sve: SVE,
  mali: [...MALI, ...MALI_LANES],
  opencl: [...OPENCL_ROWS, ...GEN9_ROWS],
  sycl: SYCL_ROWS,
  virtual: VIRTUAL,
  portable: PORTABLE,
};

/** The table: the rows of all files of this folder. */
export const INTRINSICS: readonly Intrinsic[] = Object.values(INTRINSIC_TABLES).flat();

/** Products for lanes only; mappings have better instructions. */
const LANES_ONLY: readonly Intrinsic[] = [
  avx512Vpmulld,
  avx2Vpmulld,
  avx512Vpmullw,
  avx2Vpmullw,
  cudaFmaF16,
  cudaMadS32,
];

const BY_NAME = byName([...INTRINSICS, ...LANES_ONLY, ...LOOPS, THREAD]);

/** The rows to choose from: the table, then the instructions that the user registered. */
export function knownIntrinsics(): readonly Intrinsic[] {
  return [...INTRINSICS, ...ownIntrinsics()];
}

/** The CPU instructions of the table that a machine supports. Plain C++ is not among them, because no machine lists it as a feature. */
export function instructionsOf({ isa }: { readonly isa: readonly string[] }): Intrinsic[] {
  return INTRINSICS.filter((row) => row.language === "c++" && row.features.every((needed) => isa.includes(needed)));
}

/**
 * The instruction with this name, including what no mapping uses, products for lanes and plain loops, and widths of `wgmma` that the table does not
 * list.
 */
export function intrinsicNamed(name: string): Intrinsic | undefined {
  return BY_NAME.get(name) ?? ownIntrinsicNamed(name) ?? wgmmaNamed(name);
}

/**
 * The row of this name; else the rows of this family, table or feature.
 * @throws UsageError when nothing is called so, with the nearest name
 */
export function intrinsicsNamed(word: string): readonly Intrinsic[] {
  if (word === "loops") return LOOPS;
  const exact = intrinsicNamed(word);
  if (exact) return [exact];
  const table = Object.hasOwn(INTRINSIC_TABLES, word) ? (INTRINSIC_TABLES[word] ?? []) : [];
  const known = knownIntrinsics();
  const found = known.filter((row) => row.family === word || row.isa === word || table.includes(row));
  if (found.length > 0) return found;
  const words = [...Object.keys(INTRINSIC_TABLES), ...known.flatMap((row) => [row.family, row.isa]), ...namesOf(known)];
  throw new UsageError(`no intrinsic, family or feature "${word}"`, suggestion(word, [...new Set(words)]));
}
