/**
 * @file A lane design given by its transform: how it places a computation on the lanes, or why it does not fit.
 *
 *     conv2d, loops q c r s, P = (1,0,0,1), s = (0,1,0,0) (0,0,1,0) (0,0,0,1), tile q 14      SBM on 16 lanes, sums carried from channel to channel
 *
 * A summed loop in the transform, as a slow row of time, keeps its sum in registers; a summed loop around the array
 * combines passes in memory.
 */

import type { ArrayPlan, LaneTransform } from "../../abstraction/candidate.ts";
import { product } from "../../abstraction/collections.ts";
import { type Computation, extentsOf, outputOf } from "../../abstraction/computation.ts";
import { partsOf, placedProblem } from "../../abstraction/epilogue.ts";
import { UsageError } from "../../abstraction/error.ts";
import type { SourceLoop, SpaceTime } from "../../abstraction/recurrence.ts";
import type { Dot } from "../../targets/x86-dots.ts";
import { freshName } from "../lower/names.ts";
import { MOST_WRITTEN } from "../schedule/lanes.ts";
import { type Design, designOf } from "./design.ts";
import { dotOf } from "./dots.ts";
import { type ArraySpace, onlyInside, type Tiled } from "./loops.ts";
import { MOST_UNROLLED_STEPS } from "./lower.ts";
import { heldAs } from "./lower-computation.ts";
import { type ArrayProblem, arrayProblem } from "./problem.ts";
import { type LaneRefusal, refusal } from "./taps.ts";
import { refusalOf } from "./validity.ts";
import { isZero, leastCommonMultiple } from "./vector.ts";

export interface LaneArray {
  /** The computation without its epilogue. */
  readonly sum: Computation;
  readonly problem: ArrayProblem;
  readonly design: Design;
  readonly spaceTime: SpaceTime;
  /** The loops. Those that run side by side are the innermost outside ones. */
  readonly space: ArraySpace;
  /** Loops that run side by side, outermost first. */
  readonly beside: readonly SourceLoop[];
  /** Outside loops that are summed, whose passes combine in memory. */
  readonly joined: readonly string[];
  /** The dot product for neighbouring taps, if the schedule's inputs are `dots`. */
  readonly dot?: Dot;
}

type ArrayVerdict =
  | { readonly ok: true; readonly array: LaneArray }
  | { readonly ok: false; readonly refusal: LaneRefusal };

/** The most steps that a value travels. Each step takes a register. */
const DEEPEST = 16;
/** The most steps after which register numbers repeat; any two operands repeat within this. */
const LONGEST_ROUND = DEEPEST * DEEPEST;
/** The most loops of a transform. The search for colliding points grows as 3 to this power. */
export const MOST_LOOPS = 8;

export const spaceTimeOf = ({ allocation, schedule }: LaneTransform): SpaceTime => ({
  allocation: [allocation],
  schedule,
});

/** Places a computation on an array, or says why lanes cannot run it. */
export function placeArray(computation: Computation, plan: ArrayPlan): ArrayVerdict {
  const { sum } = partsOf(computation);
  if (computation.time) return { ok: false, refusal: TIME_REFUSED };
  const judged = judgeTransform(sum, plan);
  return "because" in judged ? { ok: false, refusal: judged } : withBeside(computation, sum, judged, plan);
}

/** Why a stencil in time has no transform. */
export const TIME_REFUSED = refusal(
  "form",
  "planes follow one another in time: a window sweeps them, and no transform mixes their steps",
);

/** A transform with its tiles, independent of what runs side by side. */
export type Judged = Pick<LaneArray, "problem" | "design" | "spaceTime">;

