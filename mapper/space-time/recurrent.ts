/**
 * @file Recurrences on lanes: which of three forms they have, and which transforms are legal.
 *
 *     h[i,j] = max(0, h[i-1,j-1] + s[i,j], h[i,j-1] - 1)      wavefront: row i on lane i mod L, at step i*k + j        P (1,0), s (k,1)
 *     v[t,j] max= v[t-1,i] + a[i,j]                           planes: j on lanes, one t at a time                      P (0,1), s (1,0)
 *     y[i] = y[i-1] + x[i]                                    prefix: i on lanes, joined by shifts of 1, 2, 4, ...     P (1), s (0)
 *
 * A dependence d takes s.d steps, and a value must be computed before it is read: s.d >= 1. Only an associative
 * operation can run across the lanes of one step (s.d = 0). Lamport, The Parallel Execution of DO Loops, 1974; Kogge
 * and Stone, 1973.
 */

import { rowMajor } from "../../abstraction/affine.ts";
import type { LaneTransform, RecurrenceSchedule } from "../../abstraction/candidate.ts";
import { namesOf, product } from "../../abstraction/collections.ts";
import { type Axis, type Computation, keptIn, outputOf, summedIn } from "../../abstraction/computation.ts";
import { type Dependence, dependencesOf, isRecurrent, printDependence } from "../../abstraction/dependence.ts";
import { bytesOf, type DType } from "../../abstraction/dtype.ts";
import {
  accessesIn,
  axesIn,
  type Compare,
  childrenOf,
  comparesElements,
  type Expr,
  isFloatFunction,
  printExpr,
  walk,
} from "../../abstraction/expression.ts";
import { typeOf } from "../../abstraction/typing.ts";
import { ZMM } from "../../targets/x86.ts";
import { MOST_WRITTEN } from "../schedule/lanes.ts";
import { joinIn, type SumOp } from "./flow.ts";
import { type LaneRefusal, refusal } from "./taps.ts";

type RecurrentForm = "wavefront" | "planes" | "prefix";

export interface Recurrent {
  readonly computation: Computation;
  readonly form: RecurrentForm;
  readonly dtype: DType;
  /** Axes without dependences, outermost first. */
  readonly outer: readonly Axis[];
  /** Axes of the array. Wavefront: rows and columns. Planes: time and the plane's last axis. Prefix: its only axis. */
  readonly inner: readonly Axis[];
  /** Planes only: axes of the plane between time and the last. */
  readonly between: readonly Axis[];
  readonly summed: readonly Axis[];
  readonly dependences: readonly Dependence[];
}

/** The types in which lanes compute. */
const LANE_TYPES: readonly DType[] = ["s32", "f32", "f64"];
/** For each result type, the types whose values it holds exactly, so that its lanes can compare them. */
const HELD: Readonly<Partial<Record<DType, readonly DType[]>>> = {
  s32: ["u8", "s8", "u16", "s16"],
  f32: ["u8", "s8", "u16", "s16"],
  f64: ["u8", "s8", "u16", "s16", "s32", "u32", "f32"],
};

/** The largest skew of a wavefront, which bounds the values in flight. */
const MOST_SKEW = 8;
/** The most registers for the lanes of a wavefront. */
export const MOST_REGISTERS = 4;
/** The most steps for which a wavefront keeps its results, in registers a lane. */
const DEEPEST = 16;

