/**
 * @file The levels of a CUDA kernel: which loops of a nest count its blocks and the warps of a block, and whether one
 * thread has a separate role; and the kernel around what stands inside them.
 *
 *     for at block m_tile in 0..32                 32 blocks
 *       for at warpgroup m_warpgroup in 0..2         threads 0 to 255
 *         ...
 *       for at thread load in 0..1                   thread 256, in an additional warp
 *         ...
 *
 *     for parallel p in 0..100                     steps dealt to the warps of all blocks: 25 blocks of 4
 */

import type { Extents } from "../../abstraction/affine.ts";
import { present } from "../../abstraction/collections.ts";
import { internal, UsageError } from "../../abstraction/error.ts";
import { WARP } from "../../abstraction/intrinsic.ts";
import {
  dealOf,
  isGridMode,
  isTeamMode,
  type LoopMode,
  type LoopNest,
  type Statement,
} from "../../abstraction/loop-nest.ts";
import { type Code, code, Name, namesIn } from "../../abstraction/source-text.ts";
import { MOST_THREADS, QUARTERS } from "../../targets/nvidia-gpu.ts";
import { dealtIndices, dealtLoops, laneLoops } from "../lane-printer.ts";
import { extentsIn, type LanguagePrinter, type Loop, type Named, namedIn, printStatements, stepsOf } from "../walk.ts";
import type { WarpExpressions } from "../warp-expressions.ts";
import { ownAxis } from "./cuda-expressions.ts";
import { type CudaKernel, type LaunchShape, pointersOf, sharedMemory, type Teams } from "./cuda-program.ts";
import { LANE } from "./fragment.ts";

/** The number of a thread in its block. */
export const THREAD = ownAxis("thread");
const INDEX = new Name("local", "warp_index");

export interface Levels extends LaunchShape, Teams {
  /** Loops whose counters follow from the number of the block or the thread. */
  readonly counted: readonly { readonly loops: readonly Loop[]; readonly from: Code }[];
  /** Axes of lanes and threads, and their values. */
  readonly numbered: readonly (readonly [axis: string, value: Code])[];
  /** The first lines of the kernel. */
  readonly begun: readonly Code[];
  /** What each team runs. */
  readonly inner: readonly Statement[];
}

/** The levels of a statement whose outermost loops are at block and at warp. */
export function gridOf(statement: Statement): Levels {
  const { loops: blocks, body } = chainOf([statement], isGridMode);
  const { warps, alone, inner } = rolesOf(body);
  const team = warps[0]?.mode === "warpgroup" ? 4 * WARP : WARP;
  const inTeams = team * stepsOf(warps);
  const threads = inTeams + WARP * alone;
  // The remainder tells the compiler that the number is not negative.
  const thread = code`threadIdx.x % ${2 ** Math.ceil(Math.log2(threads))}`;
  return {
    blocks: stepsOf(blocks),
    cluster: stepsOf(blocks.filter((l) => l.mode === "cluster")),
    team,
    inTeams,
    threads,
    counted: [
      { loops: blocks, from: code`blockIdx.x` },
      { loops: warps, from: code`threadIdx.x / ${team}` },
    ],
    numbered: [
      [THREAD, thread],
      [LANE, code`threadIdx.x % ${team}`],
    ],
    begun: [],
    inner,
  };
}

/** The levels of a phase whose outermost parallel loops are dealt to the warps of all blocks, or to equal parts of them. */
export function dealtGrid(phase: readonly Statement[], nest: LoopNest): Levels {
  const { warps, lanes: team, resident } = dealOf(nest);
  const { dealt, inner } = dealtLoops(phase);
  const threads = warps * WARP;
  const teams = threads / team;
  const steps = stepsOf(dealt);
  const axes = [...new Set(laneLoops(phase).map((l) => l.axis))];
  return {
    blocks: Math.ceil(steps / teams),
    cluster: 1,
    beside: resident === undefined ? undefined : Math.max(1, Math.floor((resident * QUARTERS) / warps)),
    team,
    inTeams: threads,
    threads,
    counted: [{ loops: dealt, from: code`${INDEX}` }],
    numbered: axes.map((axis) => [axis, code`threadIdx.x % ${team}`] as const),
    begun: [
      code`const int ${INDEX} = blockIdx.x * ${teams} + threadIdx.x / ${team};`,
      code`if (${INDEX} >= ${steps}) return;`,
    ],
    inner,
  };
}

