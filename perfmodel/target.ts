/**
 * @file The facts about a CPU that the latency model needs, each with its source.
 *
 *     modelTarget(nativeTarget())                     sizes of this machine, rates of the reference machine
 *     modelTarget(nativeTarget(), calibration)        rates measured on this machine
 *
 * Memory is listed from the inside out, `l1 l2 l3 dram`. A level's bandwidth is that of one core when its data lies there.
 */

import { mapValues, withName } from "../abstraction/collections.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { internal } from "../abstraction/error.ts";
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
  /** Undefined for main memory, which is unlimited. */
  readonly bytes: number | undefined;
  readonly readBytesPerCycle: Figure;
  /** Includes lines that are fetched before they are written. */
  readonly writeBytesPerCycle: Figure;
}

/** Cycles on one core, with data in registers or the first-level cache. */
interface IntrinsicTiming {
  /** Cycles between two independent issues. */
  readonly issueCycles: number;
  /** Cycles until the next issue on the same accumulator may start. */
  readonly latencyCycles: number;
  /** Cycles between two tile loads of an operand. */
  readonly loadCycles: Readonly<Record<string, number>>;
  /** Cycles between two tile stores of the result. */
  readonly storeCycles: number;
  readonly source: string;
}

/** A {@link Target} in the form the model uses: the resources of one core, in cycles. */
export interface ModelTarget extends Pipeline {
  readonly name: string;
  readonly clockHz: Figure;
  /** Innermost first; the last one has no size. */
  readonly memory: readonly MemoryLevel[];
  readonly loadsPerCycle: Figure;
  readonly storesPerCycle: Figure;
  /** Cycles lost at the end of each register block: a mispredicted exit, and the last results in flight. */
  readonly blockCycles: Figure;
  /** Cycles between two phases when there is more than one thread. */
  readonly barrierCycles: Figure;
  readonly scalar: ScalarCycles;
  /** Timings by instruction name. Other instructions use the machine's rates, else their declared cost. */
  readonly timings: Readonly<Record<string, IntrinsicTiming>>;
  /** Its rates by instruction family. */
  readonly machine: Target;
}

/** The figures of a target: sizes from the target; rates from the calibration if it has them, else of the reference machine. */
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
        const found = bandwidth.find((b) => b.direction === direction) ?? internal(`no ${direction} rate of ${name}`);
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
    scalar: mapValues(scalar, (figure, name) => of(calibration?.scalar[name], figure)),
    timings: mapValues(
      calibration?.intrinsics ?? {},
      (t): IntrinsicTiming => ({
        issueCycles: t.issueCycles.median,
        latencyCycles: t.latencyCycles.median,
        loadCycles: mapValues(t.loadCycles, (m) => m.median),
        storeCycles: t.storeCycles.median,
        source: `calibrated on ${calibration?.machine}`,
      }),
    ),
  };
}

/** Properties that a CPU has and a GPU does not. */
function corePartsOf(target: Target) {
  const { name, pipeline, scalar, fixed } = target;
  const barrier = target.levels[0]?.barrier?.cycles;
  const { block } = fixed;
  if (!pipeline || !scalar || !block || !barrier) internal(`the model knows too little of ${name} as a CPU`);
  return { pipeline, scalar, block, barrier };
}

/** Timing of an instruction: calibrated, else from the machine's rates, else declared, else assumed. */
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
    storeCycles:
      intrinsic.cost?.storeCycles ??
      (result ? cycles(result, target.storesPerCycle.value, l1?.writeBytesPerCycle.value) : 0),
    source: cost?.source ?? "assumed: one issue a cycle, latency 5",
  };
}

/** Innermost first: the target's caches, with the reference rates of the same name where it has none; the reference machine's when it lists none. */
function memoryOf(target: Target): readonly Memory[] {
  const [dram, ...outermostFirst] = referenceOf(target).memories;
  if (!dram) internal("the reference machine has no memory");
  const reference: readonly Memory[] = outermostFirst.reverse();
  const caches = target.memories.filter((m) => m.bytes !== undefined).reverse();
  if (caches.length === 0) return [...reference, dram];
  // A cache with another name is taken for the last one.
  const rates = (name: string): Memory["bandwidth"] => (withName(reference, name) ?? reference.at(-1))?.bandwidth ?? [];
  const own = target.memories.find((m) => m.bytes === undefined && m.bandwidth.length > 0);
  return [...caches.map((m) => (m.bandwidth.length > 0 ? m : { ...m, bandwidth: rates(m.name) })), own ?? dram];
}
