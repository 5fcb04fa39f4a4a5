/**
 * @file A lane design given by its transform: how it places a computation on the lanes, or why it does not fit.
 *
 *     conv2d, loops q c r s, P = (1,0,0,1), s = (0,1,0,0) (0,0,1,0) (0,0,0,1), tile q 14      SBM on 16 lanes, sums carried from channel to channel
 *
 * A summed loop in the transform, as a slow row of time, keeps its sum in registers; a summed loop around the array
 * combines passes in memory.
 *
 * The designs of a computation that fit a target's lanes: every enumerated transform, tiled to the lanes, or why
 * it does not fit.
 *
 *     conv2d-single 3x3, 16 lanes     708 transforms of (q, r, s): FBS of 16 columns, SBM of 14, ...      refused: FSA.7, 17 PEs on 16 lanes
 */

import { affineForm, leastCommonMultiple } from "../../abstraction/affine.ts";
import type { ArrayPlan, LaneTransform } from "../../abstraction/candidate.ts";
import { namesOf, product, withName } from "../../abstraction/collections.ts";
import { type Axis, type Computation, extentsOf, outputOf, summedIn } from "../../abstraction/computation.ts";
import { partsOf, placedProblem } from "../../abstraction/epilogue.ts";
import { UsageError } from "../../abstraction/error.ts";
import { accessesIn } from "../../abstraction/expression.ts";
import { freshName } from "../../abstraction/loop-nest.ts";
import type { SourceLoop, SpaceTime } from "../../abstraction/recurrence.ts";
import type { Steps } from "../../abstraction/steps.ts";
import type { Dot } from "../../targets/x86-dots.ts";
import { MOST_WRITTEN } from "../schedule/lanes.ts";
import { type Design, designOf } from "./design.ts";
import { dotOf } from "./dots.ts";
import { enumerateDesigns } from "./enumerate.ts";
import { heldAs, MOST_UNROLLED_STEPS } from "./lower.ts";
import { type ArrayProblem, type ArraySpace, arrayProblem, onlyInside, type Tiled, windowsOf } from "./problem.ts";
import { type LaneRefusal, refusal } from "./taps.ts";
import { refusalOf } from "./validity.ts";
import { extentOfRow, isZero } from "./vector.ts";

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
const TIME_REFUSED = refusal(
  "form",
  "planes follow one another in time: a window sweeps them, and no transform mixes their steps",
);

/** A transform with its tiles, independent of what runs side by side. */
type Judged = Pick<LaneArray, "problem" | "design" | "spaceTime">;

