/**
 * @file Lowers a mapping under a schedule: operands placed, a register block around the instruction, loops in the order asked for.
 *
 *     for parallel p in 0..56                       order n p q k, then r s c
 *       for q_outer in 0..4                         block q 12, k 2: 24 accumulators
 *         clear c{0..23}
 *         for r, s, c_outer                         each step: 2 loads of w, 12 of in, 24 issues
 *           b{0..1} <- w_tiled[...]
 *           for unrolled q_block in 0..12
 *             a{0} <- in_padded[...]
 *             c{...} <- avx512.vpdpbusd(a{0}, b{...})
 *         out[...] <- c{...}
 *
 * What does not divide is peeled: a loop of whole blocks, then one smaller block; nothing is tested inside. Padding lies in the
 * copies of operands, written once, so the inner loops know nothing of it.
 */

import type { Placement, Schedule } from "../abstraction/candidate.ts";
import { targetOf } from "../abstraction/computation.ts";
import { identityOf } from "../abstraction/equation.ts";
import { access, axesIn } from "../abstraction/expression.ts";
import { type Operand, operandOf } from "../abstraction/intrinsic.ts";
import type { Mapping } from "../abstraction/mapping.ts";
import { registerClass } from "../targets/index.ts";
import { conditionProblem, partsPackedIn, scheduledParts } from "./match/conditions.ts";
import { writesApart } from "./match/elements.ts";
import { defineProblem } from "./match/problem.ts";
import { type Border, borderBlocks, bordersOf } from "./schedule/borders.ts";
import { gapsOf, type LoopDimension } from "./schedule/dimensions.ts";
import { type Reach, reachInPlace, reachPadded, reachWindowed } from "./schedule/reach.ts";
import { dimensionsUnder, spreadable } from "./schedule/spread.ts";
import { orderProblem } from "./schedule/tiles.ts";
import { copyWithin } from "./schedule/within.ts";

/** The placements open to each input of a mapping, and why the others are closed. */
export interface PlacementChoice {
  readonly operand: string;
  readonly open: readonly Placement[];
  readonly closed: Readonly<Partial<Record<Placement, string>>>;
  /** In a padded copy the last step reads elements that are not its own. */
  readonly runsPast: boolean;
  /** What it crosses when it is loaded in place. */
  readonly borders: readonly Border[];
}

const knownPlacements = new WeakMap<readonly LoopDimension[], readonly PlacementChoice[]>();

/** Which placements each input operand may have, under what a schedule spreads; worked out once. */
export function placementsOf(mapping: Mapping, under: Pick<Schedule, "spread"> = {}): readonly PlacementChoice[] {
  const dimensions = dimensionsUnder(mapping, under);
  const known = knownPlacements.get(dimensions) ?? findPlacements(mapping, dimensions);
  knownPlacements.set(dimensions, known);
  return known;
}

function findPlacements(mapping: Mapping, dimensions: readonly LoopDimension[]): PlacementChoice[] {
  const { computation, intrinsic, binding } = mapping;
  const problem = defineProblem(computation, intrinsic, binding);
  const condition = scheduledParts(problem);
  const zeroPads =
    problem.padding?.kind === "number" &&
    problem.padding.value === 0 &&
    identityOf(computation.equation.op, targetOf(computation).dtype) === 0;
  return inputOperands(mapping).map((operand): PlacementChoice => {
    const bound = binding[operand.name];
    const holdsCondition = partsPackedIn(condition, operand.name).length > 0;
    if (bound?.kind !== "access" || holdsCondition) {
      const because = holdsCondition ? "it carries the condition" : "it is computed while it is packed";
      return {
        operand: operand.name,
        open: ["tiled"],
        closed: { "in-place": because, padded: because, windowed: because },
        runsPast: false,
        borders: [],
      };
    }
    const closed: Partial<Record<Placement, string>> = {};
    const inPlace = reachInPlace(computation, intrinsic, operand, bound, dimensions);
    const crossed = bordersOf(computation, bound, dimensions);
    const borders = typeof crossed === "string" ? [] : crossed;
    if (typeof inPlace === "string") closed["in-place"] = inPlace;
    else if (borders.length > 0 && !zeroPads) closed["in-place"] = NO_ZERO;
    else if (borders.length > 0 && condition.length > 0) closed["in-place"] = "its border meets the condition";
    const padded = reachPadded(computation, intrinsic, operand, bound, dimensions);
    if (typeof padded === "string") closed.padded = padded;
    else if (!zeroPads) closed.padded = NO_ZERO;
    const windowed = reachWindowed(computation, intrinsic, operand, bound, dimensions);
    if (typeof windowed === "string") closed.windowed = windowed;
    else if (!zeroPads) closed.windowed = NO_ZERO;
    // What is spread has its rows in a padded copy only.
    const spread = dimensions.some((d) => gapsOf(d).length > 0 && dependsOn(mapping, operand.name, d));
    for (const p of ["in-place", "windowed", "tiled"] as const)
      if (spread) closed[p] ??= "it is spread over a padded copy";
    const all: readonly Placement[] = ["in-place", "padded", "windowed", "tiled"];
    const runsPast = typeof padded !== "string" && padded.runsPast;
    return { operand: operand.name, open: all.filter((p) => closed[p] === undefined), closed, runsPast, borders };
  });
}

