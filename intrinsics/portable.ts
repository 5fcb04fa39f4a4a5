/**
 * @file Rows for every CPU: plain C++ on the compiler's own vectors (g++, clang++), compiled with no feature allowed.
 *
 *     portable.mla.f32.broadcast           c[n] += a[] * b[n]                          four lanes, one `a` for all of them
 *     portable.dot.s32.u8s8.broadcast      c[n] += s32(a[k]) * s32(b[k,n])             two bytes a lane
 *     portable.scalar.f32                  c[n] += a[n] * b[n]                         one lane: where no loop would fill a vector
 *     portable.inner.f32                   c[] += a[k] * b[k]                          one lane of a summed loop: a dot product
 *     portable.max.u8                      c[n] max= a[n]                              pooling
 *
 * `{c} += {a} * {b}` on 16 bytes becomes MULPS and ADDPS on any x86-64, FMUL and FADD on any AArch64, and scalar operations elsewhere. A row promises
 * a result but no instruction, so its kernels are not searched for one. Products and sums are rounded separately (mla, not fma). Every type has rows
 * whose operands all have that type, so whatever an equation multiplies, sums or compares in it maps; narrower tensors are converted while they are
 * packed. Rows with narrower operands load them unconverted.
 */

import { bytesOf, DTYPES, type DType, isByteFloat, isInteger, rangeOf } from "../abstraction/dtype.ts";
import { internal } from "../abstraction/error.ts";
import { type Cost, type Intrinsic, type OperandSpec, tableRow } from "../abstraction/intrinsic.ts";
import { C_TYPES } from "../abstraction/kernel.ts";
import { PORTABLE_ISA } from "../targets/portable.ts";
import { BOTH, dotOf, multiplyAddOf, suffix, typesOf } from "./lane-forms.ts";
import { BOUNDS, BYTE_FORMATS, DOT_BF16, DOT_BYTES, FORMATS, LANES } from "./portable-prelude.ts";

/** Both SSE2 and Advanced SIMD have registers of 16 bytes; every x86-64 and every AArch64 has one of them. */
const VECTOR_BYTES = 16;

/** Types for which C has no arithmetic. */
const FOREIGN: ReadonlySet<DType> = new Set(["e4m3", "e5m2", "f16", "bf16", "tf32"]);
const preludeOf = (dtype: DType): string => (isByteFloat(dtype) ? BYTE_FORMATS : FOREIGN.has(dtype) ? FORMATS : LANES);

const COMMON = {
  family: "portable",
  isa: PORTABLE_ISA,
  language: "c++",
  source: "GCC manual, Using Vector Instructions through Built-in Functions; clang has the same vectors",
} as const;

type Work = "product" | "scalar" | "sum" | "bound" | "narrow";

/**
 * Issue and latency in cycles. They only rank these rows among themselves: a search uses them where no instruction maps, so they are never compared
 * with an instruction's.
 */
const CYCLES: Readonly<Record<Work, Readonly<Partial<Record<DType, readonly [issue: number, latency: number]>>>>> = {
  product: {
    u8: [2.9, 3.6],
    s8: [2.9, 3.6],
    u16: [0.7, 1.7],
    s16: [0.7, 1.7],
    u32: [2.5, 2.9],
    s32: [2.5, 2.9],
    f16: [49, 60],
    bf16: [21, 24],
    tf32: [8.2, 11],
    f32: [0.7, 2],
    f64: [0.7, 2],
  },
  scalar: {
    u8: [1, 1.4],
    s8: [1, 1.4],
    u16: [1, 1.4],
    s16: [1, 1.2],
    u32: [1, 1.1],
    s32: [1, 1.5],
    f16: [19, 31],
    bf16: [7.5, 14],
    tf32: [4.5, 11],
    f32: [0.7, 2],
    f64: [0.7, 2],
  },
  sum: {
    u8: [0.34, 1],
    s8: [0.34, 1],
    u16: [0.34, 1],
    s16: [0.34, 1],
    u32: [0.34, 1],
    s32: [0.34, 1],
    f16: [26, 38],
    bf16: [11, 22],
    tf32: [3.8, 10],
    f32: [0.5, 2],
    f64: [0.5, 2],
  },
  bound: {
    u8: [0.5, 1],
    s8: [1.4, 3.2],
    u16: [1.8, 4.4],
    s16: [0.5, 1],
    u32: [2, 4.2],
    s32: [1.4, 3.2],
    f16: [27, 44],
    bf16: [13, 27],
    tf32: [5.9, 16],
    f32: [2.1, 8.5],
    f64: [2.1, 8.4],
  },
  /** By type of the operands; includes the conversion of one of the two. */
  narrow: {
    u8: [3.7, 5.4],
    s8: [4, 5.6],
    bf16: [2.1, 4.1],
    u16: [4.1, 5.8],
    s16: [4.2, 6.2],
    // As f16: the conversion has as many operations. Not measured.
    e4m3: [6.6, 12],
    e5m2: [6.6, 12],
    f16: [6.6, 12],
    f32: [1.6, 2.4],
  },
};

