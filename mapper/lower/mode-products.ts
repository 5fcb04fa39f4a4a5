/**
 * @file Lowers products of an image's small windows with constant matrices to plain loops, one dimension of the window
 * after another.
 *
 *     v[x,y,t,c] += B(x,i) * B(y,j) * in[4*t+i-1,j,c]        36 products for each of 36 elements; B is written out as numbers
 *
 *     ->  for parallel t, for each i, j:   window[i,j,row] = in[4*t+i-1,j,row]                              0 outside
 *                        for each x, j:    half[x,j,row] = 4*window[0,j,row] - 5*window[2,j,row] + window[4,j,row]
 *                        for each x, y:    v[x,y,t,row] = 4*half[x,0,row] - 5*half[x,2,row] + half[x,4,row]
 *
 * A sum of products of a tensor with one matrix for each dimension, each matrix having one summed and one kept index,
 * can be computed dimension by dimension (mode products; Kolda and Bader, Tensor Decompositions and Applications, SIAM
 * Review 2009, section 2.5). Terms whose coefficient is 0 are dropped. The transforms of Winograd's convolutions are
 * such products (network/winograd.ts).
 */

import { affineForm, boundsOf, evaluateIndex } from "../../abstraction/affine.ts";
import { type Computation, extentsOf, targetOf, tensorOf } from "../../abstraction/computation.ts";
import { isInteger } from "../../abstraction/dtype.ts";
import { epilogueAt } from "../../abstraction/epilogue.ts";
import { accessesOf, type Equation, substituteAxes } from "../../abstraction/equation.ts";
import {
  type Access,
  access,
  accessesIn,
  and,
  axesIn,
  axis,
  childrenOf,
  compare,
  type Expr,
  minus,
  number,
  over,
  plus,
  remainder,
  rewrite,
  times,
} from "../../abstraction/expression.ts";
import { loop, type Scratch, type Statement } from "../../abstraction/loop-nest.ts";
import type { PlainLoops } from "./loops.ts";
import { FreshNames } from "./names.ts";

/**
 * One matrix, such as `B(p%4,i)`: its rows are a kept axis, or the last digit of one, and its columns a summed axis.
 */
interface Mode {
  readonly value: Expr;
  readonly summed: string;
  readonly columns: number;
  readonly kept: string;
  /** The extent of the kept index: the whole axis, or its last digit. */
  readonly rows: number;
  /** Whether the kept index is the last digit of its axis. The other digits count blocks. */
  readonly isDigit: boolean;
}

export interface ModeProducts {
  readonly source: Access;
  readonly modes: readonly Mode[];
}

/** The most elements of a window that is fully unrolled. */
const MOST_ELEMENTS = 64;
/** Elements of a row. A window of rows and its intermediate results stay in L1. */
const ROW = 64;

/** The parts of such a product; undefined if the computation is none. */
export function modeProductsOf(computation: Computation): ModeProducts | undefined {
  const { equation, axes, time } = computation;
  if (time || equation.op !== "+=" || equation.where !== undefined || isInteger(targetOf(computation).dtype))
    return undefined;
  const factors = factorsOf(equation.value);
  const [source, another] = factors.filter((e) => e.kind === "access");
  if (source?.kind !== "access" || another || factors.length < 2) return undefined;
  if (tensorOf(computation, source.tensor).dtype !== targetOf(computation).dtype) return undefined;
  if (!equation.target.index.every((e) => e.kind === "axis")) return undefined;
  const modes = factors.filter((e) => e !== source).map((value) => modeOf(value, computation, source));
  const found = modes.flatMap((mode) => (mode ? [mode] : []));
  const names = new Set(found.flatMap(({ summed, kept }) => [summed, kept]));
  const summed = axes.filter((a) => a.kind === "reduce").length;
  const window = found.reduce((product, { columns, rows }) => product * Math.max(columns, rows), 1);
  if (found.length !== modes.length || found.length !== summed || names.size !== 2 * summed || window > MOST_ELEMENTS)
    return undefined;
  return { source, modes: found };
}

function factorsOf(value: Expr): Expr[] {
  return value.kind === "binary" && value.op === "*" ? [...factorsOf(value.left), ...factorsOf(value.right)] : [value];
}

