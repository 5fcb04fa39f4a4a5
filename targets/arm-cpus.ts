/**
 * @file Arm cores as targets, for the model only: nothing was measured on them. Rates come from the vendors' guides and from LLVM's scheduling models,
 * and sizes from one product with the core. Figures in neither are those of the reference Xeon, and say so.
 *
 *     armTargetNamed("neoverse-n1")      two 128-bit pipes at 2.5 GHz: 16 operations of f32 a cycle, 64 of bytes
 */

import { withName } from "../abstraction/collections.ts";
import { internal } from "../abstraction/error.ts";
import type { Bandwidth, Figure, FixedCost, Memory, Rate, ScalarCycles, Target, Unit } from "../abstraction/machine.ts";
import { compilerFlags } from "./features.ts";
import { assumed, cited, KIB, MIB } from "./figures.ts";
import { REFERENCE_CPU } from "./x86.ts";

/** The figures of one core, and the chip from which they were taken. */
interface Core {
  readonly name: string;
  readonly summary: string;
  readonly isa: readonly string[];
  readonly clockHz: Figure;
  readonly cores: Figure;
  /** 128-bit vector pipes. Each multiplies and adds 16 bytes of dot products, 4 f32, 2 f64 or 8 f16 per cycle. */
  readonly pipes: Figure;
  readonly loads: Figure;
  readonly stores: Figure;
  readonly loadLatency: Figure;
  /** Cycles from one accumulation to the next on the same register. */
  readonly forward: {
    readonly dot: number;
    readonly fma: number;
    readonly bfdot: number;
    readonly bfmmla: number;
    readonly source: string;
  };
  readonly width: Figure;
  readonly window: Figure;
  /** Size in bytes, and bytes per cycle that one core reads and writes. The largest first. */
  readonly caches: Readonly<Record<string, readonly [bytes: Figure, read: Figure, write: Figure]>>;
  /** Bytes per second of one core. */
  readonly dram: Figure;
}

const N1_GUIDE = "Arm Neoverse N1 Software Optimization Guide; LLVM, AArch64SchedNeoverseN1.td";
const N1_MANUAL = "Arm Neoverse N1 Core Technical Reference Manual";
const N1_PLATFORM = "Pellegrini et al., The Arm Neoverse N1 Platform, IEEE Micro 40(2), 2020";
const V1_GUIDE = "Arm Neoverse V1 Software Optimization Guide; LLVM, AArch64SchedNeoverseV1.td";
const V1_MANUAL = "Arm Neoverse V1 Core Technical Reference Manual";
const V2_GUIDE = "Arm Neoverse V2 Software Optimization Guide; LLVM, AArch64SchedNeoverseV2.td";
const V2_MANUAL = "Arm Neoverse V2 Core Technical Reference Manual";
const GRAVITON4 = "Chips and Cheese, Arm's Neoverse V2, in AWS's Graviton 4, 2024";
const M1_RESEARCH = "Dougall Johnson, Apple Microarchitecture Research: Firestorm";

const QUARTER = assumed(8, "a quarter of the second level");
const AS_N1 = assumed(32, "as Neoverse N1");

const NEOVERSE_N1_CORE: Core = {
  name: "neoverse-n1",
  summary: "Arm Neoverse N1 as in AWS Graviton2",
  isa: ["asimd", "asimdhp", "asimddp"],
  clockHz: cited(2.5e9, "AWS, Graviton2: 64 cores at 2.5 GHz"),
  cores: cited(64, "AWS, Graviton2"),
  pipes: cited(2, `${N1_GUIDE}: pipes V0 and V1`),
  loads: cited(2, `${N1_GUIDE}: pipes L0 and L1`),
  stores: cited(1, `${N1_GUIDE}: STR of a Q register takes both store data pipes`),
  loadLatency: cited(5, `${N1_GUIDE}: LD1 of one register`),
  forward: {
    dot: 1,
    fma: 2,
    bfdot: 2,
    bfmmla: 3,
    source: `${N1_GUIDE}: SDOT 3 cycles, 1 to an accumulator, FMLA 4 and 2`,
  },
  width: cited(4, `${N1_PLATFORM}: four instructions decoded a cycle`),
  window: cited(128, "LLVM, AArch64SchedNeoverseN1.td: MicroOpBufferSize"),
  caches: {
    l3: [cited(32 * MIB, "AWS, Graviton2: 32 MB of system level cache"), QUARTER, QUARTER],
    l2: [
      cited(1 * MIB, `${N1_MANUAL}: 256 KB to 1 MB; Graviton2 has 1 MB`),
      cited(32, `${N1_PLATFORM}: 32 bytes a cycle each way`),
      cited(32, `${N1_PLATFORM}: 32 bytes a cycle each way`),
    ],
    l1: [
      cited(64 * KIB, `${N1_MANUAL}: 64 KB of data cache`),
      cited(32, `${N1_GUIDE}: two loads of 16 bytes`),
      cited(16, `${N1_GUIDE}: one store of 16 bytes`),
    ],
  },
  dram: assumed(12e9, "what one core of a server with eight channels gets; the chip has 204.8e9"),
};

