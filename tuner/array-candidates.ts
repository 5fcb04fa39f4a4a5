/**
 * @file The search space of lane designs given by transforms: every design that fits, with the number of its passes that run side by side.
 *
 *     const space = finished(arraySpaceOf(computation, { threads: 1, target }));      a space, or why lanes have no design for it
 *     bestOfEach(space)                                                             the most promising of each dataflow, the best first
 */

import type { Extents } from "../abstraction/affine.ts";
import { ARRAY_INPUTS, type ArrayPlan, canonicalJson, type DesignSchedule } from "../abstraction/candidate.ts";
import { sortedBy } from "../abstraction/collections.ts";
import { type Computation, extentsOf, outputOf } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { partsOf } from "../abstraction/epilogue.ts";
import { internal } from "../abstraction/error.ts";
import { axesIn } from "../abstraction/expression.ts";
import type { LoopNest } from "../abstraction/loop-nest.ts";
import { pick, type Random } from "../abstraction/random.ts";
import type { Steps } from "../abstraction/steps.ts";
import {
  type ArrayDesign,
  type ArrayDesigns,
  arrayDesigns,
  type LaneArray,
  placeArray,
  withBeside,
} from "../mapper/space-time/lane-array.ts";
import { MOST_UNROLLED_STEPS } from "../mapper/space-time/lower.ts";
import { lowerPlaced } from "../mapper/space-time/lower-array.ts";
import { operandAccesses } from "../mapper/space-time/problem.ts";
import type { LaneRefusal } from "../mapper/space-time/taps.ts";
import { tooLongToWrite, vectorsWritten } from "../mapper/space-time/written-length.ts";
import { leavingSteps, type RoughMachine, roughCycles } from "../perfmodel/arrays.ts";
import type { Costs, CostTerm } from "../perfmodel/correct.ts";
import type { ModelTarget } from "../perfmodel/target.ts";
import { vectorCosts } from "../perfmodel/vectors.ts";
import { laneCosts } from "../targets/lanes.ts";
import { leastLaneBytes, REFERENCE_CPU, type VectorRegisters, ZMM } from "../targets/x86.ts";
import type { SearchSpace } from "./space.ts";

interface ArraySpaceOptions {
  readonly threads: number;
  readonly target: ModelTarget;
  /** Vector registers that hold the lanes; those of AVX-512 when left out. */
  readonly vectors?: VectorRegisters;
  /** Whether the machine multiplies neighbours with dot products; see targets/x86-dots.ts. */
  readonly hasDots?: boolean;
  /** Number of loops that transforms mix; see {@link arrayDesigns}. */
  readonly mixed?: number;
}

/** A schedule of a design with a quick estimate of its time, which is good for an order. */
export interface RankedArray<S extends ArrayPlan = ArrayPlan> {
  readonly design: ArrayDesign;
  readonly schedule: S;
  readonly roughCycles: number;
}

/** The same with the model's prediction. */
interface PricedArray<S extends ArrayPlan = ArrayPlan> extends RankedArray<S> {
  readonly seconds: number;
}

export interface ArraySpaceOfDesigns<S extends ArrayPlan> extends SearchSpace<S> {
  /** Number of schedules, including those too long to be generated. */
  readonly size: number;
  readonly designs: ArrayDesigns;
  /** Schedules by estimated time, shortest first. Only this list contains those too long to be generated. */
  readonly ranked: readonly RankedArray<S>[];
  /** The best of each dataflow by what their nests tell, the most promising first. */
  bestOfEach(): readonly PricedArray<S>[];
  expectedSeconds(schedule: S): number;
  /** What the nest of a schedule tells; undefined when the design does not fit. */
  written(schedule: S): Written | undefined;
}

/** Numbers of passes side by side to try: rows above the lanes, tiles of the lane loop, and steps of a loop that the input does not depend on. */
const ROWS = [1, 2, 4] as const;
const TILES = [1, 2, 4] as const;
const CHANNELS = [1, 4] as const;
/** Most passes side by side: with more, sums and operands do not fit the registers. */
const MOST_BESIDE = 24;
/** Number of the best single-pass schedules whose designs are tried with several passes. Pricing all of them takes seconds. */
const MOST_WIDENED = 24;
/** Most multiply-adds written in a block, as for windows (lane-candidates.ts). */
const LONGEST_BLOCK = 600;
/** Number of a dataflow's designs whose nests are compared, and of all designs. */
const MOST_TRIED = 16;
const MOST_COMPARED = 32;

