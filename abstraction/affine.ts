/**
 * @file Index arithmetic: affine forms, their bounds, which expressions are legal as an index, and layouts.
 *
 *     affineForm(p*2 + r - 1)  =  { constant: -1, terms: { p: 2, r: 1 } }
 *     boundsOf(p*2 + r - 1, { p: 28, r: 3 })  =  [-1, 55]
 *
 * A layout says how the elements of a tensor lie in memory, as a storage formula over its dimensions.
 *
 *     NHWC     in[n,c,h,w]  ->  ((n*56 + h)*56 + w)*64 + c
 *     NCHW4c   in[n,c,h,w]  ->  (((n*16 + c/4)*56 + h)*56 + w)*4 + c%4
 *
 * A layout name lists the dimensions, whose names are single letters, outermost first: a capital is a whole dimension, a number with a small letter
 * is the innermost block of that dimension.
 */

import { namesOf, product, volumeOf, withName } from "./collections.ts";
import { internal, suggestion, UsageError } from "./error.ts";
import {
  axesIn,
  axis,
  binary,
  borderOp,
  compareOp,
  type Expr,
  exprsByName,
  extentOfBorder,
  integerOp,
  number,
  over,
  plus,
  printExpr,
  remainder,
  substitute,
  times,
  walk,
} from "./expression.ts";
import { parseExpr } from "./parse.ts";

/** Extent by name of an axis or parameter. */
export type Extents = Readonly<Record<string, number>>;

/** `constant + sum of coefficient * axis`; no term has coefficient 0. */
export interface AffineForm {
  readonly constant: number;
  readonly terms: ReadonlyMap<string, number>;
}

/** The affine form of an index, or undefined when it divides, takes a remainder or multiplies axes. */
export function affineForm(e: Expr): AffineForm | undefined {
  const terms = new Map<string, number>();
  const constant = collect(e, 1, terms);
  return constant === undefined ? undefined : { constant, terms };
}

/**
 * Adds `factor` times the axis terms of an index to `terms`. @returns `factor` times its constant; undefined when the
 * index is not affine
 */
function collect(e: Expr, factor: number, terms: Map<string, number>): number | undefined {
  switch (e.kind) {
    case "number":
      return Number.isInteger(e.value) ? factor * e.value : undefined;
    case "axis": {
      const sum = (terms.get(e.name) ?? 0) + factor;
      if (sum === 0) terms.delete(e.name);
      else terms.set(e.name, sum);
      return 0;
    }
    case "negate":
      return collect(e.value, -factor, terms);
    case "binary": {
      const { op, left, right } = e;
      if (op === "*") {
        const [by, other] = right.kind === "number" ? [right, left] : [left, right];
        const times = constantOf(by);
        if (times !== undefined) return collect(other, times * factor, terms);
        const others = constantOf(other);
        return others === undefined ? undefined : collect(by, others * factor, terms);
      }
      if (op !== "+" && op !== "-") return undefined;
      const first = collect(left, factor, terms);
      const second = first === undefined ? undefined : collect(right, op === "-" ? -factor : factor, terms);
      return first === undefined || second === undefined ? undefined : first + second;
    }
    default:
      return undefined;
  }
}

/** The value of an index that depends on no axis, if it is an integer; else undefined. */
function constantOf(e: Expr): number | undefined {
  if (e.kind === "number") return Number.isInteger(e.value) ? e.value : undefined;
  if (e.kind === "axis") return undefined;
  const form = affineForm(e);
  return form?.terms.size === 0 ? form.constant : undefined;
}

/** Prints in this order: terms that are added, the constant, terms that are subtracted, as in `p*2 + r - 1`. */
export function exprOf({ constant, terms }: AffineForm): Expr {
  const times = ([name, c]: readonly [string, number]): Expr => binary("*", axis(name), number(Math.abs(c)));
  const all = [...terms];
  const added = all.filter(([, c]) => c > 0).reduce<Expr>((sum, t) => binary("+", sum, times(t)), number(0));
  const whole = constant > 0 ? binary("+", added, number(constant)) : added;
  const left = all.filter(([, c]) => c < 0).reduce((sum, t) => binary("-", sum, times(t)), whole);
  return constant < 0 ? binary("-", left, number(-constant)) : left;
}