function modeOf(value: Expr, { axes }: Computation, source: Access): Mode | undefined {
  if (accessesIn(value).length > 0 || !isOfNumbers(value)) return undefined;
  const [first, second, third] = axesIn(value).map((name) => axes.find((a) => a.name === name));
  if (!first || !second || third || first.kind === second.kind) return undefined;
  const [summed, kept] = first.kind === "reduce" ? [first, second] : [second, first];
  const digits = [...new Set(digitsOf(value, kept.name))];
  const [digit] = digits;
  if (digits.length > 1 || digit === undefined) return undefined;
  // An axis that is no longer than the digit has one block.
  const isDigit = Number.isFinite(digit);
  // The tensor may be read at the axis's block, or independently of the axis.
  const reads = source.index.flatMap((e) => blocksOf(e, kept.name));
  if (isDigit ? reads.some((by) => by !== digit) : reads.length > 0) return undefined;
  return {
    value,
    summed: summed.name,
    columns: summed.extent,
    kept: kept.name,
    rows: Math.min(digit, kept.extent),
    isDigit,
  };
}

/** Whether a value consists of constants selected by indices. */
const isOfNumbers = (e: Expr): boolean =>
  e.kind === "number" || (e.kind === "select" && isOfNumbers(e.whenTrue) && isOfNumbers(e.whenFalse));

/** The moduli under which an axis appears; infinite where it appears by itself. */
function digitsOf(e: Expr, name: string): number[] {
  if (
    e.kind === "binary" &&
    e.op === "%" &&
    e.left.kind === "axis" &&
    e.left.name === name &&
    e.right.kind === "number"
  )
    return [e.right.value];
  if (e.kind === "axis") return e.name === name ? [Number.POSITIVE_INFINITY] : [];
  return childrenOf(e).flatMap((part) => digitsOf(part, name));
}

/** The divisors under which an axis appears; 0 where it appears by itself. */
function blocksOf(e: Expr, name: string): number[] {
  if (
    e.kind === "binary" &&
    e.op === "/" &&
    e.left.kind === "axis" &&
    e.left.name === name &&
    e.right.kind === "number"
  )
    return [e.right.value];
  if (e.kind === "axis") return e.name === name ? [0] : [];
  return childrenOf(e).flatMap((part) => blocksOf(part, name));
}

/** Lowers such a product. @throws Error if `modeProductsOf` finds none */
export function lowerModeProducts(computation: Computation): PlainLoops {
  const found = modeProductsOf(computation);
  if (!found) throw new Error(`internal: ${computation.name} is no product of windows with matrices`);
  return new Lowering(computation, found).lower();
}

class Lowering {
  private readonly computation: Computation;
  private readonly source: Access;
  private readonly modes: readonly Mode[];
  private readonly names: FreshNames;
  private readonly inside = new Set<Access>();
  /**
   * The value of each loop of the computation in terms of the loops of the nest. For a mode whose kept index is a
   * digit, the block.
   */
  private readonly places = new Map<string, Expr>();
  private readonly row: { readonly counter: string; readonly steps: number; readonly ends: readonly Expr[] };
  private readonly rest: string;
  private readonly dealt: number;

  constructor(computation: Computation, { source, modes }: ModeProducts) {
    this.computation = computation;
    this.source = source;
    this.modes = modes;
    this.names = new FreshNames(computation);
    this.rest = this.names.fresh("rest");
    const kept = computation.axes.filter((a) => a.kind === "spatial");
    const row = this.rowAmong(kept.map((a) => a.name));
    const counter = this.names.fresh("row");
    const extent = kept.find((a) => a.name === row)?.extent ?? 1;
    const steps = Math.min(extent, divisorBelow(extent, ROW) ?? ROW);
    const blocks = Math.ceil(extent / steps);
    const digits = [
      ...kept.flatMap(({ name, extent: all }) => {
        const mode = modes.find((m) => m.kept === name);
        if (name === row || (mode && !mode.isDigit)) return [];
        return [{ name, extent: mode ? Math.ceil(all / mode.rows) : all }];
      }),
      ...(row === undefined ? [] : [{ name: row, extent: blocks }]),
    ];
    this.dealt = digits.reduce((product, d) => product * d.extent, 1);
    let below = 1;
    for (const { name, extent: own } of digits.toReversed()) {
      const high = over(axis(this.rest), below);
      below *= own;
      this.places.set(name, below === this.dealt ? high : remainder(high, own));
    }
    const begin = times(this.places.get(row ?? "") ?? 0, steps);
    const isCut = blocks * steps !== extent;
    this.row = { counter, steps, ends: isCut ? [minus(extent, begin)] : [] };
    if (row !== undefined) this.places.set(row, plus(begin, axis(counter)));
  }

