/**
 * @file The roofline of a report: the ceilings that a calibration gives, for one core or a whole GPU, and the trials under them.
 *
 *     const ceilings = ceilingsOf(db, environment)       undefined without a calibration
 *     ceilings.roofs(trial)                              { seconds: 1.2e-4, by: "the rate of avx512.vpdpbusd" }: it takes that long at least
 */

import { product, sumOf, withName } from "../../abstraction/collections.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { attempt } from "../../abstraction/error.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import { levelOf, type Target } from "../../abstraction/machine.ts";
import { day } from "../../abstraction/text.ts";
import { computationOf, type Database, type EnvironmentRecord, labelOf, type TrialRecord } from "../../db/index.ts";
import { intrinsicNamed } from "../../intrinsics/index.ts";
import type { CalibratedMemory, Calibration } from "../../perfmodel/calibrate.ts";
import type { GpuCalibration } from "../../perfmodel/calibrate-gpu.ts";
import { neededPoints } from "../../perfmodel/roof.ts";
import { operationsOfGpuIssue, operationsOfIssue } from "../../perfmodel/roofline.ts";
import type { Roof, Roofline, RooflinePoint } from "../../report/report-data.ts";
import { printTime, rateText } from "../../report/text.ts";
import { gpuTargetNamed, nativeTarget } from "../../targets/index.ts";
import { inOrder, isTimed } from "../../tuner/trials.ts";
import { boundsOf, contradictionOf, contradictionText, rateOfBound } from "../calibrate/contradiction.ts";
import { storedGpuCalibration } from "../calibrate/gpu-rates.ts";
import { recordedMachine, storedCalibration } from "../recorded.ts";

/** Lower bound that a calibration sets on a trial's time. */
export type Roofs = (trial: TrialRecord) => Roof | undefined;

export interface Ceilings extends Pick<Roofline, "of" | "source" | "bandwidths" | "rates"> {
  /** Operations per second of one core or of the GPU when it issues nothing but the instruction. */
  readonly peakOf: (row: Intrinsic) => number | undefined;
  readonly roofs: Roofs;
  /** A sentence on how these trials contradict the calibration, if they do. */
  readonly contradicted: (winners: readonly TrialRecord[]) => string | undefined;
}

export function ceilingsOf(db: Database, environment: EnvironmentRecord): Ceilings | undefined {
  const gpu = gpuTargetNamed(environment.target);
  return gpu ? ceilingsOfGpu(db, environment, gpu) : ceilingsOfCore(db, environment);
}

export function rooflineOf(
  environment: number,
  groups: readonly (readonly TrialRecord[])[],
  winners: ReadonlySet<string>,
  { of, source, bandwidths, rates, peakOf, contradicted }: Ceilings,
): Roofline {
  const trials = groups.flat();
  const used = new Set(trials.map((t) => t.candidate.intrinsic));
  const peaks = [...used].sort(inOrder).flatMap((name) => {
    const row = intrinsicNamed(name);
    const peak = row && peakOf(row);
    return peak === undefined ? [] : [{ name, operationsPerSecond: peak }];
  });
  const points = groups.flatMap((own) => {
    const operations = own[0] ? operationsThatCount(own[0]) : 0;
    return own.filter(isTimed).map(
      (t): RooflinePoint => ({
        label: labelOf(t.workload),
        dtype: t.workload.dtype,
        intensity: operations / bytesMoved(t),
        operationsPerSecond: operations / t.measurement.median / t.conditions.threads,
        best: winners.has(t.id),
      }),
    );
  });
  return {
    environment,
    of,
    source,
    peaks,
    bandwidths,
    rates,
    points,
    contradicted: contradicted(trials.filter((t) => winners.has(t.id))),
  };
}

/** Useful operations: a multiply and an add count as two, and products of padding do not count where they can be told apart. */
function operationsThatCount({ workload }: TrialRecord): number {
  return 2 * (attempt(() => neededPoints(computationOf(workload))) || workload.points);
}

/** Bytes moved when each element of each tensor is moved once. */
function bytesMoved({ workload }: TrialRecord): number {
  return sumOf(Object.values(workload.tensors), ({ dtype, shape }) => bytesOf(dtype) * product(shape));
}

const gigahertz = (hertz: number): string => `${(hertz / 1e9).toFixed(2)} GHz`;
const gigabytes = (perSecond: number): string => `${rateText(perSecond)}B/s`;

// ---- A core

