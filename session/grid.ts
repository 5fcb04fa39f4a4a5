/**
 * @file A search on a GPU: the space of blocks and warps of a computation, its model, and a runner put together.
 *
 *     const found = gridSession(conv2d, nvidiaTarget("h100"), { seed: 1 });
 *     if ("space" in found) await searchOnDevice(found, runner, { seconds: 30, seed: 1 });
 */

import type { GridCandidate } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import type { Inputs } from "../abstraction/interpret.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import type { Target } from "../abstraction/machine.ts";
import { printMatching, type Refusal } from "../abstraction/mapping.ts";
import type { Measurement, Prediction } from "../abstraction/trial.ts";
import { generateCuda } from "../codegen/cuda.ts";
import { INTRINSICS } from "../intrinsics/index.ts";
import { lowerGrid } from "../mapper/lower/grid.ts";
import { printGridSchedule } from "../mapper/schedule/grid.ts";
import { gridLimits } from "../mapper/schedule/grid-context.ts";
import { type Correction, fit as fitCorrection } from "../perfmodel/correct.ts";
import { gridCosts, predictGrid } from "../perfmodel/grid.ts";
import type { CudaRunner } from "../runtime/run/cuda.ts";
import { type GridSpace, gridSpace } from "../tuner/grid-candidates.ts";
import { STRATEGIES } from "../tuner/strategies.ts";
import type { Strategy } from "../tuner/strategy.ts";
import { finalistsOf, type TrialOf } from "../tuner/trials.ts";
import { type TuneEvent, type TuneStatus, tune } from "../tuner/tune.ts";
import { VERSION } from "./version.ts";

/** Everything that can be tried for a computation on a GPU. */
export interface GridSession {
  readonly computation: Computation;
  readonly space: GridSpace;
  readonly predict: (candidate: GridCandidate) => Prediction | undefined;
  readonly learn: (trials: readonly TrialOf<GridCandidate>[]) => void;
  readonly kernelOf: (candidate: GridCandidate) => Kernel;
}

export interface GridSessionOptions {
  /** By default all instructions of a warp that the target has. */
  readonly intrinsics?: readonly Intrinsic[];
  readonly seed: number;
}

/** The instructions of a warp that a GPU has and that blocks and warps can share. */
export function warpIntrinsics(target: Target): Intrinsic[] {
  return INTRINSICS.filter((i) => i.language === "cuda" && i.scope === "warp" && target.isa.includes(i.isa));
}

/** The session of a computation; or why nothing maps, most hopeful first. */
export function gridSession(
  computation: Computation,
  target: Target,
  { intrinsics = warpIntrinsics(target), seed }: GridSessionOptions,
): GridSession | readonly Refusal[] {
  const limits = gridLimits(target);
  const space = gridSpace(computation, intrinsics, limits, (c, s) => predictGrid(c, s, target)?.seconds, seed);
  if (!("ranked" in space)) return space;
  let correction: Correction | undefined;
  return {
    computation,
    space,
    predict: (candidate) => predictGrid(space.contextOf(candidate), candidate.schedule, target, correction),
    learn: (trials) => {
      correction = fitCorrection(
        trials.flatMap(({ candidate, measurement }) => {
          if (measurement.status !== "ok") return [];
          const costs = gridCosts(space.contextOf(candidate), candidate.schedule, target);
          return costs ? [{ costs, measuredSeconds: measurement.median }] : [];
        }),
      );
    },
    kernelOf: (candidate) => {
      const context = space.contextOf(candidate);
      const notes = [
        `mapping   ${printMatching(candidate.matching)}   waste ${(100 * context.mapping.waste).toFixed(1)} %`,
        `schedule  ${printGridSchedule(candidate.schedule)}`,
        `made by   automap ${VERSION}`,
      ];
      return generateCuda(computation, context.intrinsic, lowerGrid(context, candidate.schedule), { lines: notes });
    },
  };
}

export interface DeviceSearchOptions {
  readonly seconds?: number;
  readonly trials?: number;
  readonly seed: number;
  readonly strategy?: Strategy;
  /** Values of tensors the operator itself fixes. */
  readonly fixed?: Inputs;
  /** Candidates compiled side by side and measured in one process. */
  readonly batch?: number;
  readonly signal?: AbortSignal;
  readonly onEvent?: (event: TuneEvent<GridCandidate>) => void;
}

export interface DeviceSearch {
  readonly status: TuneStatus;
  readonly trials: readonly TrialOf<GridCandidate>[];
  /** Those that tie with the fastest when measured side by side, the winner first; none when every candidate failed. */
  readonly finalists: readonly TrialOf<GridCandidate>[];
}

/** As many as compile at once on the machines with a GPU that we know. */
const BATCH = 16;

/** Searches on the device of a runner. */
export async function searchOnDevice(
  session: GridSession,
  runner: CudaRunner,
  options: DeviceSearchOptions,
): Promise<DeviceSearch> {
  const { computation, space, kernelOf } = session;
  const { seconds, trials, seed, strategy = STRATEGIES[0], fixed, batch = BATCH } = options;
  if (!strategy) throw new Error("internal: no strategies");
  const reference = await runner.reference(computation, seed, fixed ? { fixed } : {});
  const measure = (candidates: readonly GridCandidate[]): Promise<readonly Measurement[]> =>
    runner.measureTogether(candidates.map(kernelOf), reference);
  const result = await tune<GridCandidate>({
    space,
    strategy,
    seed,
    batch,
    measure,
    budget: { ...(seconds && { seconds }), ...(trials && { trials }) },
    store: { known: () => undefined, record: () => undefined, recorded: () => [] },
    now: Date.now,
    predict: session.predict,
    learn: session.learn,
    ...(options.signal && { signal: options.signal }),
    ...(options.onEvent && { onEvent: options.onEvent }),
  });
  // Contenders side by side, in batches taken in turns.
  const again = await runner.measureTogether(
    result.contenders.map((t) => kernelOf(t.candidate)),
    reference,
    FINAL,
  );
  const judged = result.contenders.map(
    (t, i): TrialOf<GridCandidate> => ({ ...t, measurement: again[i] ?? t.measurement }),
  );
  return { status: result.status, trials: result.trials, finalists: finalistsOf(judged) };
}

/** Finals take longer than trials. */
const FINAL = { budgetSeconds: 0.2, batches: [20, 400] } as const;
