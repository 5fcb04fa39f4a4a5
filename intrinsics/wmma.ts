/**
 * @file CUDA's warp matrix functions: `nvcuda::wmma`, a warp's product of fragments.
 *
 *     wmma.m16n16k16.f32.f16      c[m,n] += f32(a[m,k]) * f32(b[k,n])      sums f32, factors f16
 *
 * The vendor does not publish which lane holds which element of a fragment, so the storage is only a file name and memory tiles are row-major: `b` is
 * k x n. Tiles begin at multiples of 32 bytes.
 */

import type { DType } from "../abstraction/dtype.ts";
import { type Intrinsic, type OperandSpec, tableRow } from "../abstraction/intrinsic.ts";

const PRELUDE = `#include <mma.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
using namespace nvcuda;
`;

interface Factors {
  readonly dtype: DType;
  /** Element type in memory of a fragment, and its bytes. */
  readonly memory: string;
  readonly bytes: number;
}

interface Sums extends Factors {
  readonly compute: string;
}

const F16: Factors = { dtype: "f16", memory: "__half", bytes: 2 };
const BF16: Factors = { dtype: "bf16", memory: "__nv_bfloat16", bytes: 2 };
const TF32: Factors = { dtype: "tf32", memory: "float", bytes: 4 };
const S8: Factors = { dtype: "s8", memory: "signed char", bytes: 1 };
const U8: Factors = { dtype: "u8", memory: "unsigned char", bytes: 1 };
const F64: Factors = { dtype: "f64", memory: "double", bytes: 8 };

const SUM_F32: Sums = { dtype: "f32", memory: "float", bytes: 4, compute: "c[m,n] += f32(a[m,k]) * f32(b[k,n])" };
const SUM_S32: Sums = { dtype: "s32", memory: "int", bytes: 4, compute: "c[m,n] += s32(a[m,k]) * s32(b[k,n])" };
const SUM_F16: Sums = { ...F16, compute: "c[m,n] += a[m,k] * b[k,n]" };
const SUM_F64: Sums = { ...F64, compute: "c[m,n] += a[m,k] * b[k,n]" };

function factor(use: "matrix_a" | "matrix_b", { dtype, memory, bytes }: Factors): OperandSpec {
  return {
    dtype,
    storage: `wmma::${use}`,
    load: `wmma::load_matrix_sync({reg}, (const ${memory}*)({ptr}), {stride} / ${bytes});`,
  };
}

function accumulator({ dtype, memory, bytes }: Sums): OperandSpec {
  return {
    dtype,
    storage: "wmma::accumulator",
    load: `wmma::load_matrix_sync({reg}, (const ${memory}*)({ptr}), {stride} / ${bytes}, wmma::mem_row_major);`,
    store: `wmma::store_matrix_sync((${memory}*)({ptr}), {reg}, {stride} / ${bytes}, wmma::mem_row_major);`,
    clear: "wmma::fill_fragment({reg}, 0);",
  };
}

/** One warp's matrix product. @param shape as CUDA writes it, `[16, 16, 16]` is m16n16k16 */
function wmma(
  isa: string,
  [m, n, k]: readonly [m: number, n: number, k: number],
  sums: Sums,
  factors: Factors,
): Intrinsic {
  return tableRow({
    name: `wmma.m${m}n${n}k${k}.${sums.dtype}.${factors.dtype}`,
    family: "wmma",
    isa,
    language: "cuda",
    scope: "warp",
    summary: `A ${m}x${n}x${k} matrix product of a warp: ${factors.dtype} factors, ${sums.dtype} sums.`,
    compute: sums.compute,
    extents: { m, n, k },
    operands: { a: factor("matrix_a", factors), b: factor("matrix_b", factors), c: accumulator(sums) },
    emit: "wmma::mma_sync({c}, {a}, {b}, {c});",
    mnemonic: { s32: "IMMA", f64: "DMMA" }[String(sums.dtype)] ?? "HMMA",
    prelude: PRELUDE,
    source: "CUDA C++ Programming Guide, Warp Matrix Functions: Element Types and Matrix Sizes",
  });
}

const SHAPES = [
  [16, 16, 16],
  [32, 8, 16],
  [8, 32, 16],
] as const;

/** The products of most types, in every shape. */
const inShapes = (isa: string, sums: Sums, factors: Factors): Intrinsic[] =>
  SHAPES.map((shape) => wmma(isa, shape, sums, factors));

export const WMMA: readonly Intrinsic[] = [
  ...inShapes("sm_70", SUM_F32, F16),
  ...inShapes("sm_70", SUM_F16, F16),
  ...inShapes("sm_80", SUM_F32, BF16),
  wmma("sm_80", [16, 16, 8], SUM_F32, TF32),
  ...inShapes("sm_72", SUM_S32, S8),
  ...inShapes("sm_72", SUM_S32, U8),
  wmma("sm_80", [8, 8, 4], SUM_F64, F64),
];
