/**
 * @file The layered latency model for CPUs (AMOS, ISCA 2022, section 5.3): predicts the time of one call of a scheduled mapping.
 *
 *     L_0 = steps * max(arithmetic, loads, stores)                  one step: one summed step of one register block
 *     L_l = trips * max(L_(l-1), R_l, W_l) + fill                   R, W: bytes level l fetches and gives back, over its source's bandwidth
 *
 *     level            trips         inner        read       write   bound
 *     registers          720          11.2         6.6         0.2   inner        an entry of l1 is 720 steps
 *     l1                   2        8072.2       397.8       124.0   inner        fetches from l2
 *     l2                  56       16145.0       161.3       473.6   inner        fetches from l3
 *
 * A mapping is compiled once. Predicting a schedule then takes a few hundred additions and multiplications, and no nest is built. `max` is the
 * paper's form, in which everything overlaps; `sum` is the other extreme, in which nothing does. The truth lies in between.
 */

import type { Schedule } from "../abstraction/candidate.ts";
import { sumOf } from "../abstraction/collections.ts";
import type { ScalarCycles } from "../abstraction/machine.ts";
import type { Mapping } from "../abstraction/mapping.ts";
import type { LevelCost, Prediction } from "../abstraction/trial.ts";
import { MAPPED_DECISIONS } from "../mapper/schedule/mapped-decisions.ts";
import { traitsOf } from "../mapper/schedule/schedules.ts";
import { THREAD_REGISTERS } from "../targets/index.ts";
import { apply, type Correction, type Costs, type CostTerm } from "./correct.ts";
import { type CountedCode, countedCycles } from "./counted-code.ts";
import { at, type Packing } from "./placed.ts";
import { bySpread, type InputState, Plan } from "./plan.ts";
import { type ModelTarget, timingOf } from "./target.ts";
import { type Layer, Traffic } from "./traffic.ts";

export interface ModelOptions {
  /** Whether the previous call has just used the same data, as in measurements; `warm` by default. */
  readonly cache?: "warm" | "flushed";
  /** Which extreme is the uncorrected prediction; the paper's `max` by default. */
  readonly form?: "max" | "sum";
  /** A correction learnt from trials: {@link fit}. */
  readonly correction?: Correction;
}

/**
 * Compiles the model of a mapping.
 * @returns the prediction of a schedule, in a few microseconds; undefined when it cannot be lowered. With the counted instructions of its
 * compiled code, these take the place of estimated ones
 */
export function createModel(
  mapping: Mapping,
  target: ModelTarget,
  options: ModelOptions = {},
): (schedule: Schedule, code?: CountedCode) => Prediction | undefined {
  const modelOf = bySpread(mapping, (spread) => new LayeredModel(mapping, target, options, spread));
  const { form = "max", correction } = options;
  return (schedule, code) => {
    const model = modelOf(schedule);
    if (!model?.evaluate(schedule, code)) return undefined;
    const { max, sum } = model;
    const uncorrectedSeconds = (form === "max" ? max : sum) * model.secondsPerCycle;
    const seconds = correction ? apply(correction, model.costs(schedule)) : uncorrectedSeconds;
    return { seconds, uncorrectedSeconds, levels: model.levels() };
  };
}

/** The same for the parts of the time, from which a correction is fitted. Each part is the time it would take alone; parts overlap. */
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

