/** @file Element types against the machine's own: typed arrays, `Math.fround`, and arithmetic on bit patterns. */

import { describe, expect, it } from "vitest";
import {
  bytesOf,
  DTYPES,
  type DType,
  epsilonOf,
  isDType,
  isInteger,
  rangeOf,
  roundHalfEven,
  saturate,
  wrap,
} from "../../abstraction/dtype.ts";
import { identityOf } from "../../abstraction/expression.ts";
import { shortBits, shortValue } from "../../abstraction/short-floats.ts";
import fc from "../support/property.ts";

const word = new DataView(new ArrayBuffer(8));
const floatOf = (bits: number): number => {
  word.setUint32(0, bits);
  return word.getFloat32(0);
};
const bitsOf = (x: number): number => {
  word.setFloat32(0, x);
  return word.getUint32(0);
};
const doubleBitsOf = (x: number): bigint => {
  word.setFloat64(0, x);
  return word.getBigUint64(0);
};

/** The value of an f16 bit pattern: IEEE 754-2019, 3.4. */
function decodeHalf(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25));
}

/** Rounds a double to f16 on its bits alone: the 53-bit significand as an integer, shifted out bit by bit with a sticky rest. */
function roundHalfOnBits(x: number): number {
  const bits = doubleBitsOf(x);
  const sign = bits >> 63n === 0n ? 0 : 0x8000;
  const exponent = Number((bits >> 52n) & 2047n);
  const fraction = bits & ((1n << 52n) - 1n);
  if (exponent === 2047) return decodeHalf(sign | (fraction === 0n ? 0x7c00 : 0x7e00));
  const significand = exponent === 0 ? fraction : fraction | (1n << 52n);
  // The pattern counts multiples of 2^-24 while subnormal, else of 2^(e-10).
  const power = Math.max(exponent, 1) - 1075;
  const halfExponent = Math.max(power + 52, -14);
  const shift = BigInt(halfExponent - 10 - power);
  let kept = significand >> shift;
  const rest = significand - (kept << shift);
  const half = 1n << (shift - 1n);
  if (rest > half || (rest === half && kept % 2n === 1n)) kept++;
  // A carry into the exponent, from subnormal to normal too, is the addition itself.
  const pattern = (halfExponent + 14) * 1024 + Number(kept);
  return decodeHalf(sign | Math.min(pattern, 0x7c00));
}

/** Rounds an f32 to its upper bits: adds half of what falls away, less one where the last kept bit is even. */
function truncateFraction(x: number, dropped: number): number {
  if (!Number.isFinite(x)) return x;
  const bits = BigInt(bitsOf(x));
  const lost = BigInt(dropped);
  const odd = (bits >> lost) & 1n;
  const rounded = (bits + (1n << (lost - 1n)) - 1n + odd) >> lost;
  return floatOf(Number((rounded << lost) & 0xffffffffn));
}

const anyFloat = fc.integer({ min: 0, max: 0xffffffff }).map(floatOf);
const anyDouble = fc.oneof(
  fc.double(),
  // Around the values of f16: ties, just beside them, subnormals, overflow.
  fc
    .tuple(fc.integer({ min: 0, max: 0xffff }), fc.integer({ min: -3, max: 3 }), fc.constantFrom(1, 2 ** -20, 2 ** -40))
    .map(([bits, steps, size]) => decodeHalf(bits) * (1 + steps * 2 ** -12 * size)),
  fc.integer({ min: -70000 * 64, max: 70000 * 64 }).map((x) => x / 64),
  fc.integer({ min: -(2 ** 14), max: 2 ** 14 }).map((x) => x * 2 ** -26),
);
const examples = (...values: number[]): { numRuns: number; examples: [number][] } => ({
  numRuns: 5000,
  examples: values.flatMap((x): [number][] => [[x], [-x]]),
});

describe("f16", () => {
  it("holds each of its 65536 bit patterns exactly", () => {
    const changed: number[] = [];
    for (let bits = 0; bits < 65536; bits++) {
      const x = decodeHalf(bits);
      if (!Object.is(wrap("f16", x), x)) changed.push(bits);
    }
    expect(changed).toEqual([]);
  });

  it("rounds to nearest even half way between each pair of neighbours", () => {
    const wrong: number[] = [];
    for (let bits = 0; bits < 0x7bff; bits++) {
      const low = decodeHalf(bits);
      const high = decodeHalf(bits + 1);
      const middle = (low + high) / 2;
      const even = bits % 2 === 0 ? low : high;
      const below = middle * (1 - 2 ** -52);
      const above = middle * (1 + 2 ** -52);
      if (wrap("f16", middle) !== even || wrap("f16", below) !== low || wrap("f16", above) !== high) wrong.push(bits);
    }
    expect(wrong).toEqual([]);
  });

  it("rounds any double as arithmetic on its bits does", () => {
    fc.assert(
      fc.property(anyDouble, (x) => void expect(wrap("f16", x)).toBe(roundHalfOnBits(x))),
      examples(
        0,
        65504,
        65519.99,
        65520,
        65536,
        2 ** -24,
        2 ** -25,
        1.5 * 2 ** -25,
        2 ** -14,
        5e-324,
        Number.MAX_VALUE,
      ),
    );
  });
});

