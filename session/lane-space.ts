/** @file Lane designs as a session's search sees them, on a CPU's vectors or a GPU's warps: candidates, and a predictor that learns. */

import {
  type Candidate,
  candidateKey,
  isArray,
  type LaneCandidate,
  type LaneSchedule,
} from "../abstraction/candidate.ts";
import { type Computation, extentsOf, outputOf } from "../abstraction/computation.ts";
import { bytesOf, type DType, isInteger } from "../abstraction/dtype.ts";
import { partsOf } from "../abstraction/epilogue.ts";
import { UsageError } from "../abstraction/error.ts";
import { accessesIn, axesIn, type Expr } from "../abstraction/expression.ts";
import { type Intrinsic, WARP } from "../abstraction/intrinsic.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import type { Prediction } from "../abstraction/trial.ts";
import { generateLanes } from "../codegen/lanes.ts";
import { x86Vectors } from "../codegen/x86-vectors.ts";
import { avx2Vpmulld, avx2Vpmullw } from "../intrinsics/avx2.ts";
import { avx512Vpmulld, avx512Vpmullw } from "../intrinsics/avx512.ts";
import { cudaFmaF16 } from "../intrinsics/cuda.ts";
import { laneScheduleProblem } from "../mapper/schedule/lanes.ts";
import { vectorProblem } from "../mapper/space-time/lane-values.ts";
import { lowerSteps } from "../mapper/space-time/lower-steps.ts";
import { lowerLanes } from "../mapper/space-time/lower-window.ts";
import { isSteps, stepProblem, stepsOf } from "../mapper/space-time/steps.ts";
import { type LaneRefusal, tapsOf } from "../mapper/space-time/taps.ts";
import { residentWarps, warpTile } from "../mapper/space-time/warp-tile.ts";
import { commonFactor } from "../perfmodel/correct.ts";
import { placeText, scheduleText } from "../report/describe-candidate.ts";
import { leastLaneBytes, type VectorRegisters, YMM, YMM_WORDS, ZMM, ZMM_WORDS } from "../targets/x86.ts";
import { type LaneSpace, type LaneSpaceOptions, laneSpace } from "../tuner/lane-candidates.ts";
import type { SearchSpace } from "../tuner/space.ts";
import { stepSpace } from "../tuner/step-candidates.ts";
import type { TrialOf } from "../tuner/trials.ts";
import { declaredAs } from "./declared.ts";
import { VERSION } from "./version.ts";

/** The schedules of a window, or of time steps, on the vectors of a CPU; or why there are none. */
export function vectorSpace(computation: Computation, options: LaneSpaceOptions): LaneSpace | LaneRefusal {
  if (!computation.time) return laneSpace(computation, options);
  return vectorProblem(computation) ?? stepSpace(computation, options);
}

/** A prediction for lanes, separate from that of mappings and scaled by what was measured on lanes. */
export function scaledEstimate(lanes: LaneSpace | undefined): {
  readonly predict: (schedule: LaneSchedule) => Prediction | undefined;
  readonly learn: (trials: readonly TrialOf<Candidate>[]) => void;
} {
  let scale = 1;
  return {
    predict: (schedule) => {
      const seconds = lanes?.expectedSeconds(schedule);
      return seconds === undefined ? undefined : { seconds: seconds * scale, uncorrectedSeconds: seconds, levels: [] };
    },
    learn: (trials) => {
      const ratios = trials.flatMap(({ candidate, measurement }) =>
        candidate.kind === "lanes" && !isArray(candidate) && measurement.status === "ok" && lanes
          ? [measurement.median / lanes.expectedSeconds(candidate.schedule)]
          : [],
      );
      scale = commonFactor(ratios);
    },
  };
}

export function laneCandidates(lanes: LaneSpace, { name }: Intrinsic): SearchSpace<LaneCandidate> {
  const wrap = (schedule: LaneSchedule): LaneCandidate => ({ kind: "lanes", intrinsic: name, schedule });
  return {
    size: lanes.size,
    key: candidateKey,
    random: (random) => wrap(lanes.random(random)),
    mutate: (c, random) => wrap(lanes.mutate(c.schedule, random)),
    crossover: (a, b, random) => wrap(lanes.crossover(a.schedule, b.schedule, random)),
    *all() {
      for (const schedule of lanes.all()) yield wrap(schedule);
    },
    codeSize: (c) => lanes.codeSize?.(c.schedule) ?? 0,
  };
}

/**
 * Whether some input is read through a sliding window: by an index that adds a summed axis to a kept one, or, for time steps, through
 * neighbouring planes.
 */