/** The design of a tiled transform, or why lanes cannot run it. */
export function judgeTransform(
  sum: Computation,
  { transform, lanes, tile }: Pick<ArrayPlan, "transform" | "lanes" | "tile">,
): Judged | LaneRefusal {
  if (transform.loops.length > MOST_LOOPS)
    return refusal("form", `a transform of ${transform.loops.length} loops, more than ${MOST_LOOPS}`);
  const unknown = [...transform.loops, ...Object.keys(tile)].find((name) => !isLong(sum, name));
  if (unknown !== undefined) return refusal("form", `${unknown} is no loop of more than one step`);
  try {
    const inside = insideOf(sum, transform, tile);
    const problem = arrayProblem(sum, onlyInside(inside));
    if (problem.operands.some((o) => o.order === "fixed"))
      return refusal("form", `${problem.operands.at(-1)?.name} reads itself, so its order is fixed`);
    const spaceTime = spaceTimeOf(transform);
    const invalid = refusalOf(problem, spaceTime);
    if (invalid) return refusal("design", invalid.because);
    const design = designOf(problem, spaceTime);
    if (design.pes > lanes)
      return refusal("design", `the array has ${design.pes} PEs, and a vector ${lanes} lanes; take smaller tiles`);
    return { problem, design, spaceTime };
  } catch (error) {
    if (error instanceof UsageError) return refusal("form", error.message);
    throw error;
  }
}

/** Places the loops around a design, or says why they cannot run in this way. */
export function withBeside(computation: Computation, sum: Computation, judged: Judged, plan: ArrayPlan): ArrayVerdict {
  const refuse = (rule: LaneRefusal["rule"], because: string): ArrayVerdict => ({
    ok: false,
    refusal: refusal(rule, because),
  });
  const unknown = Object.keys(plan.beside).find((name) => !isLong(sum, name));
  if (unknown !== undefined) return refuse("form", `${unknown} is no loop of more than one step`);
  const passing = judged.design.flows.filter((f) => f.role === "output" || plan.inputs === "passed");
  for (const { name, variables } of passing)
    for (const { steps } of variables.flatMap((v) => v.dependences))
      if (steps > DEEPEST)
        return refuse("design", `${name} takes ${steps} steps from PE to PE, and a register for each`);
  const dot = plan.inputs === "dots" ? dotOf(sum, plan.transform, judged.design.steps) : undefined;
  if (typeof dot === "string") return refuse("form", dot);
  const long = tooLong(judged.design, passing, plan);
  if (long !== undefined) return refuse("length", long);
  const shaped = shapeOf(sum, plan);
  if ("because" in shaped) return refuse("form", shaped.because);
  const { space, beside } = shaped;
  const joined = space.outside
    .map((l) => l.name)
    .filter((name) => sum.axes.some((a) => a.name === name && a.kind === "reduce"));
  if (computation.epilogue && joined.length > 0)
    return refuse("form", `an epilogue follows a sum over ${joined.join(", ")}, which stands around the array`);
  const placed = placedProblem(computation);
  if (placed !== undefined) return refuse("form", placed);
  const result = outputOf(sum);
  const across = judged.design.flows.some(
    (f) => f.role === "output" && f.variables.some((v) => v.dependences.some((d) => d.steps === 0)),
  );
  if (across && (computation.epilogue || heldAs(result.dtype) !== result.dtype))
    return refuse(
      "form",
      `${result.name} is added up across lanes as it is stored, so nothing can be made of it there`,
    );
  return { ok: true, array: { ...judged, sum, space, beside, joined, ...(dot && { dot }) } };
}

/** Why the passes that run together would make too long a program. */
function tooLong({ steps }: Design, passing: Design["flows"], { beside, transform }: ArrayPlan): string | undefined {
  // An input that stays on its lane under a single row of time is loaded once.
  const moving = passing.filter(
    (f) =>
      f.role === "output" ||
      transform.schedule.length > 1 ||
      f.variables.some((v) => v.dependences.some((d) => !isZero(d.hop))),
  );
  const round = moving
    .flatMap((f) => f.variables.map((v) => Math.max(1, ...v.dependences.map((d) => d.steps))))
    .reduce(leastCommonMultiple, 1);
  if (steps > MOST_UNROLLED_STEPS && round > LONGEST_ROUND)
    return `register numbers repeat after ${round} steps, and at most ${LONGEST_ROUND} are unrolled`;
  const each = Math.min(steps, Math.max(round, MOST_UNROLLED_STEPS));
  const written = each * product(Object.values(beside));
  if (written <= MOST_WRITTEN) return undefined;
  return `passes side by side would take ${written} unrolled multiply-adds, more than ${MOST_WRITTEN}`;
}

