/**
 * @file Designs on lanes given by their transforms, and results that refer to themselves, as a session's search sees them.
 *
 *     const found = finished(DESIGN_KIND.spaceOf(search, []));      candidates, a model that learns, and kernels; or why there are none
 */

import type {
  ArrayPlan,
  DesignCandidate,
  LaneCandidate,
  RecurrenceCandidate,
  WarpDesignCandidate,
} from "../../abstraction/candidate.ts";
import { withName } from "../../abstraction/collections.ts";
import { type Computation, outputOf } from "../../abstraction/computation.ts";
import { isRecurrent } from "../../abstraction/dependence.ts";
import { bytesOf, isInteger } from "../../abstraction/dtype.ts";
import { partsOf } from "../../abstraction/epilogue.ts";
import type { UsageError } from "../../abstraction/error.ts";
import { type Intrinsic, WARP } from "../../abstraction/intrinsic.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { x86Vectors } from "../../codegen/cpp/x86-vectors.ts";
import { generateLanes } from "../../codegen/lanes.ts";
import { cudaMadS32 } from "../../intrinsics/cuda.ts";
import type { Design } from "../../mapper/space-time/design.ts";
import { usesDots } from "../../mapper/space-time/dots.ts";
import { placeArray } from "../../mapper/space-time/lane-array.ts";
import { unheldType, vectorProblem } from "../../mapper/space-time/lane-values.ts";
import { wordTypeOf } from "../../mapper/space-time/lower.ts";
import { lowerPlaced } from "../../mapper/space-time/lower-array.ts";
import { lowerRecurrent } from "../../mapper/space-time/lower-recurrent.ts";
import { isForm, recurrentUnder } from "../../mapper/space-time/recurrent.ts";
import { tooLongToWrite } from "../../mapper/space-time/written-length.ts";
import { secondsOnWarps } from "../../perfmodel/nests-on-warps.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import { vectorSeconds } from "../../perfmodel/vectors.ts";
import { isGpu } from "../../targets/index.ts";
import { leastLaneBytes, YMM, ZMM } from "../../targets/x86.ts";
import { DOT_FEATURE } from "../../targets/x86-dots.ts";
import { type ArraySpaceOfDesigns, arraySpaceOf } from "../../tuner/array-candidates.ts";
import { recurrentSpace } from "../../tuner/recurrent-candidates.ts";
import { warpArraySpace } from "../../tuner/warp-array-candidates.ts";
import { declaredAs } from "../package/declared.ts";
import { predictionOf } from "../tune/learner.ts";
import type { KindSpace, Reason, SessionKind } from "./session-space.ts";
import {
  checkLanes,
  floatLanes,
  laneCandidates,
  laneNotes,
  multiplyAddIn,
  NO_MULTIPLY_ADD,
  refusedOnLanes,
  registersOf,
  windowLanes,
} from "./window-kinds.ts";

/** Number of schedules a search begins with. */
const MOST_PROMISING = 16;

/** Designs on the vectors of a CPU. */
export const DESIGN_KIND: SessionKind<DesignCandidate> = {
  kind: "design",
  family: "design",
  isFor: (computation, machine) => !isGpu(machine) && !computation.time && !isRecurrent(computation.equation),
  *spaceOf({ computation, intrinsics, kinds, threads, machine, calibration }) {
    const intrinsic = multiplyAddOf(computation, intrinsics);
    if (!intrinsic) return refused(NO_MULTIPLY_ADD);
    const problem = vectorProblem(computation);
    if (problem) return refused(problem.because);
    const every = kinds === "lanes";
    const arrays = yield* arraySpaceOf(computation, {
      vectors: registersOf(intrinsic),
      hasDots: intrinsics.some((i) => i.isa === DOT_FEATURE),
      threads,
      target: modelTarget(machine, calibration),
      ...(every ? {} : { mixed: 2 }),
    });
    if ("rule" in arrays) return refused(arrays.because);
    const found = laneCandidates<DesignCandidate>("design", intrinsic, arrays, (c) => generateDesign(computation, c));
    return begun(found, every ? representativesOf(arrays) : []);
  },
  kernelOf: generateDesign,
  predict: (computation, { intrinsic, schedule }, { machine, calibration }) => {
    const placed = placeArray(computation, schedule);
    if (!placed.ok) return undefined;
    const vectors = registersOf(declaredAs(intrinsic));
    const target = modelTarget(machine, calibration);
    const nest = lowerPlaced(computation, placed.array, schedule.inputs, leastLaneBytes(vectors) === 2);
    return predictionOf(vectorSeconds(nest, computation, { ...schedule, target, vectors }));
  },
};

