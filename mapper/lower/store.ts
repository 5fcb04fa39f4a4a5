/**
 * @file Lowers the stores from a scratch block to the output, element by element: for tiles whose layout in the output
 * is not the one the instruction stores, and for epilogues that change the results first.
 *
 *     c_results[0 .. 31] <- c{0..1}
 *     for q_block in 0..2
 *       for n_inner in 0..16                                                    the output is NHWC: k, fed to n, lies innermost
 *         res[0,16*k_outer+n_inner,p,2*q_outer+q_block] = max(c_results[16*q_block+n_inner], 0)
 *
 * Only the gaps of a spread dimension are tested inside; a partial last tile has loops of its own. The loop with the
 * smallest stride in the output is innermost, so that a language with vectors can print it as a row
 * (codegen/cpp/rows-avx512.ts). When it is too short for that, an epilogue is computed along the rows of the tiles.
 *
 * Software prefetch for stores: the lines that a block's results go to, and the lines of large tensors that its epilogue reads, are fetched
 * during its sums.
 *
 *     for c_outer_fetch in 0..16                                       (fetch ahead res[...], e2[...]: one or a few lines in each step)
 *       for c_outer in 0..32
 *         c{..} <- ...
 *     for q_block, k_block, n_inner: res[..] <- c_results[..] + e2[..]
 *
 * Otherwise the stores and the additions of all lines wait for memory one after another, with nothing to compute meanwhile: the convolution of 64
 * to 256 channels of 56 x 56 with a residual in ResNet-50 took 1331 us and takes 978 (least times, its tensors not in a cache, Zen 4, 2026-11-23).
 */

