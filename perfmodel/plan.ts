/**
 * @file Counts the operations of a mapping's schedule without lowering it. The mapping is compiled once, and schedules are read into it.
 *
 *     conv2d u8s8 NHWC 64x56x56, n <- k, k <- c on avx512.vpdpbusd, block q 12, k 2, a padded, b tiled
 *       issues 1806336    loads of a 903168, of b 161280    stores 12544    packed 200704    distinct bytes of a 215296, of b 36864
 *
 * Counts are products over dimensions, because a nest is one: a dimension has `whole` blocks of `block` steps and at most one
 * smaller block of `left` steps. They equal what a walk over the lowered nest counts (test/perfmodel/perfmodel-counts.deep.test.ts).
 *
 * The results of a scheduled mapping: how whole tiles reach the output, which elements go through the scratch block, and the memory both
 * touch.
 *
 *     results.ownStores()        { tiles: 12544, scattered: 0, digits: 0, sideBySide: false }
 *
 * The cost of a copy inside a loop: a small buffer that is filled in each step of the loops outside.
 *
 *     in 1x128x56x56 f32, padded within g of 32      32 copies of 53 KB, loaded from 53 KB; once a call it is one of 1.7 MB
 */

import type { Placement, Schedule } from "../abstraction/candidate.ts";
import { byName, product, sumOf, volumeOf, withName } from "../abstraction/collections.ts";
import { outputOf } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { number } from "../abstraction/expression.ts";
import { type Operand, operandOf } from "../abstraction/intrinsic.ts";
import type { Mapping } from "../abstraction/mapping.ts";
import { tileRowElements } from "../abstraction/memory-tile.ts";
import { isFew, linesAtOnce, regionsOf } from "../mapper/lower/ahead.ts";
import { edgeIssues, edgesFit } from "../mapper/schedule/block.ts";
import { borderBlocks } from "../mapper/schedule/borders.ts";
import { PASS_LOOPS, parseLoop, partialReach } from "../mapper/schedule/cache-tiles.ts";
import { dependsOn, type LoopDimension, wholeStepsOf } from "../mapper/schedule/dimensions.ts";
import { dimensionsUnder, spreadable } from "../mapper/schedule/gaps.ts";
import { unschedulable } from "../mapper/schedule/mapped.ts";
import { placementsOf } from "../mapper/schedule/place.ts";
import { reachOfTarget } from "../mapper/schedule/reach.ts";
import {
  copyWithin,
  movedBy,
  tileBytesWithin,
  tilesWithin,
  type WithinCopy,
  type WithinTiles,
} from "../mapper/schedule/within.ts";
import { registerClass, registersTaken, writesVectorRows } from "../targets/index.ts";
import { type Census, censusOf, shareIn } from "./census.ts";
import { AffineFootprint, type Footprint, RunFootprint, type Term, term } from "./footprint.ts";
import {
  at,
  bytesOfTensor,
  copyPacking,
  type DimensionState,
  operationsIn,
  outputFootprint,
  outputPlace,
  type Packing,
  type PlacedInput,
  placedInput,
  type ResultDimension,
  resultDimension,
  straddlingShare,
} from "./placed.ts";

export interface InputState {
  readonly name: string;
  readonly operand: Operand;
  /** Dimensions that its tiles depend on. */
  readonly own: ReadonlySet<DimensionState>;
  readonly placements: Readonly<Partial<Record<Placement, PlacedInput>>>;
  /** Whether its last step in a padded copy reads elements of other steps; allowed for one input only. */
  readonly runsPast: boolean;
  /** Machine registers that a tile takes. */
  readonly registers: number;
  /** Its placement under the schedule read last. */
  placed: PlacedInput;
  /** Its tiles in a full register block. */
  tiles: number;
}

/** A loop around the register block under the schedule read last: over the blocks of a dimension, or over tiles of them. */
interface LoopState {
  readonly dimension: DimensionState;
  /** Blocks of a tile; undefined for the loop over blocks. */
  readonly tile: number | undefined;
  /** Whether each of its steps is a pass over partial sums. */
  pass: boolean;
  /** Steps of one run of it, the mean when the last tile is smaller; and steps of the dimension that they cover together. */
  trips: number;
  covers: number;
}

