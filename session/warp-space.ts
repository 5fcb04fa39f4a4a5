/** @file The space of a GPU: mappings joined with windows, time steps and designs by their transforms on the lanes of its warps. */

import {
  type ArrayCandidate,
  type Candidate,
  type CandidateKinds,
  isArray,
  type LaneCandidate,
  type LaneSchedule,
} from "../abstraction/candidate.ts";
import { type Computation, outputOf } from "../abstraction/computation.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import type { Target } from "../abstraction/machine.ts";
import type { Steps } from "../abstraction/steps.ts";
import { placeArray } from "../mapper/space-time/lane-array.ts";
import { warpArraySeconds } from "../perfmodel/warp-arrays.ts";
import { emptySpace, joinedSpace } from "../tuner/joined-space.ts";
import type { LaneSpace } from "../tuner/lane-candidates.ts";
import type { SearchSpace } from "../tuner/space.ts";
import { warpSpace } from "../tuner/warp-candidates.ts";
import { warpStepSpace } from "../tuner/warp-step-candidates.ts";
import { generateArray, isWide, warpArrayCandidates } from "./array-space.ts";
import { generateDesign, laneCandidates, scaledEstimate, slides, warpLanes } from "./lane-space.ts";
import type { Reason, SessionSpace } from "./session-space.ts";

type OnLanes = LaneCandidate | ArrayCandidate;
type Mapped = Exclude<Candidate, OnLanes>;

const isOnLanes = (c: Candidate): c is OnLanes => c.kind === "lanes";

export interface WarpSearch {
  readonly machine: Target;
  readonly intrinsics: readonly Intrinsic[];
  /** If lanes were asked for, all designs by transforms are searched beside windows. */
  readonly kinds: CandidateKinds;
}

/** A GPU's space of mappings joined with designs on the lanes of its warps. */
export function* besideWarps(
  computation: Computation,
  mapped: SessionSpace | readonly Reason[],
  { machine, intrinsics, kinds }: WarpSearch,
): Steps<SessionSpace | readonly Reason[]> {
  if (kinds === "mappings") return mapped;
  const space = "predict" in mapped ? mapped : undefined;
  const every = kinds === "lanes";
  // As on a CPU: without a sliding window no value can be reused by a neighbour, and an instruction is faster.
  if (space && !slides(computation)) return space;
  const lanes = (computation.time ? warpStepSpace : warpSpace)(computation, machine);
  const multiplyAdd = warpLanes(outputOf(computation).dtype, intrinsics);
  const windows = multiplyAdd && !("rule" in lanes) ? laneCandidates(lanes, multiplyAdd) : undefined;
  // As on a CPU: where a window runs, the named designs are the best ones, unless lanes are asked for.
  const others = !computation.time && (every || (!windows && isWide(computation)));
  const window = windows && !("rule" in lanes) ? bestWindow(lanes) : undefined;
  const found = others
    ? yield* warpArrayCandidates(computation, { intrinsics, every, machine, window: window?.seconds })
    : undefined;
  const arrays = found && !("rule" in found) ? found : undefined;
  if (!windows && !arrays) {
    if (space) return space;
    const because =
      found && "rule" in found && !("rule" in lanes && computation.time)
        ? found.because
        : "rule" in lanes
          ? lanes.because
          : "no multiply-add of a lane of this type to choose from";
    // Time steps run only on lanes. Refusals of instructions would add nothing.
    return [...("predict" in mapped || computation.time ? [] : mapped), { rule: "lanes", because }];
  }
  const estimate = scaledEstimate("rule" in lanes ? undefined : lanes);
  const designs = joinedSpace<LaneCandidate, ArrayCandidate>(
    windows ?? emptySpace<LaneCandidate>(),
    arrays?.space ?? emptySpace<ArrayCandidate>(),
    (c): c is LaneCandidate => !isArray(c),
  );
  const bestOfWindows: readonly Candidate[] =
    window && multiplyAdd ? [{ kind: "lanes", intrinsic: multiplyAdd.name, schedule: window.schedule }] : [];
  const rival = space && window ? bestMapping(space, window.seconds) : undefined;
  const representatives = arrays || rival ? [...bestOfWindows, ...(rival ? [rival] : [])] : [];
  const mappings = (): SessionSpace => {
    if (!space) throw new Error("internal: a candidate of another space in that of lanes");
    return space;
  };
  const onLanes = [...(windows && multiplyAdd ? [multiplyAdd] : []), ...(arrays ? [arrays.intrinsic] : [])];
  return {
    ...joinedSpace<Mapped, OnLanes>(
      // It is asked of no lanes.
      (space ?? emptySpace<Candidate>()) as SearchSpace<Mapped>,
      designs,
      (c): c is Mapped => !isOnLanes(c),
    ),
    representatives: [...representatives, ...(designs.representatives ?? [])],
    intrinsics: [...new Set([...(space?.intrinsics ?? []), ...onLanes])],
    intrinsicOf: (c) => {
      if (!isOnLanes(c)) return mappings().intrinsicOf(c);
      const used = onLanes.find((i) => i.name === c.intrinsic);
      if (!used) throw new Error(`internal: ${c.intrinsic} is not of this space`);
      return used;
    },
    mappingOf: (c) => (isOnLanes(c) ? undefined : mappings().mappingOf(c)),
    carried: (c, from) => space?.carried?.(c, from),
    kernelOf: (c) => {
      if (isArray(c)) return generateArray(computation, c);
      return c.kind === "lanes" ? generateDesign(computation, c) : mappings().kernelOf(c);
    },
    predict: (c) => {
      if (isArray(c)) return arrays?.predict(c.schedule);
      return c.kind === "lanes" ? estimate.predict(c.schedule) : mappings().predict(c);
    },
    learn: (trials) => {
      estimate.learn(trials);
      arrays?.learn(trials);
      space?.learn(trials.filter(({ candidate }) => candidate.kind !== "lanes"));
    },
  };
}

