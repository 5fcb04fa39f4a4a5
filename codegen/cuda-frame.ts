/**
 * @file What stands around lanes in CUDA: kernels and their launches behind the interface of abstraction/kernel.ts.
 *
 *     __global__ void __launch_bounds__(128) phase_0(float* __restrict__ out, const float* __restrict__ x) {
 *       const int warp_index = blockIdx.x * 4 + threadIdx.x / 32;
 *
 * Parallel loops around everything are dealt to warps. Constants that all lanes read alike lie in constant memory.
 */

import { type Computation, memoryElements, outputOf, type Tensor } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { UsageError } from "../abstraction/error.ts";
import { accessesIn, axesIn } from "../abstraction/expression.ts";
import { C_TYPES } from "../abstraction/kernel.ts";
import type { LoopNest, Scratch, Statement } from "../abstraction/loop-nest.ts";
import { WARP } from "../abstraction/register.ts";
import {
  apart,
  axisName,
  type Code,
  code,
  indented,
  lines as linesOf,
  list,
  type Name,
  NOTHING,
  namesIn,
  type SourceText,
  skeleton,
  tensorName,
} from "../abstraction/source-text.ts";
import { spell } from "../abstraction/spelling.ts";
import { headOf, type SourceNotes, workspaceOf } from "./cpp-frame.ts";
import { helpersFor } from "./cpp-helpers.ts";
import { dealtLoops, equationsIn, guarded, laneLoops } from "./lane-statement.ts";
import { ALL_LANES, CudaLanes } from "./lanes-cuda.ts";
import { phasesOf, printStatements } from "./walk.ts";

export interface CudaOptions {
  /** Warps of a block; 4 when left out. */
  readonly warps?: number;
}

/** Constant memory a kernel may take: 64 KiB of it exist. */
const CONSTANT_BYTES = 48 * 1024;
/** Shared memory of a block without asking for more. */
const SHARED_BYTES = 48 * 1024;

/** @throws UsageError when a vector has more lanes than a warp, or a block's scratch does not fit into shared memory */
export function cudaSource(
  computation: Computation,
  nest: LoopNest,
  notes: SourceNotes,
  comments: readonly string[],
  { warps = 4 }: CudaOptions,
): SourceText {
  const shared = sharedBuffers(nest, warps);
  const tensors = Object.values(computation.tensors);
  const constants = constantTensors(nest, tensors);
  const workspace = workspaceOf(nest);
  const world: World = { warps, tensors, output: outputOf(computation).name, buffers: workspace.buffers, shared };

  // 1. One kernel a phase; what prepares is given constants as pointers.
  const preparing = new CudaLanes(computation, nest, new Set());
  const running = new CudaLanes(computation, nest, constants);
  const prepare = nest.prepare.length > 0 ? [kernelOf(code`prepare_kernel`, nest.prepare, preparing, world)] : [];
  const phases = phasesOf(nest.body).map((phase, i) => kernelOf(code`phase_${i}`, phase, running, world));
  const kernels = [...prepare, ...phases].map((k) => k.text);

  // 2. Constants are symbols in a namespace of their own: the headers of CUDA have functions called j0 and index.
  const symbols = tensors.filter((t) => constants.has(t.name));
  const declared = symbols.map(
    (t) => code`static __constant__ ${C_TYPES[t.dtype]} ${tensorName(t.name)}[${memoryElements(t)}];`,
  );
  const copies = symbols.flatMap((t) => {
    const size = memoryElements(t) * bytesOf(t.dtype);
    return [
      code`error = cudaMemcpyToSymbolAsync(constants::${tensorName(t.name)}, tensors[${tensors.indexOf(t)}], ${size}, 0, cudaMemcpyDefault, stream);`,
      code`if (error != cudaSuccess) return error;`,
    ];
  });

  // 3. The interface of abstraction/kernel.ts around them.
  const text = linesOf([
    headOf(computation, [...comments, ...notes.lines]),
    code`#include <stdint.h>`,
    code`#include <string.h>`,
    ...helpersFor(kernels, "static __device__ inline"),
    ...FOLDS.filter(({ name }) => skeleton(kernels).includes(`${name}<`)).map((f) => apart(f.text)),
    NOTHING,
    ...(declared.length > 0 ? [code`namespace constants {`, ...declared, code`}`, NOTHING] : []),
    ...kernels,
    code`extern "C" unsigned long automap_workspace_bytes(void) { return ${workspace.bytes}; }`,
    NOTHING,
    code`extern "C" int automap_prepare(void* workspace, const void* const* tensors, cudaStream_t stream) {`,
    code`  cudaError_t error = cudaMemsetAsync(workspace, 0, automap_workspace_bytes(), stream);`,
    code`  if (error != cudaSuccess) return error;`,
    ...indented([...copies, ...prepare.flatMap((k) => k.launch)]),
    code`  return cudaSuccess;`,
    code`}`,
    NOTHING,
    code`extern "C" int automap_launch(void* workspace, void* const* tensors, cudaStream_t stream) {`,
    code`  cudaError_t error = cudaSuccess;`,
    ...(workspace.buffers.length === 0 ? [code`  (void)workspace;`] : []),
    ...indented(phases.flatMap((k) => k.launch)),
    code`  return cudaSuccess;`,
    code`}`,
    NOTHING,
  ]);
  return spell(text, "cuda");
}