/** A mapping compiled for reading schedules. It holds one schedule at a time, and the next overwrites its state. */
export class Plan {
  readonly mapping: Mapping;
  readonly inputs: readonly InputState[];
  readonly target: Operand;
  readonly results: Results;
  /** Dimensions in the order of the schedule read last, outermost first. */
  readonly ordered: DimensionState[] = [];
  /** The loops in this order, including those over tiles. */
  readonly loops: LoopState[] = [];
  /** Passes over partial sums, and the memory they touch: the output, or a buffer of tiles. */
  passes = 1;
  readonly sums: Footprint;
  readonly spatial: readonly DimensionState[];
  readonly reduce: readonly DimensionState[];
  accumulators = 1;
  /** The input held in registers; undefined when there is only one input. */
  held: InputState | undefined;
  streaming: InputState;
  /** Inputs beyond two factors, which each issue loads. */
  readonly further: readonly InputState[];
  /** Fraction of the steps that lie inside every border. */
  insideShare = 1;
  /** Fraction of the steps that a condition leaves. */
  workedShare = 1;
  readonly census: Census | undefined;
  private readonly byName: ReadonlyMap<string, DimensionState>;
  /** Entries of an order by their text; those over tiles are added when first used. */
  private readonly loopOf: Map<string, LoopState>;
  /** In the order of the dimensions. */
  readonly states: readonly DimensionState[];
  /** Whether any placement of any input crosses a border. */
  private readonly crosses: boolean;
  private readonly impossible: boolean;
  private readonly registers: number;
  private reads = 0;

  constructor(mapping: Mapping, spread: readonly string[] = []) {
    const { intrinsic } = mapping;
    const dimensions = dimensionsUnder(mapping, { spread });
    const states = dimensions.map(stateOf);
    this.mapping = mapping;
    this.byName = byName(states);
    this.loopOf = new Map(states.map((s) => [s.name, loopState(s, undefined)]));
    this.states = states;
    this.spatial = states.filter((s) => s.spatial);
    this.reduce = states.filter((s) => !s.spatial);
    this.target = operandOf(intrinsic, intrinsic.computation.equation.target.tensor);
    this.registers = registerClass(this.target.file)?.count ?? Number.POSITIVE_INFINITY;
    this.impossible = unschedulable(mapping) !== undefined;
    this.inputs = placementsOf(mapping, { spread }).map((choice): InputState => {
      const operand = operandOf(intrinsic, choice.operand);
      const own = new Set(states.filter((_, i) => dependsOn(mapping, choice.operand, at(dimensions, i))));
      const placements = Object.fromEntries(
        choice.open.map((p) => [p, placedInput(mapping, operand, p, dimensions, states, own, choice.borders)]),
      );
      const placed = at(Object.values(placements), 0);
      const registers = registersTaken(operand.file);
      const { runsPast } = choice;
      return { name: operand.name, operand, own, placements, runsPast, placed, registers, tiles: 1 };
    });
    this.streaming = at(this.inputs, 0);
    this.further = this.inputs.slice(2);
    this.census = censusOf(mapping, dimensions, states);
    this.crosses = this.inputs.some((i) => Object.values(i.placements).some((p) => p.borders.length > 0));
    this.results = new Results(mapping, this.target, dimensions, states, this.census);
    const tileBytes = volumeOf(this.target.dims) * bytesOf(this.target.dtype);
    this.sums =
      partialReach(mapping, { spread }) === undefined ? new RunFootprint(this.spatial, tileBytes) : this.results.output;
  }

