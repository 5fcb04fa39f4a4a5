/**
 * @file Lane designs given by transforms, as a session's search sees them: candidates, a predictor that learns, and kernels.
 *
 *     const arrays = finished(arrayCandidates(computation, { threads: 1, target, intrinsics, every: true }));      a space, or why there is none
 */

import {
  type ArrayCandidate,
  type ArraySchedule,
  type Candidate,
  candidateKey,
  isArray,
} from "../abstraction/candidate.ts";
import { type Computation, outputOf } from "../abstraction/computation.ts";
import { isRecurrent } from "../abstraction/dependence.ts";
import { bytesOf, isInteger } from "../abstraction/dtype.ts";
import { partsOf } from "../abstraction/epilogue.ts";
import { UsageError } from "../abstraction/error.ts";
import { type Intrinsic, WARP } from "../abstraction/intrinsic.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import type { Target } from "../abstraction/machine.ts";
import type { Steps } from "../abstraction/steps.ts";
import type { Prediction } from "../abstraction/trial.ts";
import type { SourceNotes } from "../codegen/cpp-frame.ts";
import { generateLanes } from "../codegen/lanes.ts";
import { x86Vectors } from "../codegen/x86-vectors.ts";
import { cudaMadS32 } from "../intrinsics/cuda.ts";
import type { Design } from "../mapper/space-time/design.ts";
import { usesDots } from "../mapper/space-time/dots.ts";
import { placeArray } from "../mapper/space-time/lane-array.ts";
import { unheldType, vectorProblem } from "../mapper/space-time/lane-values.ts";
import { lowerPlaced } from "../mapper/space-time/lower-array.ts";
import { wordTypeOf } from "../mapper/space-time/lower-computation.ts";
import { lowerRecurrent } from "../mapper/space-time/lower-recurrent.ts";
import { isForm, recurrentUnder } from "../mapper/space-time/recurrent.ts";
import type { LaneRefusal } from "../mapper/space-time/taps.ts";
import { tooLongToWrite } from "../mapper/space-time/written-length.ts";
import { arraySeconds } from "../perfmodel/arrays.ts";
import { commonFactor } from "../perfmodel/correct.ts";
import { recurrentSeconds } from "../perfmodel/recurrent.ts";
import { scatteredSeconds } from "../perfmodel/scattered.ts";
import type { ModelTarget } from "../perfmodel/target.ts";
import { placeText, scheduleText } from "../report/describe-candidate.ts";
import { leastLaneBytes, type VectorRegisters, YMM, ZMM } from "../targets/x86.ts";
import { DOT_FEATURE } from "../targets/x86-dots.ts";
import { type ArraySpaceOfDesigns, type ArraySpaceOptions, arraySpaceOf } from "../tuner/array-candidates.ts";
import { type RecurrentSpace, recurrentSpace } from "../tuner/recurrent-candidates.ts";
import type { SearchSpace } from "../tuner/space.ts";
import type { TrialOf } from "../tuner/trials.ts";
import { warpArraySpace } from "../tuner/warp-array-candidates.ts";
import { declaredAs } from "./declared.ts";
import { checkLanes, floatLanes, registersOf, windowLanes } from "./lane-space.ts";
import { VERSION } from "./version.ts";

export interface SessionArrays {
  readonly space: SearchSpace<ArrayCandidate>;
  readonly intrinsic: Intrinsic;
  predict(schedule: ArraySchedule): Prediction | undefined;
  learn(trials: readonly TrialOf<Candidate>[]): void;
}

/** Number of schedules a search begins with. */
const MOST_PROMISING = 16;

/** The multiply-add that lanes use to sum values of a computation's type. Narrow elements use the 32-bit one, unless all are of one 16-bit type. */
export function multiplyAddOf(computation: Computation, intrinsics: readonly Intrinsic[]): Intrinsic | undefined {
  const { dtype } = outputOf(partsOf(computation).sum);
  if (dtype === "f64") return floatLanes(dtype, intrinsics);
  const words = wordTypeOf(computation);
  const ofWords = words && windowLanes(words, intrinsics);
  if (ofWords) return ofWords;
  const f32 = floatLanes("f32", intrinsics);
  if (!f32) return undefined;
  const onYmm = registersOf(f32).name === YMM.name;
  // Narrow elements are widened by AVX-512 instructions only.
  if (onYmm && Object.values(computation.tensors).some((t) => bytesOf(t.dtype) < 4)) return undefined;
  return isInteger(dtype) ? windowLanes("s32", intrinsics) : f32;
}

