/**
 * @file The measured figures of a GPU, and the target that the model uses with them instead of the table's figures.
 *
 *     const calibration = await calibrateGpu(nvidiaTarget("h100"), rows, runner.probe)
 *     calibratedGpu(nvidiaTarget("h100"), calibration)      the same machine, each figure with the source "calibrated on NVIDIA H100 ..."
 *
 * Cycles are read from a multiprocessor's own counter, so that changes of the clock under load and power limits do not affect them.
 */

import { volumeOf, withName } from "../abstraction/collections.ts";
import type { Cost, Intrinsic } from "../abstraction/intrinsic.ts";
import {
  type Bandwidth,
  type Figure,
  levelOf,
  type Memory,
  type Rate,
  type Target,
  type Unit,
} from "../abstraction/machine.ts";
import { intrinsicNamed } from "../intrinsics/index.ts";
import { type Measured, summary } from "./calibrate.ts";
import { type Footprints, gpuProbes, type Probe, type ProbeLibrary, probedRows } from "./gpu-probes.ts";

/** Plain data that survives JSON. */
export interface GpuCalibration {
  readonly kind: "gpu";
  /** The GPU's name as reported by its driver. */
  readonly machine: string;
  /** Clock with one warp running, and with all matrix units busy. */
  readonly clockHz: Measured;
  readonly loadedClockHz: Measured;
  /** By name: cycles between two issues on one multiprocessor, and until a dependent issue may start. */
  readonly instructions: Readonly<Record<string, { readonly issueCycles: Measured; readonly latencyCycles: Measured }>>;
  /** Bytes per second of all multiprocessors together; latency of one dependent read in cycles. */
  readonly l2: GpuMemory & { readonly writeBytesPerSecond: Measured };
  readonly dram: GpuMemory & {
    /** Bytes read and written by a copy, counting both. */
    readonly copyBytesPerSecond: Measured;
  };
  /** Shared memory of one multiprocessor. */
  readonly shared: { readonly readBytesPerCycle: Measured; readonly latencyCycles: Measured };
  /** Time of an empty kernel in a graph of several. */
  readonly launchSeconds: Measured;
}

interface GpuMemory {
  readonly readBytesPerSecond: Measured;
  readonly latencyCycles: Measured;
}

/** Seconds and cycles of one repetition, one pair for each sample. */
type ProbeSamples = readonly (readonly [seconds: number, cycles: number])[];

/** Compiles libraries of probes in parallel and runs them one after another. @returns the samples of every probe, in order */
type RunProbes = (libraries: readonly ProbeLibrary[]) => Promise<readonly ProbeSamples[]>;

/**
 * Measures a GPU. Takes some seconds, mostly for compilation.
 * @param machine the GPU's name as reported by its driver
 * @param rows instructions to time; those that the target lacks are left out
 */
export async function calibrateGpu(
  target: Target,
  machine: string,
  rows: readonly Intrinsic[],
  run: RunProbes,
  footprints?: Footprints,
): Promise<GpuCalibration> {
  const libraries = gpuProbes(target, probedRows(target, rows), footprints);
  const samples = await run(libraries);
  return gpuCalibrationOf(
    machine,
    libraries.flatMap((l) => l.probes),
    samples,
  );
}

/** @throws Error when a required probe has no samples */
function gpuCalibrationOf(machine: string, probes: readonly Probe[], samples: readonly ProbeSamples[]): GpuCalibration {
  const found = new Map(probes.map((p, i) => [p.label, { ...p, samples: samples[i] ?? [] }]));
  const measured = (label: string, figure: (sample: { seconds: number; cycles: number }, units: number) => number) => {
    const probe = found.get(label);
    const values = probe?.samples.map(([seconds, cycles]) => figure({ seconds, cycles }, probe.units)) ?? [];
    if (values.length === 0 || values.some((v) => !(v > 0 && v < Number.POSITIVE_INFINITY)))
      throw new Error(`calibration: the probe "${label}" gave ${values.join(" ") || "nothing"}`);
    return summary(values);
  };
  const cycles = (label: string): Measured => measured(label, (s, units) => s.cycles / units);
  const rate = (label: string): Measured => measured(label, (s, units) => units / s.seconds);
  const clock = (label: string): Measured => measured(label, (s) => s.cycles / s.seconds);
  const names = probes.flatMap(({ label }) => /^latency (.*\..*)$/.exec(label)?.[1] ?? []);
  if (names.length === 0) throw new Error("calibration: no instruction was timed");
  return {
    kind: "gpu",
    machine,
    // During the first probes the clock may still be rising.
    clockHz: names.map((name) => clock(`latency ${name}`)).reduce((a, b) => (b.median > a.median ? b : a)),
    loadedClockHz: clock("loaded clock"),
    instructions: Object.fromEntries(
      names.map((name) => [name, { issueCycles: cycles(`issue ${name}`), latencyCycles: cycles(`latency ${name}`) }]),
    ),
    l2: {
      readBytesPerSecond: rate("read l2"),
      writeBytesPerSecond: rate("write l2"),
      latencyCycles: cycles("latency l2"),
    },
    dram: {
      readBytesPerSecond: rate("read dram"),
      copyBytesPerSecond: rate("copy dram"),
      latencyCycles: cycles("latency dram"),
    },
    shared: {
      readBytesPerCycle: measured("read shared", (s, units) => units / s.cycles),
      latencyCycles: cycles("latency shared"),
    },
    launchSeconds: measured("launch", (s) => s.seconds),
  };
}

