/**
 * @file Arm CPUs: the features that instructions require, and the registers of Advanced SIMD (NEON) and of the Scalable Vector Extension.
 *
 *     i8mm      -march=armv8.2-a+simd+i8mm      "i8mm" among the Features of /proc/cpuinfo
 *     sve256    -march=armv8.2-a+simd+sve       "sve" there, and vectors of 256 bits at least
 *
 * A kernel with scalable vectors states how many bits it uses. A predicate of that many lanes governs its loads and stores, so it is right on vectors
 * of that length and of any longer one, and one source runs on all of them.
 */

import { mapValues, unique, withName } from "../abstraction/collections.ts";
import { bytesOf, type DType } from "../abstraction/dtype.ts";
import type { Family, Feature, RegisterClass } from "../abstraction/machine.ts";

/** An extension that compilers enable by its name, or by `flag`, after `-march=armv8.2-a+`. */
interface ArmExtension {
  readonly name: string;
  readonly flag?: string;
  /** Smallest length of scalable vectors, in bytes. */
  readonly vectorBytes?: number;
  /** Its word in /proc/cpuinfo, and the bit of AT_HWCAP or AT_HWCAP2 that the word reports. */
  readonly cpuinfo: string;
  readonly hwcap: { readonly word: 1 | 2; readonly bit: number };
  readonly source: string;
}

const HWCAPS = "Linux, Documentation/arch/arm64/elf_hwcaps and arch/arm64/include/uapi/asm/hwcap.h";
const extension = (name: string, cpuinfo: string, word: 1 | 2, bit: number): ArmExtension => ({
  name,
  cpuinfo,
  hwcap: { word, bit },
  source: HWCAPS,
});

/** Lengths in bits of the scalable vectors for which kernels are written. */
export const SVE_BITS = [128, 256, 512] as const;
export type SveBits = (typeof SVE_BITS)[number];

const ARM_EXTENSIONS: readonly ArmExtension[] = [
  extension("simd", "asimd", 1, 1),
  extension("fp16", "asimdhp", 1, 10),
  extension("dotprod", "asimddp", 1, 20),
  ...SVE_BITS.map((bits) => ({ ...extension(`sve${bits}`, `sve${bits}`, 1, 22), flag: "sve", vectorBytes: bits / 8 })),
  extension("i8mm", "i8mm", 2, 13),
  extension("bf16", "bf16", 2, 14),
];

export function armExtensionNamed(name: string): ArmExtension | undefined {
  return withName(ARM_EXTENSIONS, name);
}

/** The compiler flag for extensions; empty when there are none, because the base architecture includes plain vectors. */
export function marchOf(extensions: readonly string[]): readonly string[] {
  const allowed = ARM_EXTENSIONS.filter((e) => extensions.includes(e.name)).map((e) => e.flag ?? e.name);
  const named = unique(allowed).join("+");
  return named === "" ? [] : [`-march=${named === "simd" ? "armv8-a" : "armv8.2-a"}+${named}`];
}

const SOURCE =
  "Arm Architecture Reference Manual for A-profile, feature names; Linux, Documentation/arch/arm64/elf_hwcaps";

function feature(name: string, summary: string, extensions: readonly string[]): Feature {
  return {
    name,
    summary,
    extensions,
    cpuinfo: extensions.map((e) => armExtensionNamed(e)?.cpuinfo ?? e),
    flags: marchOf(extensions),
    source: SOURCE,
  };
}

const REGISTERS_SOURCE =
  "Arm Architecture Reference Manual for A-profile, SIMD and floating-point registers; Arm C Language Extensions";

/** Stem and suffix of type names such as `int8x16_t` and `svint8_t`. */
const WORDS = {
  s8: "int8",
  u8: "uint8",
  s32: "int32",
  u32: "uint32",
  f16: "float16",
  bf16: "bfloat16",
  f32: "float32",
  f64: "float64",
} as const;

/** Types of Advanced SIMD: `int8x16_t`, `float16x4_t`, `int8x16x4_t`. */
const neonTypes = (bytes: 8 | 16, tuple = 1): NonNullable<RegisterClass["types"]> =>
  mapValues(WORDS, (word, dtype) => `${word}x${bytes / bytesOf(dtype as DType)}${tuple > 1 ? `x${tuple}` : ""}_t`);

/** Types of the scalable extension, whose names carry no length: `svint8_t`, `svint8x4_t`. */
const sveTypes = (tuple = 1): NonNullable<RegisterClass["types"]> =>
  mapValues(WORDS, (word) => `sv${word}${tuple > 1 ? `x${tuple}` : ""}_t`);

const neon = (name: string, bytes: 8 | 16, tuple = 1): RegisterClass => ({
  name,
  count: 32,
  ...(tuple > 1 && { takes: tuple }),
  bytes: bytes * tuple,
  feature: "asimd",
  types: neonTypes(bytes, tuple),
  cleared: "{reg} = decltype({reg}){};",
  constraint: "w",
  source: REGISTERS_SOURCE,
});

const scalable = (bits: SveBits, tuple = 1): RegisterClass => ({
  name: tuple > 1 ? `z${bits}x${tuple}` : `z${bits}`,
  count: 32,
  ...(tuple > 1 && { takes: tuple }),
  bytes: (bits / 8) * tuple,
  feature: `sve${bits}`,
  types: sveTypes(tuple),
  cleared: "{reg} = decltype({reg})();",
  sizeless: true,
  constraint: "w",
  source: REGISTERS_SOURCE,
});

export const ARM: Family = {
  name: "arm",
  header: "#include <arm_neon.h>\n",
  emulation: "arm.h",
  kernels: true,
  registers: [
    neon("v", 16),
    neon("d", 8),
    neon("vx2", 16, 2),
    neon("vx4", 16, 4),
    ...SVE_BITS.flatMap((bits) => [scalable(bits), scalable(bits, 2), scalable(bits, 4)]),
  ],
  features: [
    feature("asimd", "128-bit vectors", ["simd"]),
    feature("asimdhp", "arithmetic on f16", ["simd", "fp16"]),
    feature("asimddp", "dot products of bytes", ["simd", "dotprod"]),
    feature("i8mm", "matrix products of bytes, and dot products of mixed signs", ["simd", "i8mm"]),
    feature("bf16", "dot and matrix products of bf16", ["simd", "bf16"]),
    ...SVE_BITS.map((bits) =>
      feature(`sve${bits}`, `scalable vectors of ${bits} bits or more`, ["simd", `sve${bits}`]),
    ),
  ],
};
