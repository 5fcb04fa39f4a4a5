/**
 * @file SYCL on Intel's GPUs: multiply-adds of the lanes of a sub-group, and matrix products by the joint_matrix extension.
 *
 *     sycl.fma.8.f32.broadcast       c[n] += a[] * b[n]               {c} = sycl::fma({a}, {b}, {c});            n is the lane
 *     sycl.joint.8x8x16.f32.f16      c[m,n] += f32(a[m,k]) * ...      matrix::joint_matrix_mad(item.get_sub_group(), {c}, {a}, {b}, {c});
 *
 * The vendor does not publish which lane holds which element of a joint matrix, so memory tiles are row-major.
 */

import { bytesOf, type DType } from "../abstraction/dtype.ts";
import { type Cost, type Intrinsic, type OperandSpec, tableRow } from "../abstraction/intrinsic.ts";
import { unitCost } from "../abstraction/machine.ts";
import { GEN9 } from "../targets/intel.ts";
import { DPAS_PAIRS, dpasFacts, type Precision, TF32 } from "./dpas.ts";
import { BOTH, multiplyAddOf, suffix, typesOf } from "./lane-forms.ts";

type Lanes = 8 | 16;
const ISA = { 8: "xe_hpg", 16: "xe_hpc" } as const satisfies Record<Lanes, string>;

/** Types that C lacks; memory holds their bits. */
const TYPES: Readonly<Partial<Record<DType, string>>> = { f16: "sycl::half", bf16: "sycl::ext::oneapi::bfloat16" };

// ---- lanes --------------------------------------------------------------------------------------------------------------------------

const held = (dtype: DType, element: string): string => {
  const type = TYPES[dtype];
  return type === undefined ? element : `sycl::bit_cast<${type}>(${element})`;
};
/** @param at the lane, or 0 for the element of all lanes */
const operand = (dtype: DType, at: "{lane}" | "0" = "{lane}"): OperandSpec => ({
  dtype,
  storage: "item[n]",
  load: `{reg} = ${held(dtype, `({ptr})[${at}]`)};`,
});

/** An instruction on as many lanes as an engine issues per cycle; 32-bit integers take four cycles. */
export const lanesCost = (lanes: Lanes, isFloat: boolean): Cost => ({
  issueCycles: isFloat ? 1 : 4,
  latencyCycles: isFloat ? 10 : 16,
  source: `Intel Graphics Compiler, scheduler tables: float pipe 10 cycles, one issue a cycle of ${lanes} lanes; integers assumed; not measured`,
});

/** Two cycles for sixteen lanes, and twice that for a product of integers and its sum. */
function gen9Cost(isFloat: boolean): Cost {
  const { issueCycles, latencyCycles, source } = unitCost(GEN9, "fma");
  return isFloat
    ? { issueCycles, latencyCycles, source }
    : { issueCycles: 2 * issueCycles, latencyCycles: 2 * latencyCycles, source: `assumed: two of these: ${source}` };
}

/**
 * @param shared whether all lanes share one factor
 * @param gen9 whether it is for Gen9, which has no bf16 or tf32
 */
function multiplyAdd(lanes: Lanes, sum: "f32" | "s32", a: DType, b: DType, shared: boolean, gen9 = false): Intrinsic {
  const isFloat = sum === "f32";
  const isPlain = a === sum;
  const factors = isPlain ? "" : `.${typesOf(a, b)}`;
  const float = isPlain ? "" : "(float)";
  // Unsigned, because overflow of a signed sum is undefined.
  const sumOfIntegers = "{c} = (int32_t)((uint32_t){c} + (uint32_t)((int32_t){a} * (int32_t){b}));";
  return tableRow({
    name: `sycl${gen9 ? ".gen9" : ""}.fma.${lanes}.${sum}${factors}${suffix(shared)}`,
    family: "sycl",
    isa: gen9 ? "gen9" : ISA[lanes],
    language: "sycl",
    scope: "subgroup",
    summary: `${lanes} products of ${a} by ${b} on the lanes of a sub-group, added to sums in ${sum}${shared ? ", one factor common to all" : ""}.`,
    compute: multiplyAddOf(sum, a, shared),
    extents: { n: lanes },
    operands: {
      a: operand(a, shared ? "0" : "{lane}"),
      b: operand(b),
      c: { ...operand(sum), store: "({ptr})[{lane}] = {reg};" },
    },
    emit: isFloat ? `{c} = sycl::fma(${float}{a}, ${float}{b}, {c});` : sumOfIntegers,
    cost: gen9 ? gen9Cost(isFloat) : lanesCost(lanes, isFloat),
    source: "SYCL 2020, section 4.17.5 (fma), 4.9.1.8 (sub_group)",
  });
}

