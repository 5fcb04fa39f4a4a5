/**
 * @file Shared memory of a CUDA kernel: its buffers, followed by the barriers that engines and warps complete.
 *
 *     __shared__ __align__(128) uint16_t a_ring[6144];                                      if they fit into static shared memory
 *     uint16_t* const a_ring = (uint16_t*)(dynamic_shared() + 0);                           otherwise in dynamic shared memory
 *     uint64_t* const full = (uint64_t*)(dynamic_shared() + 98304);
 *     init_arrivals(full, 4, 1);
 */

import { bytesOf } from "../../abstraction/dtype.ts";
import { UsageError } from "../../abstraction/error.ts";
import { WARP } from "../../abstraction/intrinsic.ts";
import { C_TYPES } from "../../abstraction/kernel.ts";
import { isShared, type LoopNest, type Scratch } from "../../abstraction/loop-nest.ts";
import { VIEW_ALIGNMENT } from "../../abstraction/matrix-view.ts";
import { type Code, code, Name, tensorName } from "../../abstraction/source-text.ts";
import { STATIC_SHARED_BYTES } from "../../targets/nvidia-gpu.ts";
import type { Named } from "../walk.ts";
import type { LaunchShape } from "./cuda-program.ts";

/** Alignment of buffers in shared memory, in bytes: eight rows of 16 bytes, which cover all banks once. */
const SHARED_ALIGNMENT = 128;
/** Bytes of an mbarrier. PTX ISA: 64 bits. */
const ARRIVAL_BYTES = 8;

export interface Teams {
  /** Threads of a team, among which the loops inside it are divided: a warpgroup, a warp, or an equal part of a warp. */
  readonly team: number;
  /** Threads of all teams of a block. */
  readonly inTeams: number;
}

/**
 * Declares buffers statically if they fit, otherwise as parts of dynamic shared memory.
 * @throws UsageError if the buffers of teams do not fit
 */
export function sharedMemory(
  nest: LoopNest,
  { memory }: Named,
  { cluster, team, inTeams, threads }: Teams & LaunchShape,
): { readonly lines: readonly Code[]; readonly bytes: number } {
  const named = nest.scratch.filter((s) => s.scope !== "workspace" && memory.has(s.name));
  const buffers = named.filter(isShared);
  const ofTeams = named.filter((s) => !isShared(s));
  const wanted = (threads / team) * ofTeams.reduce((sum, s) => sum + s.elements * bytesOf(s.dtype), 0);
  if (wanted > STATIC_SHARED_BYTES)
    throw new UsageError(
      `${threads / WARP} warps want ${wanted} bytes of shared memory, a block has ${STATIC_SHARED_BYTES}`,
      "take fewer warps a block, or smaller tiles",
    );
  // Instructions that read shared memory themselves swizzle by absolute address.
  const viewed = nest.registers.some((r) => r.intrinsic.asynchronous !== undefined);
  const alignment = viewed ? VIEW_ALIGNMENT : SHARED_ALIGNMENT;
  const bytesIn = ({ elements, dtype, scope }: Scratch): number =>
    (elements * bytesOf(dtype)) / (scope === "cluster" ? cluster : 1);
  let bytes = 0;
  const placed = buffers.map((scratch) => {
    const offset = bytes;
    bytes += Math.ceil(bytesIn(scratch) / alignment) * alignment;
    return { scratch, offset };
  });
  if (bytes <= STATIC_SHARED_BYTES && !viewed && cluster === 1) {
    const declared = placed.map(
      ({ scratch: { name, dtype, elements } }) =>
        code`__shared__ __align__(${SHARED_ALIGNMENT}) ${C_TYPES[dtype]} ${tensorName(name)}[${elements}];`,
    );
    return { lines: [...declared, ...ofTeams.flatMap((s) => ofTeam(s, team, threads))], bytes: 0 };
  }
  const parts = placed.map(({ scratch: { name, dtype }, offset }) => {
    const type = C_TYPES[dtype];
    return code`${type}* const ${tensorName(name)} = (${type}*)(@dynamic_shared() + ${offset});`;
  });
  const arrivals = (nest.arrivals ?? []).filter((a) => memory.has(a.name));
  const begun = arrivalLines(arrivals, bytes, inTeams / WARP, cluster);
  return { lines: [...parts, ...begun.lines], bytes: begun.end };
}

/** A buffer for each team of a block. */
function ofTeam({ name, dtype, elements }: Scratch, team: number, threads: number): Code[] {
  const own = tensorName(name);
  const all = own.with("_of_warp");
  return [
    code`__shared__ ${C_TYPES[dtype]} ${all}[${threads / team}][${elements}];`,
    code`${C_TYPES[dtype]}* const ${own} = ${all}[threadIdx.x / ${team}];`,
  ];
}

export const arrivalsName = (name: string): Name => new Name("local", name);

/** Barriers after `bytes` bytes of shared memory. Either the engine completes them, or the given number of warps, of a block or of each of a cluster. */
function arrivalLines(
  arrivals: NonNullable<LoopNest["arrivals"]>,
  bytes: number,
  warps: number,
  cluster: number,
): { readonly lines: readonly Code[]; readonly end: number } {
  if (arrivals.length === 0) return { lines: [], end: bytes };
  let end = bytes;
  const lines = arrivals.flatMap(({ name, stages, by }) => {
    const word = arrivalsName(name);
    const declared = code`uint64_t* const ${word} = (uint64_t*)(@dynamic_shared() + ${end});`;
    end += ARRIVAL_BYTES * stages;
    const arriving = by === undefined ? 1 : by === "teams" ? warps : warps * cluster;
    return [declared, code`@init_arrivals(${word}, ${stages}, ${arriving});`];
  });
  return { lines: [...lines, code`@publish_arrivals();`], end };
}
