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
 *
 * Decides the direction in which values travel in a design, and what each PE computes. Chains are reversed if time would run backwards.
 *
 *     s.d > 0     passed on:  V[z] = select(z-d outside, load, V[z-d])
 *     s.d = 0     an input is broadcast: every PE loads it; a sum is formed across the PEs of one step
 *
 * Reductions over several loops are chained, innermost first. A chain breaks where moving to the next loop would take no
 * step; a second variable then continues from its result.
 */

import { affineForm, evaluateIndex, extentsBy, leastCommonMultiple, pointsOf } from "../../abstraction/affine.ts";
import { hasName, namesOf, sortedBy, volumeOf } from "../../abstraction/collections.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { isRecurrent } from "../../abstraction/dependence.ts";
import { bytesOf, type DType, isInteger } from "../../abstraction/dtype.ts";
import { checkNames, UsageError } from "../../abstraction/error.ts";
import {
  type Access,
  access,
  accessesIn,
  allOf,
  axesIn,
  axis,
  compare,
  type Expr,
  identityOf,
  joinedBy,
  minus,
  number,
  printAccess,
  select,
} from "../../abstraction/expression.ts";
import {
  assign,
  freshName,
  type LoopNest,
  loop,
  loops,
  type Statement,
  type VectorFile,
} from "../../abstraction/loop-nest.ts";
import type { Recurrence, SpaceTime } from "../../abstraction/recurrence.ts";
import { chained, lengthAlong } from "./design.ts";
import { chainFrom, distanceIn, type Flows, flowsOf, type Outcome, outsideBox, type SumOp } from "./flow.ts";
import { reorderFlows, tileFlows } from "./interchange.ts";
import { laneNest } from "./lane-files.ts";
import { Places } from "./place.ts";
import { type ArraySpace, extentsOfLoops, namedOperands, reuseOf } from "./problem.ts";
import type { ReverseDefinition } from "./reverse.ts";
import { nullSpace, printVector, scaled, type Vector } from "./vector.ts";

// ---- how values travel -------------------------------------------------------------------------------------------------------------------

interface PlannedRead {
  readonly variable: string;
  readonly steps: number;
}

/** A value over the loops; reads of variables are indexed by distance. */
interface PlannedValue {
  readonly expression: Expr;
  readonly reads: readonly PlannedRead[];
}

interface PlannedVariable {
  readonly name: string;
  readonly dtype: DType;
  /**
   * Number of registers that hold a lane's whole working set, loaded once; 0 if values are streamed. Several are indexed
   * by the fastest row of the schedule.
   */
  readonly resident: number;
  /** Whether it is loaded when the fastest row of time begins, and kept during that round. */
  readonly anew: boolean;
  /** Values assigned in order at every step. */
  readonly values: readonly PlannedValue[];
}

interface PlannedStore {
  readonly target: Access;
  readonly value: PlannedValue;
  readonly where?: Expr;
  /** Set if all lanes contribute to one element. */
  readonly reduces?: SumOp;
}

interface Plan {
  readonly variables: readonly PlannedVariable[];
  readonly stores: readonly PlannedStore[];
}

/** @param mostResident registers that one variable may fill ahead of the steps; 0 keeps every chain as it is */
function plan(flows: Flows, places: Places, mostResident: number): Plan {
  const wiring = new Wiring(flows, places);
  for (const f of flows.flows) {
    const dtype = flows.variables[f.name] ?? "f32";
    const resident = f.kind === "fixed" ? undefined : places.valuesOfLane(f.load);
    if (f.kind === "fixed") wiring.add(f.name, dtype, [f.value]);
    else if (resident !== undefined && resident <= mostResident) wiring.add(f.name, dtype, [f.load], resident);
    else if (mostResident > 1 && places.staysForRound(f.load)) wiring.add(f.name, dtype, [f.load], 0, true);
    else wiring.add(f.name, dtype, [wiring.passedOn(f.name, f.load, f.directions)]);
  }
  for (const o of flows.outcomes) {
    if (o.kind === "sum") wiring.sum(o);
    else wiring.store(o.target, o.value, o.where);
  }
  return wiring;
}