/** What a machine makes of designs: their schedules, costs and nests. */
interface DesignMachine<S extends ArrayPlan> {
  /** Lanes of the widest array. */
  readonly lanes: number;
  readonly inputs: readonly ArrayPlan["inputs"][];
  scheduleOf(design: ArrayDesign, beside: ArrayPlan["beside"], inputs: ArrayPlan["inputs"]): S;
  /** Other schedules of the same passes. */
  variantsOf(schedule: S): readonly S[];
  readonly rough: RoughMachine;
  /** The nest of a design, and what it costs. */
  nestOf(array: LaneArray, schedule: S): LoopNest;
  costsOf(nest: LoopNest, schedule: S): Costs;
  /** Whether a nest is too long to be generated. */
  isTooLong(nest: LoopNest): boolean;
}

/** The space on the vectors of a CPU, or why lanes have no design for a computation; see {@link designSpaceOn}. */
export function* arraySpaceOf(
  computation: Computation,
  { threads, target, vectors = ZMM, mixed, hasDots = false }: ArraySpaceOptions,
): Steps<ArraySpaceOfDesigns<DesignSchedule> | LaneRefusal> {
  const { sum } = partsOf(computation);
  return yield* designSpaceOn<DesignSchedule>(
    computation,
    {
      lanes: vectors.bytes / Math.max(leastLaneBytes(vectors), bytesOf(outputOf(sum).dtype)),
      inputs: ARRAY_INPUTS.filter((inputs) => inputs !== "dots" || hasDots),
      scheduleOf: ({ plan }, beside, inputs) => ({ ...plan, beside, inputs, streaming: false, threads }),
      variantsOf: () => [],
      rough: { costs: laneCosts(REFERENCE_CPU), registers: vectors.count, onWarps: false },
      nestOf: (array, { inputs }) => lowerPlaced(computation, array, inputs, leastLaneBytes(vectors) === 2),
      costsOf: (nest, { streaming }) => vectorCosts(nest, computation, { target, threads, vectors, streaming }),
      isTooLong: (nest) => tooLongToWrite(nest) !== undefined,
    },
    mixed,
  );
}

/**
 * The space on a machine, or why it has no design for a computation. Each step examines one design. When told to stop, it returns the designs
 * priced by then.
 */
export function* designSpaceOn<S extends ArrayPlan>(
  computation: Computation,
  machine: DesignMachine<S>,
  mixed: number | undefined,
): Steps<ArraySpaceOfDesigns<S> | LaneRefusal> {
  const { sum } = partsOf(computation);
  const designs = yield* arrayDesigns(computation, machine.lanes, mixed);
  if ("rule" in designs) return designs;
  const priced = (design: ArrayDesign, beside: ArrayPlan["beside"]): RankedArray<S>[] =>
    machine.inputs.flatMap((inputs) => {
      const schedule = machine.scheduleOf(design, beside, inputs);
      const placed = withBeside(computation, sum, design.judged, schedule);
      if (!placed.ok) return [];
      return [schedule, ...machine.variantsOf(schedule)].map((one) => ({
        design,
        schedule: one,
        roughCycles: roughCycles(placed.array, one, machine.rough),
      }));
    });
  // 1. Every design, one pass at a time.
  const alone: RankedArray<S>[] = [];
  let isEnough = false;
  for (const [at, design] of designs.fitting.entries()) {
    alone.push(...priced(design, {}));
    isEnough = yield { what: "designs", done: at + 1, of: designs.fitting.length };
    if (isEnough && alone.length > 0) break;
  }
  const single = byEstimate(alone);
  // 2. Of the most promising, and of the best of each dataflow, several passes side by side.
  const best = new Set([...single.slice(0, MOST_WIDENED), ...bestOfEach({ ranked: single })].map((r) => r.design));
  // Results that leave one by one take as many statements as there are steps. With several passes no compiler finishes these within seconds.
  const short = [...best].filter(({ judged }) => leavingSteps({ ...judged, sum }) === 1);
  const wide: RankedArray<S>[] = [];
  for (const [at, design] of short.entries()) {
    if (isEnough) break;
    for (const beside of besides(computation, design))
      if (Object.keys(beside).length > 0) wide.push(...priced(design, beside));
    isEnough = yield { what: "designs side by side", done: at + 1, of: short.length };
  }
  const ranked = byEstimate([...single, ...wide]);
  if (ranked.length === 0)
    return { rule: "design", because: `design: ${designs.refused[0]?.because ?? "no transform fits the lanes"}` };
  return new ArrayCandidates(designs, ranked, (schedule) => {
    const placed = placeArray(computation, schedule);
    if (!placed.ok) return undefined;
    const nest = machine.nestOf(placed.array, schedule);
    const { terms, bounds } = machine.costsOf(nest, schedule);
    const isTooLong = machine.isTooLong(nest);
    return { isTooLong, size: vectorsWritten(nest.body), seconds: bounds[0], parts: terms };
  });
}