/** Designs on the lanes of warps. */
export const WARP_DESIGN_KIND: SessionKind<WarpDesignCandidate> = {
  kind: "warp-design",
  family: "design",
  isFor: (computation, machine) => isGpu(machine) && !computation.time,
  *spaceOf({ computation, intrinsics, kinds, machine }, before) {
    const intrinsic = warpMultiplyAddOf(computation, intrinsics);
    if (!intrinsic) return refused(NO_MULTIPLY_ADD);
    if (isRecurrent(computation.equation)) return refused(ON_AVX512);
    const unheld = unheldType(computation);
    if (unheld) return refused(unheld.because);
    const every = kinds === "lanes";
    const window = before.find(({ kind }) => kind === "warp-window")?.best?.seconds;
    // Beside a window, transforms that mix three loops were never the best, and enumerating them takes a second.
    const arrays = yield* warpArraySpace(computation, machine, every && window === undefined ? undefined : 2);
    if ("rule" in arrays) return refused(arrays.because);
    const [best] = arrays.all();
    if (best && window !== undefined && arrays.expectedSeconds(best) > SLOWEST_BESIDE_WINDOWS * window)
      return refused("design: a window is expected to be faster");
    const found = laneCandidates<WarpDesignCandidate>("warp-design", intrinsic, arrays, (c) =>
      generateWarpDesign(computation, c),
    );
    return begun(found, every ? representativesOf(arrays, SLOWEST_ON_WARPS) : []);
  },
  kernelOf: generateWarpDesign,
  predict: (computation, { schedule }, { machine }) => {
    const placed = placeArray(computation, schedule);
    if (!placed.ok) return undefined;
    const nest = lowerPlaced(computation, placed.array, schedule.inputs, false, schedule);
    return predictionOf(secondsOnWarps(nest, computation, schedule, machine));
  },
};

/** Results that refer to themselves. Time steps do too, but have designs of their own. */
export const RECURRENCE_KIND: SessionKind<RecurrenceCandidate> = {
  kind: "recurrence",
  family: "design",
  isFor: (computation, machine) => !isGpu(machine) && !computation.time && isRecurrent(computation.equation),
  *spaceOf({ computation, intrinsics, threads, machine, calibration }) {
    const intrinsic = multiplyAddOf(computation, intrinsics);
    if (!intrinsic) return refused(NO_MULTIPLY_ADD);
    if (registersOf(intrinsic) !== ZMM) return refused(ON_AVX512);
    const space = recurrentSpace(computation, { threads, target: modelTarget(machine, calibration) });
    if ("rule" in space) return refused(space.because);
    return begun(
      laneCandidates<RecurrenceCandidate>("recurrence", intrinsic, space, (c) => generateRecurrence(computation, c)),
      [],
    );
  },
  kernelOf: generateRecurrence,
  predict: (computation, { schedule }, { machine, calibration }) => {
    const form = recurrentUnder(computation, schedule);
    if (!isForm(form)) return undefined;
    const { threads } = schedule;
    const on = { threads, target: modelTarget(machine, calibration) };
    return predictionOf(vectorSeconds(lowerRecurrent(form, schedule), computation, on));
  },
};

const refused = (because: string): Reason[] => [{ rule: "lanes", because }];

const ON_AVX512 = "design: results that refer to themselves run on lanes of AVX-512 so far";

/** The space with the schedules that a search begins with: its first, and one of each dataflow. */
function begun<K extends LaneCandidate>(found: KindSpace<K>, representatives: readonly K["schedule"][]): KindSpace<K> {
  const [intrinsic] = found.intrinsics;
  const { space, kind } = found;
  const promising = firstOf(space.all(), MOST_PROMISING);
  const own = representatives.map((schedule) => ({ kind, intrinsic: intrinsic?.name, schedule }) as K); // of this space
  return { ...found, space: { ...space, promising, representatives: own } };
}

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

/**
 * Beside a window that is expected to take a part of their time, transforms are left out. With 16 channels and more they were 1.7 times as fast as
 * windows that were expected to be faster by 1.65; filters of 5 and 9 and 3d13pt took 1.3, 3 and 2 times as long as their windows (an H100, 2026-11-24).
 */
const SLOWEST_BESIDE_WINDOWS = 1.7;

/** On a GPU, dataflows of partial results across lanes are expected to take ten times as long as the best, and each takes seconds to compile. */
const SLOWEST_ON_WARPS = 3;

/** The multiply-add of the lanes of a warp: elements are widened to 32 bits. */
export function warpMultiplyAddOf(computation: Computation, intrinsics: readonly Intrinsic[]): Intrinsic | undefined {
  const { dtype } = outputOf(partsOf(computation).sum);
  const f32 = withName(intrinsics, "cuda.fma.f32");
  // The integer multiply-add is in no table, and is offered where that of f32 is.
  if (isInteger(dtype)) return f32 && cudaMadS32;
  return dtype === "f64" ? withName(intrinsics, "cuda.fma.f64") : f32;
}

