/**
 * @file Lowers the two roles of a block with a producer. One thread fills the ring as stages become free. Warpgroups
 * multiply, and signal when stages are free.
 *
 *     for at warpgroup m_warpgroup in 0..2                     for at thread load in 0..1
 *       for step                                                 for step
 *         await full[step%4], use step/4                           await empty[step%4], use step/4-1
 *         products of the step; wait for those of the step before  send for full[step%4]
 *         arrive empty[(step+3)%4] where step > 0
 *       arrive empty[..]                                         where another tile follows
 *
 * Work that all threads of the block do together comes before or after both roles: rows of zeros, cluster barriers.
 */

import { present } from "../../abstraction/collections.ts";
import { allOf, and, axis, compare, type Expr, minus, number, over, plus, remainder } from "../../abstraction/expression.ts";
import { type LoopNest, loop, type Statement } from "../../abstraction/loop-nest.ts";
import { stepsInFlight } from "../schedule/fragments.ts";
import type { TapWindow } from "../schedule/taps.ts";
import { arrivalName, awaitOf, sendOf } from "./grid-copies.ts";
import { sendOff } from "./grid-fragments.ts";
import type { GridPlaces } from "./grid-places.ts";
import { nextSlice, sendWindow, windowArrivals, windowAwait } from "./grid-window.ts";

const emptyName = (places: GridPlaces): string => places.fresh("empty");
const windowEmptyName = (places: GridPlaces): string => places.fresh("window_empty");

/** Whether a window's stage is filled more than once. */
const isRefilled = ({ slices, stages }: TapWindow): boolean => slices > stages;

/**
 * The arrival counters of the block. The engine signals full stages; with a producer, warpgroups also signal empty
 * ones.
 */
export function arrivalsOf(places: GridPlaces): NonNullable<LoopNest["arrivals"]> {
  const { schedule, window } = places;
  const { producer, stage } = schedule;
  const full = present([
    { name: arrivalName(places), stages: stage },
    window && { name: windowArrivals(places), stages: window.stages },
  ]);
  if (producer === undefined) return full;
  const refilled = window && isRefilled(window) ? [{ name: windowEmptyName(places), stages: window.stages }] : [];
  const empty = [{ name: emptyName(places), stages: stage }, ...refilled];
  const by = schedule.multicast ? "teams of the cluster" : "teams";
  return [...full, ...empty.map((ring) => ({ ...ring, by }) as const)];
}

/** The warpgroups' work in the steps of a tile. */
export function consumed(places: GridPlaces): readonly Statement[] {
  const { context, schedule, steps, window } = places;
  const { intrinsic } = context;
  const name = places.fresh("step");
  const step = places.counted(axis(name));
  const inFlight = stepsInFlight(context, schedule);
  const ended = (pending: number): Statement => ({ kind: "wait", pending, of: intrinsic });
  /** Signals that the stage of the step `before` steps ago is no longer read. */
  const left = (at: Expr, before: number): Statement => {
    const when = allOf([
      before > 0 && compare(">=", axis(name), before),
      // A neighbour that has filled its last stage may end, and then nothing arrives there any more.
      schedule.multicast && compare("<", at, steps * places.turns - schedule.stage + before),
    ]);
    return {
      kind: "arrive",
      arrival: { name: emptyName(places), stage: turnOf(at, before, schedule.stage) },
      ...(schedule.multicast && { group: "cluster" }),
      ...(when && { when }),
    };
  };
  const inside = present([
    awaitOf(places, step),
    window && windowAwait(places, window, step),
    ...sendOff(places, step),
    ended(inFlight),
    left(step, inFlight),
    window && isRefilled(window) && windowLeft(places, window, step, inFlight),
  ]);
  // The stages of the last tile are not filled again, so nothing is signalled. With an arrival between the wait and the
  // sums, ptxas serialised products that are stored element by element.
  const freed = places.turns > 1 ? [left(places.counted(number(steps - 1)), 0)] : [];
  return [loop(name, steps, inside), ...(inFlight > 0 ? [ended(0), ...freed] : [])];
}

/** The stage of the step `before` steps ago: `(step + 3) % 4` for 1 of 4. */
const turnOf = (at: Expr, before: number, stages: number): Expr =>
  remainder(before === 0 ? at : plus(at, stages - before), stages);

/**
 * Signals that a slice's window is free once the products of its last tap have ended. If products are in flight, that
 * is in the next step, which belongs to the next slice.
 */
function windowLeft(places: GridPlaces, { taps, stages }: TapWindow, step: Expr, inFlight: number): Statement {
  const last = compare("==", remainder(step, taps), (taps - 1 + inFlight) % taps);
  return {
    kind: "arrive",
    arrival: { name: windowEmptyName(places), stage: turnOf(over(step, taps), inFlight, stages) },
    when: inFlight > 0 ? and(last, compare(">=", step, inFlight)) : last,
  };
}

/** The producer's work: requests for all tiles that the block computes, one after another. */
export function produced(places: GridPlaces): readonly Statement[] {
  const { schedule, steps, turns, window } = places;
  const { stage } = schedule;
  const name = places.fresh("step");
  const step = places.counted(axis(name));
  /** Waits until the target stage of a copy has been released as often as it was filled. */
  const free = (ring: string, at: Expr, stages: number, when?: Expr): Statement => ({
    kind: "await",
    arrival: { name: ring, stage: remainder(at, stages) },
    use: minus(over(at, stages), 1),
    ...(when && { when }),
  });
  const inside: Statement[] = [free(emptyName(places), step, stage), sendOf(places, step)];
  if (window && window.slices > 1) {
    // The weights have `stage` stages, so after that many taps all products of the previous slice have ended.
    const { slice, when } = nextSlice(window, step, Math.min(stage, window.taps - 1));
    if (isRefilled(window)) inside.push(free(windowEmptyName(places), slice, window.stages, when));
    inside.push(sendWindow(places, window, slice, when));
  }
  const ofTile = loop(name, steps, inside);
  return present([
    window && sendWindow(places, window, number(0)),
    turns === 1 ? ofTile : loop(places.fresh("turn"), turns, [ofTile]),
  ]);
}