/** What may run side by side: rows, tiles of the lane loop, and channels that share what they read. */
function besides(computation: Computation, { plan }: ArrayDesign): Extents[] {
  const { sum } = partsOf(computation);
  const extents = extentsOf(sum);
  const { loops } = plan.transform;
  const [lane = ""] = loops;
  const outside = sum.axes.filter((a) => a.kind === "spatial" && a.extent > 1 && !loops.includes(a.name));
  const read = operandAccesses(sum).inputs.map((a) => new Set(axesIn(a)));
  // Rows share the elements of a window; channels a whole operand.
  const sliding = read.find((axes) => axes.has(lane));
  const row = outside.findLast((a) => sliding?.has(a.name) && !read.every((axes) => axes.has(a.name)))?.name;
  const channel = outside.find((a) => !sliding?.has(a.name))?.name;
  const fits = (name: string | undefined, steps: number): boolean =>
    steps === 1 || (name !== undefined && steps <= (extents[name] ?? 1));
  const tiles = Math.ceil((extents[lane] ?? 1) / (plan.tile[lane] ?? extents[lane] ?? 1));
  const steps = Math.min(
    MOST_UNROLLED_STEPS,
    loops.slice(1).reduce((n, name) => n * (extents[name] ?? 1), 1),
  );
  const made: Record<string, number>[] = [];
  for (const rows of ROWS)
    for (const wide of TILES)
      for (const channels of CHANNELS) {
        const count = rows * wide * channels;
        if (!fits(row, rows) || !fits(channel, channels) || wide > tiles) continue;
        if (count > MOST_BESIDE || (count > 1 && count * steps > LONGEST_BLOCK)) continue;
        made.push({
          ...(channel !== undefined && channels > 1 && { [channel]: channels }),
          ...(row !== undefined && rows > 1 && { [row]: rows }),
          ...(wide > 1 && { [lane]: wide }),
        });
      }
  return made;
}

const byEstimate = <S extends ArrayPlan>(all: readonly RankedArray<S>[]): RankedArray<S>[] =>
  sortedBy(all, (a) => a.roughCycles);

const byTime = <S extends ArrayPlan>(all: readonly PricedArray<S>[]): PricedArray<S>[] =>
  sortedBy(all, (a) => a.seconds);

/** The best of each dataflow by the estimate, the most promising first, whatever its length. */
export function bestOfEach<S extends ArrayPlan>({ ranked }: Pick<ArraySpaceOfDesigns<S>, "ranked">): RankedArray<S>[] {
  const seen = new Set<string>();
  return ranked.filter(({ design }) => !seen.has(design.dataflow) && seen.add(design.dataflow));
}

/** What the nest of a schedule tells. */
export interface Written {
  /** Whether it is too long to be generated. */
  readonly isTooLong: boolean;
  readonly size: number;
  /** Predicted seconds of a call. */
  readonly seconds: number;
  /** Seconds of each part of it, as if it ran alone. */
  readonly parts: readonly CostTerm[];
}

