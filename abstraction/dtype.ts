/**
 * @file Element types and their exact rounding.
 *
 *     round("bf16", 1.00390625) = 1          half way between 1 and 1.0078125: to even
 *     wrap("u8", 257) = 1                    two's complement
 *     saturate("s8", 200) = 127
 *
 * All values are JavaScript numbers; a double represents every value of every type below exactly.
 */

/** Every element type automap knows. `tf32` is held in 32 bits, of which 10 fraction bits count. */
export const DTYPES = [
  "u8",
  "s8",
  "u16",
  "s16",
  "u32",
  "s32",
  "e4m3",
  "e5m2",
  "f16",
  "bf16",
  "tf32",
  "f32",
  "f64",
] as const;
/** Element type of a tensor. */
export type DType = (typeof DTYPES)[number];

interface IntegerFormat {
  readonly kind: "integer";
  readonly bits: number;
  readonly min: number;
  readonly max: number;
}

/** How a float type is stored. */
export interface FloatFormat {
  readonly kind: "float";
  readonly bits: number;
  /** Fraction bits stored; the significand has one more. */
  readonly fractionBits: number;
  /** Exponent of the smallest normal number. */
  readonly minExponent: number;
  /** Largest finite value. */
  readonly max: number;
  /** What is beyond the largest finite value: infinity, or NaN in a type without infinities. */
  readonly beyond: number;
}

type FloatType = "e4m3" | "e5m2" | "f16" | "bf16" | "tf32" | "f32" | "f64";
type IntegerType = Exclude<DType, FloatType>;

const INTEGERS: Readonly<Record<IntegerType, IntegerFormat>> = {
  u8: { kind: "integer", bits: 8, min: 0, max: 0xff },
  s8: { kind: "integer", bits: 8, min: -0x80, max: 0x7f },
  u16: { kind: "integer", bits: 16, min: 0, max: 0xffff },
  s16: { kind: "integer", bits: 16, min: -0x8000, max: 0x7fff },
  u32: { kind: "integer", bits: 32, min: 0, max: 0xffffffff },
  s32: { kind: "integer", bits: 32, min: -0x80000000, max: 0x7fffffff },
};

const ieee = (bits: number, fractionBits: number, minExponent: number, max: number): FloatFormat => ({
  kind: "float",
  bits,
  fractionBits,
  minExponent,
  max,
  beyond: Number.POSITIVE_INFINITY,
});

/**
 * Sources: IEEE 754-2019 for f16, f32, f64; Intel's BFLOAT16 numerics definition for bf16; NVIDIA's PTX ISA for tf32; for e4m3 and e5m2, the 8-bit
 * floats of the Open Compute Project, the PTX ISA and CUDA's cuda_fp8.h. e4m3 has one NaN of each sign in place of its largest number, and no infinity.
 */
const FLOATS: Readonly<Record<FloatType, FloatFormat>> = {
  e4m3: { ...ieee(8, 3, -6, 448), beyond: Number.NaN },
  e5m2: ieee(8, 2, -14, 57344),
  f16: ieee(16, 10, -14, 65504),
  bf16: ieee(16, 7, -126, 3.3895313892515355e38),
  tf32: ieee(32, 10, -126, 3.4011621342146535e38),
  f32: ieee(32, 23, -126, 3.4028234663852886e38),
  f64: ieee(64, 52, -1022, Number.MAX_VALUE),
};

const FORMATS: Readonly<Record<DType, IntegerFormat | FloatFormat>> = { ...INTEGERS, ...FLOATS };

export function isDType(word: string): word is DType {
  return Object.hasOwn(FORMATS, word);
}

export function isInteger(dtype: DType): boolean {
  return FORMATS[dtype].kind === "integer";
}

/** Bytes one element takes in memory. */
export function bytesOf(dtype: DType): number {
  return bitsOf(dtype) / 8;
}

/** Bits of an element in memory. */
export function bitsOf(dtype: DType): number {
  return FORMATS[dtype].bits;
}

/** How a float type is stored; undefined for an integer type. */
export function floatFormatOf(dtype: DType): FloatFormat | undefined {
  const format = FORMATS[dtype];
  return format.kind === "float" ? format : undefined;
}

/** The floats of one byte. */
export type ByteFloat = "e4m3" | "e5m2";

/**
 * Fraction bits of the sums of tensor cores that multiply floats of one byte. Each product is moved to the exponent of the largest and cut off, as the
 * sum is; so are sums of whole numbers below twice 2 to this power exact. Measured by the conformance of wgmma on an H200;
 * DeepSeek-V3 Technical Report, section 3.5.2: about 14 bits on an H800. mma.sync of an H200 keeps 23, which no source promises for Ada.
 */
