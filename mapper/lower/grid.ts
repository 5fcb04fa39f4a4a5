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
 *
 * Lowers the products of a step: fragments of both inputs are fetched from shared memory, and the instruction is
 * issued on all pairs of them.
 *
 *     for unrolled k_part
 *       a{0..3} <- a_ring[step%3, 64*m_warp + 16*m_fragment + m_in, 16*k_part + k_in] by ldmatrix
 *       b{0..7} <- b_ring[...]
 *       c{8*m_fragment + n_fragment} <- mma(a{m_fragment}, b{n_fragment})
 *
 * Lowers split-K: each block stores its partial sums in a workspace or in the memory of its cluster, and they are added in a fixed order.
 *
 *     for at cluster split in 0..4                             through cluster: each line of the tile is owned by one block
 *       ...
 *       barrier cluster, of beginnings                         before the first write into another block's shared memory
 *       for m_in, n_in of c{..}   parts[line/16, split, line%16, n] = sum[]
 *       barrier cluster
 *       copy line 16, n 64, by block   y[..] = f16(parts[split,0,line,n] + parts[split,1,line,n] + ..)
 *
 *     for at block split in 0..4                               through memory: the workspace holds all partial sums,
 *       ...                                                    and a second kernel adds them
 *       for m_in, n_in of c{..}   parts[split, m, n] = sum[]
 *     barrier
 *     for at block m_tile, n_tile, chunk
 *       copy line 4, n 64, by block    y[..] = f16(parts[0,m,n] + parts[1,m,n] + ..)
 *
 * Lowers the additional assignments of an epilogue on blocks and warps: the first warp of the first tile executes them, at each point of the
 * outer loops.
 *
 *     z[b,i*(i-1)/2+j+8] = c[b,i,j] where j < i, z[b,k] = x[b,0,k]
 *
 *       copy k_beside 8 by warp       z[b_block,k_beside] = x[b_block,0,k_beside]       where m_warp == 0 and n_warp == 0
 */

import { type Dimension, extentOf } from "../../abstraction/affine.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { hasName, present, upTo, volumeOf } from "../../abstraction/collections.ts";
import { conditionOf, somewhere } from "../../abstraction/condition.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { kept, partsOf as partsOfProgram } from "../../abstraction/epilogue.ts";
import { internal } from "../../abstraction/error.ts";
import {
  access,
  accessesIn,
  allOf,
  and,
  axis,
  compare,
  type Expr,
  guarded,
  minus,
  number,
  over,
  plus,
  printExpr,
  remainder,
  substitute,
  substituteAxes,
  times,
} from "../../abstraction/expression.ts";
import { readsShared } from "../../abstraction/intrinsic.ts";
import {
  assignment,
  type Copy,
  type LoopMode,
  type LoopNest,
  loop,
  type Scratch,
  type Statement,
  type TileAccess,
} from "../../abstraction/loop-nest.ts";
import { when } from "../match/conditions.ts";
import { fetchesIn, groupsOf, heldFragments, setsOf } from "../schedule/fragments.ts";
import { boxIsAsync } from "../schedule/gather.ts";
import { gridProblem } from "../schedule/grid.ts";
import type { GridAxis, GridContext, GridInput } from "../schedule/grid-context.ts";
import { neighboursAlong } from "../schedule/multicast.ts";
import { madeInRegisters, stagedReads } from "../schedule/narrow.ts";
import { repackedContext } from "../schedule/repack.ts";
import { rolledOf } from "../schedule/rolled.ts";
import { partsAtOnce, placeInParts } from "../schedule/runs.ts";
import { type PartialTile, partialTile, partsOfSum, pitchOf } from "../schedule/split.ts";
import { stepsInFlight } from "../schedule/stage.ts";
import { keptTiles, type TapWindow } from "../schedule/taps.ts";
import { fragmentsAlong, partsOf } from "../schedule/tile.ts";
import {
  arrivalName,
  awaitOf,
  copiesAsync,
  copyOf,
  elementOf,
  nextSlice,
  readCopies,
  readRings,
  ringAt,
  ringOf,
  sendOf,
  sendWindow,
  stepInputs,
  tapAccess,
  windowArrivals,
  windowAwait,
  windowNext,
  windowRing,
  windowZeros,
} from "./grid-copies.ts";
import { boxAccess, boxCopy, boxScratch } from "./grid-gather.ts";
import { callBarrier, GridPlaces, unrolled } from "./grid-places.ts";
import { copiesOfInputs, copyInputs } from "./grid-repack.ts";
import { resultOf, stagedResults, storedLast, storeResults, widthOf } from "./grid-results.ts";

