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

import { chosenAt, splitRowMajor } from "../../abstraction/affine.ts";
import { indicesOf, isDefined, product, unique, upTo, volumeOf, withName } from "../../abstraction/collections.ts";
import {
  type Axis,
  type Computation,
  extentsOf,
  keptIn,
  summedIn,
  targetOf,
  tensorOf,
} from "../../abstraction/computation.ts";
import { allOf } from "../../abstraction/condition.ts";
import { isInteger } from "../../abstraction/dtype.ts";
import { leavesAlong } from "../../abstraction/elements.ts";
import { storingAt } from "../../abstraction/epilogue.ts";
import { internal } from "../../abstraction/error.ts";
import {
  type Access,
  access,
  accessesIn,
  accessesOf,
  axesIn,
  axis,
  childrenOf,
  compare,
  type Equation,
  type Expr,
  minus,
  number,
  operandsOf,
  plus,
  rewrite,
  substitute,
  substituteAxes,
  times,
} from "../../abstraction/expression.ts";
import { assignment, FreshNames, loop, type Scratch, type Statement, scalar } from "../../abstraction/loop-nest.ts";
import { storingEquation } from "../../abstraction/row-chain.ts";
import { when } from "../match/conditions.ts";
import { strideAlong } from "../schedule/dense-runs.ts";
import { divisor } from "./loop-rows.ts";
import type { PlainLoops } from "./loops.ts";

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
/** Windows side by side where no search says how many. A row of windows and their intermediate results stay in L1. */
const ROW = 64;

/** The windows side by side that are computed together where no search says how many, of those that there are. */
export const usualRow = (extent: number): number => Math.min(extent, divisor(extent, ROW) ?? ROW);

/** The parts of such a product; undefined if the computation is none. */
export function modeProductsOf(computation: Computation): ModeProducts | undefined {
  const { equation, axes, time } = computation;
  if (time || equation.op !== "+=" || equation.where !== undefined || isInteger(targetOf(computation).dtype))
    return undefined;
  const factors = operandsOf(equation.value, "*");
  const [source, another] = factors.filter((e) => e.kind === "access");
  if (source?.kind !== "access" || another || factors.length < 2) return undefined;
  if (tensorOf(computation, source.tensor).dtype !== targetOf(computation).dtype) return undefined;
  if (!equation.target.index.every((e) => e.kind === "axis")) return undefined;
  const modes = factors.filter((e) => e !== source).map((value) => modeOf(value, computation, source));
  const found = modes.filter(isDefined);
  const names = new Set(found.flatMap(({ summed, kept }) => [summed, kept]));
  const summed = summedIn(axes).length;
  const window = found.reduce((product, { columns, rows }) => product * Math.max(columns, rows), 1);
  if (found.length !== modes.length || found.length !== summed || names.size !== 2 * summed || window > MOST_ELEMENTS)
    return undefined;
  return { source, modes: found };
}