const NO_ZERO = "what lies outside a tensor is no zero here";

const knownUnschedulable = new WeakMap<Mapping, { readonly because: string | undefined }>();

/** Why no schedule of a mapping can be lowered; undefined when some can. Worked out once. */
export function unschedulable(mapping: Mapping): string | undefined {
  const found = knownUnschedulable.get(mapping) ?? { because: whyUnschedulable(mapping) };
  knownUnschedulable.set(mapping, found);
  return found.because;
}

/**
 * A register holds the whole sum of an element, and is stored once. Operands are packed outside of every loop, so a part of a condition
 * lies with an operand that has all the loops it ties.
 */
function whyUnschedulable({ computation, intrinsic, binding }: Mapping): string | undefined {
  if (!writesApart(computation))
    return `several points of the kept loops join one element of ${targetOf(computation).name}`;
  const problem = defineProblem(computation, intrinsic, binding);
  return conditionProblem(problem, scheduledParts(problem));
}

/** Why a schedule cannot be lowered; undefined when it can. */
export function scheduleProblem(mapping: Mapping, schedule: Schedule): string | undefined {
  const unknown = schedule.spread?.find((name) => !spreadable(mapping).has(name));
  if (unknown !== undefined) return `${unknown} has no rows with gaps to spread over`;
  const dimensions = dimensionsUnder(mapping, schedule);
  const crossed = bordersUnder(mapping, schedule);
  const order = orderProblem(schedule, dimensions, (d) => crossed.some((b) => b.reduce === d.name));
  if (order !== undefined) return order;
  const impossible = unschedulable(mapping);
  if (impossible !== undefined) return impossible;
  for (const choice of placementsOf(mapping, schedule)) {
    const placement = schedule.placement[choice.operand];
    if (placement === undefined) return `operand ${choice.operand} has no placement`;
    if (!choice.open.includes(placement)) return `${choice.operand} ${placement}: ${choice.closed[placement]}`;
  }
  const stray = Object.keys(schedule.placement).find((name) => !inputOperands(mapping).some((o) => o.name === name));
  if (stray !== undefined) return `placement of ${stray}: there is no such operand`;
  const past = placementsOf(mapping, schedule).filter((c) => c.runsPast && schedule.placement[c.operand] === "padded");
  if (past.length > 1)
    return `${past.map((c) => c.operand).join(" and ")} would both read past their end; one must be tiled`;
  for (const [name, block] of Object.entries(schedule.block)) {
    const dimension = dimensions.find((d) => d.name === name);
    if (!dimension) return `block of ${name}: there is no such dimension`;
    if (!Number.isSafeInteger(block) || block < 1 || block > dimension.steps)
      return `block of ${name} must be 1 to ${dimension.steps}, got ${block}`;
  }
  for (const operand of Object.keys(schedule.within ?? {})) {
    const copy = copyWithin(mapping, schedule, operand, dimensions);
    if (typeof copy === "string") return copy;
  }
  const { accumulators, held } = registersOf(mapping, schedule);
  const edges = edgeIssues(crossed, dimensions, (d) => blockOf(schedule, d), accumulators);
  if (edges > EDGE_ISSUES) return `blocks at the border would be written as ${edges} issues, more than ${EDGE_ISSUES}`;
  const unrolled = dimensions.filter((d) => d.kind === "reduce").map((d) => blockOf(schedule, d));
  const issues = accumulators * product(unrolled);
  if (issues > BLOCK_ISSUES) return `a block would be written as ${issues} issues, more than ${BLOCK_ISSUES}`;
  const target = targetOperand(mapping);
  const available = registerClass(target.file)?.count;
  const needed = accumulators + held + 1;
  if (available !== undefined && needed > available)
    return `${needed} registers of ${available}: ${accumulators} accumulators, ${held} held, 1 streaming`;
  return undefined;
}

