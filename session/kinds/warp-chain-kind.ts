/**
 * @file Programs whose equations share their rows, on the threads of a GPU: in the shape that the model expects to be fastest, which a network takes
 * without a search, and in others.
 *
 *     WARP_CHAIN_KIND.usual?.(softmax, nvidiaTarget("h100"), {}).source
 */

import type { WarpChainCandidate } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { UsageError } from "../../abstraction/error.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { Target } from "../../abstraction/machine.ts";
import { type RowChain, rowChainOf } from "../../abstraction/row-chain.ts";
import { generateCuda } from "../../codegen/cuda/cuda.ts";
import { THREAD } from "../../intrinsics/thread.ts";
import { lowerChainThreads } from "../../mapper/lower/chain-threads.ts";
import { type ChainShape, chainShapes, shapeOf, WARP_CHAIN } from "../../mapper/schedule/chain-shape.ts";
import { gridLimits } from "../../mapper/schedule/grid-context.ts";
import { problemIn } from "../../mapper/schedule/schedules.ts";
import { chainSeconds } from "../../perfmodel/row-chains.ts";
import { unboundedIn } from "../../runtime/reference/reference-of-parts.ts";
import { isGpu } from "../../targets/index.ts";
import { NVIDIA_TARGETS } from "../../targets/nvidia.ts";
import { learntFactor, predictionOf } from "../tune/learner.ts";
import { MADE_BY } from "../version.ts";
import { listedSpaceOf } from "./in-loops.ts";
import type { InStream, SessionKind } from "./session-space.ts";

/** All shapes, the one that is expected to be fastest first. */
function rankedShapes(chain: RowChain, machine: Target): { readonly shape: ChainShape; readonly seconds: number }[] {
  return chainShapes(chain, gridLimits(machine))
    .map((shape) => ({ shape, seconds: chainSeconds(chain, shape, machine) }))
    .sort((a, b) => a.seconds - b.seconds);
}

const chainedOn = (machine: Target, { chained = false }: InStream): InStream => ({
  chained: chained && gridLimits(machine).dependentLaunch,
});

/** The kernel in a given shape. */
export function chainInShape(chain: RowChain, shape: ChainShape, { chained = false }: InStream = {}): Kernel {
  const { together, lanes, columnWarps, rowWarps, pieces } = shape;
  return generateCuda(chain.computation, THREAD, lowerChainThreads(chain, shape), {
    lines: [
      `schedule  ${pieces} times ${together} columns each   lanes ${lanes}   warps of a row ${columnWarps}, of rows ${rowWarps}`,
      MADE_BY,
    ],
    chained,
  });
}

const NO_BLOCK = "no block holds a row in registers";

/** Shapes that a search begins with, of those that the model expects to be fast. */
const PROMISING = 16;

interface Shaped {
  readonly chain: RowChain;
  readonly shape: ChainShape;
  readonly machine: Target;
}

/** @throws UsageError for a program that is none of rows, or a schedule that fits no GPU */
function shaped(computation: Computation, { schedule }: WarpChainCandidate, machine: Target | undefined): Shaped {
  const chain = rowChainOf(computation);
  if ("because" in chain) throw new UsageError(`${computation.name} has no rows: ${chain.because}`);
  let because = "";
  for (const one of machine && isGpu(machine) ? [machine] : NVIDIA_TARGETS) {
    const problem = problemIn(WARP_CHAIN, { chain, limits: gridLimits(one) }, schedule);
    if (problem === undefined) return { chain, shape: shapeOf(chain, schedule), machine: one };
    because = `${problem} (on ${one.name})`;
  }
  throw new UsageError(`the schedule does not fit ${computation.name}: ${because}`);
}

/** Rows that threads of a GPU share: a candidate for each shape. */
export const WARP_CHAIN_KIND: SessionKind<WarpChainCandidate> = {
  kind: "warp-chain",
  family: "loops",
  ofPrograms: true,
  isFor: (_, machine) => isGpu(machine),
  *spaceOf({ computation, machine }) {
    const chain = rowChainOf(computation);
    const because = "because" in chain ? chain.because : unboundedIn(computation);
    if ("because" in chain || because !== undefined) return [{ rule: "rows", because: `no rows: ${because}` }];
    const ranked = rankedShapes(chain, machine).map(({ shape: { pieces: _, ...schedule }, seconds }) => ({
      candidate: { kind: "warp-chain", intrinsic: THREAD.name, schedule } satisfies WarpChainCandidate,
      seconds,
    }));
    const all: readonly WarpChainCandidate[] = ranked.map(({ candidate }) => candidate);
    if (all.length === 0) return [{ rule: "rows", because: NO_BLOCK }];
    return {
      kind: "warp-chain",
      space: { ...listedSpaceOf(all), representatives: all.slice(0, 1), promising: all.slice(0, PROMISING) },
      intrinsics: [THREAD],
      model: learntFactor(({ schedule }) => chainSeconds(chain, shapeOf(chain, schedule), machine)),
      kernelOf: (c) => chainInShape(chain, shapeOf(chain, c.schedule)),
    };
  },
  kernelOf: (computation, candidate, given, inStream) => {
    const { chain, shape, machine } = shaped(computation, candidate, given);
    return chainInShape(chain, shape, chainedOn(machine, inStream));
  },
  usual: (computation, machine, inStream) => {
    const chain = rowChainOf(computation);
    const [best] = "because" in chain ? [] : rankedShapes(chain, machine);
    if ("because" in chain || !best)
      throw new UsageError(`${computation.name} has no rows: ${"because" in chain ? chain.because : NO_BLOCK}`);
    return chainInShape(chain, best.shape, chainedOn(machine, inStream));
  },
  predict: (computation, candidate, { machine }) => {
    const { chain, shape } = shaped(computation, candidate, machine);
    return predictionOf(chainSeconds(chain, shape, machine));
  },
};
