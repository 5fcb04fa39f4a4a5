/**
 * @file What the latency model needs to know of a CPU, each figure with its source.
 *
 *     modelTarget(nativeTarget())                     sizes of this machine, rates of the reference machine
 *     modelTarget(nativeTarget(), calibration)        rates measured on this machine
 *
 * Memory is listed from the inside out, `l1 l2 l3 dram`; a level's bandwidth is what one core gets when its data lies there.
 */

import { bytesOf } from "../abstraction/dtype.ts";
import type { Intrinsic, Operand } from "../abstraction/intrinsic.ts";
import {
  type Figure,
  type Memory,
  type Pipeline,
  ratedCost,
  type ScalarCycles,
  type Target,
  unitCost,
} from "../abstraction/machine.ts";
import { tileElements } from "../abstraction/memory-tile.ts";
import { referenceOf } from "../targets/native.ts";
import type { Calibration, Measured } from "./calibrate.ts";

export interface MemoryLevel {
  readonly name: string;
  /** Undefined for main memory, which holds everything. */
  readonly bytes: number | undefined;
  readonly readBytesPerCycle: Figure;
  /** Lines fetched before they are written included. */
  readonly writeBytesPerCycle: Figure;
}

/** Cycles of one core, from registers and first-level cache. */
export interface IntrinsicTiming {
  /** Between two independent issues. */
  readonly issueCycles: number;
  /** Until the next issue on the same accumulator may start. */
  readonly latencyCycles: number;
  /** Between two tile loads of an operand. */
  readonly loadCycles: Readonly<Record<string, number>>;
  /** Between two tile stores of the result. */
  readonly storeCycles: number;
  readonly source: string;
}

/** {@link Target} as the model reads it: what one core has, in cycles. */
export interface ModelTarget extends Pipeline {
  readonly name: string;
  readonly clockHz: Figure;
  /** Innermost first; the last one has no size. */
  readonly memory: readonly MemoryLevel[];
  readonly loadsPerCycle: Figure;
  readonly storesPerCycle: Figure;
  /** Lost at the end of each register block: a mispredicted exit, the last results on their way. */
  readonly blockCycles: Figure;
  /** Between two phases when there is more than one thread. */
  readonly barrierCycles: Figure;
  readonly scalar: ScalarCycles;
  /** By name of the instruction; others fall back on the rates of the machine, then on their declared cost. */
  readonly timings: Readonly<Record<string, IntrinsicTiming>>;
  /** Its rates by family of instructions. */
  readonly machine: Target;
}

/** The figures of a target: sizes from the target, rates from the calibration where it has them, else of the reference machine. */
export function modelTarget(target: Target, calibration?: Calibration): ModelTarget {
  const of = (measured: Measured | undefined, otherwise: Figure): Figure =>
    measured === undefined || calibration === undefined
      ? otherwise
      : { value: measured.median, source: `calibrated on ${calibration.machine}` };
  const { pipeline, scalar, block, barrier } = corePartsOf(target);
  const { clockHz } = referenceOf(target);
  const perCycle = (unit: string): Figure => {
    const { issueCycles, source } = unitCost(target, unit);
    return { value: 1 / issueCycles, source };
  };
  return {
    name: target.name,
    machine: target,
    clockHz: of(calibration?.clockHz, target.clockHz ?? clockHz),
    memory: memoryOf(target).map(({ name, bytes, bandwidth }): MemoryLevel => {
      const measured = calibration?.memory[name];
      const rate = (direction: "read" | "write"): Figure => {
        const found = bandwidth.find((b) => b.direction === direction);
        if (!found) throw new Error(`internal: no ${direction} rate of ${name}`);
        return { value: found.per === "cycle" ? found.value : found.value / clockHz.value, source: found.source };
      };
      return {
        name,
        bytes: bytes?.value,
        readBytesPerCycle: of(measured?.readBytesPerCycle, rate("read")),
        writeBytesPerCycle: of(measured?.writeBytesPerCycle, rate("write")),
      };
    }),
    loadsPerCycle: of(calibration?.loadsPerCycle, perCycle("load")),
    storesPerCycle: perCycle("store"),
    ...pipeline,
    blockCycles: { value: block.value, source: block.source },
    barrierCycles: barrier,
    scalar: {
      ...scalar,
      copyByte: of(calibration?.scalar.copyByte, scalar.copyByte),
      copyRun: of(calibration?.scalar.copyRun, scalar.copyRun),
      strided: of(calibration?.scalar.strided, scalar.strided),
      indexed: of(calibration?.scalar.indexed, scalar.indexed),
      scattered: of(calibration?.scalar.scattered, scalar.scattered),
      digit: of(calibration?.scalar.digit, scalar.digit),
      guard: of(calibration?.scalar.guard, scalar.guard),
    },
    timings: Object.fromEntries(
      Object.entries(calibration?.intrinsics ?? {}).map(([name, t]): [string, IntrinsicTiming] => [
        name,
        {
          issueCycles: t.issueCycles.median,
          latencyCycles: t.latencyCycles.median,
          loadCycles: Object.fromEntries(Object.entries(t.loadCycles).map(([o, m]) => [o, m.median])),
          storeCycles: t.storeCycles.median,
          source: `calibrated on ${calibration?.machine}`,
        },
      ]),
    ),
  };
}

