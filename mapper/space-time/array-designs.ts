/**
 * @file The designs of a computation that fit a target's lanes: every enumerated transform, tiled to the lanes, or why
 * it does not fit.
 *
 *     conv2d-single 3x3, 16 lanes     708 transforms of (q, r, s): FBS of 16 columns, SBM of 14, ...      refused: FSA.7, 17 PEs on 16 lanes
 */

import { affineForm } from "../../abstraction/affine.ts";
import type { ArrayPlan, LaneTransform } from "../../abstraction/candidate.ts";
import type { Axis, Computation } from "../../abstraction/computation.ts";
import { partsOf } from "../../abstraction/epilogue.ts";
import { UsageError } from "../../abstraction/error.ts";
import { accessesIn } from "../../abstraction/expression.ts";
import type { Steps } from "../../abstraction/steps.ts";
import type { Design } from "./design.ts";
import { enumerateDesigns } from "./enumerate.ts";
import { type Judged, judgeTransform, TIME_REFUSED, withBeside } from "./lane-array.ts";
import { onlyInside, windowsOf } from "./loops.ts";
import { arrayProblem } from "./problem.ts";
import { type LaneRefusal, refusal } from "./taps.ts";
import { extentOfRow } from "./vector.ts";

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
  const summed = long.filter((a) => a.kind === "reduce");
  if (summed.length === 0) return refuse("nothing is summed");
  const windows = windowsOf(sum);
  const slidesWith = (a: Axis): boolean => windows.some(([s, r]) => s === lane.name && r === a.name);
  const inWindow = summed.filter((a) => windows.some(([, r]) => r === a.name));
  const ordered = [...inWindow.filter((a) => !slidesWith(a)), ...inWindow.filter(slidesWith)];
  const chosen = (ordered.length > 0 ? ordered : summed).slice(1 - mostMixed).map((a) => a.name);
  const carried = summed.map((a) => a.name).filter((name) => !chosen.includes(name));
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