import { addressOf, type Dimension, evaluateIndex } from "../../abstraction/affine.ts";
import { combinations, sortedBy, upTo, volumeOf } from "../../abstraction/collections.ts";
import { type Computation, elementCount, outputOf, tensorOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { storingAt } from "../../abstraction/epilogue.ts";
import { internal } from "../../abstraction/error.ts";
import {
  access,
  accessesIn,
  axesIn,
  axis,
  compare,
  type Expr,
  guarded,
  number,
  over,
  plus,
  remainder,
  substitute,
  substituteEach,
  times,
} from "../../abstraction/expression.ts";
import type { Operand } from "../../abstraction/intrinsic.ts";
import { type FreshNames, type Loop, loops, type Statement, scalar, type TileAt } from "../../abstraction/loop-nest.ts";
import { tileElements, tileOffset } from "../../abstraction/memory-tile.ts";
import { substituteAxis } from "../../abstraction/rewrite-statement.ts";
import { storedSum } from "../match/conditions.ts";
import { digitsOf, gapsOf, type LoopDimension } from "../schedule/dimensions.ts";
import { FETCHED_BYTES, LINE_BYTES } from "./ahead.ts";

/** Tiles that lie side by side in a scratch buffer. */
export interface ResultBlock {
  readonly computation: Computation;
  /**
   * Condition for an element to differ from the identity; undefined if there is none or it holds for the whole block.
   */
  readonly condition: Expr | undefined;
  /** Set if an epilogue stores all elements, whatever its condition. */
  readonly isWhole?: true;
  /** The instruction's target. */
  readonly target: Operand;
  readonly buffer: string;
  /** The index of a tile in the buffer, in terms of the dimensions' steps. */
  readonly tile: Expr;
  /** Every dimension of the results. */
  readonly dimensions: readonly BlockDimension[];
  /** The name of the loop over an axis of the tile. */
  readonly innerName: (axis: string) => string;
}

interface BlockDimension {
  readonly dimension: LoopDimension;
  /** The number of the block's first step. */
  readonly first: Expr;
  readonly count: number;
  /** The name of the loop over the steps of the block. */
  readonly step: string;
  /** Whether the last step is incomplete. */
  readonly partial: boolean;
}

/** A run of steps with equally many elements: the whole steps, or the incomplete last one. */
interface Run {
  readonly from: number;
  readonly count: number;
  /** Elements in each step. */
  readonly elements: number;
}

/** The fewest elements of a loop that is worth vectorising as a row. */
const ROW_LANES = 8;

/** The loops that store a block of results. */
export function storeElements(block: ResultBlock): readonly Statement[] {
  return combinations(block.dimensions.map(runsOf)).flatMap((runs) => storeRuns(block, runs));
}

function runsOf({ dimension, count, partial }: BlockDimension): Run[] {
  const { step, extent, wholeSteps } = dimension;
  if (!partial) return [{ from: 0, count, elements: step }];
  const last = { from: count - 1, count: 1, elements: extent - wholeSteps * step };
  return count === 1 ? [last] : [{ from: 0, count: count - 1, elements: step }, last];
}

function storeRuns(block: ResultBlock, runs: readonly Run[]): readonly Statement[] {
  const { computation, target, buffer, dimensions, innerName } = block;
  const walk: Dimension[] = [];
  const counter = (name: string, extent: number, from = 0): Expr => {
    if (extent === 1) return number(from);
    walk.push({ name, extent });
    return axis(name);
  };
  // 1. The value of each loop of the computation, and its position in the tile. An axis that no loop feeds has one
  //    element.
  const steps = new Map<string, Expr>();
  const inner = new Map<string, Expr>(target.dims.map((o) => [o.name, number(0)]));
  const counters = new Map<string, Expr>();
  const guards: Expr[] = [];
  for (const [i, { dimension: d, first, step }] of dimensions.entries()) {
    const run = runs[i] ?? internal(`${d.name} has no run of steps`);
    const at = counter(step, run.count, run.from);
    steps.set(step, at);
    const element = d.axis === undefined ? number(0) : counter(innerName(d.axis), run.elements);
    if (d.axis !== undefined) inner.set(d.axis, element);
    const fused = plus(times(plus(first, at), d.step), element);
    for (const [name, digit] of digitsOf(d, fused)) counters.set(name, digit);
    for (const l of gapsOf(d)) guards.push(compare("<", counters.get(l.name) ?? 0, l.extent));
  }

  // 2. The assignment of one element.
  const place = plus(
    times(substitute(block.tile, steps, "index"), tileElements(target)),
    substitute(tileOffset(target), inner, "index"),
  );
  const held = storedSum(computation, block.condition, counters, access(buffer, [place]));
  const index = substituteEach(computation.equation.target.index, counters);
  const assigned = storingAt(computation, index, held);
  const { where: _, ...always } = assigned;
  const equation = guarded(block.isWhole ? always : assigned, guards);

  // 3. The loops. Innermost is the loop with the smallest output stride, or, if that is no row, the loop along the
  //    tiles' rows.
  const stride = stridesIn(addressOf(outputOf(computation), equation.target.index));
  const stored = sortedBy(walk, (a) => -stride(a.name));
  const along = stridesIn(place);
  const row = stored.find((l) => along(l.name) === 1);
  const last = stored.at(-1);
  const turned = row && last && row.extent >= ROW_LANES && last.extent < ROW_LANES && computation.epilogue;
  const order = turned ? [...stored.filter((l) => l !== row), row] : stored;
  return loops(order, [scalar(equation)]);
}

/** Elements between two consecutive steps of a loop. */
function stridesIn(element: Expr): (name: string) => number {
  const origin = Object.fromEntries(axesIn(element).map((name) => [name, 0]));
  const start = evaluateIndex(element, origin);
  return (name) => Math.abs(evaluateIndex(element, { ...origin, [name]: 1 }) - start);
}

/** Lines that a step fetches at most: more of them wait for one another. */
const MOST_AT_ONCE = 8;

/** Lines that loops touch, numbered with the innermost loop fastest. */
export interface Lines {
  readonly tensor: string;
  /** The first element of a line, in terms of the loops' counters. */
  readonly place: Expr;
  readonly loops: readonly { readonly axis: string; readonly lines: number; readonly perLine: number }[];
}

/**
 * Sums whose innermost loop fetches what the stores after them touch. Sums without a loop, or with too few steps for the lines, are left as they
 * are.
 * @param stored plain loops around assignments; what stands under a condition is not fetched
 * @param further lines that are fetched too
 */
export function fetchingStored(
  sums: readonly Statement[],
  stored: readonly Statement[],
  further: readonly Lines[],
  computation: Computation,
  names: FreshNames,
): readonly Statement[] {
  const lines = [...distinct(stored.flatMap((s) => linesOf(s, [], computation))), ...further];
  if (lines.length === 0) return sums;
  const loops = sums.filter(isSum);
  const most = Math.max(...loops.map((l) => l.extent));
  const carrier = loops.find((l) => l.extent === most);
  return sums.map((s) => (s === carrier ? inInnermost(carrier, [], lines, names) : s));
}

/** Whether a statement is a loop whose steps issue instructions one after another. */
function isSum(s: Statement): s is Loop {
  return s.kind === "loop" && s.mode === "serial" && s.extent > 1 && issues(s);
}

function issues(s: Statement): boolean {
  if (s.kind === "loop") return s.body.some(issues);
  return s.kind === "register-issue" || (s.kind === "when" && [...s.body, ...s.otherwise].some(issues));
}

/**
 * Places the fetches in the innermost of loops that hold one another. Steps between two fetches are a loop of their own: in every step the address
 * of a line takes some twenty instructions, as many as 14 products of vectors and their loads.
 */
function inInnermost(loop: Loop, around: readonly Loop[], lines: readonly Lines[], names: FreshNames): Loop {
  const path = [...around, loop];
  const inner = loop.body.find(isSum);
  if (inner) return { ...loop, body: loop.body.map((s) => (s === inner ? inInnermost(inner, path, lines, names) : s)) };
  const lasting = Math.floor(volumeOf(path) / Math.max(...lines.map(countOf)));
  const together = loop.range
    ? 1
    : (upTo(Math.min(lasting, loop.extent) + 1).findLast((n) => loop.extent % n === 0) ?? 1);
  const outer =
    together === 1 ? loop : { ...loop, axis: names.fresh(`${loop.axis}_fetch`), extent: loop.extent / together };
  const steps = [...around, outer];
  const step = steps.reduce<Expr>((sum, { axis: name, extent }) => plus(times(sum, extent), axis(name)), number(0));
  const ahead = lines.flatMap((one) => fetchesOf(one, step, volumeOf(steps)));
  if (ahead.length === 0) return loop;
  if (together === 1) return { ...loop, ahead: [...(loop.ahead ?? []), ...ahead] };
  const at = plus(times(axis(outer.axis), together), axis(loop.axis));
  return { ...outer, ahead, body: [substituteAxis({ ...loop, extent: together }, loop.axis, at)] };
}

const countOf = ({ loops }: Lines): number => loops.reduce((product, l) => product * l.lines, 1);

/** What one of some steps fetches: each line once where steps and lines agree, else some again, which costs next to nothing. */
function fetchesOf(lines: Lines, step: Expr, steps: number): readonly TileAt[] {
  const { tensor, place, loops } = lines;
  const count = countOf(lines);
  const each = Math.ceil(count / steps);
  if (each > MOST_AT_ONCE) return [];
  const stepsPerLine = Math.max(1, Math.floor(steps / count));
  return upTo(each).map((n): TileAt => {
    let rest = plus(times(over(step, stepsPerLine), each), n);
    const counters = new Map<string, Expr>();
    for (const { axis: name, lines: of, perLine } of loops.toReversed()) {
      counters.set(name, times(remainder(rest, of), perLine));
      rest = over(rest, of);
    }
    return { buffer: tensor, base: substitute(place, counters, "index") };
  });
}

/** The lines of large tensors that assignments in plain loops touch, where the innermost loop runs along the lines. */
function linesOf(s: Statement, around: readonly Loop[], computation: Computation): readonly Lines[] {
  if (s.kind === "loop") return s.body.flatMap((inner) => linesOf(inner, [...around, s], computation));
  if (s.kind === "store") {
    const { buffer, base } = s.memory;
    return isLarge(buffer, computation) ? whole(buffer, base, around, 1, computation) : [];
  }
  if (s.kind !== "scalar") return [];
  const { target, value } = s.equation;
  return [target, ...accessesIn(value)].flatMap((access): readonly Lines[] => {
    const inner = around.at(-1);
    if (!inner || !isLarge(access.tensor, computation)) return [];
    const place = addressOf(tensorOf(computation, access.tensor), access.index);
    if (accessesIn(place).length > 0) return [];
    const origin = Object.fromEntries(axesIn(place).map((name) => [name, 0]));
    const stride = evaluateIndex(place, { ...origin, [inner.axis]: 1 }) - evaluateIndex(place, origin);
    return stride === 1 ? whole(access.tensor, place, around, LINE_BYTES, computation) : [];
  });
}

/** @param bytes of the lines that the innermost loop runs along; 1 where no loop does */
function whole(
  tensor: string,
  place: Expr,
  around: readonly Loop[],
  bytes: number,
  computation: Computation,
): readonly Lines[] {
  const perLine = Math.max(1, bytes / bytesOf(tensorOf(computation, tensor).dtype));
  const along = around.at(-1);
  const loops = around.map((loop) =>
    loop === along
      ? { axis: loop.axis, lines: Math.ceil(loop.extent / perLine), perLine }
      : { axis: loop.axis, lines: loop.extent, perLine: 1 },
  );
  return [{ tensor, place, loops: loops.filter(({ axis: name }) => axesIn(place).includes(name)) }];
}

function isLarge(tensor: string, computation: Computation): boolean {
  const found = computation.tensors[tensor];
  return found !== undefined && !found.constant && elementCount(found) * bytesOf(found.dtype) >= FETCHED_BYTES;
}

function distinct(all: readonly Lines[]): readonly Lines[] {
  return [...new Map(all.map((one) => [one.tensor, one] as const)).values()];
}
