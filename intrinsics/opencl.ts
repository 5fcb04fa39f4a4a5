/**
 * @file Arithmetic on vectors of sixteen elements in OpenCL C, by a single work-item; any OpenCL device can run it.
 *
 *     opencl.fma.f32.broadcast       c[n] += a[] * b[n]                {c} = fma({a}, {b}, {c});
 *     opencl.vpdpbusd                c[n] += s32(a[n,k]) * s32(b[n,k])      on a CPU with AVX-512 VNNI
 *     opencl.mad.s32.u8s8.broadcast  c[n] += s32(a[]) * s32(b[n])      {c} = as_int16(as_uint16({c}) + as_uint16(convert_int16({a}) * ...
 */

import type { DType } from "../abstraction/dtype.ts";
import { type Intrinsic, type OperandSpec, tableRow } from "../abstraction/intrinsic.ts";
import { OPENCL_ISA } from "../targets/opencl.ts";
import { BOTH, dotOf, multiplyAddOf, suffix, typesOf } from "./lane-forms.ts";

const LANES = 16;
const TYPES = { s8: "char", u8: "uchar", s32: "int", f32: "float" } as const satisfies Partial<Record<DType, string>>;
type Type = keyof typeof TYPES;

const SOURCE = "OpenCL C specification, vload, fma, convert";

/** @param shared whether all lanes have the same element */
const operand = (dtype: Type, shared = false): OperandSpec => ({
  dtype,
  storage: "wide[n]",
  load: shared
    ? `{reg} = (${TYPES[dtype]}${LANES})(*({space} const ${TYPES[dtype]}*)({ptr}));`
    : `{reg} = vload${LANES}(0, ({space} const ${TYPES[dtype]}*)({ptr}));`,
});
const result = (dtype: Type): OperandSpec => ({
  ...operand(dtype),
  store: `vstore${LANES}({reg}, 0, ({space} ${TYPES[dtype]}*)({ptr}));`,
});

/** @param shared whether all lanes share one factor */
function multiplyAdd(sum: "f32" | "s32", a: Type, b: Type, shared: boolean): Intrinsic {
  const isFloat = sum === "f32";
  return tableRow({
    name: `opencl.${isFloat ? "fma.f32" : `mad.s32.${typesOf(a, b)}`}${suffix(shared)}`,
    family: "opencl",
    isa: OPENCL_ISA,
    language: "opencl",
    summary: `Sixteen products of ${a} by ${b}, added to sums in ${sum}${shared ? ", with one factor common to all lanes" : ""}.`,
    compute: multiplyAddOf(sum, a, shared),
    extents: { n: LANES },
    operands: { a: operand(a, shared), b: operand(b), c: result(sum) },
    // Unsigned, because overflow of a signed sum is undefined.
    emit: isFloat
      ? "{c} = fma({a}, {b}, {c});"
      : "{c} = as_int16(as_uint16({c}) + as_uint16(convert_int16({a}) * convert_int16({b})));",
    cost: {
      issueCycles: isFloat ? 0.5 : 2,
      latencyCycles: isFloat ? 4 : 12,
      source: isFloat
        ? "as avx512.fma.f32, which PoCL makes of it on such a CPU; not measured"
        : "assumed: two conversions, a product of 32 bits and a sum in AVX-512; not measured",
    },
    source: SOURCE,
  });
}

/**
 * PoCL's compiler takes a CPU that it does not know for an older one, without this instruction. In assembly it can be had; whether the CPU has it is
 * the target's to say.
 */
const DOT = `typedef int16 __attribute__((aligned(1))) sixty_four_bytes;
typedef int __attribute__((aligned(1))) four_bytes;
#if defined(__clang__) && defined(__AVX512F__)
static inline int16 dot_u8s8(int16 c, int16 a, int16 b) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
  return c;
}
#else
static inline int16 dot_u8s8(int16 c, int16 a, int16 b) {
  const uchar* left = (const uchar*)&a;
  const char* right = (const char*)&b;
  uint* sums = (uint*)&c;
  for (int i = 0; i < 64; i++) sums[i / 4] += (uint)(left[i] * right[i]);
  return c;
}
#endif`;

/** @param shared whether all lanes share one factor */
function dot(shared: boolean): Intrinsic {
  const bytes = (dtype: "u8" | "s8", one: boolean): OperandSpec => ({
    dtype,
    storage: "wide4[4*n + k]",
    load: one
      ? "{reg} = (int16)(*({space} const four_bytes*)({ptr}));"
      : "{reg} = *({space} const sixty_four_bytes*)({ptr});",
  });
  return tableRow({
    name: `opencl.vpdpbusd${suffix(shared)}`,
    family: "opencl",
    isa: "opencl_vnni",
    language: "opencl",
    summary: `Sixteen dot products of four u8 by s8, added to sums in s32${shared ? ", with one factor common to all lanes" : ""}.`,
    compute: dotOf("s32", shared),
    extents: { n: LANES, k: 4 },
    operands: { a: bytes("u8", shared), b: bytes("s8", false), c: result("s32") },
    prelude: DOT,
    emit: "{c} = dot_u8s8({c}, {a}, {b});",
    cost: { issueCycles: 1, latencyCycles: 5, source: "Intel SDM vol. 2, VPDPBUSD, as in C++; not measured" },
    source: "Intel SDM vol. 2, VPDPBUSD",
  });
}

export const OPENCL_ROWS: readonly Intrinsic[] = [
  ...BOTH.map(dot),
  ...BOTH.map((shared) => multiplyAdd("f32", "f32", "f32", shared)),
  ...(["u8", "s8"] as const).flatMap((a) => BOTH.map((shared) => multiplyAdd("s32", a, "s8", shared))),
];
