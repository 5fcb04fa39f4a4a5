/**
 * @file A weighted sum of neighbours, recognised in an equation: its neighbours (taps) and their factors.
 *
 *     out[i,j] += in[i+r-1,j+s-1] * w[r,s] where r == 1 or s == 1
 *
 *     i-1,j  w[0,1]     i,j-1  w[1,0]     i,j  w[1,1]     i,j+1  w[1,2]     i+1,j  w[2,1]
 *
 * Lanes can compute it if every neighbour is at a fixed distance from the output, so that each lane can reuse what its
 * neighbour has read.
 */

import { affineForm, boundsOf, type Extents, evaluateIndex, pointsOf, rowMajor } from "../../abstraction/affine.ts";
import { volumeOf } from "../../abstraction/collections.ts";
import { type Computation, extentsOf, outputOf, type Tensor, tensorOf } from "../../abstraction/computation.ts";
import type { DType } from "../../abstraction/dtype.ts";
import {
  type Access,
  accessesIn,
  axesIn,
  axis,
  type Expr,
  number,
  operandsOf,
  plus,
  printAccess,
  printExpr,
  substitute,
  times,
} from "../../abstraction/expression.ts";

/** One neighbour and its factor. */
export interface Tap {
  /** The offset along each dimension of the input: numbers, or indices over the rolled axes. */
  readonly shift: readonly Expr[];
  /** The factor of the neighbour; undefined in a plain sum. */
  readonly factor?: Expr;
}

export interface TapSum extends Window {
  readonly computation: Computation;
  readonly output: Tensor;
  readonly input: Tensor;
  /** The spatial axis that each dimension of the input follows. A dimension of extent 1 may follow none. */
  readonly follows: readonly (string | undefined)[];
  /** The axis along the lanes: the last of the output, contiguous in both tensors. */
  readonly laneAxis: string;
  /** Summed axes that stay loops, which bounds the code size of large filters. */
  readonly rolled: readonly string[];
  readonly taps: readonly Tap[];
}

/** The extent of the taps, which determines blocks, borders and overlaps. */
export interface Window {
  /** Smallest and largest shift along each dimension of the input. Lanes run along the last. */
  readonly shifts: readonly (readonly [min: number, max: number])[];
  /** M: columns of the window. */
  readonly columns: number;
  /** The axis, and the input dimension, of the rows of a block; undefined if no axis above the lanes has shifts. */
  readonly rowAxis: string | undefined;
  readonly rowDimension: number | undefined;
}

/** Why lanes cannot compute it. */
export interface LaneRefusal {
  readonly rule: "form" | "type" | "layout" | "step" | "condition" | "length" | "design";
  /** One sentence. */
  readonly because: string;
}

/** A refusal that begins with its rule. */
export const refusal = (rule: LaneRefusal["rule"], because: string): LaneRefusal => ({
  rule,
  because: `${rule}: ${because}`,
});

type TapVerdict = { readonly ok: true; readonly sum: TapSum } | { readonly ok: false; readonly refusal: LaneRefusal };

/** Types of windows, whose data, weights and sums are all of one type. Sums of integers keep their low bits. */
const WINDOW_TYPES: ReadonlySet<DType> = new Set(["f32", "f64", "s32", "s16", "f16"]);

/** The most taps. Longer sums would make too long a program and suit an instruction for products. */
const MOST_TAPS = 2048;

class Refused extends Error {
  readonly refusal: LaneRefusal;

  constructor(rule: LaneRefusal["rule"], because: string) {
    super(because);
    this.refusal = refusal(rule, because);
  }
}

/**
 * The taps of a computation, or why it has none.
 * @param rolled summed axes that stay symbolic; no condition may depend on them
 */
export function tapsOf(computation: Computation, rolled: readonly string[] = []): TapVerdict {
  try {
    return { ok: true, sum: analyse(computation, rolled) };
  } catch (error) {
    if (error instanceof Refused) return { ok: false, refusal: error.refusal };
    throw error;
  }
}