/** Selects the designs a search chooses from. */
export interface ArraySearch extends Omit<ArraySpaceOptions, "mixed"> {
  readonly intrinsics: readonly Intrinsic[];
  /** True: all designs, and the best of each dataflow is measured first. False: only designs whose transform mixes two loops. */
  readonly every: boolean;
}

/** The designs a search chooses from, or why there are none. */
export function* arrayCandidates(
  computation: Computation,
  { intrinsics, every, ...options }: ArraySearch,
): Steps<SessionArrays | LaneRefusal> {
  const intrinsic = multiplyAddOf(computation, intrinsics);
  if (!intrinsic) return { rule: "type", because: "type: no multiply-add of lanes of this type to choose from" };
  if (refersToItself(computation) && registersOf(intrinsic) !== ZMM)
    return { rule: "design", because: "design: results that refer to themselves run on lanes of AVX-512 so far" };
  const problem = refersToItself(computation) ? undefined : vectorProblem(computation);
  if (problem) return problem;
  const arrays = refersToItself(computation)
    ? recurrentSpace(computation, options)
    : yield* arraySpaceOf(computation, {
        vectors: registersOf(intrinsic),
        hasDots: intrinsics.some((i) => i.isa === DOT_FEATURE),
        ...options,
        ...(every ? {} : { mixed: 2 }),
      });
  if ("rule" in arrays) return arrays;
  return searched(arrays, intrinsic, every);
}

/**
 * A space with a predictor that learns.
 * @param slowest times of the best prediction that a dataflow may take and be measured first
 */
function searched(
  arrays: ArraySpaceOfDesigns | RecurrentSpace,
  intrinsic: Intrinsic,
  every: boolean,
  slowest = Number.POSITIVE_INFINITY,
): SessionArrays {
  let scale = 1;
  return {
    intrinsic,
    space: candidatesOf(arrays, intrinsic, every, slowest),
    predict: (schedule) => {
      const seconds = arrays.expectedSeconds(schedule);
      if (!Number.isFinite(seconds)) return undefined;
      return { seconds: seconds * scale, uncorrectedSeconds: seconds, levels: [] };
    },
    learn: (trials) => {
      const ratios = trials.flatMap(({ candidate, measurement }) =>
        isArray(candidate) && measurement.status === "ok"
          ? [measurement.median / arrays.expectedSeconds(candidate.schedule)]
          : [],
      );
      scale = commonFactor(ratios);
    },
  };
}

/** Designs on the lanes of a GPU's warps. */
export interface WarpArraySearch {
  readonly intrinsics: readonly Intrinsic[];
  readonly machine: Target;
  /** As in {@link ArraySearch}. */
  readonly every: boolean;
  /** The seconds that the best window is expected to take, if one runs. */
  readonly window: number | undefined;
}

/** The designs that a search on a GPU chooses from, or why there are none. */
export function* warpArrayCandidates(
  computation: Computation,
  { intrinsics, machine, every, window }: WarpArraySearch,
): Steps<SessionArrays | LaneRefusal> {
  const intrinsic = warpMultiplyAddOf(computation, intrinsics);
  if (!intrinsic) return { rule: "type", because: "type: no multiply-add of a lane of this type to choose from" };
  if (refersToItself(computation)) return NOT_ON_WARPS;
  const unheld = unheldType(computation);
  if (unheld) return unheld;
  // Beside a window, transforms that mix three loops were never the best, and enumerating them takes a second.
  const arrays = yield* warpArraySpace(computation, machine, every && window === undefined ? undefined : 2);
  if ("rule" in arrays) return arrays;
  const [best] = arrays.ranked;
  if (best && window !== undefined && best.seconds > SLOWEST_BESIDE_WINDOWS * window)
    return { rule: "design", because: "design: a window is expected to be faster" };
  return searched(arrays, intrinsic, every, SLOWEST_ON_WARPS);
}

