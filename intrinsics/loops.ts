/**
 * @file Rows of the table that stand for plain loops: the equation in C++, with the vectors that a compiler may use for it, or in CUDA on threads.
 *
 *     loops            for any CPU
 *     loops.avx2       the compiler may use AVX2 and fused multiply-adds
 *
 * They are no instructions: no mapping uses them, and they promise none. A candidate of plain loops names one of them, which says what the machine
 * needs.
 */

import { type Intrinsic, tableRow } from "../abstraction/intrinsic.ts";
import { PORTABLE_ISA } from "../targets/portable.ts";
import { THREAD } from "./thread.ts";

const row = (name: string, isa: string, summary: string): Intrinsic =>
  tableRow({
    name,
    family: "loops",
    isa,
    language: "c++",
    summary,
    compute: "c[] = a[]",
    extents: {},
    operands: { a: { dtype: "f32", storage: "element[0]" }, c: { dtype: "f32", storage: "element[0]" } },
    emit: "{c} = {a};",
    source: "ISO C++; GCC manual, Options That Control Optimization (-ftree-vectorize)",
  });

/** Plain loops, by the vectors that the compiler may use for them. */
export const LOOPS: readonly Intrinsic[] = [
  row("loops", PORTABLE_ISA, "Any equation in plain loops."),
  row("loops.avx2", "fma", "Any equation in plain loops, which the compiler may write on vectors of AVX2."),
  row("loops.avx512", "avx512f", "Any equation in plain loops, which the compiler may write on AVX-512."),
];

/** Whether a row stands for plain loops. */
export const isLoops = (row: Intrinsic): boolean => LOOPS.includes(row) || row === THREAD;
