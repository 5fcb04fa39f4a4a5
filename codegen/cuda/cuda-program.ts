/**
 * @file Kernels as a CUDA program: their text, their launches, and the interface of abstraction/kernel.ts around them.
 *
 *     static __global__ void __launch_bounds__(256) phase_0(float* __restrict__ out, const uint16_t* __restrict__ x) { ... }
 *     extern "C" int automap_launch(void* workspace, void* const* tensors, cudaStream_t stream) { ... }
 *
 * Shared memory of a CUDA kernel: its buffers, followed by the barriers that engines and warps complete.
 *
 *     __shared__ __align__(128) uint16_t a_ring[6144];                                      if they fit into static shared memory
 *     uint16_t* const a_ring = (uint16_t*)(dynamic_shared() + 0);                           otherwise in dynamic shared memory
 *     uint64_t* const full = (uint64_t*)(dynamic_shared() + 98304);
 *     init_arrivals(full, 4, 1);
 */

import { type Computation, memoryElements, type Tensor, writtenBy } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { internal, UsageError } from "../../abstraction/error.ts";
import { WARP } from "../../abstraction/intrinsic.ts";
import { C_TYPES, type CudaCall } from "../../abstraction/kernel.ts";
import { isShared, type LoopNest, type Scratch } from "../../abstraction/loop-nest.ts";
import { VIEW_ALIGNMENT } from "../../abstraction/matrix-view.ts";
import {
  block,
  type Code,
  code,
  join,
  list,
  Name,
  NOTHING,
  type SourceText,
  spell,
  tensorName,
} from "../../abstraction/source-text.ts";
import { STATIC_SHARED_BYTES } from "../../targets/nvidia-gpu.ts";
import { headOf, workspaceOf } from "../cpp/cpp-frame.ts";
import { calledIn, type Helpers } from "../cpp/cpp-helpers.ts";
import { guarded } from "../lane-printer.ts";
import type { Named } from "../walk.ts";
import { type Box, describedBox } from "./cuda-boxes.ts";
import type { Aligned } from "./cuda-copies.ts";
import { deviceCode } from "./cuda-helpers.ts";

/** A pointer parameter of a kernel, and its origin on the host. */
interface Pointer {
  readonly name: Name;
  readonly type: Code;
  readonly restrict: boolean;
  readonly from: Code;
  /** Whether it points into the workspace. */
  readonly inWorkspace: boolean;
}

/** The blocks that run a kernel. */
export interface LaunchShape {
  readonly blocks: number;
  /** Blocks in a cluster; 1 without clusters. */
  readonly cluster: number;
  /** Threads in a block. */
  readonly threads: number;
  /**
   * Blocks that should fit into a multiprocessor at once, which bounds the registers of a thread; by default the
   * compiler decides.
   */
  readonly beside?: number | undefined;
}

export interface CudaKernel extends LaunchShape {
  readonly name: Name;
  readonly pointers: readonly Pointer[];
  /** Dynamic shared memory requested at launch, in bytes. */
  readonly sharedBytes: number;
  /** Whether it is launched while the preceding kernel still runs. */
  readonly early?: boolean;
  /** The boxes that its launch describes to the copy engine. */
  readonly boxes?: readonly Box[];
  readonly body: readonly Code[];
}

/** Kernels launched one after another, and how often. */
interface CudaRound {
  readonly kernels: readonly CudaKernel[];
  readonly times: number;
}

interface CudaParts {
  /** Lines of the head, below the equations and tensors. */
  readonly comments: readonly string[];
  /** The text that an instruction requires. */
  readonly prelude?: readonly Code[];
  /** Functions among the threads of a warp. */
  readonly folds?: Helpers;
  /** Tensors in constant memory; by default none. */
  readonly constants?: readonly Tensor[];
  readonly prepare: readonly CudaKernel[];
  readonly run: readonly CudaKernel[];
  /** The order of launches; by default each kernel once. */
  readonly rounds?: readonly CudaRound[];
  /** Required alignment of tensors in bytes. */
  readonly aligned: ReadonlyMap<string, number>;
}

/**
 * Pointers to the tensors and workspace buffers that a kernel names.
 * @param waits whether the kernel waits for the preceding one. Tensors are then not `__restrict__`, unless constant, so
 * that no read of what that kernel may write moves before the wait
 */