/** Loops over the warps of a block and the body of each, or the roles of warps and of a single thread. */
function rolesOf(body: readonly Statement[]): {
  readonly warps: readonly Loop[];
  /** Threads with a separate role. */
  readonly alone: number;
  readonly inner: readonly Statement[];
} {
  const threads = body.filter((s): s is Loop => s.kind === "loop" && s.mode === "thread");
  if (threads.length === 0) {
    const { loops: warps, body: inner } = chainOf(body, isTeamMode);
    return { warps, alone: 0, inner };
  }
  const teams = body.find((s): s is Loop => s.kind === "loop" && isTeamMode(s.mode));
  if (!teams || stepsOf(threads) > 1) internal("one thread has a role of its own, beside warps");
  return { warps: teamsOf(teams).loops, alone: 1, inner: body };
}

/** Perfectly nested loops of some modes, and the body of the innermost. */
function chainOf(
  body: readonly Statement[],
  isOne: (mode: LoopMode) => boolean,
): { readonly loops: readonly Loop[]; readonly body: readonly Statement[] } {
  const [only] = body;
  if (body.length !== 1 || only?.kind !== "loop" || !isOne(only.mode)) return { loops: [], body };
  const inner = chainOf(only.body, isOne);
  return { ...inner, loops: [only, ...inner.loops] };
}

/** Perfectly nested loops over the warps of a block, and the body of each warp. */
export const teamsOf = (loop: Loop): ReturnType<typeof chainOf> => chainOf([loop], isTeamMode);

// ---- kernels ----------------------------------------------------------------------------------------------------------------------

/** A declaration, and the name that it declares. */
export interface Declared {
  readonly name: Name;
  readonly line: Code;
}

/** What prints the statements inside the levels of a kernel. */
export interface KernelWriter extends LanguagePrinter {
  readonly c: WarpExpressions;
  declarations(named: Named): Code[];
}

/** Whether a kernel is launched while the preceding one runs, and whether the next one is launched while it runs. */
export interface Overlap {
  readonly early?: boolean;
  readonly next?: boolean;
}

/** The extents of axes that are the same throughout a kernel. */
export const fixedIn = ({ counted, team, threads }: Levels): Extents => ({
  ...extentsIn(counted.flatMap((c) => c.loops)),
  [LANE]: team,
  [THREAD]: threads,
});

/**
 * The kernel around what its teams run.
 * @param hoisted constants above the loops, known once the statements are printed
 * @throws UsageError if a block has too many threads, or too little shared memory
 */
export function kernelOf(
  name: Name,
  levels: Levels,
  writer: KernelWriter,
  { early = false, next = false }: Overlap = {},
  hoisted: () => readonly Declared[] = () => [],
): CudaKernel {
  const { blocks, cluster, threads, beside, begun, inner } = levels;
  const { computation, constants, nest } = writer.c;
  if (threads > MOST_THREADS)
    throw new UsageError(`a block of ${threads} threads: CUDA has at most ${MOST_THREADS}`, "take fewer warps a block");
  const lines = printStatements(inner, writer, fixedIn(levels));
  const names = namesIn(lines);
  const held = mentionedIn(names, hoisted());
  const named = namedIn(inner, nest);
  const shared = sharedMemory(nest, named, levels);
  const indices = mentionedIn(new Set([...names, ...namesIn(held)]), indicesOf(levels, writer.c));
  const memory = new Set([...named.memory].filter((tensor) => !constants.has(tensor)));
  return {
    name,
    pointers: pointersOf(computation, nest, { memory }, early),
    blocks,
    cluster,
    threads,
    beside,
    early,
    sharedBytes: shared.bytes,
    body: present([
      next && code`@begin_next_kernel();`,
      ...begun,
      ...shared.lines,
      ...indices,
      ...writer.declarations(named),
      ...held,
      early && code`@await_kernel_ahead();`,
      ...lines,
    ]),
  };
}

/** Constants that give a thread's position. */
function indicesOf({ counted, numbered }: Levels, c: WarpExpressions): Declared[] {
  const nameOf = (axis: string): Name => c.axis(axis);
  return [
    ...counted.flatMap(({ loops, from }) => dealtIndices(loops, from, c.indexType, nameOf)),
    ...numbered.map(([axis, value]) => ({
      name: nameOf(axis),
      line: code`const ${c.indexType} ${nameOf(axis)} = ${value};`,
    })),
  ];
}

/** The declarations of names that are used, by id. */
function mentionedIn(names: ReadonlySet<string>, all: readonly Declared[]): Code[] {
  return all.filter(({ name }) => names.has(name.id)).map(({ line }) => line);
}