/**
 * The first part of an index that is not quasi-affine: sums and differences of axes, products with constants, `/` and
 * `%` by positive constants are allowed; a product of axes or a tensor read is not.
 * @param stands where the index stands. A storage formula may also exclusive-or two indices (a swizzle). An epilogue may also store at
 * `i*(i-1)/2 + j`, the rows of a packed triangle.
 */
export function offendingPart(
  e: Expr,
  stands: "index" | "storage" | "stored" = "index",
): { part: Expr; because: string } | undefined {
  for (const node of walk(e)) {
    switch (node.kind) {
      case "number":
        if (!Number.isInteger(node.value)) return { part: node, because: `${node.value} is not an integer` };
        break;
      case "axis":
      case "negate":
        break;
      case "binary": {
        const constant = (side: Expr): boolean => side.kind === "number" || affineForm(side)?.terms.size === 0;
        const isRows = stands === "stored" && largerBy(node.left, node.right) !== undefined;
        if (node.op === "*" && !constant(node.left) && !constant(node.right) && !isRows)
          return { part: node, because: "it multiplies two axes; an index may multiply an axis by a constant only" };
        if (node.op === "^" && stands !== "storage")
          return { part: node, because: `"^" may stand in a storage formula only` };
        if ((node.op === "/" || node.op === "%") && !(node.right.kind === "number" && node.right.value > 0))
          return { part: node, because: `"${node.op}" in an index needs a positive constant on its right` };
        break;
      }
      case "border":
        return {
          part: node,
          because: `"${node.how}" may enclose only the whole index of a tensor, as in u[${node.how}(i-1)]`,
        };
      case "access":
        return {
          part: node,
          because:
            "it reads a tensor; an index may use axes and constants only, or be one element, which stands alone and is kept inside, as in table[clamp(ids[i])]",
        };
      case "cast":
      case "call":
        return { part: node, because: "it calls a function; an index may use axes and constants only" };
      case "compare":
      case "logic":
      case "select":
        return { part: node, because: "it holds a condition, which belongs after where" };
      default:
        return node satisfies never;
    }
  }
  return undefined;
}

/** The constant difference between two indices, as 1 in `i*(i-1)`; undefined when their terms differ. */
function largerBy(left: Expr, right: Expr): number | undefined {
  const difference = affineForm(binary("-", left, right));
  return difference?.terms.size === 0 ? difference.constant : undefined;
}

/** Smallest and largest value of an index while every axis runs over `0 .. extent-1`: exact for affine forms, safe for `/` and `%`. */
export function boundsOf(e: Expr, extents: Extents): readonly [min: number, max: number] {
  if (e.kind === "axis") return [0, extentOf(e.name, extents) - 1];
  if (e.kind === "border") return [0, extentOfBorder(e) - 1];
  const affine = affineForm(e);
  if (affine) {
    let min = affine.constant;
    let max = affine.constant;
    for (const [name, c] of affine.terms) {
      const reach = c * (extentOf(name, extents) - 1);
      if (reach < 0) min += reach;
      else max += reach;
    }
    return [min, max];
  }
  if (e.kind === "negate") {
    const [min, max] = boundsOf(e.value, extents);
    return [-max, -min];
  }
  if (e.kind !== "binary") internal(`"${e.kind}" has no index bounds`);
  const [a, b] = boundsOf(e.left, extents);
  const [c, d] = boundsOf(e.right, extents);
  const { op } = e;
  switch (op) {
    case "+":
      return [a + c, b + d];
    case "-":
      return [a - d, b - c];
    case "*": {
      const larger = largerBy(e.left, e.right);
      if (larger !== undefined) {
        // x*(x + larger) is smallest at its vertex, or at the end of the range nearest to it.
        const at = (x: number): number => x * (x + larger);
        const vertex = Math.min(d, Math.max(c, Math.floor(-larger / 2)));
        return [at(vertex), Math.max(at(c), at(d))];
      }
      const corners = [a * c, a * d, b * c, b * d];
      return [Math.min(...corners), Math.max(...corners)];
    }
    case "/":
      return [Math.floor(a / c), Math.floor(b / c)];
    case "%":
      return Math.floor(a / c) === Math.floor(b / c)
        ? [a - c * Math.floor(a / c), b - c * Math.floor(b / c)]
        : [0, c - 1];
    case "^": {
      if (a < 0 || c < 0) internal("an exclusive or of a negative index");
      // The result has no bit above the highest bit of either side.
      return [0, 2 ** Math.ceil(Math.log2(Math.max(b, d) + 1)) - 1];
    }
    default:
      return op satisfies never;
  }
}

