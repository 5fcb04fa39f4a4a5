/**
 * @file The features that instructions require, over all families: which machines have them, and the compiler flags that enable them.
 *
 *     hasFeature(target, "avx512_vnni")
 *     compilerFlags(["fma"])              ["-mavx2", "-mfma"]
 */

import { namesOf, unique } from "../abstraction/collections.ts";
import { internal, UsageError } from "../abstraction/error.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import type { Family, Feature } from "../abstraction/machine.ts";
import { ARM, armExtensionNamed, marchOf } from "./arm.ts";
import { INTEL } from "./intel.ts";
import { MALI } from "./mali.ts";
import { NVIDIA } from "./nvidia-features.ts";
import { OPENCL } from "./opencl.ts";
import { PORTABLE, PORTABLE_ISA, VIRTUAL } from "./portable.ts";
import { X86 } from "./x86.ts";

export const FAMILIES: readonly Family[] = [X86, ARM, NVIDIA, INTEL, MALI, OPENCL, PORTABLE, VIRTUAL];

const FEATURES: ReadonlyMap<string, readonly [Feature, Family]> = new Map(
  FAMILIES.flatMap((family) => family.features.map((f) => [f.name, [f, family]] as const)),
);

/**
 * The family that defines the feature an instruction requires.
 * @throws UsageError when no family has the feature and the instruction is reached from some language
 */
export function familyOf({ name, isa, language }: Pick<Intrinsic, "name" | "isa" | "language">): Family {
  const family = FEATURES.get(isa)?.[1];
  if (family) return family;
  if (language === "none") return VIRTUAL;
  throw new UsageError(
    `${name} asks for "${isa}", a feature of no machine family`,
    `features are ${[...FEATURES.keys()].join(", ")}; one that exists on paper has language "none"`,
  );
}

/** Whether a machine has a feature. */
export function hasFeature({ isa }: { readonly isa: readonly string[] }, needed: string): boolean {
  return needed === PORTABLE_ISA || isa.includes(needed);
}

/** Whether a machine has all features that an instruction requires. */
export function runsOn(
  machine: { readonly isa: readonly string[] },
  { features }: Pick<Intrinsic, "features">,
): boolean {
  return features.every((needed) => hasFeature(machine, needed));
}

/** Whether kernels can be written with the instructions of a feature. */
export function isWritten(isa: string): boolean {
  return FEATURES.get(isa)?.[1].kernels ?? false;
}

/** Lanes of the sub-group that issues an instruction. @throws Error when the instruction has no sub-group */
export function subgroupOf({ name, isa }: Pick<Intrinsic, "name" | "isa">): number {
  return FEATURES.get(isa)?.[0].subgroup ?? internal(`${name} asks for ${isa}, which has no sub-groups`);
}

/** Whether the lanes of an instruction are the work-items of a work-group, rather than of a sub-group. */
export function lanesAreGroups({ isa }: Pick<Intrinsic, "isa">): boolean {
  return FEATURES.get(isa)?.[0].lanesAreGroups ?? false;
}

/** Bytes of local memory of a work-group on every machine with one of these features; undefined when no feature states it. */
export function localBytesOf(features: readonly string[]): number | undefined {
  const known = features.flatMap((name) => FEATURES.get(name)?.[0].localBytes ?? []);
  return known.length > 0 ? Math.min(...known) : undefined;
}

/** Extensions that the compiler must enable for the features of a machine or an instruction; features without extensions are skipped. */
export function compilerFeatures(isa: readonly string[]): string[] {
  return unique(isa.flatMap((name) => FEATURES.get(name)?.[0].extensions ?? []));
}

/** Whether scalar rows next to an instruction of this feature are written as 512-bit vectors (codegen/cpp/rows-avx512.ts). */
export function writesVectorRows(isa: string): boolean {
  return FEATURES.get(isa)?.[0].extensions?.includes("avx512bw") ?? false;
}

/** Flags with which the compiler accepts the instructions of features (g++ and clang++). */
export function compilerFlags(isa: readonly string[]): string[] {
  const flags = new Set(isa.flatMap((name) => FEATURES.get(name)?.[0].flags ?? []));
  // Only the last of several -march flags counts, so a single one lists all extensions.
  return [...[...flags].filter((flag) => !flag.startsWith("-march")), ...marchOf(compilerFeatures(isa))];
}

/** Flags that enable extensions, as {@link compilerFeatures} names them: `-mavx512vnni`, or one `-march=armv8.2-a+dotprod` for all of Arm's. */
export function extensionFlags(extensions: readonly string[]): string[] {
  const others = extensions.filter((name) => armExtensionNamed(name) === undefined);
  return [...others.map((name) => `-m${name}`), ...marchOf(extensions)];
}

/** The architecture of code with these extensions, x86 or Arm; undefined for code that every CPU runs. */
export function architectureOf(extensions: readonly string[]): "x86" | "arm" | undefined {
  const [first] = extensions;
  return first === undefined ? undefined : armExtensionNamed(first) ? "arm" : "x86";
}

/** Features whose words all appear in /proc/cpuinfo. */
export function featuresIn(words: ReadonlySet<string>): string[] {
  const all = FAMILIES.flatMap((family) => family.features);
  return namesOf(all.filter((f) => f.cpuinfo?.every((word) => words.has(word))));
}

/** Words of /proc/cpuinfo by which a machine has these features. */
export function wordsOf(isa: readonly string[]): string[] {
  return unique(isa.flatMap((name) => FEATURES.get(name)?.[0].cpuinfo ?? []));
}

/** Words of /proc/cpuinfo that features use; they do not tell the length of scalable vectors. */
export function wordsAskedFor(): ReadonlySet<string> {
  return new Set(["sve", ...FAMILIES.flatMap((family) => family.features.flatMap((f) => f.cpuinfo ?? []))]);
}
