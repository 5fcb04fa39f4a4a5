/**
 * @file Convolutions by Winograd's transforms as a session's search sees them: one kernel, on the cores of a processor.
 *
 *     WINOGRAD_KIND.kernelOf(conv2d, { kind: "winograd", intrinsic: "avx512.fma.f32.broadcast", schedule }, machine, {}).source
 */

import type { WinogradCandidate, WinogradSchedule } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { internal, UsageError } from "../../abstraction/error.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { convolutionOf, type WinogradTransform } from "../../abstraction/winograd.ts";
import { generateCpp } from "../../codegen/cpp/cpp.ts";
import { lowerWinograd, scheduleOfProducts, type WinogradForm } from "../../mapper/lower/winograd.ts";
import { allSchedules, problemIn } from "../../mapper/schedule/schedules.ts";
import {
  formUnder,
  WINOGRAD,
  type WinogradContext,
  winogradContext,
} from "../../mapper/schedule/winograd-decisions.ts";
import { transformSeconds } from "../../perfmodel/loops.ts";
import { type ModelTarget, modelTarget } from "../../perfmodel/target.ts";
import { scheduleText } from "../../report/describe-candidate.ts";
import { isGpu } from "../../targets/index.ts";
import { declaredAs } from "../package/declared.ts";
import { learntFactor, predictionOf } from "../tune/learner.ts";
import { type Predictor, predictorFor } from "../tune/predict.ts";
import { MADE_BY } from "../version.ts";
import { listedSpaceOf } from "./plain-loops.ts";
import type { SessionKind } from "./session-space.ts";

export const WINOGRAD_KIND: SessionKind<WinogradCandidate> = {
  kind: "winograd",
  family: "form",
  isFor: (computation, machine) => !isGpu(machine) && convolutionOf(computation) !== undefined,
  *spaceOf({ computation, intrinsics, threads, machine, calibration }) {
    const target = modelTarget(machine, calibration);
    const contexts = intrinsics.flatMap((intrinsic) => {
      const context = winogradContext(computation, intrinsic, threads, ownBytes(target));
      return intrinsic.language === "c++" && typeof context !== "string" ? [context] : [];
    });
    const all = contexts.flatMap((context) =>
      [...allSchedules(WINOGRAD, context)].map(
        (schedule): WinogradCandidate => ({ kind: "winograd", intrinsic: context.intrinsic.name, schedule }),
      ),
    );
    if (all.length === 0) return [{ rule: "form", because: "no instruction multiplies its windows with its filters" }];
    const predictor = predictorFor(calibration, machine);
    const contextOf = ({ intrinsic }: WinogradCandidate): WinogradContext =>
      contexts.find((c) => c.intrinsic.name === intrinsic) ?? internal(`${intrinsic} is not of this space`);
    return {
      kind: "winograd",
      space: listedSpaceOf(all),
      intrinsics: contexts.map(({ intrinsic }) => intrinsic),
      model: learntFactor((c) => secondsOf(contextOf(c), c.schedule, predictor, target)),
      kernelOf: (c) => kernelIn(contextOf(c), c),
    };
  },
  kernelOf: (computation, candidate) =>
    kernelIn(contextFor(computation, declaredAs(candidate.intrinsic), candidate), candidate),
  predict: (computation, candidate, { machine, calibration }) => {
    const context = contextFor(computation, declaredAs(candidate.intrinsic), candidate);
    const target = modelTarget(machine, calibration);
    return predictionOf(secondsOf(context, candidate.schedule, predictorFor(calibration, machine), target));
  },
};

/** Bytes of the caches that one core has for itself. */
const ownBytes = ({ memory }: ModelTarget): number | undefined => memory[1]?.bytes;

function contextFor(computation: Computation, intrinsic: Intrinsic, { schedule }: WinogradCandidate): WinogradContext {
  const context = winogradContext(computation, intrinsic, schedule.threads);
  if (typeof context === "string")
    throw new UsageError(`${computation.name} has no form by Winograd's transforms: ${context}`);
  return context;
}

function formOf(context: WinogradContext, schedule: WinogradSchedule): WinogradForm {
  const form = formUnder(context, schedule);
  const because = typeof form === "string" ? form : problemIn(WINOGRAD, context, schedule);
  if (typeof form === "string" || because !== undefined)
    throw new UsageError(`the schedule does not fit ${context.computation.name} by Winograd's transforms: ${because}`);
  return form;
}

function kernelIn(context: WinogradContext, candidate: WinogradCandidate): Kernel {
  const { nest, inside } = lowerWinograd(formOf(context, candidate.schedule), candidate.schedule);
  const lines = [`schedule  ${scheduleText(candidate)}`, MADE_BY];
  return { ...generateCpp(context.computation, context.intrinsic, nest, { lines }, inside), ofForm: true };
}

/** Seconds of a call: the transforms, and the products of all blocks. */
function secondsOf(
  context: WinogradContext,
  schedule: WinogradSchedule,
  predictor: Predictor,
  target: ModelTarget,
): number {
  const form = formUnder(context, schedule);
  if (typeof form === "string") return Number.POSITIVE_INFINITY;
  const { parts, mapping } = form;
  const ofTransform = (transform: WinogradTransform): number =>
    transformSeconds(transform, context.intrinsic, schedule.threads, target);
  const block = predictor.predict(mapping, scheduleOfProducts(schedule, mapping))?.seconds ?? Number.POSITIVE_INFINITY;
  const blocks = (parts.images / schedule.images) * (parts.high / schedule.rows);
  return ofTransform(parts.windows) + ofTransform(parts.back) + (block * blocks) / schedule.threads;
}
