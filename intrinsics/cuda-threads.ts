/**
 * @file Multiply-adds of a single CUDA thread. They have no axes, so every loop of a computation stands outside them.
 *
 *     thread.fma.f32.f16        c[] += f32(a[]) * f32(b[])
 *
 * The schedule, not the instruction, deals loops to the threads of a warp.
 */

import type { DType } from "../abstraction/dtype.ts";
import { type Intrinsic, type OperandSpec, tableRow } from "../abstraction/intrinsic.ts";
import { C_TYPES } from "../abstraction/kernel.ts";
import { unitCost } from "../abstraction/machine.ts";
import { nvidiaTarget } from "../targets/nvidia.ts";

/** What all of them have in common; multiply-adds of four warps per cycle and multiprocessor. */
const THREAD = {
  family: "fma",
  isa: "sm_70",
  language: "cuda",
  extents: {},
  cost: unitCost(nvidiaTarget("h200"), "fma"),
} as const;

const operand = (dtype: DType): OperandSpec => ({
  dtype,
  storage: "thread[0]",
  load: `{reg} = *(const ${C_TYPES[dtype]}*)({ptr});`,
});

const target = (dtype: DType): OperandSpec => ({
  ...operand(dtype),
  store: `*(${C_TYPES[dtype]}*)({ptr}) = {reg};`,
});

/** Converts the bits of a 16-bit float to a float. */
const WIDENED: Readonly<Partial<Record<DType, { readonly call: string; readonly prelude: string }>>> = {
  f16: {
    call: "widened_f16",
    prelude: `__device__ inline float widened_f16(uint16_t x) { float f; asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(x)); return f; }\n`,
  },
  bf16: {
    call: "widened_bf16",
    prelude: "__device__ inline float widened_bf16(uint16_t x) { return __uint_as_float((unsigned)x << 16); }\n",
  },
};

/** Products of 16-bit floats are exact in f32, so rounding once or twice gives the same result. */
function narrowFma(dtype: "f16" | "bf16"): Intrinsic {
  const { call = "", prelude = "" } = WIDENED[dtype] ?? {};
  return tableRow({
    ...THREAD,
    name: `thread.fma.f32.${dtype}`,
    summary: `One f32 multiply-add of two ${dtype}.`,
    compute: "c[] += f32(a[]) * f32(b[])",
    operands: { a: operand(dtype), b: operand(dtype), c: target("f32") },
    emit: `{c} = fmaf(${call}({a}), ${call}({b}), {c});`,
    prelude,
    mnemonic: "FFMA",
    source: "CUDA Math API, fmaf; PTX ISA, cvt",
  });
}

export const THREADS: readonly Intrinsic[] = [
  narrowFma("f16"),
  narrowFma("bf16"),
  tableRow({
    ...THREAD,
    name: "thread.fma.f32",
    summary: "One f32 multiply-add.",
    compute: "c[] += a[] * b[]",
    operands: { a: operand("f32"), b: operand("f32"), c: target("f32") },
    emit: "{c} = fmaf({a}, {b}, {c});",
    mnemonic: "FFMA",
    source: "CUDA Math API, fmaf",
  }),
  tableRow({
    ...THREAD,
    name: "thread.mad.s32.s8",
    summary: "One s32 multiply-add of two s8.",
    compute: "c[] += s32(a[]) * s32(b[])",
    operands: { a: operand("s8"), b: operand("s8"), c: target("s32") },
    emit: "{c} = {a} * {b} + {c};",
    source: "CUDA C++ Programming Guide, Arithmetic Instructions",
  }),
];
