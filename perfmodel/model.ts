/**
 * @file The layered latency model (AMOS, ISCA 2022, section 5.3) for CPUs: what one call of a scheduled mapping takes.
 *
 *     L_0 = steps * max(arithmetic, loads, stores)                  one step: one summed step of one register block
 *     L_l = trips * max(L_(l-1), R_l, W_l) + fill                   R, W: bytes level l fetches and gives back, over its source's bandwidth
 *
 *     level            trips         inner        read       write   bound
 *     registers          720          11.2         6.6         0.2   inner        an entry of l1 is 720 steps
 *     l1                   2        8072.2       397.8       124.0   inner        fetches from l2
 *     l2                  56       16145.0       161.3       473.6   inner        fetches from l3
 *
 * A mapping is compiled once; a schedule is then a few hundred additions and multiplications and no nest is built.
 * `max` is the paper's form, everything overlaps; `sum` is the other end, nothing does. The truth lies between.
 */

import type { Schedule } from "../abstraction/candidate.ts";
import type { Mapping } from "../abstraction/mapping.ts";
import type { LevelCost, Prediction } from "../abstraction/trial.ts";
import { MAPPED_DECISIONS } from "../mapper/schedule/mapped-decisions.ts";
import { traitsOf } from "../mapper/schedule/schedules.ts";
import { REFERENCE_CPU } from "../targets/x86.ts";
import { apply, type Correction } from "./correct.ts";
import { type Footprint, LINE_BYTES } from "./footprint.ts";
import type { DimensionState, Packing } from "./placed.ts";
import { bySpread, type InputState, Plan } from "./plan.ts";
import { type ModelTarget, timingOf } from "./target.ts";

export interface ModelOptions {
  /** Whether the call before has just used the same data, as when kernels are timed; `warm` by default. */
  readonly cache?: "warm" | "flushed";
  /** Which end is the uncorrected prediction; the paper's `max` by default. */
  readonly form?: "max" | "sum";
  /** Learnt from trials: {@link fit}. */
  readonly correction?: Correction;
}

/** One part of the time of a call, were it alone. */
export interface CostTerm {
  /** `issue`, `chain`, `front end`, `load`, `store`, `scatter`, `blocks`, `read l2`, `write l2`, ..., `fill`, `pack`, `pack memory`, `barrier`. */
  readonly name: string;
  readonly seconds: number;
}

export interface Costs {
  readonly terms: readonly CostTerm[];
  /** Everything overlaps; nothing does. */
  readonly bounds: readonly [max: number, sum: number];
  /** What a correction may tell apart besides: the instruction and where each input lies, `a padded`. */
  readonly traits: readonly string[];
}

/**
 * Compiles the model of a mapping.
 * @returns for a schedule its prediction, undefined when it cannot be lowered; a few microseconds
 */
export function createModel(
  mapping: Mapping,
  target: ModelTarget,
  options: ModelOptions = {},
): (schedule: Schedule) => Prediction | undefined {
  const modelOf = bySpread(mapping, (spread) => new LayeredModel(mapping, target, options, spread));
  const { form = "max", correction } = options;
  return (schedule) => {
    const model = modelOf(schedule);
    if (!model?.evaluate(schedule)) return undefined;
    const { max, sum } = model;
    const uncorrectedSeconds = (form === "max" ? max : sum) * model.secondsPerCycle;
    const seconds = correction ? apply(correction, model.costs(schedule)) : uncorrectedSeconds;
    return { seconds, uncorrectedSeconds, levels: model.levels() };
  };
}

/** The same for the parts of the time: what a correction is fitted from. A part is what it would take alone; parts overlap. */
export function createTerms(
  mapping: Mapping,
  target: ModelTarget,
  options: Pick<ModelOptions, "cache"> = {},
): (schedule: Schedule) => Costs | undefined {
  const modelOf = bySpread(mapping, (spread) => new LayeredModel(mapping, target, options, spread));
  return (schedule) => {
    const model = modelOf(schedule);
    return model?.evaluate(schedule) ? model.costs(schedule) : undefined;
  };
}