  /**
   * Reads a schedule. @returns false when it cannot be lowered: the same answer as `scheduleProblem`, which takes 14 to 20 times as long, three
   * times a whole prediction (bench/results/model-evaluations.md). test/perfmodel/perfmodel-counts.deep.test.ts checks that the two agree
   */
  read(schedule: Schedule): boolean {
    if (this.impossible) return false;
    // 1. Order: every dimension once, kept ones first; before it at most one loop over its tiles.
    const turn = ++this.reads;
    let position = 0;
    let entries = 0;
    for (const text of schedule.order) {
      const loop = this.loopOf.get(text) ?? this.newLoop(text);
      if (loop === undefined) return false;
      const d = loop.dimension;
      this.loops[entries++] = loop;
      if (d.read === turn || (loop.tile !== undefined && d.tileRead === turn)) return false;
      if (loop.tile !== undefined) {
        d.tileRead = turn;
        continue;
      }
      if (d.spatial !== position < this.spatial.length) return false;
      d.read = turn;
      this.ordered[position++] = d;
    }
    if (position !== this.byName.size) return false;
    this.loops.length = entries;
    // 2. Placements.
    let past = 0;
    for (const input of this.inputs) {
      const placement = schedule.placement[input.name];
      const placed = placement === undefined ? undefined : input.placements[placement];
      if (placed === undefined) return false;
      if (input.runsPast && placement === "padded" && ++past > 1) return false;
      input.placed = placed;
      input.tiles = 1;
    }
    // 3. Blocks, and the registers they take.
    for (const d of this.ordered) d.block = 1;
    for (const name in schedule.block) {
      const d = this.byName.get(name);
      if (d === undefined) return false;
      d.block = schedule.block[name] ?? 1;
    }
    this.accumulators = 1;
    for (const d of this.ordered) {
      const { block } = d;
      if (!Number.isSafeInteger(block) || block < 1 || block > d.steps) return false;
      d.whole = Math.floor(d.usable / block);
      d.left = d.steps - d.whole * block;
      d.blocks = d.whole + (d.left > 0 ? 1 : 0);
      if (!d.spatial || block === 1) continue;
      this.accumulators *= block;
      for (const input of this.inputs) if (input.own.has(d)) input.tiles *= block;
    }
    if (schedule.within !== undefined && !this.readWithin(schedule)) return false;
    // The input with fewer tiles is held; the first if equal.
    const [first, second] = this.inputs;
    if (first === undefined) return false;
    this.held = second === undefined ? undefined : first.tiles <= second.tiles ? first : second;
    this.streaming = second === undefined || this.held === second ? first : second;
    const kept = this.held ?? this.streaming;
    const inputs = kept.tiles * kept.registers + this.streaming.registers + sumOf(this.further, (i) => i.registers);
    if (this.accumulators + inputs > this.registers || !this.readBorders()) return false;
    if (!this.readTiles(turn)) return false;
    this.deal(schedule.threads);
    this.workedShare = this.census === undefined ? 1 : shareIn(this.census.worked, this.ordered);
    return true;
  }

  /** The copies made inside loops, cached for {@link withinInput}. */
  readonly copies: KnownCopies = new Map();

  /** Reads copies made inside a loop. @returns false when one cannot be made there */
  private readWithin(schedule: Schedule): boolean {
    for (const name in schedule.within) {
      const input = withName(this.inputs, name);
      const placed = input && withinInput(this, schedule, input.operand, input.placed);
      if (input === undefined || placed === undefined) return false;
      input.placed = placed;
    }
    return true;
  }

  /** An entry of an order not seen before; undefined when it does not name tiles of a dimension. */
  private newLoop(text: string): LoopState | undefined {
    const { name, tile } = parseLoop(text) ?? {};
    const dimension = name === undefined ? undefined : this.byName.get(name);
    if (dimension === undefined || tile === undefined) return undefined;
    const loop = loopState(dimension, tile);
    this.loopOf.set(text, loop);
    return loop;
  }

