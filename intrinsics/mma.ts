/**
 * @file PTX `mma.sync`: a warp's matrix product on registers whose layout the manual gives.
 *
 *     mma.m16n8k16.f32.f16      c[m,n] += f32(a[m,k]) * f32(b[k,n])
 *     a                         frag[8*(4*(m%8) + (k%8)/2) + 4*(k/8) + 2*(m/8) + k%2]      8 elements a lane, 32 lanes
 *
 * `frag[elements*lane + element]`: the formula inverts the manual's (groupID = lane / 4, threadID_in_group = lane % 4). A memory
 * tile holds the lanes' registers one after another, so that a lane loads its own with one vector access.
 */

import { type OperandSpec, tableRow } from "../abstraction/intrinsic.ts";
import { matrixCost } from "../abstraction/machine.ts";
import { nvidiaTarget } from "../targets/nvidia.ts";

const LOAD_FRAGMENT = `#ifndef AUTOMAP_FRAGMENT
#define AUTOMAP_FRAGMENT
/* A memory tile is the fragment: lane 0's registers, then lane 1's ... */
template <class T, int N> __device__ inline void load_fragment(T (&reg)[N], const void* tile) {
  for (int i = 0; i < N; i++) reg[i] = ((const T*)tile)[N * (threadIdx.x % 32) + i];
}
template <class T, int N> __device__ inline void store_fragment(void* tile, const T (&reg)[N]) {
  for (int i = 0; i < N; i++) ((T*)tile)[N * (threadIdx.x % 32) + i] = reg[i];
}
#endif
`;

const LOAD = "load_fragment({reg}, {ptr});";
const STORE = "store_fragment({ptr}, {reg});";
const CLEAR = "for (auto& word : {reg}) word = 0;";

interface Form {
  /** Types in the order of the PTX instruction: d, a, b, c. */
  readonly types: string;
  /** 32-bit registers per lane of each operand. */
  readonly registers: { readonly a: number; readonly b: number; readonly c: number };
  /** C++ type of a register of the sums, and its constraint letter in inline assembly. */
  readonly sum: readonly [type: string, letter: string];
}

/** The device function `mma_m16n8k16_f32_f16(c, a, b)` around the assembly. */
function prelude(fn: string, shape: string, { types, registers, sum }: Form): string {
  const list = (from: number, count: number): string =>
    `{${Array.from({ length: count }, (_, i) => `%${from + i}`).join(",")}}`;
  const each = (count: number, text: (i: number) => string): string =>
    Array.from({ length: count }, (_, i) => text(i)).join(", ");
  const { a, b, c } = registers;
  const [type, letter] = sum;
  return `${LOAD_FRAGMENT}
__device__ inline void ${fn}(${type} (&c)[${c}], const unsigned (&a)[${a}], const unsigned (&b)[${b}]) {
  asm volatile("mma.sync.aligned.${shape}.row.col.${types} ${list(0, c)}, ${list(c, a)}, ${list(c + a, b)}, ${list(0, c)};"
    : ${each(c, (i) => `"+${letter}"(c[${i}])`)}
    : ${each(a, (i) => `"r"(a[${i}])`)}, ${each(b, (i) => `"r"(b[${i}])`)});
}
`;
}

type Compute =
  | "c[m,n] += f32(a[m,k]) * f32(b[k,n])"
  | "c[m,n] += a[m,k] * b[k,n]"
  | "c[m,n] += s32(a[m,k]) * s32(b[k,n])";

interface Row extends Form {
  readonly name: string;
  readonly isa: string;
  readonly compute: Compute;
  readonly k: number;
  readonly operands: Readonly<Record<"a" | "b" | "c", OperandSpec>>;
  /** Whether the rate of the family was measured on this shape. */
  readonly timed?: true;
}

