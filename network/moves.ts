/**
 * @file Folds steps that only move elements into the products next to them, which then read or write the elements where they lie.
 *
 *     q[b,h,i,d] = x[b,i,h,d]                          s[b0,b1,m,n] += x[m,b1,k] * y[n,b1,k]
 *     k[b,h,d,j] = y[b,j,h,d]                    ->
 *     s[b0,b1,m,n] += q[b1,m,k] * k[b1,k,n]
 *
 *     o[b0,b1,m,n] += ..,   t[b,i,h,d] = o[b,h,i,d]    ->   o[b0,m,b1,n] += ..
 *
 * A move has one read at affine indices inside its input: Transpose, Slice, Split, Expand, with reshapes that keep the indices affine. It is folded only
 * if all its consumers can read the move's input, and if that does not slow a product down by more than the move takes. Kernels pack what they read
 * often, so another order of a matrix costs them no more than the move. A product that reads each element fewer than {@link COPIED_FROM} times reads
 * it in place, and a result is stored as it is computed: neighbours must then stay neighbours, or a loop of as many steps must run along memory.
 * Nor may elements of different matrices of a batch become neighbours.
 *
 * Heads that share keys are repeated by Expand and a reshape. A loop over such heads is split, and the repeated ones are read once:
 *
 *     k[h,g,n,d] = x[h,n,d]   8 x 2 heads    ->    s[h,g,m,n] += q[h,g,m,d] * x[h,n,d]
 *     s[b,m,n] += q[b,m,d] * k[b,n,d]
 */

import { type AffineForm, affineForm, boundsOf, type Extents, exprOf, shapeOf } from "../abstraction/affine.ts";
import { isDefined, mapValues, namesOf, product, remembered, sortedBy, unique } from "../abstraction/collections.ts";
import {
  type Computation,
  elementCount,
  extentsOf,
  outputOf,
  pointCount,
  type TensorSpec,
  targetOf,
  tensorOf,
} from "../abstraction/computation.ts";
import { attempt, internal } from "../abstraction/error.ts";
import {
  type Access,
  access,
  accessesIn,
  axis,
  type Equation,
  type Expr,
  number,
  plainAxes,
  rewriteReads,
  substituteEach,
} from "../abstraction/expression.ts";
import { rebuilt } from "../abstraction/rebuild.ts";
import { type Network, returnedBy, rootOf, rootsRead, type Step } from "./network.ts";
import { shownAs } from "./reshape.ts";
import { multiplyAddsOf } from "./tasks.ts";
import { isSameShape, type Value } from "./value.ts";

/** How often a product reads each element of an operand that kernels copy: as often as a vector of AVX-512 has lanes of f32. */
const COPIED_FROM = 16;

/** The program with moves folded into the products next to them. */
export function withoutMoves(program: Network): Network {
  const around = new Surroundings(program);
  for (let place = 0; place < program.steps.length; place++) {
    const step = around.at(place);
    const move = step && !around.given.has(step.output) ? moveOf(step) : undefined;
    const changed = move && (inReaders(move, around) ?? inWriter(move, around));
    // The loop goes on from the first step for which something changed.
    if (changed) place = around.replace(move.step, changed) - 1;
  }
  return { ...program, steps: around.steps };
}

/** The steps of a program while moves go, by their places and by what they make and read. */
class Surroundings {
  /** Values that the network returns. */
  readonly given: ReadonlySet<Value>;
  private readonly places = new Map<Step, number>();
  private readonly byPlace: (Step | undefined)[];
  private readonly makers = new Map<Value, Step>();
  private readonly readers = new Map<Value, Set<Step>>();

  constructor({ steps, outputs }: Network) {
    this.given = returnedBy({ outputs });
    this.byPlace = [...steps];
    for (const [place, step] of steps.entries()) this.add(step, place);
  }

  get steps(): Step[] {
    return this.byPlace.filter(isDefined);
  }

  at(place: number): Step | undefined {
    return this.byPlace[place];
  }

  makerOf(value: Value): Step | undefined {
    return this.makers.get(rootOf(value));
  }