class Wiring implements Plan {
  readonly variables: PlannedVariable[] = [];
  readonly stores: PlannedStore[] = [];
  private readonly flows: Flows;
  private readonly places: Places;
  private readonly names: Set<string>;

  constructor(flows: Flows, places: Places) {
    this.flows = flows;
    this.places = places;
    this.names = new Set(Object.keys(flows.variables));
  }

  add(name: string, dtype: DType, values: readonly Expr[], resident = 0, anew = false): void {
    this.names.add(name);
    this.variables.push({ name, dtype, resident, anew, values: values.map((e) => this.value(e)) });
  }

  store(target: Access, value: Expr, where: Expr | undefined, reduces?: SumOp): void {
    const rest = { ...(where === undefined ? {} : { where }), ...(reduces === undefined ? {} : { reduces }) };
    this.stores.push({ target, value: this.value(value), ...rest });
  }

  passedOn(name: string, load: Expr, directions: readonly Vector[]): Expr {
    const chains = directions
      .filter((d) => this.isInside(d))
      .map((d) => this.forward(d))
      .filter((d) => this.places.stepsOf(d) > 0);
    const along = chains.map((d) => ({ distance: d, along: d }));
    return chainFrom(this.flows.loops, along, load, (d) => read(name, d));
  }

  sum(outcome: Extract<Outcome, { kind: "sum" }>): void {
    const { name, target, op } = outcome;
    const dtype = this.flows.variables[name] ?? "f32";
    const identity = number(identityOf(op, dtype));
    const directions = this.directionsOf(outcome).map((d) => this.forward(d));
    const steps = (d: Vector): number => this.places.stepsOf(d);
    const timed = sortedBy(
      directions.filter((d) => steps(d) > 0),
      steps,
    );
    const still = directions.filter((d) => steps(d) === 0);

    // 1. Build chains, extending each while the next loop advances time.
    const { loops } = this.flows;
    const levels = chained(timed, steps, extentsOfLoops({ loops }));
    let held = this.guarded(outcome, identity);
    const count = levels.length + (still.length > 0 ? 1 : 0);
    const nameOf = (level: number): string => this.free(count > 1 ? `${name}${level + 1}` : name, name);
    for (const [l, level] of levels.entries()) {
      const variable = nameOf(l);
      const before = chainFrom(loops, level, identity, (distance) => read(variable, distance));
      this.add(variable, dtype, [joinedBy(op, before, held)]);
      held = read(variable);
    }
    const ends = (all: readonly Vector[]): Expr | undefined =>
      (levels.length === 1 && still.length === 0 ? this.lastPoint(all) : undefined) ??
      allOf(all.map((d) => outsideBox(loops, scaled(d, -1))));

    // 2. Sums within one step: a reduction if all lanes share the element, else prefixes whose reach doubles (Kogge and
    //    Stone).
    const isReduced = still.length > 0 && this.places.isUniform(target);
    if (levels.length === 0 && (isReduced || still.length === 0)) {
      const variable = nameOf(0);
      this.add(variable, dtype, [held]);
      held = read(variable);
    }
    if (isReduced) {
      this.store(target, held, ends(timed), op);
      return;
    }
    if (still.length > 0) {
      const variable = nameOf(levels.length);
      const values = [held];
      for (const d of still)
        for (let reach = 1; reach < lengthAlong(d, extentsOfLoops({ loops })); reach *= 2) {
          const further = scaled(d, reach);
          const before = select(outsideBox(loops, further), identity, read(variable, further));
          values.push(joinedBy(op, read(variable), before));
        }
      this.add(variable, dtype, values);
      held = read(variable);
    }
    this.store(target, held, ends([...timed, ...still]));
  }

  /**
   * The last point of a chain whose loops have partial tiles, which is before the last step of the box. Undefined
   * without partial tiles.
   */
  private lastPoint(directions: readonly Vector[]): Expr | undefined {
    const { loops, tails } = this.flows;
    const summed = loops.filter((_, i) => directions.some((d) => d[i] !== 0));
    const names = namesOf(summed);
    const own = tails.filter((t) => axesIn(t.index).every((name) => names.includes(name)));
    if (own.length === 0 || summed.length !== directions.length) return undefined;
    let last: { readonly step: number; readonly at: Readonly<Record<string, number>> } | undefined;
    for (const at of pointsOf(names, extentsBy(summed))) {
      if (own.some((t) => evaluateIndex(t.index, at) >= t.extent)) continue;
      const step = this.places.stepsOf(loops.map((l) => at[l.name] ?? 0));
      if (!last || step > last.step) last = { step, at };
    }
    return last && allOf(names.map((name) => compare("==", axis(name), last?.at[name] ?? 0)));
  }