function modeOf(value: Expr, { axes }: Computation, source: Access): Mode | undefined {
  if (accessesIn(value).length > 0 || !isOfNumbers(value)) return undefined;
  const [first, second, third] = axesIn(value).map((name) => withName(axes, name));
  if (!first || !second || third || first.kind === second.kind) return undefined;
  const [summed, kept] = first.kind === "reduce" ? [first, second] : [second, first];
  const digits = unique(divisorsOf(value, kept.name, "%", Number.POSITIVE_INFINITY));
  const [digit] = digits;
  if (digits.length > 1 || digit === undefined) return undefined;
  // An axis that is no longer than the digit has one block.
  const isDigit = Number.isFinite(digit);
  // The tensor may be read at the axis's block, or independently of the axis.
  const reads = source.index.flatMap((e) => divisorsOf(e, kept.name, "/", 0));
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

/** The numbers by which an operation divides an axis, and `alone` where the axis appears by itself. */
function divisorsOf(e: Expr, name: string, op: "/" | "%", alone: number): number[] {
  const isAxis = (part: Expr): boolean => part.kind === "axis" && part.name === name;
  if (isAxis(e)) return [alone];
  if (e.kind === "binary" && e.op === op && isAxis(e.left) && e.right.kind === "number") return [e.right.value];
  return childrenOf(e).flatMap((part) => divisorsOf(part, name, op, alone));
}

/** Dimensions of the tensor along which a window may be outside. */
function outsideOf(computation: Computation, source: Access): readonly number[] {
  return leavesAlong(source, tensorOf(computation, source.tensor), extentsOf(computation));
}

/**
 * The loop along which windows lie side by side: the source, or else the output, is contiguous along it. A loop along which a window leaves its tensor
 * is not eligible.
 */
export function rowLoopOf(computation: Computation, { source, modes }: ModeProducts): Axis | undefined {
  const kept = keptIn(computation.axes);
  const leaving = outsideOf(computation, source).flatMap((d) => axesIn(source.index[d] ?? number(0)));
  const isPlain = ({ name }: Axis): boolean =>
    source.index.every((e) => !axesIn(e).includes(name) || e.kind === "axis");
  const costOf = ({ name }: Axis): number =>
    [source, storingEquation(computation).target].filter(
      (a) => strideAlong(a, tensorOf(computation, a.tensor), name) !== 1,
    ).length;
  return kept
    .filter((one) => !modes.some((m) => m.kept === one.name) && !leaving.includes(one.name) && isPlain(one))
    .toSorted((a, b) => costOf(a) - costOf(b) || kept.indexOf(b) - kept.indexOf(a))[0];
}

/** The steps of a kept axis, or of the blocks of its last digit, that loops around a nest choose: `count` from `first` on, of `of` in all. */
export interface Chosen {
  readonly first: Expr;
  readonly count: number;
  readonly of: number;
}

/**
 * Lowers such a product.
 * @param steps windows side by side that are computed together
 * @param chosen by kept axis; all steps of the others
 */
export function lowerModeProducts(
  computation: Computation,
  products: ModeProducts,
  steps?: number,
  chosen: ReadonlyMap<string, Chosen> = new Map(),
): PlainLoops {
  return new Lowering(computation, products, steps, chosen).lower();
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
  private readonly chosen: ReadonlyMap<string, Chosen>;

  constructor(
    computation: Computation,
    products: ModeProducts,
    given: number | undefined,
    chosen: ReadonlyMap<string, Chosen>,
  ) {
    const { source, modes } = products;
    this.chosen = chosen;
    this.computation = computation;
    this.source = source;
    this.modes = modes;
    this.names = new FreshNames(computation);
    this.rest = this.names.fresh("rest");
    const { name: row, extent = 1 } = rowLoopOf(computation, products) ?? {};
    const counter = this.names.fresh("row");
    const steps = given ?? usualRow(extent);
    const blocks = Math.ceil(extent / steps);
    const digits = [
      ...keptIn(computation.axes).flatMap(({ name, extent: all }) => {
        const mode = modes.find((m) => m.kept === name);
        if (name === row || (mode && !mode.isDigit)) return [];
        return [{ name, extent: chosen.get(name)?.count ?? (mode ? Math.ceil(all / mode.rows) : all) }];
      }),
      ...(row === undefined ? [] : [{ name: row, extent: blocks }]),
    ];
    this.dealt = volumeOf(digits);
    for (const [{ name }, digit] of splitRowMajor(axis(this.rest), digits))
      this.places.set(name, plus(chosen.get(name)?.first ?? 0, digit));
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
        elements: product(shape) * this.row.steps,
        scope: "local",
      } as const;
      scratch.push(made);
      return made;
    };
    // 1. The window, if some of it may be outside its tensor.
    let terms: (at: readonly number[]) => Access = (at) => this.read(at);
    if (outsideOf(this.computation, this.source).length > 0) {
      const window = buffer("window", columns);
      for (const at of indicesOf(columns)) body.push(...this.copied(at, this.held(window, columns, at)));
      terms = (at) => this.held(window, columns, at);
    }
    // 2. One dimension after another.
    for (const [d, mode] of this.modes.entries()) {
      const before = terms;
      const shape = this.modes.map((m, i) => (i <= d ? m.rows : m.columns));
      const isLast = d === this.modes.length - 1;
      const half = isLast ? undefined : buffer(`half${d}`, shape);
      for (const at of indicesOf(shape)) {
        const value = combined(
          upTo(mode.columns).map((i) => [
            numberAt(mode, at[d] ?? 0, i),
            before(at.map((index, e) => (e === d ? i : index))),
          ]),
        );
        if (half) body.push(this.overRow(assignment(this.held(half, shape, at), value)));
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
    const over = loop(counter, steps, [scalar(equation)]);
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
    const placed = substitute(blocks, new Map([...this.places, ...summed]), "value");
    if (placed.kind !== "access") internal("an element stays one");
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

  private copied(at: readonly number[], target: Access): readonly Statement[] {
    const read = this.read(at);
    const { dims } = tensorOf(this.computation, this.source.tensor);
    const conditions = outsideOf(this.computation, this.source).flatMap((d) => {
      const e = read.index[d] ?? number(0);
      return [compare(">=", e, 0), compare("<", e, dims[d]?.extent ?? 0)];
    });
    const copied = (value: Expr): readonly Statement[] => [this.overRow(assignment(target, value))];
    return when(allOf(conditions), copied(read), copied(number(0)));
  }

  /** Stores an output element, with a test if its block reaches beyond the edge. */
  private stored(at: readonly number[], value: Expr): readonly Statement[] {
    const kept = new Map(
      this.modes.map(({ kept: name, rows, isDigit }, d) => {
        const digit = number(at[d] ?? 0);
        const block = this.places.get(name);
        return [name, isDigit && block ? plus(times(block, rows), digit) : digit] as const;
      }),
    );
    const places = new Map([...this.places, ...kept]);
    const made = storingAt(this.computation, this.computation.equation.target.index, value);
    const whole = substituteAxes(made, places);
    for (const element of accessesOf(whole)) this.inside.add(element);
    const edges = this.modes.flatMap(({ kept: name, rows, isDigit }) => {
      const extent = extentsOf(this.computation)[name] ?? 0;
      const index = places.get(name);
      const blocks = this.chosen.get(name)?.of ?? Math.ceil(extent / rows);
      return isDigit && blocks * rows > extent && index ? [compare("<", index, extent)] : [];
    });
    return when(allOf(edges), [this.overRow(whole)]);
  }
}

function numberAt({ value, summed, kept }: Mode, row: number, column: number): number {
  const point = { [summed]: column, [kept]: row };
  const e = chosenAt(value, point);
  if (e.kind !== "number") internal("a matrix holds numbers");
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