  /** The steps that read a value, in any shape, in the program's order. */
  readersOf(value: Value): Step[] {
    return sortedBy(this.readers.get(rootOf(value)) ?? [], (a) => this.placeOf(a));
  }

  /** Removes a step and changes others. @returns the first place where a move may go that could not before */
  replace(gone: Step, changed: Changed): number {
    let first = this.placeOf(gone);
    this.remove(gone);
    for (const [before, after] of changed) {
      const place = this.placeOf(before);
      first = Math.min(first, place);
      this.remove(before);
      this.add(after, place);
    }
    for (const step of [gone, ...changed.values()])
      for (const value of rootsRead(step)) {
        const maker = this.makerOf(value);
        const readers = this.readersOf(value);
        // Of several readers none can have its move done by the maker.
        for (const near of [...(maker ? [maker] : []), ...(readers.length === 1 ? readers : [])])
          first = Math.min(first, this.placeOf(near));
      }
    return first;
  }

  private placeOf(step: Step): number {
    const place = this.places.get(step) ?? internal(`${step.nodes[0]} is no step of the program`);
    return place;
  }

  private add(step: Step, place: number): void {
    this.byPlace[place] = step;
    this.places.set(step, place);
    this.makers.set(step.output, step);
    for (const value of rootsRead(step)) remembered(this.readers, value, () => new Set<Step>()).add(step);
  }

  private remove(step: Step): void {
    this.byPlace[this.placeOf(step)] = undefined;
    this.places.delete(step);
    this.makers.delete(step.output);
    for (const value of rootsRead(step)) this.readers.get(value)?.delete(step);
  }
}

/** A step whose element at the axes `target` is the element of `from` at `read`. */
interface Move {
  readonly step: Step;
  readonly from: Value;
  /** Sizes of the dimensions that `read` indexes, and of those that `target` indexes. */
  readonly shape: readonly number[];
  readonly made: readonly number[];
  readonly read: Access;
  readonly target: readonly string[];
}

function moveOf(step: Step): Move | undefined {
  const { computation, reads } = step;
  const { op, value, where, target } = computation.equation;
  if (computation.epilogue || op !== "=" || where || value.kind !== "access") return undefined;
  const from = reads[value.tensor];
  const shape = shapeOf(tensorOf(computation, value.tensor));
  const axes = axesIn(target);
  if (!from || axes.length !== target.index.length) return undefined;
  if (!isInside(value, shape, extentsOf(computation))) return undefined;
  return { step, from, shape, made: shapeOf(outputOf(computation)), read: value, target: axes };
}

/** The distinct plain axes of an access. */
const axesIn = (read: Access): string[] => unique(plainAxes(read));

/** Whether all elements that an access reads, at affine indices, are elements of the tensor. */
function isInside({ index }: Access, shape: readonly number[], extents: Extents): boolean {
  return index.every((e, d) => {
    if (!affineForm(e)) return false;
    const [least, most] = boundsOf(e, extents);
    return least >= 0 && most < (shape[d] ?? 0);
  });
}

/** Steps that change when a move goes. */
type Changed = ReadonlyMap<Step, Step>;

/** The move's consumers, rewritten to read the move's input; undefined if one cannot be rewritten. */
function inReaders(move: Move, around: Surroundings): Changed | undefined {
  const changed = new Map<Step, Step>();
  for (const reader of around.readersOf(move.step.output)) {
    const tensors = Object.entries(reader.reads).flatMap(([name, value]) =>
      rootOf(value) === move.step.output ? [name] : [],
    );
    let made: Step | undefined = reader;
    for (const tensor of tensors) made = made && readThrough(move, made, tensor);
    if (!made) return undefined;
    changed.set(reader, withNodesOf(move, made));
  }
  return changed.size === 0 ? undefined : changed;
}

/** A step with a move folded in. It no longer corresponds to one row of the table of operators. */
function withNodesOf({ step: { nodes, ops } }: Move, step: Step): Step {
  const { operator: _, ...rest } = step;
  return { ...rest, nodes: [...step.nodes, ...nodes], ops: [...step.ops, ...ops] };
}

