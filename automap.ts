/**
 * @file The library as users need it first: re-exports, nothing else. The rest is in the entries db, systolic, network and internals.
 *
 *     import { instantiate, intrinsicsNamed, mappings, nativeTarget, operatorNamed, tune } from "automap";
 *
 * @module automap
 */

export type { Dimension, Extents } from "./abstraction/affine.ts";
export type { Candidate, CandidateKinds } from "./abstraction/candidate.ts";
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
export {
  EnvironmentError,
  type EnvironmentProblem,
  NotFoundError,
  type Span,
  type UsageDetails,
  UsageError,
} from "./abstraction/error.ts";
export type { Values } from "./abstraction/evaluate.ts";
export { type Access, type Equation, type Expr, printEquation } from "./abstraction/expression.ts";
export { type Inputs, interpret } from "./abstraction/interpret.ts";
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
export type { Random } from "./abstraction/random.ts";
export { operationsOf } from "./abstraction/time.ts";
export type { LevelCost, Measurement, Prediction, Surroundings, Trial } from "./abstraction/trial.ts";
export {
  type BestOptions,
  best,
  type Database,
  type OpenOptions,
  openDatabase,
  queryTrials,
  showTrial,
  type TrialFilter,
  type TrialRecord,
} from "./db/index.ts";
export { INTRINSICS, intrinsicsNamed } from "./intrinsics/index.ts";
export { registerIntrinsic } from "./intrinsics/register.ts";
export { type MappingOptions, type MappingSet, mappings } from "./mapper/match/enumerate.ts";
export type { EnumerationRule } from "./mapper/match/validate.ts";
export { type OperandTypes, parseDataTypes } from "./operators/data-types.ts";
export { OPERATORS, operatorNamed } from "./operators/index.ts";
export { type InstantiateOptions, instantiate, type Operator, type Parameter } from "./operators/operator.ts";
export type { NumberArray, ParameterDescription } from "./package/index.ts";
export { drawMapping, drawRefusal } from "./report/draw-mapping.ts";
export { drawMappingSvg } from "./report/draw-svg.ts";
export type { Compiler } from "./runtime/compiler.ts";
export { type Choice, type EmitOptions, emit, generate, predict, type TuneOptions, tune } from "./session/api.ts";
export { nativeIntrinsics } from "./session/kinds/choose.ts";
export { type InLanguage, kernelInLanguage, type NotInLanguage } from "./session/kinds/languages.ts";
export type { Reason } from "./session/kinds/session-space.ts";
export {
  type BoundKernel,
  type KernelDescription,
  KernelError,
  type LoadOptions,
  load,
} from "./session/package/load.ts";
export type { TunedKernel } from "./session/tune/finals.ts";
export { type Expected, type Ranking, type RankOptions, rankByModel } from "./session/tune/rank.ts";
export type { TuneOutcome } from "./session/tune/tune.ts";
export { localGpu } from "./session/tune/workplace.ts";
export { nativeTarget, nvidiaTarget, predictedGpuNamed } from "./targets/index.ts";
export type { TimeLeft, TuneEvent, TunePhase, TuneStatus } from "./tuner/search.ts";
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
