/**
 * @file The frame around lanes in CUDA: kernels and their launches behind the interface of abstraction/kernel.ts.
 *
 *     __global__ void __launch_bounds__(128) phase_0(float* __restrict__ out, const float* __restrict__ x) {
 *       const int warp_index = blockIdx.x * 4 + threadIdx.x / 32;
 *
 * Outermost parallel loops are distributed to warps. Constants that all lanes read at the same address are in constant
 * memory.
 */

import { type Computation, memoryElements, type Tensor } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { UsageError } from "../abstraction/error.ts";
import { accessesIn, axesIn } from "../abstraction/expression.ts";
import { WARP } from "../abstraction/intrinsic.ts";
import { C_TYPES } from "../abstraction/kernel.ts";
import type { LoopNest, Statement } from "../abstraction/loop-nest.ts";
import { axisName, code, Name, tensorName } from "../abstraction/source-text.ts";
import { CONSTANT_BYTES, QUARTERS, STATIC_SHARED_BYTES } from "../targets/nvidia-gpu.ts";
import type { SourceNotes } from "./cpp-frame.ts";
import { alignments, type CudaKernel, type CudaProgram, cudaProgram, pointersOf } from "./cuda-program.ts";
import { dealtIndices, dealtLoops, equationsIn, laneLoops } from "./lane-statement.ts";
import { type FoldSyntax, foldFunctions } from "./lane-threads.ts";
import { CudaLanes } from "./lanes-cuda.ts";
import { HalfLanes } from "./lanes-halves.ts";
import { namedIn } from "./named.ts";
import { printStatements, roundsOf, stepsOf } from "./walk.ts";
import { ALL_LANES } from "./warp-expressions.ts";

export interface CudaOptions {
  /** Warps of a block; 4 by default. */
  readonly warps?: number;
  /** Lanes of an array: a warp by default, or an equal part of it. Parts are dealt like warps. */
  readonly group?: number;
  /** Warps that should fit into a quarter of a multiprocessor; by default the compiler decides. */
  readonly resident?: number;
}

/** @throws UsageError if a vector has more lanes than a warp, or a block's scratch does not fit into shared memory */
export function cudaSource(
  computation: Computation,
  nest: LoopNest,
  notes: SourceNotes,
  comments: readonly string[],
  { warps = 4, resident, group = WARP }: CudaOptions,
): CudaProgram {
  const deal = { warps, group, groups: (warps * WARP) / group };
  checkLanes(nest, deal);
  const constants = constantTensors(nest, Object.values(computation.tensors));
  const { aligned, raise } = alignments();
  const kernel = (name: string, body: readonly Statement[], held: readonly Tensor[]): CudaKernel => {
    // The printer sees only this kernel's statements, since other kernels of the call run at other times.
    const own = { ...nest, prepare: [], body };
    const constant = new Set(held.map((t) => t.name));
    const printer = nest.vectors?.some((v) => v.dtype === "f16")
      ? new HalfLanes(computation, own, constant, raise)
      : new CudaLanes(computation, own, constant, raise, group);
    const made = kernelOf(new Name("local", name), computation, nest, body, held, deal, printer);
    return resident === undefined ? made : { ...made, beside: Math.max(1, Math.floor((resident * QUARTERS) / warps)) };
  };
  // The preparation kernel takes constants as pointers.
  const prepare = nest.prepare.length > 0 ? [kernel("prepare_kernel", nest.prepare, [])] : [];
  // Equal phases share one kernel.
  const known = new Map<string, CudaKernel>();
  const rounds = roundsOf(nest.body).map(({ phases, times }) => ({
    times,
    kernels: phases.map((phase) => {
      const text = JSON.stringify(phase);
      const found = known.get(text) ?? kernel(`phase_${known.size}`, phase, constants);
      known.set(text, found);
      return found;
    }),
  }));
  const run = [...known.values()];
  return cudaProgram(computation, nest, {
    comments: [...comments, ...notes.lines],
    folds: foldFunctions(group, FOLDS),
    aligned,
    constants,
    prepare,
    run,
    rounds,
  });
}

/** How blocks are divided: into warps, and these into groups of lanes that run an array each. */
interface Deal {
  readonly warps: number;
  readonly group: number;
  readonly groups: number;
}

