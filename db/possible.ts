/**
 * @file Detects results that no machine can have measured. A record is a claim, and a forged time would stay the best for ever. A time must
 * therefore agree with its own samples, with its candidate, and with the speed of the fastest conceivable machine.
 */

import { callingThreads } from "../abstraction/candidate.ts";
import { ascending, sumOf } from "../abstraction/collections.ts";
import { type Computation, memoryElements } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import type { Environment, TrialRecord, WorkloadRecord } from "./record.ts";

/** A clock in hertz above that of every CPU; the record is 9.2 GHz under liquid helium (Core i9-14900KS, 2024). */
const CLOCK_HZ = 10e9;
/** Operations of one core per cycle: four times those of the widest unit, TDPBUSD's 2 * 16*16*64 every 16 cycles (Intel's optimisation manual). */
const OPERATIONS_PER_CYCLE = 8192;
/** Operations per second of one accelerator: ten times the 9e15 of a B200 in four bits (NVIDIA's data sheet). */
const ACCELERATOR_OPERATIONS = 1e17;
/** Cycles of a call to an empty function. */
const CALL_CYCLES = 5;
/** Bytes of all tensors together; kernels are measured with them in memory. */
const MEMORY_BYTES = 2 ** 40;

/** Why a computation cannot have been run; undefined when it can. */
export function impossibleComputation({ tensors }: Computation): string | undefined {
  const bytes = sumOf(Object.values(tensors), (t) => bytesOf(t.dtype) * memoryElements(t));
  return bytes <= MEMORY_BYTES
    ? undefined
    : `its tensors take ${figure(bytes)} bytes, more than ${figure(MEMORY_BYTES)}`;
}

type Claim = Pick<TrialRecord, "candidate" | "intrinsic" | "conditions" | "measurement">;

/** Why a trial cannot have been measured; undefined when it can. */
export function impossibleTrial(
  trial: Claim,
  workload: Pick<WorkloadRecord, "points" | "equation">,
  environment: Pick<Environment, "cores" | "driver">,
): string | undefined {
  const { candidate, intrinsic } = trial;
  const { threads } = trial.conditions;
  if (candidate.intrinsic !== intrinsic)
    return `its candidate uses ${candidate.intrinsic}, its field intrinsic says ${intrinsic}`;
  const calling = callingThreads(candidate);
  if (calling !== threads) return `its candidate runs on ${calling} threads, its field threads says ${threads}`;
  if (threads > environment.cores) return `it ran on ${threads} threads of ${environment.cores} cores`;
  return impossibleTimes(trial, workload, environment);
}

/** Why times cannot have been measured; undefined when they can. */
export function impossibleTimes(
  {
    measurement,
    conditions,
  }: Pick<Claim, "measurement"> & { readonly conditions: Pick<Claim["conditions"], "threads"> },
  { points, equation }: Pick<WorkloadRecord, "points" | "equation">,
  environment: Pick<Environment, "driver">,
): string | undefined {
  if (measurement.status !== "ok") return undefined;
  const { median } = measurement;
  const { threads } = conditions;
  const [low, high] = measurement.interval;
  const samples = ascending(measurement.samples);
  const [least = 0, most = 0] = [samples[0], samples.at(-1)];
  if (median < least || median > most) return "its median lies outside its samples";
  if (low > median || high < median) return "its median lies outside its interval";
  const middle = ((samples[(samples.length - 1) >> 1] ?? 0) + (samples[samples.length >> 1] ?? 0)) / 2;
  if (Math.abs(median - middle) > 1e-6 * middle) return "its median is not the middle of its samples";

  const call = CALL_CYCLES / CLOCK_HZ;
  if (median < call)
    return `its median of ${figure(median)} s is shorter than any call: ${CALL_CYCLES} cycles at ${CLOCK_HZ / 1e9} GHz are ${figure(call)} s`;
  // A condition may exclude most points.
  const rate = equation.includes(" where ") ? 0 : (2 * points) / median;
  const peak = environment.driver === undefined ? threads * CLOCK_HZ * OPERATIONS_PER_CYCLE : ACCELERATOR_OPERATIONS;
  if (rate <= peak) return undefined;
  const why =
    environment.driver === undefined
      ? `${threads} ${threads === 1 ? "thread" : "threads"} at ${CLOCK_HZ / 1e9} GHz and ${OPERATIONS_PER_CYCLE} a cycle`
      : "any accelerator";
  return `its median of ${figure(median)} s would be ${figure(rate)} operations a second; ${why} can do ${figure(peak)}`;
}

function figure(value: number): string {
  return value.toExponential(2);
}
