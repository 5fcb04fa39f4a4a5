/**
 * @file Chains of equations that share their rows. All of them compute one row before any of them begins the next, so a row stays in the
 * nearest cache.
 *
 *     y0[i] max= x0[i,j]                      a softmax of 1536 rows with 128 columns
 *     y1[i,j] = exp(x0[i,j] - y0[i])
 *     y2[i] += y1[i,j]
 *     y3[i,j] = y1[i,j] / y2[i]
 *
 * A sum of the chain says what a row is: its kept loops number the rows, its summed loops the columns. Each equation makes one element for each
 * element of a row, or one for each row. Of what the chain itself makes, it reads its own row only, at its own column or, in a sum, at every
 * column. Whether an equation does so follows from its indices alone (`placedInRows`).
 */

import { addressOf, affineForm, boundsOf, pointsIn, rowMajor } from "./affine.ts";
import { namesOf, sortedBy } from "./collections.ts";
import {
  type Computation,
  elementCount,
  extentsOf,
  keptIn,
  outputOf,
  summedIn,
  type Tensor,
  tensorOf,
  writtenBy,
} from "./computation.ts";
import { isRecurrent } from "./dependence.ts";
import { isElementwise, storingAt } from "./epilogue.ts";
import {
  type Access,
  accessesIn,
  axesIn,
  type Equation,
  type Expr,
  number,
  printAccess,
  readsInIndex,
  rewrite,
  testsElements,
} from "./expression.ts";
import type { Part } from "./program.ts";

/** The rows that the equations of a chain share. */
export interface Rows {
  readonly rows: number;
  /** Elements of a row. */
  readonly columns: number;
}

/** A loop as a digit of the number of a row or a column: `number / stride % extent`. */
export interface Digit {
  readonly of: "row" | "column";
  readonly stride: number;
}

/** How an equation lies in rows. */
interface PlacedEquation {
  /** Its result: one element for each column (`each`), a reduction over the row (`sum`), or a function of such values of the row (`row`). */
  readonly makes: "each" | "sum" | "row";
  /** Each of its loops of more than one step. */
  readonly digits: Readonly<Record<string, Digit>>;
}

/** An equation of a chain. */
export interface ChainPart extends PlacedEquation, Part {}

/** A program whose equations share their rows. */
export interface RowChain extends Rows {
  readonly computation: Computation;
  readonly parts: readonly ChainPart[];
}

/** A program as a chain, or the reason why it is none. */
export function rowChainOf(computation: Computation): RowChain | { readonly because: string } {
  const { parts = [] } = computation.program ?? {};
  const [first] = parts;
  if (!first) return { because: "it is a single equation" };
  const [summed] = parts.flatMap((part) => rowsOf(part.computation) ?? []);
  const rows = summed ?? { rows: elementCount(outputOf(first.computation)), columns: 1 };
  const made = writtenBy(computation);
  const placed: ChainPart[] = [];
  for (const part of parts) {
    const own = new Set(Object.keys(part.names).filter((name) => made.has(part.names[name] ?? name)));
    const place = placedInRows(part.computation, rows, own);
    if ("because" in place) return place;
    placed.push({ ...part, ...place });
  }
  return { ...rows, computation, parts: placed };
}

/** The rows that a sum works on; undefined for an equation that sums nothing. */
export function rowsOf({ axes, equation }: Computation): Rows | undefined {
  if (equation.op === "=") return undefined;
  const points = (kind: "spatial" | "reduce"): number => pointsIn(axes.filter((a) => a.kind === kind));
  const columns = points("reduce");
  return columns > 1 ? { rows: points("spatial"), columns } : undefined;
}

/** The equation that stores, over the loops of the computation; the sum reads as the target of the first equation. */
export function storingEquation(computation: Computation): Equation {
  const { target } = computation.equation;
  return storingAt(computation, target.index, target);
}

/**
 * Places the loops of an equation in rows.
 * @param made names of its tensors that earlier equations of the chain make
 * @returns or the reason why it is no equation of such a chain
 */
export function placedInRows(
  computation: Computation,
  rows: Rows,
  made: ReadonlySet<string> = new Set(),
): PlacedEquation | { readonly because: string } {
  const { equation, epilogue, time } = computation;
  if (time || isRecurrent(equation)) return { because: "its elements are made of one another" };
  if (equation.op === "sat+=") return { because: "a sum of it saturates once, after all points" };
  if (equation.where !== undefined) return { because: "a condition leaves out points" };
  if (epilogue && !isElementwise(epilogue.equation)) return { because: "its epilogue stores at places of its own" };
  const placed = placedLoops(computation, rows, made);
  if ("because" in placed) return placed;
  if (epilogue && placed.makes !== "sum") return { because: "its epilogue follows a sum of one term" };
  const because = misread(computation, { ...rows, ...placed }, made);
  return because === undefined ? placed : { because };
}