/**
 * Beside a window that is expected to take a part of their time, transforms are left out. With 16 channels and more they were 1.7 times as fast as
 * windows that were expected to be faster by 1.65; filters of 5 and 9 and 3d13pt took 1.3, 3 and 2 times as long as their windows (an H100, 2026-11-24).
 */
const SLOWEST_BESIDE_WINDOWS = 1.7;

/** On a GPU, dataflows of partial results across lanes are expected to take ten times as long as the best, and each takes seconds to compile. */
const SLOWEST_ON_WARPS = 3;

const NOT_ON_WARPS: LaneRefusal = {
  rule: "design",
  because: "design: results that refer to themselves run on lanes of AVX-512 so far",
};

/** The multiply-add of the lanes of a warp: elements are widened to 32 bits. */
export function warpMultiplyAddOf(computation: Computation, intrinsics: readonly Intrinsic[]): Intrinsic | undefined {
  const { dtype } = outputOf(partsOf(computation).sum);
  const f32 = intrinsics.find((i) => i.name === "cuda.fma.f32");
  // The integer multiply-add is in no table, and is offered where that of f32 is.
  if (isInteger(dtype)) return f32 && cudaMadS32;
  return dtype === "f64" ? intrinsics.find((i) => i.name === "cuda.fma.f64") : f32;
}

/** Whether sums are of floats of 32 bits or more. Other types have instructions that beat lanes, or plain C++ that was not compared with lanes. */
export function isWide(computation: Computation): boolean {
  const { dtype } = outputOf(partsOf(computation).sum);
  return !isInteger(dtype) && Object.values(computation.tensors).every((t) => bytesOf(t.dtype) >= bytesOf("f32"));
}

/** Whether elements depend on other elements of the same result. Time steps do too, but have designs of their own. */
const refersToItself = ({ equation, time }: Computation): boolean => !time && isRecurrent(equation);

/** Seconds the model predicts for a schedule; undefined when the schedule does not fit. */
export function arrayExpectation(
  computation: Computation,
  schedule: ArraySchedule,
  target: ModelTarget,
  vectors: VectorRegisters,
): number | undefined {
  if (refersToItself(computation)) {
    const form = recurrentUnder(computation, schedule);
    return isForm(form) ? recurrentSeconds(form, schedule, target) : undefined;
  }
  const placed = placeArray(computation, schedule);
  if (!placed.ok) return undefined;
  const nest = lowerPlaced(computation, placed.array, schedule.inputs, leastLaneBytes(vectors) === 2);
  return (
    arraySeconds(placed.array, schedule, target, vectors) +
    scatteredSeconds(nest, computation, schedule.threads, target)
  );
}

function candidatesOf(
  arrays: ArraySpaceOfDesigns | RecurrentSpace,
  { name }: Intrinsic,
  every: boolean,
  slowest: number,
): SearchSpace<ArrayCandidate> {
  const wrap = (schedule: ArraySchedule): ArrayCandidate => ({ kind: "lanes", intrinsic: name, schedule });
  return {
    size: arrays.size,
    promising: firstOf(arrays.all(), MOST_PROMISING).map(wrap),
    representatives: every && "designs" in arrays ? representativesOf(arrays, slowest).map(wrap) : [],
    key: candidateKey,
    random: (random) => wrap(arrays.random(random)),
    mutate: (c, random) => wrap(arrays.mutate(c.schedule, random)),
    crossover: (a, b, random) => wrap(arrays.crossover(a.schedule, b.schedule, random)),
    *all() {
      for (const schedule of arrays.all()) yield wrap(schedule);
    },
    codeSize: (c) => arrays.codeSize?.(c.schedule) ?? 0,
  };
}

/** The best schedule of each dataflow that is not expected to be hopeless. */
function representativesOf(arrays: ArraySpaceOfDesigns, slowest: number): ArraySchedule[] {
  const best = arrays.bestOfEach();
  const limit = slowest * (best[0]?.seconds ?? 0);
  return best.filter((r) => r.seconds <= limit).map((r) => r.schedule);
}

function firstOf<T>(all: Iterable<T>, count: number): T[] {
  const first: T[] = [];
  for (const one of all) if (first.push(one) === count) break;
  return first;
}