const isLong = (sum: Computation, name: string): boolean => sum.axes.some((a) => a.name === name && a.extent > 1);

function insideOf(sum: Computation, { loops }: LaneTransform, tile: ArrayPlan["tile"]): SourceLoop[] {
  const extents = extentsOf(sum);
  return loops.map((name) => {
    const extent = extents[name] ?? 1;
    return { name, extent: Math.min(tile[name] ?? extent, extent) };
  });
}

/** The loops inside and outside the array, or what is wrong with the tiles or with the loops side by side. */
function shapeOf(
  sum: Computation,
  { transform, tile, beside }: ArrayPlan,
): { readonly space: ArraySpace; readonly beside: readonly SourceLoop[] } | { readonly because: string } {
  const extents = extentsOf(sum);
  const taken = new Set([...Object.keys(extents), ...Object.keys(sum.tensors)]);
  const fresh = (wish: string): string => {
    const name = freshName(wish, taken);
    taken.add(name);
    return name;
  };
  const wrong = [...Object.entries(tile), ...Object.entries(beside)].find(([, n]) => !Number.isSafeInteger(n) || n < 1);
  if (wrong) return { because: `${wrong[0]} ${wrong[1]} is no number of steps` };
  const outer = Object.keys(tile).find((name) => !transform.loops.includes(name));
  if (outer !== undefined) return { because: `${outer} stands outside the array and has no tile` };

  // 1. The tiled loops of the array.
  const tiled: Tiled[] = [];
  const inside = insideOf(sum, transform, tile);
  const outside: SourceLoop[] = sum.axes.flatMap(({ name, extent }) =>
    extent > 1 && !transform.loops.includes(name) ? [{ name, extent }] : [],
  );
  for (const { name, extent: size } of inside) {
    const extent = extents[name] ?? 1;
    if (size === extent) continue;
    const tiles = { name: fresh(`${name}_tile`), extent: Math.ceil(extent / size) };
    tiled.push({ name, size, outer: tiles.name });
    outside.push(tiles);
  }

  // 2. Some steps of outside loops run side by side, innermost.
  const inner: SourceLoop[] = [];
  for (const [name, count] of Object.entries(beside)) {
    if (count === 1) continue;
    if (sum.axes.some((a) => a.name === name && a.kind === "reduce"))
      return { because: `steps of ${name} are summed, so they cannot run side by side` };
    const loop = tiled.find((t) => t.name === name)?.outer ?? name;
    const at = outside.findIndex((l) => l.name === loop);
    const { extent = 1 } = outside[at] ?? {};
    if (at < 0) return { because: `${name} is all in the array, so no steps of it run side by side` };
    if (count > extent) return { because: `${count} steps of ${name} side by side, and there are ${extent}` };
    const blocks = { name: fresh(`${name}_block`), extent: Math.ceil(extent / count) };
    tiled.push({ name: loop, size: count, outer: blocks.name });
    outside[at] = blocks;
    inner.push({ name: loop, extent: count });
  }
  const kept = (l: SourceLoop): boolean => isKept(sum, tiled, l.name);
  return {
    space: {
      inside,
      outside: [...outside.filter(kept), ...outside.filter((l) => !kept(l)), ...inner],
      tiled,
      dropped: sum.axes.filter((a) => a.extent === 1).map((a) => a.name),
    },
    beside: inner,
  };
}

/** Whether an outer loop, or the loop that it tiles, indexes the result. */
function isKept(sum: Computation, tiled: readonly Tiled[], name: string): boolean {
  const of = tiled.find((t) => t.outer === name)?.name;
  if (of !== undefined) return isKept(sum, tiled, of);
  return sum.axes.some((a) => a.name === name && a.kind === "spatial");
}

/** Outside loops that threads may share. */
export function keptOutside({ sum, space, beside }: LaneArray): readonly string[] {
  const inner = new Set(beside.map((l) => l.name));
  return space.outside.map((l) => l.name).filter((name) => !inner.has(name) && isKept(sum, space.tiled, name));
}
