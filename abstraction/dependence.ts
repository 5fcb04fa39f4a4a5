/**
 * @file Recurrences: how far before the element it computes an equation reads its own target, and whether that element was computed before.
 *
 *     h[i,j] = max(0, h[i-1,j-1] + s[i,j], h[i-1,j] - g, h[i,j-1] - g)          (1,1) (1,0) (0,1)
 *     v[t,j] max= v[t-1,i] + a[i,j]                                             (1,*): all of the plane before
 *
 * Elements are computed in the order of the target's axes, the last fastest, so the first nonzero entry of a dependence must be positive. Names
 * that index nothing, such as `g`, are constants.
 */

import { affineForm } from "./affine.ts";
import { UsageError } from "./error.ts";
import {
  type Access,
  accessesOf,
  axesIn,
  axesOf,
  type Equation,
  type Expr,
  printAccess,
  readsOf,
  walk,
} from "./expression.ts";
import { spanOf } from "./parse.ts";

/**
 * For each axis of the target, the distance from the element read to the element computed; `*` when all positions are
 * read or the distance is unknown.
 */
export type Dependence = readonly (number | "*")[];

/** Whether an equation reads what it assigns. */
export function isRecurrent({ target, value, where }: Equation): boolean {
  return [value, ...(where ? [where] : [])].some((e) => readsOf(e, target.tensor).length > 0);
}

/** Names in a recurrence that neither index nor are compared: numeric constants. */
export function namesOfNumbers(equation: Equation): string[] {
  const indices = accessesOf(equation).flatMap(({ index }) => index.flatMap(axesIn));
  const tested = [...walk(equation.value)].flatMap((e) => (e.kind === "compare" ? axesIn(e) : []));
  const used = new Set([...indices, ...tested, ...(equation.where ? axesIn(equation.where) : [])]);
  return axesOf(equation).filter((name) => !used.has(name));
}

/** `(1,0)` */
export const printDependence = (d: Dependence): string => `(${d.join(",")})`;

/** The reads of the target itself, each with its dependence. */
export function dependencesOf({ target, value }: Equation): { readonly read: Access; readonly distance: Dependence }[] {
  return readsOf(value, target.tensor).map((read) => ({
    read,
    distance: target.index.map((at, d) => distanceOf(at, read.index[d])),
  }));
}

function distanceOf(at: Expr, read: Expr | undefined): number | "*" {
  const made = shiftedAxis(at);
  const form = read && shiftedAxis(read);
  if (made === undefined || form?.name !== made.name) return "*";
  return made.by - form.by;
}

/** An axis and a constant, `i+1`. */
function shiftedAxis(index: Expr): { readonly name: string; readonly by: number } | undefined {
  const form = affineForm(index);
  const [term, ...others] = form?.terms ?? [];
  return form && term?.[1] === 1 && others.length === 0 ? { name: term[0], by: form.constant } : undefined;
}

/** @throws UsageError when an element would be read before it is computed; the message shows the dependence */
export function checkDependences(subject: string, equation: Equation): void {
  const { target, op } = equation;
  const names = target.index.map((e) => shiftedAxis(e)?.name ?? "");
  const odd = target.index.find((_, d) => names[d] === "" || names.indexOf(names[d] ?? "") !== d);
  const problem = (because: string, place: Expr): UsageError => new UsageError(`${subject}: ${because}`, spanOf(place));
  if (op === "sat+=")
    throw problem(
      `${target.tensor} reads itself, and a saturating sum is of an instruction: write +=, max= or min=`,
      target,
    );
  if (odd)
    throw problem(`${printAccess(target)} reads itself, so it must be indexed by an axis for each dimension`, odd);
  for (const { read, distance } of dependencesOf(equation)) {
    if (read.index.length !== names.length)
      throw problem(
        `${printAccess(read)} has rank ${read.index.length}, elsewhere ${read.tensor} has rank ${names.length}`,
        read,
      );
    const first = distance.find((d) => d !== 0);
    if (typeof first === "number" && first > 0) continue;
    const vector = `the dependence ${printDependence(distance)}`;
    if (first === undefined)
      throw problem(`${printAccess(read)} is the element that is made: ${vector} goes nowhere`, read);
    if (first === "*")
      throw problem(
        `${printAccess(read)} may not be made yet: ${vector} has no first entry that is a number above 0; elements are made in the order of ${names.join(", ")}`,
        read,
      );
    throw problem(
      `${printAccess(read)} is not made yet: ${vector} goes forward, and elements are made in the order of ${names.join(", ")}`,
      read,
    );
  }
}