class LayeredModel {
  readonly secondsPerCycle: number;
  /** Cycles of one call. */
  max = 0;
  sum = 0;
  private readonly plan: Plan;
  private readonly target: ModelTarget;
  private readonly traffic: Traffic;
  private readonly layers: readonly Layer[];
  private readonly issueCycles: number;
  private readonly latencyCycles: number;
  private readonly loadCycles: ReadonlyMap<InputState, number>;
  private readonly storeCycles: number;
  /** What issues with the same tile of an input share. */
  private readonly sharedCycles: Readonly<Record<string, number>>;
  // Cycles of the schedule evaluated last, on the thread that finishes last.
  private steps = 0;
  private issue = 0;
  private chain = 0;
  private frontEnd = 0;
  private arithmetic = 0;
  private load = 0;
  private store = 0;
  private scatter = 0;
  private blocks = 0;
  /** Register blocks that wait for the sums of the pass before. */
  private waits = 0;
  private fill = 0;
  private pack = 0;
  private packMemory = 0;
  /** The part of the traffic of packing that goes on during the products. */
  private ahead = 0;
  private barrier = 0;
  // Of one step, while blocks are gone through.
  private summedSteps = 1;
  private heldCycles = 0;
  private streamingCycles = 0;
  /** Of the inputs that an issue loads by itself. */
  private furtherCycles = 0;
  private loopInstructions = 0;

  constructor(mapping: Mapping, target: ModelTarget, { cache = "warm" }: ModelOptions, spread: readonly string[]) {
    const timing = timingOf(target, mapping.intrinsic);
    this.plan = new Plan(mapping, spread);
    this.target = target;
    this.secondsPerCycle = 1 / target.clockHz.value;
    this.issueCycles = timing.issueCycles;
    this.latencyCycles = timing.latencyCycles;
    this.storeCycles = timing.storeCycles;
    this.loadCycles = new Map(
      this.plan.inputs.map((i) => [i, timing.loadCycles[i.name] ?? 1 / target.loadsPerCycle.value]),
    );
    this.sharedCycles = mapping.intrinsic.cost?.shared ?? {};
    this.traffic = new Traffic(target, this.plan, cache === "warm");
    this.layers = this.traffic.layers;
  }

  /** Evaluates a schedule. @returns false when the schedule cannot be lowered */
  evaluate(schedule: Schedule, code?: CountedCode): boolean {
    if (!this.plan.read(schedule)) return false;
    this.computeBlocks();
    if (code) this.count(code);
    const packed = packingOf(this.plan, this.target, schedule.threads);
    const moved = this.traffic.read(packed);
    this.blocks += this.waits * at(PASS_CYCLES, Math.min(this.traffic.passLevel, PASS_CYCLES.length - 1));
    this.pack = packed.cycles;
    this.barrier = schedule.threads > 1 && packed.written > 0 ? this.target.barrierCycles.value : 0;
    const share = packed.read === 0 ? 0 : packed.ahead / packed.read;
    this.ahead = moved * share;
    this.packMemory = moved * (1 - share);
    this.combine();
    return true;
  }

