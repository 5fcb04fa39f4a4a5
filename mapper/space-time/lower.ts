/**
 * @file Lowers a space-time design to a loop nest on lane vectors: PEs are lanes, steps a loop, and moving values are
 * shifts.
 *
 *     SBM of a 1-D convolution, 16 results, filter 5, coalesced
 *
 *     vectors X: 1 x f32[20]
 *     vectors W: 1 x f32[20]
 *     vectors Z: 1 x f32[20]
 *     for lanes lane in 0..20
 *       X[0,lane] = x[lane]                                                        stays: loaded once
 *     for unrolled t in 0..5
 *       for lanes lane in 0..20
 *         W[0,lane] = w[t]                                                         broadcast
 *         Z[0,lane] = select(t == 0, 0, Z[0,lane-1]) + X[0,lane] * W[0,lane]       migrates
 *         out[lane-t] = Z[0,lane] where t == 4 and lane-t >= 0 and lane-t < 16
 *
 * All lanes evaluate each definition together, in the order of the recurrence. Without `checkTime`, a PE that holds no
 * point computes a value that is never read: chains begin where the reversed coordinates say, so a value at a point
 * depends only on points. With `checkTime` it is idle.
 *
 * The plain form keeps s.d + 1 registers a variable and shifts them at every step. The coalesced form keeps s.d
 * registers: a new value replaces the one that was read last, and step t writes register t mod s.d. (Systolic Computing
 * on GPUs for Productive Performance, Codes 2 to 4.)
 *
 * Lowers a computation with loops around its array: channels and filter rows are summed from run to run, and a
 * long axis is cut into overlapping tiles.
 *
 *     out[p] += in[p+r] * w[r], 16 lanes, SBM      for p_tile in 0..9
 *                                                    array of (p 12, r 5): X[0,lane] = in[12*p_tile+lane], a halo of 4 read twice
 */

import { leastCommonMultiple } from "../../abstraction/affine.ts";
import { volumeOf } from "../../abstraction/collections.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { isRecurrent } from "../../abstraction/dependence.ts";
import { bytesOf, type DType, isInteger } from "../../abstraction/dtype.ts";
import { checkNames, UsageError } from "../../abstraction/error.ts";
import {
  type Access,
  access,
  axesIn,
  axis,
  type Expr,
  identityOf,
  minus,
  number,
} from "../../abstraction/expression.ts";
import { assign, type LoopNest, loop, loops, type Statement, type VectorFile } from "../../abstraction/loop-nest.ts";
import type { Recurrence, SpaceTime } from "../../abstraction/recurrence.ts";
import { type Flows, flowsOf, type Outcome } from "./flow.ts";
import { reorderFlows, tileFlows } from "./interchange.ts";
import { laneNest } from "./lane-files.ts";
import { Places } from "./place.ts";
import { type ArraySpace, namedOperands, reuseOf } from "./problem.ts";
import type { ReverseDefinition } from "./reverse.ts";
import { type Plan, type PlannedRead, type PlannedVariable, plan } from "./wiring.ts";

/** How a design becomes a loop nest. */
export interface LowerOptions {
  /** Masks PEs that hold no point at a step. Otherwise they compute values that are never read. */
  readonly checkTime?: boolean;
  /** Keeps s.d registers a variable instead of s.d + 1, and loads values that stay only once. */
  readonly coalesced?: boolean;
  /** Lanes of a vector; by default the number of PEs. */
  readonly lanes?: number;
  /** The loops that the columns of the transform stand for; by default all. Other loops run outside, in order. */
  readonly source?: readonly string[];
  /** Names of the dimensions of the array, then of time, for a reverse transform. */
  readonly destination?: readonly string[];
  /** The reverse transform as equations, which are checked. By default it is computed, if it exists. */
  readonly reverse?: readonly ReverseDefinition[];
  /** Outside loops that threads share; they must index the result. */
  readonly parallel?: readonly string[];
  /** The most steps to unroll. Beyond that, time is a serial loop. */
  readonly unroll?: number;
}

const OPTIONS = {
  checkTime: true,
  coalesced: true,
  lanes: true,
  source: true,
  destination: true,
  reverse: true,
  parallel: true,
  unroll: true,
} as const;

/** Unrolling further grows the code more than it saves time. */
export const MOST_UNROLLED_STEPS = 64;

/** The most registers that one variable may fill before the first step: a filter of 16 rows. */
const MOST_RESIDENT = 16;