/** The forms in which lanes can compute a result that refers to itself, or why there is none. */
export function recurrentForms(computation: Computation): readonly Recurrent[] | LaneRefusal {
  const { equation, axes, tensors } = computation;
  if (!isRecurrent(equation)) return refusal("form", "the result does not refer to itself");
  const output = outputOf(computation);
  const { dtype } = output;
  if (!LANE_TYPES.includes(dtype)) return refusal("type", `lanes compute in ${LANE_TYPES.join(", ")}, not in ${dtype}`);
  if (equation.where !== undefined)
    return refusal("form", "a where clause leaves elements undefined; write select(condition, a, b) instead");
  if (printExpr(output.storage) !== printExpr(rowMajor(output.dims)))
    return refusal("layout", `${output.name} is not stored row by row`);
  const spatial = keptIn(axes);
  const summed = summedIn(axes);
  const short = spatial.find((a, d) => {
    const index = equation.target.index[d];
    return output.dims[d]?.extent !== a.extent || index?.kind !== "axis" || index.name !== a.name;
  });
  if (short) return refusal("form", `${short.name} does not fill its dimension of ${output.name}`);
  const dtypes = Object.fromEntries(Object.values(tensors).map((t) => [t.name, t.dtype]));
  const odd = oddType(equation.value, dtype, dtypes);
  if (odd !== undefined) return refusal("type", odd);
  const dependences = dependencesOf(equation).map((d) => d.distance);
  const base = { computation, dtype, summed, dependences };
  const shaped = [wavefront, planes, prefix].flatMap((form) => form(base, spatial) ?? []);
  const found = shaped.filter((form) => otherType(form, dtypes) === undefined);
  if (found.length > 0) return found;
  const [first] = shaped;
  if (first) return refusal("type", otherType(first, dtypes) ?? "elements of another type");
  const vectors = dependences.map(printDependence).join(" ");
  const [only] = spatial;
  return refusal(
    "form",
    spatial.length === 1
      ? `along ${only?.name} each element waits for the one before, by ${vectors}; lanes take sums, maxima and minima of all before: y[i] = y[i-1] + ...`
      : `no two axes of the result and no plane before the next carry all dependences, ${vectors}`,
  );
}

export const isRecurrentForms = (found: readonly Recurrent[] | LaneRefusal): found is readonly Recurrent[] =>
  Array.isArray(found);

type Base = Pick<Recurrent, "computation" | "dtype" | "summed" | "dependences">;

/** A wavefront: the last two axes carry all dependences. */
function wavefront(base: Base, spatial: readonly Axis[]): Recurrent | undefined {
  const outer = spatial.slice(0, -2);
  const inner = spatial.slice(-2);
  const { equation } = base.computation;
  if (inner.length < 2 || equation.op !== "=" || base.summed.length > 0) return undefined;
  if (base.dependences.some((d) => d.some((x, i) => x === "*" || (i < outer.length && x !== 0)))) return undefined;
  return { ...base, form: "wavefront", outer, inner, between: [] };
}

/** Planes: the steps of one axis depend only on earlier steps. */
function planes(base: Base, spatial: readonly Axis[]): Recurrent | undefined {
  const firsts = base.dependences.map((d) => d.findIndex((x) => x !== 0));
  const [at = -1] = firsts;
  const time = spatial[at];
  const last = spatial.at(-1);
  if (!time || !last || at >= spatial.length - 1 || firsts.some((first) => first !== at)) return undefined;
  if (base.summed.length > 0 && base.computation.equation.op === "=") return undefined;
  return {
    ...base,
    form: "planes",
    outer: spatial.slice(0, at),
    inner: [time, last],
    between: spatial.slice(at + 1, -1),
  };
}

/** A prefix: each element combines all before it. */
function prefix(base: Base, spatial: readonly Axis[]): Recurrent | undefined {
  const { equation } = base.computation;
  const alongLast = base.dependences.every((d) => d.every((x, i) => x === (i === d.length - 1 ? 1 : 0)));
  if (!alongLast || equation.op !== "=" || base.summed.length > 0 || !joinedIn(base.computation)) return undefined;
  return { ...base, form: "prefix", outer: spatial.slice(0, -1), inner: spatial.slice(-1), between: [] };
}

/** The operation and the term of a prefix: `y[i-1] + x[i]`. Undefined for any other value. */
export function joinedIn({
  equation: { target, value },
}: Computation): { readonly op: SumOp; readonly term: Expr } | undefined {
  const { op = "+=", sides = [] } = joinIn(value) ?? {};
  const isOwn = (e: Expr): boolean => e.kind === "access" && e.tensor === target.tensor;
  const term = sides.find((e) => accessesIn(e).every((a) => a.tensor !== target.tensor));
  const own = sides.find((e) => e !== term);
  return sides.length === 2 && term && own && isOwn(own) ? { op, term } : undefined;
}

/**
 * Why lanes cannot hold an operand of a form. A wavefront computes what depends on only one axis ahead, in its own
 * type.
 */
