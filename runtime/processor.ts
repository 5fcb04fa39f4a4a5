/**
 * @file What Linux says of this machine's processors.
 *
 *     readProcessor()       { model: "AMD EPYC", features: ["sse2", ..., "avx512_vnni"], ... }
 *     chooseCpus(2)         [0, 2]      two cores, not two threads of one
 */

import { readdirSync, readFileSync } from "node:fs";
import { readCpuInfo } from "../targets/native.ts";

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

/** Processors this process may run on. */
export function allowedCpus(status: string = textOf("/proc/self/status") ?? ""): number[] {
  return readList(/^Cpus_allowed_list:\s*(.*)$/m.exec(status)?.[1] ?? "0");
}

/** Allowed processors in the order threads are pinned to them: one of every core first, then the cores' other threads. */
export function pinningOrder(allowed: readonly number[] = allowedCpus(), siblings = readSiblings): number[] {
  const later: number[] = [];
  const taken = new Set<number>();
  const first = allowed.filter((cpu) => {
    if (taken.has(cpu)) {
      later.push(cpu);
      return false;
    }
    for (const other of siblings(cpu)) taken.add(other);
    return true;
  });
  return [...first, ...later];
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
