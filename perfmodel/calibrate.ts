/**
 * @file Measures the model's figures on this machine by running the program of cpu-probes.ts, and converts them to cycles.
 *
 *     const calibration = await calibrate(nativeTarget(), rows, compileAndRun)
 *     modelTarget(nativeTarget(), calibration)
 *
 * A cycle is the time of one dependent addition. Every figure is the median of several samples, with their spread, in the round in which it took least:
 * instructions on tiles took twice and loads of tiles four times as long in three of eight calibrations of a Xeon (2026-11-30), for seconds.
 */

import { ascending } from "../abstraction/collections.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import type { ScalarCycles, Target } from "../abstraction/machine.ts";
import type { SourceText } from "../abstraction/source-text.ts";
import { COPY_RUNS, calibrationSource, footprints } from "./cpu-probes.ts";

export interface Measured {
  readonly median: number;
  /** Half the samples lie within this share of the median around it: (upper - lower quartile) / median. */
  readonly spread: number;
}

export interface CalibratedIntrinsic {
  readonly issueCycles: Measured;
  readonly latencyCycles: Measured;
  /** Cycles of a load, by input operand. */
  readonly loadCycles: Readonly<Record<string, Measured>>;
  readonly storeCycles: Measured;
}

/** Plain data that survives JSON. Cycles are of one core; bytes per cycle are for data of the given footprint. */
export interface Calibration {
  readonly machine: string;
  readonly clockHz: Measured;
  readonly loadsPerCycle: Measured | undefined;
  readonly memory: Readonly<Record<string, CalibratedMemory>>;
  readonly intrinsics: Readonly<Record<string, CalibratedIntrinsic>>;
  readonly scalar: Readonly<Partial<Record<keyof ScalarCycles, Measured>>>;
}

export interface CalibratedMemory {
  /** Size of the data that was traversed. */
  readonly footprintBytes: number;
  readonly readBytesPerCycle: Measured;
  readonly writeBytesPerCycle: Measured;
  /** Bytes that a copy moves, each counted once. */
  readonly copyBytesPerCycle: Measured;
}

/**
 * Compiles a C++17 program as kernels are compiled (`-O3`) and runs it on this machine.
 * @param features features the compiler may use, by their names in the intrinsics table: `avx512_vnni`
 * @returns the program's output
 */
export type CompileAndRun = (source: SourceText, features: readonly string[]) => Promise<string>;

/**
 * Measures this machine. Takes a few seconds.
 * @param rows instructions to time; those that the target lacks, or that cannot be used from C++, are left out
 */
export async function calibrate(
  target: Target,
  rows: readonly Intrinsic[],
  compileAndRun: CompileAndRun,
): Promise<Calibration> {
  const timed = calibratable(target, rows);
  const source = calibrationSource(target, timed);
  return readCalibration(target, timed, await compileAndRun(source, target.isa));
}

/** The rows that run on a target. */
export function calibratable(target: Target, rows: readonly Intrinsic[]): readonly Intrinsic[] {
  return rows.filter((row) => row.language === "c++" && row.features.every((needed) => target.isa.includes(needed)));
}

/** Parses the program's output. @throws Error when a required line is missing */
export function readCalibration(target: Target, rows: readonly Intrinsic[], printed: string): Calibration {
  const samples = new Map<string, number[]>();
  for (const line of printed.split("\n")) {
    const [label, numbers] = line.split(":");
    if (label === undefined || numbers === undefined) continue;
    const values = numbers.trim().split(/\s+/).map(Number);
    if (values.some((v) => !(v > 0))) throw new Error(`calibration: ${label} printed "${numbers.trim()}"`);
    const known = samples.get(label);
    if (!known || summary(values).median < summary(known).median) samples.set(label, values);
  }
  const nanoseconds = (label: string): number[] => {
    const found = samples.get(label);
    if (!found) throw new Error(`calibration: the program printed nothing for ${label}`);
    return found;
  };
  const cycle = summary(nanoseconds("clock")).median;
  const cycles = (label: string): Measured => summary(nanoseconds(label).map((ns) => ns / cycle));
  const rate = (label: string): Measured => summary(nanoseconds(label).map((ns) => cycle / ns));
  const [few, many] = COPY_RUNS;
  const { median, spread } = cycles(`run ${few}`);
  const copyByte = Math.max(0, (cycles(`run ${many}`).median - median) / (many - few));
  const indexed = cycles("indexed");
  return {
    machine: target.name,
    clockHz: summary(nanoseconds("clock").map((ns) => 1e9 / ns)),
    loadsPerCycle: rate("loads"),
    memory: Object.fromEntries(
      footprints(target).map(({ name, bytes }): [string, CalibratedMemory] => [
        name,
        {
          footprintBytes: bytes,
          readBytesPerCycle: rate(`read ${name}`),
          writeBytesPerCycle: rate(`write ${name}`),
          copyBytesPerCycle: rate(`copy ${name}`),
        },
      ]),
    ),
    intrinsics: Object.fromEntries(
      rows.map((row): [string, CalibratedIntrinsic] => [
        row.name,
        {
          issueCycles: cycles(`issue ${row.name}`),
          latencyCycles: cycles(`latency ${row.name}`),
          loadCycles: Object.fromEntries(
            row.operands.slice(1).map((o) => [o.name, cycles(`load ${row.name} ${o.name}`)]),
          ),
          storeCycles: cycles(`store ${row.name}`),
        },
      ]),
    ),
    scalar: {
      copyByte: { median: copyByte, spread },
      copyRun: { median: Math.max(0, median - few * copyByte), spread },
      strided: cycles("strided"),
      indexed,
      // Each of those loops has two.
      digit: beyond(cycles("digit"), indexed),
      guard: beyond(cycles("guard"), indexed),
      scattered: cycles("scattered"),
      // Printed where the widest vectors gather and scatter.
      ...(samples.has("gathered lane") && { gatheredLane: cycles("gathered lane") }),
      ...(samples.has("scattered lane") && { scatteredLane: cycles("scattered lane") }),
    },
  };
}

/** Half of the extra time that a loop takes over a plain one. */
function beyond(loop: Measured, plain: Measured): Measured {
  return { median: Math.max(0, loop.median - plain.median) / 2, spread: loop.spread };
}

/** The median, and its spread. */
export function summary(samples: readonly number[]): Measured {
  const sorted = ascending(samples);
  const quantile = (q: number): number => {
    const place = q * (sorted.length - 1);
    const low = sorted[Math.floor(place)] ?? 0;
    const high = sorted[Math.ceil(place)] ?? 0;
    return low + (high - low) * (place - Math.floor(place));
  };
  const median = quantile(0.5);
  return { median, spread: (quantile(0.75) - quantile(0.25)) / median };
}
