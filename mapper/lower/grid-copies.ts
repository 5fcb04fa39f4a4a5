/**
 * @file Lowers the copies of tiles into shared memory: a ring of stages for each input, and the copies that fill it.
 *
 *     shared a_ring: f16[stage 3, m 128, k 64] at 8192*stage + 64*m + 8*((k/8) ^ (m%8)) + k%8
 *     copy m 128, k 64 by 8, async, by block where step+2 < 64          a_ring[(step+2)%3,m,k] = a[128*m_tile+m, 64*(step+2)+k]
 */

import { allOf, selected } from "../../abstraction/condition.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import {
  type Access,
  access,
  axis,
  compare,
  type Expr,
  over,
  plus,
  remainder,
  substitute,
  times,
} from "../../abstraction/expression.ts";
import type { Dimension } from "../../abstraction/layout.ts";
import type { ArrivalAt, Copy, Scratch, Statement } from "../../abstraction/loop-nest.ts";
import { fillOf, type GridInput } from "../schedule/grid-context.ts";
import { sharersOf } from "../schedule/multicast.ts";
import { rowElements, sharedStorage } from "../schedule/swizzle.ts";
import { assignment } from "./assign.ts";
import type { GridPlaces } from "./grid-places.ts";
import { viewOf } from "./grid-views.ts";

function ringName(places: GridPlaces, { operand }: GridInput): string {
  return places.fresh(`${operand.name}_ring`);
}

/** Orders the kept axis and the sum axis; the axis that is contiguous in the tensor comes last. */
function inRows<T>({ contiguous }: GridInput, [kept, sum]: readonly [kept: T, sum: T]): readonly [T, T] {
  return contiguous === "sum" ? [kept, sum] : [sum, kept];
}

/** The ring of an input in shared memory. */
export function ringOf(places: GridPlaces, input: GridInput): Scratch {
  const { dtype } = input.operand;
  const { sum } = places.context;
  const [row, column] = inRows(input, [input.kept.axis, sum.axis]);
  const [rowExtent, columnExtent] = ringShape(places, input);
  const dims: [Dimension, Dimension, Dimension] = [
    { name: "stage", extent: places.schedule.stage },
    { name: row, extent: rowExtent },
    { name: column, extent: columnExtent },
  ];
  const { storage, elements } = sharedStorage(places.schedule.swizzle, dims, bytesOf(dtype));
  return { name: ringName(places, input), dtype, elements, scope: "shared", dims, storage };
}

/** An element of a ring, in the stage of a step. */
export function ringAt(
  places: GridPlaces,
  input: GridInput,
  step: Expr,
  keptAndSum: readonly [kept: Expr, sum: Expr],
): Access {
  return access(ringName(places, input), [remainder(step, places.schedule.stage), ...inRows(input, keptAndSum)]);
}

export function copiesAsync({ schedule }: GridPlaces, input: GridInput): boolean {
  return schedule.transfer === "async" && input.asyncWidth !== undefined;
}

/** Inputs that are staged at each step, unlike a window or a box, which serves all steps. */
export function stepInputs({ context, window, box }: GridPlaces): readonly GridInput[] {
  return context.inputs.filter((input) => input !== window?.input && input !== box?.input);
}

/** Requests to the copy engine for the tiles of a step, into that step's stage. */
export function sendOf(places: GridPlaces, step: Expr): Statement {
  const { stage, producer } = places.schedule;
  const boxes = stepInputs(places).map((input): Copy => {
    const { when: _, axes, equation, ...copy } = copyOf(places, input, step);
    const sharers = sharersOf(places.context, places.schedule, input);
    // The engine copies whole swizzle spans, also at the end of a row; each block of a cluster its share of the rows.
    const [rows, columns] = ringShape(places, input);
    const whole = axes.map((a, i) => ({ ...a, extent: i === 0 ? rows / sharers : columns }));
    const box = { width: 1, transfer: "engine", view: viewOf(places, input, step) } as const;
    if (sharers === 1) return { ...copy, ...box, axes: whole, equation };
    const rowName = axes[0]?.name ?? "";
    const inTile = new Map([[rowName, plus(times(rows / sharers, places.member), axis(rowName))]]);
    const target = { ...equation.target, index: equation.target.index.map((e) => substitute(e, inTile, "index")) };
    const shared = { ...equation, target, value: substitute(equation.value, inTile, "index") };
    return { ...copy, ...box, axes: whole, equation: shared, group: "cluster" };
  });
  const beyondEnd = step.kind !== "number" && stage > 1 && producer === undefined;
  return {
    kind: "send",
    copies: boxes,
    arrival: arrivalOf(places, step),
    ...(beyondEnd && { when: compare("<", step, places.steps * places.turns) }),
  };
}

/** Waits until a step's stage has been filled for it. */
export function awaitOf(places: GridPlaces, step: Expr): Statement {
  return { kind: "await", arrival: arrivalOf(places, step), use: over(step, places.schedule.stage) };
}

export function arrivalName(places: GridPlaces): string {
  return places.fresh("full");
}

function arrivalOf(places: GridPlaces, step: Expr): ArrivalAt {
  return { name: arrivalName(places), stage: remainder(step, places.schedule.stage) };
}

/** The copy of one input's tile for a step, into that step's stage. */
export function copyOf(places: GridPlaces, input: GridInput, step: Expr): Copy {
  const { kept, value, conditions } = input;
  const { sum } = places.context;
  const keptName = places.name(kept, "in");
  const sumName = places.name(sum, "in");
  const { there, inTile } = places.ofStep(step);
  const { counters, fusedSum } = there.countersOf(inTile, axis(sumName));
  // A copy engine clips at the end of the tensor, which is also the end of the sum.
  const guards = [
    ...there.place(kept, axis(keptName), counters),
    ...(places.schedule.transfer === "engine" ? [] : places.beyond(sum, fusedSum)),
    ...conditions.map((c) => substitute(c, counters, "index")),
  ];
  const isAsync = copiesAsync(places, input);
  const beyondEnd = step.kind !== "number" && places.schedule.stage > 1;
  const shape = inRows(input, [places.extent(kept), places.extent(sum)]);
  return {
    kind: "copy",
    axes: inRows(input, [keptName, sumName]).map((name, i) => ({ name, extent: shape[i] ?? 1 })),
    equation: assignment(
      ringAt(places, input, step, [axis(keptName), axis(sumName)]),
      selected(allOf(guards), substitute(value, counters), fillOf(places.context)),
    ),
    width: isAsync ? (input.asyncWidth ?? 1) : input.width,
    transfer: isAsync ? "async" : "plain",
    group: "block",
    ...(beyondEnd && { when: compare("<", step, places.steps * places.turns) }),
  };
}

/** Rows and columns of an input's tile in its ring. */
function ringShape(places: GridPlaces, input: GridInput): readonly [number, number] {
  return inRows(input, [rowElements(input, places.extent(input.kept)), places.extent(places.context.sum)]);
}