/** Issues of one block at most: 30 by 30 steps of what needs no registers of its own, 8 steps of the sum unrolled, are searched. */
const BLOCK_ISSUES = 8192;

/** Issues written for blocks at the border at most: beyond, compiling takes seconds. */
const EDGE_ISSUES = 4096;

/** The borders crossed by inputs that a schedule loads in place. */
function bordersUnder(mapping: Mapping, schedule: Schedule): readonly Border[] {
  return placementsOf(mapping, schedule).flatMap((c) =>
    schedule.placement[c.operand] === "in-place" ? c.borders : [],
  );
}

/** Upper bound of the issues that blocks at the border are written as; see {@link EDGE_ISSUES}. */
export function edgeIssues<D extends { readonly name: string; readonly kind: "spatial" | "reduce" }>(
  borders: readonly Border[],
  dimensions: readonly D[],
  blockOf: (dimension: D) => number,
  accumulators: number,
): number {
  if (borders.length === 0) return 0;
  let variants = 1;
  let issues = accumulators;
  for (const d of dimensions) {
    const border = borders.find((b) => (d.kind === "spatial" ? b.spatial : b.reduce) === d.name);
    if (d.kind === "reduce") issues *= border ? border.reduceSteps : blockOf(d);
    else if (border) variants *= 1 + borderBlocks(border, blockOf(d)).edges;
  }
  return (variants - 1) * issues;
}

/** Whether edges of a schedule are few enough to be written out. */
export const edgesFit = (issues: number): boolean => issues <= EDGE_ISSUES;

/** Registers the block takes: accumulators, and tiles of the input that is held while the other streams by. */
export function registersOf(mapping: Mapping, schedule: Schedule): { accumulators: number; held: number } {
  const blocked = blockedDimensions(mapping, schedule);
  const counts = inputOperands(mapping).map((o) =>
    product(blocked.filter((d) => dependsOn(mapping, o.name, d)).map((d) => blockOf(schedule, d))),
  );
  return { accumulators: product(blocked.map((d) => blockOf(schedule, d))), held: Math.min(...counts) };
}

/** How the output holds partial sums between passes, where it can: whole tiles as the instruction stores them, and nothing else to do. */
export function partialReach(mapping: Mapping, schedule: Pick<Schedule, "spread">): Reach | undefined {
  const { computation, intrinsic } = mapping;
  const dimensions = dimensionsUnder(mapping, schedule);
  if (computation.epilogue || dimensions.some((d) => d.kind === "spatial" && d.steps !== d.wholeSteps))
    return undefined;
  const { tensor, index } = computation.equation.target;
  const reach = reachInPlace(computation, intrinsic, targetOperand(mapping), access(tensor, index), dimensions);
  return typeof reach === "string" ? undefined : reach;
}

export function targetOperand({ intrinsic }: Mapping): Operand {
  return operandOf(intrinsic, intrinsic.computation.equation.target.tensor);
}

export function inputOperands(mapping: Mapping): Operand[] {
  const target = targetOperand(mapping);
  return mapping.intrinsic.operands.filter((o) => o !== target);
}

export function blockOf(schedule: Schedule, d: LoopDimension): number {
  return schedule.block[d.name] ?? 1;
}

export function blockedDimensions(mapping: Mapping, schedule: Schedule): LoopDimension[] {
  return dimensionsUnder(mapping, schedule).filter((d) => d.kind === "spatial" && blockOf(schedule, d) > 1);
}

const knownLoops = new WeakMap<Mapping, ReadonlyMap<string, ReadonlySet<string>>>();

/** The loops that index each operand; worked out once a mapping. */
function loopsOf(mapping: Mapping): ReadonlyMap<string, ReadonlySet<string>> {
  const known =
    knownLoops.get(mapping) ??
    new Map(Object.entries(mapping.binding).map(([operand, bound]) => [operand, new Set(axesIn(bound))]));
  knownLoops.set(mapping, known);
  return known;
}

/** Whether an operand's element changes with a dimension. */
export function dependsOn(mapping: Mapping, operand: string, d: LoopDimension): boolean {
  const used = loopsOf(mapping).get(operand);
  return used !== undefined && d.loops.some((l) => used.has(l.name));
}

export function product(numbers: readonly number[]): number {
  return numbers.reduce((p, n) => p * n, 1);
}
