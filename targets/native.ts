/**
 * @file This machine as a target: the features its CPU reports, under the names that the table of instructions uses.
 *
 *     parseCpuInfo(text)      { name: "Intel(R) Xeon(R) ...", isa: ["avx2", "fma", "avx512f", ...], cores: 2 }
 *
 * Bandwidths are left out until `automap calibrate` measures them.
 */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { product, sortedBy, withName } from "../abstraction/collections.ts";
import type { Memory, Target } from "../abstraction/machine.ts";
import { SVE_BITS } from "./arm.ts";
import { armModel, armReference } from "./arm-cpus.ts";
import { compilerFlags, featuresIn } from "./features.ts";
import { REFERENCE_CPU } from "./x86.ts";

/** The first processor in /proc/cpuinfo, and the number of processors. */
interface CpuInfo {
  readonly name: string;
  readonly isa: readonly string[];
  readonly processors: number;
}

/** The fields of /proc/cpuinfo, of x86 (`flags`) or Arm (`Features`); the model is undefined when it names none. */
export function readCpuInfo(text: string): {
  readonly model: string | undefined;
  readonly words: readonly string[];
  readonly processors: number;
} {
  const value = (key: string): string | undefined =>
    new RegExp(`^${key}[ \\t]*:[ \\t]*(.*)$`, "m").exec(text)?.[1]?.trim();
  const part = value("CPU part");
  const words = (value("flags") ?? value("Features") ?? "").split(/\s+/).filter((word) => word !== "");
  return {
    model: value("model name") ?? (part === undefined ? undefined : armModel(value("CPU implementer"), part)),
    words,
    processors: [...text.matchAll(/^processor\s*:/gm)].length,
  };
}

/** @param sveBytes length of the scalable vectors that a program gets, if the CPU has any */
export function parseCpuInfo(text: string, sveBytes = 16): CpuInfo {
  const { model, words, processors } = readCpuInfo(text);
  const lengths = words.includes("sve") ? sveLengths(sveBytes) : [];
  return { name: model ?? "unknown CPU", isa: featuresIn(new Set([...words, ...lengths])), processors };
}

/** Features `sve128`, `sve256` for the lengths that fit vectors of so many bytes. */
const sveLengths = (bytes: number): string[] =>
  SVE_BITS.filter((bits) => bits <= 8 * bytes).map((bits) => `sve${bits}`);

/** A data or unified cache, as in /sys/devices/system/cpu/cpu0/cache. */
interface CacheInfo {
  readonly level: number;
  readonly bytes: number;
  /** Number of processors that share it. */
  readonly sharedBy: number;
}

/** @param size as Linux writes it, `48K` or `32M` */
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

/** What Linux reports of a machine, as stored in the record of a run: plain data whose form does not change. */
export interface MachineRecord {
  readonly name: string;
  readonly isa: readonly string[];
  readonly clockHz?: number | undefined;
  /** Memory and caches from the outside in; `units` are inside one unit of the previous level. */
  readonly levels: readonly { readonly name: string; readonly units: number; readonly bytes?: number | undefined }[];
  readonly source: string;
}

/** The machine of a CPU and its caches: memory, shared caches, then the caches of each processor. */
export function machineFrom(cpu: CpuInfo, caches: readonly CacheInfo[]): MachineRecord {
  const outermostFirst = sortedBy(caches, (a) => -a.level);
  const levels: { name: string; units: number; bytes?: number }[] = [{ name: "dram", units: 1 }];
  let above = 1;
  for (const { level, bytes, sharedBy } of outermostFirst) {
    const count = Math.max(1, Math.round(cpu.processors / sharedBy));
    levels.push({ name: `l${level}`, units: Math.max(1, Math.round(count / above)), bytes });
    above = count;
  }
  levels.push({ name: "registers", units: Math.max(1, Math.round(cpu.processors / above)) });
  return { name: cpu.name, isa: cpu.isa, levels, source: FOUND };
}

const FOUND = "/proc/cpuinfo and /sys/devices/system/cpu/cpu0/cache";

