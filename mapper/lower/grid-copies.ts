/**
 * @file Lowers the copies of tiles into shared memory: a ring of stages for each input, and the copies that fill it.
 *
 *     shared a_ring: f16[stage 3, m 128, k 64] at 8192*stage + 64*m + 8*((k/8) ^ (m%8)) + k%8
 *     copy m 128, k 64 by 8, async, by block where step+2 < 64          a_ring[(step+2)%3,m,k] = a[128*m_tile+m, 64*(step+2)+k]
 *
 * Lowers shifted taps (implicit GEMM): the window of an input that is staged once for all taps of a filter, the position of a result's inputs
 * in it, and the copies that fill it.
 *
 *     shared a_window: f16[stage 2, m 272, k 64]        272 rows: 9 of 29 pixels, and the halo that the last rows of a tile read
 *     copy h_place 9, w_place 29, k_in 64               a_window[slice%2, 29*h_place + w_place, k_in] = in[n, 64*slice+k_in, 7*m_tile+h_place-1, w_place-1]
 *     issue                                             a_window[slice%2, m_in + 29*r + s, ..]
 *
 * The tiles of a step as requests to a copy engine: their origins, computed from the counters of the block and of
 * the step.
 *
 *     in[n,c,p*2+r-1,q*2+s-1]    at c 64*(step%2), w 2*q-1, h 2*p-1, n    offsets s, r        q, p, n of the tile's first row
 */

import { type Dimension, rowMajor } from "../../abstraction/affine.ts";
import { namesOf, volumeOf } from "../../abstraction/collections.ts";
import { summedIn } from "../../abstraction/computation.ts";
import { allOf, selected } from "../../abstraction/condition.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { internal } from "../../abstraction/error.ts";
import {
  type Access,
  access,
  accessesIn,
  and,
  axis,
  compare,
  type Expr,
  number,
  over,
  plus,
  printAccess,
  remainder,
  rewriteReads,
  substitute,
  substituteAccess,
  substituteEach,
  times,
} from "../../abstraction/expression.ts";
import { type ArrivalAt, assignment, type Copy, type Scratch, type Statement } from "../../abstraction/loop-nest.ts";
import type { TensorView, ViewedDimension } from "../../abstraction/tensor-view.ts";
import { fillOf, type GridAxis, type GridInput } from "../schedule/grid-context.ts";
import { sharersOf } from "../schedule/multicast.ts";
import { readStages, type StagedRead, stagedReads } from "../schedule/narrow.ts";
import { readPitch } from "../schedule/runs.ts";
import { stepsInFlight } from "../schedule/stage.ts";
import { rowElements, sharedStorage } from "../schedule/swizzle.ts";
import type { TapWindow, WindowDim } from "../schedule/taps.ts";
import { viewForm } from "../schedule/views.ts";
import type { GridPlaces } from "./grid-places.ts";
import { tilesOf } from "./window-places.ts";

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

/** The ring of something that an input is made of. */
function readName(places: GridPlaces, input: GridInput, read: StagedRead): string {
  const alike = input.reads.filter((other) => other.access.tensor === read.access.tensor);
  const number = alike.findIndex((other) => other.access === read.access);
  return places.fresh(`${read.access.tensor}_of_${input.operand.name}${number > 0 ? number : ""}`);
}

/** Rings of what an input is made of. */
export function readRings(places: GridPlaces, input: GridInput): Scratch[] {
  const { context, schedule } = places;
  return stagedReads(context, schedule, input).map((read): Scratch => {
    const dims = [
      { name: "stage", extent: readStages(context, schedule) },
      { name: input.kept.axis, extent: places.extent(input.kept) },
      { name: context.sum.axis, extent: read.columns },
    ];
    const pitch = readPitch(context, schedule, input, read) / bytesOf(read.dtype);
    const pitched = dims.map((d) => (d.name === context.sum.axis ? { ...d, extent: pitch } : d));
    const name = readName(places, input, read);
    return { name, dtype: read.dtype, elements: volumeOf(pitched), scope: "shared", dims, storage: rowMajor(pitched) };
  });
}

/** An element of such a ring, in the stage of a step. */
const readAt = (places: GridPlaces, input: GridInput, read: StagedRead, step: Expr, kept: Expr, column: Expr): Access =>
  access(readName(places, input, read), [remainder(step, readStages(places.context, places.schedule)), kept, column]);