function analyse(computation: Computation, rolled: readonly string[]): TapSum {
  const { equation, axes } = computation;
  if (computation.time) throw new Refused("form", "it steps through time, and is no sum of one window");
  if (computation.epilogue) throw new Refused("form", "an epilogue follows the sum");
  if (equation.op !== "+=" && equation.op !== "=")
    throw new Refused("form", `${equation.op} is no sum; lanes add what they multiply`);

  // 1. The output: plain axes, the last one contiguous.
  const output = outputOf(computation);
  const spatial = equation.target.index.map((index) => {
    if (index.kind !== "axis") throw new Refused("form", `${printAccess(equation.target)} is not indexed by bare axes`);
    return index.name;
  });
  const laneAxis = spatial.at(-1);
  if (laneAxis === undefined) throw new Refused("form", `${output.name} has no axis for lanes to lie along`);
  if (new Set(spatial).size < spatial.length)
    throw new Refused("form", `${printAccess(equation.target)} uses an axis twice`);
  for (const { name, extent } of axes.filter((a) => a.kind === "spatial"))
    if (output.dims[spatial.indexOf(name)]?.extent !== extent)
      throw new Refused("form", `${name} does not fill its dimension of ${output.name}`);

  // 2. Terms: each reads the input once.
  const terms = termsOf(equation.value).map(({ factors, negative }) =>
    termOf(factors, negative, laneAxis, computation),
  );
  const names = new Set(terms.map((t) => t.read.tensor));
  const [inputName] = names;
  if (inputName === undefined || names.size !== 1)
    throw new Refused(
      "form",
      `lanes need one input that moves along ${laneAxis}, got ${[...names].join(", ") || "none"}`,
    );
  const input = tensorOf(computation, inputName);
  for (const t of [output, input])
    if (printExpr(t.storage) !== printExpr(rowMajor(t.dims)))
      throw new Refused("layout", `${t.name} is not stored row by row, so ${laneAxis} is not contiguous`);
  if (!WINDOW_TYPES.has(output.dtype))
    throw new Refused("type", `lanes compute ${[...WINDOW_TYPES].join(", ")}; ${output.name} is ${output.dtype}`);
  for (const t of Object.values(computation.tensors))
    if (t.dtype !== output.dtype)
      throw new Refused("type", `${t.name} is ${t.dtype} and ${output.name} is ${output.dtype}`);

  // 3. The input moves by one position when an output axis does.
  const follows = input.dims.map((_, d) => followedBy(terms, d, spatial));
  if (follows.at(-1) !== laneAxis)
    throw new Refused("layout", `the last dimension of ${input.name} does not follow ${laneAxis}`);

  // 4. The points of the summed axes at which the condition holds.
  const { where } = equation;
  const summed = axes.filter((a) => a.kind === "reduce").map((a) => a.name);
  const stays = where && axesIn(where).find((name) => !summed.includes(name) || rolled.includes(name));
  if (stays !== undefined)
    throw new Refused("condition", `it depends on ${stays}, so the taps differ from place to place`);
  const unrolled = summed.filter((name) => !rolled.includes(name));
  const extents = extentsOf(computation);
  if (unrolled.reduce((n, name) => n * (extents[name] ?? 1), terms.length) > MOST_TAPS)
    throw new Refused("length", `more than ${MOST_TAPS} taps`);
  const taps: Tap[] = [];
  for (const point of pointsOf(unrolled, extents)) {
    if (where && evaluateIndex(where, point) === 0) continue;
    const at = new Map(Object.entries(point).map(([name, value]) => [name, number(value)]));
    for (const { read, factor } of terms)
      taps.push({
        shift: read.index.map((index, d) => offsetFrom(substitute(index, at, "index"), follows[d])),
        ...(factor && { factor: substitute(factor, at, "value") }),
      });
  }
  if (taps.length === 0) throw new Refused("condition", "it holds nowhere");
  const window = windowOf(taps, follows, spatial.at(-2), extents);
  return {
    computation,
    output,
    input,
    follows,
    laneAxis,
    rolled: rolled.filter((r) => summed.includes(r)),
    taps,
    ...window,
  };
}

/** @param above the output axis above the one along the lanes */
function windowOf(
  taps: readonly Tap[],
  follows: readonly (string | undefined)[],
  above: string | undefined,
  extents: Extents,
): Window {
  const shifts = follows.map((_, d) => {
    const each = taps.map((t) => boundsOf(t.shift[d] ?? number(0), extents));
    return [Math.min(...each.map(([min]) => min)), Math.max(...each.map(([, max]) => max))] as const;
  });
  const [min, max] = shifts.at(-1) ?? [0, 0];
  const following = follows.flatMap((f, d) => (f !== undefined && f === above ? [d] : []));
  const isRow = following.length === 1 && !taps.some((t) => t.factor && axesIn(t.factor).includes(above ?? ""));
  return {
    shifts,
    columns: max - min + 1,
    rowAxis: isRow ? above : undefined,
    rowDimension: isRow ? following[0] : undefined,
  };
}