/** A CPU as a target, with the recorded features and sizes. Rates, units and costs are those of a reference machine ({@link referenceOf}). */
export function targetOf({ name, isa, clockHz, levels, source }: MachineRecord): Target {
  const { clockHz: _, ...reference } = referenceOf({ name, isa });
  let count = 1;
  const memories = levels.flatMap(({ name: memory, units, bytes }): Memory[] => {
    count *= units;
    if (memory === "registers") return [];
    const shared = {
      name: memory,
      count,
      at: count < processorsOf(levels) ? "socket" : "core",
      bandwidth: [],
    } as const;
    return [
      {
        ...shared,
        ...(bytes === undefined ? { kind: "addressed" } : { kind: "cache", bytes: { value: bytes, source } }),
      },
    ];
  });
  return {
    ...reference,
    name,
    summary: name,
    isa,
    compilerFlags: compilerFlags(isa),
    ...(clockHz !== undefined && { clockHz: { value: clockHz, source } }),
    levels: reference.levels.map((level) =>
      level.name === "core" ? { ...level, units: processorsOf(levels) } : level,
    ),
    memories,
  };
}

/** A CPU that is not here, by its /proc/cpuinfo: its features and cores, with the caches and the figures of the reference machine. */
export function targetOfCpuInfo(text: string): Target {
  const { name, isa, processors } = parseCpuInfo(text);
  const reference = referenceOf({ name, isa });
  const levels = reference.levels.map((level) => (level.name === "core" ? { ...level, units: processors } : level));
  return targetOf(recordOf({ ...reference, name, isa, levels }));
}

/** The machine whose figures replace missing measurements: for Arm its core or Neoverse N1, else the reference Xeon. */
export function referenceOf({ name, isa }: Pick<Target, "name" | "isa">): Target & Required<Pick<Target, "clockHz">> {
  const { clockHz = REFERENCE_CPU.clockHz, ...reference } = isa.includes("asimd") ? armReference(name) : REFERENCE_CPU;
  return { ...reference, clockHz };
}

/** The part of a target that the record of a run stores. {@link targetOf} makes a target from it. */
export function recordOf({ name, isa, clockHz, levels, memories }: Target): MachineRecord {
  let above = 1;
  const inside = (count: number): number => {
    const units = Math.max(1, Math.round(count / above));
    above = count;
    return units;
  };
  const found = memories.map(({ name: memory, count = 1, bytes }) => ({
    name: memory,
    units: inside(count),
    ...(bytes && { bytes: bytes.value }),
  }));
  const processors = withName(levels, "core")?.units ?? 1;
  const source = clockHz?.source ?? memories.find((m) => m.bytes)?.bytes?.source ?? FOUND;
  return {
    name,
    isa,
    ...(clockHz && { clockHz: clockHz.value }),
    levels: [...found, { name: "registers", units: inside(processors) }],
    source,
  };
}

const processorsOf = (levels: MachineRecord["levels"]): number => product(levels.map((l) => l.units));

/** Length in bytes of the scalable vectors that new programs get. Source: Linux, Documentation/arch/arm64/sve. */
const SVE_LENGTH = "/proc/sys/abi/sve_default_vector_length";

/** Length in bytes of the scalable vectors that a program gets; undefined when Linux does not report it. */
export function sveBytes(): number | undefined {
  const bytes = Number(readText(SVE_LENGTH) ?? Number.NaN);
  return Number.isInteger(bytes) ? bytes : undefined;
}

/** This machine. On systems other than Linux, a target without features or caches. */
export function nativeTarget(): Target {
  const text = readText("/proc/cpuinfo") ?? "";
  const cpu = parseCpuInfo(text, sveBytes());
  const listed = readCaches("/sys/devices/system/cpu/cpu0/cache");
  return targetOf(machineFrom(cpu, listed.length > 0 ? listed : cachesInCpuInfo(text, cpu.processors)));
}

/**
 * The caches of an AMD CPU where a hypervisor hides them: `cache size` of its /proc/cpuinfo is a core's second level (Linux,
 * arch/x86/kernel/cpu/cacheinfo.c), the other levels are the reference machine's. None for others, whose `cache size` is the last level.
 */
export function cachesInCpuInfo(text: string, processors: number): CacheInfo[] {
  const second = /^vendor_id\s*:\s*AuthenticAMD$[\s\S]*?^cache size\s*:\s*(\d+) KB$/m.exec(text)?.[1];
  if (second === undefined) return [];
  return REFERENCE_CPU.memories.flatMap(({ name, at, bytes }) => {
    if (!bytes) return [];
    const own = name === "l2" ? 1024 * Number(second) : bytes.value;
    return [{ level: Number(name.slice(1)), bytes: own, sharedBy: at === "core" ? 1 : processors }];
  });
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