function costOf(dtype: DType, work: Work): Cost {
  const [issueCycles, latencyCycles] = CYCLES[work][dtype] ?? internal(`no cycles of ${work} in ${dtype}`);
  const source =
    "measured 2026-11-21 on one core of a shared Xeon at 3.4 GHz: least of nine samples, g++ 12, the x86-64 baseline (SSE2); " +
    "the loops of automap calibrate, with each product kept from being shared among the accumulators";
  return { issueCycles, latencyCycles, source };
}

const STORE = "store_lanes({ptr}, {reg});";
const WORDS: Readonly<Record<number, string>> = { 1: "One", 2: "Two", 4: "Four", 8: "Eight", 16: "Sixteen" };

/** Bytes of a row that is copied: the widest vector that a compiler may use. */
const COPIED_BYTES = 64;

/** Number of sums in a register; types calculated in float count as floats. */
const lanesOf = (sum: DType): number => VECTOR_BYTES / (FOREIGN.has(sum) ? bytesOf("f32") : bytesOf(sum));
const lanesType = (dtype: DType, count: number): string => `lanes<${C_TYPES[dtype]}, ${count}>`;

/** Lane n holds element n of memory, or every lane the same element. */
function sideBySide(dtype: DType, count: number, shared = false): OperandSpec {
  const load = shared ? `same_lanes<${C_TYPES[dtype]}, ${count}>` : `load_lanes<${lanesType(dtype, count)}>`;
  return { dtype, storage: "vec[n]", load: `{reg} = ${load}({ptr});` };
}

function result(dtype: DType, count: number): OperandSpec {
  return { ...sideBySide(dtype, count), store: STORE };
}

// ---- operands of the type of the sum ----------------------------------------------------------------------------------------------

/** `c += a * b` of one type. */
function addProduct(dtype: DType, count: number): string {
  return FOREIGN.has(dtype) ? `{c} = add_product<${dtype}<${count}>>({c}, {a}, {b});` : "{c} += {a} * {b};";
}

/** An expression of two vectors, computed in float where C has no arithmetic for the type. */
function onNumbers(dtype: DType, count: number, text: (c: string, a: string) => string): string {
  if (!FOREIGN.has(dtype)) return `{c} = ${text("{c}", "{a}")};`;
  const format = `${dtype}<${count}>`;
  return `{c} = ${format}::rounded(${text(`${format}::number({c})`, `${format}::number({a})`)});`;
}

/** The larger or smaller of two; floats must also handle NaN. */
function chosen(dtype: DType, op: "max" | "min"): (c: string, a: string) => string {
  if (isInteger(dtype)) return (c, a) => `${a} ${op === "max" ? ">" : "<"} ${c} ? ${a} : ${c}`;
  return (c, a) => `${op === "max" ? "more" : "less"}(${c}, ${a})`;
}

/** The identity of a maximum or minimum: an infinity, or an end of the integer range. */
function beginning(dtype: DType, op: "max" | "min"): string {
  const least = op === "max";
  if (isInteger(dtype)) return `${rangeOf(dtype)[least ? 0 : 1]}${bytesOf(dtype) === 4 ? "LL" : ""}`;
  if (dtype === "f16") return least ? "0xfc00" : "0x7c00";
  if (dtype === "bf16") return least ? "0xff80" : "0x7f80";
  return `${least ? "-" : ""}__builtin_inf()`;
}