export function slides({ equation, axes, time }: Computation): boolean {
  if (time) return true;
  const moving = axes.filter((a) => a.extent > 1);
  const adds = (index: Expr): boolean => {
    const used = new Set(axesIn(index));
    return ["spatial", "reduce"].every((kind) => moving.some((a) => a.kind === kind && used.has(a.name)));
  };
  return accessesIn(equation.value).some((a) => a.index.some(adds));
}

/** The float multiply-add that lanes use: AVX-512's where it can be chosen, else AVX2's. */
export function floatLanes(dtype: DType, intrinsics: readonly Intrinsic[]): Intrinsic | undefined {
  const named = (name: string): Intrinsic | undefined => intrinsics.find((i) => i.name === `${name}.fma.${dtype}`);
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
  const found = intrinsics.find((i) => i.name === `cuda.fma.${dtype === "f16" ? "f32" : dtype}`);
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

/** The kernel of a lane design. @throws UsageError when the design does not fit the computation */
export function generateDesign(computation: Computation, candidate: LaneCandidate): Kernel {
  const { schedule, intrinsic: name } = candidate;
  const intrinsic = declaredAs(name);
  const onWarps = intrinsic.language === "cuda";
  const refusal = laneProblem(computation, schedule) ?? (onWarps ? undefined : vectorProblem(computation));
  if (refusal) throw new UsageError(`${computation.name} does not run on lanes so: ${refusal.because}`);
  checkLanes(computation, schedule.lanes, intrinsic);
  const width = registersOf(intrinsic).bytes / bytesOf(outputOf(computation).dtype);
  if (schedule.lines !== undefined && schedule.lanes !== width)
    throw new UsageError(
      `${computation.name}: lines are whole registers, of ${width} lanes, and the schedule has ${schedule.lanes}`,
    );
  if (!onWarps && (schedule.warps !== undefined || schedule.prefetchSteps !== undefined))
    throw new UsageError(
      `${computation.name}: warps of a block and rows fetched ahead are of a GPU; leave them out on a CPU`,
    );
  if (!onWarps && (schedule.each ?? 1) > 1)
    throw new UsageError(
      `${computation.name}: ${schedule.each} outputs a lane, which only threads of a GPU have; leave each out on a CPU`,
    );
  if (computation.time && onWarps !== (schedule.borders === "guarded"))
    throw new UsageError(
      `${computation.name}: steps in time have borders peeled on the vectors of a CPU and guarded on the warps of a GPU, not ${schedule.borders} on ${intrinsic.name}`,
    );
  const notes = [
    `design    ${placeText(candidate)}`,
    `schedule  ${scheduleText(candidate)}`,
    `made by   automap ${VERSION}`,
  ];
  // A time step, and a window of one tap, may contain no product and sum that a multiply-add computes.
  const isPromised = !computation.time && tapsIn(computation, schedule) > 1;
  return generateLanes(
    onWarps ? "cuda" : "c++",
    computation,
    computation.time ? lowerSteps(computation, schedule) : lowerLanes(computation, schedule),
    { lines: notes },
    {
      streaming: schedule.streaming,
      vectors: x86Vectors(registersOf(intrinsic)),
      ...(onWarps && computation.time && residentOf(computation, schedule)),
      ...(onWarps && schedule.warps !== undefined && { warps: schedule.warps }),
      ...(isPromised && { multiplyAdd: intrinsic.mnemonic }),
    },
  );
}

/**
 * Resident warps for which the registers of time steps leave room. Without this limit, ptxas 13.0 held some kernels to 80 or 128 registers to
 * fit more warps, and spilled a few bytes.
 */
function residentOf(computation: Computation, schedule: LaneSchedule): { readonly resident: number } | undefined {
  const steps = stepsOf(computation);
  if (!isSteps(steps)) return undefined;
  return { resident: residentWarps(warpTile(steps, schedule), bytesOf(outputOf(computation).dtype)) };
}

/** The number of taps of a window, those of loops that are kept included. */
function tapsIn(computation: Computation, { rolled }: LaneSchedule): number {
  const verdict = tapsOf(computation, rolled);
  const extents = extentsOf(computation);
  return verdict.ok ? rolled.reduce((n, name) => n * (extents[name] ?? 1), verdict.sum.taps.length) : 0;
}

/** Why a schedule cannot compute it. */
function laneProblem(computation: Computation, schedule: LaneSchedule): LaneRefusal | undefined {
  if (computation.time) {
    const steps = stepsOf(computation);
    return isSteps(steps) ? stepProblem(steps, schedule) : steps;
  }
  const verdict = tapsOf(computation, schedule.rolled);
  return verdict.ok ? laneScheduleProblem(verdict.sum, schedule) : verdict.refusal;
}
