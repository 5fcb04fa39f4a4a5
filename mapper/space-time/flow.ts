/**
 * @file The meaning of a system of recurrences, independent of the directions in which it was written.
 *
 *     X[c,q] = select(q == 0 or c == 15, x[c+q], X[c+1,q-1])     X is x[c+q] at every point, passed on along (-1, 1)
 *     Z[c,q] = select(q == 0, 0, Z[c,q-1]) + X[c,q] * W[c,q]
 *     out[c] = Z[c,q] where q == 4                               out[c] += X * W: a sum over q
 *
 * A value that is only passed on may travel either way, and so may a sum whose operation is associative: the space-time
 * transform decides. All other definitions keep their dependences. The kind of a definition is not guessed from its
 * form: the chains of reads are followed point by point, and a sum must visit each of its points once.
 *
 * Inside a {@link Flows} a read of a variable is indexed by its distance, `X[]` at distance zero and `X[0,1]` for
 * X[c,q-1].
 */

import { affineForm, chosenAt, evaluateIndex, extentsBy, pointsOf } from "../../abstraction/affine.ts";
import { namesOf, upTo, volumeOf, withName } from "../../abstraction/collections.ts";
import type { Tensor } from "../../abstraction/computation.ts";
import type { DType } from "../../abstraction/dtype.ts";
import { internal, UsageError } from "../../abstraction/error.ts";
import {
  type Access,
  access,
  accessesIn,
  axis,
  type CombineOp,
  childrenOf,
  compare,
  type Equation,
  type Expr,
  identityOf,
  number,
  printExpr,
  rewrite,
  select,
} from "../../abstraction/expression.ts";
import { distanceOf, type Recurrence, type SourceLoop } from "../../abstraction/recurrence.ts";
import type { Vector } from "./vector.ts";

/** The contents of a variable at a point. */
export type Flow =
  /** A load that does not change along the directions: passed on along them, or loaded wherever it is needed. */
  | { readonly kind: "reuse"; readonly name: string; readonly load: Expr; readonly directions: readonly Vector[] }
  /** As written, with the dependences it was written with. */
  | { readonly kind: "fixed"; readonly name: string; readonly value: Expr };

/** A result that leaves the array. */
export type Outcome =
  /** `target op= term` over every point, accumulated in the named variable. */
  | {
      readonly kind: "sum";
      readonly name: string;
      readonly target: Access;
      readonly op: SumOp;
      readonly term: Expr;
      readonly directions: readonly Vector[];
    }
  | { readonly kind: "fixed"; readonly target: Access; readonly value: Expr; readonly where?: Expr };

export type SumOp = "+=" | "max=" | "min=";

export interface Flows {
  readonly name: string;
  /** All loops, outermost first. */
  readonly loops: readonly SourceLoop[];
  /**
   * Index expressions that must stay below an extent, from loops that were split into tiles which do not divide them.
   */
  readonly tails: readonly { readonly index: Expr; readonly extent: number }[];
  readonly flows: readonly Flow[];
  readonly outcomes: readonly Outcome[];
  readonly variables: Readonly<Record<string, DType>>;
  readonly tensors: Readonly<Record<string, Tensor>>;
}

/**
 * The most points that are followed to prove that a chain is a sum. A larger system keeps its dependences as written.
 */
const MAX_POINTS = 200_000;

