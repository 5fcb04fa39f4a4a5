/**
 * @file The entry automap/internals: programs before they are printed, schedules and candidates kind by kind, and the judges.
 *
 *     import { interpretNest, lowerMapping, printNest } from "automap/internals";
 *
 * @module automap/internals
 */

export { type FaultKind, NestFault } from "../abstraction/blocks/fault.ts";
export { ADVERSE_ORDERS, type NestOrder } from "../abstraction/blocks/run.ts";
export type {
  ArrayPlan,
  DesignCandidate,
  DesignSchedule,
  GridCandidate,
  GridSchedule,
  Kind,
  LaneCandidate,
  LaneTransform,
  MappedCandidate,
  Placement,
  RecurrenceCandidate,
  RecurrenceSchedule,
  Schedule,
  StepCandidate,
  StepSchedule,
  ThreadCandidate,
  WarpDesignCandidate,
  WarpDesignSchedule,
  WarpStepCandidate,
  WarpStepSchedule,
  WarpWindowCandidate,
  WarpWindowSchedule,
  WindowBlock,
  WindowCandidate,
  WindowSchedule,
} from "../abstraction/candidate.ts";
export { interpretNest } from "../abstraction/interpret-nest.ts";
export type { LoopNest } from "../abstraction/loop-nest.ts";
export { parseEquation, parseExpr } from "../abstraction/parse.ts";
export { printNest } from "../abstraction/print-nest.ts";
export { seededRandom } from "../abstraction/random.ts";
export type { Step } from "../abstraction/steps.ts";
export { lowerMapping } from "../mapper/lower/plain.ts";
export { lowerSchedule } from "../mapper/lower/scheduled.ts";
export {
  type FusedAxis,
  type OperandAddress,
  type PhysicalMapping,
  physicalMapping,
} from "../mapper/match/physical.ts";
export { plainSchedule, randomSchedule, scheduleProblem } from "../mapper/schedule/mapped.ts";
export type { Calibration } from "../perfmodel/calibrate.ts";
export { type RooflinePlace, rooflineOn } from "../perfmodel/roofline.ts";
export { type JudgeKernelOptions, judgeKernel } from "../session/judge/judge-kernel.ts";
export { candidateInLanguage } from "../session/kinds/languages.ts";
export { type RankInTimeOptions, rankByModelInTime } from "../session/tune/rank.ts";