/** A reader of a move that reads, as one of its tensors, what the move reads; where a loop of it covers several dimensions of the move, it is split. */
function readThrough(move: Move, reader: Step, tensor: string): Step | undefined {
  const made = readAsItIs(move, reader, tensor);
  const loop = made ? undefined : acrossDimensions(move.made, reader.computation, tensor);
  const finer = loop && attempt(() => withSplitLoop(reader, loop));
  return made ?? (finer && readThrough(move, finer, tensor));
}

/** A loop over matrices of a product that covers a dimension and those before it. */
interface Across {
  readonly name: string;
  /** Elements of the dimension. */
  readonly inner: number;
}

/** @param sizes of the dimensions */
function acrossDimensions(sizes: readonly number[], computation: Computation, tensor: string): Across | undefined {
  const shape = shapeOf(tensorOf(computation, tensor));
  const extents = extentsOf(computation);
  for (const { index } of accessesIn(computation.equation.value).filter((read) => read.tensor === tensor))
    for (const [name, stride] of flatOf(index, shape)?.terms ?? []) {
      if (!isOverMatrices(name, computation)) continue;
      const [extent = 1, d] = [extents[name], sizes.findIndex((_, at) => product(sizes.slice(at + 1)) === stride)];
      const inner = sizes[d] ?? 1;
      if (inner > 1 && extent > inner && extent % inner === 0) return { name, inner };
    }
  return undefined;
}

/** A step with a loop as two: `b` of 16 steps as `bo` of 8 and `bi` of 2. @throws UsageError when an index holds the loop in another way than alone */
function withSplitLoop({ computation, reads, ...step }: Step, { name, inner }: Across): Step {
  const { equation, epilogue } = computation;
  const { [name]: extent = 1, ...extents } = extentsOf(computation);
  const parts = [axis(`${name}o`), axis(`${name}i`)];
  const tensors = new Map<string, TensorSpec>();
  const split = (read: Access): Access => {
    const at = read.index.findIndex((e) => e.kind === "axis" && e.name === name);
    if (at < 0) return read;
    const { tensor } = read;
    const { dtype, dims, constant } =
      tensor === equation.target.tensor ? targetOf(computation) : tensorOf(computation, tensor);
    const shape = shapeOf({ dims }).toSpliced(at, 1, extent / inner, inner);
    tensors.set(tensor, { dtype, shape, ...(constant && { constant }) });
    return access(tensor, read.index.toSpliced(at, 1, ...parts));
  };
  const inTwo = (given: Equation): Equation => ({
    ...given,
    target: split(given.target),
    value: rewriteReads(given.value, split),
  });
  const made = rebuilt(computation, {
    equation: inTwo(equation),
    epilogue: epilogue && inTwo(epilogue.equation),
    extents: { ...extents, [`${name}o`]: extent / inner, [`${name}i`]: inner },
    tensors: Object.fromEntries(tensors),
  });
  const shown = mapValues(reads, (value, tensor) => {
    const { shape } = tensors.get(tensor) ?? {};
    return shape ? shownAs(value, shape) : value;
  });
  return { ...step, computation: made, reads: shown };
}