export function pointersOf(
  computation: Computation,
  nest: LoopNest,
  { memory }: Pick<Named, "memory">,
  waits = false,
): Pointer[] {
  const written = writtenBy(computation);
  const tensors = Object.values(computation.tensors).map(({ name, dtype, constant }, i) => {
    const type = code`${written.has(name) ? "" : "const "}${C_TYPES[dtype]}*`;
    return {
      name,
      type,
      restrict: !waits || constant,
      from: code`tensors[${i}]`,
      inWorkspace: false,
    };
  });
  const buffers = workspaceOf(nest).buffers.map(({ name, dtype, offset }) => {
    const from = code`((char*)workspace + ${offset})`;
    return { name, type: code`${C_TYPES[dtype]}*`, restrict: false, from, inWorkspace: true };
  });
  return [...tensors, ...buffers]
    .filter(({ name }) => memory.has(name))
    .map((pointer) => ({ ...pointer, name: tensorName(pointer.name) }));
}

/** Required alignment of tensors in bytes, and what raises it. */
export function alignments(): { readonly aligned: ReadonlyMap<string, number>; readonly raise: Aligned } {
  const aligned = new Map<string, number>();
  const raise = (tensor: string, bytes: number): void => {
    aligned.set(tensor, Math.max(bytes, aligned.get(tensor) ?? 1));
  };
  return { aligned, raise };
}

const OR_RETURN = code`if (error != cudaSuccess) return error;`;

/** The text, and the facts that a caller needs. */
export interface CudaProgram {
  readonly source: SourceText;
  readonly call: CudaCall;
  /** GPU features that the kernels require besides those of their instruction. */
  readonly features: readonly string[];
}

export function cudaProgram(computation: Computation, nest: LoopNest, parts: CudaParts): CudaProgram {
  const { prepare, run, rounds = [{ kernels: run, times: 1 }], constants = [], prelude = [], folds = {} } = parts;
  const workspace = workspaceOf(nest);
  const prepares = prepare.length > 0 || constants.length > 0;
  const kernels = [...prepare, ...run].map(kernelText);
  const asked = [...prepare, ...run].filter((k) => k.sharedBytes > 0).map(allowance);
  const uses = (all: readonly CudaKernel[]): boolean => all.some((k) => k.pointers.some((p) => p.inWorkspace));
  const prepared = prepare.flatMap((k) => launchOf(computation, nest, k));
  const launched = rounds.flatMap(({ kernels: round, times }) => {
    const launches = round.flatMap((k) => launchOf(computation, nest, k));
    return times === 1 ? launches : block(code`for (int round = 0; round < ${times}; round++) {`, launches);
  });
  const device = deviceCode([...kernels, ...prepared, ...launched], prelude);
  const zeros = [code`error = cudaMemsetAsync(workspace, 0, ${workspace.bytes}, stream);`, OR_RETURN];
  const prepareBody = prepares
    ? [
        code`cudaError_t error = (cudaError_t)automap_allow();`,
        OR_RETURN,
        ...(workspace.buffers.length === 0 ? [code`(void)workspace;`] : zeros),
        ...constants.flatMap((t) => copyOf(computation, t)),
        ...prepared,
        code`return cudaSuccess;`,
      ]
    : [code`(void)workspace, (void)tensors, (void)stream;`, code`return automap_allow();`];
  const text = code`${headOf(computation, parts.comments)}
#include <stdint.h>
#include <string.h>
${calledIn(kernels, folds)}
${device.text}

${constantMemory(constants)}
${kernels}
extern "C" unsigned long automap_workspace_bytes(void) { return ${workspace.bytes}; }

extern "C" int automap_allow(void) {
  ${asked.length === 0 ? [] : [code`cudaError_t error = cudaSuccess;`]}
  ${asked.flat()}
  return cudaSuccess;
}

extern "C" int automap_prepare(void* workspace, const void* const* tensors, cudaStream_t stream) {
  ${prepareBody}
}

extern "C" int automap_launch(void* workspace, void* const* tensors, cudaStream_t stream) {
  ${uses(run) ? [] : [code`(void)workspace;`]}
  ${alignment(computation, parts.aligned)}
  cudaError_t error = cudaSuccess;
  ${launched}
  return cudaSuccess;
}
`;
  return {
    source: spell(text, "cuda"),
    call: {
      workspaceBytes: workspace.buffers.length > 0 ? workspace.bytes : 0,
      prepares,
      aligned: Object.fromEntries([...parts.aligned].filter(([, bytes]) => bytes > 1)),
    },
    features: device.features,
  };
}