/** Analyses a system: its flows and its outcomes. */
export function flowsOf(recurrence: Recurrence): Flows {
  const { name, loops, variables, tensors } = recurrence;
  const byDistance = (e: Expr): Expr =>
    rewrite(
      e,
      (node) => {
        if (node.kind !== "access" || !Object.hasOwn(variables, node.tensor)) return node;
        const distance = distanceOf(node, loops);
        if (!distance) throw new UsageError(`${name}: the dependence on ${printExpr(node)} is not uniform`);
        return access(node.tensor, distance.every((d) => d === 0) ? [] : distance.map(number));
      },
      "value",
    );
  const definitions = recurrence.definitions.map((e) => ({ name: e.target.tensor, value: byDistance(e.value) }));
  const chains = new Map(definitions.map((d) => [d.name, chainOf(d.name, d.value)]));

  const outcomes = recurrence.results.map((e): Outcome => {
    const value = byDistance(e.value);
    const sum =
      value.kind === "access" && value.index.length === 0 ? sumOf(recurrence, e, value.tensor, chains) : undefined;
    if (sum) return sum;
    return { kind: "fixed", target: e.target, value, ...(e.where === undefined ? {} : { where: e.where }) };
  });

  // A variable that a sum has absorbed is kept only if something else reads it.
  const needed = new Set<string>();
  const need = (e: Expr): void => {
    for (const read of accessesIn(e)) {
      if (needed.has(read.tensor)) continue;
      const definition = withName(definitions, read.tensor);
      if (!definition) continue;
      needed.add(read.tensor);
      need(definition.value);
    }
  };
  for (const o of outcomes) need(o.kind === "sum" ? o.term : o.value);
  const flows = definitions
    .filter((d) => needed.has(d.name))
    .map((d): Flow => reuseOf(recurrence, d.name, d.value) ?? { kind: "fixed", name: d.name, value: d.value });
  return { name, loops, tails: [], flows, outcomes, variables, tensors };
}

/** Distance of a read of a variable inside flows; all zeros at the same point. */
export function distanceIn(read: Access, rank: number): number[] {
  return read.index.length === 0 ? upTo(rank).map(() => 0) : read.index.map((e) => (e.kind === "number" ? e.value : 0));
}

/** The condition that the point a distance back is outside the box of loops. */
export function outsideBox(loops: readonly SourceLoop[], distance: Vector): Expr {
  const faces = loops.flatMap(({ name, extent }, i): Expr[] => {
    const d = distance[i] ?? 0;
    if (d === 0) return [];
    const at = axis(name);
    if (d > 0) return [d === 1 ? compare("==", at, 0) : compare("<", at, d)];
    return [d === -1 ? compare("==", at, extent - 1) : compare(">=", at, extent + d)];
  });
  if (faces.length === 0) internal("a dependence of no distance");
  return faces.reduce((left, right): Expr => ({ kind: "logic", op: "or", left, right }));
}

/** The value passed on over several distances: that of the first whose point is inside, `start` where none is. */
export function chainFrom(
  loops: readonly SourceLoop[],
  distances: readonly { readonly distance: Vector; readonly along: Vector }[],
  start: Expr,
  read: (distance: Vector) => Expr,
): Expr {
  return distances.reduceRight<Expr>(
    (otherwise, { distance, along }) => select(outsideBox(loops, along), otherwise, read(distance)),
    start,
  );
}

/** The operation and both sides of a sum, a minimum or a maximum. */
export function joinIn(value: Expr): { readonly op: SumOp; readonly sides: readonly Expr[] } | undefined {
  if (value.kind === "binary" && value.op === "+") return { op: "+=", sides: [value.left, value.right] };
  if (value.kind !== "call" || (value.fn !== "max" && value.fn !== "min")) return undefined;
  return { op: `${value.fn}=`, sides: value.args };
}

/** Leaves of nested selects. */
function leavesOf(e: Expr): Expr[] {
  return e.kind === "select" ? [...leavesOf(e.whenTrue), ...leavesOf(e.whenFalse)] : [e];
}

/**
 * Recognises a variable whose leaves are all one load or the variable itself further back, where the load is the same.
 */
function reuseOf({ loops, variables }: Recurrence, name: string, value: Expr): Flow | undefined {
  const leaves = leavesOf(value);
  const isSelf = (e: Expr): e is Access => e.kind === "access" && e.tensor === name;
  const passed = leaves.filter(isSelf);
  const [load, ...others] = leaves.filter((e) => !isSelf(e));
  if (!load || others.some((e) => printExpr(e) !== printExpr(load))) return undefined;
  if (accessesIn(load).some((a) => Object.hasOwn(variables, a.tensor))) return undefined;
  const directions = passed.map((a) => distanceIn(a, loops.length));
  if (!directions.every((d) => isInvariant(load, d, loops))) return undefined;
  return { kind: "reuse", name, load, directions };
}

