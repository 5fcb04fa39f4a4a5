/**
 * @file Lowers a lane design given by its transform. Passes run side by side where every access is inside, and one at a
 * time at borders.
 *
 *     for parallel p_block in 0..1                              the first rows: single passes, every access tested
 *       for p in 0..4 ...
 *     for parallel p_block in 0..12                             rows whose neighbours are all inside
 *       for q_tile in 0..1 ...                                  ... except in the first columns
 *       for q_tile in 0..7                                      passes of four rows side by side
 *         for unrolled t1 in 0..3, t2 in 0..3
 *           for lanes lane in 0..16
 *             X[0,lane] = x[4*(p_block+1)-1,...]
 */

import { affineForm, boundsOf, type Extents } from "../../abstraction/affine.ts";
import type { ArrayPlan } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { conjunctsOf } from "../../abstraction/condition.ts";
import { epilogueAt } from "../../abstraction/epilogue.ts";
import { accessesIn, axis, type Equation, type Expr, minus, number, plus } from "../../abstraction/expression.ts";
import type { Loop, LoopNest, Statement } from "../../abstraction/loop-nest.ts";
import { substituteAxis } from "../../abstraction/rewrite-statement.ts";
import { type OnLanes, sideBySide } from "./beside.ts";
import { withDots } from "./dots.ts";
import { keptOutside, type LaneArray } from "./lane-array.ts";
import { heldAs, lowerComputation } from "./lower.ts";

/**
 * Lowers a placed design.
 * @param deal given for thousands of warps: all passes are alike, and every access is tested. When left out, passes at
 * borders are apart, one at a time
 */
export function lowerPlaced(
  computation: Computation,
  array: LaneArray,
  inputs: ArrayPlan["inputs"],
  words = false,
  deal?: LoopNest["deal"],
): LoopNest {
  const { sum, space, spaceTime, beside } = array;
  const kept = keptOutside(array);
  const nest = lowerComputation(sum, space, spaceTime, {
    coalesced: true,
    wide: !words,
    loaded: inputs !== "passed",
    parallel: kept,
  });
  const { spine, inner } = taken(
    words ? nest.body : storing(nest.body, computation),
    new Set(kept),
    new Set(space.dropped),
  );
  const plain: OnLanes = { body: inner, vectors: nest.vectors ?? [] };
  const wide = sideBySide(plain, beside);
  const dotted = array.dot ? withDots(wide, array.dot.terms) : wide;
  const body = deal ? nested(spine, dotted.body) : new Borders(computation, plain, dotted).around(spine);
  return { ...nest, vectors: wide.vectors, body, ...(deal && { deal }) };
}

/** Removes loops of one step, and separates the loops that threads share from the loops inside them. */
function taken(
  body: readonly Statement[],
  kept: ReadonlySet<string>,
  dropped: ReadonlySet<string>,
): { readonly spine: readonly Loop[]; readonly inner: readonly Statement[] } {
  const [only] = body;
  if (body.length !== 1 || only?.kind !== "loop") return { spine: [], inner: body };
  if (dropped.has(only.axis))
    return taken(
      only.body.map((s) => substituteAxis(s, only.axis, number(0))),
      kept,
      dropped,
    );
  if (!kept.has(only.axis)) return { spine: [], inner: body };
  const { spine, inner } = taken(only.body, kept, dropped);
  return { spine: [only, ...spine], inner };
}

/** Converts results to the output's type, or applies the epilogue, where they leave the lanes. */
function storing(body: readonly Statement[], computation: Computation): readonly Statement[] {
  const { epilogue, equation, tensors } = computation;
  const { tensor } = equation.target;
  const dtype = epilogue ? epilogue.sum.dtype : tensors[tensor]?.dtype;
  const changed = (e: Equation): Equation => {
    if (e.target.tensor !== tensor) return e;
    const value: Expr =
      dtype !== undefined && heldAs(dtype) !== dtype
        ? { kind: "cast", dtype, saturate: false, value: e.value }
        : e.value;
    if (!epilogue) return { ...e, value };
    const stored = epilogueAt(epilogue, e.target.index, value);
    return e.where === undefined ? stored : { ...stored, where: e.where };
  };
  return body.map((s): Statement => {
    if (s.kind === "scalar") return { ...s, equation: changed(s.equation) };
    return s.kind === "loop" ? { ...s, body: storing(s.body, computation) } : s;
  });
}

