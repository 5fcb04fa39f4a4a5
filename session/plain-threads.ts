/**
 * @file GPU kernels for computations that no instruction maps. Each thread evaluates the equation directly for several neighbouring elements,
 * with reads and writes of up to 16 bytes; lanes and warps share long sums.
 *
 *     threadsKernel(pooling, nvidiaTarget("h100")).source       y[n,c,p,q] max= f32(x[n,c,p*2+r-1,q*2+s-1]) in CUDA
 *
 * The schedule is drawn at random several times; the model of threads picks the one it predicts to be fastest. Equations that share their rows
 * become one kernel, in the shape that its model predicts to be fastest.
 */

import type { ThreadSchedule } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import { UsageError } from "../abstraction/error.ts";
import { defineIntrinsic } from "../abstraction/intrinsic.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import type { Target } from "../abstraction/machine.ts";
import { seededRandom } from "../abstraction/random.ts";
import type { RowChain } from "../abstraction/row-chain.ts";
import { generateCuda } from "../codegen/cuda.ts";
import { lowerChainThreads } from "../mapper/lower/chain-threads.ts";
import { type ChainShape, chainShapes } from "../mapper/schedule/chain-shape.ts";
import { gridLimits } from "../mapper/schedule/grid-context.ts";
import { drawSchedule, problemIn } from "../mapper/schedule/schedules.ts";
import { plainContext, type ThreadContext } from "../mapper/schedule/thread/context.ts";
import { THREAD_KIND } from "../mapper/schedule/thread/schedule.ts";
import { chainSeconds } from "../perfmodel/row-chains.ts";
import { predictThreads } from "../perfmodel/threads.ts";
import { type GpuChoice, generateOnGpu } from "./gpu-kinds.ts";
import type { InStream } from "./session-space.ts";
import { MADE_BY } from "./version.ts";

/** Stands for a thread's own arithmetic when nothing is mapped. It is no instruction of the table, so searches are never offered it. */
const ANYTHING = defineIntrinsic({
  name: "thread",
  family: "thread",
  isa: "sm_61",
  language: "cuda",
  scope: "thread",
  summary: "One element of anything that an equation says.",
  compute: "c[] = a[]",
  extents: {},
  operands: {
    a: { dtype: "f32", storage: "thread[0]", load: "{reg} = *{ptr};" },
    c: { dtype: "f32", storage: "thread[0]", load: "{reg} = *{ptr};", store: "*{ptr} = {reg};" },
  },
  emit: "{c} = {a};",
  source: "CUDA C++ Programming Guide",
});

const DRAWS = 300;
const SEED = 1;

/** @param machine a GPU @throws UsageError that says why threads cannot share the computation */
export function threadsKernel(computation: Computation, machine: Target, inStream: InStream = {}): Kernel {
  return generateOnGpu(threadsChoice(computation, machine), inStream);
}

/** The choice that {@link threadsKernel} lowers. */
export function threadsChoice(computation: Computation, machine: Target): Extract<GpuChoice, { kind: "threads" }> {
  const context = plainContext(computation, ANYTHING, gridLimits(machine));
  if (typeof context === "string")
    throw new UsageError(`${computation.name} has no kernel for ${machine.name}: ${context}`);
  const schedule = bestOf(context, machine);
  if (schedule) return { kind: "threads", context, schedule };
  const few = fewPoints(context);
  if (!few)
    throw new UsageError(`${computation.name} has no kernel for ${machine.name}: it has no loop to deal to threads`);
  return few;
}

/** With too few points for the lanes of a warp, one loop takes them all and leaves the other lanes idle. */
function fewPoints(context: ThreadContext): ReturnType<typeof threadsChoice> | undefined {
  const longest = context.loops.toSorted((a, b) => b.extent - a.extent)[0];
  if (!longest) return undefined;
  const schedule: ThreadSchedule = { lanes: { [longest.name]: context.limits.lanes }, warps: {}, each: {}, split: 1 };
  const wasteful: ThreadContext = { ...context, wasteful: true };
  return problemIn(THREAD_KIND, wasteful, schedule) === undefined
    ? { kind: "threads", context: wasteful, schedule }
    : undefined;
}

function bestOf(context: ThreadContext, machine: Target): ThreadSchedule | undefined {
  const random = seededRandom(SEED);
  let best: { readonly schedule: ThreadSchedule; readonly seconds: number } | undefined;
  for (let i = 0; i < DRAWS; i++) {
    const schedule = drawSchedule(THREAD_KIND, context, random);
    if (!schedule) break;
    const seconds = predictThreads(context, schedule, machine)?.seconds;
    if (seconds !== undefined && (!best || seconds < best.seconds)) best = { schedule, seconds };
  }
  return best?.schedule;
}

/** The kernel of equations that share their rows; undefined if no block holds a row of theirs in registers. */
export function chainThreadsKernel(
  chain: RowChain,
  machine: Target,
  { chained = false }: InStream = {},
): Kernel | undefined {
  const limits = gridLimits(machine);
  const [best] = chainShapes(chain, limits)
    .map((shape) => ({ shape, seconds: chainSeconds(chain, shape, machine) }))
    .sort((a, b) => a.seconds - b.seconds);
  return best && chainInShape(chain, best.shape, { chained: chained && limits.dependentLaunch });
}

/** The kernel in a given shape. */
export function chainInShape(chain: RowChain, shape: ChainShape, { chained = false }: InStream = {}): Kernel {
  const { together, lanes, columnWarps, rowWarps, pieces } = shape;
  return generateCuda(chain.computation, ANYTHING, lowerChainThreads(chain, shape), {
    lines: [
      `schedule  ${pieces} times ${together} columns each   lanes ${lanes}   warps of a row ${columnWarps}, of rows ${rowWarps}`,
      MADE_BY,
    ],
    chained,
  });
}
