/**
 * @file Stencils in time: each element of a plane depends on elements of the plane one step earlier.
 *
 *     u[t,i,j] = a*u[t-1,i,j] + b*(u[t-1,i-1,j] + u[t-1,i+1,j] + u[t-1,i,j-1] + u[t-1,i,j+1])      --t 100 --a 0.5 --b 0.125
 *
 * `t` counts steps: with 100, `u[0]` is the input, named `u_0`, and `u[100]` is the output. The dependence of a read is its distance before the
 * element computed: (1,1,0) for `u[t-1,i-1,j]`. Outside the plane elements are 0, unless the index says otherwise: `u[t-1,clamp(i-1),j]`,
 * `reflect(i-1)`, `wrap(i-1)`. Names that index nothing are constants.
 */

import { affineForm, type Extents, shapeOf } from "./affine.ts";
import type { Computation, ComputationSpec, TensorSpec } from "./computation.ts";
import { usefulPoints } from "./condition.ts";
import { isRecurrent, namesOfNumbers } from "./dependence.ts";
import type { DType } from "./dtype.ts";
import { UsageError } from "./error.ts";
import {
  type Access,
  access,
  accessesIn,
  axesIn,
  axesOf,
  axis,
  type Border,
  comparesElements,
  type Equation,
  type Expr,
  minus,
  number,
  printAccess,
  printExpr,
  readsInIndex,
  readsOf,
  rewriteReads,
  substituteAxes,
  tensorsOf,
  walk,
} from "./expression.ts";
import { spanOf } from "./parse.ts";

/** The name of the time axis. */
const TIME = "t";

/** How a computation steps through time. */
export interface Time {
  readonly axis: string;
  readonly steps: number;
  /** The input that is plane 0. */
  readonly first: string;
  /** One step: it reads that input and assigns the output. */
  readonly step: Computation;
  /** For each read of the plane, its distance before the element computed: the step first, then the axes of the plane. */
  readonly dependences: readonly (readonly number[])[];
  /** What lies outside the plane along each of its axes. */
  readonly borders: readonly (Border | "zero")[];
}

/** The parts of an equation in time. */
interface Timed extends Omit<Time, "step"> {
  /** The equation with its constants substituted. */
  readonly equation: Equation;
  /** Replaces these fields of the whole's specification in that of one step. */
  readonly step: Required<Pick<ComputationSpec, "equation" | "extents" | "tensors" | "parameters">>;
}

/** Names that index nothing in a recurrence: numeric constants of the equation. */
export function constantsOf(equation: Equation): string[] {
  return isRecurrent(equation) ? namesOfNumbers(equation) : [];
}

/** Whether an equation computes planes from earlier planes: it assigns at `t` and reads itself at another time. */
function isInTime({ target, op, value }: Equation): boolean {
  const [time] = target.index;
  if (op !== "=" || target.index.length < 2 || time?.kind !== "axis" || time.name !== TIME) return false;
  return readsOf(value, target.tensor).some(({ index: [at] }) => !(at?.kind === "axis" && at.name === TIME));
}

/**
 * The parts of an equation in time; undefined for any other.
 * @throws UsageError when a step does not follow from the previous one; the message shows the dependence
 */