export const BYTE_SUM_BITS = 13;

/** What each term of a sum with so many fraction bits may add to its error: the term, the sum before and the sum after it are cut off. */
export const cutOff = (bits: number): number => 3 * 2 ** -bits;

export const isByteFloat = (dtype: DType): dtype is ByteFloat => dtype === "e4m3" || dtype === "e5m2";

/** Smallest and largest finite value. */
export function rangeOf(dtype: DType): readonly [min: number, max: number] {
  const format = FORMATS[dtype];
  return format.kind === "integer" ? [format.min, format.max] : [-format.max, format.max];
}

/** Distance from 1 to the next larger value of a float type; 0 for integers, which are exact. */
export function epsilonOf(dtype: DType): number {
  const format = FORMATS[dtype];
  return format.kind === "integer" ? 0 : 2 ** -format.fractionBits;
}

const WRAP: Readonly<Record<DType, (x: number) => number>> = {
  u8: (x) => x & 0xff,
  s8: (x) => (x << 24) >> 24,
  u16: (x) => x & 0xffff,
  s16: (x) => (x << 16) >> 16,
  u32: (x) => x >>> 0,
  s32: (x) => x | 0,
  e4m3: (x) => roundFloat(FLOATS.e4m3, x),
  e5m2: (x) => roundFloat(FLOATS.e5m2, x),
  f16: (x) => roundFloat(FLOATS.f16, x),
  bf16: (x) => roundFloat(FLOATS.bf16, x),
  tf32: (x) => roundFloat(FLOATS.tf32, x),
  f32: Math.fround,
  f64: (x) => x,
};

/** Keeps the low bits, as integer hardware does; floats are rounded to nearest even, and what is too large is infinite, in e4m3 NaN. A float given to an integer type is truncated first, as C does. */
export function wrap(dtype: DType, x: number): number {
  return WRAP[dtype](x);
}

/** {@link wrap} to one type, for code that is compiled once and run for every element. */
export function wrapperOf(dtype: DType): (x: number) => number {
  return WRAP[dtype];
}

/**
 * Clamps to the range of an integer type (truncating first) or of a float of one byte, whose infinities become its largest numbers. Wider floats are
 * rounded as by {@link wrap}. NaN becomes 0 in an integer type.
 */
export function saturate(dtype: DType, x: number): number {
  const format = FORMATS[dtype];
  if (isByteFloat(dtype)) return wrap(dtype, Math.min(format.max, Math.max(-format.max, x)));
  if (format.kind === "float") return wrap(dtype, x);
  if (Number.isNaN(x)) return 0;
  // `+ 0`: integers have no -0.
  return Math.min(format.max, Math.max(format.min, Math.trunc(x))) + 0;
}

/** The bits of a double: its sign and exponent are in the first word. */
const BITS = new DataView(new ArrayBuffer(8));

/**
 * Rounds to nearest, ties to even, with subnormals and overflow. Adding 1.5 * 2^52 spacings leaves no digits below one spacing: the
 * addition rounds, and the subtraction is exact.
 * Rounding a double that is itself the rounded sum or product of two values of the type is innocuous:
 * 53 significand bits are at least twice the type's plus two (Figueroa 1995).
 */
function roundFloat({ fractionBits, minExponent, max, beyond }: FloatFormat, x: number): number {
  if (Number.isNaN(x) || x === 0) return x;
  if (Math.abs(x) > 2 * max) return Math.sign(x) * beyond;
  // 1. The spacing of the type's values around x is 2^(exponent - fractionBits).
  BITS.setFloat64(0, x);
  const exponent = Math.max(((BITS.getUint32(0) >>> 20) & 0x7ff) - 1023, minExponent);
  // 2. A double with that exponent plus 52, and the fraction of 1.5.
  BITS.setUint32(0, ((exponent - fractionBits + 52 + 1023) << 20) | 0x80000);
  BITS.setUint32(4, 0);
  const large = BITS.getFloat64(0);
  const rounded = x + large - large;
  if (rounded === 0) return x < 0 ? -0 : 0;
  return Math.abs(rounded) > max ? Math.sign(x) * beyond : rounded;
}

/** Nearest integer, ties to even: what hardware does by default, unlike `Math.round`. Keeps the sign of a zero. */
export function roundHalfEven(x: number): number {
  const magnitude = Math.abs(x);
  const floor = Math.floor(magnitude);
  const fraction = magnitude - floor;
  const rounded = fraction < 0.5 || (fraction === 0.5 && floor % 2 === 0) ? floor : floor + 1;
  return x < 0 || Object.is(x, -0) ? -rounded : rounded;
}