/** The increment of an index per step of a name; undefined if it varies. */
export function strideIn(index: Expr, name: string): number | undefined {
  if (!axesIn(index).includes(name)) return 0;
  const form = affineForm(index);
  if (form) return form.terms.get(name) ?? 0;
  if (index.kind !== "binary" || (index.op !== "+" && index.op !== "-")) return undefined;
  const left = strideIn(index.left, name);
  const right = strideIn(index.right, name);
  if (left === undefined || right === undefined) return undefined;
  return index.op === "+" ? left + right : left - right;
}

/** The value of an index, or the truth (1 or 0) of a condition, at one point. */
export function evaluateIndex(e: Expr, point: Extents): number {
  switch (e.kind) {
    case "number":
      return e.value;
    case "axis":
      return extentOf(e.name, point);
    case "negate":
      return -evaluateIndex(e.value, point);
    case "border":
      return borderOp(e, evaluateIndex(e.index, point));
    case "binary":
      return integerOp(e.op, evaluateIndex(e.left, point), evaluateIndex(e.right, point));
    case "compare":
      return compareOp(e.op, evaluateIndex(e.left, point), evaluateIndex(e.right, point)) ? 1 : 0;
    case "logic": {
      const left = evaluateIndex(e.left, point) !== 0;
      const right = evaluateIndex(e.right, point) !== 0;
      return (e.op === "and" ? left && right : left || right) ? 1 : 0;
    }
    default:
      return internal(`"${e.kind}" cannot stand in an index`);
  }
}

/** The value that the conditions around it choose at a point. */
export function chosenAt(e: Expr, point: Extents): Expr {
  if (e.kind !== "select") return e;
  return chosenAt(evaluateIndex(e.condition, point) !== 0 ? e.whenTrue : e.whenFalse, point);
}

/** The greatest common divisor; gcd(a, 0) is |a|. */
export function gcd(a: number, b: number): number {
  return b === 0 ? Math.abs(a) : gcd(b, a % b);
}

export const leastCommonMultiple = (a: number, b: number): number => (a / gcd(a, b)) * b;

/** So many steps of any axis change an index by a constant: 16 for `64*(k/16) + k%16`, 1 if it is affine; undefined if no such number is known. */
export function periodOf(e: Expr): number | undefined {
  switch (e.kind) {
    case "number":
    case "axis":
      return 1;
    case "negate":
      return periodOf(e.value);
    case "binary": {
      const left = periodOf(e.left);
      const right = periodOf(e.right);
      if (left === undefined || right === undefined) return undefined;
      if (e.op === "+" || e.op === "-") return leastCommonMultiple(left, right);
      if (e.op === "*") return e.left.kind === "number" || e.right.kind === "number" ? left * right : undefined;
      return e.op !== "^" && e.right.kind === "number" ? left * e.right.value : undefined;
    }
    default:
      return undefined;
  }
}

/** How many points a box has. */
export const pointsOver = (axes: readonly string[], extents: Extents): number =>
  product(axes.map((name) => extentOf(name, extents)));