const FACTORS: readonly (readonly ["f32" | "s32", DType, DType])[] = [
  ...(["f32", "f16", "bf16", "tf32"] as const).map((t) => ["f32", t, t] as const),
  ...(["u8", "s8"] as const).flatMap((a) => (["u8", "s8"] as const).map((b) => ["s32", a, b] as const)),
];

// ---- matrices -----------------------------------------------------------------------------------------------------------------------

const POINTER = (dtype: string): string =>
  `sycl::address_space_cast<sycl::access::address_space::{space}_space, sycl::access::decorated::no>((${dtype}*)&({ptr})[0])`;
const GROUP = "item.get_sub_group()";
const MEMORY: Readonly<Partial<Record<DType, string>>> = {
  s8: "int8_t",
  u8: "uint8_t",
  s32: "int32_t",
  f32: "float",
  tf32: "float",
  ...TYPES,
};

function factor(use: "a" | "b", dtype: DType): OperandSpec {
  return {
    dtype,
    storage: `joint_${use}`,
    load: `matrix::joint_matrix_load(${GROUP}, {reg}, ${POINTER(`const ${MEMORY[dtype]}`)}, {stride} / ${bytesOf(dtype)});`,
  };
}

function joint(lanes: Lanes, a: Precision, b: Precision): Intrinsic {
  const { sum, k, types, facts } = dpasFacts(lanes, a, b);
  const type = MEMORY[sum];
  return tableRow({
    ...facts,
    name: `sycl.joint.8x${lanes}x${k}.${types}`,
    family: "joint_matrix",
    language: "sycl",
    summary: `An 8x${lanes}x${k} matrix product of a sub-group: ${a.dtype} by ${b.dtype}, ${sum} sums.`,
    operands: {
      a: factor("a", a.dtype),
      b: factor("b", b.dtype),
      c: {
        dtype: sum,
        storage: "joint_c",
        load: `matrix::joint_matrix_load(${GROUP}, {reg}, ${POINTER(`${type}`)}, {stride} / 4, matrix::layout::row_major);`,
        store: `matrix::joint_matrix_store(${GROUP}, {reg}, ${POINTER(`${type}`)}, {stride} / 4, matrix::layout::row_major);`,
      },
    },
    prelude: "namespace matrix = sycl::ext::oneapi::experimental::matrix;",
    emit: `matrix::joint_matrix_mad(${GROUP}, {c}, {a}, {b}, {c});`,
    source: "sycl_ext_oneapi_matrix, joint_matrix: supported combinations, Intel XMX",
  });
}

const ON_GEN9 = FACTORS.filter(([, a]) => a !== "bf16" && a !== "tf32").flatMap(([sum, a, b]) =>
  BOTH.map((shared) => multiplyAdd(16, sum, a, b, shared, true)),
);

const onXe = ([8, 16] as const).flatMap((of) => {
  return [
    ...DPAS_PAIRS.map(([a, b]) => joint(of, a, b)),
    ...(of === 16 ? [joint(of, TF32, TF32)] : []),
    ...FACTORS.flatMap(([sum, a, b]) => BOTH.map((shared) => multiplyAdd(of, sum, a, b, shared))),
  ];
});

export const SYCL_ROWS: readonly Intrinsic[] = [...onXe, ...ON_GEN9];