/** What rows say whose operands all have one type. */
const ofType = (dtype: DType) => ({ ...COMMON, prelude: preludeOf(dtype) });

/** Products and sums of a type, as vectors and as single elements. */
function productsOf(dtype: DType): Intrinsic[] {
  const count = lanesOf(dtype);
  const some = WORDS[count] ?? String(count);
  const single = { ...ofType(dtype), emit: addProduct(dtype, 1), cost: costOf(dtype, "scalar") };
  return [
    ...BOTH.map((shared) =>
      tableRow({
        ...ofType(dtype),
        name: `portable.mla.${dtype}${suffix(shared)}`,
        summary: `${some} ${dtype} products and sums${shared ? " with one factor common to all lanes" : ", lane by lane"}.`,
        compute: multiplyAddOf(dtype, dtype, shared),
        extents: { n: count },
        operands: { a: sideBySide(dtype, count, shared), b: sideBySide(dtype, count), c: result(dtype, count) },
        emit: addProduct(dtype, count),
        cost: costOf(dtype, "product"),
      }),
    ),
    tableRow({
      ...single,
      name: `portable.scalar.${dtype}`,
      summary: `One ${dtype} product and sum.`,
      compute: "c[n] += a[n] * b[n]",
      extents: { n: 1 },
      operands: { a: sideBySide(dtype, 1), b: sideBySide(dtype, 1), c: result(dtype, 1) },
    }),
    tableRow({
      ...single,
      name: `portable.inner.${dtype}`,
      summary: `One ${dtype} product and sum, of a loop that is summed.`,
      compute: "c[] += a[k] * b[k]",
      extents: { k: 1 },
      operands: {
        a: { ...sideBySide(dtype, 1), storage: "vec[k]" },
        b: { ...sideBySide(dtype, 1), storage: "vec[k]" },
        c: { ...result(dtype, 1), storage: "vec[0]" },
      },
    }),
  ];
}

/** Rows of a type with one input. */
function unaryOf(dtype: DType): Intrinsic[] {
  const count = lanesOf(dtype);
  const type = `${C_TYPES[dtype]}, ${count}`;
  const some = WORDS[count] ?? String(count);
  const unary = { a: sideBySide(dtype, count), c: result(dtype, count) };
  const copied = COPIED_BYTES / bytesOf(dtype);
  return [
    tableRow({
      ...ofType(dtype),
      name: `portable.add.${dtype}`,
      summary: `${some} ${dtype} sums.`,
      compute: "c[n] += a[n]",
      extents: { n: count },
      operands: unary,
      emit: onNumbers(dtype, count, (c, a) => `${c} + ${a}`),
      cost: costOf(dtype, "sum"),
    }),
    ...(["max", "min"] as const).map((op) =>
      tableRow({
        ...COMMON,
        prelude: isInteger(dtype) ? LANES : FOREIGN.has(dtype) ? FORMATS : BOUNDS,
        name: `portable.${op}.${dtype}`,
        summary:
          `The ${op === "max" ? "larger" : "smaller"} of each of ${some.toLowerCase()} pairs of ${dtype}.`.replace(
            /^t/,
            "T",
          ),
        compute: op === "max" ? "c[n] max= a[n]" : "c[n] min= a[n]",
        extents: { n: count },
        operands: { ...unary, c: { ...unary.c, clear: `{reg} = fill_lanes<${type}>(${beginning(dtype, op)});` } },
        emit: onNumbers(dtype, count, chosen(dtype, op)),
        cost: costOf(dtype, "bound"),
      }),
    ),
    // What is made of elements while they are packed becomes vectors where a row of lanes is packed at once.
    tableRow({
      ...ofType(dtype),
      name: `portable.copy.${dtype}.lanes`,
      summary: `A row of ${dtype}, as it is.`,
      compute: "c[n] = a[n]",
      extents: { n: copied },
      operands: { a: sideBySide(dtype, copied), c: result(dtype, copied) },
      emit: "{c} = {a};",
      cost: costOf(dtype, "sum"),
    }),
    // An assignment cannot be padded, but one lane always fits.
    tableRow({
      ...ofType(dtype),
      name: `portable.copy.${dtype}`,
      summary: `One ${dtype}, as it is.`,
      compute: "c[n] = a[n]",
      extents: { n: 1 },
      operands: { a: sideBySide(dtype, 1), c: result(dtype, 1) },
      emit: "{c} = {a};",
      cost: costOf(dtype, "sum"),
    }),
  ];
}