const nested = (loops: readonly Loop[], body: readonly Statement[]): readonly Statement[] =>
  loops.reduceRight<readonly Statement[]>((inner, l) => [{ ...l, body: inner }], body);

/** Steps `from .. to-1` of a loop. */
interface Span {
  readonly from: number;
  readonly to: number;
}

/** Cuts the loops around passes at the steps where accesses enter or leave their tensors. */
class Borders {
  private readonly computation: Computation;
  private readonly plain: OnLanes;
  private readonly wide: OnLanes;

  constructor(computation: Computation, plain: OnLanes, wide: OnLanes) {
    this.computation = computation;
    this.plain = plain;
    this.wide = wide;
  }

  around(spine: readonly Loop[]): readonly Statement[] {
    const spans = spine.map((l) => this.inside(l, spine));
    const cut = (at: number): readonly Statement[] => {
      const l = spine[at];
      if (!l) return this.wide.body;
      const { from, to } = spans[at] ?? { from: 0, to: l.extent };
      const border = nested(spine.slice(at + 1), this.plain.body);
      return [
        ...part(l, { from: 0, to: from }, border),
        ...part(l, { from, to }, from < to ? cut(at + 1) : []),
        ...part(l, { from: to, to: l.extent }, border),
      ];
    };
    return cut(0);
  }

  /** The steps of a loop at which all accesses of the passes are inside and all conditions on it hold. */
  private inside(l: Loop, spine: readonly Loop[]): Span {
    const loops = [...spine, ...loopsIn(this.wide.body)];
    const extents: Extents = Object.fromEntries(loops.map((s) => [s.axis, s.extent]));
    let from = 0;
    let to = l.extent;
    for (const [index, least, most] of this.limits()) {
      const slope = affineForm(index)?.terms.get(l.axis) ?? 0;
      if (slope <= 0) continue;
      const [min, max] = boundsOf(index, { ...extents, [l.axis]: 1 });
      from = Math.max(from, Math.ceil((least - min) / slope));
      to = Math.min(to, Math.floor((most - max) / slope) + 1);
    }
    const begin = Math.min(Math.max(0, from), l.extent);
    return { from: begin, to: Math.max(begin, to) };
  }

  /** Indices and the bounds they must stay within. */
  private limits(): readonly (readonly [index: Expr, least: number, most: number])[] {
    const found: [Expr, number, number][] = [];
    for (const { target, value, where } of equationsIn(this.wide.body)) {
      for (const a of [target, ...accessesIn(value)])
        for (const [d, index] of a.index.entries()) {
          const extent = this.computation.tensors[a.tensor]?.dims[d]?.extent;
          if (extent !== undefined) found.push([index, 0, extent - 1]);
        }
      for (const c of where ? conjunctsOf(where) : []) {
        if (c.kind !== "compare") continue;
        const apart = minus(c.left, c.right);
        if (c.op === "<") found.push([apart, Number.NEGATIVE_INFINITY, -1]);
        if (c.op === ">=") found.push([apart, 0, Number.POSITIVE_INFINITY]);
      }
    }
    return found;
  }
}

/** Some of the steps of a loop. */
function part(l: Loop, { from, to }: Span, body: readonly Statement[]): readonly Statement[] {
  if (to <= from || body.length === 0) return [];
  const moved = from === 0 ? body : body.map((s) => substituteAxis(s, l.axis, plus(axis(l.axis), from)));
  return [{ ...l, extent: to - from, body: moved }];
}

function loopsIn(body: readonly Statement[]): Loop[] {
  return body.flatMap((s) => (s.kind === "loop" ? [s, ...loopsIn(s.body)] : []));
}

function equationsIn(body: readonly Statement[]): Equation[] {
  return body.flatMap((s) => (s.kind === "scalar" ? [s.equation] : s.kind === "loop" ? equationsIn(s.body) : []));
}
