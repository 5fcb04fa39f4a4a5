/**
 * @file The roofline of a computation on a machine, after Williams, Waterman and Patterson, CACM 52(4), 2009.
 *
 *     rooflineOn(conv2d, row, nvidiaTarget("h100"))      { intensity: 1.2, ridge: 17, memory: "dram", bound: "memory", seconds: 2.1e-6 }
 *
 * Operations are those of the equation, a multiply and an add as two. Bytes are those of each tensor, read once
 * from the innermost memory that holds them all: small tensors stay in a cache from call to call.
 */

import { volumeOf } from "../abstraction/collections.ts";
import type { Computation } from "../abstraction/computation.ts";
import { internal } from "../abstraction/error.ts";
import { type Intrinsic, WARP } from "../abstraction/intrinsic.ts";
import { issueCyclesOn, levelOf, readRate, type Target } from "../abstraction/machine.ts";
import { isGpu } from "../targets/index.ts";
import { levelHolding, staysNear, trafficOf } from "./rates.ts";
import { neededPoints } from "./roof.ts";
import { modelTarget, timingOf } from "./target.ts";

/** A computation under the two ceilings of a machine. */
export interface RooflinePlace {
  /** Operations of the equation. */
  readonly operations: number;
  /** Operations a byte. */
  readonly intensity: number;
  /** Operations a second when nothing but the instruction is issued. */
  readonly peak: number;
  /** The innermost memory that holds every tensor, and its bytes a second. */
  readonly memory: string;
  readonly bandwidth: number;
  /** Operations a byte from which on the machine computes for longer than it reads. */
  readonly ridge: number;
  /** Which ceiling it is under. */
  readonly bound: "compute" | "memory";
  /** Seconds under that ceiling. */
  readonly seconds: number;
}

/**
 * Places a computation under the roofline of a machine: the lower ceiling of its arithmetic and of the memory that holds its tensors.
 * @param units cores or engines that share the work: one core of a CPU by default; a GPU of blocks is taken whole
 */
export function rooflineOn(computation: Computation, row: Intrinsic, machine: Target, units = 1): RooflinePlace {
  const operations = 2 * neededPoints(computation);
  const bytes = trafficOf(computation);
  const ceilings = isGpu(machine) ? ceilingsOfGpu(row, machine, bytes) : ceilingsOfCores(row, machine, units, bytes);
  const { peak, bandwidth } = ceilings;
  const computing = operations / peak;
  const moving = bytes / bandwidth;
  return {
    operations,
    ...ceilings,
    intensity: operations / bytes,
    ridge: peak / bandwidth,
    bound: computing > moving ? "compute" : "memory",
    seconds: Math.max(computing, moving),
  };
}

type Ceilings = Pick<RooflinePlace, "peak" | "memory" | "bandwidth">;

/** Operations of one issue of an instruction, a multiply and an add as two. */
export const operationsOfIssue = ({ computation }: Intrinsic): number => 2 * volumeOf(computation.axes);

/** Operations of one issue on a GPU, where an instruction of one thread is issued for a whole warp. */
export const operationsOfGpuIssue = (row: Intrinsic): number =>
  operationsOfIssue(row) * (row.scope === "thread" ? WARP : 1);

function ceilingsOfGpu(row: Intrinsic, machine: Target, bytes: number): Ceilings {
  const clock = machine.loadedClockHz?.value ?? machine.clockHz?.value;
  const memory = staysNear(machine, bytes) ? "l2" : "dram";
  const rate = readRate(machine, memory, "grid");
  if (clock === undefined || !rate) internal(`${machine.name} has no clock or no bandwidth of ${memory}`);
  const cycles = issueCyclesOn(machine, row)?.value ?? row.cost?.issueCycles ?? 1;
  return {
    peak: (operationsOfGpuIssue(row) / cycles) * clock * levelOf(machine, "block").units,
    memory,
    bandwidth: rate.per === "second" ? rate.value : rate.value * clock,
  };
}

function ceilingsOfCores(row: Intrinsic, machine: Target, units: number, bytes: number): Ceilings {
  const target = modelTarget(machine);
  const clock = target.clockHz.value * units;
  const level = levelHolding(target, bytes / units) ?? internal(`${machine.name} has no memory`);
  return {
    peak: (operationsOfIssue(row) / timingOf(target, row).issueCycles) * clock,
    memory: level.name,
    bandwidth: level.readBytesPerCycle.value * clock,
  };
}
