/**
 * @file PTX `mma.sync`: a warp's matrix product on registers whose layout the manual gives.
 *
 *     mma.m16n8k16.f32.f16      c[m,n] += f32(a[m,k]) * f32(b[k,n])
 *     a                         frag[8*(4*(m%8) + (k%8)/2) + 4*(k/8) + 2*(m/8) + k%2]      8 elements a lane, 32 lanes
 *
 * `frag[elements*lane + element]`: the formula inverts the manual's (groupID = lane / 4, threadID_in_group = lane % 4). A memory
 * tile holds the lanes' registers one after another, so that a lane loads its own with one vector access.
 */

import { upTo } from "../abstraction/collections.ts";
import { BYTE_SUM_BITS, bytesOf, type DType, isByteFloat } from "../abstraction/dtype.ts";
import { type Intrinsic, tableRow } from "../abstraction/intrinsic.ts";
import { matrixCost } from "../abstraction/machine.ts";
import { nvidiaTarget } from "../targets/nvidia.ts";
import { typesOf } from "./lane-forms.ts";

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

interface Types {
  readonly a: DType;
  readonly b: DType;
  readonly sum: keyof typeof SUMS;
}

/** C++ type of a register of the sums, and its constraint letter in inline assembly. */
const SUMS = { f32: ["float", "f"], f16: ["unsigned", "r"], s32: ["int", "r"] } as const;

/** 32-bit registers in each of 32 lanes that hold so many elements. */
const registers = (dtype: DType, elements: number): number => (elements * bytesOf(dtype)) / 128;

/** The device function `mma_m16n8k16_f32_f16(c, a, b)` around the assembly. */
function prelude(fn: string, shape: string, { a, b, sum }: Types, k: number): string {
  const list = (from: number, count: number): string =>
    `{${upTo(count)
      .map((i) => `%${from + i}`)
      .join(",")}}`;
  const each = (letter: string, operand: string, count: number): string =>
    upTo(count)
      .map((i) => `"${letter}"(${operand}[${i}])`)
      .join(", ");
  const ofA = registers(a, 16 * k);
  const ofB = registers(b, 8 * k);
  const ofC = registers(sum, 16 * 8);
  const [type, letter] = SUMS[sum];
  return `${LOAD_FRAGMENT}
__device__ inline void ${fn}(${type} (&c)[${ofC}], const unsigned (&a)[${ofA}], const unsigned (&b)[${ofB}]) {
  asm volatile("mma.sync.aligned.${shape}.row.col.${sum}.${a}.${b}.${sum} ${list(0, ofC)}, ${list(ofC, ofA)}, ${list(ofC + ofA, ofB)}, ${list(0, ofC)};"
    : ${each(`+${letter}`, "c", ofC)}
    : ${each("r", "a", ofA)}, ${each("r", "b", ofB)});
}
`;
}

// Sums of every shape below: rows lane/4 and lane/4 + 8, columns 2*(lane%4) and the next.
const C = "frag[4*(4*(m%8) + n/2) + 2*(m/8) + n%2]";

/** Storage of the factors by their bytes and by k. */
const FACTORS: Readonly<Record<string, readonly [a: string, b: string]>> = {
  // Two elements a register, rows lane/4 and lane/4 + 8.
  "2 8": ["frag[4*(4*(m%8) + k/2) + 2*(m/8) + k%2]", "frag[2*(4*n + k/2) + k%2]"],
  // The same twice, k 0..7 then k 8..15.
  "2 16": ["frag[8*(4*(m%8) + (k%8)/2) + 4*(k/8) + 2*(m/8) + k%2]", "frag[4*(4*n + (k%8)/2) + 2*(k/8) + k%2]"],
  // Four elements a register.
  "1 32": ["frag[16*(4*(m%8) + (k%16)/4) + 8*(k/16) + 4*(m/8) + k%4]", "frag[8*(4*n + (k%16)/4) + 4*(k/16) + k%4]"],
  "4 4": ["frag[2*(4*(m%8) + k) + m/8]", "frag[4*n + k]"],
  "4 8": ["frag[4*(4*(m%8) + k%4) + 2*(k/4) + m/8]", "frag[2*(4*n + k%4) + k/4]"],
};

/** SASS has no instruction of floats of one byte on compute capability 9.0, where ptxas converts them to f16. */
const mnemonicOf = ({ a, sum }: Types): string => (sum === "s32" ? "IMMA" : isByteFloat(a) ? "QMMA/HMMA" : "HMMA");

/** @param timed whether the rate of the family is known for this shape */
function mma(isa: string, k: number, { a, b, sum }: Types, timed = false): Intrinsic {
  const shape = `m16n8k${k}`;
  const name = `mma.${shape}.${sum}.${typesOf(a, b)}`;
  const fn = name.replaceAll(".", "_");
  const extents = { m: 16, n: 8, k };
  const cost = timed && matrixCost(nvidiaTarget("h200"), "mma", a, extents);
  const [storageOfA = "", storageOfB = ""] = FACTORS[`${bytesOf(a)} ${k}`] ?? [];
  const compute: string = sum === "f16" ? "c[m,n] += a[m,k] * b[k,n]" : `c[m,n] += ${sum}(a[m,k]) * ${sum}(b[k,n])`;
  return tableRow({
    name,
    family: "mma",
    isa,
    language: "cuda",
    scope: "warp",
    summary: `A 16x8x${k} matrix product of a warp: ${a} by ${b}, ${sum} sums.`,
    compute,
    extents,
    operands: {
      a: { dtype: a, storage: storageOfA, load: LOAD },
      b: { dtype: b, storage: storageOfB, load: LOAD },
      c: { dtype: sum, storage: C, load: LOAD, store: STORE, clear: CLEAR },
    },
    emit: `${fn}({c}, {a}, {b});`,
    prelude: prelude(fn, shape, { a, b, sum }, k),
    ...(cost && { cost }),
    mnemonic: mnemonicOf({ a, b, sum }),
    ...(isByteFloat(a) && { sumBits: BYTE_SUM_BITS }),
    source: `PTX ISA, Matrix Fragments for mma.${shape}`,
  });
}

const alike = (factors: DType, sum: Types["sum"]): Types => ({ a: factors, b: factors, sum });

export const MMA: readonly Intrinsic[] = [
  mma("sm_75", 8, alike("f16", "f32")),
  mma("sm_75", 8, alike("f16", "f16")),
  mma("sm_80", 16, alike("f16", "f32"), true),
  mma("sm_80", 16, alike("f16", "f16"), true),
  mma("sm_80", 8, alike("bf16", "f32")),
  mma("sm_80", 16, alike("bf16", "f32"), true),
  mma("sm_80", 4, alike("tf32", "f32")),
  mma("sm_80", 8, alike("tf32", "f32")),
  mma("sm_80", 32, alike("s8", "s32"), true),
  mma("sm_80", 32, alike("u8", "s32"), true),
  mma("sm_80", 32, { a: "u8", b: "s8", sum: "s32" }, true),
  mma("sm_80", 32, { a: "s8", b: "u8", sum: "s32" }, true),
  mma("sm_89", 32, alike("e4m3", "f32"), true),
  mma("sm_89", 32, { a: "e4m3", b: "e5m2", sum: "f32" }, true),
  mma("sm_89", 32, { a: "e5m2", b: "e4m3", sum: "f32" }, true),
  mma("sm_89", 32, alike("e5m2", "f32"), true),
];