function mma({ name, isa, compute, k, operands, timed, ...form }: Row) {
  const [, shape = ""] = name.split(".");
  const fn = name.replaceAll(".", "_");
  const extents = { m: 16, n: 8, k };
  const cost = timed && matrixCost(nvidiaTarget("h200"), "mma", operands.a.dtype, extents);
  return tableRow({
    name,
    family: "mma",
    isa,
    language: "cuda",
    scope: "warp",
    summary: `A 16x8x${k} matrix product of a warp: ${operands.a.dtype} by ${operands.b.dtype}, ${operands.c.dtype} sums.`,
    compute,
    extents,
    operands: {
      a: { load: LOAD, ...operands.a },
      b: { load: LOAD, ...operands.b },
      c: { load: LOAD, store: STORE, clear: CLEAR, ...operands.c },
    },
    emit: `${fn}({c}, {a}, {b});`,
    prelude: prelude(fn, shape, form),
    ...(cost && { cost }),
    mnemonic: operands.c.dtype === "s32" ? "IMMA" : "HMMA",
    source: `PTX ISA, Matrix Fragments for mma.${shape}`,
  });
}

// Sums of every shape below: rows lane/4 and lane/4 + 8, columns 2*(lane%4) and the next.
const C = "frag[4*(4*(m%8) + n/2) + 2*(m/8) + n%2]";

// 16-bit factors, k 8: two elements a register, rows lane/4 and lane/4 + 8.
const A16_K8 = "frag[4*(4*(m%8) + k/2) + 2*(m/8) + k%2]";
const B16_K8 = "frag[2*(4*n + k/2) + k%2]";

// 16-bit factors, k 16: the same twice, k 0..7 then k 8..15.
const A16_K16 = "frag[8*(4*(m%8) + (k%8)/2) + 4*(k/8) + 2*(m/8) + k%2]";
const B16_K16 = "frag[4*(4*n + (k%8)/2) + 2*(k/8) + k%2]";

// 8-bit factors, k 32: four elements a register.
const A8_K32 = "frag[16*(4*(m%8) + (k%16)/4) + 8*(k/16) + 4*(m/8) + k%4]";
const B8_K32 = "frag[8*(4*n + (k%16)/4) + 4*(k/16) + k%4]";

const FLOAT = ["float", "f"] as const;
const INT = ["int", "r"] as const;
const PACKED = ["unsigned", "r"] as const;