  /** Reads tiles and passes. @returns false for idle tiles, tiles that meet a border, or too many passes */
  private readTiles(turn: number): boolean {
    this.passes = 1;
    for (const d of this.ordered) d.tile = d.blocks;
    if (this.loops.length === this.ordered.length) return true;
    let kept = this.spatial.length;
    let outside = 0;
    for (const loop of this.loops) {
      const { dimension: d, tile } = loop;
      if (tile === undefined) {
        if (d.spatial) kept--;
        continue;
      }
      if (tile >= d.blocks || (d.meets && d.tileRead === turn)) return false;
      d.tile = tile;
      loop.pass = !d.spatial && kept > 0;
      if (!loop.pass) continue;
      this.passes *= Math.ceil(d.blocks / tile);
      if (++outside > PASS_LOOPS) return false;
    }
    return true;
  }

  /** @returns false when blocks at the border need more code than is allowed */
  private readBorders(): boolean {
    if (!this.crosses) return true;
    this.insideShare = 1;
    for (const d of this.ordered) {
      d.border = undefined;
      d.meets = false;
    }
    for (const { placed } of this.inputs) {
      if (placed.borders.length === 0) continue;
      if (!edgesFit(edgeIssues(placed.borders, this.ordered, (d) => d.block, this.accumulators))) return false;
      for (const border of placed.borders) {
        const kept = this.byName.get(border.spatial);
        const summed = this.byName.get(border.reduce);
        if (kept === undefined || summed === undefined) return false;
        kept.border = borderBlocks(border, kept.block);
        summed.meets = true;
        this.insideShare *= kept.border.insideSteps / (kept.steps * summed.steps);
      }
    }
    return true;
  }

  /** Divides the outermost loop into equal ranges for the threads; the last thread also takes the smaller remainder block. */
  private deal(threads: number): void {
    let dealt = threads <= 1;
    for (const d of this.ordered) {
      d.ownWhole = d.whole;
      d.ownSteps = d.steps;
      d.ownBlocks = d.blocks;
    }
    for (const { dimension: d, tile } of this.loops) {
      if (dealt || !d.spatial || (tile === undefined && d.whole === 1 && d.left === 0)) continue;
      dealt = true;
      if (tile === undefined) d.ownWhole = Math.ceil(d.whole / threads);
      else d.ownWhole = Math.ceil(Math.floor(d.whole / tile) / threads) * tile + (d.whole % tile);
      d.ownSteps = d.ownWhole * d.block + d.left;
      d.ownBlocks = d.ownWhole + (d.left > 0 ? 1 : 0);
    }
    for (const loop of this.loops) {
      const { dimension: d, tile } = loop;
      const tiles = Math.ceil(d.ownBlocks / d.tile);
      loop.trips = tile === undefined ? d.ownBlocks / tiles : tiles;
      loop.covers = tile === undefined ? d.ownSteps / tiles : d.ownSteps;
    }
  }

  /** Fraction of an input's tiles that lie in blocks across the edge of a condition. */
  edgeShare({ name, own }: InputState): number {
    const edges = this.census?.edges.get(name);
    return edges === undefined ? 0 : shareIn(edges, own);
  }

  /** Fraction of an input's packing done by the thread that finishes last. */
  packedBy(threads: number, packing: Packing, input: InputState): number {
    if (threads <= 1) return 1;
    let { dealt } = packing;
    if (dealt === undefined) {
      // Tiles are packed in the order of the loops, and the first loop that moves is divided.
      for (const d of this.ordered) if (dealt === undefined && input.own.has(d) && d.steps > 1) dealt = d.steps;
      dealt ??= input.operand.dims.find((o) => o.extent > 1)?.extent ?? 1;
    }
    return Math.ceil(dealt / threads) / dealt;
  }
}

/**
 * One value for each set of dimensions that schedules spread, computed on first use.
 * @returns undefined for a set that cannot be spread
 */
export function bySpread<T>(
  mapping: Mapping,
  make: (spread: readonly string[]) => T,
): (schedule: Schedule) => T | undefined {
  const plain = make([]);
  const others = new Map<string, T>();
  return ({ spread }) => {
    if (spread === undefined || spread.length === 0) return plain;
    const key = spread.join();
    const known = others.get(key);
    if (known !== undefined) return known;
    if (spread.some((name) => !spreadable(mapping).has(name))) return undefined;
    const made = make(spread);
    others.set(key, made);
    return made;
  };
}

