/** @file Windows and time steps on lanes as a session's search sees them, on a CPU's vectors or a GPU's warps. */

import {
  candidateKey,
  type LaneCandidate,
  type StepCandidate,
  type WarpStepCandidate,
  type WarpWindowCandidate,
  type WindowBlock,
  type WindowCandidate,
} from "../../abstraction/candidate.ts";
import { withName } from "../../abstraction/collections.ts";
import { type Computation, outputOf } from "../../abstraction/computation.ts";
import { bytesOf, type DType, isInteger } from "../../abstraction/dtype.ts";
import { partsOf } from "../../abstraction/epilogue.ts";
import { UsageError } from "../../abstraction/error.ts";
import { type Intrinsic, WARP } from "../../abstraction/intrinsic.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { LoopNest } from "../../abstraction/loop-nest.ts";
import type { SourceNotes } from "../../codegen/cpp/cpp-frame.ts";
import { x86Vectors } from "../../codegen/cpp/x86-vectors.ts";
import { generateLanes, type LaneOptions } from "../../codegen/lanes.ts";
import { avx2Vpmulld, avx2Vpmullw } from "../../intrinsics/avx2.ts";
import { avx512Vpmulld, avx512Vpmullw } from "../../intrinsics/avx512.ts";
import { cudaFmaF16 } from "../../intrinsics/cuda.ts";
import { warpWindowProblem, windowProblem } from "../../mapper/schedule/lanes.ts";
import { vectorProblem } from "../../mapper/space-time/lane-values.ts";
import { lowerSteps, lowerWarpSteps } from "../../mapper/space-time/lower-steps.ts";
import { lowerWarpWindow, lowerWindow } from "../../mapper/space-time/lower-window.ts";
import type { Steps } from "../../mapper/space-time/plane.ts";
import { isSteps, stepProblem, stepsOf, warpStepProblem } from "../../mapper/space-time/steps.ts";
import { type LaneRefusal, stepsKept, type TapSum, tapsOf } from "../../mapper/space-time/taps.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import { placeText, scheduleText } from "../../report/describe-candidate.ts";
import { isGpu } from "../../targets/index.ts";
import { leastLaneBytes, type VectorRegisters, YMM, YMM_WORDS, ZMM, ZMM_WORDS } from "../../targets/x86.ts";
import { stepSpace, warpStepSpace, warpWindowSpace, windowSpace } from "../../tuner/lane-candidates.ts";
import type { ListedSpace } from "../../tuner/listed-space.ts";
import type { SearchSpace } from "../../tuner/space.ts";
import { declaredAs } from "../package/declared.ts";
import { learntFactor, predictionOf } from "../tune/learner.ts";
import { MADE_BY } from "../version.ts";
import type { KindSpace, Measured, Reason, Search, SessionKind } from "./session-space.ts";

/** Candidates of a kind on lanes whose schedules are those of a space. */
export function laneCandidates<K extends LaneCandidate>(
  kind: K["kind"],
  intrinsic: Intrinsic,
  schedules: SearchSpace<K["schedule"]> & { expectedSeconds(schedule: K["schedule"]): number },
  kernelOf: (candidate: K) => Kernel,
): KindSpace<K> {
  const wrap = (schedule: K["schedule"]): K => ({ kind, intrinsic: intrinsic.name, schedule }) as K; // the schedule is of the kind
  return {
    kind,
    intrinsics: [intrinsic],
    kernelOf,
    model: learntFactor((c) => schedules.expectedSeconds(c.schedule)),
    space: {
      size: schedules.size,
      key: candidateKey,
      random: (random) => wrap(schedules.random(random)),
      mutate: (c, random) => wrap(schedules.mutate(c.schedule, random)),
      crossover: (a, b, random) => wrap(schedules.crossover(a.schedule, b.schedule, random)),
      *all() {
        for (const schedule of schedules.all()) yield wrap(schedule);
      },
      codeSize: (c) => schedules.codeSize?.(c.schedule) ?? 0,
    },
  };
}

/** Windows on the vectors of a CPU. */
export const WINDOW_KIND = laneKind<WindowCandidate>("window", {
  schedules: (computation, { intrinsic, machine, calibration, threads }) =>
    windowSpace(computation, {
      threads,
      target: modelTarget(machine, calibration),
      vectors: registersOf(intrinsic),
    }),
  problem: (computation, schedule, intrinsic) => {
    const width = registersOf(intrinsic).bytes / bytesOf(outputOf(computation).dtype);
    if (schedule.lines !== undefined && schedule.lanes !== width)
      return {
        rule: "form",
        because: `lines are whole registers, of ${width} lanes, and the schedule has ${schedule.lanes}`,
      };
    return tapProblem(computation, schedule, windowProblem) ?? vectorProblem(computation);
  },
  lower: lowerWindow,
  options: (computation, { streaming, rolled }, intrinsic) => ({
    streaming,
    vectors: x86Vectors(registersOf(intrinsic)),
    ...promised(computation, rolled, intrinsic),
  }),
});

