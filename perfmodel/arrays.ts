/** @file A quick time estimate for lane designs given by transforms, on vectors and on warps, precise enough to sort thousands of them. */

import { addressOf, affineForm } from "../abstraction/affine.ts";
import type { ArrayPlan } from "../abstraction/candidate.ts";
import { namesOf, volumeOf } from "../abstraction/collections.ts";
import { tensorOf } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { type Access, axesIn } from "../abstraction/expression.ts";
import { stepsJoined } from "../mapper/space-time/dots.ts";
import type { LaneArray } from "../mapper/space-time/lane-array.ts";
import { operandAccesses } from "../mapper/space-time/problem.ts";
import { type Inverse, inverseOf } from "../mapper/space-time/reverse.ts";
import { dot, extentOfRow } from "../mapper/space-time/vector.ts";
import type { LaneCosts } from "../targets/lanes.ts";
import { LOADS_SHOWING } from "./lanes.ts";
import { LOOKAHEAD } from "./vectors.ts";

/** Fraction of unaligned loads as long as a cache line that need two line reads; shorter ones do so less often. */
const STRADDLING = 0.9;
const LINE_BYTES = 64;
/** Cycles to take the results of a vector out of its register one by one, through memory. */
const TAKEN_OUT_CYCLES = 16;
/** Points enumerated one by one to count the loads that a compiler merges. */
const MOST_COUNTED = 1024;

/** What lanes are held in. */
export interface RoughMachine {
  readonly costs: LaneCosts;
  /** Vectors that are held at once. */
  readonly registers: number;
  /** On warps one unit loads, stores and shifts, unaligned vectors cost no more, and other warps hide what one waits for. */
  readonly onWarps: boolean;
}

/**
 * Cycles of a core or of a quarter of a multiprocessor, roughly: the multiply-adds, shifts, loads and stores of passes side
 * by side, the busiest of them. Nests take too long for thousands of designs; the first ones are compared by theirs.
 */
export function roughCycles(array: LaneArray, s: ArrayPlan, { costs, registers: held, onWarps }: RoughMachine): number {
  const { multiplyAdd, shift, load, store } = costs;
  const { sum, design, space, beside } = array;
  const inner = new Set(namesOf(beside));
  const copies = volumeOf(beside);
  const blocks = space.outside.reduce((n, l) => (inner.has(l.name) ? n : n * l.extent), 1);
  const { steps } = design;
  const { inputs } = operandAccesses(sum);
  const inverse = inverseOf([...array.spaceTime.allocation, ...array.spaceTime.schedule]);
  const joined = array.dot ? stepsJoined(sum, s.transform, steps, array.dot.terms) : steps;
  let multiplyAdds = joined * copies * multiplyAdd.issueCycles;
  let shifts = 0;
  let loads = 0;
  let stores = 0;
  let registers = 0;
  let chain = 0;
  for (const [i, flow] of design.flows.entries()) {
    const dependences = flow.variables.flatMap((v) => v.dependences);
    const timed = dependences.filter((d) => d.steps > 0);
    const moves = timed.filter((d) => d.hop.some((x) => x !== 0)).length;
    const depth = Math.max(1, ...timed.map((d) => d.steps));
    const read = inputs[i];
    if (flow.role === "input" && read) {
      const own = copiesOf(array, read, copies);
      const isPassed = s.inputs === "passed" && moves > 0;
      const count = isPassed ? steps * own : distinctLoads(array, read, inverse, steps * own);
      shifts += isPassed ? count * moves * shift.issueCycles : 0;
      registers += isPassed ? own * depth : 1;
      const bytes = bytesOf(tensorOf(sum, read.tensor).dtype);
      const lines = isPassed ? 1 : linesOf(strideOf(array, read, inverse), s.lanes, bytes, onWarps ? 0 : STRADDLING);
      loads += count * lines * (joined / steps);
      continue;
    }
    const isAcross = dependences.some((d) => d.steps === 0) || flow.letter === "A";
    const across = isAcross ? Math.ceil(Math.log2(design.pes)) : 0;
    multiplyAdds += steps * copies * across * multiplyAdd.issueCycles;
    shifts += steps * copies * (Math.min(1, moves) + across) * shift.issueCycles;
    registers += copies * depth;
    const apart = Math.min(...timed.map((d) => d.steps), Number.POSITIVE_INFINITY);
    const latency = multiplyAdd.latencyCycles + Math.min(1, moves) * shift.latencyCycles;
    chain = Number.isFinite(apart) ? (joined * latency) / apart : 0;
    const leaving = leavingSteps(array);
    stores += leaving === 1 ? copies : leaving * copies * (onWarps ? 1 : TAKEN_OUT_CYCLES);
  }
  // Values that exceed the registers are spilled and reloaded at every step.
  const spilled = (2 * steps * copies * Math.max(0, registers - held)) / registers;
  const loading = (loads + spilled) * load.issueCycles;
  const storing = stores * store.issueCycles;
  if (onWarps) return blocks * Math.max(multiplyAdds + loads + shifts / shift.issueCycles, loading + storing + shifts);
  const waiting = chain / Math.max(1, LOOKAHEAD / (steps * copies));
  const slowest = Math.max(multiplyAdds + shifts / 2, shifts, loading, storing, waiting);
  return blocks * (slowest + LOADS_SHOWING * Math.min(loading, slowest));
}

