/**
 * @file Intel GPUs as the model sees them. None is available here: kernels for them are predicted and run under emulation, never measured. Those in
 * OpenCL C are compiled by Intel's offline compiler where it knows the machine, which is all of them but Arctic Sound.
 *
 *     predictedGpuNamed("dg2")?.summary      "Arc A770: 512 vector engines at 2.1 GHz"
 *
 * A `core` is one vector engine with its matrix engine, if it has one.
 */

import type { Figure, Target } from "../abstraction/machine.ts";
import { gpuOfEngines } from "./engines.ts";
import { assumed, cited, KIB, MIB } from "./figures.ts";
import { GEN9 } from "./intel.ts";

const GUIDE = "Intel oneAPI GPU Optimization Guide, Xe GPU Architecture";
const TABLES = "Intel Graphics Compiler, scheduler tables";
const XE_THREADS = 8;
/** Registers of a thread where an engine holds as many threads as its target says. With twice as many registers it holds half as many. */
export const THREAD_REGISTERS: Figure = cited(128, GUIDE);
const XE_LOAD = cited(45, `${TABLES}: first level 45 cycles`);

export const DG2 = gpuOfEngines({
  name: "dg2",
  summary: "Arc A770: 512 vector engines at 2.1 GHz",
  isa: ["xe_hpg"],
  engines: cited(512, "Intel ARK, Arc A770: 32 Xe-cores of 16 engines"),
  clockHz: cited(2.1e9, "Intel ARK, Arc A770: graphics clock"),
  lanes: 8,
  threads: XE_THREADS,
  loadLatency: XE_LOAD,
  sharing: 16,
  l1Bytes: cited(192 * KIB, GUIDE),
  l1: assumed(256, "half of what a Xe-core of Xe-HPC loads"),
  l2Bytes: cited(16 * MIB, "Intel ARK, Arc A770"),
  l2: assumed(1024, "64 bytes a cycle for each of 16 banks"),
  dram: cited(560e9, "Intel ARK, Arc A770: memory bandwidth"),
  vector: { f32: 16, f16: 32 },
  matrix: { f16: 128, bf16: 128, s8: 256, u8: 256 },
  rates: `${GUIDE}: 8 and 16 multiply-adds of a vector engine, 64 and 128 of a matrix engine`,
});

export const PVC = gpuOfEngines({
  name: "pvc",
  summary: "Data Center GPU Max 1550: 1024 vector engines at 1.6 GHz",
  isa: ["xe_hpc"],
  engines: cited(1024, "Intel ARK, Data Center GPU Max 1550: 128 Xe-cores of 8 engines"),
  clockHz: cited(1.6e9, "Intel ARK, Data Center GPU Max 1550: max dynamic frequency"),
  lanes: 16,
  threads: XE_THREADS,
  loadLatency: XE_LOAD,
  sharing: 8,
  l1Bytes: cited(512 * KIB, GUIDE),
  l1: cited(512, "Intel, Hot Chips 33, Ponte Vecchio: a Xe-core loads 512 bytes a cycle"),
  l2Bytes: cited(408 * MIB, "Intel ARK, Data Center GPU Max 1550"),
  l2: assumed(8192, "64 bytes a cycle for each of 128 Xe-cores"),
  dram: cited(3276.8e9, "Intel ARK, Data Center GPU Max 1550: memory bandwidth"),
  vector: { f32: 32, f16: 64 },
  matrix: { tf32: 256, f16: 512, bf16: 512, s8: 1024, u8: 1024 },
  rates: `${GUIDE}: 16 and 32 multiply-adds of a vector engine, 256 and 512 of a matrix engine`,
});

const TALK = "a talk on batched products of recommendation models, 2021";

/** As a talk on DLRM's interaction modelled it. Its kernels are those of Xe-HPG; none is compiled, since Intel's compiler has dropped its generation. */
export const ATS = gpuOfEngines({
  name: "ats",
  summary: "Arctic Sound, one tile: 480 vector engines at 1.4 GHz",
  // Xe-HP has the products of eight lanes that Xe-HPG has.
  isa: ["xe_hp", "xe_hpg"],
  engines: cited(480, TALK),
  clockHz: cited(1.4e9, TALK),
  lanes: 8,
  threads: XE_THREADS,
  loadLatency: XE_LOAD,
  sharing: 16,
  l1Bytes: assumed(128 * KIB, "as Xe-LP's shared local memory"),
  l1: assumed(128, "a dual subslice of Xe-LP reads 128 bytes a cycle"),
  l2Bytes: assumed(16 * MIB, "as DG2"),
  l2: assumed(64 * 30, "64 bytes a cycle for each of 30 dual subslices, as a subslice of Gen9"),
  dram: cited(700e9, TALK),
  vector: { f32: 16, f16: 32 },
  matrix: { f16: 256, bf16: 256 },
  rates: TALK,
});

const GEN9_PAPER = "Intel, The Compute Architecture of Intel Processor Graphics Gen9, 2015";
const HD_620 = "Intel ARK, Core i7-7500U with HD Graphics 620";

/** Without matrix engines or bytes' dot products. What {@link GEN9} is for designs on lanes, this is for mappings. */
const GEN9_GPU: Target = gpuOfEngines({
  name: GEN9.name,
  summary: "HD Graphics 620: 24 execution units at 1.1 GHz",
  isa: GEN9.isa,
  engines: cited(24, `${GEN9_PAPER}: three subslices of eight execution units`),
  clockHz: cited(1.1e9, "the paper on systolic designs, of HD Graphics 620"),
  lanes: 8,
  threads: 7,
  loadLatency: cited(400, `${TABLES} before Xe: data port 400 cycles`),
  sharing: 8,
  l1Bytes: cited((512 * KIB) / 3, `${GEN9_PAPER}: of 768 KB of L3 a slice 512 KB are for data; of three subslices`),
  l1: cited(64, `${GEN9_PAPER}: L3 gives a subslice 64 bytes a cycle`),
  l2Bytes: cited(4 * MIB, `${HD_620}: 4 MB of cache, which GPU and CPU share`),
  l2: cited(64, `${GEN9_PAPER}: 64 bytes a cycle read between the GPU and the ring`),
  dram: cited(34.1e9, `${HD_620}: memory bandwidth`),
  vector: { f32: 16, f16: 32 },
  matrix: {},
  rates: `${GEN9_PAPER}: 16 operations of 32 bits a cycle, 32 of 16 bits`,
});

/** In the order they are listed. */
export const INTEL_GPUS: readonly Target[] = [DG2, PVC, ATS, GEN9_GPU];

/** Devices as Intel's offline compiler names them. It no longer knows Arctic Sound. */
const DEVICES: ReadonlyMap<string, string> = new Map([
  [DG2.name, "dg2"],
  [PVC.name, "pvc"],
  [GEN9_GPU.name, "kbl"],
]);

/** The name of a machine in Intel's offline compiler; undefined for a machine that it does not compile for. */
export const oclocDevice = ({ name }: Pick<Target, "name">): string | undefined => DEVICES.get(name);