const traitsOfLoops = traitsOf(MAPPED_DECISIONS);

/** Traffic between a cache and the level behind it, under the schedule evaluated last. Cycles and bytes of one thread and call. */
interface Layer {
  readonly name: string;
  /** Names of its terms: `read l2`. */
  readonly read: string;
  readonly write: string;
  readonly bytes: number;
  readonly readBytesPerCycle: number;
  readonly writeBytesPerCycle: number;
  /** Bytes fetched by each input while the loops inside a position run, and bytes of output that pass. */
  readonly fetched: Float64Array;
  passed: number;
  /** Pages that are begun anew for it, of each input and of the output. */
  readonly started: Float64Array;
  startedOut: number;
  /** Trips of the loops outside of the outermost position whose data fits. */
  entries: number;
  readCycles: number;
  writeCycles: number;
}

class LayeredModel {
  readonly secondsPerCycle: number;
  /** Cycles of one call. */
  max = 0;
  sum = 0;
  private readonly plan: Plan;
  private readonly target: ModelTarget;
  private readonly warm: boolean;
  private readonly layers: readonly Layer[];
  private readonly issueCycles: number;
  private readonly latencyCycles: number;
  private readonly loadCycles: ReadonlyMap<InputState, number>;
  private readonly storeCycles: number;
  // Cycles of the schedule evaluated last, the thread that finishes last.
  private steps = 0;
  private issue = 0;
  private chain = 0;
  private frontEnd = 0;
  private arithmetic = 0;
  private load = 0;
  private store = 0;
  private scatter = 0;
  private blocks = 0;
  private fill = 0;
  private pack = 0;
  private packMemory = 0;
  private barrier = 0;
  private crowded = 0;
  private pages = 0;
  // Of one step, while blocks are gone through.
  private summedSteps = 1;
  private heldCycles = 0;
  private streamingCycles = 0;
  private loopInstructions = 0;

  constructor(mapping: Mapping, target: ModelTarget, { cache = "warm" }: ModelOptions, spread: readonly string[]) {
    const timing = timingOf(target, mapping.intrinsic);
    this.plan = new Plan(mapping, spread);
    this.target = target;
    this.warm = cache === "warm";
    this.secondsPerCycle = 1 / target.clockHz.value;
    this.issueCycles = timing.issueCycles;
    this.latencyCycles = timing.latencyCycles;
    this.storeCycles = timing.storeCycles;
    this.loadCycles = new Map(
      this.plan.inputs.map((i) => [i, timing.loadCycles[i.name] ?? 1 / target.loadsPerCycle.value]),
    );
    this.layers = target.memory.flatMap((level, i): Layer[] => {
      const source = target.memory[i + 1];
      if (level.bytes === undefined || !source) return [];
      return [
        {
          name: level.name,
          read: `read ${source.name}`,
          write: `write ${source.name}`,
          bytes: level.bytes,
          readBytesPerCycle: source.readBytesPerCycle.value,
          writeBytesPerCycle: source.writeBytesPerCycle.value,
          fetched: new Float64Array(this.plan.inputs.length),
          passed: 0,
          started: new Float64Array(this.plan.inputs.length),
          startedOut: 0,
          entries: 1,
          readCycles: 0,
          writeCycles: 0,
        },
      ];
    });
  }

  /** Works everything out. @returns false when the schedule cannot be lowered */
  evaluate(schedule: Schedule): boolean {
    if (!this.plan.read(schedule)) return false;
    this.computeBlocks();
    const packed = this.computePacking(schedule.threads);
    this.computeTraffic(packed);
    this.combine();
    return true;
  }

