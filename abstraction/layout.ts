/**
 * @file How the elements of a tensor lie in memory, as a storage formula over its dimensions.
 *
 *     NHWC     in[n,c,h,w]  ->  ((n*56 + h)*56 + w)*64 + c
 *     NCHW4c   in[n,c,h,w]  ->  (((n*16 + c/4)*56 + h)*56 + w)*4 + c%4
 *
 * A layout name lists the dimensions, whose names are single letters, outermost first: a capital is a whole dimension, a number with a small letter
 * is the innermost block of that dimension.
 */

import { boundsOf, type Extents, offendingPart } from "./affine.ts";
import { volumeOf } from "./collections.ts";
import { suggestion, UsageError } from "./error.ts";
import { axesIn, axis, type Expr, number, over, plus, printExpr, remainder, substitute, times } from "./expression.ts";
import { parseExpr } from "./parse.ts";

/** A dimension of a tensor. */
export interface Dimension {
  readonly name: string;
  readonly extent: number;
}

/** Points of a box; elements of a tensor by its dimensions. */
export const pointsIn = (sides: readonly { readonly extent: number }[]): number =>
  sides.reduce((points, { extent }) => points * extent, 1);

/** Extent by name. */
export const extentsBy = (sides: readonly Dimension[]): Extents =>
  Object.fromEntries(sides.map(({ name, extent }) => [name, extent]));

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
  return substitute(storage, new Map(dims.map((d, i) => [d.name, index[i] ?? number(0)])), "index");
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
    const dim = dims.find((d) => d.name === name) ?? fail(`names a dimension "${part}" that is not there`);
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
  const names = dims.map((d) => d.name);
  const unknown = axesIn(formula).find((name) => !names.includes(name));
  if (unknown !== undefined)
    throw new UsageError(`${subject}: no dimension "${unknown}"`, { source: text, hint: suggestion(unknown, names) });
  const [min] = boundsOf(formula, extentsBy(dims));
  if (min < 0) throw new UsageError(`${subject}: the formula reaches element ${min}`, { source: text });
  return formula;
}