/** Seconds that the model predicts for lanes of warps; undefined where they cannot run the computation so. */
export function warpExpectation(computation: Computation, candidate: OnLanes, machine: Target): number | undefined {
  if (isArray(candidate)) {
    const placed = placeArray(computation, candidate.schedule);
    return placed.ok ? warpArraySeconds(placed.array, candidate.schedule, machine) : undefined;
  }
  const space = (computation.time ? warpStepSpace : warpSpace)(computation, machine);
  return "rule" in space ? undefined : space.expectedSeconds(candidate.schedule);
}

/**
 * The models of mappings and of windows err by a common factor each, so where their expectations lie within this many times of each other the
 * best of both are measured before all others. For filters of 9 to 20 in f16 on an H100, mappings took 0.35 to 0.75 of what was expected and
 * windows 1.5 to 1.6 times (bench/results/cuda-bands-h100.md).
 */
const RIVALS = 4;

/** The mapping that is expected to be the fastest, if measuring may find it faster or slower than the best window. */
function bestMapping(space: SessionSpace, window: number): Candidate | undefined {
  const known = (space.promising ?? []).flatMap((candidate) => {
    const seconds = space.predict(candidate)?.seconds;
    return seconds === undefined ? [] : [{ candidate, seconds }];
  });
  const [first] = known.toSorted((a, b) => a.seconds - b.seconds);
  return first && first.seconds < RIVALS * window && window < RIVALS * first.seconds ? first.candidate : undefined;
}

/** The window that the model expects to be the fastest, with the usual blocks. */
function bestWindow(windows: LaneSpace): { readonly schedule: LaneSchedule; readonly seconds: number } | undefined {
  return [...windows.all()]
    .filter((s) => s.warps === undefined && s.prefetchSteps === undefined)
    .map((schedule) => ({ schedule, seconds: windows.expectedSeconds(schedule) }))
    .reduce<{ schedule: LaneSchedule; seconds: number } | undefined>(
      (a, b) => (a === undefined || b.seconds < a.seconds ? b : a),
      undefined,
    );
}