/**
 * The loop nest of a design.
 * @throws UsageError for a transform of the wrong shape, colliding points, a dependence that runs backwards, a reverse
 * transform that does not invert, or more PEs than lanes. The message is one sentence that names the vectors
 */
export function lowerDesign(recurrence: Recurrence, spaceTime: SpaceTime, options: LowerOptions = {}): LoopNest {
  checkNames(options, OPTIONS, "lowerDesign");
  return lowerFlows(flowsOf(recurrence), spaceTime, options);
}

/** As {@link lowerDesign}, for analysed flows, which may be tiled and reordered. */
export function lowerFlows(flows: Flows, spaceTime: SpaceTime, options: LowerOptions = {}): LoopNest {
  const { checkTime = false, coalesced = false, parallel = [], unroll = MOST_UNROLLED_STEPS } = options;
  const all = new Places(flows, spaceTime, options);
  const window = all.windowOf(plan(flows, all, 0).stores);
  const cut = window ? { ...options, window } : options;
  const places = window ? new Places(flows, spaceTime, cut) : all;
  const unrolled = places.steps <= unroll;
  // Register numbers that depend on time are constants only if time is unrolled.
  const written = coalesced ? writtenOut(places, unroll) : 0;
  const planned = (most: number): Planned => {
    const made = plan(flows, places, most);
    const depths = made.variables.map((v) => (v.resident > 0 ? 1 : depthOf(v, made.variables, coalesced)));
    return { ...made, depths, round: coalesced ? depths.reduce(leastCommonMultiple, 1) : 1 };
  };
  const wide = planned(!coalesced ? 0 : written > 0 ? MOST_RESIDENT : 1);
  const period = volumeOf(places.timeLoops.slice(places.timeLoops.length - written));
  // Slow rows of time can stay loops if register numbers repeat with each of their steps.
  const partly = written > 0 && period % wide.round === 0;
  const { variables, stores, depths, round } = unrolled || partly ? wide : planned(coalesced ? 1 : 0);
  // Register numbers must be constants in the code. So a long loop is cut into blocks of as many steps as the numbers
  // take to repeat.
  const at = unrolled || partly || round === 1 ? places : new Places(flows, spaceTime, { ...cut, round });
  const turns = coalesced && depths.some((d) => d > 1);
  const write = new Writer(at, variables, depths, coalesced, turns);

  const step: Statement[] = [];
  const before: Statement[] = [];
  const perFastStep: { readonly statements: Statement[]; readonly count: number }[] = [];
  for (const [v, variable] of variables.entries()) {
    const depth = depths[v] ?? 1;
    if (!coalesced)
      for (let r = depth - 1; r > 0; r--)
        step.push(assign(write.register(variable.name, r), write.register(variable.name, r - 1)));
  }
  const active = checkTime ? at.holdsPoint() : true;
  for (const variable of variables) {
    const place = write.register(variable.name, write.slot(variable.name, 0));
    const { resident } = variable;
    const when = resident > 0 ? true : variable.anew ? at.beginsRound() : active;
    const statements = variable.values.map((v) => scalar(place, write.value(v), when));
    if (resident === 1) before.push(...statements);
    else if (resident > 1) perFastStep.push({ statements, count: resident });
    else step.push(...statements);
  }
  const outerSums = flows.outcomes.some((o) => o.kind === "sum" && at.outside.some((l) => !indexes(o.target, l.name)));
  for (const { target, value, where, reduces } of stores) {
    const condition = at.conjunction([at.condition(where), at.holdsPoint(where), ...at.tailsOf(target)]);
    if (condition === false) continue;
    const op = reduces ?? (outerSums ? sumOpOf(flows, target) : "=");
    const equation = { target: at.access(target), op, value: write.value(value) } as const;
    step.push({ kind: "scalar", equation: condition === true ? equation : { ...equation, where: condition } });
  }

  // The loops: outside, loads that happen once, time, lanes.
  const lanes = (body: readonly Statement[]): Statement => loop(at.laneAxis, at.lanes, body, "lanes");
  const first = at === places ? at.timeLoops.length - written : at.timeLoops.length;
  const time = loops(at.timeLoops, [lanes(step)], ({ serial }, i) =>
    unrolled || i >= first || !serial ? "unrolled" : "serial",
  );
  const fastest = at.timeLoops.at(-1)?.name ?? "";
  const loads = perFastStep.map(({ statements, count }) => loop(fastest, count, [lanes(statements)], "unrolled"));
  const inner = [...(before.length > 0 ? [lanes(before)] : []), ...loads, ...time];
  checkParallel(flows, at, parallel);
  const body = loops(at.outside, inner, ({ name }) => (parallel.includes(name) ? "parallel" : "serial"));
  const vectors = variables.map(
    (v, i): VectorFile => ({
      name: v.name,
      dtype: v.dtype,
      lanes: at.lanes,
      count: Math.max(v.resident, depths[i] ?? 1),
    }),
  );
  return laneNest(vectors, body);
}

