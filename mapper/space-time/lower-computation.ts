/**
 * @file Lowers a computation with loops around its array: channels and filter rows are summed from run to run, and a
 * long axis is cut into overlapping tiles.
 *
 *     out[p] += in[p+r] * w[r], 16 lanes, SBM      for p_tile in 0..9
 *                                                    array of (p 12, r 5): X[0,lane] = in[12*p_tile+lane], a halo of 4 read twice
 */

import type { Computation } from "../../abstraction/computation.ts";
import { isRecurrent } from "../../abstraction/dependence.ts";
import { bytesOf, type DType, isInteger } from "../../abstraction/dtype.ts";
import { identityOf } from "../../abstraction/equation.ts";
import { UsageError } from "../../abstraction/error.ts";
import { type Access, access, type Expr, number } from "../../abstraction/expression.ts";
import type { LoopNest } from "../../abstraction/loop-nest.ts";
import type { SpaceTime } from "../../abstraction/recurrence.ts";
import type { Flows, Outcome } from "./flow.ts";
import { reorderFlows, tileFlows } from "./interchange.ts";
import type { ArraySpace } from "./loops.ts";
import { type LowerOptions, lowerFlows } from "./lower.ts";
import { namedOperands, reuseOf } from "./problem.ts";

/**
 * The loop nest of a computation whose inside loops an array takes. A sum over outside loops is added to what the
 * output holds.
 * @throws UsageError as {@link lowerFlows}, and for computations that are not plain sums
 */
export function lowerComputation(
  computation: Computation,
  space: ArraySpace,
  spaceTime: SpaceTime,
  options: Omit<LowerOptions, "source"> & FlowOptions = {},
): LoopNest {
  const tiled = space.tiled.reduce(
    (flows, { name, outer, inner, size }) => tileFlows(flows, { loop: name, outer, inner: inner ?? name, size }),
    flowsOfComputation(computation, options),
  );
  const source = space.inside.map((l) => l.name);
  const outside = tiled.loops.map((l) => l.name).filter((name) => !source.includes(name));
  const wanted = space.outside.map((l) => l.name);
  const order = [...outside.filter((name) => !wanted.includes(name)), ...wanted, ...source];
  return lowerFlows(reorderFlows(tiled, order), spaceTime, { ...options, source });
}

/** How operands reach the lanes. */
interface FlowOptions {
  /** Every lane loads inputs itself, even those that its neighbour could pass on. */
  readonly loaded?: boolean;
  /** Registers hold narrow integers as s32 and 16-bit floats as f32. */
  readonly wide?: boolean;
}

/** The type in which 32-bit lanes hold an element. */
export function heldAs(dtype: DType): DType {
  if (bytesOf(dtype) >= 4) return dtype;
  return isInteger(dtype) ? "s32" : "f32";
}

/**
 * The 16-bit type in which lanes can form a sum without widening it: that of everything the sum reads and stores.
 * Products and sums of s16 keep their low bits; those of f16 are rounded each.
 */
export function wordTypeOf({ tensors, epilogue, time, equation }: Computation): "s16" | "f16" | undefined {
  const types = new Set(Object.values(tensors).map((t) => t.dtype));
  const [only] = types;
  if (types.size !== 1 || epilogue || time || isRecurrent(equation)) return undefined;
  return only === "s16" || only === "f16" ? only : undefined;
}

/** The flows of a computation, with every operand passed on along its reuse. */
function flowsOfComputation(computation: Computation, { loaded = false, wide = false }: FlowOptions = {}): Flows {
  const { name, equation, axes, tensors, epilogue } = computation;
  const { op, target } = equation;
  if (epilogue) throw new UsageError(`${name}: an array stores sums; an epilogue cannot follow it yet`);
  if (op !== "+=" && op !== "max=" && op !== "min=")
    throw new UsageError(`${name}: an array forms sums, minima and maxima; the equation combines with "${op}"`);
  const loops = axes.map(({ name: loop, extent }) => ({ name: loop, extent }));
  const names = loops.map((l) => l.name);
  const held = (tensor: string): DType => {
    const { dtype: own = "f32" } = tensors[tensor] ?? {};
    return wide ? heldAs(own) : own;
  };
  const dtype = held(target.tensor);
  const identity = number(identityOf(op, dtype));
  const { inputs, variables, sum, term } = namedOperands(computation, identity, (v) => access(v, []));
  const outcome: Outcome = { kind: "sum", name: sum, target, op, term, directions: [] };
  return {
    name,
    loops,
    tails: [],
    flows: inputs.map((load, i) => ({
      kind: "reuse",
      name: variables[i] ?? load.tensor,
      load: widened(load, tensors[load.tensor]?.dtype ?? "f32", held(load.tensor)),
      directions: loaded ? [] : reuseOf(load, names),
    })),
    outcomes: [outcome],
    variables: Object.fromEntries([
      ...inputs.map((load, i) => [variables[i] ?? load.tensor, held(load.tensor)] as const),
      [sum, dtype] as const,
    ]),
    tensors,
  };
}

const widened = (load: Access, from: DType, to: DType): Expr =>
  from === to ? load : { kind: "cast", dtype: to, saturate: false, value: load };
