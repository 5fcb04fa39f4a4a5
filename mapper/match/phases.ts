/**
 * @file Rewrites a computation whose index divides by a stride into phases: each phase of the output sums only the taps
 * that reach it.
 *
 *     y[p] += x[(p+1-r)/2] * w[r] where (p+1-r)%2 == 0               p 0..8, r 0..3: half of the points take part
 *  ->
 *     y[p*2+p_phase-1] += x[p-r] * w[r*2+p_phase]                    p 0..4, p_phase 0..1, r 0..1: all do, but for a tap 3
 *         where r*2+p_phase < 3
 *  ->
 *     y[p*2+p_phase-1] += x[p+r-1] * w[p_phase+2-r*2]                taps in the order of what they read
 *
 * Outputs one stride apart use the same taps. The kept loop is split into steps of the stride and a phase, and the
 * summed loop into every stride-th tap from the one that the phase selects. The remainder is then 0 at every point, the
 * quotient is a sum of loops, and the result is a dense convolution whose filter is indexed by the phase. Positions
 * beyond either end of the output are not elements and are not stored. Tensors stay as they are. (Polyphase
 * decomposition: P. P. Vaidyanathan, Multirate Systems and Filter Banks, 1993, section 4.3.)
 */

import { type AffineForm, affineForm, exprOf } from "../../abstraction/affine.ts";
import { memoised, namesOf, upTo } from "../../abstraction/collections.ts";
import {
  type Computation,
  keptIn,
  outputOf,
  pointCount,
  type Rewriting,
  summedIn,
} from "../../abstraction/computation.ts";
import { conjunctsOf } from "../../abstraction/condition.ts";
import { accessesIn, axis, compare, type Expr, minus, printExpr, substitute } from "../../abstraction/expression.ts";
import { type Intrinsic, readsShared } from "../../abstraction/intrinsic.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { strideAlong } from "../schedule/dense-runs.ts";
import { BAND_NAMES, BANDS, inBands, isBand } from "./bands.ts";
import { endsProblem, freshAxis, modulo, normal, type Rewritten, replaced, resized } from "./other-loops.ts";

/**
 * The forms of a computation that are searched for mappings onto each of some instructions: those of {@link loopForms}. A filter of one channel
 * would fill a single column of a matrix instruction, so bands replace it where lanes can gather fragments, and other matrix instructions of the same
 * types are left out beside them.
 */
export function formsAmong(
  computation: Computation,
  intrinsics: readonly Intrinsic[],
): (intrinsic: Intrinsic) => readonly Computation[] {
  const gathered = new Set(intrinsics.filter(gathers).map(typesOf));
  const bands = gathered.size > 0 ? knownBands(computation) : [];
  return (intrinsic) => {
    if (bands.length === 0 || intrinsic.scope === "thread" || !gathered.has(typesOf(intrinsic)))
      return knownForms(computation);
    return gathers(intrinsic) && !intrinsics.some((other) => isDeeper(other, intrinsic)) ? bands : [];
  };
}

/** Whether an instruction sums more products of the same types. The sums of a band are whole for the deepest. */
function isDeeper(other: Intrinsic, intrinsic: Intrinsic): boolean {
  return gathers(other) && typesOf(other) === typesOf(intrinsic) && depthOf(other) > depthOf(intrinsic);
}

const typesOf = ({ operands }: Intrinsic): string => operands.map((o) => `${o.name} ${o.dtype}`).join();

const depthOf = ({ computation }: Intrinsic): number =>
  computation.axes.reduce((n, a) => (a.kind === "reduce" ? n * a.extent : n), 1);

/** Whether a warp issues the instruction, which sums products, on fragments that its lanes gather. */
const gathers = (intrinsic: Intrinsic): boolean =>
  intrinsic.scope === "warp" &&
  depthOf(intrinsic) > 1 &&
  intrinsic.operands.every((o) => o.storage !== undefined && !readsShared(o));

// Mappings are cached by computation, so every instruction is given the same one.
const knownForms = memoised(loopForms);
const knownBands = memoised((computation: Computation): readonly Computation[] =>
  BAND_NAMES.map((name) => rewrittenAs(computation, name)).filter((form) => typeof form !== "string"),
);

/**
 * The forms of a computation that every instruction may be mapped to. Reversed taps, and phases that have fewer points, replace
 * the computation. Where a stride is longer than its taps, the form in phases is offered beside it.
 */
