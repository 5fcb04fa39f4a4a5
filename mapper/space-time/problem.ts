/**
 * @file The input of space-time mapping: the loops of the array, and the vectors along which each operand is the same
 * element.
 *
 *     z[c] += x[c+q] * w[q]     loops c 16, q 5     x (1,-1)   w (1,0)   z (0,1)
 *
 * The vectors are the integer null space of each access map. They imply no direction: a value that is only read may
 * travel either way, and a sum may be formed from either end. Only a user's own recurrence has fixed directions.
 *
 * Chooses which loops of a computation run inside the array, how these are tiled, and which run in sequence
 * outside.
 *
 *     conv1d, 16 lanes     inside p 16 (of 890), r 5     outside k 512, c 512, p_tile 56
 */

import { affineForm, sizesText } from "../../abstraction/affine.ts";
import { hasName, mapValues, namesOf, volumeOf, withName } from "../../abstraction/collections.ts";
import {
  type Axis,
  type Computation,
  extentsOf,
  keptIn,
  summedIn,
  type Tensor,
  type TensorSpec,
} from "../../abstraction/computation.ts";
import { suggestion, UsageError } from "../../abstraction/error.ts";
import {
  type Access,
  accessesIn,
  axesIn,
  choosesByElements,
  type Expr,
  isSame,
  printAccess,
  printEquation,
  readsIndices,
  rewrite,
  select,
  testsElements,
} from "../../abstraction/expression.ts";
import { freshName } from "../../abstraction/loop-nest.ts";
import type { SourceLoop } from "../../abstraction/recurrence.ts";
import { extentOfRow, nullSpace, primitive, printVector, type Vector } from "./vector.ts";

/** A loop that the array processes in tiles: its index is `size * outer + name`. */
export interface Tiled {
  readonly name: string;
  readonly size: number;
  readonly outer: string;
  /** Name of the inner loop. It keeps the loop's name unless the array contains both parts. */
  readonly inner?: string;
}

export interface ArraySpace {
  readonly inside: readonly SourceLoop[];
  /** Loops in sequence outside the array, outermost first; loops over tiles come last. */
  readonly outside: readonly SourceLoop[];
  readonly tiled: readonly Tiled[];
  /** Loops of one step: their index is 0. */
  readonly dropped: readonly string[];
}

/** The loops of an array, with nothing around it. */
export const onlyInside = (inside: readonly SourceLoop[]): ArraySpace => ({
  inside,
  outside: [],
  tiled: [],
  dropped: [],
});

/** Which loops an array runs. */
export interface ArrayLoopOptions {
  /** Loops of the array, outermost first; chosen when left out. */
  readonly loops?: readonly string[];
  /** Longer spatial loops of the array are tiled to this size. */
  readonly lanes?: number;
}

/** The most loops for which transforms are enumerated. */
const MOST_LOOPS = 4;

/**
 * Chooses and tiles the loops of the array. Up to three loops are all taken. Of more loops, a window (`p+r`) takes its
 * innermost spatial loop and the last two loops it sums over; without a window the array takes the last two spatial
 * loops and the last summed one. Loops of one step are dropped.
 * @throws UsageError for an unknown loop, or if fewer than two are left
 */
