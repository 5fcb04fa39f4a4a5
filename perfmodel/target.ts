/**
 * @file What the latency model needs to know of a CPU, each figure with its source.
 *
 *     modelTarget(nativeTarget())                     sizes of this machine, rates of the reference machine
 *     modelTarget(nativeTarget(), calibration)        rates measured on this machine
 *
 * Memory is listed from the inside out, `l1 l2 l3 dram`; a level's bandwidth is what one core gets when its data lies there.
 */

import { bytesOf } from "../abstraction/dtype.ts";
import { type Intrinsic, type Operand, tileElements } from "../abstraction/intrinsic.ts";
import type { Target } from "../abstraction/target.ts";
import type { Calibration, Measured } from "./calibrate.ts";

export interface Figure {
  readonly value: number;
  /** Where it comes from: a measurement with its date and machine, a manual, or the word "assumed". */
  readonly source: string;
}

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

/** Cycles an element of the scalar loops around the instruction takes. */
export interface ScalarCycles {
  /** Of a run of bytes copied side by side, a byte; and a run. */
  readonly copyByte: Figure;
  readonly copyRun: Figure;
  /** Copied with a stride on one side. */
  readonly strided: Figure;
  /** Packed into tiles, without digits and guards. */
  readonly indexed: Figure;
  /** Moved from the scratch block to the output, without digits. */
  readonly scattered: Figure;
  /** The same where elements lie side by side, which the compiler turns into vectors. */
  readonly sideBySide: Figure;
  /** An operation of an epilogue on one element alone. */
  readonly operation: Figure;
  /** The same on a vector of sixteen, an element. */
  readonly vectorOperation: Figure;
  /** A quotient or remainder that takes a fused index apart. */
  readonly digit: Figure;
  /** A comparison that keeps padding out. */
  readonly guard: Figure;
}

export interface ModelTarget {
  readonly name: string;
  readonly clockHz: Figure;
  /** Innermost first; the last one has no size. */
  readonly memory: readonly MemoryLevel[];
  readonly loadsPerCycle: Figure;
  readonly storesPerCycle: Figure;
  /** What the front end hands on. */
  readonly instructionsPerCycle: Figure;
  /** Instructions a loop adds to its body: counter, comparison, branch, addresses. */
  readonly loopInstructions: Figure;
  /** Instructions in flight: how far ahead independent blocks begin. */
  readonly window: Figure;
  /** Lost at the end of each register block: a mispredicted exit, the last results on their way. */
  readonly blockCycles: Figure;
  /** Between two phases when there is more than one thread. */
  readonly barrierCycles: Figure;
  readonly scalar: ScalarCycles;
  /** By name of the instruction; others fall back on their declared cost. */
  readonly timings: Readonly<Record<string, IntrinsicTiming>>;
}

const REFERENCE = "measured 2026-11-21 on one of two virtual cores of a Xeon with AVX-512 and AMX at 3.7 GHz";
const assumed = (value: number, because: string): Figure => ({ value, source: `assumed: ${because}` });

const REFERENCE_CLOCK = 3.7e9;

/** G bytes a second of one core of the reference machine, read and write, and the cache sizes they were measured with. */
const REFERENCE_MEMORY: readonly { name: string; bytes: number | undefined; read: number; write: number }[] = [
  { name: "l1", bytes: 48 * 1024, read: 403, write: 258 },
  { name: "l2", bytes: 2 * 1024 ** 2, read: 186, write: 56 },
  { name: "l3", bytes: 32 * 1024 ** 2, read: 29.5, write: 29.6 },
  { name: "dram", bytes: undefined, read: 16.3, write: 10.3 },
];

