/**
 * @file The time of reads whose lanes lie apart in memory and may lie outside their tensor, counted in the nest itself.
 *
 *     IN[0,lane] = in[0,2*p_block+r-3,32*q_tile+2*lane+s-3]      a gather under a mask, wherever the tile reaches a border
 *     IN[0,lane] = select(lane == 15, in[...], IN[0,lane+1])     one lane is read alone, and the others are passed on
 *
 * Passes at borders run one at a time, so that each reads for itself what passes side by side share. If time stays a
 * loop whose steps are no affine index, no border can be cut off, and every step tests every lane.
 */

import { affineForm, boundsOf, type Extents, evaluateIndex, strideIn } from "../abstraction/affine.ts";
import type { Computation } from "../abstraction/computation.ts";
import { type Access, axesIn, binary, childrenOf, comparesElements, type Expr } from "../abstraction/expression.ts";
import type { LoopNest, Statement } from "../abstraction/loop-nest.ts";
import type { ModelTarget } from "./target.ts";

/**
 * Cycles for each lane of a gather under a mask, and for the tests of a lane that make its mask. Together 36 cycles of
 * 16 lanes: 1.86 M such reads of a 7x7 convolution at stride 2 take 18 ms (Zen 4 at 3.7 GHz, 2026-11-23).
 */
const GATHER_LANE_CYCLES = 1.25;
const MASK_LANE_CYCLES = 1;

/** The loops around a statement. */
interface Scope {
  readonly trips: number;
  readonly extents: Extents;
  readonly unrolled: ReadonlySet<string>;
  readonly lanes: { readonly axis: string; readonly extent: number } | undefined;
}

/** Seconds of a call that scattered reads take, on so many threads. */
export function scatteredSeconds(
  nest: LoopNest,
  computation: Computation,
  threads: number,
  target: ModelTarget,
): number {
  const counter = new Counter(computation, new Set((nest.vectors ?? []).map((v) => v.name)));
  const around = { trips: 1, extents: {}, unrolled: new Set<string>(), lanes: undefined };
  return counter.cyclesOf(nest.body, around) / target.clockHz.value / threads;
}

class Counter {
  private readonly tensors: Computation["tensors"];
  private readonly registers: ReadonlySet<string>;

  constructor({ tensors }: Computation, registers: ReadonlySet<string>) {
    this.tensors = tensors;
    this.registers = registers;
  }

  cyclesOf(body: readonly Statement[], scope: Scope): number {
    return body.reduce((sum, s) => sum + this.cyclesOfOne(s, scope), 0);
  }

  private cyclesOfOne(s: Statement, scope: Scope): number {
    if (s.kind === "when") return this.cyclesOf([...s.body, ...s.otherwise], scope);
    if (s.kind === "scalar") return scope.lanes ? scope.trips * this.cyclesIn(s.equation.value, scope, 1) : 0;
    if (s.kind !== "loop") return 0;
    const extents = { ...scope.extents, [s.axis]: s.extent };
    if (s.mode === "lanes") return this.cyclesOf(s.body, { ...scope, extents, lanes: s });
    const unrolled = s.mode === "unrolled" ? new Set([...scope.unrolled, s.axis]) : scope.unrolled;
    return this.cyclesOf(s.body, { ...scope, extents, unrolled, trips: scope.trips * s.extent });
  }

  /** @param share the fraction of the trips in which a value is computed on more than one lane */
  private cyclesIn(e: Expr, scope: Scope, share: number): number {
    if (share === 0) return 0;
    if (e.kind === "access") return share * this.cyclesOfRead(e, scope);
    if (e.kind === "select")
      return (
        this.cyclesIn(e.whenTrue, scope, share * shareOf(e.condition, scope)) + this.cyclesIn(e.whenFalse, scope, share)
      );
    return childrenOf(e).reduce((sum, part) => sum + this.cyclesIn(part, scope, share), 0);
  }

  private cyclesOfRead({ tensor, index }: Access, { extents, lanes }: Scope): number {
    const dims = this.tensors[tensor]?.dims;
    if (!lanes || !dims || this.registers.has(tensor)) return 0;
    const moved = index.filter((e) => axesIn(e).includes(lanes.axis));
    const last = index.at(-1);
    const stride = last && strideIn(last, lanes.axis);
    if (moved.length === 0 || (moved.length === 1 && stride !== undefined && Math.abs(stride) === 1)) return 0;
    const leaving = index.filter((e, d) => {
      if (!moved.includes(e)) return false;
      const [least, most] = boundsOf(e, extents);
      return least < 0 || most >= (dims[d]?.extent ?? 1);
    });
    if (leaving.length === 0) return 0;
    const isTested = leaving.some((e) => affineForm(e) === undefined);
    return lanes.extent * (GATHER_LANE_CYCLES + (isTested ? MASK_LANE_CYCLES : 0));
  }
}

/** The fraction of unrolled steps in which a condition may hold on more than one lane. */
function shareOf(e: Expr, scope: Scope): number {
  const { lanes, unrolled, extents } = scope;
  if (e.kind === "logic") {
    const left = shareOf(e.left, scope);
    const right = shareOf(e.right, scope);
    return e.op === "and" ? Math.min(left, right) : Math.min(1, left + right);
  }
  if (e.kind !== "compare" || comparesElements(e)) return 1;
  const axes = axesIn(e);
  if (e.op === "==" && lanes && Math.abs(strideIn(binary("-", e.left, e.right), lanes.axis) ?? 0) === 1) return 0;
  if (!axes.every((name) => unrolled.has(name))) return 1;
  const points = axes.reduce<readonly Extents[]>(
    (made, name) => made.flatMap((p) => Array.from({ length: extents[name] ?? 1 }, (_, i) => ({ ...p, [name]: i }))),
    [{}],
  );
  return points.filter((p) => evaluateIndex(e, p) !== 0).length / points.length;
}