export function arraySpace(computation: Computation, options: ArrayLoopOptions = {}): ArraySpace {
  const long = computation.axes.filter((a) => a.extent > 1);
  const names = options.loops ?? chosenLoops(computation, long);
  const known = namesOf(computation.axes);
  for (const [i, name] of names.entries()) {
    if (!known.includes(name)) throw new UsageError(`${computation.name}: no loop "${name}"`, suggestion(name, known));
    if (names.indexOf(name) !== i) throw new UsageError(`${computation.name}: loop ${name} is named twice`);
  }
  const inside = names.flatMap((name) => withName(long, name) ?? []);
  if (inside.length < 2)
    throw new UsageError(
      `${computation.name}: an array needs two loops of more than one step, got ${sizesText(inside) || "none"}`,
      `the loops are ${sizesText(computation.axes)}`,
    );
  if (inside.length > MOST_LOOPS)
    throw new UsageError(
      `${computation.name}: an array has at most ${MOST_LOOPS} loops, got ${names.join(", ")}`,
      "the others stay in sequence outside",
    );
  const extents = extentsOf(computation);
  const tiled = inside
    .filter((a) => options.lanes !== undefined && a.extent > options.lanes && isTiled(computation, a))
    .map((a) => ({
      name: a.name,
      size: options.lanes ?? a.extent,
      outer: freshName(`${a.name}_tile`, new Set(known)),
    }));
  const tileOf = (name: string): Tiled | undefined => withName(tiled, name);
  return {
    inside: inside.map(({ name, extent }) => ({ name, extent: tileOf(name)?.size ?? extent })),
    outside: [
      ...long.filter((a) => !inside.includes(a)).map(({ name, extent }) => ({ name, extent })),
      ...tiled.map((t) => ({ name: t.outer, extent: Math.ceil((extents[t.name] ?? 1) / t.size) })),
    ],
    tiled,
    dropped: namesOf(computation.axes.filter((a) => a.extent === 1)),
  };
}

function chosenLoops(computation: Computation, long: readonly Axis[]): string[] {
  if (long.length <= 3) return namesOf(long);
  const windows = windowsOf(computation).filter((pair) => pair.every((name) => hasName(long, name)));
  const ofWindows = new Set(windows.flat());
  const from = windows.length > 0 ? long.filter((a) => ofWindows.has(a.name)) : long;
  const spatial = keptIn(from).slice(windows.length > 0 ? -1 : -2);
  const reduce = summedIn(from).slice(spatial.length - 3);
  return namesOf([...spatial, ...reduce]);
}

/** Pairs of a spatial and a summed loop in one index: p and r of in[p+r]. */
export function windowsOf({ equation, axes }: Computation): [spatial: string, reduce: string][] {
  const kindOf = (name: string): string | undefined => withName(axes, name)?.kind;
  return accessesIn(equation.value)
    .flatMap((a) => a.index)
    .flatMap((index) => {
      const names = [...(affineForm(index)?.terms.keys() ?? [])];
      const [spatial, reduce] = [
        names.filter((n) => kindOf(n) === "spatial"),
        names.filter((n) => kindOf(n) === "reduce"),
      ];
      return spatial.flatMap((s) => reduce.map((r): [string, string] => [s, r]));
    });
}

/** Whether a loop is tiled. Filter axes are short and stay whole. */
function isTiled(computation: Computation, { name, kind }: Axis): boolean {
  return kind === "spatial" || !windowsOf(computation).some(([, reduce]) => reduce === name);
}

/** Whether a window slides inside the array. Such designs run on a single row of lanes. */
export function hasWindow(computation: Computation, { inside }: ArraySpace): boolean {
  return windowsOf(computation).some((pair) => pair.every((name) => hasName(inside, name)));
}

/** `p 16 (a tile of 890), r 5; outside, in sequence: k 512, c 512` */
export function printSpace(computation: Computation, { inside, outside, tiled }: ArraySpace): string {
  const extents = extentsOf(computation);
  const within = inside.map(({ name, extent }) => {
    const tile = hasName(tiled, name) ? ` (a tile of ${extents[name]})` : "";
    return `${name} ${extent}${tile}`;
  });
  const others = outside.filter((l) => !tiled.some((t) => t.outer === l.name)).map((l) => `${l.name} ${l.extent}`);
  return `${within.join(", ")}${others.length > 0 ? `; outside, in sequence: ${others.join(", ")}` : ""}`;
}

export interface ArrayOperand {
  readonly name: string;
  readonly role: "input" | "output";
  /**
   * Basis of the lattice of vectors along which the operand is one element. For a user's recurrence, its dependences.
   */
  readonly reuse: readonly Vector[];
  /** Whether the vectors may be turned round. */
  readonly order: "free" | "fixed";
}

/** The loops and operands that designs are enumerated for. */
export interface ArrayProblem {
  readonly name: string;
  /** Outermost first: the coordinates of a point. */
  readonly loops: readonly SourceLoop[];
  readonly operands: readonly ArrayOperand[];
  /** Results of one pass through the array, from which outturn is computed. */
  readonly outputs: number;
  /** A loop that was split by phase. Points whose index reaches the loop's original extent do not exist. */
  readonly split?: LoopSplit;
}