function firstOf<T>(all: Iterable<T>, count: number): T[] {
  const first: T[] = [];
  for (const one of all) if (first.push(one) === count) break;
  return first;
}

/**
 * The best schedule of each dataflow that is not expected to be hopeless.
 * @param slowest times of the best prediction that a dataflow may take and be measured first
 */
function representativesOf<S extends ArrayPlan>(
  arrays: ArraySpaceOfDesigns<S>,
  slowest = Number.POSITIVE_INFINITY,
): S[] {
  const best = arrays.bestOfEach();
  const limit = slowest * (best[0]?.seconds ?? 0);
  return best.filter((r) => r.seconds <= limit).map((r) => r.schedule);
}

/** @throws UsageError when the design does not fit the computation */
function generateDesign(computation: Computation, candidate: DesignCandidate): Kernel {
  const { schedule } = candidate;
  const intrinsic = multiplyAddIn(computation, candidate);
  const refuse = (because: string): UsageError => refusedOnLanes(computation, because);
  checkLanes(computation, schedule.lanes, intrinsic);
  const unfit = vectorProblem(computation);
  if (unfit) throw refuse(unfit.because);
  if (schedule.streaming && Object.values(computation.tensors).some((t) => bytesOf(t.dtype) < 4))
    throw refuse("of types narrower than 32 bits nothing is stored around the caches");
  const words = leastLaneBytes(registersOf(intrinsic)) === 2;
  if (words && !wordTypeOf(computation))
    throw refuse(`${intrinsic.name} adds 16 bits, and not all tensors are of one such type`);
  const placed = placeArray(computation, schedule);
  if (!placed.ok) throw refuse(placed.refusal.because);
  if (placed.array.dot && registersOf(intrinsic) !== ZMM) throw refuse("dot products of lanes are of AVX-512");
  const nest = lowerPlaced(computation, placed.array, schedule.inputs, words);
  const dot = usesDots(nest) ? placed.array.dot : undefined;
  const long = tooLongToWrite(nest);
  if (long !== undefined) throw refuse(long);
  const { dataflow, flows } = placed.array.design;
  return generateLanes("c++", computation, nest, laneNotes(candidate, `${dataflow}: `), {
    streaming: schedule.streaming,
    vectors: x86Vectors(registersOf(intrinsic)),
    dots: dot !== undefined,
    ...(!isSummedAcross(flows) && { multiplyAdd: dot?.mnemonic ?? intrinsic.mnemonic }),
  });
}

/** The kernel on the lanes of warps, or of equal parts of them. @throws UsageError when the design does not fit the computation */
function generateWarpDesign(computation: Computation, candidate: WarpDesignCandidate): Kernel {
  const { lanes, inputs } = candidate.schedule;
  const intrinsic = multiplyAddIn(computation, candidate);
  const refuse = (because: string): UsageError => refusedOnLanes(computation, because);
  if (isRecurrent(computation.equation)) throw refuse(ON_AVX512);
  checkLanes(computation, lanes, intrinsic);
  const unfit = unheldType(computation);
  if (unfit) throw refuse(unfit.because);
  if (WARP % lanes !== 0) throw refuse(`a warp of ${WARP} lanes is not divided into parts of ${lanes}`);
  if (inputs === "dots") throw refuse("dot products of lanes are of AVX-512");
  const placed = placeArray(computation, candidate.schedule);
  if (!placed.ok) throw refuse(placed.refusal.because);
  const { dataflow, flows } = placed.array.design;
  const nest = lowerPlaced(computation, placed.array, inputs, false, candidate.schedule);
  return generateLanes("cuda", computation, nest, laneNotes(candidate, `${dataflow}: `), {
    ...(!isSummedAcross(flows) && { multiplyAdd: intrinsic.mnemonic }),
  });
}

/** @throws UsageError when no form of the result is computed so */
function generateRecurrence(computation: Computation, candidate: RecurrenceCandidate): Kernel {
  const { schedule } = candidate;
  if (registersOf(multiplyAddIn(computation, candidate)) !== ZMM) throw refusedOnLanes(computation, ON_AVX512);
  const form = recurrentUnder(computation, schedule);
  if (!isForm(form)) throw refusedOnLanes(computation, form.because);
  return generateLanes("c++", computation, lowerRecurrent(form, schedule), laneNotes(candidate, `${form.form}: `));
}

/** Whether sums are formed across lanes, which takes plain multiplies and no multiply-add. */
const isSummedAcross = (flows: Design["flows"]): boolean => flows.some((f) => f.letter === "A");
