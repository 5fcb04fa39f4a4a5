/**
 * @file Dot Product Accumulate Systolic in OpenCL C: Intel's sub-group built-ins, with eight lanes on Xe-HPG (DG2) and sixteen on Xe-HPC.
 *
 *     opencl.dpas.8x8.f32.f16      {c} = intel_sub_group_f16_f16_matrix_mad_k16({a}, {b}, {c});      int8 a, int8 b, float8 c in each lane
 *     opencl.dpas.8x16.f32.f16                                                                       short8 a, int8 b, float8 c
 *
 * Component r of a variable, lane by lane, is row r of the tile: `dwords` hold four bytes per lane and row, `words` two. A block read fetches a row
 * in global memory that begins at a multiple of four bytes; other rows are read byte by byte.
 */

import type { DType } from "../abstraction/dtype.ts";
import { type Intrinsic, type OperandSpec, tableRow } from "../abstraction/intrinsic.ts";
import { dpasFacts, dpasRows, type Precision } from "./dpas.ts";

/** Type names in the extension. */
const WORD: Readonly<Partial<Record<DType, string>>> = { s8: "i8", u8: "u8", f16: "f16", bf16: "bf16", tf32: "tf32" };

/** The type of a fragment of eight rows in each lane. */
interface Fragment {
  /** Register file in {@link INTEL}. */
  readonly file: "dwords" | "words";
  readonly type: "int8" | "short8" | "float8" | "tf32_rows";
}

function fragmentOfA(lanes: 8 | 16, { dtype }: Precision): Fragment {
  if (dtype === "tf32") return { file: "words", type: "tf32_rows" };
  return lanes === 8 ? { file: "dwords", type: "int8" } : { file: "words", type: "short8" };
}

const fragmentOfB = ({ dtype }: Precision): Fragment => ({
  file: "dwords",
  type: dtype === "tf32" ? "float8" : "int8",
});

const ROWS = [0, 1, 2, 3, 4, 5, 6, 7] as const;

/**
 * The rows of tf32 in the lanes of a sub-group. The extension puts two rows into a component of a float4. Compilers that are older than it, such as
 * Intel's 22.43, put one row into a component of a short8, and their built-in has another name. They take the extension's name for an unknown
 * function. Source: the extension; names in the library of Intel's compiler 1.0.12504.
 */
function tf32Rows(lanes: 8 | 16): string {
  const named = (from: "float4" | "short8"): string =>
    loadsOf(lanes, from)
      .replaceAll(new RegExp(`\\b(global|local|block)_${from}\\(`, "g"), "$1_tf32_rows(")
      .replaceAll(`static inline ${from}`, "static inline tf32_rows");
  return [
    "#ifdef cl_intel_subgroup_matrix_multiply_accumulate_tf32",
    "typedef float4 tf32_rows;",
    declared("float8 intel_sub_group_tf32_tf32_matrix_mad_k8(float4, float8, float8)"),
    named("float4"),
    "#else",
    "typedef short8 tf32_rows;",
    named("short8"),
    declared("float8 intel_sub_group_tf32_tf32_matrix_mad_k8_f32(short8, int8, float8)"),
    "#define intel_sub_group_tf32_tf32_matrix_mad_k8(a, b, c) intel_sub_group_tf32_tf32_matrix_mad_k8_f32(a, as_int8(b), c)",
    "#endif",
  ].join("\n");
}

/** Functions that load a tile whose rows are `stride` bytes apart; the compiler drops those that are not called. */
function loadsOf(lanes: 8 | 16, type: "int8" | "short8" | "float8" | "float4"): string {
  // For tf32, a component of a float4 holds two rows of eight elements.
  const isPair = type === "float4";
  const rows = isPair ? [0, 2, 4, 6] : ROWS;
  const [scalar, bytes] = type === "short8" ? (["short", 2] as const) : ([type.slice(0, -1), 4] as const);
  const [read, unit] =
    type === "short8" ? ["intel_sub_group_block_read_us", "ushort"] : ["intel_sub_group_block_read", "uint"];
  const lane = "get_sub_group_local_id()";
  const place = isPair ? `${lane} / 8 * stride + ${bytes} * (${lane} % 8)` : `${bytes} * ${lane}`;
  const oneByOne = (space: "global" | "local"): string =>
    [
      `static inline ${type} ${space}_${type}(${space} const void* from, int stride) {`,
      `  ${space} const uchar* row = (${space} const uchar*)from + ${place};`,
      `  ${type} tile;`,
      ...rows.map((row, r) => `  tile.s${r} = as_${scalar}(vload${bytes}(0, row + ${row} * stride));`),
      "  return tile;",
      "}",
    ].join("\n");
  const apart = isPair
    ? ["  return global_float4(from, stride);"]
    : [
        `  ${type} tile;`,
        ...rows.map((row, r) => `  tile.s${r} = as_${scalar}(${read}(row + ${row} * (stride / ${bytes})));`),
        "  return tile;",
      ];
  return [
    oneByOne("global"),
    oneByOne("local"),
    `static inline ${type} block_${type}(global const void* from, int stride) {`,
    `  global const ${unit}* row = (global const ${unit}*)from;`,
    `  if (stride == ${isPair ? 32 : bytes * lanes}) return as_${type}(${read}${rows.length}(row));`,
    ...apart,
    "}",
  ].join("\n");
}

