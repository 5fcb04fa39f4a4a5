/**
 * @file What a register is called in the language its instruction is reached from.
 *
 *     declareRegister(vpdpbusd, operandOf(vpdpbusd, "c"), "c")      __m512i c;
 *     declareRegister(wmma16, operandOf(wmma16, "a"), "a")          wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a;
 *
 * AMX tiles are numbers and not variables: they have a name and no declaration.
 */

import { extentOf } from "./affine.ts";
import { extentsOf } from "./computation.ts";
import { bytesOf, type DType } from "./dtype.ts";
import { type Intrinsic, type Operand, registerElements } from "./intrinsic.ts";
import { C_TYPES } from "./kernel.ts";

/** Lanes of a warp. */
export const WARP = 32;

/** What stands for the register in `load`, `store` and `emit`: the variable, or the number of the AMX tile. */
export function registerName(intrinsic: Intrinsic, operand: Operand, variable: string): string {
  return operand.file === "tile" ? String(intrinsic.operands.indexOf(operand)) : variable;
}

/** A statement that declares the register; empty where there is nothing to declare. */
export function declareRegister(intrinsic: Intrinsic, operand: Operand, variable: string): string {
  const { dtype, file } = operand;
  const elements = registerElements(intrinsic, operand);
  switch (file) {
    case "tile":
      return "";
    case "zmm":
      return `${X86_SUFFIX[dtype] === undefined ? "__m512i" : `__m512${X86_SUFFIX[dtype]}`} ${variable};`;
    case "ymm":
      return `${X86_SUFFIX[dtype] === undefined ? "__m256i" : `__m256${X86_SUFFIX[dtype]}`} ${variable};`;
    case "xmm":
      return `${X86_SUFFIX[dtype] === undefined ? "__m128i" : `__m128${X86_SUFFIX[dtype]}`} ${variable};`;
    case "v":
      return `${ARM_TYPE[dtype] ?? unknown(intrinsic, operand)} ${variable};`;
    case "vec":
      return `lanes<${C_TYPES[dtype]}, ${elements}> ${variable};`;
    case "grf":
      return `vector<${CM_TYPE[dtype] ?? unknown(intrinsic, operand)}, ${elements}> ${variable};`;
    case "reg":
      return `${OPENCL_TYPE[dtype] ?? unknown(intrinsic, operand)}${elements === 1 ? "" : elements} ${variable};`;
    case "lane":
      return `${laneType(dtype)} ${variable};`;
    case "frag":
      return `${fragmentType(dtype)} ${variable}[${(elements / WARP) * (bytesOf(dtype) / 4)}];`;
    case "wmma::matrix_a":
    case "wmma::matrix_b":
    case "wmma::accumulator": {
      const extents = extentsOf(intrinsic.computation);
      const shape = ["m", "n", "k"].map((axis) => extentOf(axis, extents)).join(", ");
      const layout = file === "wmma::accumulator" ? "" : ", wmma::row_major";
      return `wmma::fragment<${file}, ${shape}, ${WMMA_TYPE[dtype] ?? unknown(intrinsic, operand)}${layout}> ${variable};`;
    }
    default:
      return unknown(intrinsic, operand);
  }
}

/** Suffix of `__m512`; integers have `i`. */
const X86_SUFFIX: Partial<Record<DType, string>> = { f32: "", f64: "d", f16: "h", bf16: "bh" };

const ARM_TYPE: Partial<Record<DType, string>> = {
  s8: "int8x16_t",
  u8: "uint8x16_t",
  s32: "int32x4_t",
  u32: "uint32x4_t",
  f32: "float32x4_t",
};

const CM_TYPE: Partial<Record<DType, string>> = {
  s8: "char",
  u8: "uchar",
  s32: "int",
  u32: "uint",
  f16: "half",
  bf16: "ushort",
  tf32: "float",
  f32: "float",
};

const OPENCL_TYPE: Partial<Record<DType, string>> = { s8: "char", u8: "uchar", s32: "int", u32: "uint", f32: "float" };

const WMMA_TYPE: Partial<Record<DType, string>> = {
  f16: "__half",
  bf16: "__nv_bfloat16",
  tf32: "wmma::precision::tf32",
  s8: "signed char",
  u8: "unsigned char",
  s32: "int",
  f32: "float",
  f64: "double",
};

/** Four bytes share a lane's register. */
function laneType(dtype: DType): string {
  switch (dtype) {
    case "f32":
      return "float";
    case "f64":
      return "double";
    case "u8":
    case "u32":
      return "unsigned";
    default:
      return "int";
  }
}

/** PTX passes f32 and s32 as such and everything else as 32 bits. */
function fragmentType(dtype: DType): string {
  switch (dtype) {
    case "f32":
      return "float";
    case "s32":
      return "int";
    default:
      return "unsigned";
  }
}

function unknown(intrinsic: Intrinsic, { name, dtype, file }: Operand): never {
  throw new Error(`${intrinsic.name}: no register type is known for ${dtype} in "${file}" (operand ${name})`);
}