function ceilingsOfCore(db: Database, environment: EnvironmentRecord): Ceilings | undefined {
  const stored = storedCalibration(db, environment, { imported: true });
  if (!stored) return undefined;
  const { calibration: c, at } = stored;
  const clock = c.clockHz.median;
  // Its caches decide which level each tensor must be read from.
  const machineOf = ([trial]: readonly TrialRecord[]): Target =>
    trial ? recordedMachine(db, trial).machine : nativeTarget();
  return {
    of: "core",
    source: `calibrated on ${c.machine}, ${day(at)}, one core at ${gigahertz(clock)}`,
    bandwidths: levelsOf(c).map(([name, m]) => ({ name, bytesPerSecond: m.readBytesPerCycle.median * clock })),
    rates: levelsOf(c).map(([name, m]) => [
      `${name}, written and copied`,
      `${gigabytes(m.writeBytesPerCycle.median * clock)}, ${gigabytes(m.copyBytesPerCycle.median * clock)}`,
    ]),
    peakOf: (row) => {
      const timing = c.intrinsics[row.name];
      return timing && (operationsOfIssue(row) * clock) / timing.issueCycles.median;
    },
    roofs: (trial) => {
      const bounds = attempt(() => boundsOf(trial, c, machineOf([trial]))) ?? [];
      const [longest] = bounds;
      return longest && bounds.some((b) => b.kind === "instruction" && b.seconds > 0)
        ? { seconds: longest.seconds, by: rateOfBound(longest) }
        : undefined;
    },
    contradicted: (winners) => {
      const found = contradictionOf(winners, stored, machineOf(winners));
      return found && contradictionText(found, db.path);
    },
  };
}

/** Innermost first. */
function levelsOf({ memory }: Calibration): [string, CalibratedMemory][] {
  return Object.entries(memory).sort(([, a], [, b]) => a.footprintBytes - b.footprintBytes);
}

// ---- A GPU

function ceilingsOfGpu(db: Database, environment: EnvironmentRecord, target: Target): Ceilings | undefined {
  const stored = storedGpuCalibration(db, environment, { imported: true });
  if (!stored) return undefined;
  const { calibration: c, at } = stored;
  const units = levelOf(target, "block").units;
  const clock = Math.max(c.clockHz.median, c.loadedClockHz.median);
  const peakOf = (row: Intrinsic): number | undefined => {
    const timing = c.instructions[row.name];
    return timing && (operationsOfGpuIssue(row) * units * clock) / timing.issueCycles.median;
  };
  const cache = withName(target.memories, "l2")?.bytes?.value ?? 0;
  return {
    of: "GPU",
    source: `calibrated on ${c.machine}, ${day(at)}, ${units} multiprocessors at ${gigahertz(clock)}`,
    bandwidths: [
      { name: "l2", bytesPerSecond: c.l2.readBytesPerSecond.median },
      { name: "dram", bytesPerSecond: c.dram.readBytesPerSecond.median },
    ],
    rates: ratesOfGpu(c, units),
    peakOf,
    roofs: (trial) => {
      const row = intrinsicNamed(trial.candidate.intrinsic);
      const peak = row && peakOf(row);
      // Data may still be in the cache from the previous call.
      const fromMemory = Math.max(0, bytesMoved(trial) - cache) / c.dram.readBytesPerSecond.median;
      if (peak === undefined) return undefined;
      const issuing = operationsThatCount(trial) / peak;
      return issuing >= fromMemory
        ? { seconds: issuing, by: rateOfBound({ kind: "instruction", name: row?.name ?? "" }) }
        : { seconds: fromMemory, by: rateOfBound({ kind: "memory", name: "dram" }) };
    },
    contradicted: () => undefined,
  };
}

/** From the multiprocessor outwards. */
function ratesOfGpu(c: GpuCalibration, units: number): [string, string][] {
  const latency = ({ median }: { readonly median: number }): string =>
    `${median.toFixed(0)} cycles, ${printTime(median / c.clockHz.median)}`;
  const shared = c.shared.readBytesPerCycle.median;
  return [
    ["shared memory, read", `${shared.toFixed(0)} bytes a cycle, times ${units}`],
    ["shared memory, latency", latency(c.shared.latencyCycles)],
    ["l2, written", gigabytes(c.l2.writeBytesPerSecond.median)],
    ["l2, latency", latency(c.l2.latencyCycles)],
    ["dram, copied (read and written)", gigabytes(c.dram.copyBytesPerSecond.median)],
    ["dram, latency", latency(c.dram.latencyCycles)],
    ["launch of an empty kernel", printTime(c.launchSeconds.median)],
    ["clock with one warp at work", gigahertz(c.clockHz.median)],
    ["clock with all matrix units at work", gigahertz(c.loadedClockHz.median)],
  ];
}
