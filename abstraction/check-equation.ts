/**
 * @file Checks what an equation may contain: indices and conditions that are affine in the axes.
 *
 *     c[i,j] += a[i*k]        index of a[i*k] is not affine: it multiplies two axes
 */

import { type Extents, offendingPart } from "./affine.ts";
import type { Tensor } from "./computation.ts";
import { isRecurrent } from "./dependence.ts";
import { isInteger } from "./dtype.ts";
import { UsageError } from "./error.ts";
import {
  type Access,
  accessesIn,
  accessesOf,
  type Compare,
  comparesElements,
  type Equation,
  type Expr,
  printAccess,
  printExpr,
  readsInIndex,
  substitute,
  walk,
} from "./expression.ts";
import { spanOf } from "./parse.ts";
import { type DTypes, typeOf } from "./typing.ts";
import { checkInside } from "./written.ts";

/** @throws UsageError for an index that is not affine once parameters are substituted */
export function checkIndices(subject: string, equation: Equation, parameters: ReadonlyMap<string, Expr>): void {
  for (const node of accessesOf(equation)) {
    for (const index of node.index) {
      if (index.kind === "border" && node === equation.target)
        throw new UsageError(
          `${subject}: ${printAccess(node)} is assigned, and only a read has a border`,
          spanOf(index),
        );
      const inner = index.kind === "border" ? index.index : index;
      // What is read has a turn of its own.
      if (index.kind === "border" && inner.kind === "access") {
        checkIndexRead(subject, inner);
        continue;
      }
      const offending = offendingPart(substitute(inner, parameters, "index"));
      if (offending) {
        const place = spanOf(offending.part) ?? spanOf(index);
        throw new UsageError(`${subject}: index of ${printAccess(node)} is not affine: ${offending.because}`, place);
      }
    }
  }
}

/** An index that is read must keep to its dimension, and its own indices are affine. */
function checkIndexRead(subject: string, read: Access): void {
  if (readsInIndex(read).length > 0)
    throw new UsageError(
      `${subject}: ${printAccess(read)} is an index and has an index that is read; one may be, not both`,
      spanOf(read),
    );
}

/**
 * Checks indices that are read from a tensor, and elements that a `where` compares: integers of at most 32 bits, of
 * elements that the tensor has. Outside it an index would be the number of no element.
 * @throws UsageError
 */
export function checkIndexReads(
  subject: string,
  equation: Equation,
  tensors: Readonly<Record<string, Tensor>>,
  extents: Extents,
): void {
  const indices = accessesIn(equation.value).flatMap(readsInIndex);
  for (const read of indices) checkRead(subject, equation, read, "an index", tensors, extents);
  for (const read of equation.where ? accessesIn(equation.where) : []) {
    const [bordered] = read.index.filter((e) => e.kind === "border");
    if (bordered)
      throw new UsageError(
        `${subject}: ${printAccess(read)} is in a condition, where indices have no border`,
        spanOf(bordered),
      );
    checkRead(subject, equation, read, "in a condition", tensors, extents);
  }
}

/** @param stands where the element stands */
function checkRead(
  subject: string,
  equation: Equation,
  read: Access,
  stands: "an index" | "in a condition",
  tensors: Readonly<Record<string, Tensor>>,
  extents: Extents,
): void {
  const place = spanOf(read);
  if (isRecurrent(equation))
    throw new UsageError(
      `${subject}: "${equation.target.tensor}" reads itself, so its ${stands === "an index" ? "indices" : "conditions"} cannot be read from a tensor`,
      place,
    );
  const held = tensors[read.tensor];
  if (!held) throw new Error(`internal: no tensor ${read.tensor}`);
  if (!isInteger(held.dtype) || held.dtype === "u32")
    throw new UsageError(
      `${subject}: ${printAccess(read)} is ${stands}, and ${read.tensor} holds ${held.dtype}; integers up to s32 ${stands === "an index" ? "are indices" : "can be compared there"}`,
      place,
    );
  checkInside(subject, read, held, extents);
}

/**
 * @param dtypes types of the inputs, whose elements a select may compare: `select(a[i] == b[j], 2, -1)`. Left out for an epilogue, which may
 * compare no elements, because its sums are rounded.
 * @throws UsageError for a condition that compares neither affine indices nor elements
 */
export function checkConditions(subject: string, { target, value, where }: Equation, dtypes?: DTypes): void {
  const inputs = dtypes && Object.fromEntries(Object.entries(dtypes).filter(([name]) => name !== target.tensor));
  if (where !== undefined) checkCondition(subject, where, inputs);
  for (const node of walk(value)) if (node.kind === "select") checkCondition(subject, node.condition, inputs);
}

/** Conditions must compare indices, so that lowering can cut a program to the points where they hold. */
function checkCondition(subject: string, condition: Expr, inputs?: DTypes): void {
  if (condition.kind === "logic") {
    checkCondition(subject, condition.left, inputs);
    checkCondition(subject, condition.right, inputs);
    return;
  }
  if (condition.kind !== "compare")
    throw new UsageError(`${subject}: "${printExpr(condition)}" is not a condition`, spanOf(condition));
  if (inputs && comparesElements(condition)) {
    checkElements(subject, condition, inputs);
    return;
  }
  for (const side of [condition.left, condition.right]) {
    const offending = offendingPart(side);
    if (offending)
      throw new UsageError(
        `${subject}: condition ${printExpr(condition)} is not affine: ${offending.because}`,
        spanOf(offending.part),
      );
  }
}

/**
 * Elements may be compared with one another or with a number, and s32 elements with an axis; never the results of
 * arithmetic, which are rounded.
 */
function checkElements(subject: string, condition: Compare, inputs: DTypes): void {
  const sides = [condition.left, condition.right];
  const odd = sides.find(
    (e) => e.kind !== "number" && e.kind !== "axis" && !(e.kind === "access" && Object.hasOwn(inputs, e.tensor)),
  );
  if (odd)
    throw new UsageError(
      `${subject}: condition ${printExpr(condition)} compares ${printExpr(odd)}; elements of inputs are compared as they are, with one another or with a number`,
      spanOf(odd),
    );
  typeOf({ kind: "call", fn: "max", args: sides }, inputs);
}

/** Where an axis first stands in the text of an equation. */
export function placeOfAxis(
  equation: Equation,
  name: string,
  hint: string,
): { source?: string; span?: { start: number; end: number }; hint: string } {
  const roots = [equation.target, equation.value, ...(equation.where === undefined ? [] : [equation.where])];
  for (const root of roots)
    for (const node of walk(root)) if (node.kind === "axis" && node.name === name) return { ...spanOf(node), hint };
  return { hint };
}
