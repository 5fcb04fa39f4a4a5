/**
 * @file Lowers a mapping of a matrix product to blocks and warps: tiles through a ring in shared memory, fragments,
 * sums, the output.
 *
 *     for at block m_tile, n_tile                        tile, order, split
 *       for at warp warp_m, warp_n                       warps
 *         clear sums
 *         copy steps 0 and 1 into stages 0 and 1         stage 3, transfer async
 *         for step
 *           wait until stage step % 3 has arrived
 *           barrier block                                and all warps are done with stage (step+2) % 3
 *           copy step + 2 into stage (step+2) % 3
 *           for unrolled k_part
 *             fetch fragments of both inputs             swizzle, fragments
 *             multiply
 *         drain sums to the output                       store
 *
 * Inputs that are repacked are copied before, by a separate kernel (grid-repack.ts).
 *
 * A step is one tile along the instruction's sum at one point of the outer summed loops. Loops that tiles do not divide
 * are covered by tiles that reach beyond the end: inputs are filled there with neutral values, and results are not
 * stored.
 *
 * Lowers the two roles of a block with a producer. One thread fills the ring as stages become free. Warpgroups
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

import { extentOf } from "../../abstraction/affine.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { present, upTo } from "../../abstraction/collections.ts";
import {
  allOf,
  and,
  axis,
  compare,
  type Expr,
  minus,
  number,
  over,
  plus,
  remainder,
} from "../../abstraction/expression.ts";
import { readsShared } from "../../abstraction/intrinsic.ts";
import { type LoopMode, type LoopNest, loop, type Scratch, type Statement } from "../../abstraction/loop-nest.ts";
import { when } from "../match/conditions.ts";
import { heldFragments, stepsInFlight } from "../schedule/fragments.ts";
import { boxIsAsync } from "../schedule/gather.ts";
import { gridProblem } from "../schedule/grid.ts";
import type { GridAxis, GridContext, GridInput } from "../schedule/grid-context.ts";
import { neighboursAlong } from "../schedule/multicast.ts";
import { stagedReads } from "../schedule/narrow.ts";
import { repackedContext } from "../schedule/repack.ts";
import { keptTiles, type TapWindow } from "../schedule/taps.ts";
import { fragmentsAlong } from "../schedule/tile.ts";
import { besideResults } from "./grid-beside.ts";
import {
  arrivalName,
  awaitOf,
  copiesAsync,
  copyOf,
  nextSlice,
  readCopies,
  readRings,
  ringOf,
  sendOf,
  sendWindow,
  stepInputs,
  windowArrivals,
  windowAwait,
  windowNext,
  windowRing,
  windowZeros,
} from "./grid-copies.ts";
import { fetchesOf, multiply, multiplyAcross, sendOff } from "./grid-fragments.ts";
import { boxCopy, boxScratch } from "./grid-gather.ts";
import { addMet, addParts, meeting, partialSums, storeParts } from "./grid-parts.ts";
import { GridPlaces } from "./grid-places.ts";
import { copiesOfInputs, copyInputs } from "./grid-repack.ts";
import { stagedResults, storedLast, storeResults } from "./grid-results.ts";

/**
 * The nest of a mapping under a schedule of blocks and warps. @throws Error if {@link gridProblem} refuses the schedule
 */
export function lowerGrid(given: GridContext, schedule: GridSchedule): LoopNest {
  const problem = gridProblem(given, schedule);
  if (problem !== undefined) throw new Error(`internal: the schedule cannot be lowered: ${problem}`);
  const context = repackedContext(given, schedule);
  const { rows, columns, target, intrinsic, inputs } = context;
  const places = new GridPlaces(context, schedule);
  const cleared = places.eachSum([{ kind: "clear", register: places.sum() }]);
  const stored = (there: GridPlaces): readonly Statement[] => [
    ...besideResults(there),
    ...(schedule.split ? storeParts(there) : storeResults(there)),
  ];
  const roles = schedule.producer
    ? withProducer(places, cleared, stored)
    : { teams: withoutProducer(places, cleared, stored) };
  return {
    scratch: [
      ...inputs.map((i) => stagedInput(places, i)),
      ...inputs.flatMap((i) => readRings(places, i)),
      ...stagedResults(places),
      ...partialSums(places),
      ...copiesOfInputs(places),
    ],
    registers: [
      {
        name: target.name,
        intrinsic,
        operand: target.name,
        count: fragmentsAlong(rows, schedule) * fragmentsAlong(columns, schedule),
      },
      ...inputs
        .filter(({ operand }) => !readsShared(operand))
        .map((input) => ({
          name: input.operand.name,
          intrinsic,
          operand: input.operand.name,
          count: heldFragments(context, schedule, input),
        })),
    ],
    ...(schedule.transfer === "engine" && { arrivals: arrivalsOf(places) }),
    prepare: [],
    body: [...copyInputs(places), ...dealt(places, roles), ...addParts(places, (inner) => tilesDealt(places, inner))],
  };
}