/** The loop of the computation whose tiles an outside loop counts. */
function rootOf(space: LaneArray["space"], name: string): string {
  const of = space.tiled.find((t) => t.outer === name)?.name;
  return of === undefined ? name : rootOf(space, of);
}

/** The number of copies of an operand among the passes side by side. */
function copiesOf({ beside, space }: LaneArray, read: Access, all: number): number {
  const axes = new Set(axesIn(read));
  const shared = volumeOf(beside.filter((l) => !axes.has(rootOf(space, l.name))));
  return all / shared;
}

/** Lines read for a vector of an operand, by the distance in memory between neighbouring lanes. */
function linesOf(stride: number | undefined, lanes: number, bytes: number, straddling: number): number {
  if (stride === undefined || stride < 0) return lanes;
  if (stride === 0) return 1;
  return Math.min(lanes, stride * (1 + straddling * Math.min(1, (lanes * bytes) / LINE_BYTES)));
}

/** Distance between neighbouring lanes in elements; undefined when the lanes do not read at equal distances. */
function strideOf({ sum, space }: LaneArray, read: Access, inverse: Inverse | undefined): number | undefined {
  if (!inverse) return undefined;
  const place = affineForm(addressOf(tensorOf(sum, read.tensor), read.index));
  if (!place) return undefined;
  const moved = dot(
    space.inside.map((l) => place.terms.get(l.name) ?? 0),
    inverse.numerators.map((row) => row[0] ?? 0),
  );
  return moved / inverse.denominator;
}

/** Number of distinct vectors of an operand that a block reads. A compiler merges repeated loads. */
function distinctLoads(array: LaneArray, read: Access, inverse: Inverse | undefined, all: number): number {
  const { space, beside, spaceTime } = array;
  if (!inverse) return all;
  const extents = space.inside.map((l) => l.extent);
  const forms = read.index.map((e) => affineForm(e)?.terms ?? new Map<string, number>());
  // 1. How far each step of time, and each pass side by side, moves the read position.
  const moves = [
    ...spaceTime.schedule.map((row, r) => ({
      extent: extentOfRow(row, extents),
      by: forms.map((form) =>
        space.inside.reduce((n, l, i) => n + (form.get(l.name) ?? 0) * (inverse.numerators[i]?.[r + 1] ?? 0), 0),
      ),
    })),
    ...beside.map(({ name, extent }) => {
      // Tiles of an array loop are as far apart as the array is long; other loops advance step by step.
      const of = space.tiled.find((t) => t.outer === name);
      const by = forms.map((form) => inverse.denominator * (form.get(of?.name ?? name) ?? 0) * (of?.size ?? 1));
      return { extent, by };
    }),
  ].filter((m) => m.extent > 1 && m.by.some((x) => x !== 0));
  // 2. Movement along a dimension that only one loop moves multiplies the count; movements of several loops overlap.
  const alone = (m: (typeof moves)[number]): boolean =>
    m.by.some((x, d) => x !== 0 && moves.every((other) => other === m || other.by[d] === 0));
  const meeting = moves.filter((m) => !alone(m));
  const product = volumeOf(moves.filter(alone));
  if (volumeOf(meeting) > MOST_COUNTED) return all;
  let places: readonly (readonly number[])[] = [forms.map(() => 0)];
  for (const { extent, by } of meeting) {
    const next = new Map<string, readonly number[]>();
    for (const place of places)
      for (let i = 0; i < extent; i++) {
        const moved = place.map((x, d) => x + i * (by[d] ?? 0));
        next.set(moved.join(), moved);
      }
    places = [...next.values()];
  }
  return Math.min(all, product * places.length);
}

/** Steps at which results leave the array: those that the loops indexing a result reach. */
export function leavingSteps({ sum, problem, design }: Pick<LaneArray, "sum" | "problem" | "design">): number {
  const kept = new Set(axesIn(sum.equation.target));
  const row = design.schedule.map((x, i) => (kept.has(problem.loops[i]?.name ?? "") ? x : 0));
  return Math.min(
    design.steps,
    extentOfRow(
      row,
      problem.loops.map((l) => l.extent),
    ),
  );
}