  /** Innermost first; each level's trips are within one trip of the level after it. */
  levels(): readonly LevelCost[] {
    const levels: LevelCost[] = [];
    const first = this.layers[0]?.entries ?? 1;
    const perStep = (cycles: number): number => cycles / this.steps;
    levels.push(
      level(
        "registers",
        this.steps / first,
        perStep(this.arithmetic + this.scatter + this.blocks),
        perStep(this.load),
        perStep(this.store),
      ),
    );
    let inner = this.innermost() / first;
    let stages = this.steps / first;
    for (const [i, layer] of this.layers.entries()) {
      const outside = this.layers[i + 1]?.entries ?? 1;
      const trips = layer.entries / outside;
      const [read, write] = [layer.readCycles / layer.entries, layer.writeCycles / layer.entries];
      levels.push(level(layer.name, trips, inner, read, write));
      inner = trips * Math.max(inner, read, write) + fillOf(trips * inner, trips * (read + write), trips * stages);
      stages = trips;
    }
    if (this.pack > 0 || this.packMemory > 0) levels.push(level("pack", 1, this.pack, this.packMemory, 0));
    return levels;
  }

  /** Of the schedule evaluated last. */
  costs(schedule: Schedule): Costs {
    const terms: CostTerm[] = [];
    const add = (name: string, cycles: number): void => {
      terms.push({ name, seconds: cycles * this.secondsPerCycle });
    };
    add("issue", this.issue);
    add("chain", this.chain);
    add("front end", this.frontEnd);
    add("load", this.load);
    add("store", this.store);
    add("scatter", this.scatter);
    add("blocks", this.blocks);
    for (const layer of this.layers) {
      add(layer.read, layer.readCycles);
      add(layer.write, layer.writeCycles);
    }
    add("fill", this.fill);
    add("pack", this.pack);
    add("pack memory", this.packMemory);
    add("barrier", this.barrier);
    const traits = [this.plan.mapping.intrinsic.name, ...traitsOfLoops(schedule)];
    return { terms, bounds: [this.max * this.secondsPerCycle, this.sum * this.secondsPerCycle], traits };
  }

  // ---- level 0 ----------------------------------------------------------------------------------------------------------------

  private computeBlocks(): void {
    const { plan, target } = this;
    const { held, streaming } = plan;
    this.issue = this.chain = this.frontEnd = this.arithmetic = this.load = 0;
    this.heldCycles = held ? this.cyclesToLoad(held) : 0;
    this.streamingCycles = this.cyclesToLoad(streaming);
    this.summedSteps = 1;
    // Iterations of the innermost loop a step: what is unrolled shares one.
    let iterations = 1;
    for (const d of plan.reduce) {
      this.summedSteps *= d.steps;
      iterations *= d.blocks / d.steps;
    }
    this.loopInstructions = target.loopInstructions.value * iterations;
    this.steps = this.summedSteps;
    let blocks = 1;
    for (const d of plan.spatial) blocks *= d.ownBlocks;
    this.steps *= blocks;
    this.visitBlocks(0, 1, 1, 1, 1);
    const { tiles, scattered, digits, sideBySide } = plan.ownStores();
    const { scalar } = target;
    // Calculated a vector at a time where the kernel's instructions have vectors of sixteen, and then stored so or taken apart.
    const calculated = plan.operations * (plan.vectorRows ? scalar.vectorOperation.value : scalar.operation.value);
    const stored = sideBySide ? scalar.sideBySide.value : scalar.scattered.value + digits * scalar.digit.value;
    const element = sideBySide && !plan.vectorRows ? stored * (1 + calculated) : stored + calculated;
    this.store = tiles * this.storeCycles * (1 + plan.straddling);
    if (plan.passes > 1) {
      // Sums stored for the next pass, and loaded again.
      this.store += tiles * (plan.passes - 1) * this.storeCycles;
      this.load += (tiles * (plan.passes - 1)) / target.loadsPerCycle.value;
    }
    this.scatter = scattered * element;
    this.blocks = blocks * (plan.passes * target.blockCycles.value + (plan.passes - 1) * PASS_CYCLES);
  }

