/**
 * @file What NVIDIA GPUs have in common: the levels of a launch, the memories, and the limits of a block.
 *
 *     gpu({ name: "h100", capability: 90, multiprocessors: 132, ... }).levels      grid, cluster, block, warpgroup, warp, lane
 */

import { present } from "../abstraction/collections.ts";
import type {
  Bandwidth,
  CopyForm,
  Figure,
  LaneVector,
  Level,
  Memory,
  Rate,
  Target,
  Unit,
} from "../abstraction/machine.ts";
import { cited, KIB } from "./figures.ts";

export const GUIDE = "CUDA C++ Programming Guide, Technical Specifications per Compute Capability";

/** The most threads of a block. */
export const MOST_THREADS = 1024;
/** Shared memory that a block has without asking for more at launch. */
export const STATIC_SHARED_BYTES = 48 * KIB;
/** The most constant memory that a kernel takes, of 64 KiB. */
export const CONSTANT_BYTES = 48 * KIB;
/** Parts of a multiprocessor, each with its own warps and registers. */
export const QUARTERS = 4;
/** A line of the caches, and a part of it that is read or written by itself. */
export const LINE_BYTES = 128;
export const SECTOR_BYTES = 32;

const WARP_LANES: LaneVector = {
  name: "warp",
  summary: "a warp on a quarter of an H200's SM",
  level: "warp",
  lanes: 32,
  lanesByBytes: false,
};

/** The compiler's name of a compute capability, 90 for 9.0. Hopper's own instructions need the architecture-specific name, 90a. */
export const architectureName = (capability: number): string => (capability === 90 ? "90a" : String(capability));

export function architectureFlag(capability: number): string {
  const name = architectureName(capability);
  return `-gencode=arch=compute_${name},code=sm_${name}`;
}

/** The figures in which machines of the family differ. */
export interface Gpu {
  /** Features of its compute capability. */
  readonly isa: readonly string[];
  readonly name: string;
  readonly summary: string;
  readonly capability: 70 | 80 | 90;
  readonly multiprocessors: number;
  readonly clockHz: Figure;
  readonly loadedClockHz?: Figure;
  readonly dram: { readonly bytes: Figure; readonly latencyCycles?: Figure; readonly bandwidth: readonly Bandwidth[] };
  readonly l2: { readonly bytes: Figure; readonly latencyCycles?: Figure; readonly bandwidth: readonly Bandwidth[] };
  /** Shared memory of a multiprocessor, and of a block that opts in. */
  readonly shared: { readonly bytes: number; readonly block: number; readonly latencyCycles?: Figure };
  readonly copies: readonly CopyForm[];
  readonly units: readonly Unit[];
  readonly rates: readonly Rate[];
  readonly fixed: Target["fixed"];
  readonly cluster?: { readonly level: Level; readonly atOnce: NonNullable<Target["clusters"]> };
}

export function gpu({ name, summary, isa, capability, multiprocessors, shared, cluster, ...machine }: Gpu): Target {
  const hopper = capability === 90;
  const memory = (m: Memory): Memory => m;
  return {
    name,
    summary,
    isa,
    compilerFlags: [architectureFlag(capability)],
    clockHz: machine.clockHz,
    ...(machine.loadedClockHz && { loadedClockHz: machine.loadedClockHz }),
    levels: present([
      { name: "grid", units: 1 },
      cluster?.level,
      {
        name: "block",
        units: multiprocessors,
        most: cluster ? 8 : 2 ** 31 - 1,
        resident: 32,
        synchronises: true,
        barrier: { cycles: cited(22, "audit of a B300"), cyclesPerUnit: 2 },
      },
      hopper && ({ name: "warpgroup", units: 1, most: 8, synchronises: true, feature: "wgmma" } as const),
      { name: "warp", units: QUARTERS, most: hopper ? 4 : 32, resident: 64, synchronises: true },
      { name: "lane", units: 32, most: 32 },
    ]),
    memories: [
      memory({
        name: "dram",
        kind: "addressed",
        at: "grid",
        ...machine.dram,
        copies: [
          { into: "registers", name: "plain", bytes: [1, 2, 4, 8, 16], completes: "at once" },
          ...machine.copies,
        ],
      }),
      memory({ name: "l2", kind: "cache", at: "grid", ...machine.l2 }),
      memory({
        name: "shared",
        kind: "addressed",
        at: "block",
        bytes: cited(shared.bytes, GUIDE),
        limits: [
          {
            of: "block",
            bytes: shared.block,
            unasked: STATIC_SHARED_BYTES,
            ...(capability >= 80 && { reserved: KIB }),
          },
        ],
        banks: { count: 32, bytes: 4 },
        ...(shared.latencyCycles && { latencyCycles: shared.latencyCycles }),
        bandwidth: [
          { value: 128, per: "cycle", direction: "both", of: "block", source: `${GUIDE}: 32 banks of 4 bytes` },
        ],
        copies: [{ into: "registers", name: "plain", bytes: [1, 2, 4, 8, 16], completes: "at once" }],
      }),
      memory({
        name: "registers",
        kind: "addressed",
        at: "block",
        bytes: cited(256 * KIB, `${GUIDE}: 65,536 of 32 bits a multiprocessor`),
        limits: [
          { of: "lane", bytes: 255 * 4 },
          { of: "warp", bytes: 255 * 4 * 32, granule: KIB },
        ],
        bandwidth: [],
      }),
    ],
    units: machine.units,
    rates: machine.rates,
    fixed: machine.fixed,
    ...(hopper && { lanes: WARP_LANES }),
    ...(cluster && { clusters: cluster.atOnce }),
  };
}