const NEOVERSE_V1_CORE: Core = {
  name: "neoverse-v1",
  summary: "Arm Neoverse V1 as in AWS Graviton3, scalable vectors of 256 bits",
  isa: ["asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve128", "sve256"],
  clockHz: cited(2.6e9, "AWS, Graviton3: 64 cores at 2.6 GHz"),
  cores: cited(64, "AWS, Graviton3"),
  pipes: cited(4, `${V1_GUIDE}: pipes V0 to V3; two of 256 bits for scalable vectors`),
  loads: cited(3, `${V1_GUIDE}: pipes L0, L1 and L2`),
  stores: cited(2, `${V1_GUIDE}: pipes L0 and L1 with store data`),
  loadLatency: cited(6, `${V1_GUIDE}: LD1 of one register`),
  forward: {
    dot: 1,
    fma: 2,
    bfdot: 2,
    bfmmla: 3,
    source: `${V1_GUIDE}: SDOT and SMMLA 3 cycles, 1 to an accumulator; FMLA and BFDOT 4 and 2; BFMMLA 5 and 3`,
  },
  width: cited(8, "LLVM, AArch64SchedNeoverseV1.td: IssueWidth"),
  window: cited(256, "LLVM, AArch64SchedNeoverseV1.td: MicroOpBufferSize"),
  caches: {
    l3: [cited(32 * MIB, "AWS, Graviton3: 32 MB of system level cache"), QUARTER, QUARTER],
    l2: [cited(1 * MIB, `${V1_MANUAL}: 512 KB or 1 MB; Graviton3 has 1 MB`), AS_N1, AS_N1],
    l1: [
      cited(64 * KIB, `${V1_MANUAL}: 64 KB of data cache`),
      cited(48, `${V1_GUIDE}: three loads of 16 bytes`),
      cited(32, `${V1_GUIDE}: two stores of 16 bytes`),
    ],
  },
  dram: assumed(15e9, "what one core of a server with eight channels gets; the chip has 307.2e9"),
};

const NEOVERSE_V2_CORE: Core = {
  name: "neoverse-v2",
  summary: "Arm Neoverse V2 as in AWS Graviton4 and NVIDIA Grace, scalable vectors of 128 bits",
  isa: ["asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve128"],
  clockHz: cited(2.8e9, `${GRAVITON4}: 2.8 GHz`),
  cores: cited(96, "AWS, Graviton4"),
  pipes: cited(4, `${V2_GUIDE}: pipes V0 to V3`),
  loads: cited(3, `${V2_GUIDE}: pipes L0, L1 and L2`),
  stores: cited(2, `${V2_GUIDE}: pipes L0 and L1 with store data`),
  loadLatency: cited(6, `${V2_GUIDE}: LD1 of one register`),
  forward: {
    dot: 1,
    fma: 2,
    bfdot: 3,
    bfmmla: 4,
    source: `${V2_GUIDE}: SDOT and SMMLA 3 cycles, 1 to an accumulator; FMLA 4 and 2; BFDOT 5 and 3; BFMMLA 6 and 4`,
  },
  width: cited(6, "LLVM, AArch64SchedNeoverseV2.td: IssueWidth"),
  window: cited(320, "LLVM, AArch64SchedNeoverseV2.td: MicroOpBufferSize"),
  caches: {
    l3: [cited(36 * MIB, `${GRAVITON4}: 36 MB of system level cache`), QUARTER, QUARTER],
    l2: [cited(2 * MIB, `${V2_MANUAL}: 1 MB or 2 MB; Graviton4 has 2 MB`), AS_N1, AS_N1],
    l1: [
      cited(64 * KIB, `${V2_MANUAL}: 64 KB of data cache`),
      cited(48, `${V2_GUIDE}: three loads of 16 bytes`),
      cited(32, `${V2_GUIDE}: two stores of 16 bytes`),
    ],
  },
  dram: assumed(20e9, "what one core of a server with twelve channels gets; the chip has 537.6e9"),
};