function kernelOf(
  name: Name,
  computation: Computation,
  nest: LoopNest,
  body: readonly Statement[],
  constants: readonly Tensor[],
  { warps, group, groups }: Deal,
  printer: CudaLanes,
): CudaKernel {
  const { dealt, inner, extents } = dealtLoops(body);
  const lines = printStatements(inner, printer, extents);
  const named = namedIn(inner, nest);
  const lanes = [...new Set(laneLoops(body).map((l) => l.axis))].map(
    (lane) => code`const int ${axisName(lane)} = threadIdx.x % ${group};`,
  );
  const ofWarp = nest.scratch
    .filter((s) => s.scope === "local" && named.memory.has(s.name))
    .flatMap((s) => {
      const own = tensorName(s.name);
      const all = tensorName(s.name).with("_of_warp");
      return [
        code`__shared__ ${C_TYPES[s.dtype]} ${all}[${groups}][${s.elements}];`,
        code`${C_TYPES[s.dtype]}* const ${own} = ${all}[threadIdx.x / ${group}];`,
      ];
    });
  const total = stepsOf(dealt);
  return {
    name,
    blocks: Math.ceil(total / groups),
    cluster: 1,
    threads: warps * WARP,
    sharedBytes: 0,
    pointers: pointersOf(computation, nest, named).filter(
      (p) => !constants.some((t) => tensorName(t.name).id === p.name.id),
    ),
    body: [
      code`const int warp_index = blockIdx.x * ${groups} + threadIdx.x / ${group};`,
      code`if (warp_index >= ${total}) return;`,
      ...dealtIndices(dealt, code`warp_index`).map((d) => d.line),
      ...lanes,
      ...ofWarp,
      ...printer.declarations(named),
      ...lines,
    ],
  };
}

/** @throws UsageError if lanes or memory do not fit */
function checkLanes(nest: LoopNest, { warps, group, groups }: Deal): void {
  if (!Number.isInteger(groups) || group < 1 || WARP % group !== 0)
    throw new UsageError(`a warp of ${WARP} lanes is not divided into groups of ${group}`);
  const wide = lanesIn(nest).find(({ lanes }) => lanes > group);
  if (wide)
    throw new UsageError(`${wide.name} has ${wide.lanes} lanes: a warp of CUDA has ${WARP}`, {
      hint: `give the design at most ${WARP} lanes, for example --lanes ${WARP}`,
    });
  const ofWarp = nest.scratch.filter((s) => s.scope === "local");
  const bytes = groups * ofWarp.reduce((sum, s) => sum + s.elements * bytesOf(s.dtype), 0);
  if (bytes > STATIC_SHARED_BYTES)
    throw new UsageError(`${warps} warps want ${bytes} bytes of shared memory, a block has ${STATIC_SHARED_BYTES}`, {
      hint: "take fewer warps a block, or smaller tiles",
    });
}

/** Constants that fit into constant memory and that all lanes read at the same address. */
function constantTensors(nest: LoopNest, tensors: readonly Tensor[]): readonly Tensor[] {
  let left = CONSTANT_BYTES;
  return tensors.filter((t) => {
    const size = memoryElements(t) * bytesOf(t.dtype);
    if (!t.constant || size > left || readByLane(nest, t.name)) return false;
    left -= size;
    return true;
  });
}

const FOLDS: FoldSyntax = {
  types: [{ suffix: "", type: code`T` }],
  head: (name) => code`template <class T> static __device__ inline T ${name}(T v)`,
  exchange: code`__shfl_xor_sync(${ALL_LANES}, v, distance)`,
};

function lanesIn(nest: LoopNest): { readonly name: string; readonly lanes: number }[] {
  const all = laneLoops([...nest.prepare, ...nest.body]);
  return [...(nest.vectors ?? []), ...all.map((l) => ({ name: `the loop ${l.axis}`, lanes: l.extent }))];
}

/** Whether lanes read different elements of a tensor at once, which constant memory serialises. */
function readByLane(nest: LoopNest, tensor: string): boolean {
  return laneLoops(nest.body).some((l) =>
    equationsIn(l.body).some(({ value }) =>
      accessesIn(value).some((a) => a.tensor === tensor && a.index.some((e) => axesIn(e).includes(l.axis))),
    ),
  );
}