export function timeOf(
  subject: string,
  written: Equation,
  ending: Equation | undefined,
  spec: ComputationSpec,
): Timed | undefined {
  if (!isInTime(written)) return undefined;
  const { target } = written;
  if (ending)
    throw new UsageError(
      `${subject}: an epilogue cannot follow a stencil in time yet: give it to a computation of its own`,
      spanOf(ending.target),
    );
  const given = Object.entries(spec.parameters ?? {}).map(([name, value]) => [name, number(value)] as const);
  const parsed = given.length === 0 ? written : substituteAxes(written, new Map(given));
  const problem = (because: string, place: Expr = target): UsageError =>
    new UsageError(`${subject}: ${because}`, spanOf(place));

  // 1. The plane: one axis per dimension, computed completely at every step.
  const names = target.index.map((e) => (e.kind === "axis" ? e.name : ""));
  const odd = target.index.find((e, d) => e.kind !== "axis" || names.indexOf(e.name) !== d);
  if (odd)
    throw problem(
      `${printAccess(target)} must be indexed by ${TIME} and then by an axis for each dimension of the plane`,
      odd,
    );
  const [read] = accessesIn(parsed.value).flatMap(readsInIndex);
  if (read) throw problem("the indices of a step in time cannot be read from a tensor", read);
  if (parsed.where)
    throw problem(
      "a step in time computes the whole plane: write select(condition, a, b) in place of where",
      parsed.where,
    );
  const constants = constantsOf(parsed);
  const values = constants.map((name) => [name, number(constantValue(subject, name, spec.extents))] as const);
  // Only constants are substituted; everything else keeps its place in the text.
  const equation = values.length === 0 ? parsed : substituteAxes(parsed, new Map(values));
  const summed = axesOf(equation).find((name) => !names.includes(name));
  if (summed !== undefined)
    throw problem(`axis ${summed} is not of ${printAccess(target)}, and a step does not sum: write its terms out`);

  // 2. The reads of a step.
  const { dependences, borders } = checkedReads(parsed, names, spec.extents, problem);

  // 3. One step, as an equation of its own.
  const first = `${target.tensor}_0`;
  if (tensorsOf(equation).includes(first))
    throw problem(`${first} is the name of plane 0 of ${target.tensor}; name the other tensor otherwise`);
  const steps = spec.extents[TIME];
  if (steps === undefined)
    throw problem(`axis "${TIME}" has no extent: give the number of steps, for example --${TIME} 100`);
  if (!Number.isSafeInteger(steps) || steps < 1)
    throw new UsageError(`${subject}: ${TIME} counts steps and must be a positive integer, got ${steps}`);
  const step: Equation = {
    target: { ...target, index: target.index.slice(1) },
    op: "=",
    value: rewriteReads(equation.value, (read) =>
      read.tensor === target.tensor ? access(first, read.index.slice(1)) : read,
    ),
  };
  const { [TIME]: _, ...extents } = spec.extents;
  const others = Object.fromEntries(Object.entries(extents).filter(([name]) => !constants.includes(name)));
  return {
    axis: TIME,
    steps,
    first,
    dependences,
    borders,
    equation,
    step: {
      equation: step,
      extents: others,
      // Already substituted.
      parameters: {},
      tensors: { ...spec.tensors, [first]: planeSpec(subject, spec, target.tensor, first, names.slice(1)) },
    },
  };
}

/**
 * Checks what a step reads: the previous plane at constant distances within its extents, and other tensors without time. @throws the problem
 * otherwise
 */
function checkedReads(
  { target, value }: Equation,
  names: readonly string[],
  extents: Extents,
  problem: (because: string, place?: Expr) => UsageError,
): Pick<Time, "dependences" | "borders"> {
  const reads = accessesIn(value);
  const own = readsOf(value, target.tensor);
  const dependences = own.map((read) => dependenceOf(read, names, problem));
  for (const [i, dependence] of dependences.entries())
    for (const [d, name] of names.entries()) {
      const extent = extents[name];
      const distance = Math.abs(dependence[d] ?? 0);
      if (d > 0 && extent !== undefined && distance > extent)
        throw problem(
          `${printAccess(own[i] ?? target)} lies ${distance} places away along ${name}, beyond its extent of ${extent}`,
          own[i],
        );
    }
  const timely = reads.find((a) => a.tensor !== target.tensor && a.index.some((e) => axesIn(e).includes(TIME)));
  if (timely)
    throw problem(
      `${printAccess(timely)} is read at a time; of all tensors only ${target.tensor} changes from step to step`,
      timely,
    );
  const chosen = [...walk(value)].find((e) => e.kind === "compare" && comparesElements(e));
  if (chosen)
    throw problem(
      `a step compares no elements, as ${printExpr(chosen)} does; min, max and abs choose by value`,
      chosen,
    );
  const bare = [...walk(rewriteReads(value, () => number(0)))];
  if (bare.some((e) => e.kind === "axis" && e.name === TIME))
    throw problem(`a step is computed like any other: ${TIME} may index ${target.tensor} alone`);
  const borders = names
    .slice(1)
    .map((name, d) =>
      borderOf(own, dependences, d + 1, (one, other, place) =>
        problem(
          `along ${name} both ${one} and ${other} lie beyond the plane; a stencil in time has one border an axis`,
          place,
        ),
      ),
    );
  return { dependences, borders };
}

/** @throws UsageError for a constant without a value */
export function constantValue(subject: string, name: string, extents: Extents): number {
  const value = extents[name];
  if (value === undefined)
    throw new UsageError(
      `${subject}: constant "${name}" has no value`,
      `it indexes nothing; give it a number, for example --${name} 0.25`,
    );
  if (!Number.isFinite(value)) throw new UsageError(`${subject}: constant "${name}" must be a number, got ${value}`);
  return value;
}