/** The kernel of a design given by its transform. @throws UsageError when the design does not fit the computation */
export function generateArray(computation: Computation, candidate: ArrayCandidate): Kernel {
  const { schedule, intrinsic: name } = candidate;
  const intrinsic = declaredAs(name);
  const refuse = (because: string): UsageError =>
    new UsageError(`${computation.name} does not run on lanes so: ${because}`);
  const onWarps = intrinsic.language === "cuda";
  if (!onWarps && intrinsic.language !== "c++") throw refuse(`no arrays are written in ${intrinsic.language}`);
  if (!onWarps && schedule.warps !== undefined) throw refuse("warps of a block are of a GPU");
  const head = (design: string): SourceNotes => ({
    lines: [
      `design    ${design}: ${placeText(candidate)}`,
      `schedule  ${scheduleText(candidate)}`,
      `made by   automap ${VERSION}`,
    ],
  });
  if (refersToItself(computation)) {
    if (onWarps || registersOf(intrinsic) !== ZMM)
      throw refuse("results that refer to themselves run on lanes of AVX-512");
    const form = recurrentUnder(computation, schedule);
    if (!isForm(form)) throw refuse(form.because);
    const nest = lowerRecurrent(form, schedule);
    return generateLanes("c++", computation, nest, head(form.form));
  }
  checkLanes(computation, schedule.lanes, intrinsic);
  const unfit = onWarps ? unheldType(computation) : vectorProblem(computation);
  if (unfit) throw refuse(unfit.because);
  if (onWarps) return generateOnWarps(computation, candidate, intrinsic, head, refuse);
  if (schedule.streaming && Object.values(computation.tensors).some((t) => bytesOf(t.dtype) < 4))
    throw refuse("of types narrower than 32 bits nothing is stored around the caches");
  const words = leastLaneBytes(registersOf(intrinsic)) === 2;
  if (words && !wordTypeOf(computation)) throw refuse(`${name} adds 16 bits, and not all tensors are of one such type`);
  const placed = placeArray(computation, schedule);
  if (!placed.ok) throw refuse(placed.refusal.because);
  if (placed.array.dot && registersOf(intrinsic) !== ZMM) throw refuse("dot products of lanes are of AVX-512");
  const nest = lowerPlaced(computation, placed.array, schedule.inputs, words);
  const dot = usesDots(nest) ? placed.array.dot : undefined;
  const long = tooLongToWrite(nest);
  if (long !== undefined) throw refuse(long);
  const { dataflow, flows } = placed.array.design;
  return generateLanes("c++", computation, nest, head(dataflow), {
    streaming: schedule.streaming,
    vectors: x86Vectors(registersOf(intrinsic)),
    dots: dot !== undefined,
    ...(!isSummedAcross(flows) && { multiplyAdd: dot?.mnemonic ?? intrinsic.mnemonic }),
  });
}

/** The kernel of a design on the lanes of warps, or of equal parts of them. */
function generateOnWarps(
  computation: Computation,
  { schedule }: ArrayCandidate,
  { mnemonic }: Intrinsic,
  head: (design: string) => SourceNotes,
  refuse: (because: string) => UsageError,
): Kernel {
  const { lanes, warps, inputs } = schedule;
  if (WARP % lanes !== 0) throw refuse(`a warp of ${WARP} lanes is not divided into parts of ${lanes}`);
  if (schedule.streaming) throw refuse("warps have no stores around the caches");
  if (inputs === "dots") throw refuse("dot products of lanes are of AVX-512");
  const placed = placeArray(computation, schedule);
  if (!placed.ok) throw refuse(placed.refusal.because);
  const { design } = placed.array;
  const nest = lowerPlaced(computation, placed.array, inputs, false, "guarded");
  return generateLanes("cuda", computation, nest, head(design.dataflow), {
    group: lanes,
    ...(warps !== undefined && { warps }),
    ...(!isSummedAcross(design.flows) && { multiplyAdd: mnemonic }),
  });
}

/** Whether sums are formed across lanes, which takes plain multiplies and no multiply-add. */
const isSummedAcross = (flows: Design["flows"]): boolean => flows.some((f) => f.letter === "A");