/** Built as one object literal: an object built by spreading stores its fields differently, and the whole model takes twice as long. */
function stateOf({ name, kind, steps, wholeSteps }: LoopDimension): DimensionState {
  return {
    name,
    kind,
    spatial: kind === "spatial",
    steps,
    partial: steps !== wholeSteps,
    usable: kind === "spatial" ? wholeSteps : steps,
    block: 1,
    whole: steps,
    left: 0,
    blocks: steps,
    ownSteps: steps,
    ownWhole: steps,
    ownBlocks: steps,
    covered: steps,
    border: undefined,
    meets: false,
    read: 0,
    tile: steps,
    tileRead: 0,
  };
}

function loopState(dimension: DimensionState, tile: number | undefined): LoopState {
  return { dimension, tile, pass: false, trips: 1, covers: 1 };
}

interface Stores {
  readonly tiles: number;
  /** Elements moved from the scratch block to the output. */
  readonly scattered: number;
  /** Quotients and remainders computed for each of them. */
  readonly digits: number;
  /** Whether they are contiguous in the scratch block and in the output. */
  readonly sideBySide: boolean;
}

/** The output of a plan. Dimensions are those of the schedule read last. */
class Results {
  readonly output: Footprint;
  readonly bytes: number;
  /** Dimensions that move it. */
  readonly own: ReadonlySet<DimensionState>;
  /** Fraction of the direct stores of whole tiles that touch two lines; 0 when none is direct. */
  readonly straddling: number;
  /** Operations of the epilogue, and whether the instruction set has the vectors in which its rows are computed. */
  readonly operations: number;
  readonly vectorRows: boolean;
  /** Whether whole tiles are stored directly into the output. */
  private readonly straight: boolean;
  private readonly dimensions: readonly ResultDimension[];
  private readonly census: Census | undefined;

  constructor(
    mapping: Mapping,
    operand: Operand,
    dimensions: readonly LoopDimension[],
    states: readonly DimensionState[],
    census: Census | undefined,
  ) {
    const { computation, intrinsic } = mapping;
    this.census = census;
    this.bytes = bytesOfTensor(outputOf(computation));

    // The same rule as in mapper/lower/scheduled.ts: partial steps go through the scratch block.
    const reach = computation.epilogue ? "an epilogue comes first" : reachOfTarget(mapping, wholeStepsOf(dimensions));
    const elementBytes = bytesOf(outputOf(computation).dtype);
    const tile = volumeOf(operand.dims);
    const rowBytes = Math.min(tile, tileRowElements(operand)) * elementBytes;
    this.straight = typeof reach !== "string";
    this.straddling = typeof reach === "string" ? 0 : straddlingShare(reach, elementBytes, rowBytes);
    this.operations = computation.epilogue ? operationsIn(computation.epilogue.equation.value) : 0;
    this.vectorRows = writesVectorRows(intrinsic.isa);
    const flat = outputPlace(computation);
    this.output = outputFootprint(computation, flat, dimensions, states);
    this.dimensions = dimensions.flatMap((d, i): ResultDimension[] =>
      d.kind === "spatial" ? [resultDimension(d, at(states, i), flat, operand)] : [],
    );
    this.own = new Set(states.filter((s) => s.spatial));
  }