describe("bf16 and tf32", () => {
  it.each([
    ["bf16", 16],
    ["tf32", 13],
  ] as const)("%s rounds any f32 like carrying out of its %i lower bits", (dtype, dropped) => {
    fc.assert(
      fc.property(anyFloat, (x) => void expect(wrap(dtype, x)).toBe(truncateFraction(x, dropped))),
      examples(
        0,
        1.00390625,
        1.01171875,
        floatOf(1),
        floatOf(0x007fffff),
        floatOf(0x7f7fffff),
        Number.POSITIVE_INFINITY,
      ),
    );
  });

  it("hold every value of their upper bits", () => {
    const changed: number[] = [];
    for (let upper = 0; upper < 65536; upper++) {
      const x = floatOf(upper * 65536);
      if (!Object.is(wrap("bf16", x), x) || !Object.is(wrap("tf32", x), x)) changed.push(upper);
    }
    expect(changed).toEqual([]);
  });

  it("round a double once, not by way of f32", () => {
    // Just above half way between 1 and 1.0078125, too little for f32 to see.
    expect(wrap("bf16", 1.00390625 + 2 ** -40)).toBe(1.0078125);
    expect(wrap("bf16", 1.00390625)).toBe(1);
  });
});

describe("f32 and f64", () => {
  it("are the machine's own", () => {
    fc.assert(
      fc.property(fc.double(), (x) => {
        expect(wrap("f32", x)).toBe(Math.fround(x));
        expect(wrap("f64", x)).toBe(x);
      }),
    );
  });
});

describe("integers", () => {
  const views = {
    u8: Uint8Array,
    s8: Int8Array,
    u16: Uint16Array,
    s16: Int16Array,
    u32: Uint32Array,
    s32: Int32Array,
  } as const;
  const integers = Object.keys(views) as (keyof typeof views)[];
  // Also the results that one operation on two 32-bit values can have before it is wrapped.
  const anyNumber = fc.oneof(
    fc.integer(),
    fc.maxSafeInteger(),
    fc.double({ min: -1e10, max: 1e10 }),
    fc.double(),
    fc.constantFrom(-0.5, 0.5, 127.5, 255.5, -128.5, 2 ** 31, -(2 ** 31) - 1, 2 ** 32),
  );

  it.each(integers)("%s wraps as its typed array does", (dtype) => {
    fc.assert(fc.property(anyNumber, (x) => void expect(wrap(dtype, x)).toBe(views[dtype].of(x)[0])));
  });

  it.each(integers)("%s saturates at the ends of its range", (dtype) => {
    const [min, max] = rangeOf(dtype);
    fc.assert(
      fc.property(anyNumber, (x) => {
        const whole = Number.isNaN(x) ? 0 : Math.trunc(x);
        expect(saturate(dtype, x)).toBe(whole < min ? min : whole > max ? max : whole + 0);
      }),
    );
    expect([min - 1, min, max, max + 1].map((x) => saturate(dtype, x))).toEqual([min, min, max, max]);
    expect([Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY].map((x) => saturate(dtype, x))).toEqual([min, max]);
  });

  it("u8 saturates whole numbers as Uint8ClampedArray does, which rounds where a cast truncates", () => {
    fc.assert(fc.property(fc.maxSafeInteger(), (x) => void expect(saturate("u8", x)).toBe(Uint8ClampedArray.of(x)[0])));
    expect(saturate("u8", 1.7)).toBe(1);
    expect(Uint8ClampedArray.of(1.7)[0]).toBe(2);
  });

  it("know no -0", () => {
    for (const dtype of integers) expect([wrap(dtype, -0), saturate(dtype, -0.5)]).toEqual([0, 0]);
  });
});