  /** Whole blocks and what is left of each kept dimension: every kind of register block, with the times it is run. */
  private visitBlocks(index: number, trips: number, accumulators: number, held: number, streaming: number): void {
    const d = this.plan.spatial[index];
    if (d === undefined) {
      this.addBlock(trips, accumulators, held, streaming);
      return;
    }
    const ofHeld = this.plan.held?.own.has(d) ?? false;
    const ofStreaming = this.plan.streaming.own.has(d);
    const part = (times: number, count: number): void =>
      this.visitBlocks(
        index + 1,
        trips * times,
        accumulators * count,
        ofHeld ? held * count : held,
        ofStreaming ? streaming * count : streaming,
      );
    if (d.left === d.block) {
      part(d.ownBlocks, d.block);
      return;
    }
    if (d.ownWhole > 0) part(d.ownWhole, d.block);
    if (d.left > 0) part(1, d.left);
  }

  private addBlock(blocks: number, accumulators: number, held: number, streaming: number): void {
    const { target, plan } = this;
    const loaded = (plan.held ? held : 0) + streaming;
    const steps = blocks * this.summedSteps * plan.insideShare * plan.workedShare;
    const issue = accumulators * this.issueCycles;
    // Each accumulator waits for itself once a step, but later blocks begin while this one waits, as far as the window reaches.
    const blockInstructions = (this.summedSteps / plan.passes) * (accumulators + loaded);
    const chain = this.latencyCycles / Math.max(1, target.window.value / blockInstructions);
    const frontEnd = (accumulators + loaded + this.loopInstructions) / target.instructionsPerCycle.value;
    const load = (plan.held ? held * this.heldCycles : 0) + streaming * this.streamingCycles;
    this.issue += steps * issue;
    this.chain += steps * chain;
    this.frontEnd += steps * frontEnd;
    this.arithmetic += steps * Math.max(issue, chain, frontEnd);
    this.load += steps * load;
  }

  private cyclesToLoad(input: InputState): number {
    return (this.loadCycles.get(input) ?? 0) * (1 + input.placed.straddling);
  }

  // ---- packing ----------------------------------------------------------------------------------------------------------------

  /** Scalar work of the packing phases. @returns bytes that they read and write, of the thread that finishes last */
  private computePacking(threads: number): { read: number; written: number; resident: number } {
    const moved = { read: 0, written: 0, resident: this.plan.outputBytes };
    this.pack = 0;
    for (const input of this.plan.inputs) {
      moved.resident += input.placed.bufferBytes;
      const { packing, edges } = input.placed;
      if (packing !== undefined) {
        const share = this.plan.packedBy(threads, packing, input);
        this.pack += share * this.packingCycles(packing);
        moved.read += share * packing.sourceBytes;
        moved.written += share * packing.passingBytes;
        moved.resident += packing.sourceBytes;
      }
      const across = edges === undefined ? 0 : this.plan.edgeShare(input);
      if (edges === undefined || across === 0) continue;
      const share = across * this.plan.packedBy(threads, edges, input);
      this.pack += share * this.packingCycles(edges);
      moved.read += share * edges.bytes;
      moved.written += share * edges.passingBytes;
      moved.resident += across * edges.bytes;
    }
    this.barrier = threads > 1 && moved.written > 0 ? this.target.barrierCycles.value : 0;
    return moved;
  }

  private packingCycles({ kind, elements, run, bytes, arithmetic, gathered }: Packing): number {
    const { scalar } = this.target;
    switch (kind) {
      case "copy":
        return bytes * scalar.copyByte.value + (elements / run) * scalar.copyRun.value;
      case "strided":
        return elements * scalar.strided.value;
      case "indexed":
        return (
          elements *
          ((gathered ? scalar.strided : scalar.indexed).value +
            arithmetic.digits * scalar.digit.value +
            arithmetic.guards * scalar.guard.value)
        );
      default:
        return kind satisfies never;
    }
  }

  // ---- memory -----------------------------------------------------------------------------------------------------------------