/** The figures of a target: sizes from the target, rates from the calibration where it has them, else of the reference machine. */
export function modelTarget(target: Target, calibration?: Calibration): ModelTarget {
  const of = (measured: Measured | undefined, otherwise: Figure): Figure =>
    measured === undefined || calibration === undefined
      ? otherwise
      : { value: measured.median, source: `calibrated on ${calibration.machine}` };
  const scalar = calibration?.scalar;
  return {
    name: target.name,
    clockHz: of(
      calibration?.clockHz,
      target.clockHz === undefined
        ? { value: REFERENCE_CLOCK, source: REFERENCE }
        : { value: target.clockHz, source: target.source },
    ),
    memory: memoryOf(target).map(({ name, bytes, read, write }): MemoryLevel => {
      const measured = calibration?.memory[name];
      const rate = (gigabytes: number): Figure => ({ value: (gigabytes * 1e9) / REFERENCE_CLOCK, source: REFERENCE });
      return {
        name,
        bytes,
        readBytesPerCycle: of(measured?.readBytesPerCycle, rate(read)),
        writeBytesPerCycle: of(measured?.writeBytesPerCycle, rate(write)),
      };
    }),
    loadsPerCycle: of(calibration?.loadsPerCycle, {
      value: 2,
      source:
        "two vector loads a cycle: Intel Optimization Reference Manual, Golden Cove; AMD Zen 5 Optimization Guide",
    }),
    storesPerCycle: assumed(1, "one vector store a cycle, what 512-bit stores reach on Golden Cove and Zen 5"),
    instructionsPerCycle: assumed(6, "the rename width of Golden Cove, below the eight of Zen 5"),
    loopInstructions: assumed(4, "a counter, a fused comparison and branch, two addresses"),
    window: { value: 448, source: "AMD Zen 5 Optimization Guide: retire queue of 448; Golden Cove has 512" },
    blockCycles: assumed(5, "one mispredicted loop exit in three or four blocks"),
    barrierCycles: assumed(2000, "half a microsecond for two cores to meet"),
    scalar: {
      copyByte: of(scalar?.copyByte, assumed(0.03, "32 bytes a cycle")),
      copyRun: of(scalar?.copyRun, assumed(8, "a call of memcpy or the tail of a vector loop")),
      strided: of(scalar?.strided, assumed(1, "a load, a store and two addresses an element")),
      indexed: of(scalar?.indexed, assumed(0.6, "short runs side by side")),
      scattered: of(scalar?.scattered, assumed(1, "as strided")),
      sideBySide: assumed(0.2, "vectors of eight elements, a load and a store each"),
      operation: assumed(0.5, "two a cycle"),
      vectorOperation: assumed(0.04, "sixteen elements, two in three cycles"),
      digit: of(scalar?.digit, assumed(1.5, "a multiplication, shifts and a subtraction")),
      guard: of(scalar?.guard, assumed(0.4, "a comparison beside others, well predicted")),
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

/** Timing of an instruction: calibrated, else declared, else assumed. */
export function timingOf(target: ModelTarget, intrinsic: Intrinsic): IntrinsicTiming {
  const known = target.timings[intrinsic.name];
  if (known) return known;
  const [l1] = target.memory;
  const cycles = (operand: Operand, perCycle: number, bandwidth: number | undefined): number => {
    const bytes = tileElements(operand) * bytesOf(operand.dtype);
    return Math.max(1 / perCycle, bandwidth === undefined ? 0 : bytes / bandwidth);
  };
  const { cost, operands } = intrinsic;
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

/** Caches the target knows, with the reference rates of their name; the reference machine's where it knows none. */
function memoryOf(target: Target): typeof REFERENCE_MEMORY {
  const caches = target.levels.filter((l) => l.bytes !== undefined).reverse();
  if (caches.length === 0) return REFERENCE_MEMORY;
  const rates = (name: string): (typeof REFERENCE_MEMORY)[number] | undefined =>
    REFERENCE_MEMORY.find((m) => m.name === name) ?? REFERENCE_MEMORY.at(-2);
  const [dram] = REFERENCE_MEMORY.slice(-1);
  return [
    ...caches.map(({ name, bytes }) => ({ name, bytes, read: rates(name)?.read ?? 1, write: rates(name)?.write ?? 1 })),
    ...(dram ? [dram] : []),
  ];
}