  /** The vectors inside the array along which a sum runs. */
  private directionsOf({ target, directions, name }: Extract<Outcome, { kind: "sum" }>): Vector[] {
    const { loops } = this.flows;
    const { source } = this.places;
    const rows = target.index.map((e) => {
      const form = affineForm(e);
      if (!form)
        throw new UsageError(`${this.flows.name}: ${printAccess(target)} is not affine, so no sum can be followed`);
      return source.map((l) => form.terms.get(l.name) ?? 0);
    });
    const basis = nullSpace(rows, source.length).map((d) =>
      loops.map((l) => {
        const at = source.indexOf(l);
        return at < 0 ? 0 : (d[at] ?? 0);
      }),
    );
    if (basis.length === 1) {
      const written = directions.filter((d) => this.isInside(d));
      return written.length === 1 ? written : basis;
    }
    if (basis.some((d) => d.filter((x) => x !== 0).length > 1))
      throw new UsageError(
        `${this.flows.name}: ${name} is summed along ${basis.map(printVector).join(" and ")}; several directions must be loops`,
      );
    return basis;
  }

  /** The term that a point adds; the identity beyond the end of a partial tile. */
  private guarded({ target, term }: Extract<Outcome, { kind: "sum" }>, identity: Expr): Expr {
    const indexing = new Set(axesIn(target));
    const tails = this.flows.tails.filter((t) => !axesIn(t.index).every((loop) => indexing.has(loop)));
    const inside = allOf(tails.map((t) => compare("<", t.index, t.extent)));
    return inside === undefined ? term : select(inside, term, identity);
  }

  /** The direction or its opposite, so that time does not run backwards. */
  private forward(d: Vector): Vector {
    return this.places.stepsOf(d) < 0 ? scaled(d, -1) : d;
  }

  /** Whether a step along a direction stays in the array and in the box. */
  private isInside(d: Vector): boolean {
    return this.flows.loops.every(
      (l, i) => d[i] === 0 || (this.places.source.includes(l) && Math.abs(d[i] ?? 0) < l.extent),
    );
  }

  private value(expression: Expr): PlannedValue {
    const reads = accessesIn(expression)
      .filter((a) => this.names.has(a.tensor))
      .map((a) => ({
        variable: a.tensor,
        steps: this.places.stepsOf(distanceIn(a, this.flows.loops.length)),
      }));
    return { expression, reads };
  }

  /** An unused name. A sum keeps the name of its variable. */
  private free(wanted: string, own: string): string {
    const taken = new Set([
      ...namesOf(this.variables),
      ...Object.keys(this.flows.variables).filter((v) => v !== own),
      ...Object.keys(this.flows.tensors),
      ...namesOf(this.flows.loops),
    ]);
    return freshName(wanted, taken);
  }
}

const read = (variable: string, distance: Vector = []): Access => access(variable, distance.map(number));

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
  const write = new Writer(at, variables, depths, turns);

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
    if (!hasName(outside, name))
      throw new UsageError(
        `${flows.name}: loop ${name} cannot run in parallel: it is not outside the array`,
        `outside are: ${namesOf(outside).join(", ") || "none"}`,
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

  constructor(at: Places, variables: readonly PlannedVariable[], depths: readonly number[], turns: boolean) {
    this.at = at;
    this.depth = new Map(variables.map((v, i) => [v.name, depths[i] ?? 1]));
    this.resident = new Map(variables.map((v) => [v.name, v.resident]));
    this.turns = turns;
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

  value({ expression }: PlannedValue): Expr {
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
  const source = namesOf(space.inside);
  const outside = namesOf(tiled.loops).filter((name) => !source.includes(name));
  const wanted = namesOf(space.outside);
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
  const names = namesOf(loops);
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
