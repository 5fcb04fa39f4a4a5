/**
 * @file What Linux reports about this machine's processors.
 *
 *     readProcessor()       { model: "AMD EPYC", features: ["sse2", ..., "avx512_vnni"], ... }
 *     coresHere()           [{ name: "core 0", cpus: [0, 4], isFastest: true }, ...]
 */

import { readdirSync, readFileSync } from "node:fs";
import { isDefined, unique, upTo } from "../abstraction/collections.ts";
import { readCpuInfo, sveBytes } from "../targets/native.ts";

export interface Processor {
  readonly model: string;
  /** With the names of /proc/cpuinfo. */
  readonly features: readonly string[];
}

/** The first processor. Fields that Linux does not report are empty. */
export function readProcessor(cpuinfo: string = textOf("/proc/cpuinfo") ?? ""): Processor {
  const { model, words } = readCpuInfo(cpuinfo);
  return { model: model ?? "", features: words };
}

/** Bits of the scalable vectors that programs get; undefined if the CPU has none. */
export function scalableBits({ features }: Pick<Processor, "features">, bytes = sveBytes()): number | undefined {
  return features.includes("sve") ? 8 * (bytes ?? 16) : undefined;
}

/** Processors this process may run on. */
export function allowedCpus(status: string = textOf("/proc/self/status") ?? ""): number[] {
  return readList(/^Cpus_allowed_list:\s*(.*)$/m.exec(status)?.[1] ?? "0");
}

/** A core. Its hardware threads share its units, so two of them disturb each other. */
export interface Core {
  /** `core 3`, numbered by the first of its processors, even if this process may not use that one. */
  readonly name: string;
  /** Processors that this process may use, in ascending order. */
  readonly cpus: readonly number[];
  /** Whether no other core of this machine is much faster; false for the small cores of hybrid processors. */
  readonly isFastest: boolean;
}

/**
 * The relative speed from which a core counts as one of the fastest. Turbo clocks differ by less, big and small cores
 * by more.
 */
const AS_FAST = 0.85;

/** The cores that this process may use, ordered by their first processors. */
export function coresHere(
  allowed: readonly number[] = allowedCpus(),
  siblings: (cpu: number) => readonly number[] = readSiblings,
  capacity: (cpu: number) => number = readCapacity,
): Core[] {
  const most = Math.max(...allowed.map(capacity));
  const first = (cpu: number): number => Math.min(cpu, ...siblings(cpu));
  return unique(allowed.map(first)).map((core) => {
    const cpus = allowed.filter((cpu) => first(cpu) === core);
    return { name: `core ${core}`, cpus, isFastest: capacity(core) >= AS_FAST * most };
  });
}

/** Processors for a number of threads: one of every core in order, then the other hardware threads. */
export function processorsOf(cores: readonly Core[], threads: number): number[] {
  const rounds = Math.max(...cores.map((core) => core.cpus.length));
  const inTurn = upTo(rounds).flatMap((i) => cores.flatMap((core) => core.cpus.slice(i, i + 1)));
  return inTurn.slice(0, threads);
}

/** The clock behind clock_gettime. */
export function clockSource(): string | undefined {
  return textOf("/sys/devices/system/clocksource/clocksource0/current_clocksource")?.trim();
}

/** `performance`, `powersave`; empty if the machine does not report it, as most virtual machines do not. */
export function frequencyGovernors(): string[] {
  const root = "/sys/devices/system/cpu";
  const cpus = namesIn(root).filter((name) => /^cpu\d+$/.test(name));
  const found = cpus.map((cpu) => textOf(`${root}/${cpu}/cpufreq/scaling_governor`)?.trim());
  return unique(found.filter(isDefined));
}

/** The speed relative to the fastest processor's 1024. Linux reports it on Arm, and on Intel hybrids. */
function readCapacity(cpu: number): number {
  const told = Number(textOf(`/sys/devices/system/cpu/cpu${cpu}/cpu_capacity`) ?? "");
  if (told > 0) return told;
  const small = textOf("/sys/devices/cpu_atom/cpus");
  return small !== undefined && readList(small).includes(cpu) ? 512 : 1024;
}

function readSiblings(cpu: number): number[] {
  return readList(textOf(`/sys/devices/system/cpu/cpu${cpu}/topology/thread_siblings_list`) ?? String(cpu));
}

/** `0-2,5` */
function readList(text: string): number[] {
  return text
    .trim()
    .split(",")
    .flatMap((range) => {
      const [from = 0, to = from] = range.split("-").map(Number);
      return upTo(to - from + 1).map((i) => from + i);
    });
}

/** The text of a file, if it can be read. */
export function textOf(file: string): string | undefined {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return undefined;
  }
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