  /** Output tiles of the thread that finishes last, and the elements of those that go through the scratch block. */
  ownStores(): Stores {
    let tiles = 1;
    let elements = 1;
    let straight = this.straight ? 1 : 0;
    // The innermost loop over the scratch block is the one with the smallest stride in the output (mapper/lower/store.ts).
    let innermost: ResultDimension | undefined;
    let digits = 0;
    for (const r of this.dimensions) {
      const { state, step } = r;
      const wholeElements = (state.partial ? state.ownWhole * state.block : state.ownSteps) * step;
      tiles *= state.ownSteps;
      elements *= state.partial ? wholeElements + r.extent - state.whole * state.block * step : wholeElements;
      if (!this.census?.plain.speaksOf(state)) straight *= wholeElements;
      digits += r.digits;
      if ((step > 1 || state.block > 1) && (innermost === undefined || r.coefficient < innermost.coefficient))
        innermost = r;
    }
    if (straight > 0 && this.census)
      straight *= this.census.plain.sum((state, count, isLeft) => {
        const step = this.dimensions.find((r) => r.state === state)?.step ?? 1;
        const own = isLeft ? 1 : state.ownWhole / Math.max(1, state.whole);
        return isLeft && state.partial ? 0 : count * step * own;
      });
    const own = innermost?.digits ?? 0;
    const run = innermost === undefined ? 1 : Math.max(innermost.step, innermost.state.block);
    return {
      tiles,
      scattered: elements - straight,
      digits: own + (digits - own) / run,
      sideBySide: innermost?.coefficient === 1 && innermost.last && own === 0,
    };
  }
}

/** A copy as it is loaded, with the number of elements written each time it is made. */
interface KnownCopy {
  readonly placed: PlacedInput & { readonly packing: Packing };
  readonly each: number;
}
type KnownCopies = Map<WithinCopy, KnownCopy | undefined>;

/** A mapping with the states of its dimensions under the schedule whose blocks have been read. */
interface Place {
  readonly mapping: Mapping;
  readonly states: readonly DimensionState[];
  /** In the order of the schedule, outermost first. */
  readonly ordered: readonly DimensionState[];
  readonly copies: KnownCopies;
}

/**
 * An input that a schedule copies inside a loop.
 * @param once the same input when it is copied once a call
 * @returns undefined when the schedule cannot be lowered
 */
function withinInput(place: Place, schedule: Schedule, operand: Operand, once: PlacedInput): PlacedInput | undefined {
  const { mapping, states, copies } = place;
  if (schedule.placement[operand.name] === "tiled") return tilesInput(place, schedule, operand, once);
  const found = copyWithin(mapping, schedule, operand.name, dimensionsUnder(mapping, schedule));
  if (typeof found === "string") return undefined;
  if (!copies.has(found)) copies.set(found, knownCopy(place, schedule, operand, found, once));
  const known = copies.get(found);
  if (known === undefined) return undefined;
  const { placed, each } = known;
  const elements = copiesOf(schedule, operand.name, states) * each;
  const bytes = elements * bytesOf(operand.dtype);
  return {
    footprint: placed.footprint,
    bufferBytes: placed.bufferBytes,
    straddling: placed.straddling,
    operations: 0,
    packing: { ...placed.packing, elements, bytes, passingBytes: Math.min(bytes, placed.bufferBytes) },
    edges: placed.edges,
    borders: placed.borders,
  };
}

/** The same of tiles, which lie one behind the other: of the dimensions that loops around them move, they hold some steps at a time. */
function tilesInput(place: Place, schedule: Schedule, operand: Operand, once: PlacedInput): PlacedInput | undefined {
  const { mapping, states } = place;
  const dimensions = dimensionsUnder(mapping, schedule);
  const found = tilesWithin(mapping, schedule, operand.name, dimensions);
  if (typeof found === "string") return undefined;
  const run = volumeOf(operand.dims);
  const tile = run * tileBytesWithin(mapping, operand);
  const own = dimensions.flatMap((d, i) => (dependsOn(mapping, operand.name, d) ? [{ d, state: at(states, i) }] : []));
  const held = (d: LoopDimension): number => found.around.find((a) => a.dimension === d)?.steps ?? d.steps;
  const bufferBytes = tile * product(own.map(({ d }) => held(d)));
  // Every step of the dimensions that move it is packed once, and again for each step of the other loops around it.
  const again = loopsAround(schedule, operand.name, states, (name) => own.every(({ d }) => d.name !== name));
  const packing = once.packing ?? madePacking(once, run, tile, product(own.map(({ d }) => d.steps)));
  const bytes = packing.bytes * again;
  return {
    footprint: new RunFootprint(
      own.map(({ d, state }) => ({
        get covered(): number {
          return Math.min(state.covered, held(d));
        },
      })),
      tile,
    ),
    bufferBytes,
    straddling: once.straddling,
    operations: 0,
    packing: {
      ...packing,
      elements: packing.elements * again,
      sourceBytes: packing.kind === "made" ? packing.sourceBytes * again : packing.sourceBytes,
      bytes,
      passingBytes: Math.min(bytes, bufferBytes),
      ahead: packing.kind !== "made" && isFetchedAhead(place, operand.name, found),
    },
    edges: once.edges,
    borders: [],
  };
}