/** Windows on the lanes of warps. */
export const WARP_WINDOW_KIND = laneKind<WarpWindowCandidate>("warp-window", {
  schedules: (computation, { machine }) => warpWindowSpace(computation, machine),
  problem: (computation, schedule) => tapProblem(computation, schedule, warpWindowProblem),
  lower: lowerWarpWindow,
  options: (computation, { rolled }, intrinsic) => promised(computation, rolled, intrinsic),
  // With the usual blocks.
  isUsual: (s) => s.warps === undefined && s.prefetchSteps === undefined,
});

/** Time steps on the vectors of a CPU. */
export const STEP_KIND = laneKind<StepCandidate>("steps", {
  schedules: (computation, { intrinsic, machine, calibration, threads }) =>
    vectorProblem(computation) ??
    stepSpace(computation, {
      threads,
      target: modelTarget(machine, calibration),
      vectors: registersOf(intrinsic),
    }),
  problem: (computation, schedule) => timeProblem(computation, schedule, stepProblem) ?? vectorProblem(computation),
  lower: lowerSteps,
  options: (_, { streaming }, intrinsic) => ({ streaming, vectors: x86Vectors(registersOf(intrinsic)) }),
});

/** Time steps on the lanes of warps. */
export const WARP_STEP_KIND = laneKind<WarpStepCandidate>("warp-steps", {
  schedules: (computation, { machine }) => warpStepSpace(computation, machine),
  problem: (computation, schedule) => timeProblem(computation, schedule, warpStepProblem),
  lower: lowerWarpSteps,
  options: () => ({}),
  isUsual: () => true,
});

type WindowKinds = WindowCandidate | WarpWindowCandidate | StepCandidate | WarpStepCandidate;

/** What differs between windows and time steps, and between vectors and warps. */
interface LaneKind<K extends WindowKinds> {
  /** The schedules with their predicted times, or why there are none. */
  schedules(
    computation: Computation,
    on: Measured & { readonly intrinsic: Intrinsic; readonly threads: number },
  ): ListedSpace<K["schedule"]> | LaneRefusal;
  /** Why a schedule does not fit the computation. */
  problem(computation: Computation, schedule: K["schedule"], intrinsic: Intrinsic): LaneRefusal | undefined;
  lower(computation: Computation, schedule: K["schedule"]): LoopNest;
  /** How its nest is printed. */
  options(computation: Computation, schedule: K["schedule"], intrinsic: Intrinsic): LaneOptions;
  /** On a GPU, whether a schedule may stand for its kind when kinds are compared. */
  isUsual?(schedule: K["schedule"]): boolean;
}

function isOnWarps(kind: LaneCandidate["kind"]): boolean {
  return kind.startsWith("warp-");
}

function laneKind<K extends WindowKinds>(
  kind: K["kind"],
  { schedules, problem, lower, options, isUsual }: LaneKind<K>,
): SessionKind<K> {
  /** @throws UsageError when the schedule does not fit the computation */
  const kernelOf = (computation: Computation, candidate: K): Kernel => {
    const schedule: K["schedule"] = candidate.schedule;
    const intrinsic = multiplyAddIn(computation, candidate);
    const refusal = problem(computation, schedule, intrinsic);
    if (refusal) throw refusedOnLanes(computation, refusal.because);
    checkLanes(computation, schedule.lanes, intrinsic);
    const language = isOnWarps(kind) ? "cuda" : "c++";
    const nest = lower(computation, schedule);
    return generateLanes(language, computation, nest, laneNotes(candidate), options(computation, schedule, intrinsic));
  };
  const steps = kind === "steps" || kind === "warp-steps";
  const find = isOnWarps(kind) ? warpLanes : windowLanes;
  return {
    kind,
    family: "window",
    isFor: ({ time }, machine) => isGpu(machine) === isOnWarps(kind) && (time !== undefined) === steps,
    *spaceOf(search: Search) {
      const { computation, intrinsics } = search;
      const refuse = (because: string): Reason[] => [{ rule: "lanes", because }];
      const intrinsic = find(outputOf(computation).dtype, intrinsics);
      if (!intrinsic) return refuse(NO_MULTIPLY_ADD);
      const space = schedules(computation, { ...search, intrinsic });
      if ("rule" in space) return refuse(space.because);
      const found = laneCandidates<K>(kind, intrinsic, space, (c) => kernelOf(computation, c));
      return { ...found, best: isUsual && bestOf(found, (c) => isUsual(c.schedule)) };
    },
    kernelOf,
    predict: (computation, candidate, on) => {
      const { intrinsic, schedule } = candidate;
      const threads = "threads" in schedule ? schedule.threads : 1;
      const space = schedules(computation, { ...on, intrinsic: declaredAs(intrinsic), threads });
      return "rule" in space ? undefined : predictionOf(space.expectedSeconds(schedule));
    },
  };
}

export const NO_MULTIPLY_ADD = "no multiply-add of lanes of this type to choose from";

/** The candidate that the model expects to be the fastest. */
function bestOf<K extends LaneCandidate>(
  { space, model }: KindSpace<K>,
  isUsual: (candidate: K) => boolean,
): KindSpace<K>["best"] {
  let best: KindSpace<K>["best"];
  for (const candidate of space.all()) {
    const seconds = isUsual(candidate) ? model.predict(candidate)?.seconds : undefined;
    if (seconds !== undefined && (!best || seconds < best.seconds)) best = { candidate, seconds };
  }
  return best;
}