export const MMA = [
  mma({
    name: "mma.m16n8k8.f32.f16",
    isa: "sm_75",
    compute: "c[m,n] += f32(a[m,k]) * f32(b[k,n])",
    k: 8,
    operands: {
      a: { dtype: "f16", storage: A16_K8 },
      b: { dtype: "f16", storage: B16_K8 },
      c: { dtype: "f32", storage: C },
    },
    types: "f32.f16.f16.f32",
    registers: { a: 2, b: 1, c: 4 },
    sum: FLOAT,
  }),
  mma({
    name: "mma.m16n8k8.f16.f16",
    isa: "sm_75",
    compute: "c[m,n] += a[m,k] * b[k,n]",
    k: 8,
    operands: {
      a: { dtype: "f16", storage: A16_K8 },
      b: { dtype: "f16", storage: B16_K8 },
      c: { dtype: "f16", storage: C },
    },
    types: "f16.f16.f16.f16",
    registers: { a: 2, b: 1, c: 2 },
    sum: PACKED,
  }),
  mma({
    name: "mma.m16n8k16.f32.f16",
    isa: "sm_80",
    compute: "c[m,n] += f32(a[m,k]) * f32(b[k,n])",
    k: 16,
    operands: {
      a: { dtype: "f16", storage: A16_K16 },
      b: { dtype: "f16", storage: B16_K16 },
      c: { dtype: "f32", storage: C },
    },
    types: "f32.f16.f16.f32",
    registers: { a: 4, b: 2, c: 4 },
    sum: FLOAT,
    timed: true,
  }),
  mma({
    name: "mma.m16n8k16.f16.f16",
    isa: "sm_80",
    compute: "c[m,n] += a[m,k] * b[k,n]",
    k: 16,
    operands: {
      a: { dtype: "f16", storage: A16_K16 },
      b: { dtype: "f16", storage: B16_K16 },
      c: { dtype: "f16", storage: C },
    },
    types: "f16.f16.f16.f16",
    registers: { a: 4, b: 2, c: 2 },
    sum: PACKED,
    timed: true,
  }),
  mma({
    name: "mma.m16n8k8.f32.bf16",
    isa: "sm_80",
    compute: "c[m,n] += f32(a[m,k]) * f32(b[k,n])",
    k: 8,
    operands: {
      a: { dtype: "bf16", storage: A16_K8 },
      b: { dtype: "bf16", storage: B16_K8 },
      c: { dtype: "f32", storage: C },
    },
    types: "f32.bf16.bf16.f32",
    registers: { a: 2, b: 1, c: 4 },
    sum: FLOAT,
  }),
  mma({
    name: "mma.m16n8k16.f32.bf16",
    isa: "sm_80",
    compute: "c[m,n] += f32(a[m,k]) * f32(b[k,n])",
    k: 16,
    operands: {
      a: { dtype: "bf16", storage: A16_K16 },
      b: { dtype: "bf16", storage: B16_K16 },
      c: { dtype: "f32", storage: C },
    },
    types: "f32.bf16.bf16.f32",
    registers: { a: 4, b: 2, c: 4 },
    sum: FLOAT,
    timed: true,
  }),
  mma({
    name: "mma.m16n8k4.f32.tf32",
    isa: "sm_80",
    compute: "c[m,n] += f32(a[m,k]) * f32(b[k,n])",
    k: 4,
    operands: {
      a: { dtype: "tf32", storage: "frag[2*(4*(m%8) + k) + m/8]" },
      b: { dtype: "tf32", storage: "frag[4*n + k]" },
      c: { dtype: "f32", storage: C },
    },
    types: "f32.tf32.tf32.f32",
    registers: { a: 2, b: 1, c: 4 },
    sum: FLOAT,
  }),
  mma({
    name: "mma.m16n8k8.f32.tf32",
    isa: "sm_80",
    compute: "c[m,n] += f32(a[m,k]) * f32(b[k,n])",
    k: 8,
    operands: {
      a: { dtype: "tf32", storage: "frag[4*(4*(m%8) + k%4) + 2*(k/4) + m/8]" },
      b: { dtype: "tf32", storage: "frag[2*(4*n + k%4) + k/4]" },
      c: { dtype: "f32", storage: C },
    },
    types: "f32.tf32.tf32.f32",
    registers: { a: 4, b: 2, c: 4 },
    sum: FLOAT,
  }),
  mma({
    name: "mma.m16n8k32.s32.s8",
    isa: "sm_80",
    compute: "c[m,n] += s32(a[m,k]) * s32(b[k,n])",
    k: 32,
    operands: {
      a: { dtype: "s8", storage: A8_K32 },
      b: { dtype: "s8", storage: B8_K32 },
      c: { dtype: "s32", storage: C },
    },
    types: "s32.s8.s8.s32",
    registers: { a: 4, b: 2, c: 4 },
    sum: INT,
    timed: true,
  }),
  mma({
    name: "mma.m16n8k32.s32.u8",
    isa: "sm_80",
    compute: "c[m,n] += s32(a[m,k]) * s32(b[k,n])",
    k: 32,
    operands: {
      a: { dtype: "u8", storage: A8_K32 },
      b: { dtype: "u8", storage: B8_K32 },
      c: { dtype: "s32", storage: C },
    },
    types: "s32.u8.u8.s32",
    registers: { a: 4, b: 2, c: 4 },
    sum: INT,
    timed: true,
  }),
  mma({
    name: "mma.m16n8k32.s32.u8s8",
    isa: "sm_80",
    compute: "c[m,n] += s32(a[m,k]) * s32(b[k,n])",
    k: 32,
    operands: {
      a: { dtype: "u8", storage: A8_K32 },
      b: { dtype: "s8", storage: B8_K32 },
      c: { dtype: "s32", storage: C },
    },
    types: "s32.u8.s8.s32",
    registers: { a: 4, b: 2, c: 4 },
    sum: INT,
    timed: true,
  }),
  mma({
    name: "mma.m16n8k32.s32.s8u8",
    isa: "sm_80",
    compute: "c[m,n] += s32(a[m,k]) * s32(b[k,n])",
    k: 32,
    operands: {
      a: { dtype: "s8", storage: A8_K32 },
      b: { dtype: "u8", storage: B8_K32 },
      c: { dtype: "s32", storage: C },
    },
    types: "s32.s8.u8.s32",
    registers: { a: 4, b: 2, c: 4 },
    sum: INT,
    timed: true,
  }),
];