/** `loop = factor * outer + phase`; outer and phase are loops in its place. */
export interface LoopSplit {
  readonly loop: string;
  readonly outer: string;
  readonly phase: string;
  readonly factor: number;
  readonly extent: number;
}

/** Points of one pass. */
export function pointsOfProblem({ loops, split }: ArrayProblem): number {
  const box = volumeOf(loops);
  const whole = split ? Math.ceil(split.extent / split.factor) * split.factor : 1;
  return split ? (box / whole) * split.extent : box;
}

/** The number of values that a row takes over the box. If a loop is split, its last phases may be missing. */
export function occupiedExtent(row: Vector, problem: ArrayProblem): number {
  const extents = extentsOfLoops(problem);
  const { split, loops } = problem;
  const all = extentOfRow(row, extents);
  if (!split) return all;
  const [outer, phase] = [split.outer, split.phase].map((name) => row[loops.findIndex((l) => l.name === name)] ?? 0);
  const a = outer ?? 0;
  const b = phase ?? 0;
  const { factor, extent } = split;
  const rounds = Math.ceil(extent / factor) - 1;
  const corner = Math.max(0, a) * rounds + Math.max(0, b) * (factor - 1);
  // The farthest position in the full rounds, and in the last round, which may be shorter.
  const furthest = (round: number, phases: number): number => a * round + Math.max(0, b) * (phases - 1);
  const ends = [
    furthest(rounds, extent - rounds * factor),
    ...(rounds > 0 ? [0, rounds - 1].map((r) => furthest(r, factor)) : []),
  ];
  return all - (corner - Math.max(...ends));
}

export const extentsOfLoops = (problem: { readonly loops: readonly SourceLoop[] }): number[] =>
  problem.loops.map((l) => l.extent);

/** The accesses of an equation that become operands: each that is read, once, then the target. */
export function operandAccesses({ equation }: Computation): { inputs: Access[]; output: Access } {
  const seen = new Map<string, Access>();
  for (const read of accessesIn(equation.value))
    if (read.tensor !== equation.target.tensor) seen.set(printAccess(read), seen.get(printAccess(read)) ?? read);
  return { inputs: [...seen.values()], output: equation.target };
}

/** The names of variables and tables. A tensor that is read in two ways is numbered. */
function operandNames(accesses: readonly Access[]): string[] {
  return accesses.map(({ tensor }, i) => {
    const before = accesses.slice(0, i).filter((a) => a.tensor === tensor).length;
    return before === 0 ? tensor : `${tensor}${before + 1}`;
  });
}

/** The operands of a computation as variables of a recurrence, named like their tensors in capitals. */
interface NamedOperands {
  readonly inputs: readonly Access[];
  readonly output: Access;
  /** The variables of the inputs, and of the result. */
  readonly variables: readonly string[];
  readonly sum: string;
  /** What a point adds; the identity where the condition does not hold. */
  readonly term: Expr;
}

/** @param at a variable at the same point */
export function namedOperands(
  computation: Computation,
  identity: Expr,
  at: (variable: string) => Access,
): NamedOperands {
  const { equation, tensors, axes } = computation;
  const { inputs, output } = operandAccesses(computation);
  const taken = new Set([...Object.keys(tensors), ...namesOf(axes)]);
  const free = (tensor: string): string => {
    const name = freshName(tensor.toUpperCase(), taken);
    taken.add(name);
    return name;
  };
  const variables = operandNames(inputs).map(free);
  const read = (e: Expr): Expr => {
    const variable = e.kind === "access" ? variables[inputs.findIndex((a) => isSame(a, e))] : undefined;
    return variable === undefined ? e : at(variable);
  };
  const plain = rewrite(equation.value, read, "value");
  const term = equation.where === undefined ? plain : select(equation.where, plain, identity);
  return { inputs, output, variables, sum: free(output.tensor), term };
}

/** The numbers of results along loops that index them. */
export function resultsAlong(loops: readonly SourceLoop[], targets: readonly Access[]): number {
  const kept = new Set(targets.flatMap(axesIn));
  return volumeOf(loops.filter((l) => kept.has(l.name)));
}

