/**
 * @file The public API: re-exports, nothing else.
 *
 *     import { instantiate, intrinsicsNamed, mappings, nativeTarget, operatorNamed, tune } from "automap";
 */

export type { Extents } from "./abstraction/affine.ts";
export { type FaultKind, NestFault } from "./abstraction/blocks/fault.ts";
export { ADVERSE_ORDERS, type NestOrder } from "./abstraction/blocks/run.ts";
export type {
  ArrayPlan,
  Candidate,
  CandidateKinds,
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
} from "./abstraction/candidate.ts";
export {
  type Axis,
  type Computation,
  type ComputationSpec,
  defineComputation,
  equationText,
  outputOf,
  type Tensor,
  type TensorSpec,
} from "./abstraction/computation.ts";
export type { DType } from "./abstraction/dtype.ts";
export type { Epilogue } from "./abstraction/epilogue.ts";
export { type Equation, printEquation } from "./abstraction/equation.ts";
export { EnvironmentError, type EnvironmentProblem, type Span, UsageError } from "./abstraction/error.ts";
export type { Values } from "./abstraction/evaluate.ts";
export type { Access, Expr } from "./abstraction/expression.ts";
export { type Inputs, interpret } from "./abstraction/interpret.ts";
export { interpretNest } from "./abstraction/interpret-nest.ts";
export {
  type AsynchronousSpec,
  type Cost,
  defineIntrinsic,
  type ExecutionScope,
  type Intrinsic,
  type IntrinsicSpec,
  type Language,
  type Operand,
  type OperandSpec,
} from "./abstraction/intrinsic.ts";
export { KERNEL_LANGUAGES, type Kernel, type KernelArgument, type KernelLanguage } from "./abstraction/kernel.ts";
export type { Dimension } from "./abstraction/layout.ts";
export type { LoopNest } from "./abstraction/loop-nest.ts";
export type { Level, Memory, Target } from "./abstraction/machine.ts";
export {
  type Binding,
  type Mapping,
  type Matching,
  printMatching,
  type Refusal,
  type Verdict,
  type Witness,
} from "./abstraction/mapping.ts";
export { parseEquation, parseExpr } from "./abstraction/parse.ts";
export { printNest } from "./abstraction/print-nest.ts";
export { type Random, seededRandom } from "./abstraction/random.ts";
export type { Recurrence, SpaceTime } from "./abstraction/recurrence.ts";
export type { Step } from "./abstraction/steps.ts";
export type { LevelCost, Measurement, Prediction, Surroundings, Trial } from "./abstraction/trial.ts";
export {
  type BestOptions,
  best,
  type Conditions,
  computationOf,
  type Database,
  DatabaseError,
  type Difference,
  differencesOf,
  type Environment,
  type EnvironmentRecord,
  exportLines,
  type Filter,
  type Finals,
  type ImportOptions,
  type ImportReport,
  importLines,
  labelOf,
  mergeDatabase,
  type OpenOptions,
  openDatabase,
  POLICIES,
  type Policy,
  type Provenance,
  type PruneOptions,
  pruneTrials,
  queryTrials,
  type Range,
  type Rejection,
  type RunRecord,
  showTrial,
  type TrialFilter,
  type TrialRecord,
  type Trust,
  type VerifyReport,
  verifyDatabase,
  type WorkloadRecord,
  type World,
} from "./db/index.ts";
export { INTRINSICS, intrinsicsNamed } from "./intrinsics/index.ts";
export { registerIntrinsic } from "./intrinsics/register.ts";
export { lowerMapping } from "./mapper/lower/plain.ts";
export { lowerSchedule } from "./mapper/lower/scheduled.ts";
export { type MappingOptions, type MappingSet, mappings } from "./mapper/match/enumerate.ts";
export { type FusedAxis, type OperandAddress, type PhysicalMapping, physicalMapping } from "./mapper/match/physical.ts";
export type { EnumerationRule } from "./mapper/match/validate.ts";
export { plainSchedule, randomSchedule, scheduleProblem } from "./mapper/schedule/mapped.ts";
export { type ArrayPass, arrayPass, derive, recurrenceOf } from "./mapper/space-time/derive.ts";
export { type Design, designOf, type OperandFlow } from "./mapper/space-time/design.ts";
export {
  type DesignOptions,
  type DesignSet,
  enumerateDesigns,
  type ListedDesign,
} from "./mapper/space-time/enumerate.ts";
export type { ArrayLoopOptions } from "./mapper/space-time/loops.ts";
export { type LowerOptions, lowerDesign } from "./mapper/space-time/lower.ts";
export { paretoSet } from "./mapper/space-time/pareto.ts";
export type { ArrayProblem } from "./mapper/space-time/problem.ts";
export type { ReverseDefinition } from "./mapper/space-time/reverse.ts";
export { refusalOf, type SpaceTimeRefusal } from "./mapper/space-time/validity.ts";
export type { Vector } from "./mapper/space-time/vector.ts";
export { type OperandTypes, parseDataTypes } from "./operators/data-types.ts";
export { OPERATORS, operatorNamed } from "./operators/index.ts";
export { type InstantiateOptions, instantiate, type Operator, type Parameter } from "./operators/operator.ts";
export type { NumberArray, ParameterDescription } from "./package/index.ts";
export type { BindNetworkOptions, BoundNetwork, NetworkArray, NetworkTensor } from "./package/network/index.ts";
export type { Calibration } from "./perfmodel/calibrate.ts";
export { type RooflinePlace, rooflineOn } from "./perfmodel/roofline.ts";
export { drawMapping, drawRefusal } from "./report/draw-mapping.ts";
export { drawMappingSvg } from "./report/draw-svg.ts";
export { reportPage } from "./report/page.ts";
export type { ReportData } from "./report/report-data.ts";
export type { Compiler } from "./runtime/compiler.ts";
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
export { nativeIntrinsics } from "./session/choose.ts";
export type { TunedKernel } from "./session/finals.ts";
export { type JudgeKernelOptions, judgeKernel } from "./session/judge-kernel.ts";
export {
  candidateInLanguage,
  designInLanguage,
  type InLanguage,
  kernelInLanguage,
  type NotInLanguage,
} from "./session/languages.ts";
export {
  type BoundKernel,
  type KernelDescription,
  KernelError,
  type LoadOptions,
  load,
} from "./session/load.ts";
export { type LoadNetworkOptions, loadNetwork } from "./session/load-network.ts";
export {
  type Expected,
  type RankInTimeOptions,
  type Ranking,
  type RankOptions,
  rankByModel,
  rankByModelInTime,
} from "./session/rank.ts";
export { type Divergence, type Replay, replayRun } from "./session/replay.ts";
export { gatherReport, type ReportFilter } from "./session/report.ts";
export type { Reason } from "./session/session-space.ts";
export type { TuneOutcome } from "./session/tune.ts";
export { localGpu } from "./session/workplace.ts";
export { nativeTarget, nvidiaTarget, predictedGpuNamed } from "./targets/index.ts";
export type { TuneEvent, TunePhase, TuneStatus } from "./tuner/search.ts";
export type { SearchSpace } from "./tuner/space.ts";
export { STRATEGIES } from "./tuner/strategies.ts";
export {
  defineStrategy,
  type Option,
  type OptionTable,
  type OptionValues,
  type Search,
  type Strategy,
} from "./tuner/strategy.ts";
export type { TrialOf } from "./tuner/trials.ts";