/** What all kernels of a source have in common. */
interface World {
  readonly warps: number;
  readonly tensors: readonly Tensor[];
  readonly output: string;
  /** In the workspace. */
  readonly buffers: ReturnType<typeof workspaceOf>["buffers"];
  /** Scratch that a warp has to itself. */
  readonly shared: readonly Scratch[];
}

/** A kernel, and the lines of a host that start it. */
interface CudaKernel {
  readonly text: Code;
  readonly launch: readonly Code[];
}

function kernelOf(name: Code, body: readonly Statement[], printer: CudaLanes, world: World): CudaKernel {
  const { warps, tensors, shared } = world;
  const { dealt, inner, extents } = dealtLoops(body);
  const lines = printStatements(inner, printer, extents);
  const mentioned = namesIn(lines);
  const used = (word: Name): boolean => mentioned.has(word.id);
  const pointers: Pointer[] = [
    ...tensors
      .filter((t) => !printer.isConstant(t.name) && used(tensorName(t.name)))
      .map((t) => {
        const type = code`${t.name === world.output ? "" : "const "}${C_TYPES[t.dtype]}*`;
        return { name: tensorName(t.name), type, restrict: true, from: code`tensors[${tensors.indexOf(t)}]` };
      }),
    ...world.buffers
      .filter((b) => used(b.name))
      .map(({ name: buffer, dtype, offset }) => ({
        name: buffer,
        type: code`${C_TYPES[dtype]}*`,
        restrict: false,
        from: code`((char*)workspace + ${offset})`,
      })),
  ];
  const total = dealt.reduce((product, d) => product * d.extent, 1);
  const indices = dealt.map((d, i) => {
    const below = dealt.slice(i + 1).reduce((product, x) => product * x.extent, 1);
    const whole = below === 1 ? code`warp_index` : code`warp_index / ${below}`;
    return code`const int ${axisName(d.axis)} = ${i === 0 ? whole : code`${whole} % ${d.extent}`};`;
  });
  const lanes = [...new Set(laneLoops(body).map((l) => l.axis))].map(
    (lane) => code`const int ${axisName(lane)} = threadIdx.x % ${WARP};`,
  );
  const ofWarp = shared
    .filter((s) => used(tensorName(s.name)))
    .flatMap((s) => {
      const [own, all] = [tensorName(s.name), tensorName(s.name).with("_of_warp")];
      return [
        code`__shared__ ${C_TYPES[s.dtype]} ${all}[${warps}][${s.elements}];`,
        code`${C_TYPES[s.dtype]}* const ${own} = ${all}[threadIdx.x / ${WARP}];`,
      ];
    });
  const parameters = list(pointers.map((p) => code`${p.type}${p.restrict ? " __restrict__ " : " "}${p.name}`));
  const text = linesOf([
    code`__global__ void __launch_bounds__(${warps * WARP}) ${name}(${parameters}) {`,
    code`  const int warp_index = blockIdx.x * ${warps} + threadIdx.x / ${WARP};`,
    code`  if (warp_index >= ${total}) return;`,
    ...indented([...indices, ...lanes, ...ofWarp, ...printer.declarations(lines), ...lines]),
    code`}`,
    NOTHING,
  ]);
  return { text, launch: launchOf(name, pointers, Math.ceil(total / warps), warps) };
}