// ---- narrower operands ------------------------------------------------------------------------------------------------------------

interface Pair {
  readonly a: DType;
  readonly b: DType;
  readonly sum: "s32" | "f32";
  readonly emit: string;
  /** Type of a pair of `a`, which every lane receives. */
  readonly pair: string;
  readonly prelude: string;
}

const bytePair = (a: DType, b: DType): Pair => {
  const unsigned = a === "u8" && b === "u8" ? "u" : "";
  return {
    a,
    b,
    sum: "s32",
    emit: `{c} = dot_bytes<lanes<${unsigned}int16_t, 8>, lanes<${unsigned}int32_t, 4>>({c}, {a}, {b});`,
    pair: "uint16_t",
    prelude: DOT_BYTES,
  };
};

const PAIRS: readonly Pair[] = [
  bytePair("u8", "s8"),
  bytePair("s8", "s8"),
  bytePair("u8", "u8"),
  { a: "bf16", b: "bf16", sum: "f32", emit: "{c} = dot_bf16({c}, {a}, {b});", pair: "uint32_t", prelude: DOT_BF16 },
];

/** Two products per lane. A register of the operands has half as many bytes as one of sums, or as many. */
function dotRows({ a, b, sum, emit, pair, prelude }: Pair): Intrinsic[] {
  const side = (dtype: DType): OperandSpec => ({
    dtype,
    storage: "vec[2*n + k]",
    load: `{reg} = load_lanes<${lanesType(dtype, 8)}>({ptr});`,
  });
  return BOTH.map((shared) =>
    tableRow({
      ...COMMON,
      prelude,
      name: `portable.dot.${sum}.${typesOf(a, b)}${suffix(shared)}`,
      summary: `Four dot products of two, ${a} times ${b}, ${shared ? "the left pair common to all lanes" : "lane by lane"}.`,
      compute: dotOf(sum, shared),
      extents: { n: 4, k: 2 },
      operands: {
        a: shared ? { ...side(a), load: `{reg} = (${lanesType(a, 8)})same_lanes<${pair}, 4>({ptr});` } : side(a),
        b: side(b),
        c: result(sum, 4),
      },
      emit,
      cost: costOf(a, "narrow"),
    }),
  );
}

interface Widening {
  readonly from: DType;
  readonly sum: "s32" | "f32" | "f64";
}

const WIDENINGS: readonly Widening[] = [
  { from: "s16", sum: "s32" },
  { from: "u16", sum: "s32" },
  { from: "e4m3", sum: "f32" },
  { from: "e5m2", sum: "f32" },
  { from: "f16", sum: "f32" },
  { from: "f32", sum: "f64" },
];

function wideningRows({ from, sum }: Widening): Intrinsic[] {
  const count = lanesOf(sum);
  const wide = (operand: string): string =>
    FOREIGN.has(from)
      ? `${from}<${count}>::number(${operand})`
      : `__builtin_convertvector(${operand}, ${lanesType(sum, count)})`;
  const some = WORDS[count] ?? String(count);
  return BOTH.map((shared) =>
    tableRow({
      ...ofType(from),
      name: `portable.mla.${sum}.${from}${suffix(shared)}`,
      summary: `${some} ${from} products summed in ${sum}, ${shared ? "one factor common to all lanes" : "lane by lane"}.`,
      compute: multiplyAddOf(sum, from, shared),
      extents: { n: count },
      operands: { a: sideBySide(from, count, shared), b: sideBySide(from, count), c: result(sum, count) },
      emit: `{c} += ${wide("{a}")} * ${wide("{b}")};`,
      cost: costOf(from, "narrow"),
    }),
  );
}

export const PORTABLE: readonly Intrinsic[] = [
  ...PAIRS.flatMap(dotRows),
  ...WIDENINGS.flatMap(wideningRows),
  ...DTYPES.filter((dtype) => !isByteFloat(dtype)).flatMap((dtype) => [...productsOf(dtype), ...unaryOf(dtype)]),
];
