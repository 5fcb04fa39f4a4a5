/**
 * @file Intel GPUs with matrix engines as the model sees them. None is at hand: kernels for them are compiled by Intel's offline compiler, run
 * under emulation and predicted, and never measured.
 *
 *     intelGpuNamed("dg2")?.summary      "Arc A770: 512 vector engines at 2.1 GHz"
 *
 * A `core` is one vector engine with its matrix engine. Bandwidths are what one engine gets while all are as busy.
 */

import type { DType } from "../abstraction/dtype.ts";
import type { Figure, Memory, Target } from "../abstraction/machine.ts";

const KIB = 1024;
const MIB = 1024 ** 2;
const GUIDE = "Intel oneAPI GPU Optimization Guide, Xe GPU Architecture";
const TABLES = "Intel Graphics Compiler, scheduler tables";
const assumed = (value: number, because: string): Figure => ({ value, source: `assumed: ${because}` });

interface Facts {
  readonly name: string;
  readonly summary: string;
  readonly feature: "xe_hp" | "xe_hpg" | "xe_hpc";
  readonly engines: Figure;
  readonly clockHz: Figure;
  readonly lanes: 8 | 16;
  /** Operations that an engine begins in a cycle, a multiply-add as two. */
  readonly vector: Partial<Record<DType, number>>;
  readonly matrix: Partial<Record<DType, number>>;
  /** Engines of one Xe-core, which share its first level. */
  readonly sharing: number;
  readonly l1Bytes: Figure;
  /** Bytes a cycle that a Xe-core reads from its first level, and the whole GPU from the second. */
  readonly l1: Figure;
  readonly l2Bytes: Figure;
  readonly l2: Figure;
  /** Bytes a second. */
  readonly dram: Figure;
  /** Source of `vector` and `matrix`. */
  readonly rates: string;
}

function gpu(f: Facts): Target {
  const hertz = f.clockHz.value;
  const each = ({ value, source }: Figure, by: number): Figure => ({
    value: value / by,
    source: `${source}; of ${by} engines`,
  });
  const memory = (name: string, bytes: Figure | undefined, { value, source }: Figure): Memory => ({
    name,
    kind: bytes === undefined ? "addressed" : "cache",
    at: name === "l1" ? "core" : "grid",
    ...(bytes && { bytes }),
    bandwidth: (["read", "write"] as const).map((direction) => ({
      value,
      per: "cycle",
      direction,
      of: "core",
      source,
    })),
  });
  const perCycle = ({ value, source }: Figure): Figure => ({ value: value / hertz, source });
  const perElement = (instructions: number, because: string): Figure =>
    assumed(instructions / f.lanes, `${because}, ${f.lanes} lanes at once`);
  return {
    name: f.name,
    summary: f.summary,
    // Xe-HP has the products of eight lanes that Xe-HPG has.
    isa: f.feature === "xe_hp" ? ["xe_hp", "xe_hpg"] : [f.feature],
    compilerFlags: [],
    clockHz: f.clockHz,
    levels: [
      {
        name: "grid",
        units: 1,
        barrier: { cycles: assumed(5e-6 * hertz, "a kernel ends and the next begins: five microseconds") },
      },
      { name: "core", units: f.engines.value },
      { name: "thread", units: 8 },
      { name: "lane", units: f.lanes },
    ],
    memories: [
      memory("dram", undefined, each(perCycle(f.dram), f.engines.value)),
      memory("l2", f.l2Bytes, each(f.l2, f.engines.value)),
      memory("l1", each(f.l1Bytes, f.sharing), each(f.l1, f.sharing)),
    ],
    units: [
      { name: "load", at: "core", issueCycles: 2, latencyCycles: 45, source: `${TABLES}: first level 45 cycles` },
      { name: "store", at: "core", issueCycles: 2, source: "assumed: as a load" },
      { name: "vector", at: "core", operationsPerCycle: f.vector, source: f.rates },
      { name: "matrix", at: "core", operationsPerCycle: f.matrix, source: f.rates },
    ],
    rates: [],
    fixed: { block: { ...assumed(20, "a branch takes 23 cycles, most of them of other threads"), per: "cycle" } },
    pipeline: {
      instructionsPerCycle: assumed(1, "one thread of an engine issues in a cycle"),
      loopInstructions: assumed(4, "a counter, a comparison, a branch, an address"),
      window: assumed(256, "eight threads of an engine, some 32 instructions each"),
    },
    scalar: {
      copyByte: perElement(1, "a load and a store of four bytes"),
      copyRun: assumed(8, "addresses of a row"),
      strided: perElement(6, "a gather, a scatter and their addresses"),
      indexed: perElement(6, "as strided"),
      scattered: perElement(6, "as strided"),
      sideBySide: perElement(4, "a load, a store and an address"),
      operation: perElement(1, "one instruction"),
      vectorOperation: perElement(1, "one instruction"),
      digit: perElement(8, "a multiplication of 32 by 32 bits, shifts and a subtraction"),
      guard: perElement(1, "a comparison"),
    },
  };
}