/** The distance of a read before the element computed. @throws the problem when the read does not go back one step */
function dependenceOf(
  read: Access,
  names: readonly string[],
  problem: (because: string, place: Expr) => UsageError,
): number[] {
  if (read.index.length !== names.length)
    throw problem(
      `${printAccess(read)} has rank ${read.index.length}, elsewhere ${read.tensor} has rank ${names.length}`,
      read,
    );
  const distance = read.index.map((e, d) => {
    const form = affineForm(e.kind === "border" ? e.index : e);
    const name = names[d] ?? "";
    if (form?.terms.size !== 1 || form.terms.get(name) !== 1)
      throw problem(
        `${printAccess(read)} is not at a constant distance along ${name}: it must be read at ${name} plus or minus a number`,
        e,
      );
    return form.constant === 0 ? 0 : -form.constant;
  });
  const [back = 0] = distance;
  const vector = `(${distance.join(",")})`;
  if (read.index[0]?.kind === "border")
    throw problem(`${printAccess(read)} has a border in time; a plane before ${TIME} is 1 is not computed`, read);
  if (back === 0)
    throw problem(`${printAccess(read)} is of its own step: the dependence ${vector} does not go back in time`, read);
  if (back < 0)
    throw problem(`${printAccess(read)} is of a later step: the dependence ${vector} goes forward in time`, read);
  if (back > 1)
    throw problem(
      `${printAccess(read)} goes ${back} steps back, by the dependence ${vector}; one plane is kept, so a step reads ${TIME}-1 only`,
      read,
    );
  return distance;
}

/** What lies outside the plane along an axis, according to the reads that may leave it. */
function borderOf(
  reads: readonly Access[],
  dependences: readonly (readonly number[])[],
  dimension: number,
  problem: (one: string, other: string, place: Expr) => UsageError,
): Border | "zero" {
  let found: Border | "zero" | undefined;
  for (const [i, read] of reads.entries()) {
    if (dependences[i]?.[dimension] === 0) continue;
    const index = read.index[dimension];
    const how = index?.kind === "border" ? index.how : "zero";
    if (found !== undefined && found !== how) throw problem(found, how, read);
    found = how;
  }
  return found ?? "zero";
}

/** Plane 0 has the output's type and shape. */
function planeSpec(
  subject: string,
  { tensors, extents }: ComputationSpec,
  plane: string,
  first: string,
  names: readonly string[],
): TensorSpec {
  const full = (given: DType | TensorSpec | undefined): TensorSpec =>
    typeof given === "object" ? given : given === undefined ? {} : { dtype: given };
  const of = full(tensors[plane]);
  const own = full(tensors[first]);
  const dtype = own.dtype ?? of.dtype;
  if (dtype === undefined) throw new UsageError(`${subject}: "${plane}" reads itself, so its data type must be given`);
  if (of.dtype !== undefined && of.dtype !== dtype)
    throw new UsageError(`${subject}: ${first} is plane 0 of ${plane}, so it is ${of.dtype} too, not ${dtype}`);
  return { dtype, dims: of.dims ?? names, shape: of.shape ?? names.map((name) => extents[name] ?? 1), ...own };
}

/** Arithmetic operations per element of a step. */
export function operationsOfStep({ step }: Pick<Time, "step">): number {
  const withoutReads = rewriteReads(step.equation.value, () => number(0));
  return [...walk(withoutReads)].filter((e) => e.kind === "binary" || e.kind === "call").length;
}

/**
 * Operations of one call. A multiply and an add count as two. Points that a condition excludes do not count. A time step counts the operations
 * it is written with.
 */
export function operationsOf(computation: Computation): number {
  const { time } = computation;
  return (time ? operationsOfStep(time) : 2) * usefulPoints(computation);
}

/**
 * The computation of all steps, from that of one step.
 * @throws UsageError when the extent of a plane differs from that of its axes
 */
export function inTime(
  { equation, axis: name, steps, first, dependences, borders }: Timed,
  step: Computation,
): Computation {
  const plane = equation.target.tensor;
  for (const tensor of [plane, first]) {
    const shape = shapeOf(step.tensors[tensor] ?? { dims: [] }).join(" x ");
    const computed = shapeOf({ dims: step.axes }).join(" x ");
    if (shape !== computed)
      throw new UsageError(
        `${step.name}: ${tensor} has the shape ${shape}, but a step computes ${computed}: planes are as large as their axes`,
      );
  }
  const before = minus(axis(name), 1);
  const value = rewriteReads(step.equation.value, (read) =>
    read.tensor === first ? access(plane, [before, ...read.index]) : read,
  );
  return {
    ...step,
    equation: { ...step.equation, target: equation.target, value },
    axes: [{ name, extent: steps, kind: "spatial" }, ...step.axes],
    time: { axis: name, steps, first, step, dependences, borders },
  };
}