/** Every point of a box, last axis fastest. */
export function* pointsOf(axes: readonly string[], extents: Extents): Generator<Record<string, number>> {
  const point: Record<string, number> = {};
  for (const name of axes) {
    if (extentOf(name, extents) < 1) return;
    point[name] = 0;
  }
  for (;;) {
    yield { ...point };
    let d = axes.length - 1;
    for (; d >= 0; d--) {
      const name = axes[d] ?? "";
      const value = (point[name] ?? 0) + 1;
      if (value < extentOf(name, extents)) {
        point[name] = value;
        break;
      }
      point[name] = 0;
    }
    if (d < 0) return;
  }
}

export function extentOf(name: string, extents: Extents): number {
  return extents[name] ?? internal(`axis "${name}" is not bound`);
}

/** A dimension of a tensor. */
export interface Dimension {
  readonly name: string;
  readonly extent: number;
}

/** Points of a box; elements of a tensor by its dimensions. */
export const pointsIn = (sides: readonly { readonly extent: number }[]): number => volumeOf(sides);

/** Extent by name. */
export const extentsBy = (sides: readonly Dimension[]): Extents =>
  Object.fromEntries(sides.map(({ name, extent }) => [name, extent]));

/** As text: `m 64, n 32`. */
export const sizesText = (sides: readonly Dimension[]): string => sides.map((d) => `${d.name} ${d.extent}`).join(", ");

/** Size of each dimension. */
export const shapeOf = ({ dims }: { readonly dims: readonly Dimension[] }): number[] => dims.map((d) => d.extent);

/** Row-major, the last dimension contiguous. */
export function rowMajor(dims: readonly Dimension[]): Expr {
  return fuseRowMajor(dims.map(({ name, extent }) => ({ index: axis(name), extent })));
}

/** `((i0*n1 + i1)*n2 + i2) ...`: one number from several digits, the last one fastest. */
export function fuseRowMajor(digits: readonly { readonly index: Expr; readonly extent: number }[]): Expr {
  return digits.reduce<Expr>((sum, { index, extent }) => plus(times(sum, extent), index), number(0));
}

/** The place in memory of the element at an index. */
export function addressOf(
  { dims, storage }: { readonly dims: readonly Dimension[]; readonly storage: Expr },
  index: readonly Expr[],
): Expr {
  return substitute(storage, exprsByName(namesOf(dims), index), "index");
}

/** The digits of a number below the product of their extents, the last one fastest: the inverse of {@link fuseRowMajor}. */
export function splitRowMajor<D extends { readonly extent: number }>(
  fused: Expr,
  dims: readonly D[],
): (readonly [D, Expr])[] {
  const all = volumeOf(dims);
  let below = 1;
  return dims.toReversed().map((d) => {
    const high = over(fused, below);
    below *= d.extent;
    return [d, below === all ? high : remainder(high, d.extent)];
  });
}

/** The shape and the storage order of a tensor's elements as text, independent of the names of its dimensions. */
export function storageText({
  dims,
  storage,
}: {
  readonly dims: readonly Dimension[];
  readonly storage: Expr;
}): string {
  const places = new Map(dims.map((d, i) => [d.name, axis(`d${i}`)]));
  return `${printExpr(substitute(storage, places, "index"), "formula")} of ${shapeOf({ dims }).join(",")}`;
}

/**
 * The storage formula of a layout name.
 * @param layout for example `NCHW`, `NHWC`, `NCHW16c`, `KCRS`; letters are the names of dimensions
 * @throws UsageError when a letter names no dimension, a dimension is missing, or a block stands without its dimension
 */