function otherType(
  { form, inner, dtype, computation }: Recurrent,
  dtypes: Readonly<Record<string, DType>>,
): string | undefined {
  const why = (e: Expr): string | undefined => {
    const own = inner.filter((a) => axesIn(e).includes(a.name)).length;
    const isOwn = accessesIn(e).some((a) => a.tensor === computation.equation.target.tensor);
    if (form === "wavefront" && own === 1 && !isOwn) return undefined;
    const type = e.kind === "access" || e.kind === "cast" ? (typeOf(e, dtypes) ?? dtype) : dtype;
    if (type !== dtype || e.kind === "cast")
      return `${printExpr(e)} is of another type; lanes compute in ${dtype} alone`;
    if (e.kind === "access") return undefined;
    if (e.kind === "call" && isFloatFunction(e.fn)) return `${e.fn} has no instruction on lanes`;
    if (e.kind === "compare" && !comparesElements(e)) return undefined;
    return childrenOf(e)
      .map(why)
      .find((because) => because !== undefined);
  };
  return why(computation.equation.value);
}

/** Why lanes of one type cannot compute a value. */
function oddType(value: Expr, dtype: DType, dtypes: Readonly<Record<string, DType>>): string | undefined {
  for (const e of walk(value)) {
    if (
      e.kind === "binary" &&
      (e.op === "%" || (e.op === "/" && dtype === "s32")) &&
      typeOf(e, dtypes) !== undefined &&
      isValue(e, value)
    )
      return `${printExpr(e)}: lanes have no integer division or remainder`;
    if (e.kind === "compare" && accessesIn(e).length > 0) {
      const own = comparedType(e, dtypes);
      if (own !== dtype && !HELD[dtype]?.includes(own))
        return `${printExpr(e)} compares elements of ${own}, which lanes of ${dtype} do not hold`;
    }
  }
  return undefined;
}

/** Whether a node computes with elements, rather than with indices. */
function isValue(node: Expr, value: Expr): boolean {
  return ![...walk(value)].some((e) => e.kind === "access" && e.index.some((index) => [...walk(index)].includes(node)));
}

const comparedType = ({ left, right }: Compare, dtypes: Readonly<Record<string, DType>>): DType =>
  typeOf(left, dtypes) ?? typeOf(right, dtypes) ?? "f64";

/** The steps that a dependence takes under a row of time; undefined if they are not fixed. */
function stepsOf(row: readonly number[], dependence: readonly (number | "*")[]): number | undefined {
  if (dependence.some((d, i) => d === "*" && row[i] !== 0)) return undefined;
  return dependence.reduce<number>((sum, d, i) => sum + (d === "*" ? 0 : d * (row[i] ?? 0)), 0);
}

/** The dependences along the axes of the array. */
export function arrayDependences({ dependences, outer, between, form }: Recurrent): (number | "*")[][] {
  return dependences.map((d) => {
    const own = d.slice(outer.length);
    return form === "planes" ? own.filter((_, i) => i === 0 || i > between.length) : own;
  });
}

/** The smallest legal skew of a wavefront: the steps by which a row runs behind the row above. */
export function leastSkew(recurrent: Recurrent): number {
  const needed = arrayDependences(recurrent).map(([di = 0, dj = 0]) =>
    di === "*" || dj === "*" || di === 0 ? 1 : Math.ceil((1 - dj) / di),
  );
  return Math.max(1, ...needed);
}

/** The transform of a form. */
export function transformOf(recurrent: Recurrent, skew = 1): LaneTransform {
  const loops = namesOf(recurrent.inner);
  switch (recurrent.form) {
    case "wavefront":
      return { loops, allocation: [1, 0], schedule: [[skew, 1]] };
    case "planes":
      return { loops, allocation: [0, 1], schedule: [[1, 0]] };
    case "prefix":
      return { loops, allocation: [1], schedule: [[0]] };
    default:
      return recurrent.form satisfies never;
  }
}

const same = (a: readonly unknown[], b: readonly unknown[]): boolean =>
  a.length === b.length && a.every((x, i) => x === b[i]);

