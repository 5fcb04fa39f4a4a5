/**
 * @file The search space of a computation on a machine, with the model's predictions: mappings onto instructions, and space-time designs on
 * vector lanes. A search and its replay build the same space.
 *
 *     const space = finished(sessionSpace(conv2d, { intrinsics, calibration, threads: 1, seed: 1 }));
 *     space.predict(candidate)?.seconds
 *     space.kernelOf(candidate).source
 */

import {
  type ArrayCandidate,
  type Candidate,
  isArray,
  type LaneCandidate,
  type LoopCandidate,
  type MappedCandidate,
  type Schedule,
} from "../abstraction/candidate.ts";
import { type Computation, outputOf } from "../abstraction/computation.ts";
import { isRecurrent } from "../abstraction/dependence.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import type { Mapping } from "../abstraction/mapping.ts";
import type { Steps } from "../abstraction/steps.ts";
import { isLoops } from "../intrinsics/loops.ts";
import { modelTarget } from "../perfmodel/target.ts";
import { isGpu, nativeTarget, PORTABLE_ISA } from "../targets/index.ts";
import { candidateSpace } from "../tuner/candidates.ts";
import { emptySpace, joinedSpace } from "../tuner/joined-space.ts";
import { arrayCandidates, generateArray, isWide } from "./array-space.ts";
import { gridSessionSpace } from "./grid-space.ts";
import { generate } from "./kernel.ts";
import {
  generateDesign,
  laneCandidates,
  registersOf,
  scaledEstimate,
  slides,
  vectorSpace,
  windowLanes,
} from "./lane-space.ts";
import { expectedOfLoops, loopCandidateKernel, loopSpace } from "./plain-loops.ts";
import { predictorFor } from "./predict.ts";
import type { Reason, SessionSpace, SessionSpaceOptions } from "./session-space.ts";
import { besideWarps } from "./warp-space.ts";