  /**
   * From the register block outwards: what the loops inside a position touch, and what each cache must fetch for it. While one trip
   * of a loop fits, its next trip finds what both share, so the loop fetches its distinct bytes; else every trip fetches its own.
   */
  private computeTraffic(packed: { read: number; written: number; resident: number }): void {
    const { plan, layers } = this;
    const { inputs, ordered, loops } = plan;
    // Partial sums, in the output or beside it, pass as results do.
    const sums = plan.passes > 1 ? plan.sums : plan.output;
    // Shared caches hash addresses over their sets; private ones take them as they come, and prefetch.
    const shared = layers.length > 2 ? layers[layers.length - 1] : undefined;
    // The mean block: as many of them as there are cover all steps.
    for (const d of ordered) d.covered = d.ownSteps / d.ownBlocks;
    sums.measure();
    for (const input of inputs) input.placed.footprint.measure();
    let total = this.touched(sums);
    let crowded = this.crowded;
    let open = this.pages;
    let trips = 1;
    for (const d of ordered) trips *= d.ownBlocks;
    for (const layer of layers) {
      for (let i = 0; i < inputs.length; i++) layer.fetched[i] = inputs[i]?.placed.footprint.lines ?? 0;
      for (let i = 0; i < inputs.length; i++) layer.started[i] = inputs[i]?.placed.footprint.pages ?? 0;
      layer.passed = sums.lines;
      layer.startedOut = sums.pages;
      layer.entries = trips;
    }
    for (let position = loops.length - 1; position >= 0; position--) {
      const nested = loops[position];
      if (nested === undefined || nested.trips <= 1) continue;
      const d = nested.dimension;
      const [before, beforeCrowded] = [total, crowded];
      const followed = keptShare(open, STREAMS);
      d.covered = nested.covers;
      total = this.measureAfter(d, sums);
      crowded = this.crowded;
      open = this.pages;
      for (const layer of layers) {
        const kept = keptShare(layer === shared ? before : beforeCrowded, layer.bytes);
        for (let i = 0; i < inputs.length; i++) {
          const footprint = inputs[i]?.placed.footprint;
          if (footprint === undefined) continue;
          const { lines, pages } = footprint;
          const trip = layer.fetched[i] ?? 0;
          const fetched = kept * lines + (1 - kept) * nested.trips * trip;
          layer.fetched[i] = fetched;
          // Where the prefetcher loses its place, it begins anew as often as there is something to fetch.
          layer.started[i] = followed * pages + ((1 - followed) * (layer.started[i] ?? 0) * fetched) / trip;
        }
        // Summed loops pass over accumulators in registers: the output moves once a block and pass.
        if (!d.spatial && !nested.pass) continue;
        const trip = layer.passed;
        layer.passed = kept * sums.lines + (1 - kept) * nested.trips * trip;
        layer.startedOut = followed * sums.pages + ((1 - followed) * layer.startedOut * layer.passed) / trip;
      }
      trips /= nested.trips;
      for (const layer of layers) if (total <= layer.bytes) layer.entries = trips;
    }
    if (sums !== plan.output) {
      plan.output.measure();
      for (const layer of layers) layer.passed += plan.output.lines;
    }
    this.packMemory = 0;
    for (const layer of layers) {
      // The call before left what fits.
      const missing = this.warm ? 1 - keptShare(packed.resident, layer.bytes) : 1;
      let fetched = 0;
      // What is fetched again and again is fetched for blocks with something to do; once, all of it.
      for (let i = 0; i < inputs.length; i++) {
        const bytes = layer.fetched[i] ?? 0;
        fetched += Math.max(plan.workedShare * bytes, Math.min(bytes, inputs[i]?.placed.footprint.lines ?? 0));
      }
      layer.readCycles = (missing * fetched) / layer.readBytesPerCycle;
      layer.writeCycles = (missing * layer.passed) / layer.writeBytesPerCycle;
      if (layer !== shared) {
        let starts = 0;
        for (const pages of layer.started) starts += pages;
        if (layer !== layers[0]) layer.readCycles += missing * START_CYCLES * Math.min(starts, fetched / LINE_BYTES);
        layer.writeCycles += missing * START_CYCLES * Math.min(layer.startedOut, layer.passed / LINE_BYTES);
      }
      const moved = packed.read / layer.readBytesPerCycle + packed.written / layer.writeBytesPerCycle;
      this.packMemory = Math.max(this.packMemory, missing * moved);
    }
  }