/** The form that a schedule selects, or why none does. */
export function recurrentUnder(computation: Computation, schedule: RecurrenceSchedule): Recurrent | LaneRefusal {
  const forms = recurrentForms(computation);
  if (!isRecurrentForms(forms)) return forms;
  const { transform } = schedule;
  const found = forms.find((f) => {
    const own = transformOf(f);
    return same(own.loops, transform.loops) && same(own.allocation, transform.allocation);
  });
  const known = forms.map((f) => `P (${transformOf(f).allocation.join(",")}) of ${transformOf(f).loops.join(",")}`);
  if (!found) return refusal("design", `the result refers to itself, which lanes compute by ${known.join(" or ")}`);
  return problemOf(found, schedule) ?? found;
}

export const isForm = (found: Recurrent | LaneRefusal): found is Recurrent => "form" in found;

/** Why a schedule cannot make the result. */
function problemOf(recurrent: Recurrent, s: RecurrenceSchedule): LaneRefusal | undefined {
  const refuse = (because: string): LaneRefusal => refusal("design", because);
  const [row = []] = s.transform.schedule;
  if (s.transform.schedule.length !== 1) return refuse("the schedule of a result that refers to itself has one row");
  const wrong = [s.lanes, s.threads, ...Object.values(s.beside)].find((n) => !Number.isSafeInteger(n) || n < 1);
  if (wrong !== undefined) return refuse(`${wrong} is not a positive number of lanes, threads or steps`);
  // 1. Dependences: nothing may be read before it is computed.
  if (recurrent.form === "prefix") {
    if (!same(row, [0])) return refuse(`a prefix is joined across the lanes of a step: s (0), not (${row.join(",")})`);
  } else
    for (const [i, own] of arrayDependences(recurrent).entries()) {
      const steps = stepsOf(row, own);
      const dependence = recurrent.dependences[i] ?? [];
      if (steps === undefined || steps < 1)
        return refuse(
          `the dependence ${printDependence(dependence)} takes ${steps ?? "an unknown number of"} steps under s (${row.join(",")}); what is read must be made a step before`,
        );
    }
  // 2. What the program can hold.
  const register = ZMM.bytes / bytesOf(recurrent.dtype);
  const most = recurrent.form === "wavefront" ? MOST_REGISTERS * register : register;
  if (s.lanes > most || (s.lanes > register && s.lanes % register !== 0))
    return refuse(
      `${s.lanes} lanes of ${recurrent.dtype}: a register has ${register}, and an array of this form ${most} at most`,
    );
  const [first = 0, second] = row;
  if (recurrent.form === "wavefront" && (second !== 1 || first < 1 || first > MOST_SKEW))
    return refuse(`a row runs 1 to ${MOST_SKEW} steps behind the one above: s (k,1), not (${row.join(",")})`);
  if (recurrent.form === "planes" && !same(row, [1, 0]))
    return refuse(`planes are computed one by one: s (1,0), not (${row.join(",")})`);
  if (recurrent.form === "wavefront") {
    const deep = Math.max(1, ...arrayDependences(recurrent).map((d) => stepsOf(row, d) ?? 0));
    if (deep > DEEPEST) return refuse(`an element is needed ${deep} steps after it was computed, more than ${DEEPEST}`);
    const far = Math.max(0, ...arrayDependences(recurrent).map(([di]) => (di === "*" || di === undefined ? 0 : di)));
    if (far > s.lanes) return refuse(`an element reads ${far} rows above, more than the ${s.lanes} lanes`);
  }
  // 3. Decisions that do not apply.
  const [last] = recurrent.inner.slice(-1);
  const allowed = recurrent.form === "planes" ? [last?.name] : [];
  const idle = Object.keys(s.beside).find((name) => !allowed.includes(name));
  if (idle !== undefined) return refuse(`${idle} has no simultaneous steps here`);
  const blocks = product(Object.values(s.beside));
  if (blocks * [...walk(recurrent.computation.equation.value)].length > MOST_WRITTEN)
    return refuse(`${blocks} vectors side by side would be a program of more than ${MOST_WRITTEN} operations`);
  const apart = recurrent.outer.some((a) => a.extent > 1);
  if (s.threads > 1 && !apart)
    return refuse(
      `${s.threads} threads, but every element waits for others, by ${recurrent.dependences.map(printDependence).join(" ")}: threads share an axis that carries none`,
    );
  return undefined;
}