/** The design of a tiled transform, or why lanes cannot run it. */
function judgeTransform(
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
  const joined = namesOf(space.outside).filter((name) => sum.axes.some((a) => a.name === name && a.kind === "reduce"));
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
  return { ok: true, array: { ...judged, sum, space, beside, ...(dot && { dot }) } };
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

/** The loops of an array, each as long as a pass is. */
export function insideOf(sum: Computation, { loops }: LaneTransform, tile: ArrayPlan["tile"]): SourceLoop[] {
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
    const loop = withName(tiled, name)?.outer ?? name;
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
      dropped: namesOf(sum.axes.filter((a) => a.extent === 1)),
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
  const inner = new Set(namesOf(beside));
  return namesOf(space.outside).filter((name) => !inner.has(name) && isKept(sum, space.tiled, name));
}

// ---- the designs that fit --------------------------------------------------------------------------------------------------------

/** A transform that fits, tiled to the lanes, with one pass at a time. */
export interface ArrayDesign {
  /** As `automap systolic` names it: `SBM`, `FFS.3`. */
  readonly name: string;
  readonly dataflow: string;
  readonly plan: ArrayPlan;
  readonly judged: Judged;
}

export interface ArrayDesigns {
  readonly fitting: readonly ArrayDesign[];
  /** Transforms that do not fit, by name, each with its reason. */
  readonly refused: readonly { readonly name: string; readonly because: string }[];
}

/** Steps that a pass unrolls if its lanes run along summed loops. */
const STEPS_OF_A_PASS = 32;
/** The most loops that a transform mixes. Other summed loops become slow rows of time. */
const MOST_MIXED = 3;

/**
 * The designs of a computation on vectors of `lanes` lanes, or why it has none. Each transform is a step; when stopped,
 * the generator returns the designs found so far, at least one.
 * @param mostMixed the most loops that transforms mix, including the one along the lanes: two give some dozen designs,
 * three some hundreds
 */
export function* arrayDesigns(
  computation: Computation,
  lanes: number,
  mostMixed: number = MOST_MIXED,
): Steps<ArrayDesigns | LaneRefusal> {
  if (computation.time) return TIME_REFUSED;
  const { sum } = partsOf(computation);
  const mixed = mixedLoops(sum, mostMixed);
  if ("because" in mixed) return mixed;
  const { loops, carried, stride } = mixed;
  const extents = new Map(sum.axes.map((a) => [a.name, a.extent]));
  const most = (name: string): number => extents.get(name) ?? 1;
  const [lane = ""] = loops;
  // Bound on the entries of a transform. With two loops there are few transforms; a stride needs entries of its size.
  const bound = loops.length === 2 ? Math.max(2, stride) : 1;
  const inside = loops.map((name) => ({ name, extent: name === lane ? Math.min(lanes, most(name)) : most(name) }));
  let designs: readonly Design[];
  try {
    designs = enumerateDesigns(arrayProblem(sum, onlyInside(inside)), { bound, arrayRows: 1 }).designs;
  } catch (error) {
    if (error instanceof UsageError) return refusal("form", error.message);
    throw error;
  }
  const fitting: ArrayDesign[] = [];
  const refused: { name: string; because: string }[] = [];
  for (const [at, design] of designs.entries()) {
    if ((yield { what: "designs", done: at, of: designs.length }) && fitting.length > 0) break;
    const [row = []] = design.spaceTime.allocation;
    const along = row[0] !== 0;
    const pesOf = (steps: number): number => extentOfRow(row, [steps, ...loops.slice(1).map(most)]);
    let size = Math.min(along ? lanes : STEPS_OF_A_PASS, most(lane));
    while (along && size > 1 && pesOf(size) > lanes) size--;
    const tile = size < most(lane) ? { [lane]: size } : {};
    const plans = (carried.length > 0 ? [carried, []] : [[]]).map((slow): ArrayPlan => {
      const transform = carrying({ loops, allocation: row, schedule: design.spaceTime.schedule }, slow);
      return { transform, lanes, tile, beside: {}, inputs: "loaded" };
    });
    // If a sum cannot be carried from pass to pass, its passes are combined in memory.
    let why: string | undefined;
    let found: ArrayDesign | undefined;
    for (const plan of plans) {
      const judged = judgeTransform(sum, plan);
      const placed = "because" in judged ? undefined : withBeside(computation, sum, judged, plan);
      if ("because" in judged) why ??= judged.because;
      else if (placed?.ok) found ??= { name: design.name, dataflow: design.dataflow, plan, judged };
      else why ??= placed?.refusal.because;
      if (found) break;
    }
    if (found) fitting.push(found);
    else refused.push({ name: design.name, because: why ?? "no lanes" });
  }
  return { fitting, refused };
}

/** The loops that a transform mixes, the one along the output first, and the loops that become slow rows of time. */
function mixedLoops(
  sum: Computation,
  mostMixed: number,
): { readonly loops: readonly string[]; readonly carried: readonly string[]; readonly stride: number } | LaneRefusal {
  const refuse = (because: string): LaneRefusal => refusal("form", because);
  const long = sum.axes.filter((a) => a.extent > 1);
  const last = sum.equation.target.index.at(-1);
  const form = last && affineForm(last);
  const lane = long.findLast((a) => a.kind === "spatial" && form?.terms.has(a.name));
  if (!lane) return refuse("the last dimension of the result has no loop of more than one step");
  const summed = summedIn(long);
  if (summed.length === 0) return refuse("nothing is summed");
  const windows = windowsOf(sum);
  const slidesWith = (a: Axis): boolean => windows.some(([s, r]) => s === lane.name && r === a.name);
  const inWindow = summed.filter((a) => windows.some(([, r]) => r === a.name));
  const ordered = [...inWindow.filter((a) => !slidesWith(a)), ...inWindow.filter(slidesWith)];
  const chosen = namesOf((ordered.length > 0 ? ordered : summed).slice(1 - mostMixed));
  const carried = namesOf(summed).filter((name) => !chosen.includes(name));
  const strides = accessesIn(sum.equation.value)
    .flatMap((a) => a.index)
    .map((e) => Math.abs(affineForm(e)?.terms.get(lane.name) ?? 0));
  return { loops: [lane.name, ...chosen], carried, stride: Math.max(1, ...strides) };
}

/** The transform with further loops as slow rows of time. */
function carrying({ loops, allocation, schedule }: LaneTransform, slow: readonly string[]): LaneTransform {
  const zeros = slow.map(() => 0);
  return {
    loops: [...loops, ...slow],
    allocation: [...allocation, ...zeros],
    schedule: [
      ...slow.map((_, i) => [...loops.map(() => 0), ...slow.map((_, j) => (i === j ? 1 : 0))]),
      ...schedule.map((row) => [...row, ...zeros]),
    ],
  };
}