/** Sums are words of four bytes at multiples of four bytes. */
function sumMoves(type: "int8" | "float8"): string {
  const scalar = type.slice(0, -1);
  const both = (["global", "local"] as const).map((space) =>
    [
      `static inline ${type} ${space}_sums(${space} const void* from, int stride) {`,
      `  ${space} const ${scalar}* row = (${space} const ${scalar}*)from + get_sub_group_local_id();`,
      `  ${type} tile;`,
      ...ROWS.map((r) => `  tile.s${r} = row[${r} * (stride / 4)];`),
      "  return tile;",
      "}",
      `static inline void ${space}_put(${space} void* to, int stride, ${type} tile) {`,
      `  ${space} ${scalar}* row = (${space} ${scalar}*)to + get_sub_group_local_id();`,
      ...ROWS.map((r) => `  row[${r} * (stride / 4)] = tile.s${r};`),
      "}",
    ].join("\n"),
  );
  return both.join("\n");
}

/** The emulation defines the built-ins; Intel's compiler needs the declaration. */
const declared = (text: string): string => `#ifdef __OPENCL_VERSION__\n__attribute__((overloadable)) ${text};\n#endif`;

/** A fragment loaded from memory, by block reads or through the address space: {by}. */
const loaded = ({ file, type }: Fragment, dtype: DType, formula: string): OperandSpec => ({
  dtype,
  storage: `${file}[${formula}]`,
  load: `{reg} = {by}_${type}({ptr}, {stride});`,
});

function dpas(lanes: 8 | 16, a: Precision, b: Precision): Intrinsic {
  const { sum, k, placeOfB, types, facts } = dpasFacts(lanes, a, b);
  const sums = sum === "s32" ? "int8" : "float8";
  const ofA = fragmentOfA(lanes, a);
  const ofB = fragmentOfB(b);
  const builtin = `intel_sub_group_${WORD[a.dtype]}_${WORD[b.dtype]}_matrix_mad_k${k}`;
  const signed = (type: string, { dtype }: Precision): string => (dtype === "u8" ? `u${type}` : type);
  const typeA = signed(ofA.type, a);
  const typeB = signed(ofB.type, b);
  const as = (type: string, own: string, operand: string): string =>
    type === own ? operand : `as_${type}(${operand})`;
  const moves = [...new Set([ofA.type, ofB.type])].map((type) =>
    type === "tf32_rows" ? tf32Rows(lanes) : loadsOf(lanes, type),
  );
  return tableRow({
    ...facts,
    name: `opencl.dpas.8x${lanes}.${types}`,
    family: "dpas",
    language: "opencl",
    summary: `An 8x${lanes}x${k} matrix product: ${a.dtype} by ${b.dtype}, ${sum} sums.`,
    operands: {
      a: loaded(ofA, a.dtype, `${k}*m + k`),
      b: loaded(ofB, b.dtype, placeOfB),
      c: {
        dtype: sum,
        storage: `dwords[${lanes}*m + n]`,
        load: "{reg} = {space}_sums({ptr}, {stride});",
        store: "{space}_put({ptr}, {stride}, {reg});",
      },
    },
    prelude: [
      ofA.type === "tf32_rows" ? "" : declared(`${sums} ${builtin}(${typeA}, ${typeB}, ${sums})`),
      ...moves,
      sumMoves(sums),
    ]
      .join("\n")
      .trimStart(),
    emit: `{c} = ${builtin}(${as(typeA, ofA.type, "{a}")}, ${as(typeB, ofB.type, "{b}")}, {c});`,
    mnemonic: "dpas",
    source:
      "DPAS by the OpenCL extensions cl_intel_subgroup_matrix_multiply_accumulate and its tf32 form, cl_intel_subgroups, cl_intel_subgroups_short",
  });
}

export const DPAS_OPENCL: readonly Intrinsic[] = dpasRows(dpas);
