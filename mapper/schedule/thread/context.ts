/**
 * @file The facts about a computation that decisions about threads use: its loops, the stride of each access along each
 * loop, and how many elements can be loaded at once.
 *
 *     matvec f16 1024 x 1024      m kept 1024, k summed 1024      a: k stride 1, 8 at once; m stride 1024      b: k stride 1, 8 at once
 */

import type { ThreadSchedule } from "../../../abstraction/candidate.ts";
import {
  type Axis,
  type Computation,
  extentsOf,
  outputOf,
  type Tensor,
  tensorOf,
} from "../../../abstraction/computation.ts";
import { conjunctsOf } from "../../../abstraction/condition.ts";
import { isRecurrent } from "../../../abstraction/dependence.ts";
import { bytesOf } from "../../../abstraction/dtype.ts";
import { placedProblem } from "../../../abstraction/epilogue.ts";
import { type Access, axesIn, type Expr, outermostAccessesIn, printAccess } from "../../../abstraction/expression.ts";
import type { Intrinsic } from "../../../abstraction/intrinsic.ts";
import type { Mapping } from "../../../abstraction/mapping.ts";
import { storingEquation } from "../../../abstraction/row-chain.ts";
import { beyondReads } from "../../match/conditions.ts";
import { defineProblem } from "../../match/problem.ts";
import type { Decision } from "../decision.ts";
import { strideAlong } from "../dense-runs.ts";
import { dimensionsOf } from "../dimensions.ts";
import { type GridLimits, outputProblem, runAlong } from "../grid-context.ts";

/** An access that each point of the loops makes. */
export interface ThreadAccess {
  readonly access: Access;
  readonly tensor: Tensor;
  /**
   * Strides in elements along loops. A loop along which the stride varies, or that does not index the access, is
   * omitted.
   */
  readonly strides: ReadonlyMap<string, number>;
  /** Loops that index the access. */
  readonly loops: ReadonlySet<string>;
  /** Neighbours along a loop that can be loaded at once, a power of two; widths of 1 are omitted. */
  readonly widths: ReadonlyMap<string, number>;
}

export interface ThreadContext {
  readonly mapping: Mapping;
  /** Kept loops, then summed ones, including those of extent 1. */
  readonly loops: readonly Axis[];
  readonly accesses: readonly ThreadAccess[];
  /** Conditions for a product to be added, apart from those that reading outside a tensor already ensures. */
  readonly conditions: readonly Expr[];
  /** The access that is written. */
  readonly result: ThreadAccess;
  readonly limits: GridLimits;
  /** Set if any number of threads may be idle, since there are fewer points than lanes. */
  readonly wasteful?: true;
}

/** A decision about one key of the schedule. */
export type ThreadDecision<K extends keyof ThreadSchedule> = Decision<ThreadSchedule[K], ThreadContext, ThreadSchedule>;

/** The most bytes that a thread loads or stores at once. */
const MOST_BYTES = 16;

/** The context of a computation on an instruction of one thread, or one sentence on why threads cannot share it. */
export function threadContext(mapping: Mapping, limits: GridLimits): ThreadContext | string {
  const { computation, intrinsic } = mapping;
  if (intrinsic.scope !== "thread") return `${intrinsic.name} is issued by a ${intrinsic.scope}, not by one thread`;
  const { where } = computation.equation;
  const problem = defineProblem(computation, intrinsic, mapping.binding);
  return contextOf(mapping, limits, beyondReads(problem, conjunctsOf(where)));
}

/**
 * The context of a computation that no instruction maps. Each thread evaluates the equation itself.
 * @returns the context, or one sentence on why threads cannot share the computation
 */
export function plainContext(
  computation: Computation,
  intrinsic: Intrinsic,
  limits: GridLimits,
): ThreadContext | string {
  const { time, equation } = computation;
  if (time) return "it steps through time";
  if (isRecurrent(equation)) return "its elements are made of one another";
  if (equation.op === "sat+=") return "a sum of it saturates once, after all points";
  if (equation.op === "=" && computation.axes.some((a) => a.kind === "reduce"))
    return "it assigns an element more than once";
  const mapping: Mapping = { id: "", computation, intrinsic, binding: {}, matching: {}, waste: 0 };
  return contextOf(mapping, limits, conjunctsOf(equation.where));
}

function contextOf(mapping: Mapping, limits: GridLimits, conditions: readonly Expr[]): ThreadContext | string {
  const { computation } = mapping;
  const unwritten = outputProblem(computation);
  if (unwritten !== undefined) return unwritten;
  const distinct = new Map(outermostAccessesIn(computation.equation.value).map((a) => [printAccess(a), a]));
  const describe = (access: Access, tensor: Tensor): ThreadAccess => {
    const most = MOST_BYTES / bytesOf(tensor.dtype);
    const loops = new Set(access.index.flatMap((e) => axesIn(e)));
    const widths = dimensionsOf(mapping).flatMap((d): [string, number][] => {
      const width = runAlong(access, d, () => tensor, most, { extents: extentsOf(computation), fed: new Set() });
      return width > 1 ? [[d.name, width]] : [];
    });
    return { access, tensor, strides: stridesOf(access, tensor, loops), loops, widths: new Map(widths) };
  };
  const accesses = [...distinct.values()].map((a) => describe(a, tensorOf(computation, a.tensor)));
  const result = describe(storingEquation(computation).target, outputOf(computation));
  // What is stored at places of its own, or left out, is stored element by element.
  const isPlaced = placedProblem(computation) !== undefined;
  const isKept = (a: Axis): boolean => a.kind === "spatial";
  const loops = [...computation.axes.filter(isKept), ...computation.axes.filter((a) => !isKept(a))];
  return { mapping, loops, accesses, conditions, result: isPlaced ? { ...result, widths: new Map() } : result, limits };
}

/** Strides of an access along loops; loops with varying strides are omitted. */
function stridesOf(access: Access, tensor: Tensor, loops: ReadonlySet<string>): ReadonlyMap<string, number> {
  return new Map(
    [...loops].flatMap((loop): [string, number][] => {
      const stride = strideAlong(access, tensor, loop);
      return stride === undefined ? [] : [[loop, stride]];
    }),
  );
}