export function layoutStorage(layout: string, dims: readonly Dimension[], subject = "layout"): Expr {
  const fail = (because: string): never => {
    throw new UsageError(
      `${subject}: "${layout}" ${because}`,
      `dimensions: ${dims.map((d) => `${d.name.toUpperCase()} (${d.extent})`).join(", ")}; for example ${dims.map((d) => d.name.toUpperCase()).join("")}`,
    );
  };
  const parts: readonly string[] = layout.match(/[A-Z]|\d+[a-z]/g) ?? [];
  if (parts.join("") !== layout || parts.length === 0)
    fail("is not a layout name: capitals for dimensions, then blocks such as 16c");

  // 1. Block sizes by dimension.
  const blocks = new Map<string, number>();
  for (const part of parts.filter((p) => p.length > 1)) {
    const name = part.slice(-1);
    const size = Number.parseInt(part, 10);
    if (blocks.has(name)) fail(`blocks ${name.toUpperCase()} twice`);
    if (size < 1) fail("has an empty block");
    blocks.set(name, size);
  }

  // 2. Each part is a digit: a whole dimension, the outer part of a blocked one, or a block.
  const digits = parts.map((part) => {
    const name = part.slice(-1).toLowerCase();
    const dim = withName(dims, name) ?? fail(`names a dimension "${part}" that is not there`);
    const block = blocks.get(name) ?? 1;
    if (part.length > 1) return { index: remainder(axis(name), block), extent: block };
    return { index: over(axis(name), block), extent: Math.ceil(dim.extent / block) };
  });

  // 3. Every dimension exactly once, and its block inside it.
  for (const { name } of dims) {
    const whole = parts.filter((p) => p === name.toUpperCase()).length;
    if (whole !== 1)
      fail(whole === 0 ? `leaves out dimension ${name.toUpperCase()}` : `names dimension ${name.toUpperCase()} twice`);
    const block = parts.findIndex((p) => p.length > 1 && p.endsWith(name));
    if (block >= 0 && block < parts.indexOf(name.toUpperCase()))
      fail(`puts the block ${parts[block]} outside its dimension`);
  }
  return fuseRowMajor(digits);
}

/**
 * Parses a storage formula, for layouts that no layout name expresses: `(l/49)*3136 + c*49 + l%49`.
 * @throws UsageError when it is malformed, names no dimension of the tensor, or reaches a negative element
 */
export function storageFormula(text: string, dims: readonly Dimension[], subject = "storage"): Expr {
  const formula = parseExpr(text);
  const offending = offendingPart(formula, "storage");
  if (offending)
    throw new UsageError(`${subject}: ${printExpr(offending.part)} is not affine: ${offending.because}`, {
      source: text,
    });
  const names = namesOf(dims);
  const unknown = axesIn(formula).find((name) => !names.includes(name));
  if (unknown !== undefined)
    throw new UsageError(`${subject}: no dimension "${unknown}"`, { source: text, hint: suggestion(unknown, names) });
  const [min] = boundsOf(formula, extentsBy(dims));
  if (min < 0) throw new UsageError(`${subject}: the formula reaches element ${min}`, { source: text });
  return formula;
}

/**
 * A formula of values by their number, if each bit of the number adds a fixed amount: `2*(lane%4)` of [0, 2, 4, 6, 0, 2, ...].
 * @param values a power of two of them; @param of their number
 */
export function sumOfBits(values: readonly number[], of: Expr): Expr | undefined {
  const [origin = 0] = values;
  const runs: { readonly bit: number; readonly step: number; extent: number }[] = [];
  for (let bit = 1; bit < values.length; bit *= 2) {
    const step = (values[bit] ?? 0) - origin;
    const last = runs.at(-1);
    if (last && step === last.step * last.extent) last.extent *= 2;
    else runs.push({ bit, step, extent: 2 });
  }
  const digit = (i: number, { bit, extent }: (typeof runs)[number]): number => Math.floor(i / bit) % extent;
  const isSum = values.every((value, i) => value === runs.reduce((sum, run) => sum + run.step * digit(i, run), origin));
  if (!isSum) return undefined;
  return runs.reduce<Expr>(
    (e, { bit, step, extent }) => plus(e, times(step, remainder(over(of, bit), extent))),
    number(origin),
  );
}