/** A pointer that a kernel takes, and where the host has it from. */
interface Pointer {
  readonly name: Name;
  readonly type: Code;
  readonly restrict: boolean;
  readonly from: Code;
}

function launchOf(kernel: Code, pointers: readonly Pointer[], blocks: number, warps: number): Code[] {
  const given = pointers.length === 0 ? code`nullptr` : list(pointers.map(({ name }) => code`(void*)&${name}`));
  const lines = [
    ...pointers.map(({ name, type, from }) => code`${type} ${name} = (${type})${from};`),
    code`void* arguments[] = {${given}};`,
    code`error = cudaLaunchKernel(${kernel}, dim3(${blocks}), dim3(${warps * WARP}), arguments, 0, stream);`,
    code`if (error != cudaSuccess) return error;`,
  ];
  return guarded([], lines, true);
}

/** Scratch that a warp has to itself. @throws UsageError when lanes or memory do not fit */
function sharedBuffers(nest: LoopNest, warps: number): readonly Scratch[] {
  const wide = lanesIn(nest).find(({ lanes }) => lanes > WARP);
  if (wide)
    throw new UsageError(`${wide.name} has ${wide.lanes} lanes: a warp of CUDA has ${WARP}`, {
      hint: `give the design at most ${WARP} lanes, for example --lanes ${WARP}`,
    });
  const shared = nest.scratch.filter((s) => s.scope === "local");
  const bytes = warps * shared.reduce((sum, s) => sum + s.elements * bytesOf(s.dtype), 0);
  if (bytes > SHARED_BYTES)
    throw new UsageError(`${warps} warps want ${bytes} bytes of shared memory, a block has ${SHARED_BYTES}`, {
      hint: "take fewer warps a block, or smaller tiles",
    });
  return shared;
}

/** Constants that fit into constant memory and that all lanes read alike. */
function constantTensors(nest: LoopNest, tensors: readonly Tensor[]): ReadonlySet<string> {
  let left = CONSTANT_BYTES;
  const chosen = new Set<string>();
  for (const t of tensors) {
    const size = memoryElements(t) * bytesOf(t.dtype);
    if (!t.constant || size > left || readByLane(nest, t.name)) continue;
    chosen.add(t.name);
    left -= size;
  }
  return chosen;
}

const FOLDS: readonly { readonly name: string; readonly text: Code }[] = [
  { name: "sum_of_lanes", text: fold(code`sum_of_lanes`, code`v += other;`) },
  { name: "most_of_lanes", text: fold(code`most_of_lanes`, code`v = other > v || other != other ? other : v;`) },
  { name: "least_of_lanes", text: fold(code`least_of_lanes`, code`v = other < v || other != other ? other : v;`) },
];

function fold(name: Code, step: Code): Code {
  return code`template <class T> static __device__ inline T ${name}(T v) {
  for (int distance = ${WARP / 2}; distance > 0; distance /= 2) {
    const T other = __shfl_xor_sync(${ALL_LANES}, v, distance);
    ${step}
  }
  return v;
}`;
}

function lanesIn(nest: LoopNest): { readonly name: string; readonly lanes: number }[] {
  const all = laneLoops([...nest.prepare, ...nest.body]);
  return [...(nest.vectors ?? []), ...all.map((l) => ({ name: `the loop ${l.axis}`, lanes: l.extent }))];
}

/** Whether lanes read different elements of a tensor at once, which constant memory serves one after another. */
function readByLane(nest: LoopNest, tensor: string): boolean {
  return laneLoops(nest.body).some((l) =>
    equationsIn(l.body).some(({ value }) =>
      accessesIn(value).some((a) => a.tensor === tensor && a.index.some((e) => axesIn(e).includes(l.axis))),
    ),
  );
}
