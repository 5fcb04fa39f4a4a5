/**
 * @file What a register is called in the language its instruction is reached from.
 *
 *     declareRegister(vpdpbusd, operandOf(vpdpbusd, "c"), code`c`)      __m512i c;
 *     declareRegister(wmma16, operandOf(wmma16, "a"), code`a`)          wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a;
 *
 * AMX tiles are numbers and not variables: they have a name and no declaration.
 */

import { extentOf } from "./affine.ts";
import { extentsOf } from "./computation.ts";
import { bytesOf, type DType } from "./dtype.ts";
import { type Intrinsic, lanesOf, type Operand, registerElements } from "./intrinsic.ts";
import { C_TYPES } from "./kernel.ts";
import { VIEW_ALIGNMENT } from "./matrix-view.ts";
import { type Code, code, join, type Name, NOTHING } from "./source-text.ts";

/** Lanes of a warp. */
export const WARP = 32;

/** What stands for the register in `load`, `store` and `emit`: the variable, or the number of the AMX tile. */
export function registerName(intrinsic: Intrinsic, operand: Operand, variable: Code | Name): Code {
  return operand.file === "tile" ? code`${intrinsic.operands.indexOf(operand)}` : code`${variable}`;
}

/** A statement that declares the register; empty where there is nothing to declare. */
export function declareRegister(intrinsic: Intrinsic, operand: Operand, variable: Code | Name): Code {
  const { dtype, file } = operand;
  const elements = registerElements(intrinsic, operand);
  switch (file) {
    case "tile":
      return NOTHING;
    case "zmm":
      return code`__m512${X86_SUFFIX[dtype] ?? "i"} ${variable};`;
    case "ymm":
      return code`__m256${X86_SUFFIX[dtype] ?? "i"} ${variable};`;
    case "xmm":
      return code`__m128${X86_SUFFIX[dtype] ?? "i"} ${variable};`;
    case "v":
      return code`${ARM_TYPE[dtype] ?? unknown(intrinsic, operand)} ${variable};`;
    case "vec":
      return code`lanes<${C_TYPES[dtype]}, ${elements}> ${variable};`;
    case "grf":
      return code`vector<${CM_TYPE[dtype] ?? unknown(intrinsic, operand)}, ${elements}> ${variable};`;
    case "reg": {
      const type = OPENCL_TYPE[dtype] ?? unknown(intrinsic, operand);
      return elements === 1 ? code`${type} ${variable};` : code`${type}${elements} ${variable};`;
    }
    case "lane":
      return code`${laneType(dtype)} ${variable};`;
    case "frag":
      return code`${fragmentType(dtype)} ${variable}[${(elements / lanesOf(intrinsic)) * (bytesOf(dtype) / 4)}];`;
    case "shared":
      return code`__shared__ __align__(${VIEW_ALIGNMENT}) ${C_TYPES[dtype]} ${variable}[${elements}];`;
    case "wmma::matrix_a":
    case "wmma::matrix_b":
    case "wmma::accumulator": {
      const extents = extentsOf(intrinsic.computation);
      const shape = join(
        ["m", "n", "k"].map((axis) => code`${extentOf(axis, extents)}`),
        code`, `,
      );
      const type = WMMA_TYPE[dtype] ?? unknown(intrinsic, operand);
      const layout = file === "wmma::accumulator" ? "" : ", wmma::row_major";
      return code`wmma::fragment<${file}, ${shape}, ${type}${layout}> ${variable};`;
    }
    default:
      return unknown(intrinsic, operand);
  }
}

/** Suffix of `__m512`; integers have `i`. */
const X86_SUFFIX: Partial<Record<DType, "" | "d" | "h" | "bh">> = { f32: "", f64: "d", f16: "h", bf16: "bh" };

const ARM_TYPE: Partial<Record<DType, Code>> = {
  s8: code`int8x16_t`,
  u8: code`uint8x16_t`,
  s32: code`int32x4_t`,
  u32: code`uint32x4_t`,
  f32: code`float32x4_t`,
};

const CM_TYPE: Partial<Record<DType, Code>> = {
  s8: code`char`,
  u8: code`uchar`,
  s32: code`int`,
  u32: code`uint`,
  f16: code`half`,
  bf16: code`ushort`,
  tf32: code`float`,
  f32: code`float`,
};

const OPENCL_TYPE: Partial<Record<DType, Code>> = {
  s8: code`char`,
  u8: code`uchar`,
  s32: code`int`,
  u32: code`uint`,
  f32: code`float`,
};

const WMMA_TYPE: Partial<Record<DType, Code>> = {
  f16: code`__half`,
  bf16: code`__nv_bfloat16`,
  tf32: code`wmma::precision::tf32`,
  s8: code`signed char`,
  u8: code`unsigned char`,
  s32: code`int`,
  f32: code`float`,
  f64: code`double`,
};

/** Four bytes share a lane's register. */
function laneType(dtype: DType): "float" | "double" | "unsigned" | "int" {
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
function fragmentType(dtype: DType): "float" | "int" | "unsigned" {
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
