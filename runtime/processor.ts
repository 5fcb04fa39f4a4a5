/**
 * @file What Linux reports about this machine's processors.
 *
 *     readProcessor()       { model: "AMD EPYC", features: ["sse2", ..., "avx512_vnni"], ... }
 *     coresHere()           [{ name: "core 0", cpus: [0, 4], isFastest: true }, ...]
 */

import { readdirSync, readFileSync } from "node:fs";
import { readCpuInfo, sveBytes } from "../targets/native.ts";

export interface Processor {
  readonly model: string;
  /** As /proc/cpuinfo names them. */
  readonly features: readonly string[];
}

/** The first processor; fields Linux does not tell are empty. */
export function readProcessor(cpuinfo: string = textOf("/proc/cpuinfo") ?? ""): Processor {
  const { model, words } = readCpuInfo(cpuinfo);
  return { model: model ?? "", features: words };
}

/** Bits of the scalable vectors that programs get; undefined where the CPU has none. */
export function scalableBits({ features }: Pick<Processor, "features">, bytes = sveBytes()): number | undefined {
  return features.includes("sve") ? 8 * (bytes ?? 16) : undefined;
}

/** Processors this process may run on. */
export function allowedCpus(status: string = textOf("/proc/self/status") ?? ""): number[] {
  return readList(/^Cpus_allowed_list:\s*(.*)$/m.exec(status)?.[1] ?? "0");
}

/** A core: its threads share its units, so that two of them disturb each other. */
export interface Core {
  /** `core 3`, after the first of its processors, also where this process may not use that one. */
  readonly name: string;
  /** Processors that this process may use, in ascending order. */
  readonly cpus: readonly number[];
  /** Whether no other of this machine is much faster: false for the small cores of hybrid processors. */
  readonly isFastest: boolean;
}

/** How much slower a core may be and still count as one of the fastest: turbo clocks differ by less, big and small cores by more. */
const AS_FAST = 0.85;

/** The cores this process may use, in the order of their first processors. */
export function coresHere(
  allowed: readonly number[] = allowedCpus(),
  siblings: (cpu: number) => readonly number[] = readSiblings,
  capacity: (cpu: number) => number = readCapacity,
): Core[] {
  const most = Math.max(...allowed.map(capacity));
  const first = (cpu: number): number => Math.min(cpu, ...siblings(cpu));
  return [...new Set(allowed.map(first))].map((core) => {
    const cpus = allowed.filter((cpu) => first(cpu) === core);
    return { name: `core ${core}`, cpus, isFastest: cpus.some((cpu) => capacity(cpu) >= AS_FAST * most) };
  });
}

/** Processors for so many threads: one of every core, in their order, then the cores' other threads. */
export function processorsOf(cores: readonly Core[], threads: number): number[] {
  const rounds = Math.max(...cores.map((core) => core.cpus.length));
  const inTurn = Array.from({ length: rounds }, (_, i) => cores.flatMap((core) => core.cpus.slice(i, i + 1))).flat();
  return inTurn.slice(0, threads);
}

/** The clock behind clock_gettime. */
export function clockSource(): string | undefined {
  return textOf("/sys/devices/system/clocksource/clocksource0/current_clocksource")?.trim();
}

/** `performance`, `powersave`; undefined where the machine does not tell, as virtual ones mostly do not. */
export function frequencyGovernors(): string[] {
  const root = "/sys/devices/system/cpu";
  const cpus = namesIn(root).filter((name) => /^cpu\d+$/.test(name));
  const found = cpus.map((cpu) => textOf(`${root}/${cpu}/cpufreq/scaling_governor`)?.trim());
  return [...new Set(found.filter((governor) => governor !== undefined))];
}

/** Relative to the fastest processor's 1024; Linux tells it of Arm's, and of Intel's where cores differ. */
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
      return Array.from({ length: to - from + 1 }, (_, i) => from + i);
    });
}

function textOf(file: string): string | undefined {
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