/** The loops of an equation as digits of rows and columns. */
function placedLoops(
  computation: Computation,
  { rows, columns }: Rows,
  made: ReadonlySet<string>,
): PlacedEquation | { readonly because: string } {
  const { equation, axes } = computation;
  const stored = storingEquation(computation);
  const output = outputOf(computation);
  if (![equation.target, stored.target].every(({ index }) => index.every((e) => e.kind === "axis")))
    return { because: `${printAccess(stored.target)} is no element at plain loops` };
  const long = axes.filter((a) => a.extent > 1);
  const kept = keptIn(long);
  const summed = summedIn(long);
  const at = flatOf(stored.target, output);
  const count = pointsIn(kept);
  if (!at || count !== elementCount(output)) return { because: `it writes a part of ${output.name}` };
  const digits: Record<string, Digit> = {};
  if (count === rows * columns) {
    if (summed.length > 0) return { because: "it sums for each element of a row" };
    for (const { name, extent } of kept) {
      const stride = at.get(name) ?? 0;
      if (stride * extent <= columns) digits[name] = { of: "column", stride };
      else if (stride % columns === 0) digits[name] = { of: "row", stride: stride / columns };
      else return { because: `loop ${name} runs across the ends of rows` };
    }
    return { makes: "each", digits };
  }
  if (count !== rows) return { because: `it makes ${count} elements, of ${rows} rows with ${columns} columns` };
  for (const { name } of kept) digits[name] = { of: "row", stride: at.get(name) ?? 0 };
  if (summed.length === 0) return { makes: "row", digits };
  if (pointsIn(summed) !== columns) return { because: `it does not sum over rows of ${columns} columns` };
  // The order of columns is that of the row it reads, preferably one computed inside the chain.
  const reads = sortedBy(accessesIn(equation.value), (a) => -Number(made.has(a.tensor)));
  for (const read of reads) {
    const own = flatOf(read, tensorOf(computation, read.tensor));
    if (!own || elementCount(tensorOf(computation, read.tensor)) !== rows * columns) continue;
    if (!kept.every(({ name }) => own.get(name) === (at.get(name) ?? 0) * columns)) continue;
    const strides = summed.map(({ name, extent }) => ({ name, extent, stride: own.get(name) ?? 0 }));
    let below = 1;
    const areDigits = sortedBy(strides, (a) => a.stride).every(({ stride, extent }) => {
      const follows = stride === below;
      below *= extent;
      return follows;
    });
    if (!areDigits) continue;
    for (const { name, stride } of strides) digits[name] = { of: "column", stride };
    return { makes: "sum", digits };
  }
  return { because: "it sums over something else than whole rows" };
}

/** Why an equation cannot read what it reads, row by row; undefined if it can. */
function misread(
  computation: Computation,
  { rows, columns, makes, digits }: Rows & PlacedEquation,
  made: ReadonlySet<string>,
): string | undefined {
  const { equation, axes } = computation;
  const stored = storingEquation(computation);
  const inColumns = namesOf(axes.filter(({ name }) => digits[name]?.of === "column"));
  const bare = [equation.value, stored.value].flatMap(bareAxes);
  if (bare.length > 0) return `the value of ${bare[0]} is part of its elements`;
  const extents = extentsOf(computation);
  const expected = (count: number, name: string): number => {
    const { of, stride } = digits[name] ?? { of: "row", stride: 0 };
    if (count === rows) return of === "row" ? stride : 0;
    return of === "row" ? stride * columns : stride;
  };
  const own = equation.target.tensor;
  const reads = [...accessesIn(equation.value), ...accessesIn(stored.value).filter((a) => a.tensor !== own)];
  for (const read of reads) {
    const tensor = tensorOf(computation, read.tensor);
    if (readsInIndex(read).length > 0) return `${printAccess(read)} is at an index that is read`;
    if (made.has(read.tensor)) {
      const at = flatOf(read, tensor);
      const count = elementCount(tensor);
      const isOwnRow =
        (count === rows || (count === rows * columns && makes !== "row")) &&
        axes.every(({ name, extent }) => extent === 1 || (at?.get(name) ?? 0) === expected(count, name));
      if (!at || !isOwnRow) return `${printAccess(read)} is not of its own row`;
      continue;
    }
    const isInside = read.index.every((e, d) => {
      const [min, max] = boundsOf(e, extents);
      return min >= 0 && max < (tensor.dims[d]?.extent ?? 0);
    });
    if (!isInside) return `${printAccess(read)} may lie outside ${read.tensor}`;
    if (!liesAlong(read, tensor, inColumns, digits)) return `the columns of ${printAccess(read)} do not lie together`;
  }
  return liesAlong(stored.target, outputOf(computation), inColumns, digits)
    ? undefined
    : `the columns of ${printAccess(stored.target)} do not lie together`;
}

/** Whether neighbouring columns are neighbours in memory, or all of them one element. */
function liesAlong(
  { index }: Access,
  tensor: Tensor,
  columns: readonly string[],
  digits: PlacedEquation["digits"],
): boolean {
  const terms = affineForm(addressOf(tensor, index))?.terms;
  const steps = columns.map((name) => (terms?.get(name) ?? 0) / (digits[name]?.stride ?? 1));
  return terms !== undefined && (steps.every((step) => step === 1) || steps.every((step) => step === 0));
}

/** Loops that are part of a value. Those of indices, and of conditions on indices alone, are not. */
function bareAxes(value: Expr): string[] {
  const isPlace = (e: Expr): boolean =>
    e.kind === "access" || ((e.kind === "compare" || e.kind === "logic") && !testsElements(e));
  return axesIn(rewrite(value, (e) => (isPlace(e) ? number(0) : e), "value"));
}

/** The row-major number of an element, by how much each loop adds to it; undefined if it is not such a sum. */
function flatOf({ index }: Access, { dims }: Tensor): ReadonlyMap<string, number> | undefined {
  const form = affineForm(addressOf({ dims, storage: rowMajor(dims) }, index));
  return form?.constant === 0 ? form.terms : undefined;
}