/** The shared-memory buffer of an input: a window or a box that is staged once, or a ring of steps. */
function stagedInput(places: GridPlaces, input: GridInput): Scratch {
  const { window, box } = places;
  if (window?.input === input) return windowRing(places, window);
  return box?.input === input ? boxScratch(places, box) : ringOf(places, input);
}

const at = (mode: LoopMode, name: string, extent: number, inner: readonly Statement[]): readonly Statement[] => [
  loop(name, extent, inner, mode),
];

/** The roles of a block's threads. */
interface Roles {
  readonly teams: readonly Statement[];
  /** The work of an additional thread beside the teams; undefined if there is none. */
  readonly thread?: readonly Statement[];
  /** The work of all threads before and after these roles. */
  readonly ahead?: readonly Statement[];
  readonly behind?: readonly Statement[];
}

/** Loops over blocks in the order of the schedule, over the parts of a split sum, and over the warps of each block. */
function dealt(places: GridPlaces, { teams, thread, ahead = [], behind = [] }: Roles): readonly Statement[] {
  const { context, schedule } = places;
  const { rows, columns, team } = context;
  const columnWarps = at(team, places.name(columns, team), extentOf(columns.axis, schedule.warps), teams);
  const warps = at(team, places.name(rows, team), extentOf(rows.axis, schedule.warps), columnWarps);
  const block = [...ahead, ...warps, ...(thread ? at("thread", places.fresh("load"), 1, thread) : []), ...behind];
  if (!schedule.split) return tilesDealt(places, block);
  const { parts, through } = schedule.split;
  const part = (mode: LoopMode, inner: readonly Statement[]): readonly Statement[] =>
    at(mode, places.fresh("split"), parts, inner);
  // Through memory, the blocks of one part run together because they share inputs. In a cluster, the blocks of one tile
  // run together.
  return through === "memory" ? part("block", tilesDealt(places, block)) : tilesDealt(places, part("cluster", block));
}

/** Loops over the tiles of the output, in the order of the schedule. */
function tilesDealt(places: GridPlaces, inside: readonly Statement[]): readonly Statement[] {
  const { context, schedule, order } = places;
  const { rows, columns, outer } = context;
  const { persistent, multicast } = schedule;
  const members = multicast?.blocks ?? 1;
  const body = multicast ? at("cluster", places.fresh("member"), members, inside) : inside;
  if (persistent !== undefined) return at("block", places.fresh("block"), persistent / members, body);
  const tilesAcross = (a: GridAxis): number => keptTiles(context, a, schedule) / neighboursAlong(context, schedule, a);
  const rowTiles = tilesAcross(rows);
  const rowTile = (extent: number, inner: readonly Statement[]): readonly Statement[] =>
    at("block", places.name(rows, "tile"), extent, inner);
  const columnTile = (inner: readonly Statement[]): readonly Statement[] =>
    at("block", places.name(columns, "tile"), tilesAcross(columns), inner);
  const tiles =
    order === 1
      ? rowTile(rowTiles, columnTile(body))
      : at("block", places.name(rows, "group"), rowTiles / order, columnTile(rowTile(order, body)));
  return outer.reduceRight<readonly Statement[]>(
    (inner, d) => at("block", places.fresh(`${d.name}_block`), d.extent, inner),
    tiles,
  );
}

/**
 * Teams that fill the ring themselves. Where a block computes several tiles one after another, steps are counted through
 * all of them, so that the ring keeps filling while a tile is stored.
 *
 *     copies of steps 0 and 1
 *     for turn
 *       clear sums;   for step: the step turn * steps + step;   drain sums to the tile of the turn
 */
function withoutProducer(
  places: GridPlaces,
  cleared: readonly Statement[],
  stored: (there: GridPlaces) => readonly Statement[],
): readonly Statement[] {
  const { before, steps } = places.context.intrinsic.asynchronous ? pipelineSentOff(places) : pipeline(places);
  const { taken } = places;
  if (places.schedule.persistent === undefined) {
    const met = meeting(places);
    const summed = taken === true ? [...before, ...met, ...steps] : [...met, ...when(taken, [...before, ...steps])];
    return [...cleared, ...summed, ...stored(places), ...storedLast(places), ...addMet(places)];
  }
  return [...before, ...inTurns(places, (there) => [...cleared, ...steps, ...stored(there)]), ...storedLast(places)];
}

