/**
 * @file Arithmetic on vectors of sixteen elements in OpenCL C, by a single work-item; any OpenCL device can run it.
 *
 *     opencl.fma.f32.broadcast       c[n] += a[] * b[n]                {c} = fma({a}, {b}, {c});
 *     opencl.mad.s32.u8s8.broadcast  c[n] += s32(a[]) * s32(b[n])      {c} = as_int16(as_uint16({c}) + as_uint16(convert_int16({a}) * ...
 */

import type { DType } from "../abstraction/dtype.ts";
import { defineIntrinsic, type Intrinsic, type OperandSpec } from "../abstraction/intrinsic.ts";
import { OPENCL_ISA } from "../targets/opencl.ts";

const LANES = 16;
const TYPES = { s8: "char", u8: "uchar", s32: "int", f32: "float" } as const satisfies Partial<Record<DType, string>>;
type Type = keyof typeof TYPES;

const SOURCE = "OpenCL C specification, vload, fma, convert";

const sideBySide = (dtype: Type): OperandSpec => ({
  dtype,
  storage: "wide[n]",
  load: `{reg} = vload${LANES}(0, ({space} const ${TYPES[dtype]}*)({ptr}));`,
});
const common = (dtype: Type): OperandSpec => ({
  dtype,
  storage: "wide[n]",
  load: `{reg} = (${TYPES[dtype]}${LANES})(*({space} const ${TYPES[dtype]}*)({ptr}));`,
});
const result = (dtype: Type): OperandSpec => ({
  ...sideBySide(dtype),
  store: `vstore${LANES}({reg}, 0, ({space} ${TYPES[dtype]}*)({ptr}));`,
});

/** @param shared whether all lanes share one factor */
function multiplyAdd(sum: "f32" | "s32", a: Type, b: Type, shared: boolean): Intrinsic {
  const isFloat = sum === "f32";
  const factors = isFloat ? "" : `.${a === b ? a : a + b}`;
  const [left, right] = isFloat ? ["a", "b"] : ["s32(a", "s32(b"];
  const close = isFloat ? "" : ")";
  const compute: string = `c[n] += ${left}[${shared ? "" : "n"}]${close} * ${right}[n]${close}`;
  return defineIntrinsic({
    name: `opencl.${isFloat ? "fma" : "mad"}.${sum}${factors}${shared ? ".broadcast" : ""}`,
    family: "opencl",
    isa: OPENCL_ISA,
    language: "opencl",
    summary: `Sixteen products of ${a} by ${b}, added to sums in ${sum}${shared ? ", with one factor common to all lanes" : ""}.`,
    compute,
    extents: { n: LANES },
    operands: { a: shared ? common(a) : sideBySide(a), b: sideBySide(b), c: result(sum) },
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

export const OPENCL_ROWS: readonly Intrinsic[] = [
  multiplyAdd("f32", "f32", "f32", true),
  multiplyAdd("f32", "f32", "f32", false),
  ...(["u8", "s8"] as const).flatMap((a) => [multiplyAdd("s32", a, "s8", true), multiplyAdd("s32", a, "s8", false)]),
];