  /** Innermost first. The trips of a level are those within one trip of the next level. */
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
      const read = layer.readCycles / layer.entries;
      const write = layer.writeCycles / layer.entries;
      levels.push(level(layer.name, trips, inner, read, write));
      inner = trips * Math.max(inner, read, write) + fillOf(trips * inner, trips * (read + write), trips * stages);
      stages = trips;
    }
    if (this.ahead > 0) levels.push(level("ahead", 1, inner, this.ahead, 0));
    if (this.pack > 0 || this.packMemory > 0) levels.push(level("pack", 1, this.pack, this.packMemory, 0));
    return levels;
  }

  /** Costs of the schedule evaluated last. */
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
    add("ahead", this.ahead);
    add("barrier", this.barrier);
    const traits = [this.plan.mapping.intrinsic.name, ...traitsOfLoops(schedule)];
    return { terms, bounds: [this.max * this.secondsPerCycle, this.sum * this.secondsPerCycle], traits };
  }

  // ---- level 0 ----------------------------------------------------------------------------------------------------------------

  private computeBlocks(): void {
    const { plan, target } = this;
    const { held, streaming, further } = plan;
    this.issue = this.chain = this.frontEnd = this.arithmetic = this.load = 0;
    this.heldCycles = held ? this.cyclesToLoad(held) : 0;
    this.streamingCycles = this.cyclesToLoad(streaming);
    this.furtherCycles = sumOf(further, (input) => this.cyclesToLoad(input));
    this.summedSteps = 1;
    // Iterations of the innermost loop per step: unrolled steps share one.
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
    const { tiles, scattered, digits, sideBySide } = plan.results.ownStores();
    const { scalar } = target;
    // Computed by vectors where the instruction set has vectors of sixteen, and then stored directly or element by element.
    const calculated =
      plan.results.operations * (plan.results.vectorRows ? scalar.vectorOperation.value : scalar.operation.value);
    const stored = sideBySide ? scalar.sideBySide.value : scalar.scattered.value + digits * scalar.digit.value;
    const element = sideBySide && !plan.results.vectorRows ? stored * (1 + calculated) : stored + calculated;
    this.store = tiles * this.storeCycles * (1 + plan.results.straddling);
    if (plan.passes > 1) {
      // Sums stored for the next pass and loaded again.
      this.store += tiles * (plan.passes - 1) * this.storeCycles;
      this.load += (tiles * (plan.passes - 1)) / target.loadsPerCycle.value;
    }
    this.scatter = scattered * element;
    this.blocks = blocks * plan.passes * target.blockCycles.value;
    this.waits = blocks * (plan.passes - 1);
  }

  /** Visits every kind of register block, formed from whole blocks and remainders of each kept dimension, with the number of times it runs. */
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
    const loaded = (plan.held ? held : 0) + streaming + accumulators * plan.further.length;
    const steps = blocks * this.summedSteps * plan.insideShare * plan.workedShare;
    const perLoad = (input: InputState, tiles: number): number =>
      tiles * (input.placed.operations * MAKE_CYCLES + (this.sharedCycles[input.name] ?? 0));
    const beside = perLoad(plan.streaming, streaming) + (plan.held ? perLoad(plan.held, held) : 0);
    const issue = accumulators * this.issueCycles + beside;
    // Each accumulator waits for itself once a step, but later blocks start meanwhile, as far as the reorder window reaches.
    const blockInstructions = (this.summedSteps / plan.passes) * (accumulators + loaded);
    const chain = this.latencyCycles / Math.max(1, target.window.value / blockInstructions);
    const frontEnd = (accumulators + loaded + this.loopInstructions) / target.instructionsPerCycle.value;
    const load =
      (plan.held ? held * this.heldCycles : 0) + streaming * this.streamingCycles + accumulators * this.furtherCycles;
    this.issue += steps * issue;
    this.chain += steps * chain;
    this.frontEnd += steps * frontEnd;
    this.arithmetic += steps * Math.max(issue, chain, frontEnd);
    this.load += steps * load;
  }

  /** Counted instructions instead of estimated ones. What moves bytes or stands in loops without products takes no less than estimated. */
  private count(code: CountedCode): void {
    const { target, plan } = this;
    const counted = countedCycles(code, {
      issueCycles: this.issueCycles,
      latencyCycles: this.latencyCycles,
      instructionsPerCycle: target.instructionsPerCycle.value,
      sendsPerCycle: target.loadsPerCycle.value,
      window: (target.window.value * THREAD_REGISTERS.value) / code.registers,
      accumulators: plan.accumulators,
      summedSteps: this.summedSteps / plan.passes,
      issues: this.issue / this.issueCycles,
    });
    this.chain = counted.chain;
    this.frontEnd = counted.frontEnd;
    this.arithmetic = counted.arithmetic;
    this.load = Math.max(this.load, counted.sends);
    this.scatter = counted.hasOthers ? Math.max(0, this.scatter - counted.around) : 0;
    this.blocks += counted.around;
  }

  private cyclesToLoad(input: InputState): number {
    return (this.loadCycles.get(input) ?? 0) * (1 + input.placed.straddling);
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
    this.max = Math.max(inner, this.ahead) + Math.max(this.pack, this.packMemory) + this.barrier;
    this.sum += this.ahead + this.pack + this.packMemory + this.barrier;
  }
}