/** What a CPU has that a GPU has not. */
function corePartsOf(target: Target) {
  const { name, pipeline, scalar, fixed } = target;
  const barrier = target.levels[0]?.barrier?.cycles;
  const { block } = fixed;
  if (!pipeline || !scalar || !block || !barrier)
    throw new Error(`internal: the model knows too little of ${name} as a CPU`);
  return { pipeline, scalar, block, barrier };
}

/** Timing of an instruction: calibrated, else by the rates of the machine, else declared, else assumed. */
export function timingOf(target: ModelTarget, intrinsic: Intrinsic): IntrinsicTiming {
  const known = target.timings[intrinsic.name];
  if (known) return known;
  const [l1] = target.memory;
  const cycles = (operand: Operand, perCycle: number, bandwidth: number | undefined): number => {
    const bytes = tileElements(operand) * bytesOf(operand.dtype);
    return Math.max(1 / perCycle, bandwidth === undefined ? 0 : bytes / bandwidth);
  };
  const { operands } = intrinsic;
  const cost = ratedCost(target.machine, intrinsic) ?? intrinsic.cost;
  const [result, ...inputs] = operands;
  return {
    issueCycles: cost?.issueCycles ?? 1,
    latencyCycles: cost?.latencyCycles ?? 5,
    loadCycles: Object.fromEntries(
      inputs.map((o) => [o.name, cycles(o, target.loadsPerCycle.value, l1?.readBytesPerCycle.value)]),
    ),
    storeCycles: result ? cycles(result, target.storesPerCycle.value, l1?.writeBytesPerCycle.value) : 0,
    source: cost?.source ?? "assumed: one issue a cycle, latency 5",
  };
}

/** Innermost first: the caches of the target, with the reference rates of their name where it has none; the reference machine's where it knows none. */
function memoryOf(target: Target): readonly Memory[] {
  const [dram, ...outermostFirst] = referenceOf(target).memories;
  if (!dram) throw new Error("internal: the reference machine has no memory");
  const reference: readonly Memory[] = outermostFirst.reverse();
  const caches = target.memories.filter((m) => m.bytes !== undefined).reverse();
  if (caches.length === 0) return [...reference, dram];
  // What is called otherwise is taken for the last cache.
  const rates = (name: string): Memory["bandwidth"] =>
    (reference.find((m) => m.name === name) ?? reference.at(-1))?.bandwidth ?? [];
  const own = target.memories.find((m) => m.bytes === undefined && m.bandwidth.length > 0);
  return [...caches.map((m) => (m.bandwidth.length > 0 ? m : { ...m, bandwidth: rates(m.name) })), own ?? dram];
}