const APPLE_M1_CORE: Core = {
  name: "apple-m1",
  summary: "a Firestorm core of Apple M1",
  isa: ["asimd", "asimdhp", "asimddp"],
  clockHz: cited(3.2e9, "AnandTech, The 2020 Mac Mini Unleashed: 3.2 GHz, one core busy"),
  cores: cited(4, `${M1_RESEARCH}: four P-cores`),
  pipes: cited(4, `${M1_RESEARCH}: four FP/SIMD units`),
  loads: cited(3, `${M1_RESEARCH}: units 8 to 10`),
  stores: cited(2, `${M1_RESEARCH}: units 7 and 8`),
  loadLatency: assumed(5, "as Neoverse N1"),
  forward: {
    dot: 3,
    fma: 4,
    bfdot: 4,
    bfmmla: 5,
    source: `${M1_RESEARCH}: SDOT 3.00 cycles from accumulator to accumulator; FMLA 4`,
  },
  width: cited(8, `${M1_RESEARCH}: eight uops a cycle`),
  window: cited(600, "AnandTech, Apple Announces The Apple Silicon M1: a reorder buffer of about 630 instructions"),
  caches: {
    l2: [
      cited(12 * MIB, "Apple, M1: 12 MB of L2 shared by four P-cores"),
      assumed(32, "half a line of 64 bytes a cycle"),
      assumed(16, "half of what is read"),
    ],
    l1: [
      cited(128 * KIB, "Apple, M1: 128 KB of data cache"),
      cited(48, `${M1_RESEARCH}: three loads of 16 bytes`),
      cited(32, `${M1_RESEARCH}: two stores of 16 bytes`),
    ],
  },
  dram: cited(58e9, "AnandTech, The 2020 Mac Mini Unleashed: 58 GB/s read by one core"),
};

const perCycle = ({ value, source }: Figure, direction: "read" | "write"): Bandwidth => ({
  value,
  source,
  direction,
  per: "cycle",
  of: "core",
});

function memoriesOf({ caches, dram }: Core): Memory[] {
  const both = (["read", "write"] as const).map(
    (direction): Bandwidth => ({ ...dram, direction, per: "second", of: "core" }),
  );
  return [
    {
      name: "dram",
      kind: "addressed",
      at: "socket",
      bandwidth: both,
      pageBytes: cited(4096, "the small pages of AArch64, as most systems have them"),
    },
    ...Object.entries(caches).map(
      ([name, [bytes, read, write]]): Memory => ({
        name,
        kind: "cache",
        at: name === "l3" ? "socket" : "core",
        bytes,
        bandwidth: [perCycle(read, "read"), perCycle(write, "write")],
      }),
    ),
  ];
}

/** Operations of all pipes together; a multiply and an add count as two. */
function unitsOf({ pipes, loads, stores, loadLatency }: Core): Unit[] {
  const { value: n, source } = pipes;
  const at = "core";
  return [
    {
      name: "fma",
      at,
      issueCycles: 1 / n,
      latencyCycles: 4,
      operationsPerCycle: { f16: 16 * n, f32: 8 * n, f64: 4 * n },
      source,
    },
    { name: "dot", at, operationsPerCycle: { s8: 32 * n, u8: 32 * n, bf16: 16 * n }, source },
    { name: "matrix", at, operationsPerCycle: { s8: 64 * n, u8: 64 * n, bf16: 32 * n }, source },
    { name: "shuffle", at, issueCycles: 1 / n, latencyCycles: 2, source },
    {
      name: "load",
      at,
      issueCycles: 1 / loads.value,
      latencyCycles: loadLatency.value,
      source: `${loads.source}; ${loadLatency.source}`,
    },
    { name: "store", at, issueCycles: 1 / stores.value, source: stores.source },
  ];
}

function ratesOf({ forward, pipes }: Core): Rate[] {
  const { dot, fma, bfdot, bfmmla, source } = forward;
  const share: Figure = cited(1, pipes.source);
  /** Dependent instructions of a by-lane row on one accumulator, by the extent of k. */
  const chain = (
    cycles: number,
    instructions: Readonly<Record<number, number>>,
  ): NonNullable<Rate["latencyCycles"]> => ({
    axis: "k",
    points: Object.entries(instructions).map(([extent, count]) => [Number(extent), count * cycles] as const),
    source,
  });
  return [
    { family: "dot", unit: "dot", share, latencyCycles: chain(dot, { 4: 1, 16: 4 }), feature: "asimddp" },
    {
      family: "mixed-dot",
      unit: "dot",
      latencyCycles: chain(dot, { 4: 2, 16: 5 }),
      feature: "asimddp",
      share: assumed(
        0.6,
        "of seven instructions four are products of the sum, and what depends on one factor alone is shared by a block",
      ),
    },
    { family: "fma", unit: "fma", share, latencyCycles: chain(fma, { 1: 1, 4: 4 }), feature: "asimd" },
    { family: "mmla", unit: "matrix", share, latencyCycles: { value: dot, source }, feature: "i8mm" },
    { family: "bfdot", unit: "dot", share, latencyCycles: chain(bfdot, { 2: 1, 8: 4 }), feature: "bf16" },
    { family: "bfmmla", unit: "matrix", share, latencyCycles: { value: bfmmla, source }, feature: "bf16" },
  ];
}