function readAsItIs(move: Move, reader: Step, tensor: string): Step | undefined {
  const { computation } = reader;
  const { equation, epilogue } = computation;
  const isProduct = multiplyAddsOf(computation) > 0;
  if (!isProduct && !moveOf(reader)) return undefined;
  const elsewhere = [epilogue?.equation.value, equation.where].flatMap((e) => (e ? accessesIn(e) : []));
  if (elsewhere.some((a) => a.tensor === tensor)) return undefined;
  const own = tensorOf(computation, tensor);
  const extents = extentsOf(computation);
  const isCopied = pointCount(computation) >= COPIED_FROM * elementCount(own);
  // Dimensions of one element stay where the reader knows those of the move; an image, for example, has its layout by its four dimensions.
  const isWhole = isSameShape(shapeOf(own), move.made);
  const kept = move.shape.flatMap((size, d) => (isWhole || size > 1 ? [d] : []));
  let fits = true;
  const value = rewriteReads(equation.value, (read) => {
    if (read.tensor !== tensor) return read;
    const index = elementRead(move, read, shapeOf(own), extents);
    const after = index && flatOf(index, move.shape);
    const before = flatOf(read.index, shapeOf(own));
    if (!before || !after) fits = false;
    else if (isProduct && !keepsNeighbours(before, after, extents))
      fits &&= (isCopied || runsAlong(after, extents)) && liesInMatrices(after, computation);
    return access(
      tensor,
      kept.map((d) => index?.[d] ?? number(0)),
    );
  });
  if (!fits) return undefined;
  const shape = kept.map((d) => move.shape[d] ?? 1);
  const made = attempt(() =>
    rebuilt(computation, { equation: { ...equation, value }, tensors: { [tensor]: { dtype: own.dtype, shape } } }),
  );
  return made && { ...reader, computation: made, reads: { ...reader.reads, [tensor]: shownAs(move.from, shape) } };
}

/** Composes the consumer's index with the move's; undefined if the result is not affine. */
function elementRead(
  { made, read, target }: Move,
  access: Access,
  shape: readonly number[],
  extents: Extents,
): readonly Expr[] | undefined {
  const flat = isInside(access, shape, extents) ? flatOf(access.index, shape) : undefined;
  const index = flat && indexOf(flat, made, extents);
  if (!index) return undefined;
  const axes = new Map(target.flatMap((name, d) => (index[d] ? [[name, index[d]] as const] : [])));
  return substituteEach(read.index, axes);
}

/** The position of an element among all, row-major. */
function flatOf(index: readonly Expr[], shape: readonly number[]): AffineForm | undefined {
  const terms = new Map<string, number>();
  let constant = 0;
  let stride = 1;
  for (const [d, e] of [...index.entries()].reverse()) {
    const form = affineForm(e);
    if (!form) return undefined;
    constant += stride * form.constant;
    for (const [name, c] of form.terms) terms.set(name, (terms.get(name) ?? 0) + stride * c);
    stride *= shape[d] ?? 1;
  }
  return { constant, terms };
}

/**
 * The index of an element by its position: 768*m + 64*h + k under [128,12,64] is [m,h,k].
 * @returns undefined when the position along a dimension is not affine
 */
function indexOf({ constant, terms }: AffineForm, shape: readonly number[], extents: Extents): Expr[] | undefined {
  // An axis of one step adds nothing.
  let left: AffineForm = { constant, terms: new Map([...terms].filter(([name]) => extents[name] !== 1)) };
  let stride = product(shape);
  const index: Expr[] = [];
  for (const size of shape) {
    stride /= size;
    const isHere = ([, c]: readonly [string, number]): boolean => size > 1 && c % stride === 0;
    const here = Math.floor(left.constant / stride);
    index.push(
      exprOf({ constant: here, terms: new Map([...left.terms].filter(isHere).map(([name, c]) => [name, c / stride])) }),
    );
    left = {
      constant: left.constant - here * stride,
      terms: new Map([...left.terms].filter((term) => !isHere(term))),
    };
    const [least, most] = boundsOf(exprOf(left), extents);
    if (least < 0 || most >= stride) return undefined;
  }
  return index;
}

/** Whether elements read along the same axes are neighbours in memory before and after. */
function keepsNeighbours(before: AffineForm, after: AffineForm, extents: Extents): boolean {
  const along = ({ terms }: AffineForm): string =>
    [...terms].flatMap(([name, c]) => (Math.abs(c) === 1 && extents[name] !== 1 ? [`${c} ${name}`] : [])).join();
  return along(before) === along(after);
}

/** Whether a loop with enough steps for a vector runs along memory. */
const runsAlong = ({ terms }: AffineForm, extents: Extents): boolean =>
  [...terms].some(([name, c]) => c === 1 && (extents[name] ?? 1) >= COPIED_FROM);