/** The float multiply-add that lanes use: AVX-512's where it can be chosen, else AVX2's. */
export function floatLanes(dtype: DType, intrinsics: readonly Intrinsic[]): Intrinsic | undefined {
  const named = (name: string): Intrinsic | undefined => withName(intrinsics, `${name}.fma.${dtype}`);
  return named("avx512") ?? named("avx2");
}

/** The multiply-add that windows use: one product a lane, of the output's type. */
export function windowLanes(dtype: DType, intrinsics: readonly Intrinsic[]): Intrinsic | undefined {
  if (!isInteger(dtype)) return floatLanes(dtype, intrinsics);
  // These multiplies are in no table of mappable instructions. They are offered where the float multiply-add is.
  const f32 = floatLanes("f32", intrinsics);
  if (!f32 || (dtype !== "s32" && dtype !== "s16")) return undefined;
  const onYmm = registersOf(f32).name === YMM.name;
  if (dtype === "s16") return onYmm ? avx2Vpmullw : avx512Vpmullw;
  return onYmm ? avx2Vpmulld : avx512Vpmulld;
}

/** The multiply-add of the lanes of a warp. That of f16 is in no table, and is offered where that of f32 is. */
export function warpLanes(dtype: DType, intrinsics: readonly Intrinsic[]): Intrinsic | undefined {
  const found = withName(intrinsics, `cuda.fma.${dtype === "f16" ? "f32" : dtype}`);
  return found && dtype === "f16" ? cudaFmaF16 : found;
}

/** The vector registers that a multiply-add works on, with lanes of 16 bits where it adds them. */
export function registersOf({ operands }: Intrinsic): VectorRegisters {
  const onYmm = operands.some((o) => o.file === YMM.name);
  const [result] = operands;
  if (result && bytesOf(result.dtype) === 2) return onYmm ? YMM_WORDS : ZMM_WORDS;
  return onYmm ? YMM : ZMM;
}

/**
 * @throws UsageError for more lanes than a warp or a CPU register has. Narrow elements take 32-bit lanes, unless the
 * multiply-add is of 16 bits
 */
export function checkLanes(computation: Computation, lanes: number, intrinsic: Intrinsic): void {
  const onWarps = intrinsic.language === "cuda";
  const vectors = registersOf(intrinsic);
  const { bytes, feature } = vectors;
  const most = onWarps
    ? WARP
    : bytes / Math.max(leastLaneBytes(vectors), bytesOf(outputOf(partsOf(computation).sum).dtype));
  const what = onWarps ? "a warp" : `a register of ${feature === "avx2" ? "AVX2" : "AVX-512"}`;
  if (lanes > most) throw new UsageError(`${computation.name}: ${lanes} lanes, but ${what} has ${most}`);
}

/** Why a computation does not run on lanes in the way that a candidate says. */
export const refusedOnLanes = ({ name }: Computation, because: string): UsageError =>
  new UsageError(`${name} does not run on lanes so: ${because}`);

/** The multiply-add of a candidate. @throws UsageError for one of another machine */
export function multiplyAddIn(computation: Computation, { kind, intrinsic: name }: LaneCandidate): Intrinsic {
  const intrinsic = declaredAs(name);
  const [language, place] = isOnWarps(kind) ? ["cuda", "the warps of a GPU"] : ["c++", "the vectors of a CPU"];
  if (intrinsic.language === language) return intrinsic;
  throw refusedOnLanes(
    computation,
    `the kind ${kind} is of ${place}, and ${name} an instruction of ${intrinsic.language}`,
  );
}

/** Lines for the head of a kernel. */
export const laneNotes = (candidate: LaneCandidate, design = ""): SourceNotes => ({
  lines: [`design    ${design}${placeText(candidate)}`, `schedule  ${scheduleText(candidate)}`, MADE_BY],
});

function tapProblem<S extends WindowBlock>(
  computation: Computation,
  schedule: S,
  problemOf: (sum: TapSum, schedule: S) => LaneRefusal | undefined,
): LaneRefusal | undefined {
  const verdict = tapsOf(computation, schedule.rolled);
  return verdict.ok ? problemOf(verdict.sum, schedule) : verdict.refusal;
}

function timeProblem<S>(
  computation: Computation,
  schedule: S,
  problemOf: (steps: Steps, schedule: S) => LaneRefusal | undefined,
): LaneRefusal | undefined {
  const steps = stepsOf(computation);
  return isSteps(steps) ? problemOf(steps, schedule) : steps;
}

/** A window of one tap may contain no product and sum that a multiply-add computes. */
function promised(computation: Computation, rolled: readonly string[], { mnemonic }: Intrinsic): LaneOptions {
  const verdict = tapsOf(computation, rolled);
  return verdict.ok && stepsKept(verdict.sum) * verdict.sum.taps.length > 1 ? { multiplyAdd: mnemonic } : {};
}