class ArrayCandidates<S extends ArrayPlan> implements ArraySpaceOfDesigns<S> {
  readonly size: number;
  readonly designs: ArrayDesigns;
  readonly ranked: readonly RankedArray<S>[];
  private readonly known: ReadonlySet<string>;
  /** Texts of what mutations compare, for each ranked schedule. */
  private readonly texts: readonly { readonly transform: string; readonly beside: string }[];
  private readonly write: (schedule: S) => Written | undefined;
  private readonly nests = new Map<string, Written | undefined>();

  constructor(designs: ArrayDesigns, ranked: readonly RankedArray<S>[], write: (schedule: S) => Written | undefined) {
    this.write = write;
    this.size = ranked.length;
    this.designs = designs;
    this.ranked = ranked;
    this.texts = ranked.map(({ schedule: { transform, beside } }) => ({
      transform: canonicalJson(transform),
      beside: canonicalJson(beside),
    }));
    this.known = new Set(ranked.map(({ schedule }) => canonicalJson(schedule)));
  }

  key(schedule: S): string {
    return canonicalJson(schedule);
  }

  expectedSeconds(schedule: S): number {
    return this.written(schedule)?.seconds ?? Number.POSITIVE_INFINITY;
  }

  codeSize(schedule: S): number {
    return this.written(schedule)?.size ?? 0;
  }

  random(random: Random): S {
    const drawn = this.drawn(random, this.ranked) ?? internal("no design is short enough to be written");
    return drawn;
  }

  /** The same design with another number of passes side by side, or another design with the same number. */
  mutate(schedule: S, random: Random): S {
    const own = canonicalJson(schedule.transform);
    const beside = canonicalJson(schedule.beside);
    const sameDesign = random() < 0.5;
    const near = this.ranked.filter(({ schedule: s }, i) => {
      const said = this.texts[i];
      return sameDesign ? said?.transform === own : said?.beside === beside && s.inputs === schedule.inputs;
    });
    return this.drawn(random, near) ?? schedule;
  }

  crossover(a: S, b: S, random: Random): S {
    const mixed = { ...a, beside: b.beside, inputs: b.inputs };
    return this.known.has(this.key(mixed)) && this.isWritten(mixed) ? mixed : random() < 0.5 ? a : b;
  }

  /** The most promising first: the first by the estimate, in the order of what their nests tell, and the others after them. */
  *all(): Generator<S> {
    const first: S[] = [];
    let at = 0;
    for (; at < this.ranked.length && first.length < MOST_COMPARED; at++) {
      const schedule = this.ranked[at]?.schedule;
      if (schedule && this.isWritten(schedule)) first.push(schedule);
    }
    yield* first.sort((a, b) => this.expectedSeconds(a) - this.expectedSeconds(b));
    for (const { schedule } of this.ranked.slice(at)) if (this.isWritten(schedule)) yield schedule;
  }

  bestOfEach(): readonly PricedArray<S>[] {
    const ofFlow = new Map<string, PricedArray<S>[]>();
    for (const one of this.ranked) {
      const { design, schedule } = one;
      const tried = ofFlow.get(design.dataflow) ?? [];
      if (tried.length === MOST_TRIED) continue;
      const seconds = this.isWritten(schedule) ? this.expectedSeconds(schedule) : Number.POSITIVE_INFINITY;
      ofFlow.set(design.dataflow, [...tried, { ...one, seconds }]);
    }
    const best = [...ofFlow.values()].flatMap((tried) => byTime(tried).slice(0, 1));
    return byTime(best.filter(({ seconds }) => Number.isFinite(seconds)));
  }

  private isWritten(schedule: S): boolean {
    return this.written(schedule)?.isTooLong === false;
  }

  written(schedule: S): Written | undefined {
    const key = this.key(schedule);
    if (!this.nests.has(key)) this.nests.set(key, this.write(schedule));
    return this.nests.get(key);
  }

  private drawn(random: Random, from: readonly RankedArray<S>[]): S | undefined {
    const left = [...from];
    while (left.length > 0) {
      const { schedule } = pick(random, left);
      if (this.isWritten(schedule)) return schedule;
      left.splice(
        left.findIndex((one) => one.schedule === schedule),
        1,
      );
    }
    return undefined;
  }
}