  lower(): PlainLoops {
    const columns = this.modes.map((m) => m.columns);
    const scratch: Scratch[] = [];
    const body: Statement[] = [];
    const buffer = (wish: string, shape: readonly number[]): Scratch => {
      const made = {
        name: this.names.fresh(wish),
        dtype: targetOf(this.computation).dtype,
        elements: sizeOf(shape) * this.row.steps,
        scope: "local",
      } as const;
      scratch.push(made);
      return made;
    };
    // 1. The window, if some of it may be outside its tensor.
    let terms: (at: readonly number[]) => Access = (at) => this.read(at);
    if (this.outside().length > 0) {
      const window = buffer("window", columns);
      for (const at of placesOf(columns)) body.push(...this.copied(at, this.held(window, columns, at)));
      terms = (at) => this.held(window, columns, at);
    }
    // 2. One dimension after another.
    for (const [d, mode] of this.modes.entries()) {
      const before = terms;
      const shape = this.modes.map((m, i) => (i <= d ? m.rows : m.columns));
      const isLast = d === this.modes.length - 1;
      const half = isLast ? undefined : buffer(`half${d}`, shape);
      for (const at of placesOf(shape)) {
        const value = combined(
          Array.from({ length: mode.columns }, (_, i) => [
            numberAt(mode, at[d] ?? 0, i),
            before(at.map((index, e) => (e === d ? i : index))),
          ]),
        );
        if (half) body.push(this.overRow({ target: this.held(half, shape, at), op: "=", value }));
        else body.push(...this.stored(at, value));
      }
      if (half) terms = (at) => this.held(half, shape, at);
    }
    return {
      nest: { scratch, registers: [], prepare: [], body: [loop(this.rest, this.dealt, body, "parallel")] },
      inside: this.inside,
    };
  }

  private overRow(equation: Equation): Statement {
    const { counter, steps, ends } = this.row;
    const over = loop(counter, steps, [{ kind: "scalar", equation }]);
    return ends.length > 0 ? { ...over, range: { from: [], to: ends } } : over;
  }

  /** An element of a window's buffer, at the row's counter. */
  private held({ name }: Scratch, shape: readonly number[], at: readonly number[]): Access {
    const flat = at.reduce((sum, index, d) => sum * (shape[d] ?? 1) + index, 0);
    return access(name, [plus(flat * this.row.steps, axis(this.row.counter))]);
  }

  /** The tensor's element at a position in the window. */
  private read(at: readonly number[]): Access {
    const summed = new Map(this.modes.map(({ summed: name }, d) => [name, number(at[d] ?? 0)] as const));
    // Where a matrix takes the last digit of a kept index, the tensor is read at the block.
    const blocks = rewrite(this.source, (e) => (this.isBlock(e) ? e.left : e), "value");
    const placed = substituteAxes(
      { target: this.source, op: "=", value: blocks },
      new Map([...this.places, ...summed]),
    ).value;
    if (placed.kind !== "access") throw new Error("internal: an element stays one");
    this.inside.add(placed);
    return placed;
  }

  private isBlock(e: Expr): e is Extract<Expr, { kind: "binary" }> {
    return (
      e.kind === "binary" &&
      e.op === "/" &&
      this.modes.some((m) => m.isDigit && e.left.kind === "axis" && e.left.name === m.kept)
    );
  }

  /** Dimensions of the tensor along which the window may be outside. */
  private outside(): readonly number[] {
    const extents = extentsOf(this.computation);
    const { dims } = tensorOf(this.computation, this.source.tensor);
    return this.source.index.flatMap((e, d) => {
      const [min, max] = boundsOf(e, extents);
      return min < 0 || max >= (dims[d]?.extent ?? 0) ? [d] : [];
    });
  }

  private copied(at: readonly number[], target: Access): readonly Statement[] {
    const read = this.read(at);
    const { dims } = tensorOf(this.computation, this.source.tensor);
    const conditions = this.outside().flatMap((d) => {
      const e = read.index[d] ?? number(0);
      return [compare(">=", e, 0), compare("<", e, dims[d]?.extent ?? 0)];
    });
    const [first, ...others] = conditions;
    const body = [this.overRow({ target, op: "=", value: read })];
    if (!first) return body;
    return [
      {
        kind: "when",
        condition: others.reduce(and, first),
        body,
        otherwise: [this.overRow({ target, op: "=", value: number(0) })],
      },
    ];
  }