/**
 * The nest of a mapping under a schedule of blocks and warps. @throws Error if {@link gridProblem} refuses the schedule
 */
export function lowerGrid(given: GridContext, schedule: GridSchedule): LoopNest {
  const problem = gridProblem(given, schedule);
  if (problem !== undefined) internal(`the schedule cannot be lowered: ${problem}`);
  const context = repackedContext(given, schedule);
  const { rows, columns, target, intrinsic, inputs } = context;
  const places = new GridPlaces(context, schedule);
  const cleared = places.eachSum([{ kind: "clear", register: places.sum() }]);
  const stored = (there: GridPlaces): readonly Statement[] => [
    ...besideResults(there),
    ...(schedule.split ? storeParts(there) : storeResults(there)),
  ];
  const sums = {
    name: target.name,
    intrinsic,
    operand: target.name,
    count: fragmentsAlong(rows, schedule) * fragmentsAlong(columns, schedule),
  };
  const roles = schedule.producer
    ? withProducer(places, cleared, stored)
    : { teams: withoutProducer(places, cleared, stored) };
  return {
    scratch: [
      ...inputs.flatMap((i) => (madeInRegisters(context, schedule, i) ? [] : [stagedInput(places, i)])),
      ...inputs.flatMap((i) => readRings(places, i)),
      ...stagedResults(places),
      ...partialSums(places),
      ...copiesOfInputs(places),
    ],
    registers: [
      sums,
      ...(context.scale
        ? [
            { ...sums, name: places.stepSums },
            { ...sums, name: places.scaleName, count: sums.count * places.scales().length },
          ]
        : []),
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
  const arriving = inputs.filter((i) => stagedReads(context, schedule, i).length > 0);
  const made = arriving.filter((i) => !madeInRegisters(context, schedule, i));
  const isAsync = arriving.length > 0 || inputs.some((i) => copiesAsync(places, i)) || boxIsAsync(context, schedule);
  const all = places.steps * places.turns;
  const commit: readonly Statement[] = isAsync ? [{ kind: "commit" }] : [];
  const wait = (pending: number): readonly Statement[] => (isAsync ? [{ kind: "wait", pending }] : []);
  const of = (some: readonly GridInput[], at: Expr): readonly Statement[] =>
    some.flatMap((i) => (madeInRegisters(context, schedule, i) ? readCopies(places, i, at) : [copyOf(places, i, at)]));
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
  const [sent = [], ...others] = sendOff(places, step);
  const inside =
    stage === 1
      ? [MET, ...copies(step), ...scales(places, step), ...arrived(0), ...sent, products(0), ...scaled(places)]
      : [
          ...scales(places, step),
          ...arrived(ahead - 1),
          ...sent,
          ...freed,
          products(inFlight),
          ...scaled(places),
          ...others.flatMap((g) => [...g, products(inFlight)]),
        ];
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
    ...scales(places, step),
    awaitOf(places, step),
    window && windowAwait(places, window, step),
    ...sendOff(places, step).flat(),
    ended(inFlight),
    left(step, inFlight),
    ...scaled(places),
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

// ---- the products of a step --------------------------------------------------------------------------------------------------------------

/**
 * The products of a step by an instruction that reads shared memory itself (wgmma), in groups that are each committed. Fragments of a factor that it takes
 * in registers are fetched ahead of their group.
 */
function sendOff(places: GridPlaces, step: Expr): readonly (readonly Statement[])[] {
  const { context, schedule } = places;
  const { sum, intrinsic, inputs, target, scale } = context;
  const name = places.name(sum, "part");
  const groups = groupsOf(context, schedule);
  const parts = partsOf(context, places.size) / groups;
  return upTo(groups).map((group) => {
    const tileOfPart = (input: GridInput, part: Expr): TileAccess => {
      const inSum = inPart(places, part);
      const inKept = places.elementAt(input.kept);
      const { window } = places;
      const access =
        input === window?.input
          ? tapAccess(places, window, step, inKept, inSum)
          : ringAt(places, input, step, [inKept, inSum]);
      return { axes: tileAxes(places, input), access, by: "instruction" };
    };
    const read = inputs.filter(({ operand }) => readsShared(operand));
    const held = inputs.filter(({ operand }) => !readsShared(operand));
    const partAt = (first: number): Expr => plus(parts * group + first, axis(name));
    const fetches = held.flatMap((input) => fetchesOfInput(places, input, step, partAt(0)));
    /** The issues of so many parts from one on. */
    const issues = (first: number, count: number, begins?: true): readonly Statement[] => {
      const part = partAt(first);
      const fragments = held.map((input) => {
        const index = registerOf(places, input, part, places.counter(input.kept, "fragment"));
        return [input.operand.name, { file: input.operand.name, index }] as const;
      });
      const issue: Statement = {
        kind: "register-issue",
        intrinsic,
        registers: { [target.name]: places.issued(), ...Object.fromEntries(fragments) },
        tiles: Object.fromEntries(read.map((input) => [input.operand.name, tileOfPart(input, part)])),
        ...(begins && { begins }),
      };
      return unrolled(name, count, places.eachSum([issue]));
    };
    return [
      ...(fetches.length > 0 ? unrolled(name, parts, fetches) : []),
      { kind: "fence", on: "registers", of: intrinsic },
      ...(scale ? [...issues(0, 1, true), ...(parts > 1 ? issues(1, parts - 1) : [])] : issues(0, parts)),
      { kind: "commit", of: intrinsic },
    ];
  });
}

/** Reads what the sums of a step are multiplied by, ahead of its products; nothing where the instruction adds to sums itself. */
function scales(places: GridPlaces, step: Expr): readonly Statement[] {
  const { scale, rows, columns } = places.context;
  if (!scale) return [];
  const { there, inTile } = places.ofStep(step);
  const { counters } = there.countersOf(inTile, number(0));
  there.place(rows, there.elementAt(rows), counters);
  there.place(columns, there.elementAt(columns), counters);
  const axes = [rows, columns].map((a) => places.name(a, "in"));
  const fetches = places.scales().map(({ register, factor }): Statement => {
    const made = substitute(factor, counters);
    const [access = internal(`a scale of ${printExpr(factor)} is no tensor's`)] = accessesIn(made);
    return { kind: "fetch", register, tile: { axes, access, by: "elements", made } };
  });
  return places.eachSum(fetches);
}

/** Adds the scaled sums of a step to the others. */
function scaled(places: GridPlaces): readonly Statement[] {
  if (!places.context.scale) return [];
  const by = places.scales().map(({ register }) => register);
  return places.eachSum([{ kind: "accumulate", register: places.issued(), scales: by, into: places.sum() }]);
}

/**
 * All products of a step. Fragments are fetched either just before their part is multiplied, or during the part before.
 */
function multiply(places: GridPlaces, step: Expr): readonly Statement[] {
  const { sum } = places.context;
  const parts = fetchesIn(places.context, places.schedule);
  const name = places.name(sum, "part");
  const part = axis(name);
  const fetches = (at: Expr): readonly Statement[] => fetchesOf(places, step, at);
  const issues = (at: Expr): readonly Statement[] => issuesOf(places, at);
  if (places.schedule.fragments === "rolled") return multiplyRolled(places, step, name);
  if (places.schedule.fragments === "inline" || parts === 1)
    return unrolled(name, parts, [...fetches(part), ...issues(part)]);
  return [
    ...fetches(number(0)),
    ...unrolled(name, parts - 1, [...fetches(plus(part, 1)), ...issues(part)]),
    ...issues(number(parts - 1)),
  ];
}

/**
 * The products of a step whose first fragments have already been fetched.
 * @param freed issued after the step's last fetches but one; the stage of the previous step is free by then
 * @param next issued before the last products: the barrier that admits the next step, and the fetch of its first
 * fragments
 */
function multiplyAcross(
  places: GridPlaces,
  step: Expr,
  freed: readonly Statement[],
  next: readonly Statement[],
): readonly Statement[] {
  const parts = fetchesIn(places.context, places.schedule);
  const name = places.name(places.context.sum, "part");
  const part = axis(name);
  const ahead = (at: Expr): readonly Statement[] => [...fetchesOf(places, step, plus(at, 1)), ...issuesOf(places, at)];
  return [
    ...fetchesOf(places, step, number(1)),
    ...freed,
    ...issuesOf(places, number(0)),
    ...(parts > 2 ? unrolled(name, parts - 2, ahead(plus(part, 1))) : []),
    ...next,
    ...issuesOf(places, number(parts - 1)),
  ];
}

/** Kept elements of a tile (8 rows, one matrix) of which two tiles share one `ldmatrix` of four matrices. */
const PAIRED_EXTENT = 8;

/**
 * The products of the only step, row of taps by row of taps. Fragments of the image stay in registers for the next row, which reads the same
 * rows of the image and one below.
 */
function multiplyRolled(places: GridPlaces, step: Expr, name: string): readonly Statement[] {
  const rolled = rolledOf(places.context, places.schedule);
  if (typeof rolled === "string") internal(`${rolled}`);
  const { input, count, taps, parts } = rolled;
  const others = places.context.inputs.filter((i) => i !== input);
  const held = axis(name);
  const fragment = places.counter(input.kept, "fragment");
  const turned = (first: Expr, row: Expr): Expr => plus(times(count, held), remainder(plus(first, row), count));
  const issues = (row: Expr): readonly Statement[] => {
    const part = plus(times(parts, row), held);
    const fetched = others.flatMap((other) => fetchesOfInput(places, other, step, part));
    return [...fetched, ...issuesOf(places, part, (i) => (i === input ? turned(fragment, row) : undefined))];
  };
  const ahead = fetchesOfInput(places, input, step, held, { register: (first) => plus(times(count, held), first) });
  const row = plus(axis(places.fresh("tap_row")), 1);
  const below = fetchesOfInput(places, input, step, plus(times(parts, row), held), {
    register: (first) => turned(first, row),
    only: count - 1,
  });
  return [
    ...unrolled(name, parts, ahead),
    ...unrolled(name, parts, issues(number(0))),
    ...unrolled(places.fresh("tap_row"), taps - 1, unrolled(name, parts, [...below, ...issues(row)])),
  ];
}

/** A position in a part of a step's sum, or in the parts that are fetched at once. */
const inPart = (places: GridPlaces, part: Expr): Expr => {
  const { context, schedule } = places;
  const { sum } = context;
  const inParts = placeInParts(context, schedule, places.counter(sum, "in"));
  return plus(times(sum.extent * partsAtOnce(context, schedule), part), inParts);
};

/** The counters within a tile of an input. */
const tileAxes = (places: GridPlaces, { operand, kept }: GridInput): readonly string[] =>
  operand.dims.map((d) => places.name(d.name === kept.axis ? kept : places.context.sum, "in"));

/** Fetches the fragments of one part of a step into the register set for that part. */
function fetchesOf(places: GridPlaces, step: Expr, part: Expr): readonly Statement[] {
  return places.context.inputs.flatMap((input) => fetchesOfInput(places, input, step, part));
}

/** @param how the register of a fragment, if not that of its set; the only fragment to fetch, if not all */
function fetchesOfInput(
  places: GridPlaces,
  input: GridInput,
  step: Expr,
  part: Expr,
  how: { readonly register?: (first: Expr) => Expr; readonly only?: number } = {},
): readonly Statement[] {
  const { operand, kept } = input;
  const count = fragmentsAlong(kept, places.schedule);
  const box = places.box?.input === input ? places.box : undefined;
  const isMade = madeInRegisters(places.context, places.schedule, input);
  const together = partsAtOnce(places.context, places.schedule);
  const by = isMade || together > 1 || (box && !box.inRows) ? "elements" : fetchBy(input);
  const paired =
    how.only === undefined && by.startsWith("ldmatrix") && count % 2 === 0 && kept.extent === PAIRED_EXTENT;
  const name = places.name(kept, "fragment");
  const first = how.only === undefined ? (paired ? times(2, axis(name)) : axis(name)) : number(how.only);
  const place = plus(plus(places.warpAt(kept), times(kept.extent, first)), places.counter(kept, "in"));
  const inSum = inPart(places, part);
  const along = operand.dims.findIndex((d) => (d.name === kept.axis) === paired);
  const several = paired ? 2 : together;
  const made = isMade ? elementOf(places, input, step, [place, inSum]) : undefined;
  const staged = made && accessesIn(made).find(({ tensor }) => places.computation.tensors[tensor] === undefined);
  const fetch: Statement = {
    kind: "fetch",
    register: { file: operand.name, index: how.register?.(first) ?? registerOf(places, input, part, first) },
    tile: {
      axes: tileAxes(places, input),
      ...(box
        ? boxAccess(places, box, step, place, inSum)
        : { access: staged ?? ringAt(places, input, step, [place, inSum]) }),
      by,
      ...(made && { made }),
      ...(several > 1 && { several: { count: several, along } }),
    },
  };
  return how.only === undefined ? unrolled(name, paired ? count / 2 : count, [fetch]) : [fetch];
}

/** @param turned the register of an input's fragment, if not that of its set */
function issuesOf(
  places: GridPlaces,
  part: Expr,
  turned: (input: GridInput) => Expr | undefined = () => undefined,
): readonly Statement[] {
  const { target, intrinsic, inputs, sum } = places.context;
  const together = partsAtOnce(places.context, places.schedule);
  const inParts = places.name(sum, "fragment");
  const registers = Object.fromEntries(
    inputs.map((input) => {
      const first = turned(input) ?? registerOf(places, input, part, places.counter(input.kept, "fragment"));
      return [
        input.operand.name,
        { file: input.operand.name, index: together > 1 ? plus(first, axis(inParts)) : first },
      ];
    }),
  );
  const sums = { [target.name]: places.sum() };
  const issue: Statement = { kind: "register-issue", intrinsic, registers: { ...sums, ...registers } };
  const issues = places.eachSum(whereStored(places, [issue]));
  return together > 1 ? unrolled(inParts, together, issues) : issues;
}

/** Work on a tile of sums, tested where an epilogue stores only some of the tiles. */
function whereStored(places: GridPlaces, work: readonly Statement[]): readonly Statement[] {
  const { equation, epilogue } = places.context.mapping.computation;
  const asked = epilogue ? kept(equation, epilogue.equation) : [];
  if (asked.length === 0) return work;
  const ofFragment = places.spansOf((along) => {
    const low = plus(times(places.extent(along), places.tileAt(along)), places.fragmentAt(along));
    return { low, elements: along.extent, grain: along.extent };
  });
  return when(somewhere(conditionOf(asked.reduce(and)), ofFragment), work);
}

/** The register of a fragment in the set that a part of the sum uses; the first of several parts that are fetched at once. */
function registerOf({ context, schedule }: GridPlaces, input: GridInput, part: Expr, fragment: Expr): Expr {
  const set = times(fragmentsAlong(input.kept, schedule), remainder(part, setsOf(context, schedule)));
  return times(partsAtOnce(context, schedule), plus(set, fragment));
}

/** Element size in bytes that `ldmatrix.trans` can transpose. */
const TURNED_BYTES = 2;

/**
 * How fragments are fetched. Elements of other sizes can be fetched only if they are contiguous along the sum, or one
 * by one.
 */
function fetchBy({ operand, contiguous }: GridInput): TileAccess["by"] {
  if (operand.storage === undefined) return "instruction";
  if (contiguous === "sum") return "ldmatrix";
  return bytesOf(operand.dtype) === TURNED_BYTES ? "ldmatrix.trans" : "elements";
}

// ---- partial sums ------------------------------------------------------------------------------------------------------------------------

/** Threads in a block of the second kernel. */
const ADDING_THREADS = 256;

const through = ({ schedule }: GridPlaces): "cluster" | "memory" | undefined => schedule.split?.through;

/** The buffer in which partial sums meet; empty if no sum is split. */
function partialSums(places: GridPlaces): Scratch[] {
  if (!through(places)) return [];
  const { context, schedule } = places;
  const tile = partialTile(context, schedule);
  const dims = dimsOfParts(places, tile);
  const shape = { name: partsName(places), dtype: context.target.dtype, dims };
  if (through(places) === "memory") return [{ ...shape, scope: "workspace", elements: volumeOf(dims) }];
  const pitch = pitchOf(context, tile);
  const rows = dims.slice(0, -1);
  const storage = rows.reduceRight<{ place: Expr; below: number }>(
    ({ place, below }, d) => ({ place: plus(times(below, axis(d.name)), place), below: below * d.extent }),
    { place: axis(dims.at(-1)?.name ?? ""), below: pitch },
  ).place;
  return [{ ...shape, scope: "cluster", elements: volumeOf(rows) * pitch, storage }];
}

/** Each warp stores its partial sums once its part of the sum is complete. */
function storeParts(places: GridPlaces): readonly Statement[] {
  const tile = partialTile(places.context, places.schedule);
  const line = places.elementAt(tile.across);
  const at = places.elementAt(tile.line);
  const index =
    through(places) === "memory"
      ? [places.part, ...tileOf(places, tile), line, at]
      : [over(line, tile.share), places.part, remainder(line, tile.share), at];
  return places.eachSum([places.drained((sum) => assignment(access(partsName(places), index), sum))]);
}

/** After that, all blocks of a cluster add up the partial sums. */
function addMet(places: GridPlaces): readonly Statement[] {
  if (through(places) !== "cluster") return [];
  const tile = partialTile(places.context, places.schedule);
  const { share } = tile;
  const added = addition(places, tile, share, times(share, places.part), (part, line) => [places.part, part, line]);
  return [{ kind: "barrier", group: "cluster" }, added];
}

/** Waits, before the first write into another block of a cluster, until that block has begun. */
function meeting(places: GridPlaces): readonly Statement[] {
  return through(places) === "cluster" || places.schedule.multicast
    ? [{ kind: "barrier", group: "cluster", of: "beginnings" }]
    : [];
}

/**
 * The second kernel of a sum that is split through memory.
 * @param dealt wraps the work of a tile's blocks in loops over tiles
 */
function addParts(
  places: GridPlaces,
  dealt: (body: readonly Statement[]) => readonly Statement[],
): readonly Statement[] {
  if (through(places) !== "memory") return [];
  const { team, teamThreads } = places.context;
  const tile = partialTile(places.context, places.schedule);
  const width = widthOf(places, tile);
  const enough = (lines: number): boolean => (lines * tile.lineExtent) / width >= ADDING_THREADS;
  const chunk = divisorsOf(tile.lines).find(enough) ?? tile.lines;
  const chunkName = places.fresh("chunk");
  const first = times(chunk, axis(chunkName));
  const added = addition(places, tile, chunk, first, (part, line) => [
    part,
    ...tileOf(places, tile),
    plus(first, line),
  ]);
  const threads = loop(places.fresh(team), ADDING_THREADS / teamThreads, [added], team);
  return [callBarrier(places), ...dealt([loop(chunkName, tile.lines / chunk, [threads], "block")])];
}

/**
 * Adds up the lines of a tile from `first` on over all parts, and stores them.
 * @param held address of a line of a part
 */
function addition(
  places: GridPlaces,
  tile: PartialTile,
  extent: number,
  first: Expr,
  held: (part: Expr, line: Expr) => readonly Expr[],
): Copy {
  const { rows } = places.context;
  const [line, at] = [places.fresh("line"), places.fresh("place")];
  const sums = upTo(partsOfSum(places.schedule)).map(
    (part): Expr => access(partsName(places), [...held(number(part), axis(line)), axis(at)]),
  );
  const sum = sums.reduce((all, next) => plus(all, next));
  const across = plus(first, axis(line));
  const along = axis(at);
  const [row, column] = tile.line === rows ? [along, across] : [across, along];
  return {
    kind: "copy",
    axes: [
      { name: line, extent },
      { name: at, extent: tile.lineExtent },
    ],
    equation: resultOf(places, row, column, sum),
    width: widthOf(places, tile),
    transfer: "plain",
    group: "block",
  };
}

const partsName = (places: GridPlaces): string => places.fresh("parts");

/** The counters that identify a tile of the output. */
function tileOf(places: GridPlaces, { across, line }: PartialTile): readonly Expr[] {
  const outer = places.context.outer.map((d) => axis(places.fresh(`${d.name}_block`)));
  return [...outer, places.tileAt(across), places.tileAt(line)];
}

function dimsOfParts(places: GridPlaces, { across, line, lines, lineExtent, share }: PartialTile): Dimension[] {
  const { context, schedule } = places;
  const part: Dimension = { name: "part", extent: partsOfSum(schedule) };
  const place: Dimension = { name: line.axis, extent: lineExtent };
  if (through(places) === "cluster")
    return [{ name: "block", extent: part.extent }, part, { name: across.axis, extent: share }, place];
  const tiles = [across, line].map((a) => ({ name: `${a.axis}_tile`, extent: keptTiles(context, a, schedule) }));
  const outer = context.outer.map((d) => ({ name: `${d.name}_block`, extent: d.extent }));
  return [part, ...outer, ...tiles, { name: across.axis, extent: lines }, place];
}

const divisorsOf = (n: number): number[] =>
  upTo(n)
    .map((i) => i + 1)
    .filter((d) => n % d === 0);

// ---- assignments beside the results ------------------------------------------------------------------------------------------------------

/** One copy by a warp for each such assignment; empty if there are none. */
function besideResults(places: GridPlaces): readonly Statement[] {
  const { context, schedule, computation } = places;
  const { rows, columns, team } = context;
  const outer = places.outerCounters();
  const tiles = [
    { at: places.tileAt(rows), count: keptTiles(context, rows, schedule) },
    { at: places.tileAt(columns), count: keptTiles(context, columns, schedule) },
    { at: places.part, count: partsOfSum(schedule) },
    ...[rows, columns].map((a) => ({ at: places.counter(a, team), count: schedule.warps[a.axis] ?? 1 })),
  ];
  return partsOfProgram(computation).beside.map(({ equation, axes }): Statement => {
    const inside = axes.filter((a) => !outer.has(a.name));
    const named = new Map(inside.map((a) => [a.name, places.fresh(`${a.name}_beside`)]));
    const counters = new Map([...outer, ...[...named].map(([name, counter]) => [name, axis(counter)] as const)]);
    // An outer loop that does not index the assignment contributes only its first step.
    const others = computation.axes.flatMap(({ name, extent }) => {
      const at = hasName(axes, name) ? undefined : outer.get(name);
      return at === undefined ? [] : [{ at, count: extent }];
    });
    const first = [...others, ...tiles].flatMap(({ at, count }) => (count > 1 ? [compare("==", at, 0)] : []));
    return {
      kind: "copy",
      axes:
        inside.length === 0
          ? [{ name: places.fresh("beside"), extent: 1 }]
          : inside.map((a) => ({ name: named.get(a.name) ?? a.name, extent: a.extent })),
      equation: guarded(substituteAxes(equation, counters), first),
      width: 1,
      transfer: "plain",
      group: team,
    };
  });
}