/** Scalar loops were not measured on any Arm core. */
const borrowed = <T extends object>(figures: T): T =>
  Object.fromEntries(
    Object.entries(figures).map(([name, figure]) => [
      name,
      { ...figure, source: `assumed, as on the reference Xeon: ${figure.source}` },
    ]),
  ) as T; // the same keys, each with another source

function targetOfCore(core: Core): Target {
  const { name, summary, isa, clockHz, cores, width, window } = core;
  const barrier = REFERENCE_CPU.levels[0].barrier;
  return {
    name,
    summary,
    isa,
    clockHz,
    compilerFlags: compilerFlags(isa),
    levels: [
      { name: "socket", units: 1, synchronises: true, barrier: { cycles: borrowed(barrier).cycles } },
      { name: "core", units: cores.value },
      { name: "vector", units: 1 },
    ],
    memories: memoriesOf(core),
    units: unitsOf(core),
    rates: ratesOf(core).filter((rate) => isa.includes(rate.feature)),
    fixed: borrowed<Record<string, FixedCost>>({ block: REFERENCE_CPU.fixed.block }),
    pipeline: {
      instructionsPerCycle: width,
      loopInstructions: assumed(4, "a counter, a comparison and a branch, two addresses"),
      window,
    },
    scalar: {
      ...borrowed<ScalarCycles>(REFERENCE_CPU.scalar),
      copyByte: assumed(1 / 16, "16 bytes a cycle"),
      sideBySide: assumed(0.5, "vectors of four elements, a load and a store each"),
      vectorOperation: assumed(0.16, "four elements, two in three cycles"),
    },
  };
}

/** In the order they are listed. */
export const ARM_TARGETS: readonly Target[] = [NEOVERSE_N1_CORE, NEOVERSE_V1_CORE, NEOVERSE_V2_CORE, APPLE_M1_CORE].map(
  targetOfCore,
);

export function armTargetNamed(name: string): Target | undefined {
  return withName(ARM_TARGETS, name);
}

/** Whether kernels for a machine are judged by the model and an emulator, because it is one of the table and not this machine's processor. */
export const isElsewhere = ({ name }: Pick<Target, "name">): boolean => armTargetNamed(name) !== undefined;

/** Implementer and part of MIDR_EL1, as in /proc/cpuinfo, with the core's common name. Source: Linux, arch/arm64/include/asm/cputype.h. */
const PARTS: Readonly<Record<string, readonly [words: string, target?: string]>> = {
  "0x41 0xd05": ["Arm Cortex-A55"],
  "0x41 0xd08": ["Arm Cortex-A72"],
  "0x41 0xd0b": ["Arm Cortex-A76"],
  "0x41 0xd0c": ["Arm Neoverse N1", "neoverse-n1"],
  "0x41 0xd40": ["Arm Neoverse V1", "neoverse-v1"],
  "0x41 0xd49": ["Arm Neoverse N2"],
  "0x41 0xd4f": ["Arm Neoverse V2", "neoverse-v2"],
  "0x61 0x022": ["Apple Icestorm M1"],
  "0x61 0x023": ["Apple Firestorm M1", "apple-m1"],
};

/** A core's name by its numbers: `Arm Neoverse N1`; the numbers themselves when no name is known. */
export function armModel(implementer: string | undefined, part: string): string {
  return (
    PARTS[`${implementer} ${part}`]?.[0] ??
    `Arm part ${part}${implementer === undefined ? "" : ` of implementer ${implementer}`}`
  );
}

/** The target whose figures replace missing measurements on an Arm machine of this name: its core's, else Neoverse N1. */
export function armReference(model: string): Target {
  const known = Object.values(PARTS).find(([words]) => words === model)?.[1];
  return armTargetNamed(model) ?? armTargetNamed(known ?? "neoverse-n1") ?? internal("no figures of Neoverse N1");
}