describe("floats of one byte", () => {
  /** The fields of each format, and what its bits mean whose exponent is all ones. PTX ISA, Alternate Floating-Point Data Formats. */
  const formats = [
    {
      dtype: "e4m3",
      fractionBits: 3,
      bias: 7,
      special: (fraction: number) => (fraction === 7 ? Number.NaN : undefined),
    },
    {
      dtype: "e5m2",
      fractionBits: 2,
      bias: 15,
      special: (fraction: number) => (fraction === 0 ? Number.POSITIVE_INFINITY : Number.NaN),
    },
  ] as const;
  const meant = ({ fractionBits, bias, special }: (typeof formats)[number], bits: number): number => {
    const digits = bits.toString(2).padStart(8, "0");
    const exponent = Number.parseInt(digits.slice(1, 8 - fractionBits), 2);
    const fraction = Number.parseInt(digits.slice(8 - fractionBits), 2);
    const isLast = !digits.slice(1, 8 - fractionBits).includes("0");
    const part = fraction / 2 ** fractionBits;
    const finite = exponent === 0 ? part * 2 ** (1 - bias) : (1 + part) * 2 ** (exponent - bias);
    return (digits.startsWith("1") ? -1 : 1) * ((isLast ? special(fraction) : undefined) ?? finite);
  };

  it.each(formats)("$dtype means by its 256 bytes what its fields say, and is encoded as them", (format) => {
    for (let bits = 0; bits < 256; bits++) {
      const value = meant(format, bits);
      expect(shortValue(format.dtype, bits)).toBe(value);
      expect(wrap(format.dtype, value)).toBe(value);
      const back = shortBits(format.dtype, value);
      if (Number.isNaN(value)) expect(shortValue(format.dtype, back)).toBeNaN();
      else expect(back).toBe(bits);
    }
  });

  it.each(formats)("$dtype is rounded to the nearest, of two equally near ones to that of even bits", (format) => {
    const { dtype } = format;
    const last = dtype === "e4m3" ? 0x7e : 0x7b;
    for (let bits = 0; bits < last; bits++) {
      const low = meant(format, bits);
      const high = meant(format, bits + 1);
      const between = (low + high) / 2;
      const tie = bits % 2 === 0 ? low : high;
      const cases = [low, between * (1 - 2 ** -52), between, between * (1 + 2 ** -52), high];
      const nearest = [low, low, tie, high, high];
      expect(cases.map((x) => wrap(dtype, x))).toEqual(nearest);
      expect(cases.map((x) => saturate(dtype, -x))).toEqual(nearest.map((x) => -x));
    }
  });

  it("what is beyond the largest is NaN in e4m3 and infinite in e5m2; a cast that saturates stops at the largest", () => {
    const beyond = [464.0000000000001, 1e300, Number.POSITIVE_INFINITY];
    expect(wrap("e4m3", 464)).toBe(448);
    expect(beyond.map((x) => wrap("e4m3", x))).toEqual([Number.NaN, Number.NaN, Number.NaN]);
    expect(beyond.map((x) => saturate("e4m3", -x))).toEqual([-448, -448, -448]);
    expect([61439, 61440, -61440, 1e300].map((x) => wrap("e5m2", x))).toEqual([
      57344,
      Number.POSITIVE_INFINITY,
      Number.NEGATIVE_INFINITY,
      Number.POSITIVE_INFINITY,
    ]);
    expect([61440, Number.NEGATIVE_INFINITY].map((x) => saturate("e5m2", x))).toEqual([57344, -57344]);
    for (const dtype of ["e4m3", "e5m2"] as const) expect(saturate(dtype, Number.NaN)).toBeNaN();
  });

  it("the greatest of no elements is a number that e4m3 holds", () => {
    expect([identityOf("max=", "e4m3"), identityOf("min=", "e4m3")]).toEqual([-448, 448]);
    expect(identityOf("max=", "e5m2")).toBe(Number.NEGATIVE_INFINITY);
  });
});

describe("every element type", () => {
  it.each(DTYPES)("%s holds the ends of its range and no more", (dtype) => {
    const [min, max] = rangeOf(dtype);
    expect([wrap(dtype, min), wrap(dtype, max)]).toEqual([min, max]);
    expect(saturate(dtype, max * 2)).toBe(bytesOf(dtype) === 1 || isInteger(dtype) ? max : Number.POSITIVE_INFINITY);
  });

  it.each(DTYPES.filter((d) => !isInteger(d)))("%s has its next value after 1 at a distance of epsilon", (dtype) => {
    const epsilon = epsilonOf(dtype);
    expect(wrap(dtype, 1 + epsilon)).toBe(1 + epsilon);
    expect(wrap(dtype, 1 + epsilon / 2)).toBe(1);
  });

  it("has the number of bytes in its name", () => {
    const bytes = Object.fromEntries(DTYPES.map((d: DType) => [d, bytesOf(d)]));
    expect(bytes).toEqual({
      u8: 1,
      s8: 1,
      u16: 2,
      s16: 2,
      u32: 4,
      s32: 4,
      e4m3: 1,
      e5m2: 1,
      f16: 2,
      bf16: 2,
      tf32: 4,
      f32: 4,
      f64: 8,
    });
  });

  it("is recognised by its exact name only", () => {
    expect(["f32", "F32", "float", "toString", ""].map(isDType)).toEqual([true, false, false, false, false]);
  });
});

describe("roundHalfEven", () => {
  it("sends ties to the even neighbour and keeps the sign of zero", () => {
    expect([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49999999999999994, -0.3, -0].map(roundHalfEven)).toEqual([
      0, 2, 2, -0, -2, -2, 0, -0, -0,
    ]);
    expect([2 ** 52 + 1, -1e300, Number.NEGATIVE_INFINITY, Number.NaN].map(roundHalfEven)).toEqual([
      2 ** 52 + 1,
      -1e300,
      Number.NEGATIVE_INFINITY,
      Number.NaN,
    ]);
  });
});