export function loopForms(computation: Computation): readonly Computation[] {
  const phases = rewrittenAs(computation, "phases");
  if (typeof phases !== "string")
    return pointCount(phases) < pointCount(computation) ? [phases] : [phases, computation];
  const reversed = rewrittenAs(computation, "reversed");
  return [typeof reversed === "string" ? computation : reversed];
}

/**
 * Mappings in which either all phases or none feed an axis together with another loop. Allowing some of them would
 * multiply the number of mappings several times.
 */
export function phasesTogether(found: readonly Mapping[]): readonly Mapping[] {
  const together = found.filter(({ computation, matching }) => {
    const phases = computation.rewriting?.phases ?? [];
    const fed = Object.values(matching).filter((loops) => loops.some((l) => phases.includes(l)));
    return fed.every((loops) => loops.length > phases.length && phases.every((l) => loops.includes(l)));
  });
  return together.length > 0 ? together : found;
}

/** The computation in other loops, or one sentence on why it cannot be rewritten. */
export function rewrittenAs(stated: Computation, kind: Rewriting["kind"]): Computation | string {
  const found = isBand(kind) ? inBands(stated, BANDS[kind]) : inOrderOfReads(stated, kind);
  if (typeof found === "string") return found;
  const { computation, phases = [] } = found;
  const places = stated.axes.flatMap(({ name }) => {
    const place = found.places.get(name);
    return place ? [`${name} = ${printExpr(place, "index")}`] : [];
  });
  return { ...computation, rewriting: { kind, places, phases } };
}

/** In phases, and with taps in the order of what they read. */
function inOrderOfReads(computation: Computation, kind: "phases" | "reversed"): Rewritten | string {
  const split: Rewritten | string =
    kind === "phases" ? inPhases(computation) : { computation, places: new Map<string, Expr>() };
  if (typeof split === "string") return split;
  const { phases = [] } = split;
  const turned = withTapsAhead(split.computation, phases);
  if (kind === "reversed" && turned.places.size === 0) return "no taps go back through an input";
  const inPhase = [...split.places].map(
    ([name, place]) => [name, normal(substitute(place, turned.places, "index"))] as const,
  );
  return { ...turned, places: new Map([...turned.places, ...inPhase]), phases };
}

function inPhases(computation: Computation): Rewritten | string {
  const { where } = computation.equation;
  const stated = conjunctsOf(where);
  const divisible = stated.flatMap((part) => divisibilityOf(part) ?? []);
  if (divisible.length === 0) return "no condition asks that a constant divides a sum of loops";
  const splits: PhaseSplit[] = [];
  for (const d of divisible) {
    const split = splitOf(computation, d, splits);
    if (typeof split === "string") return split;
    splits.push(split);
  }
  const places = new Map(splits.flatMap(({ kept, summed }) => [kept, summed].map((l) => [l.name, exprOf(l.index)])));
  const extents = new Map(splits.flatMap(({ kept, summed }) => [kept, summed].map((l) => [l.name, l.extent])));
  const ends = splits.flatMap((s) => (s.below === undefined ? [] : compare("<", exprOf(s.summed.index), s.below)));
  const plain = replaced(resized(computation, extents), places, ends);
  const left = plain.equation.where && conjunctsOf(plain.equation.where).find((part) => divisibilityOf(part));
  if (left) return `${printExpr(left)} still asks for a remainder in phases`;
  return { computation: splits.reduce(withPhase, plain), places, phases: splits.map(({ phase }) => phase.name) };
}

/**
 * Adds the loop of a phase before loops with smaller strides in the output, so that neighbours in the fused index are
 * neighbours in memory.
 */
function withPhase(computation: Computation, { phase }: PhaseSplit): Computation {
  const { target } = computation.equation;
  const output = outputOf(computation);
  const apart = (name: string): number => Math.abs(strideAlong(target, output, name) ?? 0);
  const spatial = keptIn(computation.axes);
  const next = spatial.find((a) => apart(a.name) < apart(phase.name));
  const at = next ? computation.axes.indexOf(next) : spatial.length;
  return { ...computation, axes: computation.axes.toSpliced(at, 0, { ...phase, kind: "spatial" }) };
}

/** New loops that replace a kept and a summed loop related by a divisibility condition. */
interface PhaseSplit {
  readonly kept: SplitLoop;
  readonly summed: SplitLoop;
  readonly phase: { readonly name: string; readonly extent: number };
  /** Upper limit of the summed loop's index, when phases do not share its taps evenly. */
  readonly below: number | undefined;
}

interface SplitLoop {
  readonly name: string;
  readonly extent: number;
  /** The index of the original loop in terms of the new ones. */
  readonly index: AffineForm;
}

