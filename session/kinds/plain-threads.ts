/**
 * @file GPU kernels for computations that no instruction maps. Each thread evaluates the equation directly for several neighbouring elements,
 * with reads and writes of up to 16 bytes; lanes and warps share long sums.
 *
 *     threadsKernel(pooling, nvidiaTarget("h100")).source       y[n,c,p,q] max= f32(x[n,c,p*2+r-1,q*2+s-1]) in CUDA
 *
 * The schedule is drawn at random several times; the model of threads picks the one it predicts to be fastest.
 */

import type { ThreadSchedule } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { UsageError } from "../../abstraction/error.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { Target } from "../../abstraction/machine.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { THREAD } from "../../intrinsics/thread.ts";
import { gridLimits } from "../../mapper/schedule/grid-context.ts";
import { drawSchedule, problemIn } from "../../mapper/schedule/schedules.ts";
import { plainContext, type ThreadContext } from "../../mapper/schedule/thread/context.ts";
import { THREAD_KIND } from "../../mapper/schedule/thread/schedule.ts";
import { predictThreads } from "../../perfmodel/threads.ts";
import { type GpuChoice, generateOnGpu } from "./gpu-kinds.ts";
import type { InStream } from "./session-space.ts";

const DRAWS = 300;
const SEED = 1;

/** @param machine a GPU @throws UsageError that says why threads cannot share the computation */
export function threadsKernel(computation: Computation, machine: Target, inStream: InStream = {}): Kernel {
  return generateOnGpu(threadsChoice(computation, machine), inStream);
}

/** The choice that {@link threadsKernel} lowers. */
export function threadsChoice(computation: Computation, machine: Target): Extract<GpuChoice, { kind: "threads" }> {
  const context = plainContext(computation, THREAD, gridLimits(machine));
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