  /** Stores an output element, with a test if its block reaches beyond the edge. */
  private stored(at: readonly number[], value: Expr): readonly Statement[] {
    const { equation, epilogue } = this.computation;
    const kept = new Map(
      this.modes.map(({ kept: name, rows, isDigit }, d) => {
        const digit = number(at[d] ?? 0);
        const block = this.places.get(name);
        return [name, isDigit && block ? plus(times(block, rows), digit) : digit] as const;
      }),
    );
    const places = new Map([...this.places, ...kept]);
    const made: Equation = epilogue
      ? epilogueAt(epilogue, equation.target.index, value)
      : { target: equation.target, op: "=", value };
    const whole = substituteAxes(made, places);
    for (const element of accessesOf(whole)) this.inside.add(element);
    const edges = this.modes.flatMap(({ kept: name, rows, isDigit }) => {
      const extent = extentsOf(this.computation)[name] ?? 0;
      const index = places.get(name);
      return isDigit && extent % rows !== 0 && index ? [compare("<", index, extent)] : [];
    });
    const [first, ...others] = edges;
    const body = [this.overRow(whole)];
    return first ? [{ kind: "when", condition: others.reduce(and, first), body, otherwise: [] }] : body;
  }

  /**
   * The loop along which the source, or else the output, is contiguous. A loop along which a window leaves its tensor
   * is not eligible.
   */
  private rowAmong(names: readonly string[]): string | undefined {
    const { source, modes } = this;
    const leaving = this.outside().flatMap((d) => axesIn(source.index[d] ?? number(0)));
    const free = names.filter((name) => !modes.some((m) => m.kept === name) && !leaving.includes(name));
    const isPlain = (name: string): boolean =>
      source.index.every((e) => !axesIn(e).includes(name) || e.kind === "axis");
    const costOf = (name: string): number =>
      [source, this.computation.epilogue?.equation.target ?? this.computation.equation.target].filter(
        (a) => !this.isInnermost(a, name),
      ).length;
    return free.filter(isPlain).toSorted((a, b) => costOf(a) - costOf(b) || names.indexOf(b) - names.indexOf(a))[0];
  }

  private isInnermost({ tensor, index }: Access, name: string): boolean {
    const { dims, storage } = tensorOf(this.computation, tensor);
    const d = index.findIndex((e) => e.kind === "axis" && e.name === name);
    const own = dims[d];
    return own !== undefined && affineForm(storage)?.terms.get(own.name) === 1;
  }
}

/** All index tuples of a box, the last index fastest. */
function placesOf(shape: readonly number[]): number[][] {
  return shape.reduce<number[][]>(
    (places, size) => places.flatMap((at) => Array.from({ length: size }, (_, i) => [...at, i])),
    [[]],
  );
}

const sizeOf = (shape: readonly number[]): number => shape.reduce((product, size) => product * size, 1);

function numberAt({ value, summed, kept }: Mode, row: number, column: number): number {
  const point = { [summed]: column, [kept]: row };
  let e = value;
  while (e.kind === "select") e = evaluateIndex(e.condition, point) !== 0 ? e.whenTrue : e.whenFalse;
  if (e.kind !== "number") throw new Error("internal: a matrix holds numbers");
  return e.value;
}

/** `4*a - 5*b + c`. Terms with factor 0 are omitted. */
function combined(terms: readonly (readonly [factor: number, term: Access])[]): Expr {
  // Begins with a positive term, so that no negation is needed.
  const counted = terms.filter(([factor]) => factor !== 0).toSorted(([a], [b]) => Number(b > 0) - Number(a > 0));
  const [first, ...others] = counted;
  if (!first) return number(0);
  const scaled = (factor: number, term: Access): Expr =>
    factor === 1 ? term : { kind: "binary", op: "*", left: number(factor), right: term };
  return others.reduce<Expr>(
    (sum, [factor, term]) => ({
      kind: "binary",
      op: factor < 0 ? "-" : "+",
      left: sum,
      right: scaled(Math.abs(factor), term),
    }),
    scaled(...first),
  );
}

/** The largest divisor of at most `most` and at least a quarter of it. */
function divisorBelow(extent: number, most: number): number | undefined {
  for (let d = Math.min(most, extent); d >= most / 4; d--) if (extent % d === 0) return d;
  return undefined;
}