/** The space, or why nothing maps. */
export function* sessionSpace(
  computation: Computation,
  options: SessionSpaceOptions,
): Steps<SessionSpace | readonly Reason[]> {
  const { calibration, machine = nativeTarget(), threads, seed, kinds = "all", keeps } = options;
  const ofLoops = options.intrinsics.filter(isLoops);
  const intrinsics = options.intrinsics.filter((i) => !isLoops(i));
  if (isGpu(machine)) {
    const mapped = kinds === "lanes" ? [] : yield* gridSessionSpace(computation, { machine, intrinsics, seed, keeps });
    return yield* besideWarps(computation, mapped, { machine, intrinsics, kinds });
  }
  const predictor = predictorFor(calibration, machine);
  const predict = (m: Mapping, s: Schedule): number | undefined => predictor.predict(m, s)?.seconds;
  const target = modelTarget(machine, calibration);
  const near = target.memory[0]?.bytes;
  const mapped =
    kinds === "lanes" ? [] : yield* candidateSpace(computation, intrinsics, predict, threads, seed, near, keeps);
  // Lanes pass values they have read to their neighbours. Without a sliding window nothing can be passed, and an instruction is faster.
  const wanted = kinds === "lanes" || (kinds === "all" && (isRefusals(mapped) || slides(computation)));
  const multiplyAdd = wanted ? laneInstruction(computation, intrinsics) : undefined;
  const lanes = multiplyAdd && vectorSpace(computation, { threads, target, vectors: registersOf(multiplyAdd) });
  const windows = multiplyAdd && lanes && !("rule" in lanes) ? laneCandidates(lanes, multiplyAdd) : undefined;
  const every = kinds === "lanes";
  // Where a window runs, the named designs are the best of the lane designs. The others are searched only when lanes are requested.
  const others = every || (wanted && !windows && (isWide(computation) || isRecurrent(computation.equation)));
  const found = others ? yield* arrayCandidates(computation, { intrinsics, every, threads, target }) : undefined;
  const arrays = found && !("rule" in found) ? found : undefined;
  const onLanesAlone = isRefusals(mapped) && (windows !== undefined || arrays !== undefined);
  const besides = ofLoops.length > 0 && kinds !== "lanes" && (onLanesAlone || intrinsics.every(addsOrCopies));
  const looped = besides ? loopSpace(computation, { rows: ofLoops, threads }) : undefined;
  const loops = looped && !("rule" in looped) ? looped : undefined;
  if (isRefusals(mapped) && !windows && !arrays && !loops) {
    const reasons = looped && "rule" in looped ? [looped] : [];
    if (!wanted || intrinsics.length === 0) return [...mapped, ...reasons];
    // Mappings cannot express time steps, and the refusal "it is a recurrence" would not help.
    return [...(computation.time && lanes ? [] : mapped), lanesRefused(computation, lanes, found), ...reasons];
  }
  const onLanesOrLooped = joinedSpace<LaneCandidate | ArrayCandidate, LoopCandidate>(
    joinedSpace<LaneCandidate, ArrayCandidate>(
      windows ?? emptySpace<LaneCandidate>(),
      arrays?.space ?? emptySpace<ArrayCandidate>(),
      (c): c is LaneCandidate => !isArray(c),
    ),
    loops ?? emptySpace<LoopCandidate>(),
    (c): c is LaneCandidate | ArrayCandidate => c.kind === "lanes",
  );

  const estimate = scaledEstimate(lanes && !("rule" in lanes) ? lanes : undefined);
  const mappingOf = (c: Candidate): Mapping | undefined =>
    c.kind !== undefined || isRefusals(mapped) ? undefined : mapped.mappingOf(c);
  const onLanes = [windows && multiplyAdd, arrays?.intrinsic].filter((i) => i !== undefined);
  const used = [
    ...(isRefusals(mapped) ? [] : mapped.ranked.map((m) => m.context.mapping.intrinsic)),
    ...onLanes,
    ...(loops ? ofLoops : []),
  ];
  return {
    ...joinedSpace<MappedCandidate, LaneCandidate | ArrayCandidate | LoopCandidate>(
      isRefusals(mapped) ? emptySpace<MappedCandidate>() : mapped,
      onLanesOrLooped,
      (c): c is MappedCandidate => c.kind === undefined,
    ),
    intrinsics: [...new Set(used)],
    mappingOf,
    intrinsicOf: (c) => {
      const found = used.find((i) => i.name === c.intrinsic);
      if (!found) throw new Error(`internal: ${c.intrinsic} is not of this space`);
      return found;
    },
    carried: (c, from) => (c.kind === undefined && !isRefusals(mapped) ? mapped.carried(c, from) : undefined),
    kernelOf: (c) => {
      if (isArray(c)) return generateArray(computation, c);
      if (c.kind === "lanes") return generateDesign(computation, c);
      if (c.kind === "loops") return loopCandidateKernel(computation, c);
      const mapping = mappingOf(c);
      if (!mapping || c.kind !== undefined) throw new Error("internal: a mapping of no space");
      return generate(c, mapping);
    },
    predict: (c) => {
      if (c.kind === undefined) {
        const mapping = mappingOf(c);
        return mapping && predictor.predict(mapping, c.schedule);
      }
      if (isArray(c)) return arrays?.predict(c.schedule);
      if (c.kind === "loops") return expectedOfLoops(computation, c, target);
      return c.kind === "lanes" ? estimate.predict(c.schedule) : undefined;
    },
    startFrom: (prior) => {
      predictor.startFrom(prior);
      for (const designs of [estimate, arrays]) designs?.learn([]);
    },
    learn: (trials) => {
      predictor.learn(trials, mappingOf);
      for (const designs of [estimate, arrays]) designs?.learn(trials);
    },
  };
}

/** Whether a row forms no products: a mapping onto it computes every term while it packs, as plain loops do where they stand. */
const addsOrCopies = (row: Intrinsic): boolean => row.isa === PORTABLE_ISA && row.operands.length <= 2;

/** Why lanes can run neither a window nor a transform; undefined for what was not searched. */
function lanesRefused(computation: Computation, window: object | undefined, transform: object | undefined): Reason {
  const [first, second] = [window, transform].map((r) => (r && "because" in r ? String(r.because) : undefined));
  const because = (computation.time ? first : second) ?? first ?? "no vector multiply-add of this type to choose from";
  return { rule: "lanes", because };
}

/** The multiply-add that lanes use: one product a lane, of the output's type. */
function laneInstruction(computation: Computation, intrinsics: readonly Intrinsic[]): Intrinsic | undefined {
  return windowLanes(outputOf(computation).dtype, intrinsics);
}

/** Whether the result is a list of reasons rather than a space. */
export function isRefusals<S extends object, R>(space: S | readonly R[]): space is readonly R[] {
  return Array.isArray(space);
}