  /** Footprints after a dimension has grown; others stay as they were. @returns lines of all */
  private measureAfter(d: DimensionState, sums: Footprint): number {
    const { inputs, outputOwn } = this.plan;
    if (outputOwn.has(d)) sums.measure();
    for (const { own, placed } of inputs) if (own.has(d)) placed.footprint.measure();
    return this.touched(sums);
  }

  /** @returns lines of all footprints as they were measured; `crowded` is what they take of the first level */
  private touched(sums: Footprint): number {
    const { inputs } = this.plan;
    let total = sums.lines;
    // Results wait in registers while what crowds the sets goes by.
    this.crowded = sums.lines;
    this.pages = sums.pages;
    for (const { placed } of inputs) {
      total += placed.footprint.lines;
      this.crowded += placed.footprint.crowded;
      this.pages += placed.footprint.pages;
    }
    return total;
  }

  // ---- all levels -------------------------------------------------------------------------------------------------------------

  private innermost(): number {
    return Math.max(this.arithmetic + this.scatter + this.blocks, this.load, this.store);
  }

  private combine(): void {
    let inner = this.innermost();
    let stages = this.steps / (this.layers[0]?.entries ?? 1);
    this.fill = 0;
    this.sum = this.arithmetic + this.scatter + this.blocks + this.load + this.store;
    for (const [i, layer] of this.layers.entries()) {
      const { entries, readCycles, writeCycles } = layer;
      const trips = entries / (this.layers[i + 1]?.entries ?? 1);
      const fill = fillOf(inner, readCycles + writeCycles, trips * stages);
      this.fill += fill;
      this.sum += readCycles + writeCycles;
      inner = Math.max(inner, readCycles, writeCycles) + fill;
      stages = trips;
    }
    this.max = inner + Math.max(this.pack, this.packMemory) + this.barrier;
    this.sum += this.pack + this.packMemory + this.barrier;
  }
}

const [, , L2] = REFERENCE_CPU.memories;
const STREAMS = L2.streams.value;

/**
 * Cycles lost where it begins with a page, until it is ahead: of what comes from behind the private caches, and of what is written into
 * the second level, whose lines are not asked for ahead. What is read from there comes in time. Fitted to 131 schedules of a depthwise
 * convolution of 5 MB that differ in the order of their loops, confirmed by 70 of a 1x1 convolution in u8s8 (Xeon with AMX, 2026-11-21).
 */
const START_CYCLES = 12;

/**
 * Cycles a register block waits for the sums of the pass before, besides their bandwidth: nothing can begin without them. The orders of a
 * matmul of 1024 x 1024 x 1024 in f32 in which they lie in the second level took 76 longer a block and pass than the same blocks in one
 * pass, those in which they lie behind it 340 (Xeon with AMX and 2 MiB of second level, 2026-11-21).
 */
const PASS_CYCLES = 150;

/**
 * What fetching and computing cannot overlap: the first stage waits for its data. AMOS's
 * `(trips - 1) * max(memory, compute) + (memory + compute)` (tenet_integrate.py), with a trip of the level inside as the stage,
 * since caches fetch line by line and not a tile at a time.
 */
function fillOf(inner: number, moved: number, stages: number): number {
  return Math.min(inner, moved) / Math.max(1, stages);
}

/**
 * Share of what a trip touched that the next trip finds: all up to three quarters of the capacity, because lines are not spread
 * evenly over the sets; nothing from five quarters on, because what comes round is thrown out just before it is asked for.
 */
function keptShare(touched: number, capacity: number): number {
  return Math.min(1, Math.max(0, 2.5 - (2 * touched) / capacity));
}

function level(name: string, trips: number, inner: number, read: number, write: number): LevelCost {
  const bound = inner >= read && inner >= write ? "inner" : read >= write ? "read" : "write";
  return { level: name, trips, inner, read, write, bound };
}