/** Whether all elements that an expression reads stay the same one step along a direction. */
export function isInvariant(e: Expr, direction: Vector, loops: readonly SourceLoop[]): boolean {
  if (e.kind === "axis") return direction[loops.findIndex((l) => l.name === e.name)] === 0;
  if (e.kind !== "access") return childrenOf(e).every((part) => isInvariant(part, direction, loops));
  return e.index.every((index) => {
    const form = affineForm(index);
    return (
      form !== undefined &&
      loops.reduce((sum, l, i) => sum + (form.terms.get(l.name) ?? 0) * (direction[i] ?? 0), 0) === 0
    );
  });
}

/** `select(start, 0, Z[z-d]) + term`: the form of an accumulation step. */
interface Chain {
  readonly op: SumOp;
  /** Nested selects whose leaves are the variable further back, or the identity at the start. */
  readonly from: Expr;
  readonly term: Expr;
}

function chainOf(name: string, value: Expr): Chain | undefined {
  const operands = joinIn(value);
  if (!operands) return undefined;
  const isSelf = (e: Expr): boolean => e.kind === "access" && e.tensor === name;
  const reads = (e: Expr): boolean => accessesIn(e).some((a) => a.tensor === name);
  const [first, second] = operands.sides;
  if (!first || !second) return undefined;
  for (const [from, term] of [
    [first, second],
    [second, first],
  ] as const) {
    if (!reads(from) || reads(term)) continue;
    if (leavesOf(from).every((leaf) => isSelf(leaf) || leaf.kind === "number")) return { op: operands.op, from, term };
  }
  return undefined;
}

/**
 * The sum that computes a result. The chains from where the result leaves must visit every point of its element exactly
 * once.
 */
function sumOf(
  recurrence: Recurrence,
  { target, where }: Equation,
  name: string,
  chains: ReadonlyMap<string, Chain | undefined>,
): Outcome | undefined {
  const { loops, variables } = recurrence;
  const last = chains.get(name);
  const dtype = variables[name];
  if (!last || !dtype) return undefined;
  const count = volumeOf(loops);
  if (count > MAX_POINTS) return undefined;
  const op: CombineOp = last.op;
  const identity = identityOf(op, dtype);
  const names = namesOf(loops);
  const extents = extentsBy(loops);
  const place = (z: Readonly<Record<string, number>>): number =>
    loops.reduce((flat, l) => flat * l.extent + (z[l.name] ?? 0), 0);

  const visited = new Map<number, string>();
  const directions = new Map<string, Vector>();
  let term: Expr | undefined;
  /** Follows the chain from `z` to its start. Every point must belong to `element` and be new. */
  const follow = (variable: string, z: Readonly<Record<string, number>>, element: string): boolean => {
    const chain = chains.get(variable);
    if (!chain || chain.op !== op) return false;
    const nested = chain.term.kind === "access" && chain.term.index.length === 0 && chains.get(chain.term.tensor);
    let point = z;
    for (;;) {
      if (nested && chain.term.kind === "access") {
        if (!follow(chain.term.tensor, point, element)) return false;
      } else {
        if (visited.has(place(point))) return false;
        visited.set(place(point), element);
        term = chain.term;
      }
      let leaf = chain.from;
      leaf = chosenAt(leaf, point);
      if (leaf.kind === "number") return leaf.value === identity;
      if (leaf.kind !== "access") return false;
      const distance = distanceIn(leaf, loops.length);
      directions.set(distance.join(), distance);
      const before: Record<string, number> = {};
      for (const [d, { name: loop, extent }] of loops.entries()) {
        const at = (point[loop] ?? 0) - (distance[d] ?? 0);
        if (at < 0 || at >= extent) return false;
        before[loop] = at;
      }
      point = before;
    }
  };
  for (const z of pointsOf(names, extents)) {
    if (where !== undefined && evaluateIndex(where, z) === 0) continue;
    if (!follow(name, z, target.index.map((e) => evaluateIndex(e, z)).join())) return undefined;
  }
  if (visited.size !== count || term === undefined) return undefined;
  for (const z of pointsOf(names, extents))
    if (visited.get(place(z)) !== target.index.map((e) => evaluateIndex(e, z)).join()) return undefined;
  return { kind: "sum", name, target, op: last.op, term, directions: [...directions.values()] };
}