/** The copies of what an input is made of for a step. */
export function readCopies(places: GridPlaces, input: GridInput, step: Expr): Copy[] {
  const { sum } = places.context;
  const keptName = places.name(input.kept, "in");
  const column = places.fresh("column");
  return stagedReads(places.context, places.schedule, input).map((read): Copy => {
    const { there, inTile } = places.ofStep(step);
    const { counters, fusedSum } = there.countersOf(inTile, times(read.repeat, axis(column)));
    const guards = [...there.place(input.kept, axis(keptName), counters), ...places.beyond(sum, fusedSum)];
    return {
      kind: "copy",
      axes: [
        { name: keptName, extent: places.extent(input.kept) },
        { name: column, extent: read.columns },
      ],
      equation: assignment(
        readAt(places, input, read, step, axis(keptName), axis(column)),
        selected(allOf(guards), substitute(read.access, counters), number(0)),
      ),
      width: read.width,
      transfer: "async",
      group: "block",
      ...(step.kind !== "number" && { when: compare("<", step, places.steps * places.turns) }),
    };
  });
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
    const target = substituteAccess(equation.target, inTile);
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
  const use = over(step, places.schedule.stage);
  return { kind: "await", arrival: arrivalOf(places, step), use };
}

export function arrivalName(places: GridPlaces): string {
  return places.fresh("full");
}

function arrivalOf(places: GridPlaces, step: Expr): ArrivalAt {
  return { name: arrivalName(places), stage: remainder(step, places.schedule.stage) };
}

/** An element of an input's tile: read, or made of what is staged of it, and the fill value beyond the ends. */
export function elementOf(
  places: GridPlaces,
  input: GridInput,
  step: Expr,
  [inKept, inSum]: readonly [kept: Expr, sum: Expr],
): Expr {
  const { kept, value, conditions } = input;
  const { sum } = places.context;
  const { there, inTile } = places.ofStep(step);
  const { counters, fusedSum } = there.countersOf(inTile, inSum);
  const staged = stagedReads(places.context, places.schedule, input);
  const brought = new Set(staged.map((read) => printAccess(read.access)));
  const isStaged = brought.size > 0 && accessesIn(value).every((read) => brought.has(printAccess(read)));
  const inside = there.place(kept, inKept, counters);
  // A copy engine clips at the end of the tensor, which is also the end of the sum. Beyond the end of the kept axis nothing is stored, and what is
  // staged may be read.
  const guards = [
    ...(isStaged ? [] : inside),
    ...(places.schedule.transfer === "engine" ? [] : places.beyond(sum, fusedSum)),
    ...substituteEach(conditions, counters),
  ];
  const made = rewriteReads(value, (read) => {
    const text = printAccess(read);
    const found = staged.find((s) => printAccess(s.access) === text);
    return found ? readAt(places, input, found, step, inKept, over(inSum, found.repeat)) : read;
  });
  return selected(allOf(guards), substitute(made, counters), fillOf(places.context));
}