/** Whether neighbours in memory belong to one product of matrices, of all that a batched product computes. */
const liesInMatrices = ({ terms }: AffineForm, computation: Computation): boolean =>
  computation.axes.every(
    ({ name, extent }) => Math.abs(terms.get(name) ?? 0) !== 1 || extent === 1 || !isOverMatrices(name, computation),
  );

/** Whether a loop numbers the matrices of a batched product: all that is read depends on it, and so does the result. */
const isOverMatrices = (name: string, { axes, equation }: Computation): boolean =>
  axes.some((a) => a.name === name && a.kind === "spatial") &&
  accessesIn(equation.value).every(({ index }) => index.some((e) => affineForm(e)?.terms.has(name)));

/** The product whose result a move reorders, storing it in that order; undefined when it cannot. */
function inWriter(move: Move, around: Surroundings): Changed | undefined {
  const root = rootOf(move.from);
  const writer = around.makerOf(root);
  if (!writer || around.given.has(root) || multiplyAddsOf(writer.computation) === 0) return undefined;
  if (around.readersOf(root).some((step) => step !== move.step)) return undefined;
  const stored = shapeOf(outputOf(writer.computation));
  const order = orderOf(move, stored);
  if (!order) {
    const loop = acrossDimensions(stored, move.step.computation, move.read.tensor);
    const finer = loop && attempt(() => moveOf(withSplitLoop(move.step, loop)));
    return finer && inWriter({ ...finer, step: move.step }, around);
  }
  // An image's storage follows from the places of its dimensions, so writer and readers must agree on them.
  const { output } = move.step;
  const turned = order.map((d) => stored[d] ?? 1);
  if (turned.length === 4 && output.shape.length === 4 && !isSameShape(turned, output.shape)) return undefined;
  const made = attempt(() => inOrder(writer.computation, order));
  if (!made) return undefined;
  return new Map([[writer, withNodesOf(move, { ...writer, computation: made, output })]]);
}

/** The dimensions of a result in the order in which a move puts them, of which the last stays; those of one element come first. */
function orderOf({ shape, made, read, target }: Move, stored: readonly number[]): number[] | undefined {
  const wide = (sizes: readonly number[]): number[] => sizes.flatMap((size, d) => (size > 1 ? [d] : []));
  const from = wide(shape);
  const to = wide(stored);
  const isSame = isSameShape(
    from.map((d) => shape[d] ?? 1),
    to.map((d) => stored[d] ?? 1),
  );
  if (!isSame || product(made) !== product(shape)) return undefined;
  // A move that cuts one dimension and repeats another may make as many elements: each must be read whole.
  const order = target.flatMap((name, place) => {
    const at = from.findIndex((d) => {
      const e = read.index[d];
      return e?.kind === "axis" && e.name === name && shape[d] === made[place];
    });
    return to[at] ?? [];
  });
  if (order.length !== to.length || order.at(-1) !== to.at(-1)) return undefined;
  return [...stored.flatMap((size, d) => (size > 1 ? [] : [d])), ...order];
}

/** A computation whose result has its dimensions in another order. */
function inOrder(computation: Computation, order: readonly number[]): Computation {
  const { equation, epilogue } = computation;
  const inNew = <T>(list: readonly T[]): T[] => order.flatMap((d) => list[d] ?? []);
  const sum = targetOf(computation);
  const turned = (e: Access): Access => ({ ...e, index: inNew(e.index) });
  const ending = epilogue && {
    ...epilogue.equation,
    target: turned(epilogue.equation.target),
    value: rewriteReads(epilogue.equation.value, (read) => (read.tensor === sum.name ? turned(read) : read)),
  };
  const specs = [sum, outputOf(computation)].map(({ name, dtype, dims }): [string, TensorSpec] => [
    name,
    { dtype, dims: namesOf(inNew(dims)), shape: inNew(dims).map((d) => d.extent) },
  ]);
  return rebuilt(computation, {
    equation: { ...equation, target: turned(equation.target) },
    epilogue: ending,
    tensors: Object.fromEntries(specs),
  });
}
