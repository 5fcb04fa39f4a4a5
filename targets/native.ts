/**
 * @file This machine as a target: what its CPU reports, in the words the intrinsics table uses.
 *
 *     parseCpuInfo(text)      { name: "Intel(R) Xeon(R) ...", isa: ["avx2", "fma", "avx512f", ...], cores: 2 }
 *
 * Bandwidths are left out until `automap calibrate` measures them.
 */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Level, Target } from "../abstraction/target.ts";

/** A feature of the table and the words of /proc/cpuinfo that must all be there for it. */
const FEATURES: Readonly<Record<string, readonly string[]>> = {
  avx2: ["avx2"],
  fma: ["fma", "avx2"],
  avx_vnni: ["avx_vnni"],
  avx512f: ["avx512f"],
  avx512_vnni: ["avx512_vnni", "avx512vl"],
  avx512_bf16: ["avx512_bf16"],
  avx512_fp16: ["avx512_fp16"],
  amx_int8: ["amx_tile", "amx_int8"],
  amx_bf16: ["amx_tile", "amx_bf16"],
  // Arm
  asimd: ["asimd"],
  asimddp: ["asimddp"],
  i8mm: ["i8mm"],
};

/** What /proc/cpuinfo says of the first processor, and how many there are. */
export interface CpuInfo {
  readonly name: string;
  readonly isa: readonly string[];
  readonly processors: number;
}

/** Reads the text of /proc/cpuinfo, of x86 (`flags`) or of Arm (`Features`). */
export function parseCpuInfo(text: string): CpuInfo {
  const value = (key: string): string | undefined => new RegExp(`^${key}[ \\t]*:[ \\t]*(.*)$`, "m").exec(text)?.[1];
  const words = new Set((value("flags") ?? value("Features") ?? "").split(/\s+/));
  const isa = Object.entries(FEATURES).filter(([, needed]) => needed.every((word) => words.has(word)));
  const arm = value("CPU part") === undefined ? undefined : `Arm part ${value("CPU part")}`;
  return {
    name: value("model name") ?? arm ?? "unknown CPU",
    isa: isa.map(([feature]) => feature),
    processors: [...text.matchAll(/^processor\s*:/gm)].length,
  };
}

/** A data or unified cache, as the folders of /sys/devices/system/cpu/cpu0/cache tell it. */
export interface CacheInfo {
  readonly level: number;
  readonly bytes: number;
  /** Processors that share one. */
  readonly sharedBy: number;
}

/** @param size as the kernel writes it, `48K` or `32M` */
export function parseCache(level: string, type: string, size: string, sharedCpuList: string): CacheInfo | undefined {
  const amount = /^(\d+)([KMG]?)$/.exec(size.trim());
  if (type.trim() === "Instruction" || !amount) return undefined;
  const unit = { "": 1, K: 1024, M: 1024 ** 2, G: 1024 ** 3 }[amount[2] ?? ""] ?? 1;
  return { level: Number(level), bytes: Number(amount[1]) * unit, sharedBy: countList(sharedCpuList) };
}

/** Processors in a list such as `0-3,8`. */
function countList(list: string): number {
  return list
    .trim()
    .split(",")
    .map((range) => range.split("-").map(Number))
    .reduce((sum, [from = 0, to = from]) => sum + to - from + 1, 0);
}

/** The target a CPU and its caches make: memory, shared caches, then what each processor has for itself. */
export function targetFrom(cpu: CpuInfo, caches: readonly CacheInfo[]): Target {
  const outermostFirst = [...caches].sort((a, b) => b.level - a.level);
  const levels: Level[] = [{ name: "dram", units: 1 }];
  let above = 1;
  for (const { level, bytes, sharedBy } of outermostFirst) {
    const count = Math.max(1, Math.round(cpu.processors / sharedBy));
    levels.push({ name: `l${level}`, units: Math.max(1, Math.round(count / above)), bytes });
    above = count;
  }
  levels.push({ name: "registers", units: Math.max(1, Math.round(cpu.processors / above)) });
  return { name: cpu.name, isa: cpu.isa, levels, source: "/proc/cpuinfo and /sys/devices/system/cpu/cpu0/cache" };
}

/** This machine. Where the kernel tells nothing (not Linux), a target without features or caches. */
export function nativeTarget(): Target {
  return targetFrom(parseCpuInfo(readText("/proc/cpuinfo") ?? ""), readCaches("/sys/devices/system/cpu/cpu0/cache"));
}

function readCaches(folder: string): CacheInfo[] {
  let entries: string[];
  try {
    entries = readdirSync(folder).filter((name) => name.startsWith("index"));
  } catch {
    return [];
  }
  return entries.flatMap((entry) => {
    const [level, type, size, shared] = ["level", "type", "size", "shared_cpu_list"].map((file) =>
      readText(join(folder, entry, file)),
    );
    if (level === undefined || type === undefined || size === undefined || shared === undefined) return [];
    return parseCache(level, type, size, shared) ?? [];
  });
}

function readText(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}