/** `form % by == 0`. */
interface Divisibility {
  readonly form: AffineForm;
  readonly by: number;
}

function divisibilityOf(part: Expr): Divisibility | undefined {
  if (part.kind !== "compare" || part.op !== "==") return undefined;
  const { left, right } = part;
  if (left.kind !== "binary" || left.op !== "%" || left.right.kind !== "number") return undefined;
  const form = affineForm(minus(left.left, right));
  return form && left.right.value > 1 && right.kind === "number" ? { form, by: left.right.value } : undefined;
}

/** The loops that a divisibility condition becomes, or why it cannot be split. */
function splitOf(
  computation: Computation,
  { form, by }: Divisibility,
  others: readonly PhaseSplit[],
): PhaseSplit | string {
  const condition = `${printExpr(exprOf(form), "index")} divisible by ${by}`;
  const tied = computation.axes.filter((a) => (form.terms.get(a.name) ?? 0) % by !== 0);
  const [kept, ...moreKept] = keptIn(tied);
  const [summed, ...moreSummed] = summedIn(tied);
  if (!kept || !summed || moreKept.length + moreSummed.length > 0)
    return `${condition} ties ${namesOf(tied).join(", ") || "no loops"}, and phases are of one kept and one summed loop`;
  if (others.some((o) => o.kept.name === kept.name || o.summed.name === summed.name))
    return `${condition} ties a loop that another condition ties`;
  const problem = endsProblem(computation, kept);
  if (problem !== undefined) return problem;

  // 1. With kept = by*kept' + step*phase + low and summed = by*summed' + phase, the phase and the constant leave no
  //    remainder.
  const ofKept = form.terms.get(kept.name) ?? 0;
  const ofSummed = form.terms.get(summed.name) ?? 0;
  const residues = upTo(by);
  const found = residues.find((x) => modulo(ofKept * x + ofSummed, by) === 0);
  const first = residues.find((x) => modulo(ofKept * x + form.constant, by) === 0);
  if (found === undefined || first === undefined || new Set(residues.map((x) => modulo(found * x, by))).size < by)
    return `${condition}: a step of ${kept.name} or ${summed.name} shares a factor with ${by}, so that some phases have no taps`;
  const step = found > by / 2 ? found - by : found;

  // 2. Every phase begins at or below its first element, and the last place is at or beyond the last element.
  const reach = step * (by - 1);
  const highest = by - 1 - Math.max(0, reach);
  const low = highest - modulo(highest - first, by);
  const places = Math.floor((kept.extent - 1 - low - Math.min(0, reach)) / by) + 1;
  const phase = { name: freshAxis(computation, `${kept.name}_phase`), extent: by };
  const index = (loop: string, ofPhase: number, constant: number): AffineForm => ({
    constant,
    terms: new Map([
      [loop, by],
      [phase.name, ofPhase],
    ]),
  });
  return {
    phase,
    kept: { name: kept.name, extent: places, index: index(kept.name, step, low) },
    summed: { name: summed.name, extent: Math.ceil(summed.extent / by), index: index(summed.name, 1, 0) },
    below: summed.extent % by === 0 ? undefined : summed.extent,
  };
}

/**
 * Taps that walk backwards through what they read, counted from the last: `x[p-r]` becomes `x[p+r-2]`.
 * @param computation as the user wrote it, or in phases; loops of phases do not index inputs
 */
function withTapsAhead(computation: Computation, phases: readonly string[]): Rewritten {
  const kept = namesOf(keptIn(computation.axes).filter((a) => !phases.includes(a.name)));
  const forms = accessesIn(computation.equation.value).flatMap((a) => a.index.flatMap((e) => affineForm(e) ?? []));
  /** The signs of its coefficient in each index where it moves along a kept loop. */
  const signs = (loop: string): number[] =>
    forms.flatMap(({ terms }) => {
      const along = kept.find((name) => terms.has(name));
      return along !== undefined && terms.has(loop)
        ? [Math.sign((terms.get(loop) ?? 0) * (terms.get(along) ?? 0))]
        : [];
    });
  const places = new Map(
    computation.axes.flatMap((a): [string, Expr][] => {
      if (a.kind === "spatial" || a.extent === 1) return [];
      const all = signs(a.name);
      return all.length > 0 && all.every((s) => s < 0) ? [[a.name, minus(a.extent - 1, axis(a.name))]] : [];
    }),
  );
  return { computation: places.size === 0 ? computation : replaced(computation, places), places };
}
