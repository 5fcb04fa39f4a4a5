/**
 * @file The kernels of a case that the model ranks first, in groups, to be measured beside one another: designs of each dataflow and the best windows,
 * steps at each depth, and sweeps whose rows are fetched ahead.
 */

import type { Candidate, WarpWindowSchedule } from "../../abstraction/candidate.ts";
import { type Computation, outputOf } from "../../abstraction/computation.ts";
import type { Target } from "../../abstraction/machine.ts";
import { finished } from "../../abstraction/steps.ts";
import { warpWindowProblem } from "../../mapper/schedule/lanes.ts";
import { placeArray } from "../../mapper/space-time/lane-array.ts";
import { tapsOf } from "../../mapper/space-time/taps.ts";
import { usableIntrinsics } from "../../session/kinds/choose.ts";
import { warpMultiplyAddOf } from "../../session/kinds/design-kinds.ts";
import { warpLanes } from "../../session/kinds/window-kinds.ts";
import { PICKED } from "../../test/support/lane-cases.ts";
import { warpStepSpace, warpWindowSpace } from "../../tuner/lane-candidates.ts";
import type { ListedSpace } from "../../tuner/listed-space.ts";
import { warpArraySpace } from "../../tuner/warp-array-candidates.ts";
import type { GpuCase } from "./gpu-cases.ts";

export interface RankedKernel {
  readonly candidate: Candidate;
  /** A dataflow, or the steps of a pass. */
  readonly group: string;
  readonly expected: number;
}

/** Schedules of the best dataflow, dataflows, and windows. */
const OF_BEST = 4;
const DATAFLOWS = 6;
const WINDOWS = 5;

/** @param each schedules at each depth of steps */
export function rankedKernels({ computation, ranked }: GpuCase, machine: Target, each: number): RankedKernel[] {
  switch (ranked) {
    case undefined:
      return [];
    case "designs":
      return [...transformsOf(computation, machine), ...windowsOf(computation, machine)];
    case "steps":
      return stepsAtDepths(computation, machine, each);
    case "fetched":
      return fetchedOf(computation, machine);
    default:
      return ranked satisfies never;
  }
}

/** The group of a kernel that a search found. */
export function groupOf(computation: Computation, candidate: Candidate): string {
  if (candidate.kind === "warp-steps") return `${candidate.schedule.depth} steps`;
  if (candidate.kind === "warp-window") return `window ${candidate.schedule.dataflow}`;
  if (candidate.kind !== "warp-design") return "mapping";
  const placed = placeArray(computation, candidate.schedule);
  return placed.ok ? placed.array.design.dataflow : "design";
}

/** The best schedules of the most promising dataflow, and the best one of each other. */
function transformsOf(computation: Computation, machine: Target): RankedKernel[] {
  const intrinsic = warpMultiplyAddOf(computation, usableIntrinsics(machine));
  const space = finished(warpArraySpace(computation, machine));
  if (!intrinsic || "rule" in space) return [];
  const best = space.bestOfEach().slice(0, DATAFLOWS);
  const near = space.ranked.filter((r) => r.design.dataflow === best[0]?.design.dataflow).slice(0, OF_BEST);
  return [...new Set([...near, ...best])].map(({ design, schedule }) => ({
    candidate: { kind: "warp-design", intrinsic: intrinsic.name, schedule },
    group: design.dataflow,
    expected: space.expectedSeconds(schedule),
  }));
}

/** The best windows, two of each dataflow. */
function windowsOf(computation: Computation, machine: Target): RankedKernel[] {
  const multiplyAdd = warpLanes(outputOf(computation).dtype, usableIntrinsics(machine));
  const space = multiplyAdd && !computation.epilogue ? warpWindowSpace(computation, machine) : undefined;
  if (!multiplyAdd || !space || "rule" in space) return [];
  const seen = new Map<string, number>();
  return byTime(space)
    .filter(({ dataflow, warps }) => {
      const count = seen.get(dataflow) ?? 0;
      seen.set(dataflow, count + 1);
      return warps === undefined && count < 2;
    })
    .slice(0, WINDOWS)
    .map((schedule) => ({
      candidate: { kind: "warp-window", intrinsic: multiplyAdd.name, schedule },
      group: `window ${schedule.dataflow}`,
      expected: space.expectedSeconds(schedule),
    }));
}

/** At each depth, the schedules that the model expects to be fastest, one of each lane shape. */
function stepsAtDepths(computation: Computation, machine: Target, each: number): RankedKernel[] {
  const space = warpStepSpace(computation, machine);
  if ("because" in space) throw new Error(`${computation.name}: ${space.because}`);
  const shapes = new Set<string>();
  const counts = new Map<number, number>();
  return byTime(space)
    .filter((s) => {
      const depth = s.depth;
      const shape = [depth, s.each, s.rows, (s.sweep ?? 1024) > 128].join();
      const count = counts.get(depth) ?? 0;
      if (shapes.has(shape) || count >= each) return false;
      shapes.add(shape);
      counts.set(depth, count + 1);
      return true;
    })
    .map((schedule) => ({
      candidate: { kind: "warp-steps", intrinsic: `cuda.fma.${outputOf(computation).dtype}`, schedule },
      group: `${schedule.depth} steps`,
      expected: space.expectedSeconds(schedule),
    }));
}

/** A sweep that searches found, with the rows fetched so many steps ahead, in blocks of so many warps. */
function fetchedOf(computation: Computation, machine: Target): RankedKernel[] {
  const { dtype } = outputOf(computation);
  const multiplyAdd = warpLanes(dtype, usableIntrinsics(machine));
  const verdict = tapsOf(computation);
  const space = warpWindowSpace(computation, machine);
  if (!multiplyAdd || !verdict.ok || "rule" in space) return [];
  const shapes = (dtype === "f64" ? [1, 2] : [2, 4]).flatMap((each) =>
    [2, 4].flatMap((rows) => [16, 32].map((sweep) => ({ each, rows, sweep }))),
  );
  const ways = [
    ...[undefined, 1, 2, 4].map((prefetchSteps) => ({ prefetchSteps, warps: undefined })),
    ...[undefined, 1, 2].map((prefetchSteps) => ({ prefetchSteps, warps: 8 })),
  ];
  return shapes.flatMap(({ each, rows, sweep }) =>
    ways.flatMap(({ prefetchSteps, warps }): RankedKernel[] => {
      const schedule: WarpWindowSchedule = {
        ...PICKED,
        dataflow: "FBS-load",
        rows,
        rolled: [],
        sweep,
        ...(each > 1 && { each }),
        ...(prefetchSteps && { prefetchSteps }),
        ...(warps && { warps }),
      };
      if (warpWindowProblem(verdict.sum, schedule)) return [];
      const candidate: Candidate = { kind: "warp-window", intrinsic: multiplyAdd.name, schedule };
      const group = `${prefetchSteps ?? "no"} rows ahead, ${warps ?? "usual"} warps`;
      return [{ candidate, group, expected: space.expectedSeconds(schedule) }];
    }),
  );
}

function byTime<S extends object>(space: ListedSpace<S>): S[] {
  return [...space.all()]
    .map((schedule) => ({ schedule, seconds: space.expectedSeconds(schedule) }))
    .sort((a, b) => a.seconds - b.seconds)
    .map(({ schedule }) => schedule);
}