/**
 * Cycles that a register block waits for the previous pass's sums in addition to their bandwidth, since nothing can start without them, by the
 * caches that have not kept the sums. For a matmul of 1024 x 1024 x 1024 in f32, orders that keep the sums in the second level took 76 cycles longer
 * a block and pass than the same blocks in a single pass; orders that keep them behind it took 340 (Xeon with AMX and 2 MiB of second level,
 * 2026-11-21). From the first level they come as fast as other data.
 */
const PASS_CYCLES = [10, 76, 340];

/**
 * That an instruction which makes factors of narrow elements adds to the products beside it. Products of 128 rows with 4096 x 4096 weights of 4 bits
 * took 0.12 to 0.17 of f32 in five register blocks, beside the same products of weights made once, and 0.1 of bytes in seven (Zen 5, loaded, processor
 * time, 2026-11-30; bench/results/narrow-weights.md).
 */
const MAKE_CYCLES = 0.15;

/** Vector instructions of Zen 5 where no products stand beside them. */
const VECTORS_PER_CYCLE = 4;

/**
 * Time in which fetching and computing cannot overlap, because the first stage waits for its data. AMOS's `(trips - 1) * max(memory, compute) +
 * (memory + compute)` (tenet_integrate.py), with one trip of the inner level as the stage, since caches fetch lines rather than whole tiles.
 */
function fillOf(inner: number, moved: number, stages: number): number {
  return Math.min(inner, moved) / Math.max(1, stages);
}

/** Packing in one call, of the thread that finishes last. */
interface Packed {
  /** Scalar work. */
  readonly cycles: number;
  /** Bytes; `ahead` are those read that earlier steps have fetched. */
  readonly read: number;
  readonly written: number;
  readonly resident: number;
  readonly ahead: number;
}

function packingOf(plan: Plan, { scalar }: ModelTarget, threads: number): Packed {
  const packed = { cycles: 0, read: 0, written: 0, resident: plan.results.bytes, ahead: 0 };
  for (const input of plan.inputs) {
    packed.resident += input.placed.bufferBytes;
    const { packing, edges } = input.placed;
    if (packing !== undefined) {
      const share = plan.packedBy(threads, packing, input);
      packed.cycles += share * packingCycles(packing, scalar);
      packed.read += share * packing.sourceBytes;
      if (packing.ahead) packed.ahead += share * packing.sourceBytes;
      packed.written += share * packing.passingBytes;
      packed.resident += packing.sourceBytes;
    }
    const across = edges === undefined ? 0 : plan.edgeShare(input);
    if (edges === undefined || across === 0) continue;
    const share = across * plan.packedBy(threads, edges, input);
    packed.cycles += share * packingCycles(edges, scalar);
    packed.read += share * edges.bytes;
    packed.written += share * edges.passingBytes;
    packed.resident += across * edges.bytes;
  }
  return packed;
}

/** Cycles of one packing. */
function packingCycles(packing: Packing, scalar: ScalarCycles): number {
  const { kind, elements, run, bytes, arithmetic, gathered, operations } = packing;
  switch (kind) {
    case "copy":
      return (
        bytes * scalar.copyByte.value +
        (elements / run) * (scalar.copyRun.value + arithmetic.guards * scalar.guard.value)
      );
    case "made":
      return (elements / run) * (operations / VECTORS_PER_CYCLE);
    case "strided":
      return elements * (scalar.strided.value + arithmetic.guards * scalar.guard.value);
    case "indexed":
      return (
        elements *
        ((gathered ? scalar.strided : scalar.indexed).value +
          operations * (gathered ? scalar.operation : scalar.vectorOperation).value +
          arithmetic.digits * scalar.digit.value +
          arithmetic.guards * scalar.guard.value)
      );
    default:
      return kind satisfies never;
  }
}

function level(name: string, trips: number, inner: number, read: number, write: number): LevelCost {
  const bound = inner >= read && inner >= write ? "inner" : read >= write ? "read" : "write";
  return { level: name, trips, inner, read, write, bound };
}