/** @throws UsageError for a loop whose steps depend on one another, or that is inside the array */
function checkParallel(flows: Flows, { outside }: Places, parallel: readonly string[]): void {
  for (const name of parallel) {
    if (!outside.some((o) => o.name === name))
      throw new UsageError(
        `${flows.name}: loop ${name} cannot run in parallel: it is not outside the array`,
        `outside are: ${outside.map((o) => o.name).join(", ") || "none"}`,
      );
    if (flows.outcomes.some((o) => !indexes(o.target, name)))
      throw new UsageError(`${flows.name}: loop ${name} is summed over, so its steps cannot run in parallel`);
  }
}

interface Planned extends Plan {
  readonly depths: readonly number[];
  /** Steps after which register numbers repeat. */
  readonly round: number;
}

/** The number of rows of time, fastest first, whose steps can be unrolled together. */
function writtenOut({ timeLoops }: Places, unroll: number): number {
  let rows = 0;
  let steps = 1;
  for (const { extent } of timeLoops.toReversed()) {
    steps *= extent;
    if (steps > unroll) break;
    rows++;
  }
  return rows;
}

const indexes = (target: Access, name: string): boolean => axesIn(target).includes(name);

function sumOpOf(flows: Flows, target: Access): "+=" | "max=" | "min=" | "=" {
  const outcome = flows.outcomes.find((o) => o.target.tensor === target.tensor);
  return outcome?.kind === "sum" ? outcome.op : "=";
}

/**
 * The registers that a variable needs: the longest time until it is read, plus one if it is read after its successor is
 * written.
 */
function depthOf(variable: PlannedVariable, variables: readonly PlannedVariable[], coalesced: boolean): number {
  let depth = 1;
  const own = variables.indexOf(variable);
  for (const [reader, { values }] of variables.entries())
    for (const read of values.flatMap((v) => v.reads))
      if (read.variable === variable.name) depth = Math.max(depth, read.steps + (coalesced && reader <= own ? 0 : 1));
  return depth;
}

function scalar(target: Access, value: Expr, where: Expr | boolean = true): Statement {
  const plain = assign(target, value);
  return typeof where === "boolean" ? plain : { ...plain, equation: { ...plain.equation, where } };
}

/** Replaces reads of variables by registers and shifts. */
class Writer {
  private readonly at: Places;
  private readonly depth: ReadonlyMap<string, number>;
  private readonly resident: ReadonlyMap<string, number>;
  private readonly turns: boolean;

  constructor(
    at: Places,
    variables: readonly PlannedVariable[],
    depths: readonly number[],
    coalesced: boolean,
    turns: boolean,
  ) {
    this.at = at;
    this.depth = new Map(variables.map((v, i) => [v.name, depths[i] ?? 1]));
    this.resident = new Map(variables.map((v) => [v.name, v.resident]));
    this.turns = coalesced && turns;
  }

  /** The register that holds a variable's value of `steps` steps ago. */
  slot(variable: string, steps: number): Expr {
    const depth = this.depth.get(variable) ?? 1;
    const resident = this.resident.get(variable) ?? 0;
    if (resident > 1) return this.at.turn(resident, steps);
    if (depth === 1) return number(0);
    return this.turns ? this.at.turn(depth, steps) : number(steps);
  }

  register(variable: string, slot: Expr | number, shift = 0): Access {
    const lane = minus(axis(this.at.laneAxis), shift);
    return access(variable, [typeof slot === "number" ? number(slot) : slot, lane]);
  }

  value({ expression }: { readonly expression: Expr; readonly reads: readonly PlannedRead[] }): Expr {
    return this.at.value(expression, (variable, distance) =>
      this.depth.has(variable)
        ? this.register(variable, this.slot(variable, this.at.stepsOf(distance)), this.at.hopOf(distance))
        : undefined,
    );
  }
}

// ---- whole computations ----------------------------------------------------------------------------------------------------------

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