export const DG2 = gpu({
  name: "dg2",
  summary: "Arc A770: 512 vector engines at 2.1 GHz",
  feature: "xe_hpg",
  engines: { value: 512, source: "Intel ARK, Arc A770: 32 Xe-cores of 16 engines" },
  clockHz: { value: 2.1e9, source: "Intel ARK, Arc A770: graphics clock" },
  lanes: 8,
  sharing: 16,
  l1Bytes: { value: 192 * KIB, source: GUIDE },
  l1: assumed(256, "half of what a Xe-core of Xe-HPC loads"),
  l2Bytes: { value: 16 * MIB, source: "Intel ARK, Arc A770" },
  l2: assumed(1024, "64 bytes a cycle for each of 16 banks"),
  dram: { value: 560e9, source: "Intel ARK, Arc A770: memory bandwidth" },
  vector: { f32: 16, f16: 32 },
  matrix: { f16: 128, bf16: 128, s8: 256, u8: 256 },
  rates: `${GUIDE}: 8 and 16 multiply-adds of a vector engine, 64 and 128 of a matrix engine`,
});

export const PVC = gpu({
  name: "pvc",
  summary: "Data Center GPU Max 1550: 1024 vector engines at 1.6 GHz",
  feature: "xe_hpc",
  engines: { value: 1024, source: "Intel ARK, Data Center GPU Max 1550: 128 Xe-cores of 8 engines" },
  clockHz: { value: 1.6e9, source: "Intel ARK, Data Center GPU Max 1550: max dynamic frequency" },
  lanes: 16,
  sharing: 8,
  l1Bytes: { value: 512 * KIB, source: GUIDE },
  l1: { value: 512, source: "Intel, Hot Chips 33, Ponte Vecchio: a Xe-core loads 512 bytes a cycle" },
  l2Bytes: { value: 408 * MIB, source: "Intel ARK, Data Center GPU Max 1550" },
  l2: assumed(8192, "64 bytes a cycle for each of 128 Xe-cores"),
  dram: { value: 3276.8e9, source: "Intel ARK, Data Center GPU Max 1550: memory bandwidth" },
  vector: { f32: 32, f16: 64 },
  matrix: { tf32: 256, f16: 512, bf16: 512, s8: 1024, u8: 1024 },
  rates: `${GUIDE}: 16 and 32 multiply-adds of a vector engine, 256 and 512 of a matrix engine`,
});

const TALK = "a talk on batched products of recommendation models, 2021";

/** As a talk on DLRM's interaction modelled it. Its kernels are those of Xe-HPG; none is compiled, since Intel's compiler has dropped its generation. */
export const ATS = gpu({
  name: "ats",
  summary: "Arctic Sound, one tile: 480 vector engines at 1.4 GHz",
  feature: "xe_hp",
  engines: { value: 480, source: TALK },
  clockHz: { value: 1.4e9, source: TALK },
  lanes: 8,
  sharing: 16,
  l1Bytes: assumed(128 * KIB, "as Xe-LP's shared local memory"),
  l1: assumed(128, "a dual subslice of Xe-LP reads 128 bytes a cycle"),
  l2Bytes: assumed(16 * MIB, "as DG2"),
  l2: assumed(64 * 30, "64 bytes a cycle for each of 30 dual subslices, as a subslice of Gen9"),
  dram: { value: 700e9, source: TALK },
  vector: { f32: 16, f16: 32 },
  matrix: { f16: 256, bf16: 256 },
  rates: TALK,
});

export const INTEL_GPUS: readonly Target[] = [DG2, PVC, ATS];

/** Undefined for a name that is none of them. */
export const intelGpuNamed = (name: string): Target | undefined => INTEL_GPUS.find((t) => t.name === name);

/** Whether Intel's offline compiler knows a machine. */
export const isCompiledOffline = ({ name }: Pick<Target, "name">): boolean =>
  name !== ATS.name && isPredictedOnly({ name });

/** Whether kernels for a machine are predicted, and compiled where its vendor's compiler still knows it, but measured nowhere. */
export const isPredictedOnly = ({ name }: Pick<Target, "name">): boolean => intelGpuNamed(name) !== undefined;