/** Repeats a body for each tile that the block computes. */
function inTurns(places: GridPlaces, body: (there: GridPlaces) => readonly Statement[]): readonly Statement[] {
  if (places.turns === 1) return body(places);
  const turn = places.fresh("turn");
  return [loop(turn, places.turns, body(places.inTurn(axis(turn))))];
}

/**
 * Warpgroups that multiply beside a thread that fills the ring. Zero rows and cluster barriers come before both roles.
 */
function withProducer(
  places: GridPlaces,
  cleared: readonly Statement[],
  stored: (there: GridPlaces) => readonly Statement[],
): Roles {
  const zeros = places.window ? windowZeros(places, places.window) : [];
  const met = zeros.length > 0 ? [MET] : [];
  return {
    ahead: [...zeros, ...met, ...meeting(places)],
    teams: [
      ...inTurns(places, (there) => [...cleared, ...whereSummed(there, consumed(places)), ...stored(there)]),
      ...storedLast(places),
    ],
    thread: produced(places),
    // Where elements decide how many tiles a block sums, its neighbours wait for it before it ends.
    behind: places.summedTiles && places.schedule.multicast ? [{ kind: "barrier", group: "cluster" }] : addMet(places),
  };
}

/** What is done for a tile that has a sum. */
function whereSummed(there: GridPlaces, body: readonly Statement[]): readonly Statement[] {
  const counted = there.summedTiles;
  return when(there.taken, body).map((s) => (s.kind === "when" && counted ? { ...s, counted } : s));
}

/** A prologue that fills the first stages, and the steps. */
interface Pipeline {
  readonly before: readonly Statement[];
  readonly steps: readonly Statement[];
}

const MET: Statement = { kind: "barrier", group: "block" };

/**
 * How the stages of a ring are filled.
 * @param ahead the steps between a copy and its use
 */
function filling(
  places: GridPlaces,
  step: Expr,
  ahead: number,
): {
  readonly copies: (at: Expr) => readonly Statement[];
  readonly wait: (pending: number) => readonly Statement[];
  /** The copies before all steps, and those into the stage that a step has freed. */
  readonly first: readonly Statement[];
  readonly next: readonly Statement[];
} {
  const { context, schedule } = places;
  const inputs = stepInputs(places);
  const made = inputs.filter((i) => stagedReads(context, schedule, i).length > 0);
  const isAsync = made.length > 0 || inputs.some((i) => copiesAsync(places, i)) || boxIsAsync(context, schedule);
  const all = places.steps * places.turns;
  const commit: readonly Statement[] = isAsync ? [{ kind: "commit" }] : [];
  const wait = (pending: number): readonly Statement[] => (isAsync ? [{ kind: "wait", pending }] : []);
  const of = (some: readonly GridInput[], at: Expr): readonly Statement[] => some.map((i) => copyOf(places, i, at));
  const copies = (at: Expr): readonly Statement[] =>
    schedule.transfer === "engine" ? [sendOf(places, at)] : [...of(inputs, at), ...commit];
  if (made.length === 0)
    return {
      copies,
      wait,
      first: upTo(ahead).flatMap((s) => (s < all ? copies(number(s)) : commit)),
      next: ahead < all ? copies(plus(step, ahead)) : commit,
    };
  // What tiles are made of arrives one step before its tile is made, in a ring of one stage more than tiles are ahead.
  const moved = inputs.filter((i) => !made.includes(i));
  const reads = (at: Expr): readonly Statement[] =>
    at.kind === "number" && at.value >= all ? [] : made.flatMap((i) => readCopies(places, i, at));
  const early = (some: readonly GridInput[], s: number): readonly Statement[] => (s < all ? of(some, number(s)) : []);
  const first = [
    ...upTo(ahead + 1).flatMap((s) => reads(number(s))),
    ...commit,
    ...wait(0),
    MET,
    ...upTo(ahead).flatMap((s) => early(made, s)),
    ...(ahead > 1 ? [MET] : []),
    ...upTo(ahead).flatMap((s) => [...early(moved, s), ...(s > 0 ? reads(number(ahead + s)) : []), ...commit]),
  ];
  const next = [
    ...(ahead < all ? of(moved, plus(step, ahead)) : []),
    ...(2 * ahead < all ? reads(plus(step, 2 * ahead)) : []),
    ...commit,
    ...(ahead < all ? of(made, plus(step, ahead)) : []),
  ];
  return { copies, wait, first, next };
}

/**
 * The pipeline of asynchronous products. A fence before the barrier publishes what threads wrote to shared memory. The
 * products of a step run while the next stages are filled; with a step in flight, the wait is for the products of the
 * step before.
 */