/** Steps of the loops that are kept. */
export const stepsKept = ({ rolled, computation }: TapSum): number =>
  volumeOf(computation.axes.filter((a) => rolled.includes(a.name)));

/** Summed axes that may stay loops: those that no condition depends on. */
export function rollable(computation: Computation): readonly string[] {
  const { where } = computation.equation;
  const bound = where ? axesIn(where) : [];
  return computation.axes
    .filter((a) => a.kind === "reduce" && a.extent > 1 && !bound.includes(a.name))
    .map((a) => a.name);
}

interface Term {
  readonly read: Access;
  readonly factor?: Expr;
}

/** `a*x - b*y` as its terms, each a list of factors. */
function termsOf(e: Expr, negative = false): { readonly factors: readonly Expr[]; readonly negative: boolean }[] {
  if (e.kind === "negate") return termsOf(e.value, !negative);
  if (e.kind === "binary" && (e.op === "+" || e.op === "-"))
    return [...termsOf(e.left, negative), ...termsOf(e.right, e.op === "-" ? !negative : negative)];
  return [{ factors: operandsOf(e, "*"), negative }];
}

function termOf(factors: readonly Expr[], negative: boolean, laneAxis: string, computation: Computation): Term {
  const moving = factors.filter((f) => axesIn(f).includes(laneAxis));
  const [read] = moving;
  if (moving.length !== 1 || read?.kind !== "access")
    throw new Refused(
      "form",
      `${factors.map((f) => printExpr(f)).join(" * ")} is not a factor times an element along ${laneAxis}`,
    );
  if (read.tensor === computation.equation.target.tensor)
    throw new Refused("form", `${read.tensor} reads itself; a recurrence needs a space-time design`);
  const others = factors.filter((f) => f !== read);
  for (const f of others)
    if (f.kind !== "number" && f.kind !== "access")
      throw new Refused("form", `the factor ${printExpr(f)} is neither a number nor an element of a tensor`);
  const spread = others.flatMap((f) => accessesIn(f)).find((a) => a.tensor === read.tensor);
  if (spread) throw new Refused("form", `${read.tensor} is both the input and a factor`);
  const signed = negative ? [number(-1), ...others] : others;
  const [first, ...rest] = signed;
  if (first === undefined) return { read };
  return { read, factor: rest.reduce<Expr>((left, right) => product(left, right), first) };
}

/** Multiplies constants exactly. Products that would round are left to the element type. */
function product(left: Expr, right: Expr): Expr {
  if (left.kind === "number" && left.value === -1)
    return right.kind === "number" ? { kind: "number", value: -right.value } : { kind: "negate", value: right };
  return { kind: "binary", op: "*", left, right };
}

/** The output axis that a dimension of the input follows. */
function followedBy(terms: readonly Term[], d: number, spatial: readonly string[]): string | undefined {
  const each = terms.map(({ read }) => {
    const index = read.index[d] ?? number(0);
    const form = affineForm(index);
    if (!form)
      throw new Refused(
        "step",
        `${printExpr(index)} in ${printAccess(read)} divides; neighbours lie fixed distances apart`,
      );
    const moving = spatial.filter((name) => form.terms.has(name));
    const [only] = moving;
    if (moving.length > 1)
      throw new Refused("step", `${printExpr(index)} in ${printAccess(read)} moves with ${moving.join(" and ")}`);
    if (only !== undefined && form.terms.get(only) !== 1)
      throw new Refused(
        "step",
        `${printAccess(read)} moves ${form.terms.get(only)} places when ${only} moves one; neighbours are then not shared`,
      );
    return only;
  });
  if (new Set(each).size > 1)
    throw new Refused("step", `dimension ${d} of the input follows ${[...new Set(each)].join(" and ")}`);
  return each[0];
}

/** `i + r - 1` from i: `r - 1`. */
function offsetFrom(index: Expr, followed: string | undefined): Expr {
  const form = affineForm(index);
  if (!form) throw new Error(`internal: ${printExpr(index)} is not affine`);
  let offset: Expr = number(0);
  for (const [name, coefficient] of form.terms)
    if (name !== followed) offset = plus(offset, times(coefficient, axis(name)));
  return plus(offset, form.constant);
}

/** The constant shift of a tap along a dimension. */
export function shiftAt(tap: Tap, d: number): number {
  const shift = tap.shift[d];
  if (shift?.kind !== "number")
    throw new Error("internal: a shift that depends on a rolled axis was taken for a number");
  return shift.value;
}