/** Symbols in a separate namespace, since CUDA's headers declare functions such as j0 and index. */
function constantMemory(tensors: readonly Tensor[]): Code[] {
  const declared = tensors.map(
    (t) => code`static __constant__ ${C_TYPES[t.dtype]} ${tensorName(t.name)}[${memoryElements(t)}];`,
  );
  return declared.length === 0 ? [] : [code`namespace constants {`, ...declared, code`}`, NOTHING];
}

function copyOf(computation: Computation, tensor: Tensor): Code[] {
  const at = Object.keys(computation.tensors).indexOf(tensor.name);
  const size = memoryElements(tensor) * bytesOf(tensor.dtype);
  return [
    code`error = cudaMemcpyToSymbolAsync(constants::${tensorName(tensor.name)}, tensors[${at}], ${size}, 0, cudaMemcpyDefault, stream);`,
    OR_RETURN,
  ];
}

function kernelText({ name, pointers, boxes = [], threads, beside, body }: CudaKernel): Code {
  const parameters = list([
    ...pointers.map((p) => code`${p.type}${p.restrict ? " __restrict__ " : " "}${p.name}`),
    ...boxes.map((b) => code`const __grid_constant__ CUtensorMap ${b.name}`),
  ]);
  const bounds = beside === undefined ? code`${threads}` : code`${threads}, ${beside}`;
  return code`static __global__ void __launch_bounds__(${bounds}) ${name}(${parameters}) {
  ${body}
}
`;
}

function launchOf(
  computation: Computation,
  nest: LoopNest,
  { name, pointers, boxes = [], blocks, cluster, early = false, threads, sharedBytes }: CudaKernel,
): Code[] {
  const all = [...pointers, ...boxes];
  const given = all.length === 0 ? code`nullptr` : list(all.map((p) => code`(void*)&${p.name}`));
  const addressOf = ({ tensor }: Box): Code => {
    const [pointer = internal(`no tensor "${tensor}" to describe a box of`)] = pointersOf(computation, nest, {
      memory: new Set([tensor]),
    });
    return pointer.from;
  };
  const lines = [
    ...pointers.map((p) => code`${p.type} ${p.name} = (${p.type})${p.from};`),
    ...boxes.flatMap((box) => describedBox(box, addressOf(box))),
    code`void* arguments[] = {${given}};`,
    cluster > 1 || early
      ? code`error = @launch_with(${name}, ${cluster}, ${early ? 1 : 0}, dim3(${blocks}), dim3(${threads}), arguments, ${sharedBytes}, stream);`
      : code`error = cudaLaunchKernel(${name}, dim3(${blocks}), dim3(${threads}), arguments, ${sharedBytes}, stream);`,
    OR_RETURN,
  ];
  return guarded([], lines, true);
}

/** A kernel must opt in to more shared memory than it may declare statically. */
function allowance({ name, sharedBytes }: CudaKernel): Code[] {
  return [
    code`error = cudaFuncSetAttribute(${name}, cudaFuncAttributeMaxDynamicSharedMemorySize, ${sharedBytes});`,
    OR_RETURN,
  ];
}

/** Checks the alignment that vector accesses require of tensors. */
function alignment(computation: Computation, aligned: ReadonlyMap<string, number>): Code[] {
  const tests = Object.keys(computation.tensors).flatMap((name, i): Code[] => {
    const bytes = aligned.get(name) ?? 1;
    return bytes > 1 ? [code`(uintptr_t)tensors[${i}] % ${bytes} != 0`] : [];
  });
  return tests.length === 0 ? [] : [code`if (${join(tests, code` || `)}) return cudaErrorMisalignedAddress;`];
}

// ---- shared memory ---------------------------------------------------------------------------------------------------------------

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
