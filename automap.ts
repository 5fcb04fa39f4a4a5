/**
 * @file The public API: re-exports, nothing else.
 *
 *     import { instantiate, intrinsicsNamed, mappings, nativeTarget, operatorNamed, tune } from "automap";
 */

export { NestFault } from "./abstraction/blocks/fault.ts";
export { ADVERSE_ORDERS, type NestOrder } from "./abstraction/blocks/run.ts";
export type {
  Candidate,
  GridCandidate,
  GridSchedule,
  LaneCandidate,
  LaneSchedule,
  MappedCandidate,
  Placement,
  Schedule,
} from "./abstraction/candidate.ts";
export {
  type Computation,
  type ComputationSpec,
  defineComputation,
  equationText,
  outputOf,
} from "./abstraction/computation.ts";
export type { DType } from "./abstraction/dtype.ts";
export { type Equation, printEquation } from "./abstraction/equation.ts";
export { EnvironmentError, type EnvironmentProblem, UsageError } from "./abstraction/error.ts";
export { interpret } from "./abstraction/interpret.ts";
export { interpretNest } from "./abstraction/interpret-nest.ts";
export { defineIntrinsic, type Intrinsic, type IntrinsicSpec, type OperandSpec } from "./abstraction/intrinsic.ts";
export type { Kernel } from "./abstraction/kernel.ts";
export { type LoopNest, printNest } from "./abstraction/loop-nest.ts";
export type { Level, Memory, Target } from "./abstraction/machine.ts";
export { type Mapping, type Matching, printMatching, type Refusal, type Verdict } from "./abstraction/mapping.ts";
export { parseEquation, parseExpr } from "./abstraction/parse.ts";
export type { Measurement, Prediction, Trial } from "./abstraction/trial.ts";
export {
  best,
  computationOf,
  type Database,
  DatabaseError,
  type Difference,
  differencesOf,
  type Environment,
  exportLines,
  importLines,
  labelOf,
  mergeDatabase,
  openDatabase,
  POLICIES,
  pruneTrials,
  queryTrials,
  showTrial,
  type TrialFilter,
  type TrialRecord,
  type Trust,
  verifyDatabase,
} from "./db/index.ts";
export { INTRINSICS, intrinsicsNamed } from "./intrinsics/index.ts";
export { registerIntrinsic } from "./intrinsics/register.ts";
export { lowerMapping } from "./mapper/lower/plain.ts";
export { lowerSchedule } from "./mapper/lower/scheduled.ts";
export { type MappingOptions, type MappingSet, mappings } from "./mapper/match/enumerate.ts";
export { type PhysicalMapping, physicalMapping } from "./mapper/match/physical.ts";
export { plainSchedule, randomSchedule, scheduleProblem } from "./mapper/schedule/mapped.ts";
export { type ArrayPass, arrayPass, derive, recurrenceOf } from "./mapper/space-time/derive.ts";
export { type Design, designOf } from "./mapper/space-time/design.ts";
export { type DesignSet, enumerateDesigns } from "./mapper/space-time/enumerate.ts";
export { type LowerOptions, lowerDesign } from "./mapper/space-time/lower.ts";
export { paretoSet } from "./mapper/space-time/pareto.ts";
export { refusalOf, type SpaceTimeRefusal } from "./mapper/space-time/validity.ts";
export { type OperandTypes, parseDataTypes } from "./operators/data-types.ts";
export { OPERATORS, operatorNamed } from "./operators/index.ts";
export { instantiate, type Operator } from "./operators/operator.ts";
export { drawMapping, drawRefusal } from "./report/draw-mapping.ts";
export { drawMappingSvg } from "./report/draw-svg.ts";
export { reportPage } from "./report/page.ts";
export type { ReportData } from "./report/report-data.ts";
export {
  type Choice,
  type EmitOptions,
  emit,
  generate,
  predict,
  type TuneOptions,
  tune,
} from "./session/api.ts";
export { type Checked, compareBest, type Finding } from "./session/check.ts";
export type { TunedKernel } from "./session/finals.ts";
export {
  type BoundKernel,
  type KernelDescription,
  KernelError,
  type LoadOptions,
  load,
} from "./session/load.ts";
export { rankByModel } from "./session/rank.ts";
export { type Divergence, type Replay, replayRun } from "./session/replay.ts";
export { gatherReport } from "./session/report.ts";
export {
  nativeIntrinsics,
  type TuneOutcome,
} from "./session/tune.ts";
export { localGpu } from "./session/workplace.ts";
export { nativeTarget, nvidiaTarget } from "./targets/index.ts";
export type { TuneEvent, TuneStatus } from "./tuner/search.ts";
export { STRATEGIES } from "./tuner/strategies.ts";
export type { Strategy } from "./tuner/strategy.ts";
