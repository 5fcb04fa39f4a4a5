/**
 * @file Lowers the two roles of a block with a producer: one thread fills the ring as stages become free; warpgroups multiply and signal when
 * stages are free.
 *
 *     for at warpgroup m_warpgroup in 0..2                     for at thread load in 0..1
 *       for step                                                 for step
 *         await full[step%4], use step/4                           await empty[step%4], use step/4-1
 *         products of the step; those of the step before ended     send for full[step%4]
 *         arrive empty[(step+3)%4] where step > 0
 *       arrive empty[..]                                         where another tile follows
 *
 * Work that all threads of the block do together comes before or after both roles: rows of zeros, cluster barriers.
 */

import { and, axis, binary, compare, type Expr, number } from "../../abstraction/expression.ts";
import { type LoopNest, loop, type Statement } from "../../abstraction/loop-nest.ts";
import { stepsInFlight } from "../schedule/fragments.ts";
import type { TapWindow } from "../schedule/taps.ts";
import { arrivalName, awaitOf, sendOf } from "./grid-copies.ts";
import { sendOff } from "./grid-fragments.ts";
import { type GridPlaces, plus } from "./grid-places.ts";
import { nextSlice, sendWindow, windowArrivals, windowAwait } from "./grid-window.ts";

const emptyName = (places: GridPlaces): string => places.fresh("empty");
const windowEmptyName = (places: GridPlaces): string => places.fresh("window_empty");

/** Whether a window takes the place of another. */
const isRefilled = ({ slices, stages }: TapWindow): boolean => slices > stages;

/** What is counted of each ring that an engine fills: that a stage is full; and beside a producer, that it is empty. */
export function arrivalsOf(places: GridPlaces): NonNullable<LoopNest["arrivals"]> {
  const { schedule, window } = places;
  const { producer, stage } = schedule;
  const full = [
    { name: arrivalName(places), stages: stage },
    ...(window ? [{ name: windowArrivals(places), stages: window.stages }] : []),
  ];
  if (producer === undefined) return full;
  const refilled = window && isRefilled(window) ? [{ name: windowEmptyName(places), stages: window.stages }] : [];
  const empty = [{ name: emptyName(places), stages: stage }, ...refilled];
  return [...full, ...empty.map((ring) => ({ ...ring, by: "teams" as const }))];
}

/** What the warpgroups do in the steps of a tile. */
export function consumed(places: GridPlaces): readonly Statement[] {
  const { context, schedule, steps, window } = places;
  const { intrinsic } = context;
  const name = places.fresh("step");
  const step = places.counted(axis(name));
  const inFlight = stepsInFlight(context, schedule);
  const ended = (pending: number): Statement => ({ kind: "wait", pending, of: intrinsic });
  /** The stage of the step so many before is read no more. */
  const left = (at: Expr, before: number): Statement => ({
    ...{ kind: "arrive", arrival: { name: emptyName(places), stage: turnOf(at, before, schedule.stage) } },
    ...(before > 0 && { when: compare(">=", axis(name), number(before)) }),
  });
  const inside = [
    awaitOf(places, step),
    ...(window ? [windowAwait(places, window, step)] : []),
    ...[...sendOff(places, step), ended(inFlight), left(step, inFlight)],
    ...(window && isRefilled(window) ? [windowLeft(places, window, step, inFlight)] : []),
  ];
  // Of the last tile no stage is filled again; between the wait and the sums an arrival made ptxas serialise products that are stored by elements.
  const freed = places.turns > 1 ? [left(places.counted(number(steps - 1)), 0)] : [];
  return [loop(name, steps, inside), ...(inFlight > 0 ? [ended(0), ...freed] : [])];
}

/** `(step + 3) % 4`: the turn of what came one before. */
const turnOf = (at: Expr, before: number, stages: number): Expr =>
  binary("%", before === 0 ? at : plus(at, number(stages - before)), number(stages));

/** The window of a slice, once the products of its last tap have ended: in the next step, which is of the next slice, where they are in flight. */
function windowLeft(places: GridPlaces, { taps, stages }: TapWindow, step: Expr, inFlight: number): Statement {
  const last = compare("==", binary("%", step, number(taps)), number((taps - 1 + inFlight) % taps));
  return {
    kind: "arrive",
    arrival: { name: windowEmptyName(places), stage: turnOf(binary("/", step, number(taps)), inFlight, stages) },
    when: inFlight > 0 ? and(last, compare(">=", step, number(inFlight))) : last,
  };
}

/** What the thread does that sends for tiles: all that the block takes, one after another. */
export function produced(places: GridPlaces): readonly Statement[] {
  const { schedule, steps, turns, window } = places;
  const { stage } = schedule;
  const name = places.fresh("step");
  const step = places.counted(axis(name));
  /** Until the stage that a copy goes to has been left as often as it was filled. */
  const free = (ring: string, at: Expr, stages: number, when?: Expr): Statement => ({
    ...{ kind: "await", arrival: { name: ring, stage: binary("%", at, number(stages)) } },
    use: binary("-", binary("/", at, number(stages)), number(1)),
    ...(when && { when }),
  });
  const inside: Statement[] = [free(emptyName(places), step, stage), sendOf(places, step)];
  if (window && window.slices > 1) {
    // As many taps on as there are stages of weights all products of the slice before have ended.
    const { slice, when } = nextSlice(window, step, Math.min(stage, window.taps - 1));
    if (isRefilled(window)) inside.push(free(windowEmptyName(places), slice, window.stages, when));
    inside.push(sendWindow(places, window, slice, when));
  }
  const ofTile = loop(name, steps, inside);
  return [
    ...(window ? [sendWindow(places, window, number(0))] : []),
    turns === 1 ? ofTile : loop(places.fresh("turn"), turns, [ofTile]),
  ];
}