function pipelineSentOff(places: GridPlaces): Pipeline {
  const { intrinsic } = places.context;
  const { stage, transfer } = places.schedule;
  const step = places.counted(axis(places.fresh("step")));
  const inFlight = stepsInFlight(places.context, places.schedule);
  const ahead = stage - 1 - inFlight;
  const { copies, wait, first, next } = filling(places, step, ahead);
  const publish: Statement = { kind: "fence", on: "memory", of: intrinsic };
  const products = (pending: number): Statement => ({ kind: "wait", pending, of: intrinsic });
  const { window } = places;
  // The copy engine's writes are visible to the instruction; those of threads need a fence.
  const awaited = present([awaitOf(places, step), window && windowAwait(places, window, step)]);
  const arrived = (pending: number): readonly Statement[] =>
    transfer === "engine" ? [...awaited, MET] : [...wait(pending), publish, MET];
  const ofWindow = window ? [...windowZeros(places, window), sendWindow(places, window, number(0))] : [];
  const freed = [...(window ? windowNext(places, window, step) : []), ...next];
  const inside =
    stage === 1
      ? [MET, ...copies(step), ...arrived(0), ...sendOff(places, step), products(0)]
      : [...arrived(ahead - 1), ...sendOff(places, step), ...freed, products(inFlight)];
  const last = inFlight > 0 ? [products(0)] : [];
  return { before: [...ofWindow, ...first], steps: [loop(places.fresh("step"), places.steps, inside), ...last] };
}

/**
 * The software pipeline: each step waits for its stage, refills the stage that it freed, and multiplies.
 */
function pipeline(places: GridPlaces): Pipeline {
  const { box } = places;
  const { stage } = places.schedule;
  const name = places.fresh("step");
  const step = axis(name);
  const { copies, wait, first, next: freed } = filling(places, step, stage - 1);
  // The box arrives with the first stage.
  const before = present([box && boxCopy(places, box), ...first]);
  if (places.schedule.fragments === "across") {
    // The last step has no successor, so it is peeled.
    const last = number(places.steps - 1);
    const arrived = [...wait(stage - 2), MET];
    const next = [...arrived, ...fetchesOf(places, plus(step, 1), number(0))];
    const steps = present([
      ...arrived,
      ...fetchesOf(places, number(0), number(0)),
      places.steps > 1 && loop(name, places.steps - 1, multiplyAcross(places, step, freed, next)),
      ...multiplyAcross(places, last, [], []),
    ]);
    return { before, steps };
  }
  const inside =
    stage === 1
      ? [MET, ...copies(step), ...wait(0), MET, ...multiply(places, step)]
      : [...wait(stage - 2), MET, ...freed, ...multiply(places, step)];
  return { before, steps: [loop(name, places.steps, inside)] };
}

// ---- blocks with a producer ------------------------------------------------------------------------------------------------------

const emptyName = (places: GridPlaces): string => places.fresh("empty");
const windowEmptyName = (places: GridPlaces): string => places.fresh("window_empty");

/** Whether a window's stage is filled more than once. */
const isRefilled = ({ slices, stages }: TapWindow): boolean => slices > stages;

/**
 * The arrival counters of the block. The engine signals full stages; with a producer, warpgroups also signal empty
 * ones.
 */
function arrivalsOf(places: GridPlaces): NonNullable<LoopNest["arrivals"]> {
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
function consumed(places: GridPlaces): readonly Statement[] {
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
      schedule.multicast && !places.summedTiles && compare("<", at, steps * places.turns - schedule.stage + before),
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
function produced(places: GridPlaces): readonly Statement[] {
  const { schedule, steps, turns, window } = places;
  const { stage } = schedule;
  const turn = places.fresh("turn");
  const there = places.summedTiles ? places.inTurn(axis(turn)) : places;
  const name = places.fresh("step");
  const step = places.counted(axis(name));
  /** Waits until the target stage of a copy has been released as often as it was filled. */
  const free = (ring: string, at: Expr, stages: number, where?: Expr): Statement => ({
    kind: "await",
    arrival: { name: ring, stage: remainder(at, stages) },
    use: minus(over(at, stages), 1),
    ...(where && { when: where }),
  });
  const inside: Statement[] = [free(emptyName(places), step, stage), sendOf(there, step)];
  if (window && window.slices > 1) {
    // The weights have `stage` stages, so after that many taps all products of the previous slice have ended.
    const { slice, when } = nextSlice(window, step, Math.min(stage, window.taps - 1));
    if (isRefilled(window)) inside.push(free(windowEmptyName(places), slice, window.stages, when));
    inside.push(sendWindow(places, window, slice, when));
  }
  const first = window ? [sendWindow(places, window, number(0))] : [];
  const ofTile = whereSummed(there, [...first, loop(name, steps, inside)]);
  return turns === 1 ? ofTile : [loop(turn, turns, ofTile)];
}