/** Tensors as a computation declares them, stored row by row. */
export const shapesOf = (tensors: Readonly<Record<string, Tensor>>): Record<string, TensorSpec> =>
  mapValues(tensors, ({ dtype, dims }) => ({ dtype, shape: dims.map((d) => d.extent) }));

/**
 * The reuse of every operand of a computation inside an array.
 * @throws UsageError for sums that saturate, and targets whose index is not affine
 */
export function arrayProblem(computation: Computation, space: ArraySpace): ArrayProblem {
  const { equation } = computation;
  if (equation.op === "sat+=")
    throw new UsageError(
      `${computation.name}: sat+= clamps the whole sum once; an array forms it in parts`,
      "sum with +=, and clamp in an epilogue",
    );
  if (choosesByElements(equation.value) || (equation.where && testsElements(equation.where)))
    throw new UsageError(
      `${computation.name}: ${printAccess(equation.target)} is chosen by comparing elements, which no array passes on`,
    );
  if (readsIndices(equation.value))
    throw new UsageError(`${computation.name}: an index is an element, so what is read there reaches no neighbour`);
  const names = namesOf(space.inside);
  const { inputs, output } = operandAccesses(computation);
  const read = operandNames(inputs);
  const operands: ArrayOperand[] = inputs.map((access, i) => ({
    name: read[i] ?? access.tensor,
    role: "input",
    reuse: reuseOf(access, names),
    order: "free",
  }));
  const itself = selfDependences(computation, names);
  if (output.index.some((e) => !affineForm(e)))
    throw new UsageError(
      `${computation.name}: ${printAccess(output)} is not affine, so no sum can be followed through an array`,
    );
  operands.push({
    name: output.tensor,
    role: "output",
    reuse: itself.length > 0 ? itself : reuseOf(output, names),
    order: itself.length > 0 ? "fixed" : "free",
  });
  const outputs = resultsAlong(space.inside, [output]);
  return { name: computation.name, loops: space.inside, operands, outputs };
}

/** A basis of the vectors along which an access reads one element, with the signs of `primitive`. */
export function reuseOf(access: Access, loops: readonly string[]): number[][] {
  return nullSpace(
    access.index.flatMap((index) => rowsOf(index, loops)),
    loops.length,
  ).map(primitive);
}

/** The coefficients of an index. An index that divides is assumed to distinguish all its loops. */
function rowsOf(index: Expr, loops: readonly string[]): number[][] {
  const affine = affineForm(index);
  if (affine) return [loops.map((l) => affine.terms.get(l) ?? 0)];
  return axesIn(index)
    .map((a) => loops.indexOf(a))
    .filter((at) => at >= 0)
    .map((at) => loops.map((_, i) => (i === at ? 1 : 0)));
}

/** Distances at which a recurrence reads its own target: y[i,j] = y[i-1,j] + ... has (1,0). */
function selfDependences({ equation, name }: Computation, loops: readonly string[]): number[][] {
  const { target, value } = equation;
  return accessesIn(value)
    .filter((a) => a.tensor === target.tensor)
    .map((read) => {
      const distance = loops.map(() => 0);
      for (const [d, index] of target.index.entries()) {
        const to = affineForm(index);
        const from = affineForm(read.index[d] ?? index);
        const at = index.kind === "axis" ? loops.indexOf(index.name) : -1;
        const same = to && from && [...to.terms].join() === [...from.terms].join();
        const apart = same ? to.constant - from.constant : undefined;
        if (apart === undefined || (apart !== 0 && at < 0))
          throw new UsageError(
            `${name}: ${printAccess(read)} does not lie at a constant distance from ${printAccess(target)}`,
            `a uniform recurrence reads itself a fixed step back: ${printEquation(equation)}`,
          );
        if (apart !== 0) distance[at] = apart;
      }
      return distance;
    });
}

/** `x (1,-1)   w (1,0)   z (0,1)` */
export function printReuse({ operands }: ArrayProblem): string {
  return operands.map((o) => [o.name, ...o.reuse.map(printVector)].join(" ")).join("   ");
}