/** The copy of one input's tile for a step, into that step's stage. */
export function copyOf(places: GridPlaces, input: GridInput, step: Expr): Copy {
  const { kept } = input;
  const { sum } = places.context;
  const keptName = places.name(kept, "in");
  const sumName = places.name(sum, "in");
  const at = [axis(keptName), axis(sumName)] as const;
  const isAsync = copiesAsync(places, input);
  const beyondEnd = step.kind !== "number" && places.schedule.stage > 1;
  const shape = inRows(input, [places.extent(kept), places.extent(sum)]);
  return {
    kind: "copy",
    axes: inRows(input, [keptName, sumName]).map((name, i) => ({ name, extent: shape[i] ?? 1 })),
    equation: assignment(ringAt(places, input, step, at), elementOf(places, input, step, at)),
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

// ---- windows ---------------------------------------------------------------------------------------------------------------------

const windowName = (places: GridPlaces, { input }: TapWindow): string => places.fresh(`${input.operand.name}_window`);

export const windowArrivals = (places: GridPlaces): string => places.fresh("window_full");

/** The window's buffer in shared memory. */
export function windowRing(places: GridPlaces, window: TapWindow): Scratch {
  const { operand, kept } = window.input;
  const { sum } = places.context;
  const dims: [Dimension, Dimension, Dimension] = [
    { name: "stage", extent: window.stages },
    { name: kept.axis, extent: window.rows },
    { name: sum.axis, extent: places.extent(sum) },
  ];
  const { storage, elements } = sharedStorage("spans", dims, bytesOf(operand.dtype));
  return { name: windowName(places, window), dtype: operand.dtype, elements, scope: "shared", dims, storage };
}

/** The part of the window that a step's tap reads in place. */
export function tapAccess(places: GridPlaces, window: TapWindow, step: Expr, inKept: Expr, inSum: Expr): Access {
  const { counters } = places.countersOf(step, number(0));
  const shifted = window.dims.reduce<Expr>((row, d) => {
    const taps = [...d.form.terms].filter(([name]) => places.isSummed(name));
    return taps.reduce((e, [name, by]) => plus(e, times(by * d.weight, counters.get(name) ?? 0)), row);
  }, inKept);
  return access(windowName(places, window), [slotOf(window, sliceOf(window, step)), shifted, inSum]);
}

const sliceOf = ({ taps }: TapWindow, step: Expr): Expr => over(step, taps);
const slotOf = ({ stages }: TapWindow, slice: Expr): Expr => remainder(slice, stages);

/** The copy of one slice of the sum into the window. */
function windowCopy(places: GridPlaces, window: TapWindow, slice: Expr): Copy {
  const { context, schedule } = places;
  const { dims, input, column } = window;
  const { sum } = context;
  const columns = places.extent(sum);
  const counters = places.outerCounters();
  for (const d of context.outerSums) for (const l of d.loops) counters.set(l.name, number(0));
  for (const l of sum.dimension?.loops ?? []) counters.set(l.name, times(columns, places.sliceAt(window, slice)));
  const offsets = tilesOf(dims, places.tileAt(input.kept));
  for (const [i, d] of dims.entries()) if (d.loop !== undefined) counters.set(d.loop, offsets[i] ?? number(0));
  const first = substituteEach(window.access.index, counters);
  const inSum = places.name(sum, "in");
  const placed = dims.filter((d) => d.staged > 1).toReversed();
  const nameOf = (d: WindowDim): string => places.fresh(`${d.name}_place`);
  const steps = new Map([[placeOf(column), axis(inSum)], ...placed.map((d) => [placeOf(d), axis(nameOf(d))] as const)]);
  const index = first.map((e, position) => {
    const step = steps.get(position);
    return step ? plus(e, step) : e;
  });
  const row = placed.reduce<Expr>((e, d) => plus(e, times(d.weight, axis(nameOf(d)))), number(0));
  const byEngine = schedule.transfer === "engine";
  const all = [column, ...dims];
  return {
    kind: "copy",
    axes: [...placed.map((d) => ({ name: nameOf(d), extent: d.staged })), { name: inSum, extent: columns }],
    equation: assignment(access(windowName(places, window), [slotOf(window, slice), row, axis(inSum)]), {
      ...window.access,
      index,
    }),
    width: byEngine ? 1 : (input.asyncWidth ?? 1),
    transfer: byEngine ? "engine" : "async",
    group: "block",
    ...(byEngine && {
      view: {
        dims: all.map(({ name, own, extent, pitch }) => ({ name, own, extent, pitch })),
        at: all.map((d) => first[placeOf(d)] ?? number(0)),
        rows: { kind: "box", extents: [columns, ...dims.map((d) => d.staged)] },
      },
    }),
  };
}

/** The position, among the tensor's own dimensions, of a window dimension. */
const placeOf = ({ own: [one] }: ViewedDimension): number => one?.position ?? 0;

/** Requests the window of one slice of the sum. */
export function sendWindow(places: GridPlaces, window: TapWindow, slice: Expr, when?: Expr): Statement {
  const copy = windowCopy(places, window, slice);
  const condition = when ? { when } : {};
  if (copy.transfer !== "engine") return { ...copy, ...condition };
  return { kind: "send", copies: [copy], arrival: windowArrival(places, window, slice), ...condition };
}

const windowArrival = (places: GridPlaces, window: TapWindow, slice: Expr): ArrivalAt => ({
  name: windowArrivals(places),
  stage: slotOf(window, slice),
});

/** Zeroes, before all steps, the rows behind those that copies fill. They stay zero. */
export function windowZeros(places: GridPlaces, window: TapWindow): readonly Statement[] {
  const { context } = places;
  const columns = places.extent(context.sum);
  const zeroRows = window.rows - window.staged;
  const [slot, row, column] = [places.fresh("slot"), places.fresh("row"), places.name(context.sum, "in")];
  const zeros: Statement = {
    kind: "copy",
    axes: [
      { name: slot, extent: window.stages },
      { name: row, extent: zeroRows },
      { name: column, extent: columns },
    ],
    equation: assignment(
      access(windowName(places, window), [axis(slot), plus(window.staged, axis(row)), axis(column)]),
      number(0),
    ),
    width: window.input.width,
    transfer: "plain",
    group: "block",
  };
  const published: Statement = { kind: "fence", on: "memory", of: context.intrinsic };
  return zeroRows > 0 ? [zeros, published] : [];
}

/** Requests the next window in a step, once the last products that read its stage have ended. */
export function windowNext(places: GridPlaces, window: TapWindow, step: Expr): readonly Statement[] {
  if (window.slices === 1) return [];
  const { slice, when } = nextSlice(window, step, stepsInFlight(places.context, places.schedule));
  return [sendWindow(places, window, slice, when)];
}

/** The slice after that of a step, and the condition that it exists and the step is at tap `tap`. */
export function nextSlice(window: TapWindow, step: Expr, tap: number): { readonly slice: Expr; readonly when: Expr } {
  const slice = plus(sliceOf(window, step), 1);
  const atTap = compare("==", remainder(step, window.taps), tap);
  return { slice, when: and(atTap, compare("<", slice, window.slices)) };
}

/** Waits until the window of a step has arrived. */
export function windowAwait(places: GridPlaces, window: TapWindow, step: Expr): Statement {
  const slice = sliceOf(window, step);
  return { kind: "await", arrival: windowArrival(places, window, slice), use: over(slice, window.stages) };
}

// ---- views for copy engines ---------------------------------------------------------------------------------------------------------------

/** The view that a copy engine fetches for one input's tile. @throws Error if an engine cannot fetch this input */
function viewOf(places: GridPlaces, input: GridInput, step: Expr): TensorView {
  const { context, computation } = places;
  const form = viewForm(context, input);
  if (typeof form === "string") internal(`the schedule cannot be lowered: ${form}`);
  const { kept, contiguous } = input;
  const { there, inTile } = places.ofStep(step);
  const [rowAxis, columnAxis] = contiguous === "sum" ? [kept, context.sum] : [context.sum, kept];
  const across = places.extent(columnAxis);
  const sharers = sharersOf(context, places.schedule, input);
  const count = places.extent(rowAxis) / sharers;
  /** The first row of the tile, or of this block's share of it. */
  const firstOf = (a: GridAxis): Expr => (a === rowAxis && sharers > 1 ? times(count, places.member) : number(0));
  const { counters } = there.countersOf(inTile, firstOf(context.sum));
  there.place(kept, firstOf(kept), counters);
  const columns = columnAxis === kept ? rowElements(input, across) : across;

  const summed = new Set(namesOf(summedIn(computation.axes)));
  /** The part of an index that depends on some of the loops. */
  const partOf = (d: (typeof form.dims)[number], constant: number, has: (loop: string) => boolean): Expr => {
    if (d.read) return substitute(d.read, counters, "index");
    const terms = [...d.form.terms].filter(([name]) => has(name));
    const sum = terms.reduce<Expr>((e, [name, c]) => plus(e, times(c, axis(name))), number(constant));
    return substitute(sum, counters, "index");
  };
  const { rows } = form;
  const isWalked = (i: number): boolean => rows.kind === "pixels" && i > 0 && i < form.dims.length - 1;
  return {
    dims: form.dims.map(({ form: _, read: __, ...dim }) => dim),
    at: form.dims.map((d, i) => partOf(d, d.form.constant, (name) => !isWalked(i) || !summed.has(name))),
    rows:
      rows.kind === "box"
        ? {
            kind: "box",
            extents: form.dims.map((_, i) => (i === 0 ? columns : i === rows.along ? count : 1)),
          }
        : {
            kind: "pixels",
            columns,
            count,
            walks: rows.walks,
            offsets: form.dims.slice(1, -1).map((d) => partOf(d, 0, (name) => summed.has(name))),
          },
  };
}