/** Tiles made of narrow ones that were packed ahead of calls. */
const madePacking = ({ bufferBytes, operations }: PlacedInput, run: number, tile: number, tiles: number): Packing => ({
  kind: "made",
  elements: tiles * run,
  run,
  arithmetic: { digits: 0, guards: 0 },
  gathered: false,
  operations,
  bytes: tiles * tile,
  passingBytes: tiles * tile,
  sourceBytes: bufferBytes,
  dealt: undefined,
});

/** Whether the sums of one step have room to fetch what the next step packs: the rule of mapper/lower/ahead.ts. */
function isFetchedAhead({ mapping, ordered }: Place, operand: string, tiles: WithinTiles): boolean {
  const regions = regionsOf(mapping, operand, tiles).filter((r) => !isFew(r));
  return (
    regions.every((region) => {
      const inside = ordered.slice(ordered.findIndex((d) => d.name === region.dimension) + 1);
      const sharing = inside.find((d) => d.spatial && d.blocks > 1)?.blocks ?? 1;
      const summed = inside.find((d) => !d.spatial && d.blocks > 1)?.blocks;
      return summed !== undefined && linesAtOnce(region, sharing * summed) !== undefined;
    }) && regions.length > 0
  );
}

function knownCopy(
  { mapping, states }: Place,
  schedule: Schedule,
  operand: Operand,
  { copy, reach, around }: WithinCopy,
  once: PlacedInput,
): KnownCopy | undefined {
  const bound = mapping.binding[operand.name];
  if (bound?.kind !== "access" || once.packing === undefined) return undefined;
  const size = bytesOf(operand.dtype);
  const terms = dimensionsUnder(mapping, schedule).map((d, i): Term => {
    const whole = term((reach.perStep.get(d.name) ?? 0) / d.step, at(states, i), d.step);
    const held = around.find((a) => a.dimension === d);
    return held ? { ...whole, most: held.steps * d.step } : whole;
  });
  const moved = movedBy(around, () => number(0));
  const packing = copyPacking(mapping, bound, copy, size, once.packing.sourceBytes, moved);
  const rowBytes = Math.min(volumeOf(operand.dims), tileRowElements(operand)) * size;
  return {
    placed: {
      footprint: new AffineFootprint(terms, size),
      bufferBytes: copy.elements * size,
      straddling: straddlingShare(reach, size, rowBytes),
      operations: 0,
      packing,
      edges: once.edges,
      borders: [],
    },
    each: packing.elements,
  };
}

/** How often a call makes the copy: the number of steps of the loops around it. */
function copiesOf(schedule: Schedule, operand: string, states: readonly DimensionState[]): number {
  return loopsAround(schedule, operand, states, () => true);
}

/** Steps of those loops around a copy that are counted. */
function loopsAround(
  schedule: Schedule,
  operand: string,
  states: readonly DimensionState[],
  counts: (dimension: string) => boolean,
): number {
  const last = schedule.order.indexOf(schedule.within?.[operand] ?? "");
  let copies = 1;
  for (let i = 0; i <= last; i++) {
    const loop = parseLoop(schedule.order[i] ?? "");
    for (const { name, blocks } of states) {
      if (loop?.name !== name || !counts(name)) continue;
      // Over tiles of blocks. When the loop over blocks is also outside, that loop alone determines the number.
      if (loop.tile === undefined) copies *= blocks;
      else if (schedule.order.indexOf(name) > last) copies *= Math.ceil(blocks / loop.tile);
    }
  }
  return copies;
}