/** A target with measured figures instead of the table's. Figures that no probe measures stay as they are. */
export function calibratedGpu(target: Target, calibration: GpuCalibration): Target {
  const source = `calibrated on ${calibration.machine}`;
  const figure = ({ median }: Measured): Figure => ({ value: median, source });
  const units = levelOf(target, "block").units;
  const { l2, dram, shared, instructions } = calibration;
  const perSecond = (
    { median }: Measured,
    direction: Bandwidth["direction"],
    of: Bandwidth["of"],
    share = 1,
  ): Bandwidth => ({ value: median / share, per: "second", direction, of, source });
  const measured: Readonly<Record<string, Pick<Memory, "latencyCycles" | "bandwidth">>> = {
    l2: {
      latencyCycles: figure(l2.latencyCycles),
      bandwidth: [
        perSecond(l2.readBytesPerSecond, "read", "grid"),
        perSecond(l2.readBytesPerSecond, "read", "block", units),
        perSecond(l2.writeBytesPerSecond, "write", "block", units),
      ],
    },
    dram: {
      latencyCycles: figure(dram.latencyCycles),
      // A kernel reads and writes memory, so the rate of a copy applies to both.
      bandwidth: [perSecond(dram.copyBytesPerSecond, "both", "grid")],
    },
    shared: {
      latencyCycles: figure(shared.latencyCycles),
      bandwidth: [{ value: shared.readBytesPerCycle.median, per: "cycle", direction: "both", of: "block", source }],
    },
  };
  const issued = Object.entries(instructions).map(([name, { issueCycles, latencyCycles }]): [string, Cost] => [
    name,
    { issueCycles: issueCycles.median, latencyCycles: latencyCycles.median, source },
  ]);
  return {
    ...target,
    clockHz: figure(calibration.clockHz),
    loadedClockHz: figure(calibration.loadedClockHz),
    memories: target.memories.map((m) => ({ ...m, ...measured[m.name] })),
    rates: target.rates.map((rate) => withShares(rate, target, Object.fromEntries(issued))),
    units: target.units.map((u) => withCosts(u, Object.fromEntries(issued), source)),
    fixed: { ...target.fixed, launch: { ...figure(calibration.launchSeconds), per: "second" } },
    issued: Object.fromEntries(issued),
  };
}

/** Where a rate depends on an extent, uses the measured rates of the family and interpolates between them. */
function withShares(rate: Rate, target: Target, issued: Readonly<Record<string, Cost>>): Rate {
  const { share, family, unit } = rate;
  const peak = withName(target.units, unit)?.operationsPerCycle?.f16;
  if ("value" in share || peak === undefined) return rate;
  const points = Object.entries(issued).flatMap(([name, { issueCycles }]): [number, number][] => {
    const row = intrinsicNamed(name);
    if (row?.family !== family || row.operands.at(-1)?.dtype !== "f16" || row.operands[0]?.dtype !== "f32") return [];
    const operations = 2 * volumeOf(row.computation.axes);
    const extent = withName(row.computation.axes, share.axis)?.extent ?? 1;
    return [[extent, operations / (peak * issueCycles)]];
  });
  if (points.length === 0) return rate;
  const [first] = Object.values(issued);
  return {
    ...rate,
    share: { ...share, points: points.sort(([a], [b]) => a - b), source: first?.source ?? share.source },
  };
}

/** Cost of lane vectors on a unit, from the instruction that represents them. */
function withCosts(unit: Unit, issued: Readonly<Record<string, Cost>>, source: string): Unit {
  const named = { fma: "cuda.fma.f32", shuffle: Object.keys(issued).find((n) => n.startsWith("shuffle.")) }[unit.name];
  const cost = named === undefined ? undefined : issued[named];
  return cost ? { ...unit, issueCycles: cost.issueCycles, latencyCycles: cost.latencyCycles, source } : unit;
}
